//! A node's log: lines to standard error, written by a thread of its own.
//!
//! The node never waits for the reader of its log, and goes on when the log cannot be written. Lines that find no room are
//! lost; as soon as the log can be written again, it says how many.
//!
//! EKIDEN_LOG sets the level. SIGUSR1 raises it to debug, and a second one to trace; SIGUSR2 sets it back.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ekiden_net::privileges::keep_only;
use nix::sys::signal::{SigSet, Signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::util::SubscriberInitExt;

/// Bytes of lines that wait to be written.
const ROOM: usize = 256 << 10;

/// How long the end of the process waits for the last lines to be written.
const LAST: Duration = Duration::from_millis(500);

/// The log. Dropping it waits a little for what is still to be written.
pub struct Log(Arc<Shared>);

/// Takes one whole line with each write, as the formatter makes them. What comes from another host stays within its line: other control
/// characters than the formatter's colours are replaced.
struct Lines {
    shared: Arc<Shared>,
    has_colours: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Told of each line that comes, and of each that was written.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    lost: u64,
    is_writing: bool,
}

/// Sends what is traced to standard error from now on, at the level that EKIDEN_LOG says. SIGUSR1 makes it debug, a second one trace;
/// SIGUSR2 makes it what it was at the start. To be called before any thread is started: all of them leave these signals to that of the
/// log.
///
/// # Errors
/// The thread cannot be started.
pub fn start() -> io::Result<Log> {
    let shared = Arc::new(Shared::default());
    let said = std::env::var_os("EKIDEN_LOG").unwrap_or_default();
    let said = said.to_string_lossy();
    let is_wrong = filter(&said).is_none();
    let at_start = if is_wrong { "info".to_owned() } else { said.to_string() };
    let lines = shared.clone();
    let log = tracing_subscriber::fmt().with_env_filter(filter(&at_start).unwrap_or_default());
    let has_colours = io::stderr().is_terminal();
    let log = log.with_writer(move || Lines { shared: lines.clone(), has_colours });
    let log = log.with_target(false).with_ansi(has_colours).log_internal_errors(false);
    let log = log.with_filter_reloading();
    let level_handle = log.reload_handle();
    let signals: SigSet = [Signal::SIGUSR1, Signal::SIGUSR2].into_iter().collect();
    signals.thread_block()?;
    // A log that was set up before stays.
    let _ = log.finish().try_init();
    if is_wrong {
        tracing::warn!("EKIDEN_LOG: '{said}' is none of error, warn, info, debug, trace and off; the level is info");
    }
    // Not std's stderr, whose lock others would wait for while a write waits.
    let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let writing = shared.clone();
    thread::Builder::new().name("log".into()).spawn(move || {
        // It begins before the node knows what it needs, and needs nothing itself.
        if let Err(error) = keep_only(&[]) {
            tracing::warn!("the log's thread cannot give up its capabilities: {error}");
        }
        // From here, so that it has no capabilities either.
        let listening = thread::Builder::new().name("log".into()).spawn(move || {
            let set = |level: &str| level_handle.reload(filter(level).unwrap_or_default()).is_ok();
            follow(&signals, &at_start, set);
        });
        if let Err(error) = listening {
            tracing::warn!("the level of the log cannot be changed by signals: {error}");
        }
        writing.write(file);
    })?;
    Ok(Log(shared))
}

/// Sets the level that each signal asks for, for ever. `set` says whether it could.
fn follow(signals: &SigSet, at_start: &str, set: impl Fn(&str) -> bool) {
    let mut level = at_start;
    while let Ok(signal) = signals.wait() {
        let next = next_level(level, at_start, signal);
        // Told while it is to be seen: at least at the more detailed of the two.
        let tell =
            || tracing::info!("the log's level is '{}' from now on", if next.is_empty() { "info" } else { next });
        if signal == Signal::SIGUSR2 {
            tell();
        }
        if set(next) && signal == Signal::SIGUSR1 {
            tell();
        }
        level = next;
    }
}

/// The level after a signal: SIGUSR1 asks for more, SIGUSR2 for that of the start.
fn next_level<'a>(level: &'a str, at_start: &'a str, signal: Signal) -> &'a str {
    match (signal, level) {
        (Signal::SIGUSR1, "debug" | "trace") => "trace",
        (Signal::SIGUSR1, _) => "debug",
        _ => at_start,
    }
}

/// What EKIDEN_LOG says; `None` if that is wrong. A word alone that is no level would be taken for the name of a module, of which
/// everything is logged, and of all others nothing.
///
/// Libraries warn as often as strangers make them: up to "info" nothing of them is logged.
fn filter(said: &str) -> Option<EnvFilter> {
    let is_known = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    let builder = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    match said.trim() {
        "" => Some(builder.parse_lossy("off,ekiden=info")),
        said if said.parse().is_ok_and(|level: LevelFilter| level <= LevelFilter::INFO) => {
            Some(builder.parse_lossy(format!("off,ekiden={said}")))
        }
        said => said.split(',').all(is_known).then(|| builder.parse(said).ok()).flatten(),
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let is_busy = |queue: &mut Queue| queue.is_writing || !queue.lines.is_empty();
        drop(self.0.changed.wait_timeout_while(self.0.lock(), LAST, is_busy));
    }
}

impl Write for Lines {
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        let line = one_line(&String::from_utf8_lossy(written), self.has_colours).into_bytes();
        let mut queue = self.shared.lock();
        if queue.bytes + line.len() > ROOM {
            queue.lost += 1;
        } else {
            queue.bytes += line.len();
            queue.lines.push_back(line);
            self.shared.changed.notify_all();
        }
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line with no other end in it, and no other control characters but those that colours begin with.
fn one_line(line: &str, has_colours: bool) -> String {
    let is_shown = |c: char| !ekiden_units::is_unseen(c) || has_colours && c == '\u{1b}';
    let inside = line.strip_suffix('\n').unwrap_or(line);
    let shown = inside.chars().map(|c| if is_shown(c) { c } else { '\u{fffd}' });
    shown.chain(line[inside.len()..].chars()).collect()
}

impl Shared {
    /// Writes lines for ever.
    fn write(&self, mut file: impl Write) {
        loop {
            let line = {
                let mut queue = self.lock();
                queue.is_writing = false;
                self.changed.notify_all();
                let is_empty = |queue: &mut Queue| queue.lines.is_empty();
                let mut queue = self.changed.wait_while(queue, is_empty).unwrap_or_else(PoisonError::into_inner);
                queue.is_writing = true;
                let line = queue.lines.pop_front().unwrap_or_default();
                queue.bytes -= line.len();
                line
            };
            if file.write_all(&line).is_err() {
                self.lock().lost += 1;
                continue;
            }
            let lost = std::mem::take(&mut self.lock().lost);
            if lost > 0 && file.write_all(notice(lost).as_bytes()).is_err() {
                self.lock().lost += lost;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In the form of the other lines.
fn notice(lost: u64) -> String {
    let mut text = String::new();
    // A string takes whatever is written to it.
    let _ = SystemTime.format_time(&mut format::Writer::new(&mut text));
    let _ = writeln!(text, "  WARN {lost} lines of the log were lost: it could not be written, or was not read");
    text
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    #[test]
    fn what_another_host_says_stays_within_its_line() {
        let forged = "WARN unknown field `a\nWARN wrong user or password from 192.0.2.1\r\u{1b}[31m\u{85}`\n";
        let shared = Arc::new(Shared::default());
        for has_colours in [false, true] {
            let written = Lines { shared: shared.clone(), has_colours }.write(forged.as_bytes()).unwrap();
            assert_eq!(written, forged.len());
            let line = String::from_utf8(shared.lock().lines.pop_front().unwrap()).unwrap();
            assert_eq!((line.matches('\n').count(), line.ends_with("`\n")), (1, true), "{line:?}");
            assert!(!line.contains(['\r', '\u{85}']) && line.contains('\u{1b}') == has_colours, "{line:?}");
        }
    }

    #[test]
    fn what_libraries_say_is_logged_from_debug_on() {
        for (said, own, of_libraries) in [
            ("", true, false),
            ("info", true, false),
            ("WARN", true, false),
            ("error", false, false),
            ("off", false, false),
            ("debug", true, true),
            ("warn,hickory_net=warn", true, true),
        ] {
            let log = tracing_subscriber::fmt().with_env_filter(filter(said).unwrap()).with_writer(io::sink).finish();
            let is_logged = || {
                let own = tracing::enabled!(target: "ekiden_relay::node", tracing::Level::WARN);
                (own, tracing::enabled!(target: "hickory_net::udp", tracing::Level::WARN))
            };
            assert_eq!(tracing::subscriber::with_default(log, is_logged), (own, of_libraries), "{said:?}");
        }
    }

    /// A file whose writes each wait to be allowed, and say what they wrote.
    struct Slow {
        allowed: Receiver<bool>,
        written: Sender<String>,
    }

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            if !self.allowed.recv().unwrap_or(true) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let _ = self.written.send(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_signal_makes_the_log_more_detailed_and_another_one_as_it_was() {
        use Signal::{SIGUSR1, SIGUSR2};
        for (at_start, signals, then) in [
            ("", &[SIGUSR1][..], "debug"),
            ("warn", &[SIGUSR1, SIGUSR1], "trace"),
            ("info,ekiden=debug", &[SIGUSR1, SIGUSR1, SIGUSR1, SIGUSR2], "info,ekiden=debug"),
            ("trace", &[SIGUSR1], "trace"),
            ("off", &[SIGUSR2], "off"),
        ] {
            let level = signals.iter().fold(at_start, |level, signal| next_level(level, at_start, *signal));
            assert_eq!(level, then);
            assert!(filter(level).is_some());
        }
    }

    #[test]
    fn what_cannot_be_written_or_finds_no_room_is_counted_and_nobody_waits() {
        let shared = Arc::new(Shared::default());
        let (allow, allowed) = channel();
        let (written, lines) = channel();
        let writing = shared.clone();
        thread::spawn(move || writing.write(Slow { allowed, written }));
        let mut log = Lines { shared: shared.clone(), has_colours: false };
        log.write_all(b"first\n").unwrap();
        let most = ROOM / 1024;
        (0..most + 100).for_each(|_| log.write_all(&[b'x'; 1024]).unwrap());
        // The first may be on its way or not.
        assert!((99..=101).contains(&shared.lock().lost), "{}", shared.lock().lost);
        let before = shared.lock().lost;
        // The disk is full for three lines.
        (0..3).for_each(|_| allow.send(false).unwrap());
        (0..2).for_each(|_| allow.send(true).unwrap());
        assert_eq!(lines.recv().unwrap().len(), 1024);
        let told = lines.recv().unwrap();
        assert!(told.contains(&format!("WARN {} lines of the log were lost", before + 3)), "{told}");
        drop(allow);
        drop(Log(shared.clone()));
        let rest = most + 101 - before as usize - 4;
        assert_eq!(lines.try_iter().count(), rest, "the rest is written, and nothing more is lost");
        assert_eq!(shared.lock().lost, 0);
    }
}
