//! The proxies that a flow goes through.

use std::ops::Deref;

use serde::{Serialize, Serializer};

/// The word in a flow's `via` for what nodes of an overlay choose themselves. No node is called so.
pub(crate) const AUTO: &str = "auto";

/// The proxies that a flow goes through, in order: all of them, or the first and the last, between which the nodes of an overlay choose the
/// others. Empty for a direct connection.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Via {
    proxies: Vec<String>,
    is_auto: bool,
}

impl Via {
    /// These proxies and no others.
    pub(crate) fn chain(proxies: Vec<String>) -> Self {
        Self { proxies, is_auto: false }
    }

    /// From one proxy to the other on a path that the nodes choose.
    pub(crate) fn auto(entry: String, exit: String) -> Self {
        Self { proxies: vec![entry, exit], is_auto: true }
    }

    /// The two proxies between which the nodes choose the others, if they do.
    pub fn chosen(&self) -> Option<(&str, &str)> {
        match &self.proxies[..] {
            [entry, exit] if self.is_auto => Some((entry, exit)),
            _ => None,
        }
    }

    /// As in the file.
    pub fn words(&self) -> Vec<String> {
        match self.chosen() {
            Some((entry, exit)) => [entry, AUTO, exit].map(String::from).into(),
            None => self.proxies.clone(),
        }
    }
}

/// The proxies that are named.
impl Deref for Via {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.proxies
    }
}

impl<'a> IntoIterator for &'a Via {
    type Item = &'a String;
    type IntoIter = std::slice::Iter<'a, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.proxies.iter()
    }
}

impl Serialize for Via {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.words().serialize(serializer)
    }
}
