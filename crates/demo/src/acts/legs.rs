//! S3's lab: a path of 50 ms in one to four even legs.

use std::fmt::Write as _;

use ekiden_model::s3;
use ekiden_report::{BarChart, Section, Table};
use ekiden_scenario::Scenario;
use ekiden_units::Time;

use crate::cases::{Act, Case, DIRECT, S3_RTT, WINDOW, parse, size};
use crate::present::{Outcome, bars, beside_direct, groups, measured, of_transfer, starred};
use crate::protocol::Listener;

/// The transfers.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for n in 1..=4 {
        let rtts = vec![Time(S3_RTT.0 / n); n as usize];
        let ways = match n {
            1 => vec![(DIRECT, None)],
            _ => vec![("SOCKS5", Some(Listener::Socks("p1".into()))), ("HTTP", Some(Listener::Http("p1".into())))],
        };
        let model = s3::split_limit(WINDOW, &rtts).expect("there is at least one leg");
        for (way, listener) in ways {
            cases.push(Case {
                act: Act::Legs,
                group: if n == 1 { DIRECT.into() } else { format!("{n} legs") },
                way,
                listener,
                scenario: chain(&format!("s3-{n}-legs"), &rtts),
                bytes: size(model),
                model,
                paper_gain: Some(s3::paper_gain(n as u32)),
                watch: None,
            });
        }
    }
    cases
}

/// client – p1 – p2 … – server, with a proxy between any two links and fast lines, so that only windows and
/// distances count.
pub fn chain(name: &str, rtts: &[Time]) -> Scenario {
    let proxies: Vec<String> = (1..rtts.len()).map(|i| format!("p{i}")).collect();
    let mut text = format!(
        "name = \"{name}\"\ndescription = \"The Kagoshima project's lab: end hosts with 64 KiB buffers, {} legs\"\n\
         [node.client]\ntcp = {{ send_buffer = \"{WINDOW}\", receive_buffer = \"{WINDOW}\" }}\n\
         [node.server]\ntcp = {{ send_buffer = \"{WINDOW}\", receive_buffer = \"{WINDOW}\" }}\n",
        rtts.len()
    );
    for (i, proxy) in proxies.iter().enumerate() {
        let _ = writeln!(text, "[node.{proxy}]\nkind = \"proxy\"\nnext = {:?}", &proxies[i + 1..]);
    }
    let stops = ["client"].into_iter().chain(proxies.iter().map(String::as_str)).chain(["server"]);
    let stops: Vec<&str> = stops.collect();
    for (i, (ends, rtt)) in stops.windows(2).zip(rtts).enumerate() {
        let delay = Time(rtt.0 / 2);
        let _ = writeln!(text, "[link.l{i}]\nends = {ends:?}\nrate = \"1Gbit/s\"\ndelay = \"{delay}\"");
    }
    parse(&text)
}

/// The act as a section.
pub fn section(outcomes: &[Outcome]) -> Section {
    let of: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.act == Act::Legs).collect();
    let t = of.iter().find(|outcome| outcome.case.is_direct()).map_or(f64::NAN, |o| o.goodput_bit_s);
    let mut table = Table::new(["", "Mbit/s", "of n·window/RTT", "× direct", "of n·T", "of n·T, Kagoshima's proxies"]);
    let mut chart = BarChart {
        title: "50 ms split evenly: throughput over the number of legs".into(),
        quantity: "Mbit/s".into(),
        categories: groups(&of),
        ..BarChart::default()
    };
    for outcome in &of {
        let n = outcome.case.scenario.links.len() as f64;
        table.row([
            outcome.case.title(),
            measured(outcome),
            of_transfer(outcome, format!("{:.3}", outcome.goodput_bit_s / outcome.model_bit_s as f64)),
            beside_direct(outcome, format!("{:.2}", outcome.gain)),
            beside_direct(outcome, format!("{:.3}", outcome.goodput_bit_s / (n * t))),
            outcome.paper_gain.map_or(String::new(), |gain| format!("{:.3}", gain / n)),
        ]);
    }
    (chart.bars, chart.starred) = bars(&chart.categories, &of);
    let first = |group: &String| of.iter().find(|outcome| outcome.group == group).copied();
    let per_group = |value: &dyn Fn(&Outcome) -> Option<f64>| -> Vec<Option<f64>> {
        chart.categories.iter().map(|group| first(group).and_then(value)).collect()
    };
    let of_t = |name: &str| starred(name.into(), of.iter().any(|outcome| outcome.direct_disturbed));
    chart.marks = vec![
        (of_t("n·T, T as measured"), per_group(&|o| Some(o.case.scenario.links.len() as f64 * t / 1e6))),
        (of_t("with 0.3·T lost per proxy (Kagoshima)"), per_group(&|o| Some(o.paper_gain? * t / 1e6))),
    ];
    Section {
        heading: "How many legs (lab of the Kagoshima project, 50 ms)".into(),
        text: vec![
            "A window of 64 KiB and 50 ms bound a direct transfer to 10.5 Mbit/s on a line of 1 Gbit/s. Each leg \
             has a part of the distance, so n of them carry n times as much, less what the relays cost. T is the direct \
             transfer as measured."
                .into(),
        ],
        charts: vec![chart.to_svg()],
        table: Some(table),
    }
}
