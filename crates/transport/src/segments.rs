//! How long the segments to a node may be. A path may drop long packets and say nothing.
//!
//! Where routers filter ICMP, handshakes pass and the first full segment is lost for ever (a black hole of path MTU discovery, RFC
//! 2923 §2.1). A kernel may look for that (RFC 4821, `net.ipv4.tcp_mtu_probing`), but does so for each connection anew, after seconds.
//! So whoever dials wants proof first: each side sends the other a frame that fills a segment. If that does not come about, connections
//! with shorter segments are tried beside, and the first that proves itself is taken. No connection is given up for that: the kernel may
//! find the way meanwhile.

use std::fmt::Display;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use ekiden_net::tcp_info::tcp_info;
use ekiden_relay_proto::leg::{FrameKind, Header, MAX_FILL, decode_failed};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, sleep_until};

use crate::connection::Connection;
use crate::frames::{invalid, read_frame};

/// The longest segments of an attempt: as both ends' devices have it; what fits every path of IPv6, 1,280 bytes with the headers (RFC
/// 8200 §5); what every host of IPv4 takes (RFC 9293 §3.7.1).
const LIMITS: [Option<u16>; 3] = [None, Some(1220), Some(536)];

/// So long, and so many round trips more, an answer may take before shorter segments are tried: by then the kernel has sent the segment
/// again two or three times, where its first pause is 200 ms.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_ROUNDS: u32 = 4;

/// How long a proof holds, and how long shorter segments are used before the longest are tried again (RFC 8899 §5.1.1: 600 s).
const PROVEN: Duration = Duration::from_secs(60);
const SHORTER: Duration = Duration::from_secs(600);

/// How long, and how many round trips more, shorter segments have to prove themselves once full ones have not: a node that answers
/// nothing holds up whoever knows another way no longer.
const PROOF: Duration = Duration::from_secs(4);
const PROOF_ROUNDS: u32 = 16;

/// A connection whose other end has proven its key, and what must be sent before the first request: as [`crate::dial`] returns them.
pub type Dialled = (Connection, Vec<u8>);

/// What is known of the path to a node. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Segments(Arc<Mutex<Known>>);

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Which of [`LIMITS`] has passed last.
    step: usize,
    until: Option<Instant>,
}

/// When a connection has to prove itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Each one.
    Always,
    /// If none has done so of late.
    WhenUnknown,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum Unproven<E> {
    /// Of the attempt itself.
    Attempt(E),
    /// The connection ended before the proof, or the other node broke the protocol.
    Broken(io::Error),
}

/// Full segments of so many bytes have not been answered for, on a connection with this round trip.
struct Stuck {
    bytes: u32,
    rtt: Duration,
}

/// A connection on which full segments have passed.
struct Passed {
    dialled: Dialled,
    step: usize,
    /// The payload of a full segment. `None`: it was not tried.
    bytes: Option<u32>,
}

impl Segments {
    /// Dials the node `name` by `attempt`, which is given the longest segment that it may ask for. It may be called again while an
    /// attempt goes on, and bounds its own time.
    ///
    /// # Errors
    /// Of the attempt that was the last to fail.
    pub async fn dial<E, F>(
        &self,
        name: &str,
        proof: Proof,
        attempt: impl Fn(Option<u16>) -> F,
    ) -> Result<Dialled, Unproven<E>>
    where
        F: Future<Output = Result<Dialled, E>>,
    {
        let known = self.known();
        let mut step = known.map_or(0, |known| known.step);
        if known.is_some() && proof == Proof::WhenUnknown {
            return attempt(LIMITS[step]).await.map_err(Unproven::Attempt);
        }
        let (stuck, mut stuck_at) = unbounded_channel();
        let (mut longest, mut end) = (0, None);
        let mut running = vec![Box::pin(prove(step, attempt(LIMITS[step]), stuck.clone()))];
        loop {
            tokio::select! {
                biased;
                (number, done) = first_of(&mut running) => match done {
                    Ok(passed) => {
                        self.learn(name, &passed, longest);
                        return Ok(passed.dialled);
                    }
                    Err(error) => {
                        drop(running.swap_remove(number));
                        if running.is_empty() {
                            return Err(error);
                        }
                    }
                },
                Some(Stuck { bytes, rtt }) = stuck_at.recv() => {
                    longest = longest.max(bytes);
                    end.get_or_insert_with(|| Instant::now() + PROOF + rtt * PROOF_ROUNDS);
                    let shorter = |step: &usize| LIMITS[*step].is_some_and(|limit| u32::from(limit) < bytes);
                    if let Some(next) = (step + 1..LIMITS.len()).find(shorter) {
                        step = next;
                        running.push(Box::pin(prove(step, attempt(LIMITS[step]), stuck.clone())));
                    }
                }
                () = reaches(end) => {
                    return Err(Unproven::Broken(io::Error::other("it is reached, but no full segments pass to it and back")));
                }
            }
        }
    }

