//! Carrying out a sweep: several runs at once, and only those that have no record yet.

use std::collections::BTreeMap;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;

use crate::error::Error;
use crate::plan::{Plan, Run};

/// Who runs.
pub struct Runner<'a> {
    /// How many runs at once.
    pub jobs: u32,
    /// Does a run, which leaves its record in its place. An error ends the sweep.
    pub work: &'a (dyn Fn(&Run) -> io::Result<Done> + Sync),
    /// The number of the signal that has ended the sweep, if one has. Asked once, when no run is under way any more.
    pub stopped_by: &'a dyn Fn() -> Option<i32>,
}

/// How a run went.
pub enum Done {
    /// To its end; the record tells how.
    Finished,
    /// It left no record.
    Failed {
        /// Of which kind the failure is, as an exit code: a run may be a process.
        code: u8,
        /// One line.
        reason: String,
    },
    /// The sweep is over before it.
    Stopped,
}

/// Why there is no record of a run after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It failed.
    #[error("{reason}")]
    Run {
        /// Of which kind the failure is, as an exit code.
        code: u8,
        /// One line.
        reason: String,
    },
    /// There is one, of another scenario.
    #[error("the scenario file has changed since the sweep began")]
    Changed,
}

/// Who is told how far a sweep is, by several threads.
pub trait Watch: Sync {
    /// A run has ended, however.
    fn ended(&self, run: &Run);
    /// A run that has ended failed.
    fn failed(&self, run: &Run, failure: &Failure);
}

/// Does the runs `missing` of the plan, which are numbers among its runs. Returns those that failed, by the same numbers.
///
/// # Errors
/// [`Error::Interrupted`] after a signal, [`Error::Start`] if a run cannot be started.
pub fn carry_out(
    plan: &Plan,
    missing: &[usize],
    runner: &Runner<'_>,
    watch: &dyn Watch,
) -> Result<BTreeMap<usize, Failure>, Error> {
    let failed = Mutex::new(BTreeMap::new());
    let jobs = missing.len().min(runner.jobs as usize);
    let waiting = Mutex::new(missing.iter());
    let worker = || -> io::Result<()> {
        loop {
            let next = lock(&waiting).next();
            let Some((&at, run)) = next.and_then(|at| Some((at, plan.runs.get(*at)?))) else { return Ok(()) };
            let failure = match (runner.work)(run)? {
                Done::Stopped => return Ok(()),
                Done::Failed { code, reason } => Some(Failure::Run { code, reason }),
                Done::Finished if run.summary(&plan.index).is_some() => None,
                Done::Finished => Some(Failure::Changed),
            };
            watch.ended(run);
            if let Some(failure) = failure {
                watch.failed(run, &failure);
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
        // By their records: a run may have left its record and not its end.
        let runs = plan.runs.len();
        return Err(Error::Interrupted { done: runs - plan.missing().len(), runs, signal });
    }
    result.map_err(Error::Start)?;
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// No worker leaves a value half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
