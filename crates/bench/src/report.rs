//! Medians, ratios and aims, for people and for programs.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::relay::Relay;
use crate::rounds::{Outcome, QUIET};
use crate::stats::median;

/// A figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Seconds of CPU that the relay spends on 10⁹ bytes of one stream.
    CpuPerGb1,
    /// As above, of eight at once.
    CpuPerGb8,
    /// Gbit/s of one stream.
    Rate1,
    /// Gbit/s of eight.
    Rate8,
    /// Short connections per second.
    Connections,
    /// Microseconds of CPU that the relay spends on one.
    CpuPerConnection,
    /// Microseconds of a small message, there and back: the median ...
    DelayP50,
    /// ... and what 99 % do not exceed.
    DelayP99,
    /// KiB of the relay's memory per idle connection.
    IdleKilobytes,
}

/// What ekiden wants to reach.
#[derive(Debug, Clone, Copy)]
enum Aim {
    /// At most this many times the best peer's.
    Below(f64),
    /// At least this many times the best peer's.
    Above(f64),
    /// At most this, whatever peers reach.
    Absolute(f64),
}

const ALL: [Measure; 9] = [
    Measure::CpuPerGb1,
    Measure::CpuPerGb8,
    Measure::Rate1,
    Measure::Rate8,
    Measure::Connections,
    Measure::CpuPerConnection,
    Measure::DelayP50,
    Measure::DelayP99,
    Measure::IdleKilobytes,
];

impl Measure {
    /// Whether it is about the relay alone, so that there is none on a way without a relay.
    pub fn is_the_relays_own(self) -> bool {
        matches!(self, Measure::CpuPerGb1 | Measure::CpuPerGb8 | Measure::CpuPerConnection | Measure::IdleKilobytes)
    }

    /// Its name for programs, its name for people, the decimals that mean something, and the aim.
    fn about(self) -> (&'static str, &'static str, usize, Option<Aim>) {
        use Aim::*;
        match self {
            Measure::CpuPerGb1 => ("cpu_s_per_gb_1", "relay CPU s/GB, 1 stream", 3, Some(Below(0.9))),
            Measure::CpuPerGb8 => ("cpu_s_per_gb_8", "relay CPU s/GB, 8 streams", 3, Some(Below(0.9))),
            Measure::Rate1 => ("gbit_per_s_1", "Gbit/s, 1 stream", 1, None),
            Measure::Rate8 => ("gbit_per_s_8", "Gbit/s, 8 streams", 1, None),
            Measure::Connections => ("connections_per_s", "connections/s", 0, Some(Above(1.0))),
            Measure::CpuPerConnection => ("cpu_us_per_connection", "relay CPU µs/connection", 1, None),
            Measure::DelayP50 => ("pingpong_p50_us", "ping-pong µs, p50", 1, Some(Below(1.0))),
            Measure::DelayP99 => ("pingpong_p99_us", "ping-pong µs, p99", 1, Some(Below(1.0))),
            Measure::IdleKilobytes => ("kib_per_idle_connection", "KiB per idle connection", 2, Some(Absolute(4.0))),
        }
    }

    fn more_is_better(self) -> bool {
        matches!(self, Measure::Rate1 | Measure::Rate8 | Measure::Connections)
    }
}

/// Those that are compared with peers.
const OURS: [Relay; 3] = [Relay::Ekiden, Relay::Chain, Relay::ChainTls];

/// The median of one of [`OURS`] beside the best peer's, and whether the aim is reached.
struct Verdict {
    ratio: Option<f64>,
    reached: Option<bool>,
}

/// A table, and what has to be said about it.
pub fn text(outcome: &Outcome) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let names = outcome.relays.iter().map(|relay| relay.name());
    let ours = || OURS.into_iter().filter(|relay| outcome.relays.contains(relay));
    let ratios: Vec<String> = ours().map(|relay| format!("{}/best peer", relay.name())).collect();
    let ratios = ratios.iter().map(String::as_str);
    table.set_header([""].into_iter().chain(names).chain(ratios).chain(["aim"]));
    let measured = |measure: &Measure| outcome.values.keys().any(|(_, other)| other == measure);
    for measure in ALL.into_iter().filter(measured) {
        let (_, label, decimals, aim) = measure.about();
        let value = |relay: &Relay| middle(outcome, *relay, measure).map(|value| format!("{value:.decimals$}"));
        let mut row = vec![label.to_owned()];
        row.extend(outcome.relays.iter().map(|relay| value(relay).unwrap_or_default()));
        row.extend(ours().map(|relay| verdict(outcome, measure, relay).words()));
        row.push(aim.map(Aim::words).unwrap_or_default());
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let others = |value: Option<f64>| format!("{:.0} %", 100.0 * value.unwrap_or_default());
    let mut text = format!(
        "{table}\nMedians of {} rounds on {} CPUs, which clients, servers and relays share. chain: two nodes, both \
         counted;\nbare: a relay that does nothing but splice, the floor; direct: the kernel forwards. Other programs took {} of the CPUs in the middle, {} in the worst case.",
        outcome.rounds,
        outcome.cpus,
        others(median(&outcome.others)),
        others(outcome.others.iter().copied().reduce(f64::max)),
    );
    if outcome.repeats > 0 {
        text += &format!("\n{} disturbed measurements were repeated.", outcome.repeats);
    }
    if median(&outcome.others).is_some_and(|share| share > QUIET) {
        text += "\nThat is too much for figures to mean anything: run it again when the machine is idle.";
    }
    if outcome.quick {
        text += "\nThis was a quick look: short cells, two rounds.";
    }
    for failure in &outcome.failures {
        text += &format!("\nFAILED  {failure}");
    }
    text
}

