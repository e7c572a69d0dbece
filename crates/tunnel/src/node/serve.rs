//! A connection that has been greeted: it carries packets until it ends.

use std::rc::Rc;
use std::time::Duration;

use ekiden_transport::{Connection, Security};
use tokio::time::{MissedTickBehavior, interval};

use super::Node;
use super::slot::{Current, Slot};
use crate::carry::{receive, send};
use crate::decoder::Frame;
use crate::frame::Hello;

/// How often the kernel is asked how a connection is.
const LOOKING: Duration = Duration::from_millis(100);

impl Node {
    /// Carries packets over a connection until it ends, or another one takes its place.
    pub async fn serve(&self, peer: usize, theirs: Hello, connection: Connection, is_ours: bool) {
        let number = theirs.connection;
        let (name, slot) = (self.name(peer), &self.peers[peer].slots[usize::from(number)]);
        if let Some(other) = slot.current.borrow().as_ref() {
            if other.is_ours != is_ours && other.is_ours == self.has_the_say(peer) {
                tracing::debug!("{name}: a second connection of number {number} is not needed");
                return;
            }
            other.stop.notify_one();
        }
        slot.queue.open(theirs.takes_super);
        let current = Rc::new(Current::new(&connection, is_ours));
        *slot.current.borrow_mut() = Some(Rc::clone(&current));
        tracing::info!("{name}: connection {number} carries packets{}", current.far());
        let keepalive = self.config.keepalive.into();
        let take = async |frame: Frame<'_>| {
            slot.received.add(frame.packet_bytes());
            self.leave(peer, frame).await
        };
        let why = tokio::select! {
            ended = send(&connection, &slot.queue, self.config.queue.pull, keepalive) => ended.err(),
            ended = receive(&connection, self.config.device.mtu, keepalive, take) => ended.err(),
            () = watch(slot, &connection, &current) => None,
            () = current.stop.notified() => None,
        };
        slot.look(&connection, &current);
        slot.keep(&current);
        match why {
            Some(why) => tracing::warn!("{name}: connection {number} ended: {why}"),
            None => return tracing::info!("{name}: connection {number} was replaced by a new one"),
        }
        *slot.current.borrow_mut() = None;
        slot.queue.clear();
        slot.ended.notify_waiters();
        slot.ended.notify_one();
    }

    /// Whether this node's connection stays when both ends have dialled. Both ends agree on it: the smaller key counts, or
    /// where the key is shared the smaller name.
    fn has_the_say(&self, peer: usize) -> bool {
        match self.config.peers.get_index(peer).map(|(name, peer)| (name, &peer.security)) {
            Some((_, Security::Tls { identity, known: Some(key), .. })) => {
                identity.fingerprint().to_string() < key.to_string()
            }
            Some((name, _)) => self.config.name < *name,
            None => false,
        }
    }
}

/// Looks at a connection for as long as it is there.
async fn watch(slot: &Slot, connection: &Connection, current: &Current) {
    let mut times = interval(LOOKING);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        times.tick().await;
        slot.look(connection, current);
    }
}
