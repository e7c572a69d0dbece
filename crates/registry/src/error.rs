//! What can be wrong between a node, or the operator, and etcd: one line each.

/// Why something was not done, or cannot go on. Each message says what is wrong, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// A setting is out of its range.
    #[error("{key}: {reason}")]
    Setting {
        /// Which.
        key: &'static str,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A file that a setting names cannot be used.
    #[error("{key}: {file} {reason}")]
    File {
        /// The setting.
        key: &'static str,
        /// The file.
        file: String,
        /// A predicate of it.
        reason: String,
    },
    /// No answer.
    #[error("etcd at {endpoint} cannot be reached: {reason}")]
    Unreachable {
        /// Its address.
        endpoint: String,
        /// The system's answer.
        reason: String,
    },
    /// Its certificate has expired, or is not valid yet, by the wall clock of this machine.
    #[error(
        "the certificate of etcd at {endpoint} is {fault}: renew it there, or set the clock of this machine if that is wrong (it is the one thing here that needs the date)"
    )]
    CertificateDate {
        /// Its address.
        endpoint: String,
        /// `expired` or `not valid yet`.
        fault: &'static str,
    },
    /// Its certificate is not one that this node believes.
    #[error(
        "the certificate of etcd at {endpoint} is refused ({reason}): ca_file (--ca-file) must hold the authority that signed it, and the certificate must name that address"
    )]
    Certificate {
        /// Its address.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// etcd wants a user, and none is set.
    #[error("etcd at {endpoint} wants a user and a password: set user and password_file (--user and --password-file)")]
    NoUser {
        /// Its address.
        endpoint: String,
    },
    /// A user is set, and etcd asks nobody for one.
    #[error("etcd at {endpoint} asks nobody for a password, so that anybody could write there: `etcdctl auth enable`")]
    UsersOff {
        /// Its address.
        endpoint: String,
    },
    /// The user or its password is wrong.
    #[error("etcd at {endpoint} refuses user '{user}': the name or the password is wrong")]
    Login {
        /// Its address.
        endpoint: String,
        /// The user.
        user: String,
    },
    /// The user's roles do not allow it.
    #[error(
        "etcd at {endpoint} does not let user '{user}' do this ({what}): give it the role that docs/design/registry.md describes"
    )]
    Denied {
        /// Its address.
        endpoint: String,
        /// The user; empty for none.
        user: String,
        /// What was asked for.
        what: &'static str,
    },
    /// The operator's user may not do it.
    #[error(
        "etcd at {endpoint} does not let user '{user}' do this ({what}): take a user with etcd's role root (--user)"
    )]
    NoOperator {
        /// Its address.
        endpoint: String,
        /// The user; empty for none.
        user: String,
        /// What was asked for.
        what: &'static str,
    },
    /// etcd has no space left for what is written.
    #[error(
        "etcd at {endpoint} has used up its quota and grants no lease and takes no record (alarm NOSPACE): its operator frees space as docs/guide/overlay.md says"
    )]
    NoSpace {
        /// Its address.
        endpoint: String,
    },
    /// etcd answered with an error of another kind.
    #[error("etcd at {endpoint} answers to {what}: {message}")]
    Refused {
        /// Its address.
        endpoint: String,
        /// What was asked for.
        what: &'static str,
        /// Its words.
        message: String,
    },
    /// What came back is no answer of etcd's JSON gateway.
    #[error("{endpoint} does not answer to {what} as etcd 3.4 or newer does ({reason}): is that its client port?")]
    Malformed {
        /// Its address.
        endpoint: String,
        /// What was asked for.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// An answer is longer than can be right.
    #[error("etcd at {endpoint} answers to {what} with more than {most} bytes, which is not read")]
    TooLong {
        /// Its address.
        endpoint: String,
        /// What was asked for.
        what: &'static str,
        /// The most bytes that are read.
        most: usize,
    },
    /// There are more keys below the overlay's prefix than an overlay can have.
    #[error(
        "etcd at {endpoint} has more than {most} keys below {prefix}, which no overlay needs: remove what does not belong there"
    )]
    TooManyKeys {
        /// Its address.
        endpoint: String,
        /// Where.
        prefix: String,
        /// The most that are read.
        most: usize,
    },
    /// A node that is to be expelled was not admitted.
    #[error("no node '{node}' is admitted to '{overlay}'; {}", admitted_are(admitted))]
    NeverAdmitted {
        /// The node's name.
        node: String,
        /// The overlay's name.
        overlay: String,
        /// Who is, with commas.
        admitted: String,
    },
    /// A name that is to be admitted has another key.
    #[error(
        "node '{node}' is admitted to '{overlay}' already, with the key {admitted}: --replace admits it with the new key instead"
    )]
    HasOtherKey {
        /// The node's name.
        node: String,
        /// The overlay's name.
        overlay: String,
        /// The fingerprint that is admitted.
        admitted: String,
    },
    /// What is said of a node that is to be admitted cannot be read, so that it cannot stay.
    #[error("{why}; --replace admits '{node}' to '{overlay}' anew, without all that stands there")]
    Unreadable {
        /// The node's name.
        node: String,
        /// The overlay's name.
        overlay: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such overlay.
    #[error(
        "etcd at {endpoint} has no overlay '{overlay}': the operator makes it with `ekiden overlay init {overlay}`, or this is another cluster's etcd"
    )]
    NoOverlay {
        /// Its address.
        endpoint: String,
        /// The overlay's name.
        overlay: String,
    },
    /// There is one of this name, but another.
    #[error(
        "etcd at {endpoint} belongs to another cluster: its overlay '{overlay}' has the id {found}, and {expected} is expected"
    )]
    OtherOverlay {
        /// Its address.
        endpoint: String,
        /// The overlay's name.
        overlay: String,
        /// The id there.
        found: String,
        /// The id that is set, or that was there before.
        expected: String,
    },
    /// The operator has not admitted this node.
    #[error(
        "node '{name}' is not admitted to overlay '{overlay}': the operator admits it with `ekiden overlay admit {overlay} {name} {fingerprint}`"
    )]
    NotAdmitted {
        /// The node.
        name: String,
        /// The overlay's name.
        overlay: String,
        /// The node's own fingerprint.
        fingerprint: String,
    },
    /// The operator has admitted this name with another key.
    #[error(
        "node '{name}' is admitted with the key {admitted}, but this node has {own}: two nodes with one name, or a new key that the operator has to admit"
    )]
    AdmittedOtherKey {
        /// The node.
        name: String,
        /// The fingerprint that is admitted.
        admitted: String,
        /// The node's own.
        own: String,
    },
    /// Another node is registered under this name.
    #[error(
        "two nodes with one name: '{name}' is registered by {address} with the key {other}; this node gets the name when that one has gone"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// Where the other one is.
        address: String,
        /// Its fingerprint.
        other: String,
    },
    /// A later process with the same name and the same key has registered.
    #[error(
        "two nodes with one key: another process has registered '{name}' with this node's key, at {address}; this one no longer registers. Stop one of them"
    )]
    Replaced {
        /// The name.
        name: String,
        /// Where the other one is.
        address: String,
    },
    /// The key is another node's.
    #[error("two nodes with one key: {fingerprint} is admitted already, as '{name}'")]
    KeyTaken {
        /// The key.
        fingerprint: String,
        /// The node that has it.
        name: String,
    },
}

fn admitted_are(names: &str) -> String {
    if names.is_empty() { "none is".into() } else { format!("admitted are: {names}") }
}

impl RegistryError {
    /// Whether another member of etcd may do better.
    pub(crate) fn is_of_endpoint(&self) -> bool {
        !matches!(
            self,
            Self::Setting { .. }
                | Self::File { .. }
                | Self::Login { .. }
                | Self::Denied { .. }
                | Self::NoSpace { .. }
                | Self::NotAdmitted { .. }
                | Self::AdmittedOtherKey { .. }
                | Self::NameTaken { .. }
                | Self::Replaced { .. }
                | Self::KeyTaken { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_admitted_is_said_also_if_nobody_is() {
        for (admitted, said) in [("", "; none is"), ("a, b", "; admitted are: a, b")] {
            let error =
                RegistryError::NeverAdmitted { node: "x".into(), overlay: "o".into(), admitted: admitted.into() };
            assert_eq!(error.to_string(), format!("no node 'x' is admitted to 'o'{said}"));
        }
    }
}
