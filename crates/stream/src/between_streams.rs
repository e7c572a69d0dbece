//! A connection between nodes on which no stream is under way.
//!
//! It may end with a FIN instead of a reset: this side has said END, so the receiver knows a whole stream by that and not by the FIN.

use std::ops::Deref;
use std::time::Duration;

use ekiden_transport::wire::Wire;
use tokio::time::{sleep, timeout};

/// The least interval between two checks whether a receiver has taken what it was sent. It doubles up to [`POLL_MOST`].
pub const POLL_LEAST: Duration = Duration::from_millis(20);
/// The longest interval.
pub const POLL_MOST: Duration = Duration::from_millis(500);

/// How long an end waits for its acknowledgement. It takes a round trip, or longer if a segment is lost.
const END_HEARD: Duration = Duration::from_secs(2);

/// A node's connection on which this side has sent everything, END included. Dropped, it ends with a FIN behind the data that
/// is still on its way; a reset would destroy that data.
#[derive(Debug)]
pub struct BetweenStreams<W: Wire>(Option<W>);

impl<W: Wire> BetweenStreams<W> {
    /// From here on a drop of `connection` does not reset it.
    pub fn new(connection: W) -> Self {
        Self(Some(connection))
    }

    /// The connection for another stream: it resets again when dropped.
    pub fn into_inner(mut self) -> W {
        self.0.take().expect("it is there until it is taken or dropped")
    }

    /// Waits until the kernel has sent all that was said, or the connection broke. The kernel gives up a closed connection
    /// whose receiver has no room (see [`Wire::leave_to_kernel`]), but not one that a process has.
    pub async fn sent(&self) {
        let sent = async {
            let mut pause = POLL_LEAST;
            while self.has_unsent() {
                sleep(pause).await;
                pause = (pause * 2).min(POLL_MOST);
            }
        };
        tokio::select! {
            biased;
            () = sent => {}
            _ = self.watch(false) => {}
        }
    }
}

impl<W: Wire> BetweenStreams<W> {
    /// Ends the connection, although a request may be on its way to this side. Its sender sees an end and no reset, and so knows
    /// that nothing of it was acted on. The kernel would reset a connection that is closed with unread data.
    pub async fn end_unheard(self) {
        self.end_cleanly();
        if self.shut_down().is_err() {
            return;
        }
        let heard = async {
            let mut pause = POLL_LEAST / 4;
            // What the other side sends once it knows of the end it does not expect to be taken.
            while self.info().is_ok_and(|info| info.is_ending) {
                sleep(pause).await;
                pause = (pause * 2).min(POLL_MOST);
            }
        };
        // Too long for the path, or the other side's host has gone: a request may then be answered by a reset.
        let _ = timeout(END_HEARD, heard).await;
        self.discard_unread();
    }
}

impl<W: Wire> Deref for BetweenStreams<W> {
    type Target = W;

    fn deref(&self) -> &W {
        self.0.as_ref().expect("it is there until it is taken or dropped")
    }
}

impl<W: Wire> Drop for BetweenStreams<W> {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.leave_to_kernel();
        }
    }
}
