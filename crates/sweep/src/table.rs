//! What came out of a sweep, as a table and for other programs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ekiden_record::Record;
use ekiden_report::{FlowSummary, Spread, Summary, Table, summarize};
use serde::Serialize;

use crate::plan::Plan;

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
        invalid => format!("{invalid} of {}: {}", summary.runs, summary.why_invalid()),
    }
}
