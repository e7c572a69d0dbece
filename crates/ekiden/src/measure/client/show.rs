//! A single measurement for people: a bar while it goes on, and the result.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use ekiden_diagnosis::verdict::sentence;
use ekiden_measure::client::Progress;
use ekiden_record::{Delays, Load, LoadSettings, Measurement, Shares};
use indicatif::{ProgressBar, ProgressStyle};

use crate::out::{self, Width};

/// The lateness in milliseconds from which on an end has other work.
const LATE_MS: f64 = 200.0;

/// Progress on standard error, if that is a terminal.
pub struct Bar {
    bar: ProgressBar,
    /// It ends by time, so that the rest is known.
    is_timed: bool,
}

impl Bar {
    pub fn new(settings: &LoadSettings) -> Self {
        let length = settings.duration_us.or(settings.bytes).unwrap_or_default();
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(length),
            false => ProgressBar::hidden(),
        };
        let is_timed = settings.duration_us.is_some();
        let left = if is_timed { "" } else { ", {eta} left" };
        let style = ProgressStyle::with_template(&format!("{{wide_bar}} {{msg}}{left}"));
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, is_timed }
    }

    pub fn show(&self, progress: &Progress) {
        let elapsed_us = progress.elapsed.as_micros() as u64;
        // Without a time, the bytes are the length; a bar knows only one of them.
        let at = if self.bar.length().is_some_and(|length| length >= elapsed_us) { elapsed_us } else { progress.bytes };
        self.bar.set_position(at);
        let mbit = progress.bytes as f64 * 8.0 / progress.elapsed.as_secs_f64().max(1e-3) / 1e6;
        let length = self.bar.length().unwrap_or_default();
        let left = match length.checked_sub(elapsed_us).filter(|_| self.is_timed) {
            Some(left_us) => format!(", {} s left", left_us.div_ceil(1_000_000)),
            None => String::new(),
        };
        self.bar.set_message(format!("{mbit:.1} Mbit/s{left}"));
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn sentences(measurement: &Measurement) -> String {
    let mut text = String::new();
    for load in &measurement.loads {
        let _ = writeln!(text, "{}.", sentence(load, &measurement.settings, measurement.latency.as_ref()));
    }
    let late_ms = measurement.loads.iter().map(|load| load.sampler_late.max_us / 1e3).fold(0.0, f64::max);
    if late_ms > LATE_MS {
        let _ = writeln!(
            text,
            "An end was so busy that it looked up to {late_ms:.0} ms late: these may be its figures, and not the path's."
        );
    }
    if let Some(latency) = &measurement.latency {
        let (idle, loaded) = (latency.idle.p50_us / 1e3, latency.loaded.p50_us / 1e3);
        let _ = writeln!(text, "Round trips of small messages: {idle:.1} ms without load, {loaded:.1} ms beside it.");
    }
    text
}

/// The result, sentences first.
pub fn text(measurement: &Measurement, width: Width) -> String {
    let within = width.columns();
    let mut text = width.wrapped(&sentences(measurement)) + "\n\n";
    let mut rows =
        vec![["", "bytes", "seconds", "Mbit/s", "sent again", "RTT least", "RTT median", "RTT 99 %"].map(String::from)];
    for load in &measurement.loads {
        rows.push([
            load.way.word().into(),
            load.bytes.to_string(),
            format!("{:.3}", load.duration_us as f64 / 1e6),
            format!("{:.3}", load.goodput_bit_s as f64 / 1e6),
            load.retransmits.to_string(),
            ms(load.rtt_min_us as f64),
            ms(load.rtt.p50_us),
            ms(load.rtt.p99_us),
        ]);
    }
    text.push_str(&out::aligned(&rows, within));
    limits(&mut text, measurement, within);
    latency(&mut text, measurement, within);
    text
}

fn ms(us: f64) -> String {
    format!("{:.2} ms", us / 1e3)
}

/// What limited each direction, and each stream where there are several.
fn limits(text: &mut String, measurement: &Measurement, within: Option<usize>) {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let row = |name: String, shares: Shares| {
        let [a, b, c, d] = [shares.application, shares.receive_window, shares.send_buffer, shares.path].map(percent);
        [name, a, b, c, d]
    };
    let mut rows = vec![["limited by", "program", "receive window", "send buffer", "path"].map(String::from)];
    for load in &measurement.loads {
        rows.extend(load.shares.map(|shares| row(load.way.word().into(), shares)));
        if load.streams.len() > 1 {
            for (number, stream) in load.streams.iter().enumerate() {
                let mbit = stream.goodput_bit_s as f64 / 1e6;
                rows.extend(stream.shares.map(|shares| row(format!("  stream {number}: {mbit:.1} Mbit/s"), shares)));
            }
        }
    }
    if rows.len() > 1 {
        let _ = write!(text, "\n{}", out::aligned(&rows, within));
    }
}

fn latency(text: &mut String, measurement: &Measurement, within: Option<usize>) {
    let mut rows = vec![["ms", "median", "99 %", "most"].map(String::from)];
    let mut add = |name: String, delays: &Delays| {
        let [median, late, most] = [delays.p50_us, delays.p99_us, delays.max_us].map(|us| format!("{:.2}", us / 1e3));
        if delays.count > 0 {
            rows.push([name, median, late, most]);
        }
    };
    if let Some(latency) = &measurement.latency {
        add("round trip, no load".into(), &latency.idle);
        add("round trip beside the load".into(), &latency.loaded);
        add("added on the way forth".into(), &latency.added_forth);
        add("added on the way back".into(), &latency.added_back);
    }
    for load in &measurement.loads {
        let Load { way, write_to_ack, sampler_late, .. } = load;
        if let Some(waits) = write_to_ack {
            add(format!("{}: from write to ACK", way.word()), waits);
        }
        add(format!("{}: samples late", way.word()), sampler_late);
    }
    let _ = write!(text, "\n{}", out::aligned(&rows, within));
}
