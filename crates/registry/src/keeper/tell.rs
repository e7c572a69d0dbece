//! What a keeper tells: the node of its members, its file, its status and the log.

use std::mem::discriminant;
use std::sync::PoisonError;
use std::time::Instant;

use super::Keeper;
use crate::error::RegistryError;
use crate::gateway::{Event, EventKind, Header};
use crate::keys::RegistryKey;

impl Keeper {
    /// Tells the node of its members, if they have changed.
    pub(super) fn publish(&mut self) {
        let (roster, ignored) = self.view.roster(self.noisy.nodes());
        self.shown_at = Some(Instant::now());
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, reason) in &ignored {
            if shared.ignored.get(name) != Some(reason) {
                let line = format!("overlay '{}': node '{name}' is ignored: {reason}", self.settings.overlay);
                self.lines.warn("ignored", name, format_args!("{line}"));
            }
        }
        shared.ignored = ignored;
        shared.members = roster.members.len();
        shared.revision = self.position.map_or(0, |position| position.revision);
        drop(shared);
        if self.shown.as_ref() != Some(&roster) {
            (self.on_change)(self.shown.insert(roster));
        }
        self.write_cache();
    }

    /// Writes what etcd says into the file `members_cache`.
    pub(super) fn write_cache(&mut self) {
        let known = self.position.and(self.lock().overlay_id);
        let (Some(cache), Some(id), Some(shown)) = (&mut self.cache, known, &self.shown) else { return };
        if let Err(why) = cache.keep(id, shown, Instant::now()) {
            self.lines.warn("cache", "", format_args!("overlay '{}': {why}", self.settings.overlay));
        }
    }

    pub(super) fn connected(&mut self, header: Header) {
        let endpoint = self.client.endpoint().to_owned();
        tracing::info!("overlay '{}': etcd at {endpoint}, revision {}", self.settings.overlay, header.revision);
        let mut shared = self.lock();
        (shared.endpoint, shared.since) = (Some(endpoint), Instant::now());
        drop(shared);
        if let Some(position) = &mut self.position {
            position.header = header;
            position.heard = Instant::now();
        }
    }

    pub(super) fn disconnected(&mut self, error: RegistryError) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.endpoint.take().is_some() {
            shared.since = Instant::now();
        }
        // The same of another member of etcd is not said again.
        if shared.problem.as_ref().map(discriminant) != Some(discriminant(&error)) {
            let so = match self.shown {
                None => "no members are known, and streams whose path should be chosen are refused",
                Some(_) => "the last known members stay",
            };
            let line = format!("overlay '{}': {error}; {so}", self.settings.overlay);
            self.lines.warn("away", format_args!("{:?}", discriminant(&error)), format_args!("{line}"));
        }
        shared.problem = Some(error);
        shared.registered = false;
    }

    /// Records whether this node is registered, or why not.
    pub(super) fn record_outcome(&mut self, problem: Option<RegistryError>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(problem) = problem.as_ref().filter(|problem| shared.problem.as_ref() != Some(problem)) {
            let line = format!("overlay '{}': {problem}", self.settings.overlay);
            self.lines.warn("problem", format_args!("{:?}", discriminant(problem)), format_args!("{line}"));
        }
        shared.registered = problem.is_none() && self.lease.is_some();
        shared.revision = self.position.map_or(0, |position| position.revision);
        shared.problem = problem;
    }

    /// Counts what a node writes: one that floods etcd is no member meanwhile.
    pub(super) fn count(&mut self, event: &Event) {
        let key = std::str::from_utf8(&event.kv.key).unwrap_or_default();
        let RegistryKey::Node(name) = self.keys.place(key) else { return };
        if event.kind == EventKind::Put && self.view.admitted(name).is_some() {
            self.noisy.count(name);
        }
    }
}
