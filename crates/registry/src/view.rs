//! What etcd holds of an overlay, and which members follow from it, without I/O.
//!
//! A node is a member if the operator has admitted it and it is registered with the same key.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ekiden_overlay::member::Member;

use crate::admission::Admission;
use crate::gateway::{Event, EventKind, KeyValue};
use crate::keys::{Keys, RegistryKey};
use crate::record::{Load, Record};

/// The most keys of an overlay that are held: two for each of 1,000 nodes, and a few.
pub const KEYS_MOST: usize = 2016;

/// After etcd was away for longer than a lease, a member that is missing stays for this long: it may be on its way back too.
pub const RETURN_WITHIN: Duration = Duration::from_secs(7);

/// The members of an overlay by name: those that are admitted and registered with one key. This node is among them once it is
/// registered.
pub type Members = BTreeMap<String, Listed>;

/// Who belongs to an overlay.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Roster {
    /// Those that are there.
    pub members: Members,
    /// Those that are admitted and are not there.
    pub absent: BTreeMap<String, Admission>,
}

/// A member: where it is by its own word, everything else by the operator's.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The node.
    pub member: Member,
    /// How much of what it can carry it carries.
    pub load: Load,
}

/// What etcd holds below an overlay's prefix, as far as it is known.
pub struct View {
    keys: Keys,
    found: BTreeMap<Vec<u8>, Found>,
    /// Records that were missing when etcd came back, and until when they count.
    leaving: BTreeMap<String, (Record, Instant)>,
    /// What nodes were admitted with whose admission can no longer be read, or was lost with all others.
    last_good: BTreeMap<String, LastGood>,
}

/// What a node was last admitted with.
struct LastGood {
    admission: Admission,
    /// It went together with all others: etcd has lost them. An operator expels one node after the other.
    is_lost: bool,
}

/// A key's content.
struct Found {
    mod_revision: u64,
    content: Content,
}

enum Content {
    /// An admission, or why it is none.
    Admitted(Result<Admission, String>),
    /// A record, or why it is none.
    Node(Result<Record, String>),
    Other,
}

/// The keys of one complete reading, put together from its pages.
#[derive(Default)]
pub struct Reading(BTreeMap<Vec<u8>, Found>);

impl Reading {
    /// Takes what a page holds. Nothing of it is kept that is too long.
    pub fn take(&mut self, keys: &Keys, page: Vec<KeyValue>) {
        self.0.extend(page.into_iter().map(|kv| found(keys, kv)));
    }
}

