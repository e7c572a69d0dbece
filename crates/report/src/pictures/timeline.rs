//! A record's connections over time.

use std::collections::BTreeMap;

use std::sync::Arc;

use ekiden_record::{CongestionEventKind, Record, Sample};

use super::chart::Series;

/// What is drawn over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Congestion window in segments.
    Cwnd,
    /// Slow start threshold in segments, from when there is one.
    Ssthresh,
    /// Payload that the peer has acknowledged in megabytes: the ACK number. Traces of congestion controls do not tell it.
    Acked,
    /// Smoothed round-trip time in milliseconds.
    Rtt,
}

impl Quantity {
    /// Its name and unit, for an axis.
    pub fn label(self) -> &'static str {
        match self {
            Self::Cwnd => "cwnd (segments)",
            Self::Ssthresh => "ssthresh (segments)",
            Self::Acked => "acknowledged (MB)",
            Self::Rtt => "smoothed RTT (ms)",
        }
    }
}

/// Connections with fewer points than this are left out: handshakes, and the ways back.
pub const LEAST_POINTS: usize = 10;

/// What is known of a connection: seconds, and a value.
type Points = Vec<(f64, f64)>;

/// What connections did over time.
#[derive(Debug, Default)]
pub struct Timeline {
    /// The lines.
    pub series: Vec<Series>,
    /// The flows' senders that are left out as they have too few points, each with how many.
    pub short: Vec<(String, usize)>,
}

