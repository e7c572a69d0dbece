//! `ekiden measure watch`: other programs' TCP connections.

mod filter;
mod picture;
mod show;

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args as ClapArgs;
use ekiden_diagnosis::jitter::Jitter;
use ekiden_files::{TargetError, check_directory, check_target, write, write_with};
use ekiden_measure::watch::Watch;
use ekiden_measure::watch_record::{WATCH_FORMAT, WatchRecord};
use ekiden_net::clock::monotonic_ns;
use ekiden_net::sock_diag::SockDiag;
use ekiden_record::SAMPLES_MOST;
use ekiden_units::Time;
use indicatif::{ProgressBar, ProgressStyle};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::{TimeSpec, TimeValLike};

pub use self::filter::NameNotFound;
use self::filter::{End, Filter};
use crate::out;
use crate::usage::{command_line, now_unix_ms, svg, whole_number};

/// Watch the TCP connections of other programs: round-trip time, windows, rates, and what limits the sender.
///
/// Asks the kernel for the state of every TCP connection of this network namespace, again and again, without touching them
/// or the programs. Needs no privileges: every user sees the connections of all. Ends with Ctrl-C, or after --for, and then
/// shows each connection that was there meanwhile. What limited a sender sums to 100 %: the program had nothing to send
/// (application), the receive window, the send buffer, or the path. docs/guide/measure.md explains it.
#[derive(ClapArgs)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only connections to this address or name.
    #[arg(long, value_name = "ADDR[:PORT]")]
    to: Option<End>,
    /// Only connections from this address or name of this machine.
    #[arg(long, value_name = "ADDR[:PORT]")]
    from: Option<End>,
    /// Only connections with this port on either side.
    #[arg(long, value_name = "N", value_parser = whole_number(1, u16::MAX))]
    port: Option<u16>,
    /// Only connections of this process. Another user's needs root.
    #[arg(long, value_name = "PID", value_parser = whole_number(1, u32::MAX))]
    pid: Option<u32>,
    /// The time between two looks, at least 1ms.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = interval)]
    interval: Time,
    /// How long to watch; without it, until Ctrl-C.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    lasts: Option<Time>,
    /// Write every sample as a row of this file.
    #[arg(long, value_name = "FILE.csv")]
    csv: Option<PathBuf>,
    /// Draw round-trip time and congestion window over time.
    #[arg(long, value_name = "FILE.svg", value_parser = svg())]
    picture: Option<PathBuf>,
    /// Write what came out as a JSON document: to a file if it ends in .json, else into a directory.
    #[arg(long, value_name = "FILE|DIR")]
    record: Option<PathBuf>,
    /// How many samples of all connections together are kept, about; if there are more, every second is given up, and so again.
    #[arg(long, value_name = "N", default_value_t = SAMPLES_MOST, value_parser = whole_number(1_000, u64::MAX))]
    samples: u64,
    /// Replace files that are there already.
    #[arg(long)]
    force: bool,
    /// Print JSON, one document in a line: for each connection, then for the watch.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
    ekiden measure watch --for 10s
    ekiden measure watch --to 192.0.2.1:443
    ekiden measure watch --port 22 --picture ssh.svg";

/// No connection was seen that was asked for.
#[derive(Debug, thiserror::Error)]
#[error("no TCP connection was seen in {0}{1}")]
struct NothingSeen(Time, &'static str);

/// Watches, and shows what was seen.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let started_unix_ms = now_unix_ms();
    let record_place = args.record.as_deref().map(|place| place_of(place, started_unix_ms));
    if let Some(directory) = args.record.as_ref().filter(|record| !ekiden_sweep::is_file(record)) {
        check_directory(directory).with_context(|| directory.display().to_string())?;
    }
    for file in [&args.csv, &args.picture, &record_place].into_iter().flatten() {
        check_target(file, args.force).with_context(|| file.display().to_string())?;
    }
    let filter = Filter::new(args.from.as_ref(), args.to.as_ref(), args.port, args.pid)?;
    let mut watch = Watch::new(args.samples);
    let mut jitter = Jitter::default();
    let lasted_us = sample(args, &filter, &mut watch, &mut jitter)?;

    let record = WatchRecord {
        watch_format: WATCH_FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        command: command_line(),
        kernel: nix::sys::utsname::uname().ok().map(|name| name.release().to_string_lossy().into_owned()),
        started_unix_ms,
        duration_us: lasted_us,
        interval_us: args.interval.0 / 1_000,
        late: jitter.lateness(),
        one_of: watch.one_of(),
        not_kept: watch.not_kept(),
        connections: watch.watched(),
    };
    if record.connections.is_empty() {
        let is_all = args.to.is_none() && args.from.is_none() && args.port.is_none() && args.pid.is_none();
        let hint =
            if is_all { "" } else { " that --to, --from, --port or --pid asks for; `ss -tn` shows all there are" };
        return Err(NothingSeen(Time::ms(lasted_us / 1_000), hint).into());
    }
    match args.json {
        true => out::text(show::json_lines(&record)?)?,
        false => out::text(out::wrapped(&show::text(&record)))?,
    }
    leave(args, &watch, &record, record_place.as_deref())
}

