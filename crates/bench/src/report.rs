//! Medians, ratios and aims, for people and for programs.

use std::collections::BTreeSet;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value, json};

use crate::aims::Verdict;
use crate::measure::Measure;
use crate::relay::Relay;
use crate::rounds::{Outcome, QUIET};
use crate::stats::median;

/// Tables of figures and of aims, and what has to be said about them.
pub fn text(outcome: &Outcome, verdicts: &[Verdict]) -> String {
    let others = |value: Option<f64>| format!("{:.0} %", 100.0 * value.unwrap_or_default());
    let mut text = format!(
        "{}\nMedians of {} rounds on {} CPUs, which clients, servers and relays share. chain: two nodes, both counted;\n\
         bare relay: it does nothing but splice, the floor; direct: the kernel forwards. Relays' MiB are without pipes and \
         sockets.\nOther programs took {} of the CPUs in the middle, {} in the worst case.",
        figures(outcome),
        outcome.rounds,
        outcome.cpus,
        others(median(&outcome.others)),
        others(outcome.others.iter().copied().reduce(f64::max)),
    );
    if outcome.repeats > 0 {
        text += &format!("\n{} measurements were repeated because of competing load.", outcome.repeats);
    }
    if !verdicts.is_empty() {
        text += &format!(
            "\n\n{}\nRatios of medians, with what they lie between at 95 % confidence (bootstrap over rounds; from five \
             rounds on).\n\"?\": the interval holds the bound, so another run may say otherwise.",
            aims(verdicts)
        );
    }
    if median(&outcome.others).is_some_and(|share| share > QUIET) {
        text += "\nOther programs took too much for figures to mean anything: run it again when the machine is idle.";
    }
    if outcome.quick {
        text += "\nThis was a quick look: short cells, two rounds.";
    }
    for failure in &outcome.failures {
        text += &format!("\nFAILED  {failure}");
    }
    text
}

fn figures(outcome: &Outcome) -> Table {
    let header = [""].into_iter().chain(outcome.relays.iter().map(|relay| relay.title()));
    let rows = measures(outcome).into_iter().map(|measure| {
        let decimals = measure.decimals();
        let value = |relay: &Relay| Some(format!("{:.decimals$}", median(outcome.values.get(&(*relay, measure))?)?));
        let values = outcome.relays.iter().map(|relay| value(relay).unwrap_or_default());
        [measure.label()].into_iter().chain(values).collect()
    });
    table(header.map(str::to_owned).collect(), rows)
}

fn aims(verdicts: &[Verdict]) -> Table {
    let header = ["", "", "beside", "ratio", "aim", ""].map(str::to_owned).to_vec();
    let rows = verdicts.iter().map(|verdict| {
        let word = match verdict.reached() {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "",
        };
        vec![
            verdict.aim.measure.label() + if verdict.aim.of_worst_round { ", worst round" } else { "" },
            verdict.aim.ours.title().to_owned(),
            verdict.aim.beside.map(Relay::title).unwrap_or_default().to_owned(),
            verdict.words(),
            verdict.aim.bound.map(|bound| bound.words()).unwrap_or_default(),
            format!("{word}{}", if verdict.is_sure() { "" } else { "?" }),
        ]
    });
    table(header, rows)
}

fn table(header: Vec<String>, rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(header).add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Those of which there is at least one value.
fn measures(outcome: &Outcome) -> BTreeSet<Measure> {
    outcome.values.keys().map(|(_, measure)| *measure).collect()
}

/// Everything: each round's values too.
pub fn json(outcome: &Outcome, verdicts: &[Verdict]) -> Value {
    let measures = measures(outcome).into_iter().map(|measure| {
        let relay = |relay: &Relay| {
            let values = outcome.values.get(&(*relay, measure))?;
            Some((relay.name().to_owned(), json!({ "median": median(values), "rounds": values })))
        };
        let relays: Map<_, _> = outcome.relays.iter().filter_map(relay).collect();
        (measure.key(), json!({ "label": measure.label(), "relays": relays }))
    });
    let aims = verdicts.iter().map(|verdict| {
        json!({
            "measure": verdict.aim.measure.key(),
            "of_worst_round": verdict.aim.of_worst_round,
            "relay": verdict.aim.ours.name(),
            "beside": verdict.aim.beside.map(Relay::name),
            "value": verdict.value,
            "interval": verdict.interval,
            "aim": verdict.aim.bound.map(|bound| bound.words()),
            "reached": verdict.reached(),
        })
    });
    json!({
        "rounds": outcome.rounds,
        "quick": outcome.quick,
        "cpus": outcome.cpus,
        "repeats": outcome.repeats,
        "taken_by_others": { "median": median(&outcome.others), "cells": outcome.others },
        "measures": measures.collect::<Map<_, _>>(),
        "aims": aims.collect::<Vec<_>>(),
        "failures": outcome.failures,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aims;

    #[test]
    fn what_was_not_measured_leaves_a_gap_and_what_failed_is_said() {
        let mut outcome = Outcome::new(vec![Relay::Ekiden, Relay::Haproxy], 1, false, 2);
        outcome.values.insert((Relay::Haproxy, Measure::Rate(1)), vec![50.0]);
        outcome.failures.push("ekiden · 1 stream: it broke".into());
        let verdicts = aims::judged(&aims::all(&[1]), &outcome);
        assert!(text(&outcome, &verdicts).contains("FAILED  ekiden · 1 stream: it broke"));
        let json = json(&outcome, &verdicts);
        assert_eq!(json["measures"]["gbit_per_s_1"]["relays"]["haproxy"]["median"], 50.0);
        assert!(json["measures"]["gbit_per_s_1"]["relays"]["ekiden"].is_null());
    }

    #[test]
    fn an_aim_stands_with_its_ratio_and_its_verdict() {
        let mut outcome = Outcome::new(vec![Relay::Ekiden, Relay::Haproxy], 5, false, 2);
        outcome.values.insert((Relay::Ekiden, Measure::CpuPerGb(8)), vec![0.12; 5]);
        outcome.values.insert((Relay::Haproxy, Measure::CpuPerGb(8)), vec![0.10; 5]);
        let verdicts = aims::judged(&aims::all(&[8]), &outcome);
        let text = text(&outcome, &verdicts);
        let line = text.lines().find(|line| line.contains("1.20 [1.20–1.20]")).expect("a line with the ratio");
        assert!(line.contains("haproxy") && line.contains("≤ 0.9") && line.contains("MISSED"), "{line}");
        assert_eq!(json(&outcome, &verdicts)["aims"][0]["reached"], false);
    }
}
