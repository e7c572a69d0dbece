//! Nodes: streams as `serve` runs and closes them, at the node of the client and at one that another node asks.

use std::cell::RefCell;
use std::pin::Pin;

use ekiden_stream::closing::{Afterwards, Late, LeftBehind, close_dialled};
use ekiden_stream::duplex::{Broken, Duplex, Finished, Side};
use ekiden_stream::expiry::{Expiry, Limits};
use ekiden_transport::frames::read_frame;
use ekiden_transport::wire::Wire;

use super::tcp::world;
use super::wire::End;

/// What is left of a stream.
pub type Left = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    /// What goes on without its client, and at which node.
    pub static LEFT: RefCell<Vec<(usize, Left)>> = const { RefCell::new(Vec::new()) };
    /// What became of streams, and connections at rest.
    pub static DONE: RefCell<Done> = RefCell::new(Done::default());
}

/// What the nodes have done.
#[derive(Debug, Default)]
pub struct Done {
    /// When each node's stream had run.
    pub ran_at: [Option<u64>; 4],
    /// Whether it had ended in both directions.
    pub has_ended: [bool; 4],
    /// Legs that may carry another stream, as their diallers have them.
    pub diallers: Vec<End>,
    /// Whether the leg rests that each node has accepted.
    pub rests: [bool; 4],
}

/// A stream at a node.
pub struct At {
    pub node: usize,
    pub limits: Limits,
    pub has_place: bool,
}

/// A node's pool.
struct Pool;

impl Afterwards<End> for Pool {
    fn is_refused(&mut self) {}

    fn use_again(&mut self, side: Side<End>) -> Option<Side<End>> {
        (!side.stream.info().is_ok_and(|info| info.is_over)).then_some(side)
    }

    fn rest(self, connection: End) {
        DONE.with_borrow_mut(|done| done.diallers.push(connection));
    }
}

impl LeftBehind for At {
    type Place = ();

    fn place(&self, _: bool) -> Option<()> {
        self.has_place.then_some(())
    }

    fn go_on(self, (): (), rest: impl Future<Output = ()> + Send + 'static) {
        LEFT.with_borrow_mut(|left| left.push((self.node, Box::pin(rest))));
    }
}

/// A side at the beginning of its stream, at which nothing was said before. Real hosts have room for a segment, some of these do not.
fn has_been_sent_nothing(side: Side<End>) -> Side<End> {
    let was_sent_little = world(|world| world.ends[side.stream.0 ^ 1].takes_a_segment());
    Side { was_sent_little, ..side }
}

impl At {
    fn ran(&self, ran: &Result<Finished<End>, Broken>) {
        DONE.with_borrow_mut(|done| {
            done.ran_at[self.node] = Some(world(|world| world.now_ms));
            done.has_ended[self.node] = ran.is_ok();
        });
        world(|world| world.trace(|| format!("node {}: ran: {:?}", self.node, ran.as_ref().map(drop))));
    }

    /// The node of the client.
    pub async fn entry(self, client: Side<End>, upstream: Side<End>, first: Vec<u8>) {
        let [client, upstream] = [client, upstream].map(has_been_sent_nothing);
        let mut expiry = Expiry::new(self.limits);
        let ran = Duplex::new(client, upstream, &first).run(&mut expiry, ()).await;
        self.ran(&ran);
        if let Ok(finished) = ran
            && let Some(late) = Late::of(finished, Pool)
        {
            late.deliver(self.limits, expiry, self).await;
        }
    }

    /// A node that another one asks.
    pub async fn acceptor(self, dialler: Side<End>, upstream: Side<End>) {
        let upstream = has_been_sent_nothing(upstream);
        let mut expiry = Expiry::new(self.limits);
        let ran = Duplex::new(dialler, upstream, &[]).run(&mut expiry, ()).await;
        self.ran(&ran);
        let Ok(finished) = ran else { return };
        let closed = close_dialled(finished, Pool, &mut expiry, || self.has_place.then_some(())).await;
        world(|world| world.trace(|| format!("node {}: closed: {:?}", self.node, closed.as_ref().map(drop))));
        let Ok(stream) = closed else { return };
        DONE.with_borrow_mut(|done| done.rests[self.node] = true);
        // The next request, or a refusal that crossed DELIVERED; either way the next would be for another test.
        let _ = read_frame(&*stream).await;
        DONE.with_borrow_mut(|done| done.rests[self.node] = false);
    }
}
