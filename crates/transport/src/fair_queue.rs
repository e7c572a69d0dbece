//! A queue in which groups take turns, and within a group its members, so that one that enters often delays another by one
//! entry at most. However many groups there are, an entry costs little.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

/// The queue of entries `T` of members of groups, each called by a `K`.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    groups: Rotation<K, Members<K, T>>,
    len: usize,
    last: u64,
}

/// Those of a group, and their entries by number.
type Members<K, T> = Rotation<K, VecDeque<(u64, T)>>;

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self { groups: Rotation::default(), len: 0, last: 0 }
    }
}

impl<K: Hash + Eq + Clone, T> FairQueue<K, T> {
    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many entries a member has.
    pub fn len_of(&self, group: &K, member: &K) -> usize {
        self.groups.get(group).and_then(|members| members.get(member)).map_or(0, VecDeque::len)
    }

    /// Adds an entry at the end of its member's. Returns its number.
    pub fn enter(&mut self, group: K, member: K, entry: T) -> u64 {
        self.last += 1;
        self.len += 1;
        self.groups.get_or_enter(group).get_or_enter(member).push_back((self.last, entry));
        self.last
    }

    /// The first entry of the member whose turn it is, in the group whose turn it is. The next turn of both comes after all
    /// others'.
    pub fn take(&mut self) -> Option<T> {
        let (group, mut members) = self.groups.take_first()?;
        let (member, mut entries) = members.take_first()?;
        let (_, entry) = entries.pop_front()?;
        self.len -= 1;
        if !entries.is_empty() {
            *members.get_or_enter(member) = entries;
        }
        if !members.is_empty() {
            *self.groups.get_or_enter(group) = members;
        }
        Some(entry)
    }

    /// Removes the entry of this number. `None` if it is not there any more.
    pub fn leave(&mut self, group: &K, member: &K, number: u64) -> Option<T> {
        let members = self.groups.get_mut(group)?;
        let entries = members.get_mut(member)?;
        let at = entries.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let (_, entry) = entries.remove(at)?;
        self.len -= 1;
        if entries.is_empty() {
            members.remove(member);
        }
        if members.is_empty() {
            self.groups.remove(group);
        }
        Some(entry)
    }

    /// The last entry of the member with most in the group with most: the group, the member and the entry's number. `None` if an
    /// entry that this member of this group adds would make as many of its own.
    pub fn last_of_most(&self, group: &K, member: &K) -> Option<(K, K, u64)> {
        let count = |members: &Members<K, T>| members.iter().map(|(_, entries)| entries.len()).sum::<usize>();
        let (longest, members) = self.groups.iter().max_by_key(|(_, members)| count(members))?;
        let (most, entries) = members.iter().max_by_key(|(_, entries)| entries.len())?;
        let has_more = match longest == group {
            true => entries.len() > self.len_of(group, member) + 1,
            false => count(members) > self.groups.get(group).map_or(0, count) + 1,
        };
        let (number, _) = entries.back().filter(|_| has_more)?;
        Some((longest.clone(), most.clone(), *number))
    }
}

/// Values in the order of their turns.
#[derive(Debug)]
struct Rotation<K, V> {
    /// Each with the number of its turn.
    values: HashMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    last: u64,
}

impl<K, V> Default for Rotation<K, V> {
    fn default() -> Self {
        Self { values: HashMap::new(), order: BTreeMap::new(), last: 0 }
    }
}

impl<K: Hash + Eq + Clone, V> Rotation<K, V> {
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|(_, value)| value)
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.values.get_mut(key).map(|(_, value)| value)
    }

    /// The value of this key. One that is not there has its turn after all others.
    fn get_or_enter(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let (_, value) = match self.values.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.last += 1;
                self.order.insert(self.last, entry.key().clone());
                entry.insert((self.last, V::default()))
            }
        };
        value
    }

    /// Removes the value whose turn it is.
    fn take_first(&mut self) -> Option<(K, V)> {
        let (_, key) = self.order.pop_first()?;
        let (_, value) = self.values.remove(&key)?;
        Some((key, value))
    }

    fn remove(&mut self, key: &K) {
        if let Some((turn, _)) = self.values.remove(key) {
            self.order.remove(&turn);
        }
    }

    /// In the order of their turns.
    fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.order.values().filter_map(|key| Some((key, self.get(key)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_take_turns_and_members_within_them_whoever_leaves() {
        let mut queue = FairQueue::default();
        for (group, member, entry) in [(1, 1, 'a'), (1, 1, 'b'), (1, 2, 'c'), (2, 1, 'd'), (3, 1, 'e')] {
            queue.enter(group, member, entry);
        }
        assert_eq!(queue.last_of_most(&4, &1), Some((1, 1, 2)));
        assert_eq!(queue.leave(&2, &1, 4), Some('d'));
        assert_eq!((queue.leave(&2, &1, 4), queue.len()), (None, 4));
        assert_eq!((0..5).map_while(|_| queue.take()).collect::<String>(), "aecb");
        queue.enter(2, 1, 'f');
        assert_eq!((queue.take(), queue.take(), queue.len()), (Some('f'), None, 0));
        assert!(queue.groups.is_empty() && queue.groups.values.is_empty());
    }

    #[test]
    fn an_entry_costs_little_among_many_groups() {
        let mut queue = FairQueue::default();
        let numbers: Vec<_> = (0..50_000).map(|group| queue.enter(group, 0, group)).collect();
        let begun = std::time::Instant::now();
        (0..25_000).for_each(|group| assert_eq!(queue.leave(&group, &0, numbers[group]), Some(group)));
        (25_000..50_000).for_each(|group| assert_eq!(queue.take(), Some(group)));
        // 0.2 s; to move all others for each took 12 s.
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }
}
