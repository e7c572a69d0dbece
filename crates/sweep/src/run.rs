//! Runs a sweep: several runs at once, and only those that have no record yet.

use std::collections::BTreeMap;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;

use crate::error::Error;
use crate::plan::{Plan, Run};

/// How the runs of a sweep are done.
pub struct Runner<'a> {
    /// How many runs at once.
    pub jobs: u32,
    /// Does a run and writes its record to [`Run::record`]. An error ends the sweep.
    pub work: &'a (dyn Fn(&Run) -> io::Result<RunOutcome> + Sync),
    /// The number of the signal that has ended the sweep, if one has. Called once, after all runs have ended.
    pub stopped_by: &'a dyn Fn() -> Option<i32>,
}

/// How a run went.
pub enum RunOutcome {
    /// It ran to its end; the record has the result.
    Finished,
    /// It left no record.
    Failed {
        /// The kind of failure, as an exit code: a run may be a process.
        code: u8,
        /// One line.
        reason: String,
    },
    /// The sweep ended before the run did.
    Stopped,
}

/// Why a run has left no record of its scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunFailure {
    /// It failed.
    #[error("{reason}")]
    Run {
        /// The kind of failure, as an exit code.
        code: u8,
        /// One line.
        reason: String,
    },
    /// The record is of another scenario.
    #[error("the scenario file has changed since the sweep began")]
    Changed,
}

/// Is told of a sweep's progress, by several threads.
pub trait SweepObserver: Sync {
    /// A run has ended, successfully or not.
    fn ended(&self, run: &Run);
    /// A run has failed; after [`SweepObserver::ended`].
    fn failed(&self, run: &Run, failure: &RunFailure);
}

/// Does the plan's runs with the indices `missing`. Returns the failures, by the same indices.
///
/// # Errors
/// [`Error::Interrupted`] after a signal, [`Error::Start`] if a run cannot be started.
pub fn run_missing(
    plan: &Plan,
    missing: &[usize],
    runner: &Runner<'_>,
    observer: &dyn SweepObserver,
) -> Result<BTreeMap<usize, RunFailure>, Error> {
    let failed = Mutex::new(BTreeMap::new());
    let jobs = missing.len().min(runner.jobs as usize);
    let waiting = Mutex::new(missing.iter());
    let worker = || -> io::Result<()> {
        loop {
            let next = lock(&waiting).next();
            let Some((&at, run)) = next.and_then(|at| Some((at, plan.runs.get(*at)?))) else { return Ok(()) };
            let failure = match (runner.work)(run)? {
                RunOutcome::Stopped => return Ok(()),
                RunOutcome::Failed { code, reason } => Some(RunFailure::Run { code, reason }),
                RunOutcome::Finished if run.summary(&plan.index).is_some() => None,
                RunOutcome::Finished => Some(RunFailure::Changed),
            };
            observer.ended(run);
            if let Some(failure) = failure {
                observer.failed(run, &failure);
                lock(&failed).insert(at, failure);
            }
        }
    };
    let result = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        let joined = |worker: ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|payload| resume_unwind(payload));
        workers.into_iter().try_for_each(joined)
    });
    if let Some(signal) = (runner.stopped_by)() {
        // Counts records: a run may have written its record and been interrupted before it ended.
        let runs = plan.runs.len();
        return Err(Error::Interrupted { done: runs - plan.missing()?.len(), runs, signal });
    }
    result.map_err(Error::Start)?;
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The values are valid even if a worker panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
