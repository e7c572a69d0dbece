//! Several measurements: which there are, and one table of all.

use std::fmt::Display;
use std::io::IsTerminal;

use ekiden_diagnosis::verdict::{Cause, cause};
use ekiden_measure::client::Server;
use ekiden_measure_proto::settings::Asked;
use ekiden_record::{LoadSettings, Measurement, PathLimit};
use ekiden_report::{Spread, Table};
use ekiden_units::Bytes;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Args, Load, base, one};
use crate::out;
use crate::usage::misused;

/// The load that is sent where nothing says how much.
const DURATION_US: u64 = 10_000_000;
/// More combinations are hardly meant.
const POINTS_MOST: usize = 10_000;

/// A combination of values.
pub struct Point {
    /// What differs from point to point, for people.
    label: Vec<String>,
    pub asked: Asked,
}

/// A point that is not complete yet.
#[derive(Clone)]
struct Draft {
    label: Vec<String>,
    settings: LoadSettings,
}

/// Every combination.
pub fn points(load: &Load, limit: Bytes) -> anyhow::Result<Vec<Point>> {
    let mut drafts = vec![Draft { label: Vec::new(), settings: base(load) }];
    cross(&mut drafts, "way", &load.way, |settings, way| settings.ways = way.ways());
    cross(&mut drafts, "time", &load.time, |settings, time| settings.duration_us = Some(time.0 / 1_000));
    cross(&mut drafts, "bytes", &load.bytes, |settings, bytes| settings.bytes = Some(bytes.0));
    cross(&mut drafts, "streams", &load.streams, |settings, streams| settings.streams = *streams);
    cross(&mut drafts, "data", &load.data, |settings, data| settings.data_bytes = Some(short(*data)));
    cross(&mut drafts, "send-buffer", &load.send_buffer, |settings, size| settings.send_buffer_bytes = Some(size.0));
    cross(&mut drafts, "receive-buffer", &load.receive_buffer, |settings, size| {
        settings.receive_buffer_bytes = Some(size.0);
    });
    cross(&mut drafts, "window", &load.window, |settings, size| settings.window_bytes = Some(short(*size)));
    cross(&mut drafts, "mss", &load.mss, |settings, size| settings.mss_bytes = Some(short(*size)));
    cross(&mut drafts, "congestion", &load.congestion, |settings, name| settings.congestion = Some(name.clone()));
    cross(&mut drafts, "pacing", &load.pacing, |settings, rate| settings.pacing_bit_s = Some(rate.0));
    cross(&mut drafts, "offered", &load.offered, |settings, rate| settings.offered_bit_s = Some(rate.0));
    if drafts.len() > POINTS_MOST {
        misused(&format!("{} combinations, and {POINTS_MOST} are the most", drafts.len()));
    }
    let complete = |draft: Draft| {
        let mut settings = draft.settings;
        if settings.bytes.is_none() && settings.duration_us.is_none() {
            settings.duration_us = Some(DURATION_US);
        }
        if settings.duration_us.is_some() && settings.bytes.is_none_or(|bytes| bytes > limit.0) {
            settings.bytes = Some(limit.0);
        } else if settings.bytes.is_some_and(|bytes| bytes > limit.0) {
            misused(&format!("--bytes is more than --limit allows ({limit})"));
        }
        let asked = Asked::new(settings).map_err(ekiden_measure::Error::Settings)?;
        Ok(Point { label: draft.label, asked })
    };
    drafts.into_iter().map(complete).collect()
}

fn short(bytes: Bytes) -> u32 {
    u32::try_from(bytes.0).unwrap_or(u32::MAX)
}

fn cross<T: Display>(drafts: &mut Vec<Draft>, name: &str, values: &[T], set: impl Fn(&mut LoadSettings, &T)) {
    if values.is_empty() {
        return;
    }
    let with = |draft: &Draft, value: &T| {
        let mut draft = draft.clone();
        set(&mut draft.settings, value);
        if values.len() > 1 {
            draft.label.push(format!("{name}={value}"));
        }
        draft
    };
    *drafts = drafts.iter().flat_map(|draft| values.iter().map(move |value| with(draft, value))).collect();
}

/// What will be sent, before it is.
pub fn announcement(points: &[Point], repeat: u32) -> String {
    let count = points.len() as u64 * u64::from(repeat);
    let bytes = points.iter().map(|point| most(point.asked.get())).fold(0, u64::saturating_add);
    let time_us = points.iter().filter_map(|point| point.asked.get().duration_us).fold(0, u64::saturating_add);
    let [bytes, time_us] = [bytes, time_us].map(|one| one.saturating_mul(repeat.into()));
    let time = match time_us {
        0 => String::new(),
        1..1_000_000 => format!(" in {:.0} ms", time_us as f64 / 1e3),
        _ => format!(" in {} s", (time_us as f64 / 1e5).round() / 10.0),
    };
    let measurements = if count == 1 { "one measurement".into() } else { format!("{count} measurements") };
    format!("{measurements}: at most {}{time}", Bytes(bytes).rounded())
}

