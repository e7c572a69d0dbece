//! Gives up reaching a destination when the client leaves.

use std::pin::Pin;

use ekiden_relay_proto::{Failure, FailureCode};
use ekiden_transport::Connection;

use super::timeouts::left;

const HAS_LEFT: &str = "the client has left";

/// What it means if a client ends its side before it is answered, with nothing unread before the end. A reset always means that
/// the client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEof {
    /// It sends no more, but may still receive.
    HalfClose,
    /// It has left: its protocol needs it to send more.
    Leaves,
}

/// Waits until the destination is reached, as long as `client` is there. `reaching` stays where it is pinned: it is large,
/// and if taken by value it would take its memory twice.
pub async fn unless_client_leaves<T>(
    client: &Connection,
    eof: ClientEof,
    reaching: Pin<&mut impl Future<Output = Result<T, Failure>>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        reached = reaching => return reached,
        () = left(client, eof == ClientEof::Leaves) => {}
    }
    Err(Failure::new(FailureCode::Other, HAS_LEFT))
}

/// Whether the cause of a failure is not the destination, but that its client has left.
pub fn has_left(failure: &Failure) -> bool {
    failure.text == HAS_LEFT
}
