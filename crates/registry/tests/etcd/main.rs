//! A registry beside real etcd, through all that can happen to it.

mod cluster;
mod node;
mod proxy;

mod absence;
mod hostile;
mod refusals;
mod running;

use std::time::{Duration, Instant};

/// Until `is_so`. Panics after `most`.
#[track_caller]
fn wait(what: &str, most: Duration, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < most, "waited {most:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
