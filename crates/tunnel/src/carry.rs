//! One TCP connection of a tunnel: packets from its queue go out, and those that arrive go to the device.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use ekiden_net::socket;
use ekiden_net::tcp_info::tcp_info;
use ekiden_transport::Connection;
use tokio::io::Interest;
use tokio::time::{Instant, timeout, timeout_at};

use crate::frame::{Decoder, FrameError, HELLO_BYTES, Hello, KEEP_ALIVE, encode};
use crate::queue::Outgoing;

/// Once the greeting is over, so many silent keep-alive times mean that the other end has gone.
const SILENCES: u32 = 4;
/// How often the limit of unsent bytes follows the rate.
const ADAPT: Duration = Duration::from_millis(100);
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
    /// How many bytes may be in the send buffer that were not sent. `None`: as many as it holds.
    unsent: Option<Unsent>,
}

struct Unsent {
    limit: Cell<u64>,
    least: u64,
    adapted: Cell<Instant>,
}

impl Sender {
    /// With `unsent`, a packet leaves the queue only when no more bytes than that have not been sent yet; on a fast path what is
    /// sent in two milliseconds.
    pub fn new(connection: &Connection, unsent: Option<u64>) -> io::Result<Self> {
        if let Some(least) = unsent {
            socket::limit_unsent(connection.socket(), u32::try_from(least).unwrap_or(u32::MAX))?;
        }
        let unsent = unsent.map(|least| Unsent { limit: Cell::new(least), least, adapted: Cell::new(Instant::now()) });
        Ok(Self { unsent })
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
            if let Some(unsent) = &self.unsent {
                unsent.adapt(connection)?;
            }
        }
    }

    /// Waits until the connection may be given more, and returns how many bytes.
    async fn room(&self, connection: &Connection) -> io::Result<usize> {
        let Some(Unsent { limit, .. }) = &self.unsent else { return Ok(PUSHED) };
        let socket = connection.socket();
        let unsent = || match socket::is_writable(socket)? {
            true => Ok(socket::unsent(socket)),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        let unsent = socket.async_io(Interest::WRITABLE, unsent).await?;
        Ok(limit.get().saturating_sub(unsent).max(1) as usize)
    }
}

impl Unsent {
    /// Sets the limit by the rate at which the connection delivers, now and then.
    fn adapt(&self, connection: &Connection) -> io::Result<()> {
        let now = Instant::now();
        if now.duration_since(self.adapted.get()) < ADAPT {
            return Ok(());
        }
        self.adapted.set(now);
        let rate = tcp_info(connection.socket())?.delivery_bytes_s;
        let held = u128::from(rate) * UNSENT_TIME.as_micros() / 1_000_000;
        let most = UNSENT_MOST.max(self.least);
        let limit = u64::try_from(held).unwrap_or(most).clamp(self.least, most);
        if limit != self.limit.get() {
            self.limit.set(limit);
            socket::limit_unsent(connection.socket(), u32::try_from(limit).unwrap_or(u32::MAX))?;
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
