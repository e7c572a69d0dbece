//! How far everything is: a bar with the time that is left on a terminal, else a line for each group of runs.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ekiden_reproduce::{Engine, expected};
use ekiden_sweep::{Plan, Run, RunFailure, SweepObserver};
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::out;

/// Progress of one engine's runs on standard error.
pub struct Progress {
    bar: ProgressBar,
    engine: Engine,
    started: Instant,
    work: Mutex<Work>,
    end: Arc<Mutex<Instant>>,
    /// What the other engine will take after this one.
    later: Duration,
}

/// Expected durations of single runs, summed.
struct Work {
    done: Duration,
    left: Duration,
}

/// Of the runs of one plan.
pub struct OfPlan<'a> {
    /// The whole.
    pub all: &'a Progress,
    /// Whose runs they are.
    pub name: &'a str,
    /// The plan.
    pub plan: &'a Plan,
}

impl Progress {
    /// Of runs whose durations are expected to sum up to `left`, `jobs` at once, with others `later`.
    pub fn new(engine: Engine, runs: usize, left: Duration, jobs: u32, later: Duration) -> Self {
        let started = Instant::now();
        let end = Arc::new(Mutex::new(started + left / jobs + later));
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(runs as u64),
            false => ProgressBar::hidden(),
        };
        let shared = Arc::clone(&end);
        let left_text = move |_: &ProgressState, out: &mut dyn Write| {
            let end = *shared.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = write!(out, "{:#}", HumanDuration(end.saturating_duration_since(Instant::now())));
        };
        let style = ProgressStyle::with_template("{prefix}: {msg} {pos} of {len} runs {wide_bar} {left} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", left_text));
        bar.set_prefix(engine.to_string());
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, engine, started, work: Mutex::new(Work { done: Duration::ZERO, left }), end, later }
    }

    /// Runs of a plan begin, `there` of which have their record.
    pub fn begin(&self, name: &str, runs: usize, there: usize) {
        self.bar.set_message(name.to_owned());
        if self.bar.is_hidden() && there < runs {
            out::note(format_args!("{name}, {}: {there} of {runs} runs are there", self.engine));
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn ended(&self, took: Duration) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.done += took;
        work.left = work.left.saturating_sub(took);
        // What the runs took so far, beside what was expected of them, corrects for both the jobs and the estimate.
        let pace = self.started.elapsed().as_secs_f64() / work.done.as_secs_f64();
        let left = Duration::try_from_secs_f64(work.left.as_secs_f64() * pace).unwrap_or_default();
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + left + self.later;
        self.bar.inc(1);
    }
}

impl SweepObserver for OfPlan<'_> {
    fn ended(&self, run: &Run) {
        self.all.ended(expected(self.all.engine, self.plan, run));
    }

    fn failed(&self, run: &Run, failure: &RunFailure) {
        self.all.bar.suspend(|| out::note(format_args!("ekiden: {}, {}: {failure}", self.name, run.label)));
    }
}
