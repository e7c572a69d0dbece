//! What a running monitor says of itself, and how it is asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ekiden_service::process::{Kind, Process};
use serde::{Deserialize, Serialize};

use crate::config::{Config, Target};
use crate::measurement::{Failure, Measured};

/// Those that run.
pub const MONITORS: Kind = Kind { word: "monitor", called: "monitor" };

/// A running monitor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MonitorStatus {
    /// Its process.
    #[serde(flatten)]
    pub process: Process,
    /// The file of its history.
    pub history: String,
    /// The target that is being measured.
    pub measures: Option<String>,
    /// In how many seconds the next round begins; absent while one is under way.
    pub next_s: Option<u64>,
    /// Measurements that wait in memory until the history can be written.
    pub waiting: u64,
    /// The targets.
    pub targets: Vec<TargetStatus>,
}

/// A target and its last measurement since the monitor has started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetStatus {
    /// Its name.
    pub name: String,
    /// The server.
    pub server: String,
    /// When the measurement began, in milliseconds since 1970 (UTC); absent before the first one.
    pub started_unix_ms: Option<u64>,
    /// Throughput at the receiver, in bit/s.
    pub received_bit_s: Option<u64>,
    /// Why it gave nothing.
    pub failure: Option<String>,
}

/// What a monitor is seen to do.
#[derive(Debug)]
pub struct Seen {
    began: Instant,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    status: MonitorStatus,
    /// When the next round begins.
    next: Option<Instant>,
}

impl Seen {
    pub(crate) fn new(config: &Config) -> Self {
        let seen =
            Self { began: Instant::now(), now: Mutex::new(Now { status: MonitorStatus::default(), next: None }) };
        seen.takes(&[], config);
        seen
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another configuration is in force. Targets that were there `before` keep what they gave.
    pub(crate) fn takes(&self, before: &[Target], config: &Config) {
        let mut now = self.now();
        let told = std::mem::take(&mut now.status.targets);
        let last = |target: &Target| {
            let of = before.iter().position(|other| other == target)?;
            told.get(of).cloned()
        };
        let fresh = |target: &Target| TargetStatus {
            name: target.name.clone(),
            server: target.server.to_string(),
            ..TargetStatus::default()
        };
        now.status.targets =
            config.targets.iter().map(|target| last(target).unwrap_or_else(|| fresh(target))).collect();
        now.status.history = config.history.display().to_string();
    }

    pub(crate) fn waits_until(&self, next: Instant) {
        let mut now = self.now();
        now.next = Some(next);
        now.status.measures = None;
    }

    pub(crate) fn measures(&self, target: &str) {
        let mut now = self.now();
        now.next = None;
        now.status.measures = Some(target.into());
    }

    pub(crate) fn has_measured(&self, target: &str, started_unix_ms: u64, result: &Result<Measured, Failure>) {
        if let Some(target) = self.now().status.targets.iter_mut().find(|one| one.name == target) {
            target.started_unix_ms = Some(started_unix_ms);
            target.received_bit_s = result.as_ref().ok().map(|measured| measured.received_bit_s);
            target.failure = result.as_ref().err().map(ToString::to_string);
        }
    }

    pub(crate) fn are_unwritten(&self, number: usize) {
        self.now().status.waiting = number as u64;
    }

    /// What it tells.
    pub fn status(&self) -> MonitorStatus {
        let now = self.now();
        let next_s = now.next.map(|next| next.saturating_duration_since(Instant::now()).as_secs());
        MonitorStatus { process: Process::since(self.began), next_s, ..now.status.clone() }
    }
}

/// Answers those who ask until the process ends. To be called within its event loop.
pub fn answer(seen: Arc<Seen>) {
    MONITORS.answer(move || seen.status());
}
