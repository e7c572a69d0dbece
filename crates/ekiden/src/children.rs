//! Runs as child processes, all of which end when this one is told to.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

/// Starts children, and ends them on Ctrl-C, SIGTERM, SIGHUP and SIGQUIT.
pub struct Children {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    running: Vec<Pid>,
    stopped_by: Option<Signal>,
    /// Nothing is left to end but this process.
    over: bool,
}

/// How a child ended.
pub struct Ended {
    /// Its exit code, or 128 + the signal.
    pub code: u8,
    /// The last line of its standard error, without the program's name.
    pub said: String,
}

impl Children {
    /// From here on this process takes the signals itself. To be called before any thread is started.
    pub fn new() -> nix::Result<Self> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT].into_iter().collect();
        signals.thread_block()?;
        let state = Arc::new(Mutex::new(State::default()));
        let watched = Arc::clone(&state);
        thread::spawn(move || {
            while let Ok(signal) = signals.wait() {
                lock(&watched).stop(signal);
            }
        });
        Ok(Self { state })
    }

    /// Runs `command` to its end; `None` if there was a signal before or meanwhile.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn run(&self, command: &mut Command) -> io::Result<Option<Ended>> {
        // In a process group of its own, so that Ctrl-C reaches it through this process only, which knows why.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut state = self.lock();
        if state.stopped_by.is_some() {
            return Ok(None);
        }
        let mut child = command.spawn()?;
        let id = Pid::from_raw(child.id().cast_signed());
        state.running.push(id);
        drop(state);
        let mut said = Vec::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _ = stderr.read_to_end(&mut said);
        }
        // Its standard error has ended, and so it has or will at once. Once waited for, the id may be another's.
        self.lock().running.retain(|running| *running != id);
        let status = child.wait()?;
        if self.stopped_by().is_some() {
            return Ok(None);
        }
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
        Ok(Some(Ended { code: u8::try_from(code).unwrap_or(1), said: last_line(&said) }))
    }

    /// The signal that ended the children, if one has.
    pub fn stopped_by(&self) -> Option<Signal> {
        self.lock().stopped_by
    }

    /// No child is left: from now on a signal ends this process, as if it had never been waited for.
    pub fn over(&self) {
        self.lock().over = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn stop(&mut self, signal: Signal) {
        if self.over {
            std::process::exit(128 + signal as i32);
        }
        self.stopped_by.get_or_insert(signal);
        for child in &self.running {
            let _ = kill(*child, Signal::SIGTERM);
        }
    }
}

/// The state is whole after every statement, so a panic elsewhere does not spoil it.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn last_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    last.trim_start_matches("ekiden: ").into()
}
