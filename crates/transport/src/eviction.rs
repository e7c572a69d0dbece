//! Connections that are closed to make room for others: the oldest one of the owner that has most of them goes first.
//!
//! A newcomer always gets in. So a client that must connect again can do so, however many connections others hold, and
//! however old they are.
//!
//! Relay, tunnel and measuring server use it to bound connections whose other end has not proven its identity; the relay
//! also for idle nodes and long HTTP heads.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The maximum number of connections in a table. Both numbers count as 1 at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// In all.
    pub all: usize,
    /// Of one owner.
    pub of_owner: usize,
}

/// Connections that may be evicted, by their owners. The threads of a process may share it.
#[derive(Debug)]
pub struct EvictionTable<K>(Mutex<Rows<K>>);

/// A connection in the table, until it is dropped or evicted.
#[derive(Debug)]
pub struct Evictable<K: Ord + Clone> {
    table: Arc<EvictionTable<K>>,
    owner: K,
    number: u64,
    evicted: Arc<Notify>,
}

#[derive(Debug)]
struct Rows<K> {
    /// The number of the next connection.
    next: u64,
    all: usize,
    /// The arrival of each, the oldest first.
    ages: BTreeMap<u64, Instant>,
    /// The connections of each owner, the oldest first.
    owners: BTreeMap<K, BTreeMap<u64, Arc<Notify>>>,
    /// The last one is the owner that has most; among equals, the one with the older oldest connection.
    order: BTreeSet<(usize, Reverse<u64>, K)>,
}

impl<K> Default for EvictionTable<K> {
    fn default() -> Self {
        Self(Mutex::new(Rows {
            next: 0,
            all: 0,
            ages: BTreeMap::new(),
            owners: BTreeMap::new(),
            order: BTreeSet::new(),
        }))
    }
}

impl<K: Ord + Clone> EvictionTable<K> {
    /// Adds a connection of `owner`. If that exceeds `bounds`, the oldest one goes: of `owner`, or of the owner that has
    /// most.
    pub fn add(self: &Arc<Self>, owner: K, bounds: Bounds) -> Evictable<K> {
        let evicted = Arc::new(Notify::new());
        let mut rows = self.lock();
        while rows.owners.get(&owner).map_or(0, BTreeMap::len) >= bounds.of_owner.max(1) {
            rows.evict(&owner);
        }
        while rows.all >= bounds.all.max(1)
            && let Some((.., most)) = rows.order.last().cloned()
        {
            rows.evict(&most);
        }
        let number = rows.next;
        rows.next += 1;
        rows.insert(&owner, number, evicted.clone());
        drop(rows);
        Evictable { table: self.clone(), owner, number, evicted }
    }

    /// Evicts one connection that has been in the table for at least `older_than`: the oldest of the owner that has most and
    /// has such a one. False if there is none.
    pub fn evict_one(&self, older_than: Duration) -> bool {
        let mut rows = self.lock();
        let is_old = |since: &Instant| since.elapsed() >= older_than;
        // In a flood all are young, which one look shows.
        if !rows.ages.first_key_value().is_some_and(|(_, since)| is_old(since)) {
            return false;
        }
        let has_old = |(_, Reverse(oldest), _): &&(usize, Reverse<u64>, K)| rows.ages.get(oldest).is_some_and(is_old);
        match rows.order.iter().rev().find(has_old).map(|(.., owner)| owner.clone()) {
            Some(owner) => rows.evict(&owner),
            None => false,
        }
    }

