//! How the connections of a stream that has ended in both directions are closed: at its entry ([`Late`]), and at a node that another one
//! has asked for it ([`close_dialled`]).

use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ekiden_relay_proto::leg::FrameKind;
use ekiden_transport::frames::{invalid, read_frame, send};
use ekiden_transport::wire::Wire;
use tokio::time::timeout;

use crate::between_streams::BetweenStreams;
use crate::duplex::{Finished, Side};
use crate::expiry::{self, Expiry, InTheWay, Limits};

/// How long a stream whose client has its end still counts as that client's.
const LINGER: Duration = Duration::from_secs(2);

/// What happens to the connection to the next node or the destination when its stream is over.
pub trait Afterwards<W> {
    /// A refusal was said on the stream's connections: they carry no other.
    fn is_refused(&mut self);

    /// Takes the socket of a host's connection that is over, for another connection. Returns `side` if it is not over, or not of the
    /// kind.
    fn use_again(&mut self, side: Side<W>) -> Option<Side<W>>;

    /// Takes a node's connection for another stream.
    fn rest(self, connection: W);
}

/// What a node has for streams whose client has its end, while what it sent is still to be delivered.
pub trait LeftBehind {
    /// A place for one.
    type Place: Send;

    /// Takes a place for one to a node, or to a host.
    fn place(&self, is_node: bool) -> Option<Self::Place>;

    /// Delivers the rest without the client.
    fn go_on(self, place: Self::Place, rest: impl Future<Output = ()> + Send + 'static);
}

/// For a side beyond whose stream has ended in both directions. Gives the connection up if nothing is left to be delivered;
/// `is_delivered` says that the node has said DELIVERED. Otherwise [`finish`] must follow.
pub fn finish_now<W: Wire, A: Afterwards<W>>(
    side: Side<W>,
    mut afterwards: A,
    is_delivered: bool,
) -> Result<(), (Side<W>, A)> {
    if side.is_node() {
        if !is_delivered {
            return Err((side, afterwards));
        }
        afterwards.rest(side.stream);
        return Ok(());
    }
    let Some(side) = afterwards.use_again(side) else { return Ok(()) };
    side.end_if_sent().map_err(|side| (side, afterwards))
}

/// The same, if not all has been delivered. Waits until it has been, and then gives the connection up.
///
/// # Errors
/// The connection to a node broke, the node broke the protocol, or the limits have passed. Only the node before this one can still be
/// told.
pub async fn finish<W: Wire, A: Afterwards<W>>(
    side: Side<W>,
    afterwards: A,
    expiry: &mut Option<Box<Expiry>>,
) -> io::Result<()> {
    if !side.is_node() {
        side.deliver(expiry).await;
        return Ok(());
    }
    let stream = BetweenStreams::new(side.stream);
    tokio::select! {
        biased;
        said = delivered(&*stream, true) => said?,
        () = expiry::passed(expiry, &*stream) => return Err(io::ErrorKind::TimedOut.into()),
    }
    afterwards.rest(stream.into_inner());
    Ok(())
}

/// Waits for the acceptor's DELIVERED, after this side has sent END. `has_ended`: the acceptor's END has been received
/// already.
pub async fn delivered(stream: &impl Wire, mut has_ended: bool) -> io::Result<()> {
    loop {
        match read_frame(stream).await? {
            (FrameKind::Delivered, _) => return Ok(()),
            (FrameKind::End, _) if !has_ended => has_ended = true,
            (other, _) => return Err(invalid(format_args!("{other:?} where DELIVERED was due"))),
        }
    }
}

/// The connections of a stream that has ended in both directions, at its entry. Boxed: a running stream should not reserve room for it.
#[derive(Debug)]
pub struct Late<W, A> {
    client: Option<Side<W>>,
    upstream: Option<(Side<W>, A)>,
}

impl<W: Wire, A: Afterwards<W> + Send + 'static> Late<W, A> {
    /// Closes the connections that have nothing left to deliver. `None` if neither has.
    pub fn of(finished: Finished<W>, mut afterwards: A) -> Option<Box<Self>> {
        let Finished { a: client, b: side, is_delivered, is_refused, has_refused, .. } = finished;
        let client = client.end_if_sent().err();
        if is_refused && side.is_node() {
            // It has sent everything, so that data queued for it would never be taken.
            drop(side);
            return client.map(|client| Box::new(Self { client: Some(client), upstream: None }));
        }
        if is_refused || has_refused {
            afterwards.is_refused();
        }
        let upstream = finish_now(side, afterwards, is_delivered).err();
        (client.is_some() || upstream.is_some()).then(|| Box::new(Self { client, upstream }))
    }

