//! Bounds on waiting: for a client to close, for an HTTP response, and for a client that has left.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use ekiden_transport::{Connection, wire};
use tokio::io::Interest;
use tokio::time::{Instant, sleep, timeout};

/// How long a client may go on sending after the last response. Unread bytes would cause a reset, which could destroy that
/// response (RFC 9112 §9.6).
pub const LINGER: Duration = Duration::from_secs(2);

/// Most responses begin within this time. Only after it the proxy checks whether the client has ended its side.
const SOON: Duration = Duration::from_secs(1);

/// Ends a connection to a `client` that was refused.
pub async fn linger(client: &Connection) {
    end_first(client).await;
    client.end_cleanly();
}

/// Ends our direction of a `client`'s connection and waits a little for the client's.
pub async fn end_first(client: &Connection) {
    let until_end = async {
        if wire::say_end(client).await.is_ok() {
            client.discard_to_end().await;
        }
    };
    let _ = timeout(LINGER, until_end).await;
}

/// Runs `work`. `None` if nothing happened in it for `limit` before `has_begun`.
pub async fn while_moving<T>(limit: Duration, has_begun: &AtomicBool, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut until_limit) = (pin!(work), pin!(Some(sleep(limit))));
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        if has_begun.load(Ordering::Relaxed) {
            // It would wake the task, which a limit inside `work` would take for data that moves.
            until_limit.set(None);
        }
        let Some(mut limit_passes) = until_limit.as_mut().as_pin_mut() else { return Poll::Pending };
        if limit_passes.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        // Something other than the timer woke it: data moves.
        limit_passes.as_mut().reset(Instant::now() + limit);
        limit_passes.poll(cx).map(|()| None)
    })
    .await
}

/// Completes when `client`'s connection breaks. If it `may_not_end`, completes also when the client has ended its side, with
/// nothing unread before the end.
pub async fn left(client: &Connection, may_not_end: bool) {
    tokio::select! {
        // An error means that the event loop ends.
        _ = client.socket().ready(Interest::ERROR) => {}
        () = ended(client), if may_not_end => {}
    }
}

/// Completes when `client` has ended its side. Never completes if there is something unread before the end.
async fn ended(client: &Connection) {
    if client.peek_end().await.is_ok_and(|unread| unread > 0) {
        pending().await
    }
}

/// Completes when `client`'s connection breaks, or `grace` after the client has ended its side if no response `has_begun`: a
/// client may say that it has no more requests and wait, but one that has left looks the same. If a request has a body, the
/// reader of the body notices the end.
pub async fn leaving(client: &Connection, has_body: bool, grace: Duration, has_begun: &AtomicBool) {
    let ends = async {
        if has_body {
            return pending().await;
        }
        sleep(SOON.min(grace)).await;
        // If another request comes before the end, the handling of that request notices the end.
        ended(client).await;
        sleep(grace).await;
        if has_begun.load(Ordering::Relaxed) {
            pending().await
        }
    };
    tokio::select! {
        _ = client.socket().ready(Interest::ERROR) => {}
        () = ends => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_limit_behind_the_beginning_of_an_answer_is_not_longer_than_it_says() {
        const LIMIT: Duration = Duration::from_millis(200);
        let (has_begun, never) = (AtomicBool::new(false), AtomicBool::new(false));
        let answered = async {
            has_begun.store(true, Ordering::Relaxed);
            while_moving(LIMIT, &never, pending::<()>()).await
        };
        tokio::select! {
            biased;
            ended = while_moving(LIMIT, &has_begun, answered) => assert_eq!(ended, Some(None)),
            () = sleep(LIMIT * 19 / 10) => panic!("the limit has begun anew"),
        }
    }
}
