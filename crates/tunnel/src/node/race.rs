//! A connection that stalls is raced: a new one is dialled beside it, and takes its place if it is ready first.
//!
//! When the path is back, TCP may wait for a minute before it retransmits, since each timeout doubles the next. And if this
//! host's address has changed, the old connection never goes on.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use super::Node;
use super::slot::Current;

/// The timeout of one connection attempt, or this many of the round-trip times from before the stall if that is longer: the
/// next attempt may find the path back.
const ATTEMPT: Duration = Duration::from_secs(3);
const ATTEMPT_ROUNDS: u32 = 8;
/// The pause between attempts.
const PAUSE: Duration = Duration::from_millis(500);

impl Node {
    /// Dials anew until the connection goes on, or a new one, which this function then serves, replaces it. If the
    /// connection ends before, its waiting packets are kept for one more attempt.
    pub async fn race(self: Rc<Self>, peer: usize, number: u8, stalled: Rc<Current>) {
        let (name, slot) = (self.name(peer).to_owned(), &self.peers[peer].slots[usize::from(number)]);
        let whose = format!("{name}: connection {number}");
        self.lines.info("stalls", &whose, format_args!("{whose} stalls, and is dialled anew"));
        let attempt = ATTEMPT.max(stalled.rtt() * ATTEMPT_ROUNDS);
        while slot.has(&stalled) && stalled.stalls() {
            match self.dial(peer, number, attempt, || stalled.stalls()).await {
                // The other end has replaced the old connection by now, even if the old one goes on here.
                Ok((connection, theirs)) => return Rc::clone(&self).serve(peer, theirs, connection, true).await,
                Err(error) => tracing::debug!("cannot connect to {name} meanwhile: {error}"),
            }
            if stalled.has_ended.get() {
                break;
            }
            sleep(PAUSE).await;
        }
        stalled.is_raced.set(false);
        if stalled.has_ended.get() && slot.has(&stalled) {
            self.lines.warn("lost", &whose, format_args!("{whose} ended, and no new one could be had"));
            slot.empty();
        }
    }
}
