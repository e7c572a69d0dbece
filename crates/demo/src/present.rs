//! Results as tables for the terminal, a page with pictures, and JSON.

use ekiden_model::{payload_rate, s0};
use ekiden_report::{BarChart, LineChart, Page, Section, Series, Table};
use ekiden_scenario::Queue;
use ekiden_units::Bytes;
use serde::Serialize;

use crate::cases::{Act, Case, Through};
use crate::protocol::Transfer;

/// One case with what came of it, as it stands in the JSON document.
#[derive(Debug, Serialize)]
pub struct Outcome<'a> {
    /// The part of the demo.
    pub act: Act,
    /// The number of segments, the position, or the path.
    pub group: &'a str,
    /// How the client reached the server.
    pub through: Through,
    /// Measured at the client, hand-shakes and slow start included.
    pub goodput_bit_s: f64,
    /// What a closed form says.
    pub model_bit_s: u64,
    /// Measured as a multiple of the same path's direct transfer.
    pub gain: f64,
    /// The paper's multiple, if it gives one.
    pub paper_gain: Option<f64>,
    /// What the client saw.
    pub transfer: &'a Transfer,
    #[serde(skip)]
    case: &'a Case,
}

/// Puts the transfers beside the cases they came from. Each act has a direct transfer for every path it compares.
pub fn outcomes<'a>(cases: &'a [Case], transfers: &'a [Transfer]) -> Vec<Outcome<'a>> {
    let direct = |case: &Case| {
        let same_path = |other: &Case| case.act != Act::Osaka || other.group == case.group;
        let found = cases
            .iter()
            .zip(transfers)
            .find(|(other, _)| other.act == case.act && other.through == Through::Direct && same_path(other));
        found.map_or(f64::NAN, |(_, transfer)| transfer.goodput_bit_s())
    };
    let outcome = |(case, transfer): (&'a Case, &'a Transfer)| Outcome {
        act: case.act,
        group: &case.group,
        through: case.through,
        goodput_bit_s: transfer.goodput_bit_s(),
        model_bit_s: case.model.0,
        gain: transfer.goodput_bit_s() / direct(case),
        paper_gain: case.paper_gain,
        transfer,
        case,
    };
    cases.iter().zip(transfers).map(outcome).collect()
}

/// The whole demo as a page.
pub fn page(outcomes: &[Outcome]) -> Page {
    Page {
        title: "ekiden: what a relay makes of a long distance".into(),
        introduction: "Every figure is a real file, fetched by curl from a real HTTP server through the running \
                       system's TCP over links emulated on this machine. The end hosts' buffers are held to 64 KiB \
                       throughout. Each file's SHA-256 was compared."
            .into(),
        sections: vec![segments(outcomes), position(outcomes), osaka(outcomes)],
        conclusion: Vec::new(),
    }
}

/// A section as text for a terminal.
pub fn text(section: &Section) -> String {
    let table = section.table.as_ref().map(Table::to_text).unwrap_or_default();
    format!("{}\n{table}\n{}\n", section.heading, section.text.join("\n"))
}

