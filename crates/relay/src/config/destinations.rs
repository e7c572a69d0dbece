//! Several sets of destinations: patterns, and files of patterns.

use std::path::{Path, absolute};
use std::sync::Arc;

use ekiden_files::{FileKind, read};
use ekiden_relay_proto::Target;
use ekiden_service::followed::{Followed, Refused};

use crate::config::list::List;
use crate::config::pattern::Pattern;

/// What an entry begins with that is a file of patterns.
pub const FILE_MARK: char = '@';

/// Sets of destinations, as a list in a configuration has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Destinations(Vec<Entry>);

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A pattern.
    Pattern(Pattern),
    /// All patterns of a file.
    File(Arc<Followed<List>>),
}

impl Entry {
    /// The patterns in `file`.
    ///
    /// # Errors
    /// It cannot be read, or a line is none.
    pub fn of_file(file: &Path) -> Result<Self, Refused> {
        Ok(Self::File(Arc::new(Followed::new(file.into(), load, List::is_empty)?)))
    }

    fn written(&self) -> String {
        match self {
            Self::Pattern(pattern) => pattern.to_string(),
            Self::File(list) => {
                format!("{FILE_MARK}{}", absolute(list.file()).unwrap_or_else(|_| list.file().into()).display())
            }
        }
    }
}

impl Destinations {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `target` is in one of the sets.
    pub fn matches(&self, target: &Target) -> bool {
        self.0.iter().any(|entry| match entry {
            Entry::Pattern(pattern) => pattern.matches(target),
            Entry::File(list) => list.with(|list| list.matches(target)),
        })
    }

    /// The same, or an IPv6 address by which packets may reach an IPv4 address in one.
    pub fn reaches(&self, target: &Target) -> bool {
        self.0.iter().any(|entry| match entry {
            Entry::Pattern(pattern) => pattern.reaches(target),
            Entry::File(list) => list.with(|list| list.reaches(target)),
        })
    }

    /// Whether all that `pattern` is for is in one of the sets.
    pub fn covers(&self, pattern: &Pattern) -> bool {
        self.0.iter().any(|entry| match entry {
            Entry::Pattern(wide) => wide.covers(pattern),
            Entry::File(list) => list.with(|list| list.covers(pattern)),
        })
    }

    /// Whether each of its patterns is one that a pattern of `wide` `hides`. A file may say something else later: it hides nothing, and only
    /// `*` hides it.
    pub fn is_within(&self, wide: &Self, hides: impl Fn(&Pattern, &Pattern) -> bool) -> bool {
        let written = || {
            wide.0.iter().filter_map(|entry| match entry {
                Entry::Pattern(pattern) => Some(pattern),
                Entry::File(_) => None,
            })
        };
        self.0.iter().all(|entry| match entry {
            Entry::Pattern(pattern) => written().any(|wide| hides(wide, pattern)),
            Entry::File(_) => written().any(|wide| wide.addresses() == Some((None, None))),
        })
    }

    /// Each as it is written.
    pub fn written(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(Entry::written)
    }

    /// The files among them.
    pub fn files(&self) -> impl Iterator<Item = &Arc<Followed<List>>> {
        self.0.iter().filter_map(|entry| match entry {
            Entry::Pattern(_) => None,
            Entry::File(list) => Some(list),
        })
    }
}

impl FromIterator<Entry> for Destinations {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl<const N: usize> From<[Pattern; N]> for Destinations {
    fn from(patterns: [Pattern; N]) -> Self {
        patterns.into_iter().map(Entry::Pattern).collect()
    }
}

fn load(file: &Path) -> Result<List, Refused> {
    let text = read(file, FileKind::Destinations).map_err(|error| Refused::of(file, error))?;
    List::parse(&text, file).map_err(Refused::Wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    #[test]
    fn a_file_may_say_something_else_later_and_so_is_within_all_destinations_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, "10.0.0.0/8\n").unwrap();
        let listed: Destinations = [Entry::of_file(&path).unwrap()].into_iter().collect();
        let within = |inner: &Destinations, wide: &Destinations| inner.is_within(wide, Pattern::covers);
        assert!(within(&listed, &[pattern("*")].into()));
        for wide in ["10.0.0.0/8", "*:80"] {
            assert!(!within(&listed, &[pattern(wide)].into()), "{wide}");
        }
        assert!(!within(&[pattern("10.1.0.0/16")].into(), &listed));
        assert!(listed.covers(&pattern("10.1.0.0/16:80")) && !listed.covers(&pattern("11.0.0.0/16")));
        let target = |text: &str| text.parse::<Target>().unwrap();
        assert!(
            listed.reaches(&target("[64:ff9b::10.1.2.3]:80")) && !listed.matches(&target("[64:ff9b::10.1.2.3]:80"))
        );
    }
}
