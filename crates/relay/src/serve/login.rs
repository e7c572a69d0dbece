//! Checks the user name and password that a client gives.

use std::net::SocketAddr;

use super::caller::Caller;
use crate::access::logins::{Crowded, Users};
use crate::access::quota::ClientKey;
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
pub fn users(listener: &Listener) -> Option<&Users> {
    listener.kind.users().filter(|users| !users.is_empty())
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
        checked = node.logins.is_right(users, client, user, password) => checked,
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
