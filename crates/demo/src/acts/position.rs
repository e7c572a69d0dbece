//! S3's table: where on a path of 50 ms a single proxy should stand.

use ekiden_model::s3;
use ekiden_report::{BarChart, Section, Table};
use ekiden_units::Time;

use super::legs::chain;
use crate::cases::{Act, Case, DIRECT, S3_RTT, WINDOW, size};
use crate::present::{Outcome, beside_direct, concluded, groups, measured};
use crate::protocol::Listener;

/// The transfers.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for ([before, after], _, per_cent) in s3::PAPER_SPLITS {
        let direct = before + after == 0;
        let rtts = if direct { vec![S3_RTT] } else { vec![Time::ms(before), Time::ms(after)] };
        let model = s3::split_limit(WINDOW, &rtts).expect("there is at least one leg");
        cases.push(Case {
            act: Act::Position,
            group: format!("{before}-{after}"),
            way: if direct { DIRECT } else { "HTTP" },
            listener: (!direct).then(|| Listener::Http("p1".into())),
            scenario: chain(&format!("s3-split-{before}-{after}"), &rtts),
            bytes: size(model),
            model,
            paper_gain: Some(f64::from(per_cent) / 100.0),
            watch: None,
        });
    }
    cases
}

/// The act as a section.
pub fn section(outcomes: &[Outcome]) -> Section {
    let of: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.act == Act::Position).collect();
    let mut table = Table::new(["ms before – after", "Mbit/s", "gain, %", "model, %", "Kagoshima, %"]);
    let direct = of.iter().find(|outcome| outcome.case.is_direct()).map_or(1, |o| o.model_bit_s);
    let model = |outcome: &Outcome| outcome.model_bit_s as f64 / direct as f64 * 100.0;
    for outcome in &of {
        table.row([
            outcome.group.to_owned(),
            measured(outcome),
            beside_direct(outcome, format!("{:.0}", outcome.gain * 100.0)),
            format!("{:.0}", model(outcome)),
            outcome.paper_gain.map_or(String::new(), |gain| format!("{:.0}", gain * 100.0)),
        ]);
    }
    let chart = BarChart {
        title: "50 ms split by one proxy: gain over its position".into(),
        quantity: "% of the direct transfer".into(),
        categories: groups(&of),
        bars: vec![("measured".into(), of.iter().map(|o| Some(o.gain * 100.0)).collect())],
        starred: (0..of.len()).filter(|&group| of[group].gain_disturbed()).map(|group| [0, group]).collect(),
        marks: vec![
            ("model: window / longest leg".into(), of.iter().map(|o| Some(model(o))).collect()),
            ("Kagoshima, measured with squid".into(), of.iter().map(|o| Some(o.paper_gain? * 100.0)).collect()),
        ],
    };
    let best = || {
        let best = of.iter().map(|o| o.goodput_bit_s).fold(0.0, f64::max);
        let alike: Vec<&str> = of.iter().filter(|o| o.goodput_bit_s >= best * 0.97).map(|o| o.group).collect();
        format!("Best here, within 3 %: {}.", alike.join(", "))
    };
    let best = concluded(&of, "The best place", best);
    Section {
        heading: "Where to put the proxy (table of the Kagoshima project, 50 ms)".into(),
        text: vec![format!("The longest leg bounds the chain. {best}")],
        charts: vec![chart.to_svg()],
        table: Some(table),
    }
}
