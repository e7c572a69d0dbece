//! What a running measuring server says of itself, and how it is asked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ekiden_service::process::{Kind, Process};
use serde::{Deserialize, Serialize};

use super::Server;

/// Those that run.
pub const SERVERS: Kind = Kind { word: "measure", called: "measuring server" };

/// A running measuring server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// Its process.
    #[serde(flatten)]
    pub process: Process,
    /// Where it listens.
    pub address: String,
    /// The client of the measurement under way: its name if it has one, and its address.
    pub client: Option<String>,
    /// For how many seconds that is under way.
    pub client_s: Option<u64>,
    /// Measurements that have ended, failed ones too.
    pub measured: u64,
    /// Connections that have proven nothing yet.
    pub strangers: u64,
}

/// Answers those who ask until the process ends. To be called within its event loop.
pub(super) fn answer(server: Arc<Server>, address: SocketAddr) {
    SERVERS.answer(move || of(&server, address));
}

fn of(server: &Server, address: SocketAddr) -> ServerStatus {
    let current = server.current();
    ServerStatus {
        process: Process::since(server.began),
        address: address.to_string(),
        client: current.as_ref().map(|current| current.client.clone()),
        client_s: current.as_ref().map(|current| current.began.elapsed().as_secs()),
        measured: server.measured.load(Ordering::Relaxed),
        strangers: server.strangers.count() as u64,
    }
}