fn segments(outcomes: &[Outcome]) -> Section {
    let of: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.act == Act::Segments).collect();
    let t = of.iter().find(|outcome| outcome.through == Through::Direct).map_or(f64::NAN, |o| o.goodput_bit_s);
    let mut table = Table::new(["", "Mbit/s", "of n·window/RTT", "× direct", "of n·T", "of n·T, S3's proxies"]);
    let mut chart = BarChart {
        title: "50 ms split evenly: throughput over the number of segments".into(),
        quantity: "Mbit/s".into(),
        categories: groups(&of),
        ..BarChart::default()
    };
    for outcome in &of {
        let n = outcome.case.scenario.links.len() as f64;
        table.row([
            outcome.case.title(),
            mbit(outcome.goodput_bit_s),
            format!("{:.3}", outcome.goodput_bit_s / outcome.model_bit_s as f64),
            format!("{:.2}", outcome.gain),
            format!("{:.3}", outcome.goodput_bit_s / (n * t)),
            outcome.paper_gain.map_or(String::new(), |gain| format!("{:.3}", gain / n)),
        ]);
    }
    chart.bars = bars(&chart.categories, &of);
    let first = |group: &String| of.iter().find(|outcome| outcome.group == group).copied();
    let per_group = |value: &dyn Fn(&Outcome) -> Option<f64>| -> Vec<Option<f64>> {
        chart.categories.iter().map(|group| first(group).and_then(value)).collect()
    };
    chart.marks = vec![
        ("n·T, T as measured".into(), per_group(&|o| Some(o.case.scenario.links.len() as f64 * t / 1e6))),
        ("with 0.3·T lost per proxy (S3)".into(), per_group(&|o| Some(o.paper_gain? * t / 1e6))),
    ];
    Section {
        heading: "How many segments (S3's lab, 50 ms)".into(),
        text: vec![
            "A window of 64 KiB and 50 ms bound a direct transfer to 10.5 Mbit/s on a line of 1 Gbit/s. Each segment \
             has a part of the distance, so n of them carry n times as much, less what the relays cost. T is the direct \
             transfer as measured."
                .into(),
        ],
        charts: vec![chart.to_svg()],
        table: Some(table),
    }
}

fn position(outcomes: &[Outcome]) -> Section {
    let of: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.act == Act::Position).collect();
    let mut table = Table::new(["ms before – after", "Mbit/s", "gain, %", "model, %", "S3, %"]);
    let direct = of.iter().find(|outcome| outcome.through == Through::Direct).map_or(1, |o| o.model_bit_s);
    let model = |outcome: &Outcome| outcome.model_bit_s as f64 / direct as f64 * 100.0;
    for outcome in &of {
        table.row([
            outcome.group.to_owned(),
            mbit(outcome.goodput_bit_s),
            format!("{:.0}", outcome.gain * 100.0),
            format!("{:.0}", model(outcome)),
            outcome.paper_gain.map_or(String::new(), |gain| format!("{:.0}", gain * 100.0)),
        ]);
    }
    let chart = BarChart {
        title: "50 ms split by one proxy: gain over its position".into(),
        quantity: "% of the direct transfer".into(),
        categories: groups(&of),
        bars: vec![("measured".into(), of.iter().map(|o| Some(o.gain * 100.0)).collect())],
        marks: vec![
            ("model: window / longest segment".into(), of.iter().map(|o| Some(model(o))).collect()),
            ("S3, measured with squid".into(), of.iter().map(|o| Some(o.paper_gain? * 100.0)).collect()),
        ],
    };
    let best = of.iter().max_by(|a, b| a.goodput_bit_s.total_cmp(&b.goodput_bit_s));
    Section {
        heading: "Where to put the proxy (S3's table, 50 ms)".into(),
        text: vec![format!("The longest segment bounds the chain. Best here: {}.", best.map_or("none", |o| o.group))],
        charts: vec![chart.to_svg()],
        table: Some(table),
    }
}

