//! What came out of a single run, as a table.

use std::slice;

use ekiden_record::{Outcome, Record};
use ekiden_report::summarize;

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
        text += &format!("disturbed by the machine: {}; run it again when nothing else runs\n", summary.why_invalid());
    }
    text
}
