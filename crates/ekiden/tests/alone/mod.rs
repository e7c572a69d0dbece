//! The names and traces of congestion controls are the machine's: tests that use them wait for each other, also in other runs.

use std::fs::File;

use nix::fcntl::{Flock, FlockArg};

/// Until it is dropped, no other test has it.
pub fn alone() -> Option<Flock<File>> {
    let file = File::create(std::env::temp_dir().join("ekiden-kernel-tests.lock")).ok()?;
    Flock::lock(file, FlockArg::LockExclusive).ok()
}
