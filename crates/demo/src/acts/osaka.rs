//! S0's path: a proxy next to each host, and what the congestion control between them makes of the distance.

use ekiden_model::{payload_rate, s0, s3};
use ekiden_report::{BarChart, LineChart, Section, Series, Table};
use ekiden_scenario::{Direction, Queue, Scenario};
use ekiden_units::{BitRate, Bytes, Time};

use crate::cases::{Act, Case, DIRECT, WINDOW, parse, size};
use crate::present::{Outcome, bars, beside_direct, groups, mbit, measured, of_transfer, on_axis};
use crate::protocol::Listener;

/// S0 chapter 4: the path between Osaka and Tokyo, and the 25 ms that its emulator adds (both ways together).
pub const RTTS: [(&str, Time); 2] = [("Osaka–Tokyo, 18 ms", Time::ms(18)), ("Tokyo–Okinawa, 43 ms", Time::ms(43))];
const RENO: (&str, &str) = ("Reno", "reno");
/// Ekiden's own controls for large windows: what they are called, and their names in the kernel.
const OWN: [(&str, &str); 2] = [("HSTCP", "ekiden_hstcp"), ("gentle HSTCP", "ekiden_ghstcp")];
/// Some saw-teeth of Reno at 43 ms, so that what slow start loses does not decide.
const PROXIED: Bytes = Bytes::mib(160);

/// The transfers. The own controls run on the longer path, which Reno does not fill.
pub fn cases(has_own_controls: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for (group, rtt) in RTTS {
        let is_long = rtt > RTTS[0].1;
        let own = OWN.iter().filter(|_| has_own_controls && is_long);
        let case = |way, control, listener, bytes, model, watch| Case {
            act: Act::Osaka,
            group: group.into(),
            way,
            listener,
            scenario: path(rtt, control),
            bytes,
            model,
            paper_gain: None,
            watch: Some(watch),
        };
        let window = s3::window_limit(WINDOW, rtt).expect("the RTT is not 0");
        cases.push(case(DIRECT, RENO.1, None, size(window), window, "server"));
        for &(way, control) in [RENO].iter().chain(own) {
            let scenario = path(rtt, control);
            let line = &scenario.links["core"].forth;
            // No closed form for the own controls: the line itself.
            let filled = if control == RENO.1 { reno_part(line, rtt) } else { 1.0 };
            let model = BitRate((payload_rate(line, true).0 as f64 * filled) as u64);
            cases.push(case(way, control, Some(Listener::Socks("pa".into())), PROXIED, model, "pb"));
        }
    }
    cases
}

/// The network with ekiden's own controls, all that [`cases`] uses.
pub fn own_controls() -> [Scenario; 2] {
    OWN.map(|(_, control)| path(RTTS[1].1, control))
}

/// S0 figure 6, case 2 and chapter 4: proxies next to the hosts, between them 70 Mbit/s with a drop-tail queue of 100 KB and
/// an MTU of 1400 bytes, which the sending proxy reaches over a local network. S0 does not say how fast that is; 100
/// Mbit/s, since it leaves faster ones to the future.
fn path(rtt: Time, control: &str) -> Scenario {
    let delay = Time(rtt.0 / 2);
    let name = format!("s0-{}ms-{}", rtt.0 / 1_000_000, control.trim_start_matches("ekiden_"));
    let mut text = format!(
        "name = \"{name}\"\ndescription = \"The Osaka thesis (2005): 70 Mbit/s, 100 KB drop tail, proxies next to the hosts\"\n\
         [node.client]\ntcp = {{ send_buffer = \"{WINDOW}\", receive_buffer = \"{WINDOW}\" }}\n\
         [node.pa]\nkind = \"proxy\"\nnext = [\"pb\"]\n[node.router]\nkind = \"router\"\n\
         [node.pb]\nkind = \"proxy\"\ntcp = {{ congestion = \"{control}\" }}\n\
         [node.server]\ntcp = {{ send_buffer = \"{WINDOW}\", receive_buffer = \"{WINDOW}\" }}\n\
         [link.core]\nends = [\"pa\", \"router\"]\nrate = \"70Mbit/s\"\ndelay = \"{delay}\"\nqueue = \"100KB\"\nmtu = 1400\n"
    );
    for (name, ends) in [("west", ["client", "pa"]), ("site", ["router", "pb"]), ("east", ["pb", "server"])] {
        text += &format!("[link.{name}]\nends = {ends:?}\nrate = \"100Mbit/s\"\nmtu = 1400\n");
    }
    parse(&text)
}

