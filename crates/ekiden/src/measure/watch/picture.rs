//! Round-trip time and congestion window over time, one below the other.

use std::collections::BTreeMap;

use ekiden_measure::watch::{Sample, Watch, Watched};
use ekiden_report::{LEAST_POINTS, LineChart, Series, stacked};

/// The most connections that are drawn.
const DRAWN: usize = 10;

/// What has sent less than this part of what another has is not drawn, such as connections that control transfers.
const LEAST_PART: u64 = 1000;

/// The picture of the connections that have sent most; `None` if none has sent anything for long enough.
pub fn picture(watch: &Watch, watched: &[Watched]) -> Option<String> {
    let mut senders: Vec<&Watched> = watched.iter().filter(|watched| watched.acked_bytes > 0).collect();
    senders.sort_by_key(|watched| std::cmp::Reverse(watched.acked_bytes));
    let least = senders.first()?.acked_bytes / LEAST_PART;
    senders.retain(|watched| watched.acked_bytes >= least);
    let mut samples: BTreeMap<u32, Vec<&Sample>> = BTreeMap::new();
    for sample in watch.samples() {
        samples.entry(sample.connection).or_default().push(sample);
    }
    let mut drawn: Vec<(&Watched, Vec<&Sample>)> = senders
        .into_iter()
        .filter_map(|sender| Some((sender, samples.remove(&sender.connection)?)))
        .filter(|(_, samples)| samples.len() >= LEAST_POINTS)
        .take(DRAWN)
        .collect();
    drawn.sort_by_key(|(sender, _)| sender.connection);
    if drawn.is_empty() {
        return None;
    }
    let chart = |title: &str, quantity: &str, value: fn(&Sample) -> Option<f64>| {
        let series = drawn.iter().map(|(sender, samples)| Series {
            name: format!("{} → {}", sender.local, sender.remote),
            points: samples.iter().filter_map(|of| Some((of.at_us as f64 / 1e6, value(of)?))).collect(),
        });
        LineChart {
            title: title.into(),
            across: "seconds".into(),
            quantity: quantity.into(),
            series: series.collect(),
            ..LineChart::default()
        }
    };
    let charts = [
        chart("Round-trip time", "smoothed RTT (ms)", |of| (of.rtt_us > 0).then(|| f64::from(of.rtt_us) / 1e3)),
        chart("Congestion window", "cwnd (segments)", |of| Some(of.cwnd_segments.into())),
    ];
    Some(stacked("Round-trip time and congestion window over time", &charts))
}
