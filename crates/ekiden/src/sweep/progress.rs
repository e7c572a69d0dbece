//! How far a sweep is: a bar with the time that is left on a terminal, else a line per run.

use std::fmt::{Display, Write};
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ekiden_scenario::{Amount, Scenario};
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// Building the network, probing the idle paths, and taking it down.
const BESIDES_FLOWS: Duration = Duration::from_secs(1);

/// Progress on standard error.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    work: Mutex<Work>,
    end: Arc<Mutex<Instant>>,
}

/// Expected durations of single runs, summed.
struct Work {
    done: Duration,
    left: Duration,
}

impl Progress {
    /// `there` of `runs` need not be run; the others, `jobs` at once, are expected to take `left` one after another.
    pub fn new(there: usize, runs: usize, left: Duration, jobs: u32) -> Self {
        let started = Instant::now();
        let end = Arc::new(Mutex::new(started + left / jobs));
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(runs as u64).with_position(there as u64),
            false => ProgressBar::hidden(),
        };
        let shared = Arc::clone(&end);
        let left_text = move |_: &ProgressState, out: &mut dyn Write| {
            let end = *shared.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = write!(out, "{:#}", HumanDuration(end.saturating_duration_since(Instant::now())));
        };
        let style = ProgressStyle::with_template("{pos} of {len} runs {wide_bar} {left} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", left_text));
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, started, work: Mutex::new(Work { done: Duration::ZERO, left }), end }
    }

    /// A run has ended that was expected to take `expected`.
    pub fn done(&self, what: impl Display, expected: Duration) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.done += expected;
        work.left = work.left.saturating_sub(expected);
        // What the runs took so far, beside what was expected of them, corrects for both the jobs and the estimate.
        let pace = self.started.elapsed().as_secs_f64() / work.done.as_secs_f64();
        let left = Duration::try_from_secs_f64(work.left.as_secs_f64() * pace).unwrap_or_default();
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + left;
        self.bar.inc(1);
        if self.bar.is_hidden() {
            self.say(what);
        }
    }

    /// A line that stays.
    pub fn say(&self, line: impl Display) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// How long a run of this scenario takes about: what its flows need if they fill the slowest line.
pub fn expected(scenario: &Scenario) -> Duration {
    let slowest = scenario.links.values().map(|link| link.rate.0).min().unwrap_or(1).max(1);
    let ends = scenario.flows.values().map(|flow| {
        let lasts = match flow.amount {
            Amount::Duration(time) => Duration::from_nanos(time.0),
            Amount::Bytes(bytes) => {
                let bits = bytes.0 as f64 * 8.0 * f64::from(flow.parallel);
                // A year is more than anyone waits for, and still can be added up.
                Duration::from_secs_f64((bits / slowest as f64).min(3e7))
            }
        };
        Duration::from_nanos(flow.start.0) + lasts
    });
    ends.max().unwrap_or_default() + BESIDES_FLOWS
}
