//! How much a connection is given at a time, and how fast it sends.
//!
//! It also decides which super-packets go whole. The pacing itself is crate `link`'s.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ekiden_net::clock::monotonic_ns;
use ekiden_net::socket;
use ekiden_net::tcp_info::tcp_info;
use ekiden_queue::Pull as PullSettings;
use ekiden_queue::{LOOKING, Pacing, PathSeen, Siblings};
use ekiden_transport::Connection;
use ekiden_units::{BitRate, Time};
use tokio::io::Interest;

use crate::queue::Outgoing;

/// The limit of unsent bytes holds what is sent in this time: long enough that the program is back in time.
const UNSENT_TIME: Duration = Duration::from_millis(2);
const UNSENT_MOST: u64 = 1 << 20;
/// What is written at a time when packets leave the queue as soon as the send buffer has room.
const PUSHED: usize = 64 << 10;
/// A super-packet goes whole if the connection delivers it in this time.
const WHOLE_TIME: Duration = Duration::from_micros(1500);

/// What a configuration says of it, and the connections beside it.
#[derive(Debug, Clone)]
pub struct Limits {
    /// `None`: drop tail.
    pub pull: Option<PullSettings>,
    /// The most that the connection sends in any case.
    pub rate: Option<BitRate>,
    /// Those to the same peer, with this one.
    pub siblings: Arc<Siblings>,
}

/// Decides both for one connection.
pub struct Control {
    /// In bytes per second.
    rate_most: u64,
    looked: Cell<Time>,
    /// `None`: packets leave the queue while the send buffer has room, and nothing paces the connection.
    pull: Option<Pull>,
}

struct Pull {
    /// How many bytes may be in the send buffer that were not sent: at least, and now.
    least: u64,
    limit: Cell<u64>,
    paced: Option<Paced>,
}

struct Paced {
    pacing: RefCell<Pacing>,
    rate: Cell<Option<u64>>,
}

impl Control {
    /// For a connection that begins.
    pub fn new(connection: &Connection, limits: Limits) -> io::Result<Self> {
        let rate_most = limits.rate.map_or(u64::MAX, |rate| rate.0 / 8);
        let is_paced = limits.pull.is_some_and(|pull| pull.paced);
        if limits.rate.is_some() {
            socket::limit_rate(connection.socket(), rate_most)?;
        }
        let pull = limits.pull.map(|settings| {
            let least = settings.unsent.0;
            set_unsent(connection, least)?;
            let (pacing, rate) = (RefCell::new(Pacing::new(limits.siblings)), Cell::default());
            let paced = is_paced.then_some(Paced { pacing, rate });
            Ok::<_, io::Error>(Pull { least, limit: Cell::new(least), paced })
        });
        Ok(Self { rate_most, looked: Cell::new(Time(monotonic_ns())), pull: pull.transpose()? })
    }

    /// Waits until the connection may be given more, and returns how many bytes.
    pub async fn room(&self, connection: &Connection) -> io::Result<usize> {
        let Some(Pull { limit, .. }) = &self.pull else { return Ok(PUSHED) };
        let socket = connection.socket();
        let unsent = || match socket::is_writable(socket)? {
            true => Ok(socket::unsent(socket)),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        let unsent = socket.async_io(Interest::WRITABLE, unsent).await?;
        // One packet in any case.
        Ok(limit.get().saturating_sub(unsent).max(1) as usize)
    }

    /// Looks at the connection now and then, and sets the limits.
    pub fn adapt(&self, connection: &Connection, queue: &Outgoing) -> io::Result<()> {
        let now = Time(monotonic_ns());
        if let Some(paced) = self.pull.as_ref().and_then(|pull| pull.paced.as_ref()) {
            paced.pacing.borrow_mut().waiting(now, !queue.is_empty());
        }
        if now < self.looked.get() + LOOKING {
            return Ok(());
        }
        self.looked.set(now);
        let info = tcp_info(connection.socket())?;
        let sent_in = |time: Duration| {
            u64::try_from(u128::from(info.delivery_bytes_s) * time.as_micros() / 1_000_000).unwrap_or(u64::MAX)
        };
        queue.limit_whole(sent_in(WHOLE_TIME));
        let Some(Pull { least, limit, paced }) = &self.pull else { return Ok(()) };
        let held = sent_in(UNSENT_TIME).clamp(*least, UNSENT_MOST.max(*least));
        if held != limit.replace(held) {
            set_unsent(connection, held)?;
        }
        let Some(paced) = paced else { return Ok(()) };
        let full = |segments: u32| u64::from(segments) * u64::from(info.mss_bytes);
        let seen = PathSeen {
            rtt: Time(u64::from(info.rtt_us) * 1_000),
            acked: info.acked_bytes + full(info.sacked_segments),
            arrived: full(info.delivered_segments),
            retransmits: info.retransmits.into(),
            in_flight: full(info.unacked_segments.saturating_sub(info.sacked_segments)),
        };
        let decided = paced.pacing.borrow_mut().look(now, seen);
        if decided != paced.rate.replace(decided) {
            socket::limit_rate(connection.socket(), decided.unwrap_or(u64::MAX).min(self.rate_most))?;
        }
        Ok(())
    }
}

fn set_unsent(connection: &Connection, bytes: u64) -> io::Result<()> {
    socket::limit_unsent(connection.socket(), u32::try_from(bytes).unwrap_or(u32::MAX))
}
