//! A connection that has been greeted: it carries packets until it ends.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_net::socket;
use ekiden_relay_proto::leg::About;
use ekiden_transport::{Connection, Security};
use tokio::task::spawn_local;
use tokio::time::{MissedTickBehavior, interval};

use super::Node;
use super::slot::Current;
use crate::carry::{CarryError, receive, send};
use crate::control::Limits;
use crate::decoder::Frame;
use crate::frame::{Hello, SILENCES};

/// How often the kernel is asked how a connection is.
const LOOKING: Duration = Duration::from_millis(100);

impl Node {
    /// Carries packets over a connection until it ends, or another one takes its place.
    pub async fn serve(self: Rc<Self>, peer: usize, theirs: Hello, connection: Connection, is_ours: bool) {
        let number = theirs.connection;
        let (name, slot) = (self.name(peer), &self.peers[peer].slots[usize::from(number)]);
        if let Some(other) = slot.current.borrow().as_ref() {
            if other.is_ours != is_ours && other.is_ours == self.has_the_say(peer) && !other.stalls() {
                tracing::debug!("{name}: a second connection of number {number} is not needed");
                return;
            }
            other.stop.notify_one();
        }
        slot.queue.open(theirs.takes_super);
        self.peers[peer].build.replace(theirs.build.clone());
        let current = Rc::new(Current::new(&connection, is_ours));
        *slot.current.borrow_mut() = Some(Rc::clone(&current));
        // Of one connection each line is told at once, and what comes of its kind soon after is counted.
        let whose = format!("{name}: connection {number}");
        self.lines.info("carries", &whose, format_args!("{whose} carries packets{}", current.far()));
        let keepalive = self.config.keepalive.into();
        // The other end is silent for as long as its own says.
        let silence = theirs.keepalive().max(keepalive);
        if let Err(error) = socket::limit_unacknowledged(connection.socket(), silence * SILENCES) {
            tracing::debug!("{name}: connection {number}: {error}");
        }
        let take = async |frame: Frame<'_>| {
            slot.received.add(frame.packet_bytes());
            self.leave(peer, frame).await
        };
        let siblings = Arc::clone(&self.peers[peer].siblings);
        let limits = Limits { pull: self.config.queue.pull, rate: self.config.pacing, siblings };
        let why = tokio::select! {
            // First, so that nothing comes from the old connection once the new one carries packets.
            biased;
            () = current.stop.notified() => None,
            ended = send(&connection, &slot.queue, limits, keepalive) => ended.err(),
            ended = receive(&connection, self.config.device.mtu, silence, take) => ended.err(),
            why = self.watch(peer, number, &connection, &current) => Some(why),
        };
        slot.look(&connection, &current);
        slot.keep(&current);
        // What waits is for the connection that comes in its place, or has come.
        let is_raced = current.is_raced.get() && slot.has(&current);
        match why {
            // The other end resets it once it has the new one.
            Some(why) if is_raced => tracing::debug!("{whose} ended: {why}"),
            Some(why) => {
                let builds = match &why {
                    CarryError::Frame(_) => self.builds(peer),
                    _ => String::new(),
                };
                self.lines.warn("gone", &whose, format_args!("{whose} ended: {why}{builds}"));
            }
            None if is_raced => {}
            None => self.lines.info("gone", &whose, format_args!("{whose} was replaced by a new one")),
        }
        current.has_ended.set(true);
        if slot.has(&current) && !is_raced {
            slot.empty();
        }
    }

    /// Of which builds both nodes are, for a line about what this one does not know.
    fn builds(&self, peer: usize) -> String {
        let theirs = self.peers[peer].build.borrow();
        let theirs = if theirs.is_empty() { "of another build" } else { &format!("ekiden {theirs}") };
        format!("; it is {theirs}, and this node ekiden {}", About::own().build)
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

    /// Looks at a connection for as long as it is of use. One that this node has dialled is raced when it stalls. Where only the other end
    /// can dial, it has to see that it must.
    async fn watch(
        self: &Rc<Self>,
        peer: usize,
        number: u8,
        connection: &Connection,
        current: &Rc<Current>,
    ) -> CarryError {
        let slot = &self.peers[peer].slots[usize::from(number)];
        let mut times = interval(LOOKING);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            slot.look(connection, current);
            if current.is_unheard() && !current.is_ours {
                return CarryError::Unheard;
            }
            if current.stalls() && current.is_ours && !current.is_raced.replace(true) {
                let race: Pin<Box<dyn Future<Output = ()>>> =
                    Box::pin(Rc::clone(self).race(peer, number, Rc::clone(current)));
                spawn_local(race);
            }
        }
    }
}
