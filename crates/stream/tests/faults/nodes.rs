//! Nodes: streams as `serve` runs and closes them, at the node of the client and at one that another node asks.

use std::cell::RefCell;
use std::pin::Pin;

use ekiden_stream::between_streams::BetweenStreams;
use ekiden_stream::closing::{Afterwards, Late, LeftBehind, close_dialled};
use ekiden_stream::duplex::{Broken, Duplex, Finished, Side};
use ekiden_stream::expiry::{Expiry, Limits};
use ekiden_transport::wire::Wire;

use super::end::Line;
use super::tcp::world;
use super::wire::End;

/// What is left of a stream.
pub type Left = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a node has begun beside what it does.
pub enum Begun {
    /// What goes on without its client, at this node.
    Left(usize, Left),
    /// A connection at this place of the chain, whose far end is still to be served.
    Dialled(usize, End),
}

thread_local! {
    /// What the nodes have begun, until it is taken.
    pub static BEGUN: RefCell<Vec<Begun>> = const { RefCell::new(Vec::new()) };
    /// What became of streams, and connections at rest.
    pub static DONE: RefCell<Done> = RefCell::new(Done::default());
}

/// What the nodes have done.
#[derive(Debug, Default)]
pub struct Done {
    /// How each stream ran at each node.
    pub ran: [[Option<Span>; 4]; 2],
    /// Legs that may carry another stream, as their diallers have them.
    pub diallers: Vec<End>,
    /// The legs at rest, by the numbers of the connections, as their acceptors have them.
    pub rests: Vec<usize>,
    /// The connections of the second stream, from the client on.
    pub path: Vec<usize>,
    /// Legs on which a refusal came in the place of a request.
    pub refused: Vec<usize>,
    /// What else stood in the place of a request or an answer.
    pub wrong: Option<String>,
}

/// How a stream ran at a node.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub began_ms: u64,
    pub ended_ms: u64,
    /// Whether it had ended in both directions.
    pub has_ended: bool,
}

/// A stream at a node.
#[derive(Clone, Copy)]
pub struct At {
    pub node: usize,
    /// Which stream it is.
    pub stream: usize,
    pub limits: Limits,
    pub has_place: bool,
    pub is_exit: bool,
    /// The line of connections that it makes.
    pub beyond: Line,
}

/// A node's pool, for the leg of one stream.
#[derive(Default)]
struct Pool {
    is_refused: bool,
}

impl Afterwards<End> for Pool {
    fn is_refused(&mut self) {
        self.is_refused = true;
    }

    fn use_again(&mut self, side: Side<End>) -> Option<Side<End>> {
        (!side.stream.info().is_ok_and(|info| info.is_over)).then_some(side)
    }

    fn rest(self, connection: End) {
        if self.is_refused {
            return connection.end_cleanly();
        }
        DONE.with_borrow_mut(|done| done.diallers.push(connection));
    }
}

impl LeftBehind for At {
    type Place = ();

    fn place(&self, _: bool) -> Option<()> {
        self.has_place.then_some(())
    }

    fn go_on(self, (): (), rest: impl Future<Output = ()> + Send + 'static) {
        BEGUN.with_borrow_mut(|begun| begun.push(Begun::Left(self.node, Box::pin(rest))));
    }
}

/// A side at the beginning of its stream, at which nothing was said before. Real hosts have room for a segment, some of these do not.
fn has_been_sent_nothing(side: Side<End>) -> Side<End> {
    let was_sent_little = world(|world| world.ends[side.stream.0 ^ 1].takes_a_segment());
    Side { was_sent_little, ..side }
}

impl At {
    fn ran(&self, began_ms: u64, ran: &Result<Finished<End>, Broken>) {
        let span = Span { began_ms, ended_ms: world(|world| world.now_ms), has_ended: ran.is_ok() };
        DONE.with_borrow_mut(|done| done.ran[self.stream][self.node] = Some(span));
        world(|world| world.trace(|| format!("node {}: ran: {:?}", self.node, ran.as_ref().map(drop))));
    }

    /// The node of the client.
    pub async fn entry(self, client: Side<End>, upstream: Side<End>, first: Vec<u8>) {
        let [client, upstream] = [client, upstream].map(has_been_sent_nothing);
        let began_ms = world(|world| world.now_ms);
        let mut expiry = Expiry::new(self.limits);
        let ran = Duplex::new(client, upstream, &first).run(&mut expiry, ()).await;
        self.ran(began_ms, &ran);
        if let Ok(finished) = ran
            && let Some(late) = Late::of(finished, Pool::default())
        {
            late.deliver(self.limits, expiry, self).await;
        }
    }

    /// A node that another one asks. Over its connection one stream follows another.
    pub async fn acceptor(self, dialler: End, upstream: Side<End>) {
        let rests = self.serves(dialler, upstream).await;
        self.serves_others(rests).await;
    }

    /// The same, with the streams after one over a connection that is at rest now.
    pub async fn serves_others(mut self, mut rests: Option<BetweenStreams<End>>) {
        while let Some(stream) = rests {
            rests = self.serves_next(stream).await;
        }
    }

    /// One stream. Returns the connection to the node that asks, if it may carry another one.
    pub async fn serves(&self, dialler: End, upstream: Side<End>) -> Option<BetweenStreams<End>> {
        let upstream = has_been_sent_nothing(upstream);
        let began_ms = world(|world| world.now_ms);
        let mut expiry = Expiry::new(self.limits);
        let ran = Duplex::new(Side::node(dialler), upstream, &[]).run(&mut expiry, ()).await;
        self.ran(began_ms, &ran);
        let place = || self.has_place.then_some(());
        let closed = close_dialled(ran.ok()?, Pool::default(), &mut expiry, place).await;
        world(|world| world.trace(|| format!("node {}: closed: {:?}", self.node, closed.as_ref().map(drop))));
        closed.ok()
    }
}
