//! What came out, as tables: of a single run, and of a sweep.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::slice;

use ekiden_record::{Outcome, Record};
use ekiden_report::{FlowSummary, LATENESS_P99_MOST_US, Spread, Summary, Table, summarize};
use serde::Serialize;

use super::plan::Plan;
use crate::out;

/// One line per flow, with a head; then whether the machine has shaped the run.
pub fn flows(record: &Record) -> String {
    let ms = |us: Option<u64>| us.map_or("-".into(), |us| format!("{:.1}", us as f64 / 1e3));
    let head = ["flow", "Mbit/s", "seconds", "bytes", "sent again", "RTT min ms", "RTT max ms", "outcome"];
    let mut rows = vec![head.map(String::from)];
    for flow in &record.flows {
        rows.push([
            flow.name.clone(),
            format!("{:.2}", flow.goodput_bit_s as f64 / 1e6),
            format!("{:.2}", flow.duration_us as f64 / 1e6),
            flow.received_bytes.to_string(),
            flow.retransmits.to_string(),
            ms(flow.rtt_min_us),
            ms(flow.rtt_max_us),
            match flow.outcome {
                Outcome::Complete => "complete".into(),
                Outcome::Differs { .. } => "DIFFERS".into(),
                Outcome::Failed { .. } => "failed".into(),
            },
        ]);
    }
    let mut text = out::aligned(&rows);
    let summary = summarize(slice::from_ref(record));
    if summary.invalid > 0 {
        text += &format!("shaped by the machine, not by the scenario alone: {}\n", why_invalid(&summary));
    }
    text
}

/// What came out at each point of which there are runs, in their order. `records` are of the plan's runs.
pub fn shown(plan: &Plan, records: &[Option<Record>]) -> Vec<Shown> {
    let of_point = |at: usize| plan.runs.iter().zip(records).filter(move |(run, _)| run.point == at);
    let points = plan.points.iter().enumerate().filter(|(at, _)| of_point(*at).next().is_some());
    let shown = points.map(|(at, point)| {
        let there: Vec<_> = of_point(at).filter_map(|(_, record)| record.clone()).collect();
        Shown {
            point: at,
            set: point.settings().iter().map(|s| (s.keys.join("+"), s.value.clone())).collect(),
            planned: of_point(at).count(),
            summary: summarize(&there),
            records: of_point(at).filter(|(_, record)| record.is_some()).map(|(run, _)| run.record.clone()).collect(),
        }
    });
    shown.collect()
}

/// What came out at a point.
#[derive(Serialize)]
pub struct Shown {
    #[serde(skip)]
    point: usize,
    /// Values by key; keys that were set together are joined by `+`.
    set: BTreeMap<String, String>,
    /// How many runs there should be.
    planned: usize,
    #[serde(flatten)]
    summary: Summary,
    records: Vec<PathBuf>,
}

/// A row per point and flow.
pub fn table(plan: &Plan, shown: &[Shown]) -> Table {
    let figures = ["flow", "Mbit/s", "least", "most", "sent again", "queue drops", "runs", "invalid"].map(String::from);
    let mut table = Table::new(plan.keys.iter().cloned().chain(figures));
    for shown in shown {
        for name in plan.scenarios[shown.point].flows.keys() {
            let values = plan.points[shown.point].settings().iter().map(|setting| setting.value.clone());
            let flow = shown.summary.flows.iter().find(|flow| flow.name == *name);
            table.row(values.chain([name.clone()]).chain(cells(shown, flow)));
        }
    }
    table
}

fn cells(shown: &Shown, flow: Option<&FlowSummary>) -> [String; 7] {
    let number = |value: Option<f64>, scale: f64, decimals: usize| {
        value.map_or("-".into(), |value| format!("{:.decimals$}", value / scale))
    };
    let goodput = flow.and_then(|flow| flow.goodput_bit_s);
    let mbit = |pick: fn(Spread) -> f64| number(goodput.map(pick), 1e6, 2);
    // The median of an even number of runs may lie half way between two.
    let count = |spread: Option<Spread>| {
        let median = spread.map(|spread| spread.median);
        number(median, 1.0, usize::from(median.is_some_and(|median| median.fract() != 0.0)))
    };
    let complete = flow.map_or(0, |flow| flow.complete);
    [
        mbit(|spread| spread.median),
        mbit(|spread| spread.least),
        mbit(|spread| spread.greatest),
        count(flow.and_then(|flow| flow.retransmits)),
        count(shown.summary.queue_drops),
        if complete == shown.planned { complete.to_string() } else { format!("{complete} of {}", shown.planned) },
        invalid(&shown.summary),
    ]
}

/// How many runs are invalid, and why; empty if none is.
fn invalid(summary: &Summary) -> String {
    match summary.invalid {
        0 => String::new(),
        invalid => format!("{invalid} of {}: {}", summary.runs, why_invalid(summary)),
    }
}

/// What the machine did to runs.
fn why_invalid(summary: &Summary) -> String {
    let mut why = Vec::new();
    if summary.overruns > 0 {
        why.push(format!("{} overruns", summary.overruns));
    }
    if let Some(p99_us) = summary.lateness_p99_us.filter(|p99_us| *p99_us > LATENESS_P99_MOST_US) {
        why.push(format!("{:.1} ms late", p99_us / 1e3));
    }
    if let Some(percent) = summary.stolen_percent.filter(|percent| *percent >= 1.0) {
        why.push(format!("hypervisor took {percent:.0} %"));
    }
    why.join(", ")
}