    /// Keeps the connections until all data has been delivered; the other side's without the client, once that has taken all.
    pub async fn deliver(self: Box<Self>, limits: Limits, expiry: Option<Box<Expiry>>, left_behind: impl LeftBehind) {
        let Self { client, upstream } = *self;
        // Send the end to both before waiting for either.
        if let Some(client) = &client {
            client.say_end();
        }
        let mut of_client = Expiry::new(limits);
        let mut client = pin!(async {
            if let Some(client) = client {
                client.deliver(&mut of_client).await;
            }
        });
        let Some((side, afterwards)) = upstream else { return client.await };
        // At a transparent address only this process can deliver.
        let (is_node, may_be_left) = (side.is_node(), !side.has_transparent_address);
        let in_the_way = InTheWay::default();
        let mut expiry = if may_be_left { Some(Expiry::late(expiry, in_the_way.clone())) } else { expiry };
        let mut finishing = Box::pin(async move {
            if let Err(error) = finish(side, afterwards, &mut expiry).await {
                tracing::debug!("a stream was not delivered: {error}");
            }
        });
        tokio::select! {
            biased;
            () = &mut finishing => return client.await,
            () = &mut client => {}
        }
        if !may_be_left {
            return finishing.await;
        }
        if timeout(LINGER, &mut finishing).await.is_ok() {
            return;
        }
        // The client has its end, and may have gone: from here on its limits do not count the rest, unless it leaves too much behind.
        match left_behind.place(is_node) {
            Some(place) => left_behind.go_on(place, finishing),
            None => {
                in_the_way.store(true, Ordering::Relaxed);
                finishing.await;
            }
        }
    }
}

/// Closes the connection beyond, of a stream that the node at `a` has asked for, and tells that node of it. Returns the connection to that
/// node, ready for the next stream. Where the node has gone, `place` says whether what it has left is still delivered.
///
/// # Errors
/// Not all was delivered, or refused, or the connection to the node that asked has broken: it carries no other stream.
pub async fn close_dialled<W: Wire, A: Afterwards<W>, P>(
    finished: Finished<W>,
    mut afterwards: A,
    expiry: &mut Option<Box<Expiry>>,
    place: impl Fn() -> Option<P>,
) -> io::Result<BetweenStreams<W>> {
    let Finished { a: client, b: side, owes_end, is_delivered, is_refused, has_refused } = finished;
    let stream = BetweenStreams::new(client.stream);
    if is_refused {
        // It has sent everything, so that data queued for it would never be taken.
        drop(side);
        if owes_end {
            send(&*stream, FrameKind::End).await?;
        }
        tokio::select! {
            biased;
            () = stream.sent() => {}
            () = expiry::passed(expiry, &*stream) => {}
        }
        return Err(io::Error::other("the other side had ended and took no more"));
    }
    if has_refused {
        afterwards.is_refused();
    }
    if let Err((side, afterwards)) = finish_now(side, afterwards, is_delivered) {
        let end = async { if owes_end && !has_refused { send(&*stream, FrameKind::End).await } else { Ok(()) } };
        // The dialler has said END, so its data is delivered even if it has gone by now. At a transparent address only this
        // process can do that: dropping the connection resets it.
        let may_be_left = !side.has_transparent_address;
        let delivering = async {
            tokio::select! {
                biased;
                delivered = finish(side, afterwards, expiry) => delivered,
                () = abandoned(&*stream, place), if may_be_left => Err(io::ErrorKind::ConnectionAborted.into()),
            }
        };
        let (said, delivered) = Box::pin(async { tokio::join!(end, delivering) }).await;
        said.and(delivered)?;
    }
    if has_refused {
        // What was on its way to it may have been cut off in a frame, and it may read no more.
        drop(stream.into_inner());
        return Err(io::Error::other("the dialler had ended and took no more"));
    }
    send(&*stream, FrameKind::Delivered).await?;
    Ok(stream)
}

/// Completes when the dialler has gone, if as many streams as may be are already delivered without a dialler. The rest of this
/// stream is then left to the next node or the kernel. A dialler that has gone counts for no limit any more, so that it could
/// leave such streams behind without end.
async fn abandoned<P>(dialler: &impl Wire, place: impl Fn() -> Option<P>) {
    let _ = dialler.watch(true).await;
    if let Some(_one) = place() {
        pending().await
    }
}
