//! Which keys of etcd belong to an overlay.
//!
//! docs/design/registry.md says what etcd is trusted with.

use ekiden_units::is_node_name;

use crate::error::RegistryError;

/// The keys of one overlay: all begin with `/ekiden/OVERLAY/`.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
}

/// What a key of an overlay is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistryKey<'a> {
    /// The overlay's id.
    Id,
    /// The fingerprint of a node that the operator has admitted.
    Admitted(&'a str),
    /// A node's own record.
    Node(&'a str),
    /// Nothing that is known here.
    Other,
}

impl Keys {
    /// Those of `overlay`, a name that [`check_name`] has passed.
    pub fn of(overlay: &str) -> Self {
        Self { prefix: format!("/ekiden/{overlay}/") }
    }

    /// What all begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The first key behind all of them.
    pub fn end(&self) -> String {
        // '0' is the character behind '/'.
        format!("{}0", &self.prefix[..self.prefix.len() - 1])
    }

    pub fn id(&self) -> String {
        format!("{}id", self.prefix)
    }

    pub fn admitted(&self, node: &str) -> String {
        format!("{}admitted/{node}", self.prefix)
    }

    pub fn node(&self, node: &str) -> String {
        format!("{}nodes/{node}", self.prefix)
    }

    /// What `key` is for.
    pub fn place<'a>(&self, key: &'a str) -> RegistryKey<'a> {
        let Some(rest) = key.strip_prefix(&self.prefix) else { return RegistryKey::Other };
        let place = match rest.split_once('/') {
            None if rest == "id" => RegistryKey::Id,
            Some(("admitted", node)) => RegistryKey::Admitted(node),
            Some(("nodes", node)) => RegistryKey::Node(node),
            _ => RegistryKey::Other,
        };
        match place {
            RegistryKey::Admitted(node) | RegistryKey::Node(node) if !is_node_name(node) => RegistryKey::Other,
            _ => place,
        }
    }
}

/// Whether `name` can be an overlay's or a node's: 1 to 64 letters, digits, `-`, `_` and `.`, of ASCII.
///
/// # Errors
/// A line about the setting `key` if it is not.
pub fn check_name(key: &'static str, name: &str) -> Result<(), RegistryError> {
    match is_node_name(name) {
        true => Ok(()),
        false => Err(RegistryError::Setting {
            key,
            reason: format!("'{}' is no name here: 1 to 64 of a-z, A-Z, 0-9, '-', '_' and '.'", name.escape_debug()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let keys = Keys::of("blue");
        assert_eq!((keys.prefix(), keys.end().as_str()), ("/ekiden/blue/", "/ekiden/blue0"));
        assert_eq!(keys.place(&keys.id()), RegistryKey::Id);
        assert_eq!(keys.place(&keys.admitted("a.b")), RegistryKey::Admitted("a.b"));
        assert_eq!(keys.place(&keys.node("a-b")), RegistryKey::Node("a-b"));
        for other in ["/ekiden/blues/id", "/ekiden/blue/nodes/", "/ekiden/blue/nodes/a/b", "/ekiden/blue/nodes/ö", ""]
        {
            assert_eq!(keys.place(other), RegistryKey::Other, "{other}");
        }
    }

    #[test]
    fn names_that_would_leave_the_prefix_are_refused() {
        for name in ["", "a/b", "a b", "ö", "a\n", &"a".repeat(65)] {
            assert!(check_name("name", name).is_err(), "{name}");
        }
        check_name("name", &"a".repeat(64)).unwrap();
    }
}
