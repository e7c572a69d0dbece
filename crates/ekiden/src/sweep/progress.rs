//! How far a sweep is: a bar with the time that is left on a terminal, else a line per run.

use std::fmt::{Display, Write};
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ekiden_sweep::{Plan, Run, RunFailure, SweepObserver};
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::out;

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
    /// Of the plan's runs the `missing` are to be done, `jobs` at once.
    pub fn new(plan: &Plan, missing: &[usize], jobs: u32) -> Self {
        let runs = plan.runs.len();
        let there = runs - missing.len();
        // One after another.
        let left: Duration = missing.iter().filter_map(|at| Some(plan.runs.get(*at)?.expected)).sum();
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
        let progress = Self { bar, started, work: Mutex::new(Work { done: Duration::ZERO, left }), end };
        if there > 0 {
            progress.say(format_args!("{there} of {runs} runs are there already"));
        }
        progress
    }

    /// A line that stays.
    fn say(&self, line: impl Display) {
        self.bar.suspend(|| out::note(&line));
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl SweepObserver for Progress {
    fn ended(&self, run: &Run) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.done += run.expected;
        work.left = work.left.saturating_sub(run.expected);
        // What the runs took so far, beside what was expected of them, corrects for both the jobs and the estimate.
        let pace = self.started.elapsed().as_secs_f64() / work.done.as_secs_f64();
        let left = Duration::try_from_secs_f64(work.left.as_secs_f64() * pace).unwrap_or_default();
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + left;
        self.bar.inc(1);
        if self.bar.is_hidden() {
            self.say(&run.label);
        }
    }

    fn failed(&self, run: &Run, failure: &RunFailure) {
        self.say(format_args!("ekiden: {}: {failure}", run.label));
    }
}
