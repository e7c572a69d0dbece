//! Which nodes of the overlay are registered in etcd, and so are in the configuration besides what its file says.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ekiden_registry::{Load, Observer, Registry, RegistryError, Roster, Settings};
use tokio::sync::watch;

use crate::config::Config;

/// The maximum number of log lines within [`LINES_WITHIN`] that say which nodes are registered: nodes may come and go as often as
/// they like.
const LINES_MOST: u32 = 10;
/// The period of [`LINES_MOST`].
const LINES_WITHIN: Duration = Duration::from_secs(10);

/// The configuration as its file says, and the nodes that are registered.
pub struct Membership {
    file: Config,
    registered: Option<Registered>,
    said: RefCell<Said>,
}

/// What the log says of the nodes.
#[derive(Default)]
struct Said {
    names: String,
    refused: BTreeMap<String, String>,
    /// When the lines began to be counted, and how many there were since.
    lines: Option<(Instant, u32)>,
}

struct Registered {
    settings: Settings,
    /// What etcd says of them; `None`: nothing yet.
    roster: watch::Receiver<Option<Roster>>,
    /// Ends this node's lease when dropped.
    registry: Registry,
}

impl Membership {
    /// Registers the node, if its configuration says where. etcd may be away.
    ///
    /// # Errors
    /// A file that the configuration names cannot be used.
    pub fn new(file: Config) -> Result<Self, RegistryError> {
        let registered = start(&file, None)?;
        Ok(Self { file, registered, said: RefCell::default() })
    }

    /// Completes when the set of registered nodes has changed; never, if this node is not registered.
    pub async fn changed(&mut self) {
        let changed = match &mut self.registered {
            Some(registered) => registered.roster.changed().await.is_ok(),
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

    /// Whether the node could register under another configuration, if that one says something else than the present one.
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

    /// Takes another configuration. The node registers anew only if where it registers, or what others see of it, has
    /// changed.
    pub fn change(&mut self, file: Config) {
        if !self.is_registered_by(settings(&file)) {
            // In the same overlay the known nodes stay known until etcd says otherwise.
            let overlay = |settings: &Settings| (settings.overlay.clone(), settings.expected_id);
            let is_same = |before: &&Registered| settings(&file).map(overlay) == Some(overlay(&before.settings));
            let known = self.registered.as_ref().filter(is_same).and_then(|before| before.roster.borrow().clone());
            // Its lease ends before the next one begins.
            self.registered = None;
            self.registered = start(&file, known).unwrap_or_else(|error| {
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
        let roster = registered.roster.borrow();
        let Some(roster) = &*roster else { return file.clone() };
        let (config, refused) = file.with_members(roster);
        let mut said = self.said.borrow_mut();
        for (name, why) in &refused {
            if said.refused.get(name) != Some(why) && said.may_say() {
                tracing::warn!("node '{name}' is registered, and is not taken: {why}");
            }
        }
        said.refused = refused;
        config
    }

    /// Says which nodes there are, if they are others than before.
    pub fn say(&self, config: &Config) {
        let names = config.overlay.iter().flat_map(|overlay| overlay.members.keys());
        let names = names.map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut said = self.said.borrow_mut();
        if said.names != names && said.may_say() {
            tracing::info!("nodes of the overlay: {names}");
            said.names = names;
        }
    }
}

impl Said {
    /// Whether there may be another line. The last one says so.
    fn may_say(&mut self) -> bool {
        let now = Instant::now();
        let (_, count) = match &mut self.lines {
            Some(lines) if now.saturating_duration_since(lines.0) < LINES_WITHIN => lines,
            lines => lines.insert((now, 0)),
        };
        *count += 1;
        if *count == LINES_MOST {
            tracing::warn!(
                "nodes of the overlay come and go, or are others, again and again: more of that is not said within {LINES_WITHIN:?}"
            );
        }
        *count < LINES_MOST
    }
}

/// Whether the files can be used that a registration needs.
pub fn check(config: &Config) -> Result<(), RegistryError> {
    settings(config).map_or(Ok(()), Registry::check)
}

fn settings(config: &Config) -> Option<&Settings> {
    config.overlay.as_ref().and_then(|overlay| overlay.etcd.as_deref())
}

/// `known` are those that this process knows to belong to the overlay.
fn start(config: &Config, known: Option<Roster>) -> Result<Option<Registered>, RegistryError> {
    let Some(settings) = settings(config).cloned() else { return Ok(None) };
    let (tell, received) = watch::channel(known.clone());
    let changed = move |roster: &Roster| {
        let mut roster = roster.clone();
        // Loads are no part of a configuration.
        roster.members.values_mut().for_each(|listed| listed.load = Load::default());
        tell.send_if_modified(|before| {
            let is_other = before.as_ref() != Some(&roster);
            *before = Some(roster);
            is_other
        });
    };
    let registry = Registry::start_knowing(known, settings.clone(), changed)?;
    Ok(Some(Registered { settings, roster: received, registry }))
}
