//! Checks the user name and password that a client gives.

use std::net::SocketAddr;
use std::sync::Arc;

use super::caller::Caller;
use crate::access::logins::Crowded;
use crate::access::quota::ClientKey;
use crate::access::users::{Hashes, Users};
use crate::config::Listener;
use crate::shared::Node;

/// The result of a login.
#[derive(Debug, PartialEq, Eq)]
pub enum Login {
    Right,
    Wrong,
    /// It was not checked, because too many wait.
    Refused(Crowded),
    /// The client has left.
    Left,
}

/// The users of a listener. `None` if it is open to all.
pub fn users(listener: &Listener) -> Option<Arc<Hashes>> {
    listener.kind.users().map(Users::current)
}

/// Whether a client that was let in among the users `before`, by this name if it was asked for one, would be among those of `now`.
pub fn still_holds(before: Option<&Hashes>, now: Option<&Hashes>, name: Option<&[u8]>) -> bool {
    let hash = |users: &'_ Hashes| name.and_then(|name| users.get(std::str::from_utf8(name).ok()?).cloned());
    match (before, now) {
        (None, None) => true,
        (Some(before), Some(now)) => hash(before).is_some() && hash(before) == hash(now),
        _ => false,
    }
}

/// Checks the password of `user`, unless the client `leaves` before.
pub async fn check(
    node: &Node,
    listener: &Listener,
    caller: Caller,
    (user, password): (&[u8], &[u8]),
    leaves: impl Future<Output = ()>,
) -> Login {
    let Some(users) = users(listener) else { return Login::Wrong };
    let from: SocketAddr = caller.address();
    let client = ClientKey::from(from.ip());
    let checked = tokio::select! {
        biased;
        checked = node.logins.is_right(&users, client, user, password) => checked,
        () = leaves => return Login::Left,
    };
    match checked {
        Ok(true) => Login::Right,
        Ok(false) => {
            node.lines.warn("login", client, format_args!("wrong user or password from {from} on {listener}"));
            Login::Wrong
        }
        Err(crowded) => {
            let line = format_args!("a login from {from} on {listener} was refused: {crowded}");
            node.lines.warn("crowded", client, line);
            Login::Refused(crowded)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_holds_while_its_own_user_stays_the_same() {
        let users = |users: &[(&str, &str)]| -> Hashes {
            users.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned())).collect()
        };
        let before = users(&[("alice", "1"), ("bob", "2")]);
        let holds = |now: Option<&Hashes>, name: Option<&[u8]>| still_holds(Some(&before), now, name);
        assert!(holds(Some(&users(&[("alice", "1"), ("eve", "3")])), Some(b"alice")));
        assert!(!holds(Some(&users(&[("alice", "2")])), Some(b"alice")), "another password");
        assert!(!holds(Some(&users(&[("bob", "2")])), Some(b"alice")), "taken out");
        assert!(!holds(None, Some(b"alice")) && !still_holds(None, Some(&before), None), "other rules");
        assert!(still_holds(None, None, None));
    }
}
