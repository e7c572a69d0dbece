//! What came out of a single run, as a table.

use std::slice;

use ekiden_record::{Outcome, Ping, Record};
use ekiden_report::summarize;

use super::gateways::gateways;
use super::paths::paths;
use crate::out;

/// One line per flow, with a head, one per ping, one per gateway, and one for each pair of nodes of an overlay with streams; then whether the machine has shaped the run.
pub fn flows(record: &Record) -> String {
    let ms = |us: Option<u64>| us.map_or("-".into(), |us| format!("{:.1} ms", us as f64 / 1e3));
    let head = ["flow", "Mbit/s", "seconds", "bytes", "sent again", "min RTT", "max RTT", "outcome"];
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
    let mut text = out::aligned(&rows, ekiden_report::columns());
    if !record.pings.is_empty() {
        text += &pings(&record.pings);
    }
    text += &gateways(record);
    text += &paths(record);
    let summary = summarize(slice::from_ref(record));
    if summary.invalid > 0 {
        text += &format!("disturbed by the machine: {}; run it again when nothing else runs\n", summary.why_invalid());
    }
    text
}

fn pings(pings: &[Ping]) -> String {
    let ms = |us: Option<f64>| us.map_or("-".into(), |us| format!("{:.1}", us / 1e3));
    let mut rows = vec![["ping", "sent", "lost", "median ms", "99 % ms", "largest ms"].map(String::from)];
    for Ping { name, sent, lost, p50_us, p99_us, max_us } in pings {
        rows.push([name.clone(), sent.to_string(), lost.to_string(), ms(*p50_us), ms(*p99_us), ms(*max_us)]);
    }
    out::aligned(&rows, ekiden_report::columns())
}
