//! `ekiden congestion trace`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ekiden_bpf::{Event, EventKind, Level, Model, Phase, Trace};
use ekiden_congestion::Algorithm;
use ekiden_units::Time;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::kernel;
use crate::out;

/// How long the end can be late.
const STEP: Duration = Duration::from_millis(200);

/// Print what connections do: windows, losses and modes, one line for each event.
///
/// Every connection of this machine that uses one of ekiden's, in all network namespaces; once per round trip and
/// whenever something happens. Ends at Ctrl-C. Only one trace can run at a time.
#[derive(clap::Args)]
pub struct Args {
    /// Also every acknowledgement and every measured round-trip time. Many: with fast connections some may be lost.
    #[arg(long)]
    calls: bool,
    /// One JSON object per line instead.
    #[arg(long)]
    json: bool,
    /// End after this time, such as 10s.
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
}

/// Prints events until it is told to stop.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let held = kernel::all_registered()?;
    let level = if args.calls { Level::Calls } else { Level::Rounds };
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGINT);
    ends.add(Signal::SIGTERM);
    ends.thread_block()?;
    let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let mut trace = Trace::start(&held, level)?;
    // To watch is not to keep.
    drop(held);
    let mut lines = Lines { json: args.json, start_us: monotonic_us(), ..Lines::default() };
    let limit = args.duration.map(|time| Instant::now() + Duration::from(time));
    loop {
        let left = limit.map_or(STEP, |limit| limit.saturating_duration_since(Instant::now()).min(STEP));
        let events = trace.poll(left)?;
        if !events.is_empty() {
            out::text(events.iter().map(|event| lines.line(event)).collect::<String>())?;
        }
        if signals.read_signal()?.is_some() || limit.is_some_and(|limit| Instant::now() >= limit) {
            break;
        }
    }
    let (count, lost) = (lines.count, trace.lost()?);
    out::note(format_args!("{count} events of {} connections; {lost} lost", lines.connections));
    Ok(())
}

/// Events as text, with connections by number.
#[derive(Default)]
struct Lines {
    json: bool,
    start_us: u64,
    count: u64,
    connections: u64,
    /// What the kernel calls a connection may be another one after its end, which may have been lost.
    numbers: HashMap<(u64, SocketAddr, SocketAddr), u64>,
}

impl Lines {
    fn line(&mut self, event: &Event) -> String {
        self.count += 1;
        let connection = (event.connection, event.local, event.remote);
        let number = *self.numbers.entry(connection).or_insert_with(|| {
            self.connections += 1;
            self.connections
        });
        if event.kind == EventKind::End {
            self.numbers.remove(&connection);
        }
        let at_us = event.at_us.saturating_sub(self.start_us);
        match self.json {
            true => format!("{}\n", json(event, number, at_us)),
            false => text(event, at_us),
        }
    }
}

fn text(event: &Event, at_us: u64) -> String {
    let detail = match event.kind {
        EventKind::Loss { ssthresh } => format!(" to {ssthresh}"),
        EventKind::Undo { cwnd } => format!(" to {cwnd}"),
        EventKind::Mode { reno } => format!(" {}", mode_word(reno)),
        EventKind::Rtt { rtt_us } => format!(" {}", ms(rtt_us)),
        EventKind::Acked { segments } => format!(" {segments}"),
        EventKind::Start | EventKind::Round | EventKind::Timeout | EventKind::Idle | EventKind::End => String::new(),
    };
    let ssthresh = threshold(event).map_or("-".into(), |ssthresh| ssthresh.to_string());
    format!(
        "{:>5}.{:06} {} → {} {} {}{detail} cwnd {} ssthresh {ssthresh} srtt {} mode {}{}\n",
        at_us / 1_000_000,
        at_us % 1_000_000,
        event.local,
        event.remote,
        event.algorithm,
        word(event.kind),
        event.window.cwnd,
        ms(event.srtt_us),
        mode(event).unwrap_or("-"),
        event.model.as_ref().map(of_path).unwrap_or_default(),
    )
}

fn of_path(model: &Model) -> String {
    format!(
        " least {} queue {} carried {} own {} fair {} chance {:.2}%",
        ms(model.base_us),
        ms(model.queue_us),
        model.carried,
        model.own,
        model.fair,
        100.0 * model.chance
    )
}

fn json(event: &Event, number: u64, at_us: u64) -> Value {
    let value = match event.kind {
        EventKind::Loss { ssthresh } => json!(ssthresh),
        EventKind::Undo { cwnd } => json!(cwnd),
        EventKind::Mode { reno } => json!(mode_word(reno)),
        EventKind::Rtt { rtt_us } => json!(rtt_us),
        EventKind::Acked { segments } => json!(segments),
        EventKind::Start | EventKind::Round | EventKind::Timeout | EventKind::Idle | EventKind::End => Value::Null,
    };
    json!({
        "at_us": at_us,
        "connection": number,
        "local": event.local.to_string(),
        "remote": event.remote.to_string(),
        "algorithm": event.algorithm.name(),
        "event": word(event.kind),
        "value": value,
        "cwnd_before": event.cwnd_before,
        "cwnd_cnt_before": event.cwnd_cnt_before,
        "cwnd": event.window.cwnd,
        "cwnd_cnt": event.window.cwnd_cnt,
        "ssthresh": threshold(event),
        "srtt_us": event.srtt_us,
        "mode": mode(event),
        "model": event.model.map(|model| json!({
            "least_us": model.base_us,
            "queue_us": model.queue_us,
            "carried": model.carried,
            "own": model.own,
            "fair": model.fair,
            "chance": model.chance,
        })),
    })
}

fn word(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Start => "start",
        EventKind::Round => "round",
        EventKind::Loss { .. } => "loss",
        EventKind::Timeout => "timeout",
        EventKind::Mode { .. } => "mode",
        EventKind::Undo { .. } => "undo",
        EventKind::End => "end",
        EventKind::Rtt { .. } => "rtt",
        EventKind::Acked { .. } => "acked",
        EventKind::Idle => "idle",
    }
}

/// Gentle HSTCP's mode, `ekiden_far`'s phase; the others have none.
fn mode(event: &Event) -> Option<&'static str> {
    match event.model {
        Some(model) => Some(phase_word(model.phase)),
        None => (event.algorithm == Algorithm::Ghstcp).then(|| mode_word(event.reno_mode)),
    }
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Startup => "startup",
        Phase::Known => "known",
        Phase::Jump => "jump",
        Phase::Alone => "alone",
        Phase::Shares => "shares",
    }
}

fn mode_word(reno: bool) -> &'static str {
    if reno { "reno" } else { "hstcp" }
}

/// `None`: there is none yet.
fn threshold(event: &Event) -> Option<u32> {
    Some(event.window.ssthresh).filter(|&ssthresh| ssthresh < u32::MAX / 2)
}

fn ms(us: u32) -> String {
    format!("{}.{:03}ms", us / 1000, us % 1000)
}

fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    now.as_micros() as u64
}
