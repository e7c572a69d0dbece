//! One TCP connection of a tunnel: packets from its queue go out, and those that arrive go to the device.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::time::Duration;

use ekiden_net::socket;
use ekiden_net::tcp_info::tcp_info;
use ekiden_transport::Connection;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

use crate::decoder::{Decoder, Frame};
use crate::frame::{FrameError, HELLO_BYTES, Hello, KEEP_ALIVE, VERSION_BYTES};
use crate::queue::Outgoing;

/// Once the greeting is over, so many silent keep-alive times mean that the other end has gone.
const SILENCES: u32 = 4;
/// How often the limits follow the rate.
const ADAPT: Duration = Duration::from_millis(20);
/// The limit of unsent bytes holds what is sent in this time: long enough that the program is back in time.
const UNSENT_TIME: Duration = Duration::from_millis(2);
const UNSENT_MOST: u64 = 1 << 20;
/// What is written at a time when packets leave the queue as soon as the send buffer has room.
const PUSHED: usize = 64 << 10;
/// The most packets that are written at a time.
const PACKETS_MOST: usize = 64;
/// A super-packet goes whole if the connection delivers it in this time.
const WHOLE_TIME: Duration = Duration::from_micros(1500);

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
    let (first, rest) = bytes.split_at_mut(VERSION_BYTES);
    connection.receive_exact(first).await?;
    Hello::check_version(first.first_chunk().copied().unwrap_or_default())?;
    connection.receive_exact(rest).await?;
    Ok(Hello::decode(bytes))
}

/// Sends what waits for a connection.
pub struct Sender {
    /// How many bytes may be in the send buffer that were not sent. `None`: as many as it holds.
    unsent: Option<Unsent>,
    adapted: Cell<Instant>,
}

struct Unsent {
    limit: Cell<u64>,
    least: u64,
}

impl Sender {
    /// With `unsent`, a packet leaves the queue only when no more bytes than that have not been sent yet; on a fast path what is
    /// sent in two milliseconds.
    pub fn new(connection: &mut Connection, unsent: Option<u64>) -> io::Result<Self> {
        if let Some(least) = unsent {
            connection.keep_apart();
            socket::limit_unsent(connection.socket(), u32::try_from(least).unwrap_or(u32::MAX))?;
        }
        let unsent = unsent.map(|least| Unsent { limit: Cell::new(least), least });
        Ok(Self { unsent, adapted: Cell::new(Instant::now()) })
    }

    /// Sends packets as they come, and a keep-alive when none has come for so long. Returns with what ends the connection.
    pub async fn run(&self, connection: &Connection, queue: &Outgoing, keepalive: Duration) -> Result<(), CarryError> {
        let mut packets = Vec::new();
        loop {
            packets.clear();
            // Half of what may be unsent: the kernel asks for more when half of it has been sent.
            let most = self.unsent.as_ref().map_or(PUSHED, |unsent| (unsent.limit.get() / 2) as usize);
            let mut bytes = 0;
            while packets.is_empty() || bytes < most && packets.len() < PACKETS_MOST {
                let Some(packet) = queue.pop() else { break };
                bytes += packet.bytes;
                packets.push(packet);
            }
            if packets.is_empty() {
                if timeout(keepalive, queue.arrival()).await.is_err() {
                    connection.send_all(&KEEP_ALIVE).await?;
                }
                continue;
            }
            let mut frames: Vec<IoSlice<'_>> =
                packets.iter().map(|packet| IoSlice::new(packet.frame.bytes())).collect();
            connection.send_pieces(&mut frames).await?;
            self.adapt(connection, queue)?;
        }
    }

    /// Sets the limits by the rate at which the connection delivers, now and then.
    fn adapt(&self, connection: &Connection, queue: &Outgoing) -> io::Result<()> {
        let now = Instant::now();
        if now.duration_since(self.adapted.get()) < ADAPT {
            return Ok(());
        }
        self.adapted.set(now);
        let rate = tcp_info(connection.socket())?.delivery_bytes_s;
        let sent_in =
            |time: Duration| u64::try_from(u128::from(rate) * time.as_micros() / 1_000_000).unwrap_or(u64::MAX);
        queue.limit_whole(sent_in(WHOLE_TIME));
        match &self.unsent {
            Some(unsent) => unsent.set(connection, sent_in(UNSENT_TIME)),
            None => Ok(()),
        }
    }
}

impl Unsent {
    fn set(&self, connection: &Connection, held: u64) -> io::Result<()> {
        let limit = held.clamp(self.least, UNSENT_MOST.max(self.least));
        if limit != self.limit.get() {
            self.limit.set(limit);
            socket::limit_unsent(connection.socket(), u32::try_from(limit).unwrap_or(u32::MAX))?;
        }
        Ok(())
    }
}

/// Receives frames until the connection ends, and gives each to `take`, which says whether it is one.
pub async fn receive(
    connection: &Connection,
    mtu: u16,
    keepalive: Duration,
    mut take: impl AsyncFnMut(Frame<'_>) -> Result<(), CarryError>,
) -> Result<(), CarryError> {
    let mut decoder = Decoder::new(mtu);
    loop {
        let patience = keepalive * SILENCES;
        let room = decoder.room();
        let half = room.len() / 2;
        let received = timeout_at(Instant::now() + patience, connection.receive(room)).await;
        let bytes = match received.map_err(|_| CarryError::Silent(patience))?? {
            0 => return Err(CarryError::Closed),
            bytes => bytes,
        };
        decoder.filled(bytes);
        while let Some(frame) = decoder.next_frame()? {
            take(frame).await?;
        }
        // There is more, and others have waited.
        if bytes > half {
            yield_now().await;
        }
    }
}
