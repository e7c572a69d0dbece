//! What came out of a watch: for people, for scripts, and as CSV.

use std::io::{self, Write};

use ekiden_diagnosis::jitter::Lateness;
use ekiden_diagnosis::spread::Spread;
use ekiden_measure::watch::{Watch, Watched};
use ekiden_measure::watch_record::WatchRecord;
use serde_json::Value;

/// The most connections that are shown to people.
const SHOWN: usize = 20;
/// Of a CSV file.
const COLUMNS: &str = "at_us,connection,local,remote,cwnd_segments,ssthresh_segments,rtt_us,rtt_min_us,unacked_segments,\
                       retransmits,delivery_bit_s,acked_bytes,unsent_bytes,window_bytes,received_bytes";

/// All that is to be said to people.
pub fn text(record: &WatchRecord) -> String {
    let mut busiest: Vec<&Watched> = record.connections.iter().collect();
    busiest.sort_by_key(|watched| std::cmp::Reverse(watched.acked_bytes + watched.received_bytes));
    let left = busiest.len().saturating_sub(SHOWN);
    busiest.truncate(SHOWN);
    busiest.sort_by_key(|watched| watched.connection);
    let mut text: String = busiest.into_iter().map(|watched| of_connection(watched) + "\n").collect();
    if left > 0 {
        text += &format!("{left} further connections moved less; --json and --record have all\n\n");
    }
    text + &sampler(record)
}

/// A JSON document in a line for each connection, then one for the watch.
pub fn json_lines(record: &WatchRecord) -> serde_json::Result<String> {
    let line = |kind: &str, mut value: Value| {
        if let Value::Object(fields) = &mut value {
            fields.remove("connections");
            fields.insert("kind".into(), kind.into());
        }
        format!("{value}\n")
    };
    let mut lines = String::new();
    for watched in &record.connections {
        lines += &line("connection", serde_json::to_value(watched)?);
    }
    Ok(lines + &line("watch", serde_json::to_value(record)?))
}

/// The samples, one in a row; what is absent is empty.
pub fn csv(watch: &Watch, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{COLUMNS}")?;
    for sample in watch.samples() {
        let Some([local, remote]) = watch.ends(sample.connection) else { continue };
        let ssthresh = sample.ssthresh_segments.map(|segments| segments.to_string()).unwrap_or_default();
        writeln!(
            out,
            "{},{},{local},{remote},{},{ssthresh},{},{},{},{},{},{},{},{},{}",
            sample.at_us,
            sample.connection,
            sample.cwnd_segments,
            sample.rtt_us,
            sample.rtt_min_us,
            sample.unacked_segments,
            sample.retransmits,
            sample.delivery_bit_s,
            sample.acked_bytes,
            sample.unsent_bytes,
            sample.window_bytes,
            sample.received_bytes
        )?;
    }
    Ok(())
}

fn of_connection(watched: &Watched) -> String {
    let lasted_us = watched.last_us - watched.first_us;
    let seen = match (watched.was_open, watched.is_open) {
        (true, true) => "open throughout",
        (true, false) => "ended meanwhile",
        (false, true) => "begun meanwhile",
        (false, false) => "begun and ended meanwhile",
    };
    let mut text =
        format!("{} -> {}  {}, {}, {seen}\n", watched.local, watched.remote, watched.congestion, seconds(lasted_us));
    let mut add = |name: &str, value: String| text += &format!("  {name:<14} {value}\n");
    if let Some(rtt) = watched.rtt_us {
        let least = watched.rtt_min_us.map(|us| format!(" (least measured {})", ms(us))).unwrap_or_default();
        add("RTT", format!("{} ms{least}", spread(rtt, ms)));
    }
    let is_sender = watched.acked_bytes > 0;
    if let Some(cwnd) = watched.cwnd_segments.filter(|_| is_sender) {
        let ssthresh = watched.ssthresh_segments.map(|segments| format!(", ssthresh {segments}")).unwrap_or_default();
        add("cwnd", format!("{} segments of {} bytes{ssthresh}", spread(cwnd, |n| n.to_string()), watched.mss_bytes));
    }
    if is_sender {
        add("acknowledged", amount(watched.acked_bytes, lasted_us));
        if let Some(delivery) = watched.delivery_bit_s {
            add("delivery rate", format!("{} Mbit/s", spread(delivery, |bits| format!("{:.2}", bits as f64 / 1e6))));
        }
        add("sent again", format!("{} segments, {} timeouts", watched.retransmits, watched.timeouts));
    }
    if watched.received_bytes > 0 {
        add("received", amount(watched.received_bytes, lasted_us));
    }
    if let Some(limits) = watched.limits.filter(|_| is_sender) {
        let shares = limits.permille().map(|(name, of)| format!("{name} {}.{} %", of / 10, of % 10));
        add("limited by", shares.join(", "));
    }
    text
}

/// How good the samples are.
fn sampler(record: &WatchRecord) -> String {
    let Some(Lateness { samples, missed, p50_us, p99_us, max_us }) = record.late else { return String::new() };
    let mut text = format!(
        "{samples} samples every {} ms, late by {} ms (median), {} ms (99 %), {} ms (most); {missed} left out\n",
        record.interval_us as f64 / 1e3,
        ms(p50_us),
        ms(p99_us),
        ms(max_us)
    );
    if record.one_of > 1 {
        text += &format!("more samples than --samples allows: of one look in {} they are kept\n", record.one_of);
    }
    if record.not_kept > 0 {
        let count = record.connections.len();
        text += &format!(
            "more than {count} connections: further ones are left out; choose with --to, --from, --port, --pid\n"
        );
    }
    text
}

fn spread(of: Spread, shown: impl Fn(u64) -> String) -> String {
    format!("{} / {} / {}", shown(of.min), shown(of.median), shown(of.max))
}

fn amount(bytes: u64, us: u64) -> String {
    let rate = (us > 0).then(|| format!(", {:.2} Mbit/s", bytes as f64 * 8.0 / us as f64));
    let shown = match bytes {
        0..100_000 => format!("{bytes} bytes"),
        _ => format!("{:.2} MB", bytes as f64 / 1e6),
    };
    shown + &rate.unwrap_or_default()
}

fn ms(us: u64) -> String {
    format!("{:.2}", us as f64 / 1e3)
}

fn seconds(us: u64) -> String {
    format!("{:.2} s", us as f64 / 1e6)
}
