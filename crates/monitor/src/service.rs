//! The monitor at work: rounds of measurements until it is told to stop.
//!
//! While the history cannot be written, up to 10,000 measurements wait in memory; if its file is gone, the monitor ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ekiden_units::Time;
use tracing::{info, warn};

use crate::config::{Config, Target};
use crate::export::to_prometheus;
use crate::history::{History, HistoryError};
use crate::measurement::{Failure, Measured, Measurement};
use crate::schedule::{Rounds, order};
use crate::status::Seen;

mod clock;

use clock::Clock;
pub use clock::unix_ms as now_unix_ms;

/// Measures a target. It blocks, on a thread of its own, and is left alone when the monitor stops.
pub type Measure = dyn Fn(&Target) -> Result<Measured, Failure> + Send + Sync;

/// How many measurements wait at most while the history cannot be written.
const WAITING_MOST: usize = 10_000;
/// How much longer than its target's `duration` a measurement may take: connecting, and what its server has to say.
const EXTRA: Duration = Duration::from_secs(120);
/// How long the clock must have run evenly before measurements are deleted by it.
const EVEN: Duration = Duration::from_secs(86_400);

/// What happens to a running monitor.
#[derive(Debug)]
pub enum Event {
    /// It is to end.
    Stop,
    /// Another configuration is to be in force, from the next round on.
    Changed(Box<Config>),
    /// A measurement is over: its number, and what it gave.
    Done(u64, Result<Measured, Failure>),
}

/// Why a monitor ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The history cannot be used any more.
    #[error("{source}; measurements that are not written: {waiting}")]
    History {
        /// Measurements that are in no file.
        waiting: usize,
        /// What is wrong.
        source: HistoryError,
    },
    /// The only round gave nothing.
    #[error("no target could be measured; {target}: {reason}")]
    AllFailed {
        /// The last one.
        target: String,
        /// Why it failed.
        reason: Failure,
    },
    /// The only round is not in the text file for Prometheus.
    #[error("{}: is not written; the log says why", .0.display())]
    Prometheus(std::path::PathBuf),
    /// The system gives no thread or random number.
    #[error("cannot go on: {0}")]
    System(std::io::Error),
}

/// A monitor.
pub struct Service {
    config: Config,
    history: History,
    measure: Arc<Measure>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    clock: Clock,
    /// [`EXTRA`]; tests have less.
    extra: Duration,
    /// Rounds so far.
    rounds: usize,
    /// Whether the last round is in the text file.
    is_told: bool,
    /// What is to be in force from the next round on.
    next_config: Option<Box<Config>>,
    /// Measurements so far.
    number: u64,
    /// What is still to be written.
    waiting: Vec<Measurement>,
    lost: usize,
    /// What is told to those who ask.
    seen: Arc<Seen>,
}

/// How a round ended.
#[derive(Debug, PartialEq)]
enum Round {
    Measured(Option<(String, Failure)>),
    Stopped,
}

impl Service {
    /// A monitor that measures what `config` says by `measure`, and writes `history`.
    pub fn new(config: Config, history: History, measure: Arc<Measure>) -> Self {
        let (sender, events) = channel();
        let clock = Clock::start();
        let seen = Arc::new(Seen::new(&config));
        Self {
            config,
            history,
            measure,
            events,
            sender,
            clock,
            extra: EXTRA,
            rounds: 0,
            is_told: true,
            next_config: None,
            number: 0,
            waiting: Vec::new(),
            lost: 0,
            seen,
        }
    }

    /// What it is seen to do.
    pub fn seen(&self) -> Arc<Seen> {
        self.seen.clone()
    }

