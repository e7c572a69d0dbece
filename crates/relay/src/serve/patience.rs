//! How long the HTTP proxy waits for a response: not for ever, and not for a client that has left.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use ekiden_net::socket;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// Most responses have begun by then, and nobody has looked whether the client ended its side.
const SOON: Duration = Duration::from_secs(1);

/// Runs `work`. `None` if nothing happened in it for `limit` before `has_begun`.
pub async fn while_moving<T>(limit: Duration, has_begun: &AtomicBool, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut limit_passes) = (pin!(work), pin!(sleep(limit)));
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        if has_begun.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        if limit_passes.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        // Woken by something else: it moves.
        limit_passes.as_mut().reset(Instant::now() + limit);
        limit_passes.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Completes when `client`'s connection breaks, or `patience` after it ended its side when no response `has_begun`:
/// a client may say that it has no more requests and wait, but one that left looks the same. With a body, whoever
/// reads that notices the end.
pub async fn leaving(client: &TcpStream, has_body: bool, patience: Duration, has_begun: &AtomicBool) {
    let ends = async {
        if has_body {
            return pending().await;
        }
        sleep(SOON.min(patience)).await;
        loop {
            if client.readable().await.is_err() {
                return;
            }
            match client.try_io(Interest::READABLE, || socket::peek(client, &mut [0])) {
                Ok(0) => break,
                // Another request: its end comes behind it.
                Ok(_) => return pending().await,
                Err(error) if crate::connection::is_transient(&error) => {}
                Err(_) => return,
            }
        }
        sleep(patience).await;
        if has_begun.load(Ordering::Relaxed) {
            pending().await
        }
    };
    tokio::select! {
        _ = client.ready(Interest::ERROR) => {}
        () = ends => {}
    }
}
