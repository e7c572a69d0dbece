//! A client that leaves while its destination is being reached: nobody waits for that any more.

use std::future::pending;

use ekiden_net::socket;
use ekiden_relay_proto::{Failure, FailureCode};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What it means that a client ends its side, with nothing sent that was not read, before it is answered. A reset always means
/// that it has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It has no more to say, and may listen.
    Half,
    /// It has left: what it waits for, it would have to answer.
    Left,
}

/// Waits until the destination is reached, as long as `client` is there.
pub async fn unless_it_leaves<T>(
    client: &TcpStream,
    end: End,
    reaching: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        reached = reaching => return reached,
        // An error means that the event loop ends.
        _ = client.ready(Interest::ERROR) => {}
        () = ended(client), if end == End::Left => {}
    }
    Err(Failure::new(FailureCode::Other, "the client has left"))
}

/// Completes when there is nothing more to be read from `client`, and never, if there is something.
async fn ended(client: &TcpStream) {
    loop {
        if client.readable().await.is_err() {
            return;
        }
        match client.try_io(Interest::READABLE, || socket::peek(client, &mut [0])) {
            Ok(0) => return,
            Ok(_) => return pending().await,
            Err(error) if crate::connection::is_transient(&error) => {}
            Err(_) => return,
        }
    }
}
