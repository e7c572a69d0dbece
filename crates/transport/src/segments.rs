//! The maximum length of segments to a node. A path may silently drop long packets.
//!
//! Where routers filter ICMP, handshakes pass and the first full segment is lost for ever (a black hole of path MTU
//! discovery, RFC 2923 §2.1). A kernel may look for that (RFC 4821, `net.ipv4.tcp_mtu_probing`), but does so for each
//! connection anew, after seconds. So the dialler wants proof first: each side sends the other a frame that fills a segment.
//! If no proof comes, connections with shorter segments are tried in parallel, and the first that proves itself is taken. No
//! connection is given up for that: the kernel may find the way meanwhile. An outage looks the same. So connections without
//! proof go on beside the one that is taken: only if their retransmissions fail too, the path counts as dropping long
//! segments.
//!
//! Legs and tunnels share this. The dialler asks, in `peer/dial.rs` of crate `relay` and `node/dial.rs` of crate `tunnel`;
//! `serve/leg.rs` and `carry.rs` there answer.

use std::fmt::Display;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_net::mtu_probing::{BEGINS_SHORT, mtu_probing};
use ekiden_net::tcp_info::tcp_info;
use ekiden_relay_proto::leg::{FrameKind, Header, MAX_FILL, decode_failed};
use tokio::time::{sleep, sleep_until, timeout};

use crate::connection::Connection;
use crate::first_of::first_of;
use crate::frames::{invalid, read_frame};

/// The maximum segments of the attempts: as both ends' devices have it; what fits every path of IPv6, 1,280 bytes with the
/// headers (RFC 8200 §5); what every host of IPv4 takes (RFC 9293 §3.7.1).
const LIMITS: [Option<u16>; 3] = [None, Some(1220), Some(536)];

/// The delay before shorter segments are tried, and the round trips that are added to it: by then the kernel has
/// retransmitted the segment two or three times, starting after 200 ms.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_ROUNDS: u32 = 4;

/// How long a proof holds, and how long shorter segments are used before the longest are tried again (RFC 8899 §5.1.1: 600 s).
const PROVEN: Duration = Duration::from_secs(60);
const SHORTER: Duration = Duration::from_secs(600);

/// The timeout of the proof with shorter segments, after that of full ones, and the round trips that are added to it: a node
/// that answers nothing then no longer delays a caller that knows another way.
const PROOF: Duration = Duration::from_secs(4);
const PROOF_ROUNDS: u32 = 16;

/// The interval at which a caller checks whether something is known for sure.
const SETTLED_STEP: Duration = Duration::from_millis(50);

/// A connection whose other end has proven its key, and the bytes to send before the first request: as [`crate::dial`]
/// returns them.
pub type Dialled = (Connection, Vec<u8>);

/// What is known about the path to a node. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Segments(Arc<Mutex<Known>>);

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The index of the last of [`LIMITS`] that has passed.
    step: usize,
    until: Option<Instant>,
    /// Whether longer ones are known not to pass. Until then an outage may explain what was seen.
    is_sure: bool,
}

/// When a connection has to prove itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Each one.
    Always,
    /// Only if none has done so lately.
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

/// A connection, and the payload of the longest segment that has arrived.
type Arrived = (Connection, u32);

/// A connection on which full segments are under way.
struct Trial {
    step: usize,
    /// The payload of the longest segment that either end may send, as far as this end knows.
    bytes: u32,
    /// That of this end's full segment.
    own: u32,
    rtt: Duration,
    since: Instant,
    passed: Pin<Box<dyn Future<Output = io::Result<Arrived>> + Send>>,
}

/// The result of an attempt.
enum Attempted {
    /// Nothing is to be proven.
    Done(Dialled),
    Begun(Trial),
}

