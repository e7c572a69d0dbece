//! Turns: how many streams of a service class that begin at this node are open over one leg at a time. More wait in their order.
//!
//! Streams that come from other nodes take no turn: nodes could wait for each other in a circle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ekiden_relay_proto::{Failure, FailureCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::config::Config;

/// A stream's turn, until it is dropped.
pub type Turn = Option<OwnedSemaphorePermit>;

/// The turns of all legs: by the node at the other end and the class's name.
#[derive(Debug, Default)]
pub struct Turns(Mutex<BTreeMap<(String, String), Turned>>);

#[derive(Debug)]
struct Turned {
    most: u32,
    free: Arc<Semaphore>,
}

impl Turns {
    /// Waits until a stream of this class may be opened over the leg to `peer`.
    ///
    /// # Errors
    /// It has waited for as long as the class says.
    pub async fn take(&self, config: &Config, peer: &str, name: &str) -> Result<Turn, Failure> {
        let (_, settings) = config.classes.get(name);
        let Some(most) = settings.streams else { return Ok(None) };
        let free = self.of(peer, name, most);
        match timeout(settings.wait, free.acquire_owned()).await {
            Ok(Ok(turn)) => Ok(Some(turn)),
            // It is never closed.
            Ok(Err(_)) => Ok(None),
            Err(_) => {
                let text = format_args!(
                    "node {} has {most} streams of the class {name} to node {peer}, and none ended within {:?}",
                    config.name, settings.wait
                );
                Err(Failure::new(FailureCode::Overloaded, text))
            }
        }
    }

    fn of(&self, peer: &str, class: &str, most: u32) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Turned { most, free: Arc::new(Semaphore::new(most as usize)) };
        let turned = all.entry((peer.into(), class.into())).or_insert_with(fresh);
        if turned.most != most {
            // The configuration has changed. Streams that are open count for the limit before.
            *turned = fresh();
        }
        turned.free.clone()
    }
}