/// One line per connection over the seconds of the run: every connection with one of ekiden's congestion controls, each
/// round trip and loss; and the flows' senders at each of `samples`, the record's, but for those whose proxies are traced.
///
/// # Errors
/// The first of `samples`.
pub fn timeline<E>(
    record: &Record,
    samples: impl Iterator<Item = Result<Sample, E>>,
    quantity: Quantity,
) -> Result<Timeline, E> {
    let seconds = |at_us: u64| at_us as f64 / 1e6;
    let value = |cwnd: u32, ssthresh: Option<u32>, acked: Option<u64>, rtt_us: u64| match quantity {
        Quantity::Cwnd => Some(f64::from(cwnd)),
        Quantity::Ssthresh => ssthresh.map(f64::from),
        Quantity::Acked => acked.map(|bytes| bytes as f64 / 1e6),
        Quantity::Rtt => Some(rtt_us as f64 / 1e3),
    };
    let is_traced = quantity != Quantity::Acked
        && record.congestion.as_ref().is_some_and(|congestion| !congestion.events.is_empty());
    let relayed = |name: &str| record.flows.iter().any(|flow| flow.name == name && !flow.via.is_empty());
    let mut flows: BTreeMap<(Arc<str>, u32), Points> = BTreeMap::new();
    for sample in samples {
        let sample = sample?;
        if is_traced && relayed(&sample.flow) {
            continue;
        }
        let acked = Some(sample.acked_bytes);
        let value = value(sample.cwnd_segments, sample.ssthresh_segments, acked, sample.rtt_us);
        let points = flows.entry((sample.flow, sample.connection)).or_default();
        points.extend(value.map(|value| (seconds(sample.at_us), value)));
    }
    let mut traced: BTreeMap<u32, (String, Points)> = BTreeMap::new();
    for event in record.congestion.iter().flat_map(|congestion| &congestion.events) {
        let name = || (format!("{} → {}, {}", event.from, event.to, event.algorithm), Vec::new());
        let (_, points) = traced.entry(event.connection).or_insert_with(name);
        // A start comes before anything was measured.
        let value = value(event.cwnd_segments, event.ssthresh_segments, None, event.rtt_us);
        if let Some(value) = value.filter(|_| event.kind != CongestionEventKind::Start) {
            points.push((seconds(event.at_us), value));
        }
    }
    let unseen = record.flows.iter().filter(|flow| !(is_traced && relayed(&flow.name)));
    let unseen = unseen.filter(|flow| !flows.keys().any(|(name, _)| **name == *flow.name));
    let unseen: Vec<_> = unseen.map(|flow| (format!("flow {}", flow.name), 0)).collect();
    let flows = flows.into_iter().map(|((flow, connection), points)| (format!("flow {flow} {connection}"), points));
    let (long, short): (Vec<_>, Vec<_>) = flows.partition(|(_, points)| points.len() >= LEAST_POINTS);
    let traced = traced.into_values().filter(|(_, points)| points.len() >= LEAST_POINTS);
    let series = traced.chain(long).map(|(name, points)| Series { name, points }).collect();
    let short = short.into_iter().map(|(name, points)| (name, points.len())).chain(unseen).collect();
    Ok(Timeline { series, short })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(congestion: &str) -> Record {
        let flows = [flow("direct", "[]"), flow("relayed", r#"["proxy"]"#)].join(",");
        let text = format!(
            r#"{{"format":2,"manifest":{{"producer":"lab","version":"","command":[],"kernel":null,"seed":0,
            "scenario_name":"s","scenario":"","started_unix_ms":0}},"flows":[{flows}],"paths":[],"links":[],
            "events":[]{congestion}}}"#,
        );
        Record::parse(&text, "test").unwrap()
    }

    /// The lines of a record with these samples.
    fn lines(record: &Record, samples: Vec<Sample>, quantity: Quantity) -> Vec<Series> {
        timeline(record, samples.into_iter().map(Ok::<_, ()>), quantity).unwrap().series
    }

    fn samples() -> Vec<Sample> {
        ["direct", "relayed"].into_iter().flat_map(|flow| (0..12).map(move |at| sample(flow, at))).collect()
    }

    fn flow(name: &str, via: &str) -> String {
        format!(
            r#"{{"name":"{name}","from":"a","to":"b","via":{via},"outcome":{{"kind":"complete"}},"received_bytes":1,
            "duration_us":1,"goodput_bit_s":8000000,"retransmits":0,"rtt_min_us":null,"rtt_max_us":null}}"#
        )
    }

    fn sample(flow: &str, at: u32) -> Sample {
        Sample {
            at_us: u64::from(at) * 100_000,
            flow: flow.into(),
            connection: 0,
            received_bytes: 0,
            acked_bytes: 0,
            cwnd_segments: at,
            ssthresh_segments: None,
            unacked_segments: 0,
            window_bytes: 0,
            rtt_us: u64::from(at) * 1000,
            rtt_min_us: 0,
            retransmits: 0,
            delivery_bit_s: 0,
        }
    }

    #[test]
    fn senders_are_drawn_by_flow() {
        let lines = lines(&record(""), samples(), Quantity::Rtt);
        assert_eq!(
            lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(),
            ["flow direct 0", "flow relayed 0"]
        );
        assert_eq!(lines[0].points[11], (1.1, 11.0));
    }

    #[test]
    fn what_is_not_known_is_not_drawn() {
        let (record, mut samples) = (record(""), samples());
        for sample in &mut samples {
            sample.acked_bytes = sample.at_us;
            sample.ssthresh_segments = (sample.at_us >= 200_000).then_some(7);
        }
        let drawn = lines(&record, samples.clone(), Quantity::Ssthresh);
        assert_eq!((drawn[0].points.len(), drawn[0].points[0]), (10, (0.2, 7.0)));
        let drawn = lines(&record, samples, Quantity::Acked);
        assert_eq!(drawn[0].points[11], (1.1, 1.1));
    }

    #[test]
    fn traced_connections_stand_for_the_flows_they_carry() {
        let event = |at: u64, connection: u32, kind: &str| {
            format!(
                r#"{{"at_us":{},"connection":{connection},"from":"p","to":"q","algorithm":"ekiden_hstcp","kind":"{kind}",
                "cwnd_segments":{at},"ssthresh_segments":null,"rtt_us":7,"reno_mode":false}}"#,
                at * 1_000_000
            )
        };
        // The second has too few points to be drawn, and a start is none.
        let mut events: Vec<_> = (1..12).map(|at| event(at, 0, "round")).collect();
        events.insert(0, event(0, 0, "start"));
        events.push(event(12, 1, "round"));
        let congestion = format!(
            r#","congestion":{{"parameters":{{}},"not_traced":null,"lost_events":0,"events":[{}]}}"#,
            events.join(",")
        );
        let lines = lines(&record(&congestion), samples(), Quantity::Cwnd);
        let names: Vec<_> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["p → q, ekiden_hstcp", "flow direct 0"]);
        assert_eq!((lines[0].points.len(), lines[0].points[0]), (11, (1.0, 1.0)));
    }
}
