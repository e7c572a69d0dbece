//! The state of the thread that keeps a node's membership: what it reports, and what it is told.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error::RegistryError;
use crate::record::Load;
use crate::settings::OverlayId;

/// How it goes.
#[derive(Debug, Clone, PartialEq)]
pub struct MembershipStatus {
    /// The member of etcd in use; none while etcd is away.
    pub endpoint: Option<String>,
    /// How long `endpoint` has been so.
    pub since: Duration,
    /// The overlay's id, once it is known. To be set as `expected_id`.
    pub overlay_id: Option<OverlayId>,
    /// Up to which revision of etcd's store the members are known.
    pub revision: u64,
    /// Whether this node is registered.
    pub registered: bool,
    /// What is wrong now, if anything.
    pub problem: Option<RegistryError>,
    /// How many members are known.
    pub members: usize,
    /// How old the members are while they are those of [`Settings::members_cache`](crate::Settings::members_cache), by the wall clock.
    pub from_file: Option<Duration>,
    /// Nodes that are admitted or registered and are no members, with the reason.
    pub ignored: BTreeMap<String, String>,
}

/// What the keeper and the handle share.
#[derive(Debug)]
pub struct Shared {
    /// To be registered.
    pub load: Load,
    pub endpoint: Option<String>,
    pub since: Instant,
    pub overlay_id: Option<OverlayId>,
    pub revision: u64,
    pub registered: bool,
    pub problem: Option<RegistryError>,
    pub members: usize,
    /// How old the members were when they were read from a file, and when that was.
    pub from_file: Option<(Duration, Instant)>,
    pub ignored: BTreeMap<String, String>,
}

impl Shared {
    /// Nothing is known yet.
    pub fn new(now: Instant) -> Self {
        Self {
            load: Load::default(),
            endpoint: None,
            since: now,
            overlay_id: None,
            revision: 0,
            registered: false,
            problem: None,
            members: 0,
            from_file: None,
            ignored: BTreeMap::new(),
        }
    }

    /// As others are told.
    pub fn status(&self, now: Instant) -> MembershipStatus {
        MembershipStatus {
            endpoint: self.endpoint.clone(),
            since: now.saturating_duration_since(self.since),
            overlay_id: self.overlay_id,
            revision: self.revision,
            registered: self.registered,
            problem: self.problem.clone(),
            members: self.members,
            from_file: self.from_file.map(|(age, read)| age + now.saturating_duration_since(read)),
            ignored: self.ignored.clone(),
        }
    }
}
