//! A ping beside a download over a slow long line: direct, and through tunnels with one queue and another.

use ekiden_model::payload_rate;
use ekiden_report::{LineChart, Section, Series, Table};
use ekiden_scenario::Scenario;
use ekiden_units::{Bytes, Time};

use crate::cases::{Act, Case, DIRECT, S3_RTT, parse};
use crate::present::{Outcome, beside_direct, measured, of_transfer};

/// Long enough for the window of the download to grow to the size of a long queue.
const FILE: Bytes = Bytes::mib(19);
/// The ways, with the discipline of the tunnel's queue.
const WAYS: [(&str, Option<&str>); 3] =
    [(DIRECT, None), ("tunnel, drop tail", Some("drop_tail")), ("tunnel, FQ-CoDel", Some("fq_codel"))];

/// The transfers.
pub fn cases() -> Vec<Case> {
    let case = |(way, discipline)| {
        let scenario = network(discipline);
        let model = payload_rate(&scenario.links["line"].forth, true);
        Case {
            act: Act::Tunnel,
            group: "10 Mbit/s".into(),
            way,
            listener: None,
            scenario,
            bytes: FILE,
            model,
            paper_gain: None,
            watch: None,
        }
    };
    WAYS.map(case).into()
}

/// Two hosts behind routers with a slow long line between them. The tunnel is between the routers.
fn network(discipline: Option<&str>) -> Scenario {
    let delay = Time(S3_RTT.0 / 2);
    let mut text = format!(
        "name = \"tunnel-{}\"\ndescription = \"A ping beside a download over 10 Mbit/s\"\n\
         [tcp]\ncongestion = \"cubic\"\nsend_buffer = \"6400KB\"\nreceive_buffer = \"6400KB\"\n\
         [node.client]\n[node.home]\nkind = \"router\"\n[node.away]\nkind = \"router\"\n[node.server]\n\
         [link.lan]\nends = [\"client\", \"home\"]\nrate = \"1Gbit/s\"\n\
         [link.line]\nends = [\"home\", \"away\"]\nrate = \"10Mbit/s\"\ndelay = \"{delay}\"\nqueue = \"50 packets\"\n\
         [link.far]\nends = [\"away\", \"server\"]\nrate = \"1Gbit/s\"\n\
         [ping.beside]\nfrom = \"client\"\nto = \"server\"\n",
        discipline.unwrap_or(DIRECT).replace('_', "-")
    );
    if let Some(discipline) = discipline {
        text += &format!("[tunnel.t]\nends = [\"home\", \"away\"]\ndiscipline = \"{discipline}\"\n");
    }
    parse(&text)
}

/// The act as a section.
pub fn section(outcomes: &[Outcome]) -> Section {
    let of: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.act == Act::Tunnel).collect();
    let heading = "A tunnel over TCP, and what waits in it (10 Mbit/s, 50 ms)".into();
    if of.is_empty() {
        let text = vec!["This is left out here: /dev/net/tun cannot be opened.".into()];
        return Section { heading, text, charts: Vec::new(), table: None };
    }
    let mut table =
        Table::new(["", "Mbit/s", "× direct", "ping, median, ms", "ping, 99 %, ms", "pings lost", "model, Mbit/s"]);
    for outcome in &of {
        let report = outcome.transfer.pings.first().map(|ping| &ping.report);
        let ms = |us: Option<f64>| us.map_or(String::new(), |us| format!("{:.0}", us / 1e3));
        table.row([
            outcome.way.to_owned(),
            measured(outcome),
            beside_direct(outcome, format!("{:.2}", outcome.gain)),
            of_transfer(outcome, ms(report.and_then(|report| report.p50_us))),
            of_transfer(outcome, ms(report.and_then(|report| report.p99_us))),
            of_transfer(outcome, report.map_or(String::new(), |report| format!("{} of {}", report.lost, report.sent))),
            format!("{:.1}", outcome.model_bit_s as f64 / 1e6),
        ]);
    }
    let chart = LineChart {
        title: "Round trips of a ping beside a download, 10 Mbit/s and 50 ms".into(),
        across: "seconds".into(),
        quantity: "milliseconds".into(),
        series: of.iter().map(|outcome| series(outcome)).collect(),
        ..LineChart::default()
    };
    Section {
        heading,
        text: vec![
            "A client fetches a file and pings the server ten times a second meanwhile. The hosts have buffers of 6,400 KB, the \
             line has a queue of 50 packets, which is 60 ms. In the tunnel everything is one TCP connection, which loses nothing: \
             the download's window grows, and all that it has too much of waits in front of the tunnel. With drop tail that is \
             one queue of up to 10 MB, and each ping waits behind the download. With FQ-CoDel, the default of ekiden tunnel, \
             each flow has a queue of its own, from which a packet leaves when TCP is about to send it, and the tunnel keeps the \
             line's own queue short too."
                .into(),
        ],
        charts: vec![chart.to_svg()],
        table: Some(table),
    }
}

fn series(outcome: &Outcome) -> Series {
    let times = outcome.transfer.pings.iter().flat_map(|ping| &ping.times);
    Series { name: of_transfer(outcome, outcome.way.into()), points: times.map(|&[at, ms]| (at, ms)).collect() }
}