/// Everything: each round's values too.
pub fn json(outcome: &Outcome) -> Value {
    let measures = ALL.map(|measure| {
        let (key, label, _, aim) = measure.about();
        let relay = |relay: &Relay| {
            let values = outcome.values.get(&(*relay, measure))?;
            Some((relay.name().to_owned(), json!({ "median": median(values), "rounds": values })))
        };
        let relays: serde_json::Map<_, _> = outcome.relays.iter().filter_map(relay).collect();
        let against = OURS.map(|relay| {
            let Verdict { ratio, reached } = verdict(outcome, measure, relay);
            (relay.name().to_owned(), json!({ "ratio_to_best_peer": ratio, "reached": reached }))
        });
        let about = json!({
            "label": label,
            "relays": relays,
            "aim": aim.map(Aim::words),
            "against_peers": serde_json::Map::from_iter(against),
        });
        (key.to_owned(), about)
    });
    json!({
        "rounds": outcome.rounds,
        "quick": outcome.quick,
        "cpus": outcome.cpus,
        "repeats": outcome.repeats,
        "taken_by_others": { "median": median(&outcome.others), "cells": outcome.others },
        "measures": serde_json::Map::from_iter(measures),
        "failures": outcome.failures,
    })
}

impl Aim {
    fn words(self) -> String {
        match self {
            Aim::Below(factor) => format!("≤ {factor:.1} × best peer"),
            Aim::Above(factor) => format!("≥ {factor:.1} × best peer"),
            Aim::Absolute(value) => format!("≤ {value}"),
        }
    }

    /// `None` if there is nothing to compare with.
    fn is_reached(self, value: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Aim::Below(factor) => ratio.map(|ratio| ratio <= factor),
            Aim::Above(factor) => ratio.map(|ratio| ratio >= factor),
            Aim::Absolute(most) => Some(value <= most),
        }
    }
}

fn middle(outcome: &Outcome, relay: Relay, measure: Measure) -> Option<f64> {
    median(outcome.values.get(&(relay, measure))?)
}

impl Verdict {
    fn words(&self) -> String {
        let ratio = self.ratio.map(|ratio| format!("{ratio:.2}"));
        let reached = self.reached.map(|reached| if reached { "reached" } else { "MISSED" });
        [ratio.as_deref(), reached].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

fn verdict(outcome: &Outcome, measure: Measure, ours: Relay) -> Verdict {
    let peers = ours.peers().iter().filter_map(|peer| middle(outcome, *peer, measure));
    let best = peers.reduce(if measure.more_is_better() { f64::max } else { f64::min });
    let Some(own) = middle(outcome, ours, measure) else { return Verdict { ratio: None, reached: None } };
    let ratio = best.filter(|best| *best > 0.0).map(|best| own / best);
    Verdict { ratio, reached: measure.about().3.and_then(|aim| aim.is_reached(own, ratio)) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn outcome(values: &[(Relay, Measure, f64)]) -> Outcome {
        let values: BTreeMap<_, _> = values.iter().map(|(r, m, value)| ((*r, *m), vec![*value])).collect();
        let relays = vec![Relay::Ekiden, Relay::Haproxy, Relay::Nginx];
        Outcome { values, failures: vec![], others: vec![], relays, rounds: 1, repeats: 0, quick: false, cpus: 2 }
    }

    #[test]
    fn the_best_peer_is_the_cheapest_or_the_fastest() {
        let outcome = outcome(&[
            (Relay::Ekiden, Measure::CpuPerGb1, 0.09),
            (Relay::Haproxy, Measure::CpuPerGb1, 0.10),
            (Relay::Nginx, Measure::CpuPerGb1, 0.40),
            (Relay::Ekiden, Measure::Connections, 900.0),
            (Relay::Haproxy, Measure::Connections, 800.0),
            (Relay::Nginx, Measure::Connections, 1000.0),
        ]);
        let verdict = |measure| verdict(&outcome, measure, Relay::Ekiden);
        let cost = verdict(Measure::CpuPerGb1);
        assert!((cost.ratio.unwrap() - 0.9).abs() < 1e-9);
        let connections = verdict(Measure::Connections);
        assert_eq!((connections.ratio, connections.reached), (Some(0.9), Some(false)));
    }

    #[test]
    fn without_a_peer_only_absolute_aims_are_judged() {
        let outcome = outcome(&[(Relay::Ekiden, Measure::DelayP50, 9.0), (Relay::Ekiden, Measure::IdleKilobytes, 4.0)]);
        let verdict = |measure| verdict(&outcome, measure, Relay::Ekiden);
        assert_eq!(verdict(Measure::DelayP50).reached, None);
        assert_eq!(verdict(Measure::IdleKilobytes).reached, Some(true));
        assert_eq!(verdict(Measure::IdleKilobytes).ratio, None);
    }

    #[test]
    fn what_was_not_measured_leaves_a_gap_and_what_failed_is_said() {
        let mut outcome = outcome(&[(Relay::Haproxy, Measure::Rate1, 50.0)]);
        outcome.failures.push("ekiden · 1 stream: it broke".into());
        assert!(text(&outcome).contains("FAILED  ekiden · 1 stream: it broke"));
        assert_eq!(json(&outcome)["measures"]["gbit_per_s_1"]["relays"]["haproxy"]["median"], 50.0);
        assert!(json(&outcome)["measures"]["gbit_per_s_1"]["against_peers"]["ekiden"]["ratio_to_best_peer"].is_null());
    }
}
