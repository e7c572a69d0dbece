//! The results of a sweep: a table for people, JSON for programs.

use std::collections::BTreeMap;

use ekiden_record::Record;
use ekiden_report::{FlowSummary, Spread, Summary, Table, summarize};
use serde::Serialize;

use crate::plan::Plan;

/// The results of each point that has runs, in the points' order. `records` are those of the plan's runs.
pub fn point_summaries(plan: &Plan, records: &[Option<Record>]) -> Vec<PointSummary> {
    let of_point = |at: usize| plan.runs.iter().zip(records).filter(move |(run, _)| run.point == at);
    let points = plan.points.iter().enumerate().filter(|(at, _)| of_point(*at).next().is_some());
    let summaries = points.map(|(at, point)| {
        let there: Vec<_> = of_point(at).filter_map(|(_, record)| record.clone()).collect();
        PointSummary {
            point: at,
            set: point.settings().iter().map(|s| (s.keys.join("+"), s.value.clone())).collect(),
            planned: of_point(at).count(),
            runs: summarize(&there),
            records: of_point(at)
                .filter(|(_, record)| record.is_some())
                .map(|(run, _)| run.record.display().to_string())
                .collect(),
        }
    });
    summaries.collect()
}

/// The results of a point of a sweep.
#[derive(Serialize)]
pub struct PointSummary {
    #[serde(skip)]
    point: usize,
    /// Values by key; keys that were set together are joined by `+`.
    set: BTreeMap<String, String>,
    /// How many runs there should be.
    planned: usize,
    #[serde(flatten)]
    /// Of all runs at this point.
    runs: Summary,
    records: Vec<String>,
}

/// A row per point and flow.
pub fn table(plan: &Plan, summaries: &[PointSummary]) -> Table {
    let figures = ["flow", "Mbit/s", "least", "most", "sent again", "drops", "runs", "invalid"].map(String::from);
    let table = Table::new(plan.keys.iter().cloned().chain(figures));
    let is_spared = summaries.iter().all(|summary| summary.runs.invalid == 0);
    let spare = ["invalid", "drops", "sent again", "least", "most"];
    let mut table = table.spare(&spare[usize::from(!is_spared)..]);
    for summary in summaries {
        for name in plan.scenarios[summary.point].flows.keys() {
            let values = plan.points[summary.point].settings().iter().map(|setting| setting.value.clone());
            let flow = summary.runs.flows.iter().find(|flow| flow.name == *name);
            table.row(values.chain([name.clone()]).chain(cells(summary, flow)));
        }
    }
    table
}

fn cells(summary: &PointSummary, flow: Option<&FlowSummary>) -> [String; 7] {
    let number = |value: Option<f64>, scale: f64, decimals: usize| {
        value.map_or("-".into(), |value| format!("{:.decimals$}", value / scale))
    };
    let goodput = flow.and_then(|flow| flow.goodput_bit_s);
    let mbit = |pick: fn(Spread) -> f64| number(goodput.map(pick), 1e6, 2);
    // The median of an even number of runs may be half-way between two whole numbers.
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
        count(summary.runs.drops),
        if complete == summary.planned { complete.to_string() } else { format!("{complete} of {}", summary.planned) },
        invalid(&summary.runs),
    ]
}

/// How many runs are invalid, and why; empty if none is.
fn invalid(summary: &Summary) -> String {
    match summary.invalid {
        0 => String::new(),
        invalid => format!("{invalid} of {}: {}", summary.runs, summary.why_invalid()),
    }
}