fn osaka(outcomes: &[Outcome]) -> Section {
    let of: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.act == Act::Osaka).collect();
    let mut table = Table::new(["", "Mbit/s", "× direct", "model, Mbit/s", "of the line's payload", "packets dropped"]);
    let line = of.first().map(|outcome| payload_rate(&outcome.case.scenario.links["core"], true));
    let line = line.map_or(f64::NAN, |rate| rate.0 as f64);
    for outcome in &of {
        let name = if outcome.through == Through::Direct { "direct" } else { "two proxies" };
        table.row([
            format!("{}, {name}", outcome.group),
            mbit(outcome.goodput_bit_s),
            format!("{:.2}", outcome.gain),
            mbit(outcome.model_bit_s as f64),
            format!("{:.1} %", outcome.goodput_bit_s / line * 100.0),
            outcome.transfer.drops.to_string(),
        ]);
    }
    let mut chart = BarChart {
        title: "70 Mbit/s, 100 KB drop tail: two proxies next to the hosts, Reno everywhere".into(),
        quantity: "Mbit/s".into(),
        categories: groups(&of),
        marks: vec![("the line's payload rate".into(), vec![Some(line / 1e6); 2])],
        ..BarChart::default()
    };
    chart.bars = bars(&chart.categories, &of);
    let proxied: Vec<&&Outcome> = of.iter().filter(|outcome| outcome.through != Through::Direct).collect();
    let windows = LineChart {
        title: "Reno's congestion window between the proxies".into(),
        across: "seconds".into(),
        quantity: "segments".into(),
        series: proxied
            .iter()
            .map(|outcome| Series {
                name: outcome.group.into(),
                points: outcome.transfer.samples.iter().map(|&[at, cwnd, _]| (at, cwnd)).collect(),
            })
            .collect(),
        levels: proxied.iter().map(|o| (format!("BDP, {}", o.group), bdp_segments(o))).collect(),
        ..LineChart::default()
    };
    let mut text = vec![
        "A window of 64 KiB bounds the direct transfer to 29 Mbit/s at 18 ms and 12 Mbit/s at 43 ms; it stays below, for \
         the kernel refills a send buffer only when a third of it is free. With a proxy \
         next to each host that window only spans the last metres; the distance is left to Reno between the proxies."
            .to_owned(),
    ];
    text.extend(proxied.iter().map(|outcome| limit(outcome, line)));
    Section {
        heading: "S0's path: proxies next to the hosts".into(),
        text,
        charts: vec![chart.to_svg(), windows.to_svg()],
        table: Some(table),
    }
}

/// What bounds Reno between the proxies, from its window as it was seen.
fn limit(outcome: &Outcome, line: f64) -> String {
    let core = &outcome.case.scenario.links["core"];
    let rtt = outcome.case.scenario.base_rtt("pa", "pb").unwrap_or_default();
    let Queue::Bytes(queue) = core.queue else { unreachable!("the core's queue is given in bytes") };
    let bdp = Bytes::at(core.rate, rtt);
    let model = s0::reno_utilisation(bdp, queue) * 100.0;
    let cwnd: Vec<f64> = outcome.transfer.samples.iter().map(|&[_, cwnd, _]| cwnd).collect();
    let falls = cwnd.windows(2).filter(|pair| pair[1] < pair[0] * 0.75).count();
    let peak = cwnd.iter().copied().fold(0.0, f64::max);
    format!(
        "{}: {:.1} % of the line's payload. The limit is Reno's saw-tooth: the window peaked at {peak:.0} segments and \
         fell {falls} times; BDP {:.0} segments and a queue of {:.0} let a full tooth use {model:.0} % of the line.",
        outcome.group,
        outcome.goodput_bit_s / line * 100.0,
        bdp_segments(outcome),
        queue.0 as f64 / f64::from(core.mtu),
    )
}

fn bdp_segments(outcome: &Outcome) -> f64 {
    let core = &outcome.case.scenario.links["core"];
    let rtt = outcome.case.scenario.base_rtt("pa", "pb").unwrap_or_default();
    Bytes::at(core.rate, rtt).0 as f64 / f64::from(core.mtu)
}

/// The groups in the order in which they come, each once.
fn groups(outcomes: &[&Outcome]) -> Vec<String> {
    let mut groups: Vec<String> = outcomes.iter().map(|outcome| outcome.group.to_owned()).collect();
    groups.dedup();
    groups
}

/// A series of bars for each way of reaching the server.
fn bars(groups: &[String], outcomes: &[&Outcome]) -> Vec<(String, Vec<Option<f64>>)> {
    let ways = [(Through::Direct, "direct"), (Through::Socks, "through SOCKS5"), (Through::Http, "through HTTP")];
    let series = ways.map(|(way, name)| {
        let value = |group: &String| {
            let found = outcomes.iter().find(|outcome| outcome.through == way && outcome.group == group);
            found.map(|outcome| outcome.goodput_bit_s / 1e6)
        };
        (name.to_owned(), groups.iter().map(value).collect::<Vec<_>>())
    });
    series.into_iter().filter(|(_, values)| values.iter().any(Option::is_some)).collect()
}

fn mbit(bit_s: f64) -> String {
    format!("{:.1}", bit_s / 1e6)
}