impl View {
    /// Nothing is known yet.
    pub fn new(keys: Keys) -> Self {
        Self { keys, found: BTreeMap::new(), leaving: BTreeMap::new(), last_good: BTreeMap::new() }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Begins with these members, and these that are admitted and absent.
    pub fn remember(&mut self, members: BTreeMap<String, Member>, absent: BTreeMap<String, Admission>) {
        for (name, member) in members {
            self.found_before(self.keys.admitted(&name), Content::Admitted(Ok(Admission::from(&member))));
            let record = Record::new(String::new(), member.address, member.fingerprint, Load::default());
            self.found_before(self.keys.node(&name), Content::Node(Ok(record)));
        }
        for (name, admission) in absent {
            self.found_before(self.keys.admitted(&name), Content::Admitted(Ok(admission)));
        }
    }

    fn found_before(&mut self, key: String, content: Content) {
        self.found.insert(key.into_bytes(), Found { mod_revision: 0, content });
    }

    /// Takes over a complete reading. Records that it lacks stay for `keep` from `now`; their admission must still be there.
    pub fn replace(&mut self, reading: Reading, now: Instant, keep: Option<Duration>) {
        let before = std::mem::replace(&mut self.found, reading.0);
        let is_lost = self.has_no_admission();
        if !is_lost {
            // Who was expelled meanwhile is near to nothing.
            let (found, keys) = (&self.found, &self.keys);
            self.last_good.retain(|name, last| last.is_lost || found.contains_key(keys.admitted(name).as_bytes()));
        }
        for (key, found) in &before {
            let is_unreadable = |now: &Found| matches!(now.content, Content::Admitted(Err(_)));
            if let Content::Admitted(Ok(admission)) = &found.content
                && (is_lost || self.found.get(key).is_some_and(is_unreadable))
                && let Some(RegistryKey::Admitted(name)) = place(&self.keys, key)
            {
                self.last_good.insert(name.to_owned(), LastGood { admission: admission.clone(), is_lost });
            }
        }
        for (key, found) in &self.found {
            if let (Content::Admitted(Ok(_)), Some(RegistryKey::Admitted(name))) =
                (&found.content, place(&self.keys, key))
            {
                self.last_good.remove(name);
            }
        }
        let Some(keep) = keep else { return self.leaving.clear() };
        for (key, found) in before {
            let Content::Node(Ok(record)) = found.content else { continue };
            let Some(RegistryKey::Node(name)) = place(&self.keys, &key) else { continue };
            if !self.found.contains_key(&key) {
                self.leaving.entry(name.to_owned()).or_insert((record, now + keep));
            }
        }
    }

    /// Takes over changes that etcd tells together. If they leave no admission at all, all are lost.
    pub fn apply_all(&mut self, events: Vec<Event>) {
        let before = match events.iter().any(|event| event.kind == EventKind::Delete) {
            true => self.admissions(),
            false => Vec::new(),
        };
        events.into_iter().for_each(|event| self.apply(event));
        if self.has_no_admission() {
            let lost = before.into_iter().map(|(name, admission)| (name, LastGood { admission, is_lost: true }));
            self.last_good.extend(lost);
        }
    }

    fn has_no_admission(&self) -> bool {
        !self.found.values().any(|found| matches!(found.content, Content::Admitted(_)))
    }

    /// All that can be read.
    fn admissions(&self) -> Vec<(String, Admission)> {
        let admitted = |(key, found): (&Vec<u8>, &Found)| match (place(&self.keys, key), &found.content) {
            (Some(RegistryKey::Admitted(name)), Content::Admitted(Ok(admission))) => {
                Some((name.to_owned(), admission.clone()))
            }
            _ => None,
        };
        self.found.iter().filter_map(admitted).collect()
    }

    /// Takes over a change. One that is older than what is known of its key is not taken.
    pub fn apply(&mut self, event: Event) {
        let known = self.found.get(&event.kv.key).map_or(0, |found| found.mod_revision);
        if event.kv.mod_revision < known {
            return;
        }
        if let Some(RegistryKey::Node(name)) = place(&self.keys, &event.kv.key) {
            self.leaving.remove(name);
        }
        let before = self.found.remove(&event.kv.key);
        let (key, now) = match event.kind {
            EventKind::Put => {
                let (key, found) = found(&self.keys, event.kv);
                (key, Some(found))
            }
            EventKind::Delete => (event.kv.key, None),
        };
        if let Some(RegistryKey::Admitted(name)) = place(&self.keys, &key) {
            match (before.map(|found| found.content), now.as_ref().map(|found| &found.content)) {
                (Some(Content::Admitted(Ok(admission))), Some(Content::Admitted(Err(_)))) => {
                    self.last_good.insert(name.to_owned(), LastGood { admission, is_lost: false });
                }
                (_, Some(Content::Admitted(Err(_)))) => {}
                _ => drop(self.last_good.remove(name)),
            }
        }
        self.found.extend(now.map(|now| (key, now)));
    }

    /// Lets go of those that have not come back by `now`.
    pub fn let_go(&mut self, now: Instant) {
        self.leaving.retain(|_, (_, until)| *until > now);
    }

    /// When [`View::let_go`] has something to do.
    pub fn next_departure(&self) -> Option<Instant> {
        self.leaving.values().map(|(_, until)| *until).min()
    }

    /// The revision of a node's admission, and what it says.
    pub fn admitted(&self, node: &str) -> Option<(u64, &Admission)> {
        let found = self.found.get(self.keys.admitted(node).as_bytes())?;
        match &found.content {
            Content::Admitted(Ok(admission)) => Some((found.mod_revision, admission)),
            _ => None,
        }
    }

    /// The revision of what is registered for `node`, and the record if it is one.
    pub fn node(&self, node: &str) -> Option<(u64, Option<&Record>)> {
        let found = self.found.get(self.keys.node(node).as_bytes())?;
        let Content::Node(record) = &found.content else { return None };
        Some((found.mod_revision, record.as_ref().ok()))
    }

    /// Who belongs to the overlay, and why other nodes are no members. Those of `noisy` are none, for these reasons.
    pub fn roster<'a>(&self, noisy: impl IntoIterator<Item = (&'a str, String)>) -> (Roster, BTreeMap<String, String>) {
        let (mut admitted, mut records) = (BTreeMap::new(), BTreeMap::new());
        let noisy = noisy.into_iter().map(|(name, reason)| (name.to_owned(), reason));
        let mut ignored: BTreeMap<String, String> = noisy.collect();
        for (name, (record, _)) in &self.leaving {
            records.insert(name.as_str(), record);
        }
        for (key, found) in &self.found {
            let Some(RegistryKey::Admitted(name) | RegistryKey::Node(name)) = place(&self.keys, key) else { continue };
            let is_ignored = ignored.contains_key(name);
            match &found.content {
                Content::Node(_) if is_ignored => drop(records.remove(name)),
                Content::Admitted(Ok(admission)) => drop(admitted.insert(name, admission)),
                Content::Node(Ok(record)) => drop(records.insert(name, record)),
                Content::Admitted(Err(reason)) | Content::Node(Err(reason)) => {
                    ignored.insert(name.to_owned(), reason.clone());
                }
                Content::Other => {}
            }
        }
        // Of two with one key, neither can be told from the other: neither is a member.
        let mut holders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, record) in &records {
            if admitted.get(name).is_some_and(|admission| admission.fingerprint == record.fingerprint) {
                holders.entry(&record.fingerprint).or_default().push(name);
            }
        }
        let mut members = Members::new();
        for (name, record) in &records {
            let own = &record.fingerprint;
            let reason = match (admitted.get(name), holders.get(own.as_str()).map_or(&[][..], Vec::as_slice)) {
                (Some(admission), [_]) if admission.fingerprint == *own => {
                    let listed = Listed { member: admission.member(&record.address), load: record.load };
                    members.insert((*name).to_owned(), listed);
                    continue;
                }
                (Some(admission), several) if admission.fingerprint == *own => {
                    format!("two nodes with one key: {} have {own}", several.join(", "))
                }
                (Some(admission), _) => {
                    format!("it is registered with the key {own}, but admitted with {}", admission.fingerprint)
                }
                (None, _) => "it is registered, but not admitted".to_owned(),
            };
            ignored.entry((*name).to_owned()).or_insert(reason);
        }
        let is_absent = |(name, _): &(&str, &Admission)| !members.contains_key(*name);
        // Where traffic may go is what was last known of them: it does not leave from elsewhere meanwhile.
        let last_good = self.last_good.iter().map(|(name, of)| (name.as_str(), &of.admission));
        let absent =
            last_good.chain(admitted).filter(is_absent).map(|(name, of)| (name.to_owned(), of.clone())).collect();
        (Roster { members, absent }, ignored)
    }
}

/// What a key is for; `None` if it is not even text.
fn place<'a>(keys: &Keys, key: &'a [u8]) -> Option<RegistryKey<'a>> {
    std::str::from_utf8(key).ok().map(|key| keys.place(key))
}

fn found(keys: &Keys, kv: KeyValue) -> (Vec<u8>, Found) {
    let content = match place(keys, &kv.key).unwrap_or(RegistryKey::Other) {
        RegistryKey::Admitted(_) => Content::Admitted(Admission::parse(&kv.value)),
        RegistryKey::Node(_) => Content::Node(Record::parse(&kv.value).and_then(|record| match kv.lease {
            0 => Err("its record is under no lease, and would stay when the node has gone".into()),
            _ => Ok(record),
        })),
        RegistryKey::Id | RegistryKey::Other => Content::Other,
    };
    (kv.key, Found { mod_revision: kv.mod_revision, content })
}

#[cfg(test)]
mod tests;
