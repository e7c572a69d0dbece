//! Warm connections to peers: authenticated, idle, ready for the next stream.
//!
//! One pool for all threads: which thread a client lands on must not decide whether it finds a warm
//! connection. They rest outside of any event loop; whether one is still alive is asked when it is taken.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::{Config, Peer};
use crate::connection::{Connection, Resting};

/// The warm connections of a node.
#[derive(Debug, Default)]
pub struct Pool {
    idle: Mutex<HashMap<String, Warm>>,
}

#[derive(Debug)]
struct Warm {
    peer: Peer,
    connections: Vec<(Resting, Instant)>,
    most: usize,
}

impl Pool {
    /// A pool for the peers of `config`. Connections to peers that have not changed stay.
    pub fn configure(&self, config: &Config) {
        let mut idle = self.lock();
        let mut before = std::mem::take(&mut *idle);
        for (name, peer) in &config.peers {
            let kept = before.remove(name).filter(|warm| warm.peer == *peer);
            let connections = kept.map(|warm| warm.connections).unwrap_or_default();
            idle.insert(name.clone(), Warm { peer: peer.clone(), connections, most: config.limits.pool });
        }
    }

    /// The connection to `peer` that was used last, if one is alive.
    pub fn take(&self, name: &str, peer: &Peer) -> Option<Resting> {
        let mut idle = self.lock();
        let warm = idle.get_mut(name).filter(|warm| warm.peer == *peer)?;
        while let Some((connection, _)) = warm.connections.pop() {
            if connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose stream has ended in both directions.
    pub fn put(&self, name: &str, peer: &Peer, connection: Connection) {
        let Some(connection) = connection.rest() else { return };
        let mut idle = self.lock();
        let Some(warm) = idle.get_mut(name).filter(|warm| warm.peer == *peer) else { return };
        if warm.connections.len() < warm.most {
            warm.connections.push((connection, Instant::now()));
        }
    }

    /// Closes all connections to `peer`: one of them was found dead, and what killed it has probably killed others.
    pub fn forget(&self, name: &str) {
        if let Some(warm) = self.lock().get_mut(name) {
            warm.connections.clear();
        }
    }

    /// Closes what was not used for `age`.
    pub fn expire(&self, age: Duration) {
        for warm in self.lock().values_mut() {
            warm.connections.retain(|(_, since)| since.elapsed() < age);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Warm>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
