//! Service classes: what streams are for, and what they get of a leg that they share with others.

use std::time::Duration;

use ekiden_overlay::path::Class;
use ekiden_queue::{Order, Service};
use indexmap::IndexMap;

/// The class of streams of which nothing is said.
pub const BULK: &str = "bulk";
/// The class of streams with short answers, where nothing else is said of it.
pub const INTERACTIVE: &str = "interactive";

/// All classes by name: the two that there always are, and those of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Classes {
    classes: IndexMap<String, ServiceClass>,
    /// Whether the file says anything of classes.
    pub is_configured: bool,
}

/// One `[class.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceClass {
    /// What paths are chosen for.
    pub kind: Class,
    /// What its streams get of a leg.
    pub service: Service,
    /// The users whose streams are of it.
    pub users: Vec<String>,
    /// How many of its streams this node opens over one leg at a time.
    pub streams: Option<u32>,
    /// How long a stream waits for its turn.
    pub wait: Duration,
}

impl Default for Classes {
    fn default() -> Self {
        Self::of(IndexMap::new(), Duration::from_secs(10))
    }
}

impl Classes {
    /// Those of the file, and the two others, whose streams wait as long.
    pub(super) fn of(written: IndexMap<String, ServiceClass>, wait: Duration) -> Self {
        let service = Service { weight: 1, ceiling: None, floor: None, order: Order::Even };
        let plain = |kind| ServiceClass { kind, service, users: Vec::new(), streams: None, wait };
        let is_configured = !written.is_empty();
        let mut classes =
            IndexMap::from([(BULK.into(), plain(Class::Bulk)), (INTERACTIVE.into(), plain(Class::Interactive))]);
        classes.extend(written);
        Self { classes, is_configured }
    }

    /// Those of the file, and the two others.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ServiceClass)> {
        self.classes.iter().map(|(name, class)| (name.as_str(), class))
    }

    /// Whether there is a class of this name.
    pub fn has(&self, name: &str) -> bool {
        self.classes.contains_key(name)
    }

    /// The class of this name, or, where there is none, `bulk`; and its place among all.
    pub fn get(&self, name: &str) -> (usize, &ServiceClass) {
        let place = self.classes.get_index_of(name).unwrap_or(0);
        (place, &self.classes[place])
    }

    /// The name of a class by its place.
    pub fn name(&self, place: usize) -> &str {
        self.classes.get_index(place).map_or(BULK, |(name, _)| name)
    }

    /// What each gets of a leg, by its place.
    pub fn services(&self) -> Vec<Service> {
        self.classes.values().map(|class| class.service).collect()
    }

    /// The class that has this user.
    pub fn of_user(&self, user: &str) -> Option<&str> {
        let found = self.classes.iter().find(|(_, class)| class.users.iter().any(|name| name == user));
        found.map(|(name, _)| name.as_str())
    }
}