    /// The longest segments that connections ask for, TCP's options among them, if the path drops longer ones.
    pub fn limit(&self) -> Option<u16> {
        self.known().and_then(|known| LIMITS[known.step])
    }

    /// From now on nothing is known: a connection has failed, and the path may be another one.
    pub fn forget(&self) {
        self.lock().until = None;
    }

    fn known(&self) -> Option<Known> {
        Some(*self.lock()).filter(|known| known.until.is_some_and(|until| Instant::now() < until))
    }

    /// `longest`: segments of so many bytes have not passed on connections beside this one.
    fn learn(&self, name: &str, passed: &Passed, longest: u32) {
        let Passed { step, bytes: Some(bytes), .. } = *passed else { return };
        let known = self.known();
        let before = *self.lock();
        // The longest are tried again in time, however often connections come and go meanwhile.
        if step == 0 || known.is_none_or(|known| known.step != step) {
            *self.lock() = Known { step, until: Some(Instant::now() + if step == 0 { PROVEN } else { SHORTER }) };
        }
        match step {
            0 if before.step > 0 => tracing::info!("{name}: segments of {bytes} bytes arrive on the path to it again"),
            _ if longest > bytes => tracing::warn!("{}", told(name, longest, bytes)),
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn told(name: &str, longest: u32, bytes: u32) -> impl Display {
    format!(
        "{name}: on the path to it segments of {longest} bytes do not arrive, and those of {bytes} bytes do: something on it drops longer \
         packets and says nothing (a black hole of path MTU discovery). New connections to it have the shorter ones for {} minutes; \
         routers on the path must let ICMP's \"fragmentation needed\" and \"packet too big\" through",
        SHORTER.as_secs() / 60
    )
}

/// Answers FILL: as many bytes as fill a segment of this side.
///
/// # Errors
/// The connection's.
pub async fn answer(connection: &Connection) -> io::Result<()> {
    connection.send_all(&fill(tcp_info(connection.socket())?.mss_bytes)).await
}

fn fill(segment: u32) -> Vec<u8> {
    Header::frame(FrameKind::Fill, &vec![0; segment.clamp(1, MAX_FILL) as usize])
}

/// Completes when full segments have passed on the connection that `attempt` makes. Tells `stuck` if that takes long.
async fn prove<E>(
    step: usize,
    attempt: impl Future<Output = Result<Dialled, E>>,
    stuck: UnboundedSender<Stuck>,
) -> Result<Passed, Unproven<E>> {
    let (connection, prelude) = attempt.await.map_err(Unproven::Attempt)?;
    if is_on_this_host(&connection) {
        return Ok(Passed { dialled: (connection, prelude), step, bytes: None });
    }
    let info = tcp_info(connection.socket()).map_err(Unproven::Broken)?;
    let bytes = info.mss_bytes;
    let rtt = Duration::from_micros(info.rtt_us.into());
    let tell = async || {
        sleep(PATIENCE + rtt * PATIENCE_ROUNDS).await;
        // Nobody listens any more if another connection was taken.
        let _ = stuck.send(Stuck { bytes, rtt });
    };
    let exchange = exchange(&connection, [prelude, fill(bytes)].concat());
    beside(exchange, tell()).await.map_err(Unproven::Broken)?;
    Ok(Passed { dialled: (connection, Vec::new()), step, bytes: Some(bytes) })
}

/// Completes at that time, and never without one.
async fn reaches(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end.into()).await,
        None => pending().await,
    }
}

/// What `first` gives, with `other` run beside it.
async fn beside<F: Future>(first: F, other: impl Future<Output = ()>) -> F::Output {
    let (mut first, mut other) = (pin!(first), pin!(other));
    tokio::select! {
        done = &mut first => done,
        () = &mut other => first.await,
    }
}

/// Nothing is dropped on the way then. In this module's tests the loopback stands for a path.
fn is_on_this_host(connection: &Connection) -> bool {
    !cfg!(test) && connection.socket().peer_addr().is_ok_and(|far| far.ip().to_canonical().is_loopback())
}

async fn exchange(connection: &Connection, first: Vec<u8>) -> io::Result<()> {
    connection.send_all(&first).await?;
    match read_frame(connection).await? {
        (FrameKind::Fill, _) => Ok(()),
        (FrameKind::Failed, body) => Err(invalid(decode_failed(&body).map_err(invalid)?.text)),
        (other, _) => Err(invalid(format_args!("{other:?} where FILL was due"))),
    }
}

/// The first that completes, and which it was.
async fn first_of<F: Future>(running: &mut [Pin<Box<F>>]) -> (usize, F::Output) {
    poll_fn(|cx| {
        for (number, one) in running.iter_mut().enumerate() {
            if let Poll::Ready(done) = one.as_mut().poll(cx) {
                return Poll::Ready((number, done));
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests;
