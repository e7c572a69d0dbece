//! What every running program says of itself, and asking those that are known by the number of their process.

use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

use crate::status::{StatusError, Whose, ask};
use crate::status_socket;

/// A running program. The first fields of each program's status.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// The release that it is of.
    pub version: String,
    /// Its number.
    pub pid: u32,
    /// For how many seconds it has run.
    pub running_s: u64,
}

impl Process {
    /// This one, which has begun then.
    pub fn since(began: Instant) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            running_s: began.elapsed().as_secs(),
        }
    }
}

/// Programs of one kind that are asked by the number of their process: several of one name may run.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The word in the names of their sockets, such as `proxy`.
    pub word: &'static str,
    /// What one is called, such as `node`.
    pub called: &'static str,
}

impl Kind {
    fn socket(self, process: &str) -> String {
        format!("ekiden/{}/{process}", self.word)
    }

    /// Answers with this status until the process ends. To be called within its event loop. A program that cannot be asked goes on all the
    /// same.
    pub fn answer<T: Serialize>(self, status: impl Fn() -> T + Send + 'static) {
        let status = move || serde_json::to_vec(&status()).unwrap_or_default();
        let listener = status_socket::listen(&self.socket(&std::process::id().to_string()));
        match listener.and_then(UnixListener::from_std) {
            Ok(listener) => {
                tokio::spawn(status_socket::answer_all(listener, status, |why| tracing::debug!("{why}")));
            }
            Err(error) => tracing::warn!("`ekiden status` will not find this {}: {error}", self.called),
        }
    }

    /// Those of this network namespace that can be asked.
    pub fn processes(self) -> Vec<u32> {
        let names = status_socket::names(&self.socket("")).unwrap_or_default();
        names.iter().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Asks the one of this process.
    ///
    /// # Errors
    /// If there is none, or it does not answer.
    pub fn ask<T: DeserializeOwned>(self, pid: u32) -> Result<T, StatusError> {
        let nobody = |pid: &str| format!("process {pid} is no {} that runs here", self.called);
        ask(
            &self.socket(&pid.to_string()),
            Whose { kind: format!("{} of process", self.called), name: pid.to_string() },
            nobody,
        )
    }
}