    /// Evicts all of `owner`.
    pub fn evict_all(&self, owner: &K) {
        let mut rows = self.lock();
        while rows.evict(owner) {}
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().all
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Rows<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> Evictable<K> {
    /// Completes when the connection is evicted: it is to be closed.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl<K: Ord + Clone> Drop for Evictable<K> {
    fn drop(&mut self) {
        self.table.lock().remove(&self.owner, self.number);
    }
}

impl<K: Ord + Clone> Rows<K> {
    fn insert(&mut self, owner: &K, number: u64, evicted: Arc<Notify>) {
        self.all += 1;
        self.ages.insert(number, Instant::now());
        self.change(owner, |rows| drop(rows.insert(number, evicted)));
    }

    fn remove(&mut self, owner: &K, number: u64) {
        // One that was evicted is gone already.
        if self.owners.get(owner).is_some_and(|rows| rows.contains_key(&number)) {
            self.all -= 1;
            self.ages.remove(&number);
            self.change(owner, |rows| drop(rows.remove(&number)));
        }
    }

    /// Evicts the oldest of `owner`, if it has any.
    fn evict(&mut self, owner: &K) -> bool {
        let oldest = self.owners.get(owner).and_then(BTreeMap::first_key_value);
        let Some((number, evicted)) = oldest.map(|(number, evicted)| (*number, evicted.clone())) else { return false };
        evicted.notify_one();
        self.remove(owner, number);
        true
    }

    /// Changes the rows of `owner`, and its place in the order with them.
    fn change(&mut self, owner: &K, change: impl FnOnce(&mut BTreeMap<u64, Arc<Notify>>)) {
        let place = |rows: &BTreeMap<u64, Arc<Notify>>| {
            let (oldest, _) = rows.first_key_value()?;
            Some((rows.len(), Reverse(*oldest), owner.clone()))
        };
        let rows = self.owners.entry(owner.clone()).or_default();
        let before = place(rows);
        change(rows);
        let after = place(rows);
        if after.is_none() {
            self.owners.remove(owner);
        }
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.extend(after);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const NONE: Bounds = Bounds { all: usize::MAX, of_owner: usize::MAX };

    fn is_evicted<K: Ord + Clone>(entry: &Evictable<K>) -> bool {
        pin!(entry.evicted()).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn a_newcomer_takes_the_oldest_place_of_whoever_has_most() {
        let table = Arc::new(EvictionTable::default());
        let bounds = Bounds { all: 512, of_owner: 64 };
        let many: Vec<_> = (0..67).map(|_| table.add("one", bounds)).collect();
        assert_eq!(table.len(), 64);
        assert_eq!(many.iter().map(is_evicted).filter(|evicted| *evicted).count(), 3);
        drop(many);
        assert!(
            table.is_empty()
                && table.lock().ages.is_empty()
                && table.lock().owners.is_empty()
                && table.lock().order.is_empty()
        );
        // Nine take all.
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let all: Vec<Vec<_>> = names.iter().map(|owner| (0..60).map(|_| table.add(*owner, bounds)).collect()).collect();
        assert_eq!(table.len(), 512);
        let peer = table.add("peer", bounds);
        for owner in names {
            (0..200).for_each(|_| drop(table.add(owner, bounds)));
        }
        let again = table.add("one", bounds);
        assert!(!is_evicted(&peer) && !is_evicted(&again) && table.len() <= 512);
        assert!(all.iter().all(|of| is_evicted(&of[0])));
    }

    #[test]
    fn among_equals_the_oldest_goes() {
        let table = Arc::new(EvictionTable::default());
        let add = |owner| table.add(owner, Bounds { all: 4, of_owner: 4 });
        let held = [add(9), add(1), add(2), add(3)];
        let newcomer = add(200);
        assert_eq!(held.each_ref().map(is_evicted), [true, false, false, false]);
        let _next = add(4);
        assert!(!is_evicted(&newcomer) && is_evicted(&held[1]));
    }

    #[test]
    fn only_what_is_there_for_long_enough_is_evicted_for_others() {
        let table = Arc::new(EvictionTable::default());
        assert!(!table.evict_one(Duration::ZERO));
        let young = table.add(1, NONE);
        assert!(!table.evict_one(Duration::from_secs(3600)) && !is_evicted(&young));
        assert!(table.evict_one(Duration::ZERO) && is_evicted(&young) && table.is_empty());
    }

    #[test]
    fn where_all_of_whoever_has_most_are_young_the_next_is_looked_at() {
        let table = Arc::new(EvictionTable::default());
        let old = [table.add("one", NONE), table.add("two", NONE), table.add("two", NONE)];
        let age = Duration::from_millis(50);
        std::thread::sleep(age);
        let young: Vec<_> = (0..10).map(|_| table.add("most", NONE)).collect();
        for expected in [[false, true, false], [true, true, false], [true, true, true]] {
            assert!(table.evict_one(age));
            let seen = [0, 1, 2].map(|number| !table.lock().ages.contains_key(&number));
            assert_eq!(seen, expected);
        }
        assert!(old.iter().all(is_evicted) && !young.iter().any(is_evicted));
        assert!(!table.evict_one(Duration::from_secs(60)));
    }

    #[test]
    fn smaller_bounds_hold_from_the_next_newcomer_on() {
        let table = Arc::new(EvictionTable::default());
        let held: Vec<_> = (0..10).map(|owner| table.add(owner, NONE)).collect();
        let _newcomer = table.add(11, Bounds { all: 4, of_owner: 4 });
        assert_eq!((table.len(), held.iter().filter(|entry| is_evicted(entry)).count()), (4, 7));
    }
}