/// Writes the files that were asked for, and says where they are.
fn leave(args: &Args, watch: &Watch, record: &WatchRecord, record_place: Option<&Path>) -> anyhow::Result<()> {
    let tell = |what: &str, file: &Path, written: std::io::Result<()>| {
        written.map_err(TargetError::from).with_context(|| file.display().to_string())?;
        if args.json { Ok(()) } else { out::line(format_args!("{what}: {}", file.display())) }
    };
    if let Some(file) = record_place {
        let text = serde_json::to_string_pretty(record)? + "\n";
        tell("record", file, write(file, text.as_bytes()))?;
    }
    if let Some(file) = &args.csv {
        tell("samples", file, write_with(file, |out| show::csv(watch, out)))?;
    }
    if let Some(file) = &args.picture {
        let picture = picture::picture(watch, &record.connections).with_context(|| {
            format!("{}: nothing to draw: no connection has sent data for ten looks", file.display())
        })?;
        tell("picture", file, write(file, picture.as_bytes()))?;
    }
    Ok(())
}

/// Looks at the connections until it is told to stop, and returns how long that was in microseconds.
fn sample(args: &Args, filter: &Filter, watch: &mut Watch, jitter: &mut Jitter) -> anyhow::Result<u64> {
    let stop = Stop::new().context("cannot wait for signals")?;
    let mut diag = SockDiag::open()?;
    let mut known = BTreeSet::new();
    let [local, remote] = filter.ports();
    let mut live = Live::new();
    // Without it, timers are up to 50 µs late.
    let _ = set_timerslack(1);
    let began_ns = monotonic_ns();
    let mut look = 0;
    loop {
        let due_ns = began_ns.saturating_add(args.interval.0.saturating_mul(look));
        let is_last = args.lasts.is_some_and(|lasts| due_ns > began_ns.saturating_add(lasts.0));
        // Who stops it at once has seen something too.
        if is_last || look > 0 && stop.wait_until(due_ns)? {
            return Ok((monotonic_ns() - began_ns) / 1_000);
        }
        let now_ns = monotonic_ns();
        jitter.add(now_ns.saturating_sub(due_ns) / 1_000);
        let sockets = diag.connections(local, remote)?;
        let chosen = filter.choose(&sockets, |cookie| known.contains(&cookie))?;
        known.extend(chosen.iter().map(|socket| socket.cookie));
        let at_us = (now_ns - began_ns) / 1_000;
        watch.look(at_us, chosen.into_iter());
        live.show(at_us, watch);
        // The next one whose time has not been over for a whole interval.
        let next = (look + 1).max((monotonic_ns() - began_ns) / args.interval.0);
        jitter.miss(next - look - 1);
        look = next;
    }
}

/// Ctrl-C, SIGTERM and SIGHUP as an end.
struct Stop {
    signals: SignalFd,
}

impl Stop {
    fn new() -> nix::Result<Self> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        signals.thread_block()?;
        Ok(Self { signals: SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)? })
    }

    /// Sleeps until the monotonic clock shows `at_ns`. Returns whether it is to end instead.
    fn wait_until(&self, at_ns: u64) -> nix::Result<bool> {
        loop {
            let left_ns = at_ns.saturating_sub(monotonic_ns());
            let timeout = TimeSpec::nanoseconds(left_ns.min(i64::MAX as u64) as i64);
            let mut waited = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut waited, Some(timeout), None) {
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error),
                Ok(0) if monotonic_ns() < at_ns => {}
                Ok(0) => return Ok(false),
                // Taken, so that it does not end the program afterwards.
                Ok(_) => return self.signals.read_signal().map(|signal| signal.is_some()),
            }
        }
    }
}

impl Drop for Stop {
    /// From here on a signal ends the program.
    fn drop(&mut self) {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        let _ = signals.thread_unblock();
    }
}

/// A line once a second on standard error, if that is a terminal.
struct Live {
    bar: ProgressBar,
    shown_us: u64,
    moved_bytes: u64,
}

impl Live {
    fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self { bar, shown_us: 0, moved_bytes: 0 }
    }

    fn show(&mut self, at_us: u64, watch: &Watch) {
        if at_us < self.shown_us + 1_000_000 {
            return;
        }
        let [all, open] = watch.count();
        let moved_bytes = watch.moved_bytes();
        let rate = moved_bytes.saturating_sub(self.moved_bytes) as f64 * 8.0 / (at_us - self.shown_us) as f64;
        self.bar.set_message(format!("{} s: {all} connections, {open} open; {rate:.1} Mbit/s", at_us / 1_000_000));
        self.bar.tick();
        (self.shown_us, self.moved_bytes) = (at_us, moved_bytes);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The file of a record that is to be in `place`.
fn place_of(place: &Path, started_unix_ms: u64) -> PathBuf {
    match ekiden_sweep::is_file(place) {
        true => place.to_owned(),
        false => place.join(format!("watch-{started_unix_ms}.json")),
    }
}

fn interval(text: &str) -> Result<Time, String> {
    let time = duration(text)?;
    if time < Time::ms(1) { Err("at least 1ms".into()) } else { Ok(time) }
}

fn duration(text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error: ekiden_units::ParseError| error.to_string())?;
    if time == Time(0) { Err("more than 0".into()) } else { Ok(time) }
}