impl Trial {
    /// The time for an answer: by then the kernel has retransmitted a lost segment.
    fn patience(&self) -> Duration {
        PATIENCE + self.rtt * PATIENCE_ROUNDS
    }
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
        let mut attempts = vec![Box::pin(begin(step, attempt(LIMITS[step])))];
        let mut trials: Vec<Trial> = Vec::new();
        // When the last of them counts as stuck, and when the node is given up.
        let (mut stuck_at, mut end) = (None, None);
        loop {
            let error = tokio::select! {
                biased;
                (number, passed) = first_of(&mut trials, |trial| trial.passed.as_mut()) => {
                    let trial = trials.swap_remove(number);
                    match passed {
                        Ok((connection, bytes)) => {
                            self.passed(name, (trial.step, bytes), trials);
                            return Ok((connection, Vec::new()));
                        }
                        Err(error) => Unproven::Broken(error),
                    }
                },
                (number, attempted) = first_of(&mut attempts, |attempt| attempt.as_mut()) => {
                    drop(attempts.swap_remove(number));
                    match attempted {
                        Ok(Attempted::Done(dialled)) => return Ok(dialled),
                        Ok(Attempted::Begun(trial)) => {
                            stuck_at = Some(trial.since + trial.patience());
                            trials.push(trial);
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                () = reaches(stuck_at) => {
                    stuck_at = None;
                    let Some(last) = trials.last() else { continue };
                    end.get_or_insert_with(|| Instant::now() + PROOF + last.rtt * PROOF_ROUNDS);
                    let shorter = |step: &usize| LIMITS[*step].is_some_and(|limit| u32::from(limit) < last.bytes);
                    if let Some(next) = (step + 1..LIMITS.len()).find(shorter) {
                        step = next;
                        attempts.push(Box::pin(begin(step, attempt(LIMITS[step]))));
                    }
                    continue;
                }
                () = reaches(end) => {
                    return Err(Unproven::Broken(io::Error::other("it is reached, but no full segments pass to it and back")));
                }
            };
            if attempts.is_empty() && trials.is_empty() {
                return Err(error);
            }
        }
    }

    /// The longest segments that connections ask for, TCP's options among them, if the path drops longer ones.
    pub fn limit(&self) -> Option<u16> {
        self.known().filter(|known| known.is_sure).and_then(|known| LIMITS[known.step])
    }

    /// Completes when it is known whether the path drops segments longer than those that have passed, or only was down for a
    /// while.
    pub async fn settled(&self) {
        while self.known().is_some_and(|known| !known.is_sure) {
            sleep(SETTLED_STEP).await;
        }
    }

    /// Forgets everything: a connection has failed, and the path may be another one.
    pub fn forget(&self) {
        self.lock().until = None;
    }

    /// A connection to the node has ended or broken: it has to be proven again that full segments pass. What is known of
    /// shorter ones stays.
    pub fn doubt(&self) {
        let mut known = self.lock();
        if known.step == 0 {
            known.until = None;
        }
    }

    fn known(&self) -> Option<Known> {
        Some(*self.lock()).filter(|known| known.until.is_some_and(|until| Instant::now() < until))
    }

    /// Segments with `bytes` of payload have passed on a connection; `others` are still under way.
    fn passed(&self, name: &str, (step, bytes): (usize, u32), others: Vec<Trial>) {
        let longer: Vec<Trial> = others.into_iter().filter(|other| other.step < step).collect();
        if longer.is_empty() {
            return self.learn(name, step, bytes);
        }
        // A retransmission that is lost again is not lost in an outage that is over: the timeouts double, so the next one
        // ends within as much time as has passed.
        let wait = longer.iter().map(|other| other.since.elapsed() + other.patience()).max().unwrap_or_default();
        *self.lock() = Known { step, until: Some(Instant::now() + wait + SETTLED_STEP * 2), is_sure: false };
        let (segments, name) = (self.clone(), name.to_owned());
        tokio::spawn(async move { segments.settle(&name, (step, bytes), longer, wait).await });
    }

    /// Finds out whether segments longer than those that have passed do not pass: they have the time `wait` to do so.
    async fn settle(&self, name: &str, (step, bytes): (usize, u32), mut longer: Vec<Trial>, wait: Duration) {
        let full = longer.iter().map(|trial| trial.own).max().unwrap_or_default();
        let passes = async {
            while !longer.is_empty() {
                let (number, passed) = first_of(&mut longer, |trial| trial.passed.as_mut()).await;
                let trial = longer.swap_remove(number);
                if let Ok((_, bytes)) = passed {
                    return Some((trial.step, bytes));
                }
            }
            None
        };
        match timeout(wait, passes).await {
            Ok(Some((0, bytes))) => self.learn(name, 0, bytes),
            // Those in between pass, or all connections have broken, which says nothing.
            Ok(_) => self.forget(),
            Err(_) => {
                let now_known = Known { step, until: Some(Instant::now() + SHORTER), is_sure: true };
                let before = std::mem::replace(&mut *self.lock(), now_known);
                if !before.is_sure || before.step != step {
                    tracing::warn!("{}", told(name, full, bytes));
                }
            }
        }
    }

    /// Full segments of this step have passed, and none that are longer are under way. The longest are tried again after a
    /// time, however often connections with shorter ones come and go meanwhile.
    fn learn(&self, name: &str, step: usize, bytes: u32) {
        if step > 0 {
            return;
        }
        let now_known = Known { step, until: Some(Instant::now() + PROVEN), is_sure: true };
        let before = std::mem::replace(&mut *self.lock(), now_known);
        if before.step > 0 && before.is_sure {
            tracing::info!("{name}: segments of {bytes} bytes arrive on the path to it again");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `full` is the length of this end's full segments on the connections without proof, `bytes` that of the segments that have
/// passed.
fn told(name: &str, full: u32, bytes: u32) -> impl Display {
    // This end does not know the length of the other end's segments that did not arrive.
    let lost = if full > bytes { full.to_string() } else { format!("more than {bytes}") };
    format!(
        "{name}: on the path to it segments of {lost} bytes do not arrive, and those of {bytes} bytes do: something on it drops longer \
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

/// Begins to prove the connection that `attempt` makes.
async fn begin<E>(step: usize, attempt: impl Future<Output = Result<Dialled, E>>) -> Result<Attempted, Unproven<E>> {
    let (connection, prelude) = attempt.await.map_err(Unproven::Attempt)?;
    if is_on_this_host(&connection) {
        return Ok(Attempted::Done((connection, prelude)));
    }
    let info = tcp_info(connection.socket()).map_err(Unproven::Broken)?;
    let own = info.mss_bytes;
    // A kernel that looks for the path's MTU by itself begins with short segments at the end that dials. The other end may
    // begin with full ones, up to what this one has advertised. Otherwise both ends' full segments are equally long,
    // whatever either has advertised.
    let bytes = if mtu_probing() == BEGINS_SHORT { own.max(info.advertised_mss_bytes) } else { own };
    let rtt = Duration::from_micros(info.rtt_us.into());
    let passed = Box::pin(async move {
        let (connection, far) = exchange(connection, [prelude, fill(own)].concat()).await?;
        Ok((connection, far.clamp(own, bytes)))
    });
    Ok(Attempted::Begun(Trial { step, bytes, own, rtt, since: Instant::now(), passed }))
}

/// Completes at that time; never if it is `None`.
async fn reaches(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end.into()).await,
        None => pending().await,
    }
}

/// Nothing is dropped on the way then. In this module's tests the loopback is used as a path.
fn is_on_this_host(connection: &Connection) -> bool {
    !cfg!(test) && connection.socket().peer_addr().is_ok_and(|far| far.ip().to_canonical().is_loopback())
}

/// Returns the length of the other end's full segment.
async fn exchange(connection: Connection, first: Vec<u8>) -> io::Result<(Connection, u32)> {
    connection.send_all(&first).await?;
    match read_frame(&connection).await? {
        (FrameKind::Fill, length) => {
            let length = length.try_into().map_err(|_| invalid("FILL without its length"))?;
            Ok((connection, u32::from_be_bytes(length)))
        }
        (FrameKind::Failed, body) => Err(invalid(decode_failed(&body).map_err(invalid)?.text)),
        (other, _) => Err(invalid(format_args!("{other:?} where FILL was due"))),
    }
}

#[cfg(test)]
mod tests;
