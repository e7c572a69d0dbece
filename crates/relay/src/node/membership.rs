//! Which nodes of the overlay are registered in etcd, and so are in the configuration besides what its file says.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};

use ekiden_overlay::member::Member;
use ekiden_registry::{Members, Observer, Registry, RegistryError, Settings};
use tokio::sync::watch;

use crate::config::Config;

/// The configuration as its file says, and the nodes that are registered.
pub struct Membership {
    file: Config,
    registered: Option<Registered>,
}

struct Registered {
    settings: Settings,
    members: watch::Receiver<BTreeMap<String, Member>>,
    /// Ends this node's lease when dropped.
    registry: Registry,
}

impl Membership {
    /// Registers the node, if its configuration says where. etcd may be away.
    ///
    /// # Errors
    /// A file that the configuration names cannot be used.
    pub fn new(file: Config) -> Result<Self, RegistryError> {
        let registered = start(&file)?;
        Ok(Self { file, registered })
    }

    /// Completes when other nodes are registered than before; never if none are.
    pub async fn changed(&mut self) {
        let changed = match &mut self.registered {
            Some(registered) => registered.members.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            std::future::pending().await
        }
    }

    /// Tells how the registration is, if there is one.
    pub fn observer(&self) -> Option<Observer> {
        self.registered.as_ref().map(|registered| registered.registry.observer())
    }

    /// Whether the node could register as another configuration says, if that is otherwise than now.
    ///
    /// # Errors
    /// A file that the configuration names cannot be used.
    pub fn check(&self, file: &Config) -> Result<(), RegistryError> {
        match settings(file) {
            Some(settings) if !self.is_registered_by(Some(settings)) => Registry::check(settings),
            _ => Ok(()),
        }
    }

    fn is_registered_by(&self, settings: Option<&Settings>) -> bool {
        self.registered.as_ref().map(|registered| &registered.settings) == settings
    }

    /// Takes another configuration. The node is registered anew only if it says otherwise where, or what of it is to be seen.
    pub fn change(&mut self, file: Config) {
        if !self.is_registered_by(settings(&file)) {
            // Its lease ends before the next one begins.
            self.registered = None;
            self.registered = start(&file).unwrap_or_else(|error| {
                tracing::error!("this node is not registered in etcd: {error}");
                None
            });
        }
        self.file = file;
    }

    /// Ends this node's lease meanwhile: etcd may be away. The receiver is told when that is over.
    pub fn end(self) -> Receiver<()> {
        let (tell, ended) = channel();
        let end = move || {
            drop(self);
            let _ = tell.send(());
        };
        if let Err(error) = std::thread::Builder::new().name("leave".into()).spawn(end) {
            tracing::warn!("this node's lease goes on until it ends by itself: {error}");
        }
        ended
    }

    /// The configuration with the nodes that are registered.
    pub fn config(&self) -> Config {
        self.of(&self.file)
    }

    /// Another configuration with the same nodes.
    pub fn of(&self, file: &Config) -> Config {
        let Some(registered) = &self.registered else { return file.clone() };
        let members = registered.members.borrow();
        let members = members.iter().map(|(name, member)| (name.as_str(), member));
        let (config, refused) = file.with_members(members);
        for (name, why) in refused {
            tracing::warn!("node '{name}' is registered, and is not taken: {why}");
        }
        config
    }
}

/// Whether the files can be used that a registration needs.
pub fn check(config: &Config) -> Result<(), RegistryError> {
    settings(config).map_or(Ok(()), Registry::check)
}

fn settings(config: &Config) -> Option<&Settings> {
    config.overlay.as_ref().and_then(|overlay| overlay.etcd.as_deref())
}

fn start(config: &Config) -> Result<Option<Registered>, RegistryError> {
    let Some(settings) = settings(config).cloned() else { return Ok(None) };
    let (tell, members) = watch::channel(BTreeMap::new());
    let changed = move |all: &Members| {
        let all: BTreeMap<String, Member> =
            all.iter().map(|(name, listed)| (name.clone(), listed.member.clone())).collect();
        tell.send_if_modified(|before| {
            let is_other = *before != all;
            *before = all;
            is_other
        });
    };
    let registry = Registry::start(settings.clone(), changed)?;
    Ok(Some(Registered { settings, members, registry }))
}