fn most(settings: &LoadSettings) -> u64 {
    settings.bytes.unwrap_or_default().saturating_mul(settings.ways.len() as u64)
}

/// Measures all, and shows the table.
pub fn run(args: &Args, server: &Server, points: &[Point]) -> anyhow::Result<()> {
    let all = points.len() as u64 * u64::from(args.repeat);
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new(all),
        false => ProgressBar::hidden(),
    };
    let style = ProgressStyle::with_template("{pos} of {len} {wide_bar} {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut results: Vec<Vec<Measurement>> = points.iter().map(|_| Vec::new()).collect();
    let mut written = Ok(());
    // Round after round, so that a change of the path meets all points alike.
    'rounds: for _ in 0..args.repeat {
        for (point, results) in points.iter().zip(&mut results) {
            let (measurement, done) = one(args, server, &point.asked, &mut |_| {})?;
            results.push(measurement);
            bar.inc(1);
            if done.is_err() {
                written = done;
                break 'rounds;
            }
        }
    }
    bar.finish_and_clear();
    match args.json {
        true => out::line(serde_json::to_string_pretty(&results.concat())?)?,
        false => out::line(table(points, &results).to_text_within(args.width.columns()))?,
    }
    written
}

fn table(points: &[Point], results: &[Vec<Measurement>]) -> Table {
    let mut table = Table::new(["", "way", "Mbit/s", "least", "most", "RTT ms", "sent again", "limited by"]).spare([
        "sent again",
        "least",
        "most",
    ]);
    for (point, results) in points.iter().zip(results) {
        for way in &point.asked.get().ways {
            let loads = || results.iter().flat_map(|result| &result.loads).filter(|load| load.way == *way);
            let Some(rate) = Spread::of(loads().map(|load| load.goodput_bit_s as f64 / 1e6)) else { continue };
            let rtt = Spread::of(loads().map(|load| load.rtt.p50_us / 1e3)).map_or(0.0, |rtt| rtt.median);
            let again = Spread::of(loads().map(|load| load.retransmits as f64)).map_or(0.0, |again| again.median);
            table.row([
                point.label.join(" "),
                way.word().into(),
                format!("{:.3}", rate.median),
                format!("{:.3}", rate.least),
                format!("{:.3}", rate.greatest),
                format!("{rtt:.2}"),
                format!("{again:.0}"),
                loads().next().map_or("", word).into(),
            ]);
        }
    }
    table
}

fn word(load: &ekiden_record::Load) -> &'static str {
    if load.lost_segment_bytes.is_some() {
        return "PMTU black hole";
    }
    let Some(cause) = cause(load) else { return "" };
    match cause {
        Cause::Application => "program",
        Cause::ReceiveWindow => "receive window",
        Cause::SendBuffer => "send buffer",
        Cause::Path(Some(PathLimit::Line)) => "line",
        Cause::Path(Some(PathLimit::Loss)) => "loss",
        Cause::Path(Some(PathLimit::Policer)) => "policer",
        Cause::Path(Some(PathLimit::ShortBufferOrPolicer)) => "short buffer or policer",
        Cause::Path(Some(PathLimit::SlowStart)) => "slow start",
        Cause::Path(Some(PathLimit::Pacing)) => "pacing",
        Cause::Path(None) => "path",
    }
}

impl Display for super::AskedWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = match self {
            Self::Forth => "forth",
            Self::Back => "back",
            Self::Both => "both",
        };
        f.write_str(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(duration_us: Option<u64>, bytes: u64, repeat: u32) -> String {
        let settings = LoadSettings { duration_us, bytes: Some(bytes), ..Asked::default().get().clone() };
        announcement(&[Point { label: Vec::new(), asked: Asked::new(settings).unwrap() }], repeat)
    }

    #[test]
    fn what_will_be_sent_is_told_in_units_that_fit() {
        assert_eq!(announced(Some(500_000), 1_000, 1), "one measurement: at most 1.00 kB in 500 ms");
        assert_eq!(announced(None, 999, 1), "one measurement: at most 999 B");
        assert_eq!(announced(Some(10_000_000), 10_000_000_000, 3), "3 measurements: at most 30.0 GB in 30 s");
        assert_eq!(announced(Some(1_500_000), 2_000_000, 1), "one measurement: at most 2.00 MB in 1.5 s");
    }
}
