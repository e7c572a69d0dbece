//! What a load of a path looked like: round trips over time, and what came.

use ekiden_diagnosis::path::PathPicture;
use ekiden_record::{Finding, PathDirection, PathRecord, Way};
use ekiden_report::{LineChart, Series, stacked};
use jiff::Timestamp;

/// Two charts for each direction. What is concluded from them stands as a level in each.
pub fn picture(record: &PathRecord, seen: &[PathPicture]) -> String {
    let date = Timestamp::from_millisecond(record.started_unix_ms as i64).unwrap_or_default();
    let date = date.strftime("%F %R UTC");
    let title = format!("The path from {} to {}, {date}", record.from, record.to);
    let charts: Vec<_> = seen.iter().flat_map(|seen| charts(record, seen, &date.to_string())).collect();
    stacked(&title, &charts)
}

fn charts(record: &PathRecord, seen: &PathPicture, date: &str) -> [LineChart; 2] {
    let (direction, ends) = match seen.way {
        Way::Forth => (&record.forth, format!("{} → {}", record.from, record.to)),
        Way::Back => (&record.back, format!("{} → {}", record.to, record.from)),
    };
    let base_ms = record.rtt_us.value().unwrap_or_default() / 1e3;
    let highest_ms = seen.queue_ms.iter().map(|(_, queued)| base_ms + queued).fold(base_ms, f64::max);
    // Short round trips would be labelled with zeros.
    let (quantity, each) = if highest_ms < 0.1 { ("µs", 1e3) } else { ("ms", 1.0) };
    let trips: Vec<_> = seen.queue_ms.iter().map(|(at, queued)| (*at, (base_ms + queued) * each)).collect();
    let base = base_ms * each;
    let mut levels = vec![(format!("base RTT: {base:.1} {quantity}"), base)];
    if let Some((label, full_ms)) = full(direction) {
        levels.push((label, base + full_ms * each));
    }
    let highest = highest_ms * each;
    let mut series = vec![Series { name: "round trip of what came in order".into(), points: trips }];
    if let Some(at) = seen.lost_s {
        series.push(Series { name: "first loss".into(), points: vec![(at, base), (at, highest)] });
    }
    let ends_at = |points: &[(f64, f64)]| points.last().map_or(0.0, |point| point.0);
    let to = ends_at(&seen.queue_ms).max(ends_at(&seen.rate_mbit));
    let rate = direction.rate_bit_s.estimate_or_bound().map(|rate| (name(&direction.rate_bit_s, rate), rate / 1e6));
    [
        LineChart {
            title: format!("{ends}: base round trip and queue, {date}"),
            across: "seconds since the load began".into(),
            quantity: quantity.into(),
            series,
            levels,
            to,
            ..LineChart::default()
        },
        LineChart {
            title: format!("{ends}: what arrived"),
            across: "seconds since the load began".into(),
            quantity: "Mbit/s".into(),
            series: vec![Series { name: "IP packets, each 20 ms".into(), points: seen.rate_mbit.clone() }],
            levels: rate.into_iter().collect(),
            to,
            ..LineChart::default()
        },
    ]
}

/// The full buffer as a delay in milliseconds.
fn full(direction: &PathDirection) -> Option<(String, f64)> {
    let (bytes, rate) = direction.buffer_bytes.value().zip(direction.rate_bit_s.value())?;
    let ms = bytes * 8e3 / rate;
    Some((format!("buffer full: {:.0} kB, {ms:.1} ms", bytes / 1e3), ms))
}

fn name(finding: &Finding, rate: f64) -> String {
    let what = if finding.value().is_some() { "bottleneck" } else { "at least" };
    format!("{what}: {:.1} Mbit/s", rate / 1e6)
}
