//! Summaries of the runs of one point: medians and ranges.

use ekiden_record::{Disturbance, Outcome, Record};
use ekiden_units::quantile;
use serde::Serialize;

/// A quantity over several runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value; of an even number of runs the mean of the middle two.
    pub median: f64,
    /// The least value of any run.
    pub least: f64,
    /// The greatest value of any run.
    pub greatest: f64,
}

impl Spread {
    /// The spread of these values; `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&least, &greatest) = (values.first()?, values.last()?);
        let median = quantile::median(&values)?;
        Some(Self { median, least, greatest })
    }
}

/// Several runs of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// How many runs there are.
    pub runs: usize,
    /// How many of them are invalid: the machine disturbed them ([`Record::disturbance`]).
    pub invalid: usize,
    /// Their disturbances together; `None` if none is invalid.
    #[serde(skip)]
    pub disturbance: Option<Disturbance>,
    /// Packets that policers and queues dropped, over all links and both directions of a run. `None` without any run.
    pub drops: Option<Spread>,
    /// Packets that the emulation lost itself, in all runs together.
    pub overruns: u64,
    /// The greatest 99th percentile of the lateness over links and runs; `None` where time is virtual.
    pub lateness_p99_us: Option<f64>,
    /// The greatest part of the processors' time that a hypervisor took during a run; `None` where it is not known.
    pub stolen_percent: Option<f64>,
    /// Flows, in the order of the scenario.
    pub flows: Vec<FlowSummary>,
}

impl Summary {
    /// What the machine did to the invalid runs, for people; empty if none is invalid.
    pub fn why_invalid(&self) -> String {
        let Some(disturbance) = self.disturbance else { return String::new() };
        let mut why = vec![disturbance.to_string()];
        if let Some(percent) = self.stolen_percent.filter(|percent| *percent >= 1.0) {
            why.push(format!("hypervisor took {percent:.0} %"));
        }
        why.join(", ")
    }
}

/// A flow over several runs. Runs in which it failed count in `failed` only; invalid runs count like others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowSummary {
    /// Its name in the scenario.
    pub name: String,
    /// Runs in which everything arrived unchanged.
    pub complete: usize,
    /// Runs in which it failed, or what arrived differs from what was sent.
    pub failed: usize,
    /// Goodput in bit/s; `None` if no run is complete.
    pub goodput_bit_s: Option<Spread>,
    /// Segments that its senders sent again; `None` if no run is complete.
    pub retransmits: Option<Spread>,
}

/// Summarises the runs of one point. All records are of the same scenario but for the seed; flows are found by name,
/// those that the first record lacks are left out.
pub fn summarize(records: &[Record]) -> Summary {
    let links = || records.iter().flat_map(|record| &record.links);
    let lateness = links().filter_map(|link| Some(link.lateness?.p99_us));
    let disturbed = || records.iter().filter_map(Record::disturbance);
    let drops =
        |record: &Record| record.links.iter().map(|link| link.policer_drops + link.queue_drops).sum::<u64>() as f64;
    let names = records.first().into_iter().flat_map(|record| &record.flows).map(|flow| flow.name.as_str());
    Summary {
        runs: records.len(),
        invalid: disturbed().count(),
        disturbance: disturbed().reduce(Disturbance::and),
        drops: Spread::of(records.iter().map(drops)),
        overruns: links().map(|link| link.overruns).sum(),
        lateness_p99_us: lateness.max_by(f64::total_cmp),
        stolen_percent: records.iter().filter_map(|record| record.stolen_percent).max_by(f64::total_cmp),
        flows: names.map(|name| flow_summary(name, records)).collect(),
    }
}

fn flow_summary(name: &str, records: &[Record]) -> FlowSummary {
    let all: Vec<_> = records.iter().flat_map(|record| &record.flows).filter(|flow| flow.name == name).collect();
    let complete: Vec<_> = all.iter().filter(|flow| flow.outcome == Outcome::Complete).collect();
    FlowSummary {
        name: name.into(),
        complete: complete.len(),
        failed: all.len() - complete.len(),
        goodput_bit_s: Spread::of(complete.iter().map(|flow| flow.goodput_bit_s as f64)),
        retransmits: Spread::of(complete.iter().map(|flow| flow.retransmits as f64)),
    }
}