/// The act as a section. `without` says why the own controls do not take part, if they do not.
pub fn section(outcomes: &[Outcome], without: Option<&str>) -> Section {
    let of: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.act == Act::Osaka).collect();
    let mut table = Table::new(["", "Mbit/s", "× direct", "model, Mbit/s", "of the line's payload", "packets dropped"]);
    let line = of.first().map_or(f64::NAN, |outcome| payload_rate(core(outcome), true).0 as f64);
    for outcome in &of {
        table.row([
            outcome.case.title(),
            measured(outcome),
            beside_direct(outcome, format!("{:.2}", outcome.gain)),
            mbit(outcome.model_bit_s as f64),
            of_transfer(outcome, format!("{:.1} %", outcome.goodput_bit_s / line * 100.0)),
            of_transfer(outcome, outcome.transfer.drops.to_string()),
        ]);
    }
    let names = groups(&of);
    let (bars, starred) = bars(&names, &of);
    let bar_of = |outcome: &Outcome| bars.iter().position(|(name, _)| *name == outcome.way);
    let is_long = |outcome: &&&Outcome| outcome.group == RTTS[1].0 && !outcome.case.is_direct();
    let long: Vec<&Outcome> = of.iter().filter(is_long).copied().collect();
    let first_colour = long.first().and_then(|outcome| bar_of(outcome)).unwrap_or_default();
    let chart = BarChart {
        title: "70 Mbit/s, 100 KB drop tail: direct, and over two proxies".into(),
        quantity: "Mbit/s".into(),
        bars,
        starred,
        categories: on_axis(&names),
        marks: vec![("the line's payload rate".into(), vec![Some(line / 1e6); names.len()])],
    };
    let windows = LineChart {
        title: "Congestion window between the proxies, 43 ms".into(),
        across: "seconds".into(),
        quantity: "segments".into(),
        series: long.iter().map(|outcome| series(outcome)).collect(),
        levels: long
            .first()
            .map(|outcome| ("fills the empty path".into(), bdp_segments(outcome)))
            .into_iter()
            .collect(),
        first_colour,
        ..LineChart::default()
    };
    let mut text = vec![
        "A window of 64 KiB bounds the direct transfer to 29 Mbit/s at 18 ms and 12 Mbit/s at 43 ms; it stays below, for \
         the kernel refills a send buffer only when a third of it is free. With a proxy \
         next to each host that window only spans the last metres; the distance is left to the congestion control between \
         the proxies. Reno gives half of its window away at every loss and wins one segment back per round trip. HSTCP and \
         gentle HSTCP, which ekiden brings into the kernel, give less away and win it back faster the larger the window is. The model has \
         whole saw-teeth of Reno only, not what slow start loses at the beginning; for the other two it is the line itself."
            .to_owned(),
    ];
    if let Some(reason) = without {
        text.push(format!("HSTCP and gentle HSTCP are left out here: {reason}."));
    }
    text.extend(of.iter().filter(|outcome| !outcome.case.is_direct()).map(|outcome| limit(outcome, line)));
    Section {
        heading: "Proxies next to the hosts (path of the Osaka thesis, 2005)".into(),
        text,
        charts: vec![chart.to_svg(), windows.to_svg()],
        table: Some(table),
    }
}

fn series(outcome: &Outcome) -> Series {
    let points = outcome.transfer.samples.iter().map(|&[at, cwnd, _]| (at, cwnd)).collect();
    Series { name: of_transfer(outcome, outcome.way.into()), points }
}

/// What bounds a control between the proxies, from its window as it was seen.
fn limit(outcome: &Outcome, line: f64) -> String {
    let core = core(outcome);
    let cwnd: Vec<f64> = outcome.transfer.samples.iter().map(|&[_, cwnd, _]| cwnd).collect();
    let falls = cwnd.windows(2).filter(|pair| pair[1] < pair[0] * 0.9).count();
    let peak = cwnd.iter().copied().fold(0.0, f64::max);
    format!(
        "{}: {:.1} % of the line's payload. The window peaked at {peak:.0} segments and fell {falls} times; {:.0} fill the \
         empty path, and the queue holds {:.0} more.",
        of_transfer(outcome, outcome.case.title()),
        outcome.goodput_bit_s / line * 100.0,
        bdp_segments(outcome),
        queue(core).0 as f64 / f64::from(core.mtu),
    )
}

fn core<'a>(outcome: &Outcome<'a>) -> &'a Direction {
    &outcome.case.scenario.links["core"].forth
}

fn queue(line: &Direction) -> Bytes {
    let Queue::Bytes(queue) = line.queue else { unreachable!("the core's queue is given in bytes") };
    queue
}

/// The part of the line's payload rate that Reno's saw-tooth uses.
fn reno_part(line: &Direction, rtt: Time) -> f64 {
    s0::reno_utilisation(Bytes::at(line.rate, rtt), queue(line))
}

fn bdp_segments(outcome: &Outcome) -> f64 {
    let rtt = outcome.case.scenario.base_rtt("pa", "pb").unwrap_or_default();
    Bytes::at(core(outcome).rate, rtt).0 as f64 / f64::from(core(outcome).mtu)
}
