//! A long path that loses packets by chance: direct, and with a node at each end of it.

use ekiden_model::{loss, payload_rate};
use ekiden_report::{LineChart, Section, Series, Table};
use ekiden_scenario::Scenario;
use ekiden_units::{BitRate, Bytes, Time};

use crate::cases::{Act, Case, DIRECT, parse, size};
use crate::present::{Outcome, beside_direct, concluded, measured, of_transfer};
use crate::protocol::Listener;

/// Round trip of the path.
pub const RTT: Time = Time::ms(200);
/// The part of its packets that is lost.
const LOST: f64 = 0.01;
const RELAYED: &str = "two nodes, ekiden_far";

/// The transfers.
pub fn cases() -> Vec<Case> {
    let scenario = network();
    let line = payload_rate(&scenario.links["line"].forth, true);
    let segment = Bytes(1448);
    let window = loss::cubic_window(LOST, RTT).expect("the loss is between 0 and 1");
    let cubic = loss::rate(window, segment, RTT).expect("the round trip is not 0");
    let filled = BitRate((line.0 as f64 * (1.0 - LOST)) as u64);
    let case = |way, listener, model, bytes| Case {
        act: Act::Lossy,
        group: "100 Mbit/s, 1 % lost".into(),
        way,
        listener,
        scenario: scenario.clone(),
        bytes,
        model,
        paper_gain: None,
        watch: None,
    };
    vec![
        case(DIRECT, None, cubic, Bytes::mib(2)),
        case(RELAYED, Some(Listener::Socks("home".into())), filled, size(filled)),
    ]
}

/// A node at each end of the path. The one that sends has ekiden's control, the hosts have CUBIC and large buffers.
pub fn network() -> Scenario {
    let delay = Time(RTT.0 / 2);
    parse(&format!(
        "name = \"lossy\"\ndescription = \"200 ms, of which one packet in a hundred is lost\"\n\
         [tcp]\ncongestion = \"cubic\"\nsend_buffer = \"16MiB\"\nreceive_buffer = \"16MiB\"\n\
         [node.client]\n[node.home]\nkind = \"proxy\"\nnext = [\"away\"]\n\
         [node.away]\nkind = \"proxy\"\ntcp = {{ congestion = \"ekiden_far\" }}\n[node.server]\n\
         [link.lan]\nends = [\"client\", \"home\"]\nrate = \"1Gbit/s\"\n\
         [link.line]\nends = [\"home\", \"away\"]\nrate = \"100Mbit/s\"\ndelay = \"{delay}\"\nqueue = \"1250KB\"\nloss = \"1%\"\n\
         [link.far]\nends = [\"away\", \"server\"]\nrate = \"1Gbit/s\"\n\
         [ping.beside]\nfrom = \"client\"\nto = \"server\"\n"
    ))
}

/// The act as a section.
pub fn section(outcomes: &[Outcome]) -> Section {
    let of: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.act == Act::Lossy).collect();
    let heading = "A long path that loses packets (100 Mbit/s, 200 ms, 1 % lost)".into();
    if of.is_empty() {
        let text = vec!["This is left out here: this kernel, or this process, cannot have ekiden_far.".into()];
        return Section { heading, text, charts: Vec::new(), table: None };
    }
    let mut table = Table::new(["", "Mbit/s", "× direct", "10 MB after, s", "ping, median, ms", "model, Mbit/s"]);
    for outcome in &of {
        let ping = outcome.transfer.pings.first().and_then(|ping| ping.report.p50_us);
        table.row([
            outcome.way.to_owned(),
            measured(outcome),
            beside_direct(outcome, format!("{:.1}", outcome.gain)),
            of_transfer(outcome, reached(outcome, 10e6)),
            of_transfer(outcome, ping.map_or(String::new(), |us| format!("{:.0}", us / 1e3))),
            format!("{:.1}", outcome.model_bit_s as f64 / 1e6),
        ]);
    }
    let chart = LineChart {
        title: "What has arrived, 200 ms and 1 % lost".into(),
        across: "seconds".into(),
        quantity: "MB".into(),
        series: of.iter().map(|outcome| series(outcome)).collect(),
        ..LineChart::default()
    };
    let text = vec![
        "Nothing is full here: a radio network or a cable loses one packet in a hundred by chance. CUBIC, which most hosts have, takes \
         each loss for a full queue and sends less, and needs many round trips of 200 ms to recover. Between the nodes it is \
         ekiden_far that decides: what is lost without a queue is chance, and is only sent again. It keeps its own queue \
         short, so that a ping beside the download waits little. The hosts stay as they are."
            .into(),
        concluded(&of, "The gain", || {
            let [direct, relayed] = [of[0], of[of.len() - 1]].map(|outcome| outcome.goodput_bit_s / 1e6);
            format!("{relayed:.1} Mbit/s instead of {direct:.1} Mbit/s.")
        }),
    ];
    Section { heading, text, charts: vec![chart.to_svg()], table: Some(table) }
}

/// When `bytes` bytes had arrived, in seconds; at the rate of the whole transfer if the file is shorter.
fn reached(outcome: &Outcome, bytes: f64) -> String {
    let at = outcome.transfer.arrived.iter().find(|point| point[1] * 1e6 >= bytes).map(|point| point[0]);
    at.map_or_else(|| format!("{:.0}, at this rate", bytes * 8.0 / outcome.goodput_bit_s), |at| format!("{at:.1}"))
}

fn series(outcome: &Outcome) -> Series {
    let points = outcome.transfer.arrived.iter().map(|&[at, mb]| (at, mb)).collect();
    Series { name: of_transfer(outcome, outcome.way.into()), points }
}
