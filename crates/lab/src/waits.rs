//! How long programs waited for a processor while a run went on.
//!
//! The emulation has precedence over other programs, and the nodes' programs have not: beside other work they wait, and the
//! emulation is never late.

use std::collections::BTreeMap;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_net::schedule::waited;

/// The state at the beginning of a run.
#[derive(Default)]
pub(crate) struct Waits(Mutex<Option<(Instant, BTreeMap<u32, Duration>)>>);

impl Waits {
    /// The run begins.
    pub fn begin(&self, programs: &[Child]) {
        let of = |program: &Child| Some((program.id(), waited(program.id())?));
        *self.lock() = Some((Instant::now(), programs.iter().filter_map(of).collect()));
    }

    /// What is locked is plain data: valid even if a thread panicked while it held it.
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, BTreeMap<u32, Duration>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The greatest part of the time since then that a program waited, in percent.
    pub fn percent(&self, programs: &[Child]) -> Option<f64> {
        let state = self.lock();
        let (began, before) = state.as_ref()?;
        let of = |program: &Child| Some(waited(program.id())?.saturating_sub(*before.get(&program.id())?));
        Some(percent(programs.iter().filter_map(of).max()?, began.elapsed()))
    }
}

/// The part of the time since `began` that a process, which began then, waited for a processor, in percent. `None` if it is gone, or
/// the kernel does not say.
pub fn process_waited_percent(process: u32, began: Instant) -> Option<f64> {
    Some(percent(waited(process)?, began.elapsed()))
}

/// The part of a time that was waited, in percent.
pub(crate) fn percent(waited: Duration, of: Duration) -> f64 {
    100.0 * waited.as_secs_f64() / of.as_secs_f64().max(1e-9)
}
