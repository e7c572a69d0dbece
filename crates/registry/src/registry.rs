//! A node's place in the registry: started, asked, stopped.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::client::Client;
use crate::error::RegistryError;
use crate::inbox::{Input, WAITING_MOST};
use crate::keeper::Keeper;
use crate::record::Load;
use crate::settings::{Settings, wrong};
use crate::status::{MembershipStatus, Shared};
use crate::view::Roster;

/// Registers this node and watches the others, on threads of its own, until it is stopped or dropped.
#[derive(Debug)]
pub struct Registry {
    shared: Arc<Mutex<Shared>>,
    inbox: SyncSender<Input>,
    keeper: Option<JoinHandle<()>>,
}

/// Tells how a node's place in the registry is, for as long as somebody holds this.
#[derive(Debug, Clone)]
pub struct Observer(Arc<Mutex<Shared>>);

impl Observer {
    /// How it goes now.
    pub fn status(&self) -> MembershipStatus {
        lock(&self.0).status(Instant::now())
    }
}

impl Registry {
    /// Whether [`Registry::start`] could start. Nothing is sent for this.
    ///
    /// # Errors
    /// If a setting is wrong, or a file cannot be used.
    pub fn check(settings: &Settings) -> Result<(), RegistryError> {
        settings.check()?;
        Client::new(&settings.access).map(drop)
    }

    /// Starts. `on_change` is called with all that belong to the overlay once they are known, and then whenever they are others than
    /// before, or one's load is, at most twice a second; on the registry's own thread, which waits for it. etcd may be away: then it is tried until it is there.
    ///
    /// # Errors
    /// If a setting is wrong, a file cannot be used, or there is no thread to be had.
    pub fn start(settings: Settings, on_change: impl FnMut(&Roster) + Send + 'static) -> Result<Self, RegistryError> {
        Self::start_knowing(None, settings, on_change)
    }

    /// The same, where this process knows already who belonged to the overlay: what those that were away, or whose admission could not be
    /// read, were near to stays theirs.
    ///
    /// # Errors
    /// As [`Registry::start`].
    pub fn start_knowing(
        before: Option<Roster>,
        settings: Settings,
        on_change: impl FnMut(&Roster) + Send + 'static,
    ) -> Result<Self, RegistryError> {
        settings.check()?;
        let client = Client::new(&settings.access)?;
        let shared = Arc::new(Mutex::new(Shared::new(Instant::now())));
        let (inbox, received) = sync_channel(WAITING_MOST);
        let mut keeper = Keeper::new(settings, client, shared.clone(), (inbox.clone(), received), Box::new(on_change))?;
        if let Some(before) = before {
            keeper.knows(before);
        }
        let run = thread::Builder::new().name("registry".into()).spawn(move || keeper.run());
        let keeper = run.map_err(|error| wrong("threads", error.to_string()))?;
        Ok(Self { shared, inbox, keeper: Some(keeper) })
    }

    /// What others shall see as this node's load. Written within a third of the lease, if it has changed by 0.05 or more.
    pub fn set_load(&self, load: Load) {
        lock(&self.shared).load = load;
    }

    /// How it goes now.
    pub fn status(&self) -> MembershipStatus {
        self.observer().status()
    }

    /// Tells the same apart from this.
    pub fn observer(&self) -> Observer {
        Observer(self.shared.clone())
    }

    /// Ends the lease, so that others see this node go at once, and waits until all is over: at most a few times
    /// [`Access::timeout`](crate::Access::timeout).
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Both fail only if the keeper is gone already.
        let _ = self.inbox.send(Input::Stop);
        let _ = self.keeper.take().map(JoinHandle::join);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
