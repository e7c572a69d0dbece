//! A queue in which groups take turns, and within a group its members, so that one that enters often delays another by one
//! entry at most.

use std::collections::VecDeque;
use std::hash::Hash;

use indexmap::IndexMap;

/// The queue of entries `T` of members of groups, each called by a `K`.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    /// In the order of their turns.
    groups: IndexMap<K, Members<K, T>>,
    len: usize,
    last: u64,
}

/// Those of a group, in the order of their turns, and their entries by number.
type Members<K, T> = IndexMap<K, VecDeque<(u64, T)>>;

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self { groups: IndexMap::new(), len: 0, last: 0 }
    }
}

impl<K: Hash + Eq + Clone, T> FairQueue<K, T> {
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
        self.groups.entry(group).or_default().entry(member).or_default().push_back((self.last, entry));
        self.last
    }

    /// The first entry of the member whose turn it is, in the group whose turn it is. The next turn of both comes after all
    /// others'.
    pub fn take(&mut self) -> Option<T> {
        let (group, mut members) = self.groups.shift_remove_index(0)?;
        let (member, mut entries) = members.shift_remove_index(0)?;
        let (_, entry) = entries.pop_front()?;
        self.len -= 1;
        if !entries.is_empty() {
            members.insert(member, entries);
        }
        if !members.is_empty() {
            self.groups.insert(group, members);
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
            members.shift_remove(member);
        }
        if members.is_empty() {
            self.groups.shift_remove(group);
        }
        Some(entry)
    }

    /// The last entry of the member with most in the group with most: the group, the member and the entry's number. `None` if an
    /// entry that this member of this group adds would make as many of its own.
    pub fn last_of_most(&self, group: &K, member: &K) -> Option<(K, K, u64)> {
        let count = |members: &Members<K, T>| members.values().map(VecDeque::len).sum::<usize>();
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
