//! Clients that have begun to ask, and hold memory meanwhile. If there are too many, an older one gives way to a newer one.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use ekiden_transport::{Connection, Evictable, UNREAD_MOST};

use crate::access::quota::ClientKey;
use crate::shared::Node;

/// A request is long if this many bytes of it have come and it is not complete.
pub(super) const LONG: usize = 1 << 10;

/// A request that is not complete.
pub(super) struct Begun<'a> {
    node: &'a Node,
    client: ClientKey,
    /// Among the long ones, once it is.
    place: Option<Evictable<ClientKey>>,
}

impl<'a> Begun<'a> {
    pub fn new(node: &'a Node, client: ClientKey) -> Self {
        Self { node, client, place: None }
    }

    /// Waits for `more` of a request, of which `read` bytes were taken from the connection. `None` if it gives way.
    pub async fn wait<T>(&mut self, from: &Connection, read: usize, more: impl Future<Output = T>) -> Option<T> {
        let mut more = pin!(more);
        if self.place.is_none() {
            let done = poll_fn(|cx| match more.as_mut().poll(cx) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                // With TLS the connection itself may hold the beginning of a record.
                Poll::Pending if read + from.unread() > LONG => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            if let Some(done) = done.await {
                return Some(done);
            }
        }
        let unread = if from.plain().is_some() { 0 } else { UNREAD_MOST };
        let place = self.place.get_or_insert_with(|| self.node.add_long_request(self.client, unread));
        tokio::select! {
            done = more => Some(done),
            () = place.evicted() => None,
        }
    }
}