    /// Sending [`Event::Stop`] here ends it.
    pub fn events(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// Measures round after round until it is told to stop; `once`: one round at once.
    ///
    /// # Errors
    /// If the history is gone, or there are measurements at the end that it does not take; with `once` also if every target failed.
    pub fn run(&mut self, once: bool) -> Result<(), EndError> {
        if once {
            let round = self.round();
            self.finish()?;
            return match round? {
                Round::Measured(Some((target, reason))) => Err(EndError::AllFailed { target, reason }),
                Round::Measured(None) if !self.is_told => {
                    Err(EndError::Prometheus(self.config.prometheus.clone().unwrap_or_default()))
                }
                Round::Measured(None) | Round::Stopped => Ok(()),
            };
        }
        loop {
            if let Some(config) = self.next_config.take() {
                self.seen.takes(&self.config.targets, &config);
                self.config = *config;
            }
            let start = Instant::now();
            let mut rounds = Rounds::new(self.config.interval.into(), self.config.offset);
            while self.next_config.is_none() {
                let next = rounds.next(start.elapsed(), chance()?);
                self.seen.waits_until(start + next);
                if !self.wait(next.saturating_sub(start.elapsed())) {
                    return self.finish();
                }
                if self.next_config.is_none() && self.round()? == Round::Stopped {
                    return self.finish();
                }
            }
        }
    }

    /// Waits, no longer than until there is another configuration; `false` if it was told to stop meanwhile.
    fn wait(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time.min(Duration::from_secs(u32::MAX.into()));
        loop {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Stop) => return false,
                Ok(Event::Changed(config)) => {
                    self.next_config = Some(config);
                    return true;
                }
                // Of a measurement that was given up.
                Ok(Event::Done(..)) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Measures every target once. If all failed, it says the last one's reason.
    fn round(&mut self) -> Result<Round, EndError> {
        if let Some(jump) = self.clock.look() {
            warn!("{jump}");
        }
        let round_unix_ms = clock::unix_ms();
        let (mut failed, mut succeeded) = (None, false);
        for index in order(self.config.targets.len(), self.rounds) {
            let Some(target) = self.config.targets.get(index).cloned() else { continue };
            let started_unix_ms = clock::unix_ms();
            self.seen.measures(&target.name);
            let Some(result) = self.measured(&target)? else { return Ok(Round::Stopped) };
            self.seen.has_measured(&target.name, started_unix_ms, &result);
            match &result {
                Ok(measured) => {
                    succeeded = true;
                    info!("{}: {}", target.name, measured.summary());
                }
                Err(reason) => {
                    warn!("{}: not measured: {reason}", target.name);
                    failed = Some((target.name.clone(), reason.clone()));
                }
            }
            self.waiting.push(Measurement {
                round_unix_ms,
                started_unix_ms,
                target: target.name.clone(),
                server: target.server.to_string(),
                via: target.via.clone(),
                direction: target.direction.word().into(),
                result,
            });
            self.write()?;
            self.seen.are_unwritten(self.waiting.len());
        }
        self.rounds += 1;
        self.forget()?;
        self.is_told = self.tell_prometheus();
        Ok(Round::Measured(failed.filter(|_| !succeeded)))
    }

    /// What a measurement gives; `None` if the monitor is told to stop meanwhile.
    fn measured(&mut self, target: &Target) -> Result<Option<Result<Measured, Failure>>, EndError> {
        self.number += 1;
        let number = self.number;
        let (measure, sender, copy) = (self.measure.clone(), self.sender.clone(), target.clone());
        let work = move || {
            let result = catch_unwind(AssertUnwindSafe(|| measure(&copy)));
            let result = result.unwrap_or_else(|_| Err(Failure("this program failed; its log says how".into())));
            // If there is no receiver any more, the event is not missed.
            let _ = sender.send(Event::Done(number, result));
        };
        thread::Builder::new().name("measurement".into()).spawn(work).map_err(EndError::System)?;
        let longest = Duration::from(target.duration) + self.extra;
        let until = Instant::now() + longest;
        loop {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Stop) => return Ok(None),
                Ok(Event::Changed(config)) => self.next_config = Some(config),
                Ok(Event::Done(of, result)) if of == number => return Ok(Some(result)),
                Ok(Event::Done(..)) => {}
                Err(_) => return Ok(Some(Err(Failure(format!("no end after {}", Time::from(longest)))))),
            }
        }
    }

    /// Writes what waits. While the disk is full it goes on waiting, and the next measurement tries again.
    fn write(&mut self) -> Result<(), EndError> {
        match self.history.add(&self.waiting) {
            Ok(()) => {
                if self.waiting.len() > 1 {
                    info!("the history takes measurements again: {} written, {} lost", self.waiting.len(), self.lost);
                }
                self.waiting.clear();
                self.lost = 0;
                Ok(())
            }
            Err(error) if error.may_pass() => {
                if self.waiting.len() > WAITING_MOST {
                    self.waiting.remove(0);
                    self.lost += 1;
                }
                let (waiting, lost) = (self.waiting.len(), self.lost);
                warn!("{error}; measurements that wait in memory for the next try: {waiting}; lost: {lost}");
                Ok(())
            }
            Err(source) => Err(EndError::History { waiting: self.waiting.len(), source }),
        }
    }

    /// Deletes what is older than it is to be kept, if the clock can be trusted.
    fn forget(&mut self) -> Result<(), EndError> {
        let Some(keep) = self.config.keep.filter(|_| self.clock.even_for() >= EVEN) else { return Ok(()) };
        match self.history.forget(crate::hours::since(clock::unix_ms(), keep)) {
            Ok(_) => Ok(()),
            Err(error) if error.may_pass() => {
                warn!("old measurements stay: {error}");
                Ok(())
            }
            Err(source) => Err(EndError::History { waiting: self.waiting.len(), source }),
        }
    }

    /// Whether the text file is as it should be.
    fn tell_prometheus(&self) -> bool {
        let Some(file) = &self.config.prometheus else { return true };
        let text = self.history.latest().and_then(|latest| Ok(to_prometheus(&latest, &self.history.tallies()?)));
        match text.map(|text| ekiden_files::write(file, text.as_bytes())) {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => warn!("{}: cannot be written: {error}", file.display()),
            Err(error) => warn!("{error}"),
        }
        false
    }

    /// What was measured must be in the file at the end.
    fn finish(&mut self) -> Result<(), EndError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let written = self.history.add(&self.waiting);
        written.map_err(|source| EndError::History { waiting: self.waiting.len() + self.lost, source })
    }
}

/// A random number from 0 to 1.
fn chance() -> Result<f64, EndError> {
    let random = getrandom::u32().map_err(|error| EndError::System(std::io::Error::other(error.to_string())))?;
    Ok(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests;
