//! One TCP connection of a tunnel: packets from its queue go out, and those that arrive go to the device.

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;

use ekiden_net::socket;
use ekiden_net::tcp_info::tcp_info;
use ekiden_transport::Connection;
use tokio::io::Interest;
use tokio::time::{Instant, timeout, timeout_at};

use crate::frame::{Decoder, FrameError, HELLO_BYTES, Hello, KEEP_ALIVE, encode};
use crate::pacing::{LOOKING, Pacing, Seen};
use crate::queue::Outgoing;

/// Once the greeting is over, so many silent keep-alive times mean that the other end has gone.
const SILENCES: u32 = 4;
/// The limit of unsent bytes holds what is sent in this time: long enough that the program is back in time.
const UNSENT_TIME: Duration = Duration::from_millis(2);
const UNSENT_MOST: u64 = 1 << 20;
/// What is written at a time when packets leave the queue as soon as the send buffer has room.
const PUSHED: usize = 64 << 10;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    /// It broke, or the other node closed it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The other node breaks the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It sent something that is no packet.
    #[error("a frame that holds no IP packet")]
    NoPacket,
    /// The other node ended the connection.
    #[error("it closed the connection")]
    Closed,
    /// Nothing came for too long.
    #[error("no answer for {0:?}")]
    Silent(Duration),
}

/// Says what this side says first.
pub async fn send_hello(connection: &Connection, hello: Hello) -> io::Result<()> {
    connection.send_all(&hello.encode()).await
}

/// Takes what the other side says first.
pub async fn receive_hello(connection: &Connection) -> Result<Hello, CarryError> {
    let mut bytes = [0; HELLO_BYTES];
    connection.receive_exact(&mut bytes).await?;
    Ok(Hello::decode(bytes)?)
}

/// Sends what waits for a connection.
pub struct Sender {
    /// `None`: packets leave the queue while the send buffer has room.
    pull: Option<Puller>,
}

/// When packets leave the queue of a connection, and how fast the connection sends.
struct Puller {
    /// How many bytes may be in the send buffer that were not sent: the least there may be, and now.
    least: u64,
    limit: Cell<u64>,
    begin: Instant,
    looked: Cell<Instant>,
    pacing: RefCell<Option<Pacing>>,
    rate: Cell<Option<u64>>,
}

impl Sender {
    /// With `unsent`, a packet leaves the queue only when no more bytes than that have not been sent yet; on a fast path what is
    /// sent in two milliseconds.
    pub fn new(connection: &Connection, unsent: Option<u64>) -> io::Result<Self> {
        Ok(Self { pull: unsent.map(|least| Puller::new(connection, least)).transpose()? })
    }

    /// Sends packets as they come, and a keep-alive when none has come for so long. Returns with what ends the connection.
    pub async fn run(&self, connection: &Connection, queue: &Outgoing, keepalive: Duration) -> Result<(), CarryError> {
        let mut frames = Vec::new();
        loop {
            frames.clear();
            if queue.is_empty() && timeout(keepalive, queue.arrival()).await.is_err() {
                frames.extend(KEEP_ALIVE);
            } else {
                // Only then does a packet leave the queue: until then it can be dropped, marked and overtaken.
                let room = self.room(connection).await?;
                while frames.len() < room {
                    let Some(packet) = queue.pop() else { break };
                    encode(&packet.bytes, &mut frames);
                }
            }
            connection.send_all(&frames).await?;
            if let Some(pull) = &self.pull {
                pull.adapt(connection, !queue.is_empty())?;
            }
        }
    }

    /// Waits until the connection may be given more, and returns how many bytes.
    async fn room(&self, connection: &Connection) -> io::Result<usize> {
        let Some(Puller { limit, .. }) = &self.pull else { return Ok(PUSHED) };
        let socket = connection.socket();
        let unsent = || match socket::is_writable(socket)? {
            true => Ok(socket::unsent(socket)),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        let unsent = socket.async_io(Interest::WRITABLE, unsent).await?;
        Ok(limit.get().saturating_sub(unsent).max(1) as usize)
    }
}

impl Puller {
    fn new(connection: &Connection, least: u64) -> io::Result<Self> {
        let socket = connection.socket();
        socket::limit_unsent(socket, u32::try_from(least).unwrap_or(u32::MAX))?;
        // The kernel spreads what it sends from now on.
        socket::limit_rate(socket, u64::MAX)?;
        let now = Instant::now();
        let (limit, looked, pacing, rate) = (Cell::new(least), Cell::new(now), RefCell::default(), Cell::default());
        Ok(Self { least, limit, begin: now, looked, pacing, rate })
    }

    /// Looks at the connection now and then, and sets its limits.
    fn adapt(&self, connection: &Connection, is_awaited: bool) -> io::Result<()> {
        let now = Instant::now();
        if now.duration_since(self.looked.get()) < LOOKING {
            return Ok(());
        }
        self.looked.set(now);
        let socket = connection.socket();
        let info = tcp_info(socket)?;
        let seen = Seen {
            rtt: Duration::from_micros(info.rtt_us.into()),
            rtt_min: Duration::from_micros(info.rtt_min_us.into()),
            delivered: u64::from(info.delivered_segments) * u64::from(info.mss_bytes),
            least: 4.0 * f64::from(info.mss_bytes),
            is_awaited,
        };
        let now = now - self.begin;
        let rate = self.pacing.borrow_mut().get_or_insert_with(|| Pacing::new(now, seen)).look(now, seen);
        if rate != self.rate.get() {
            self.rate.set(rate);
            socket::limit_rate(socket, rate.unwrap_or(u64::MAX))?;
        }
        if std::env::var_os("PACELOG").is_some() { use std::io::Write as _; if let Ok(mut f)=std::fs::OpenOptions::new().append(true).create(true).open(format!("/tmp/pace.{}",std::process::id())) { let _ = writeln!(f,"PACE {:.2} rtt {} min {} del {} cwnd {} una {} unsent {} re {} {} -> {:?}", now.as_secs_f64(), info.rtt_us, info.rtt_min_us, info.delivery_bytes_s*8/1000, info.cwnd_segments, info.unacked_segments, info.unsent_bytes, info.retransmits, is_awaited, self.pacing.borrow()); } }
        let held = u128::from(info.delivery_bytes_s) * UNSENT_TIME.as_micros() / 1_000_000;
        let most = UNSENT_MOST.max(self.least);
        let limit = u64::try_from(held).unwrap_or(most).clamp(self.least, most);
        if limit != self.limit.get() {
            self.limit.set(limit);
            socket::limit_unsent(socket, u32::try_from(limit).unwrap_or(u32::MAX))?;
        }
        Ok(())
    }
}

/// Receives packets until the connection ends, and gives each to `take`, which says whether it is one.
pub async fn receive(
    connection: &Connection,
    mtu: u16,
    keepalive: Duration,
    mut take: impl AsyncFnMut(&mut [u8]) -> Result<(), CarryError>,
) -> Result<(), CarryError> {
    let (mut decoder, mut buffer) = (Decoder::new(mtu), vec![0; 64 << 10]);
    loop {
        let patience = keepalive * SILENCES;
        let received = timeout_at(Instant::now() + patience, connection.receive(&mut buffer)).await;
        match received.map_err(|_| CarryError::Silent(patience))?? {
            0 => return Err(CarryError::Closed),
            bytes => decoder.push(buffer.get(..bytes).unwrap_or_default()),
        }
        while let Some(packet) = decoder.next_packet()? {
            take(packet).await?;
        }
    }
}
