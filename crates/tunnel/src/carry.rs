//! One TCP connection of a tunnel: packets from its queue go out, and those that arrive go to the device.

use std::io::{self, IoSlice};
use std::time::Duration;

use ekiden_transport::{Connection, segments};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

use crate::control::{Control, Limits};
use crate::decoder::{Decoder, Frame};
use crate::frame::{FrameError, HEAD_OF_HELLO, Hello, KEEP_ALIVE, SILENCES, filling};
use crate::queue::Outgoing;

/// The maximum number of packets that are written at a time.
const PACKETS_MOST: usize = 64;

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
    /// The other node ended the connection, or went before it greeted.
    #[error("it closed the connection")]
    Closed,
    /// Nothing that this end sends arrives, although the other end is heard.
    #[error(
        "what this end sends has not arrived for 10 s or 14 round trips, and the other end is heard: the path drops large packets, or all of this \
         direction; the other end connects anew"
    )]
    Unheard,
    /// Nothing came for too long.
    #[error("no answer for {0:?}")]
    Silent(Duration),
}

/// Sends this side's greeting.
pub async fn send_hello(connection: &Connection, hello: &Hello) -> io::Result<()> {
    connection.send_all(&hello.encode()).await
}

/// Receives the other side's greeting. Before that, the other side may test whether full segments pass; if they do not, it
/// ends the connection without a greeting, which is [`CarryError::Closed`].
pub async fn receive_hello(connection: &Connection) -> Result<Hello, CarryError> {
    let mut head = [0; HEAD_OF_HELLO];
    connection.receive_exact(&mut head).await?;
    if let Some(filling) = filling(head) {
        let answered = async {
            connection.receive_exact(&mut vec![0; filling]).await?;
            segments::answer(connection).await?;
            connection.receive_exact(&mut head).await
        };
        answered.await.map_err(|_| CarryError::Closed)?;
    }
    let mut fields = vec![0; Hello::fields_bytes(head)?];
    connection.receive_exact(&mut fields).await?;
    Ok(Hello::decode(&fields)?)
}

/// Sends what waits for a connection, and a keep-alive after a silence of the keep-alive time. Returns what ends the
/// connection.
///
/// With `pull`, a packet leaves the queue only when fewer than `unsent` bytes have not been sent yet.
pub async fn send(
    connection: &Connection,
    queue: &Outgoing,
    limits: Limits,
    keepalive: Duration,
) -> Result<(), CarryError> {
    let control = Control::new(connection, limits)?;
    let mut packets = Vec::new();
    loop {
        if queue.is_empty() && timeout(keepalive, queue.arrival()).await.is_err() {
            connection.send_all(&KEEP_ALIVE).await?;
            continue;
        }
        // A packet leaves the queue only now: until then it can be dropped, marked and overtaken.
        let room = control.room(connection).await?;
        let mut bytes = 0;
        packets.clear();
        while bytes < room && packets.len() < PACKETS_MOST {
            let Some(packet) = queue.pop() else { break };
            bytes += packet.bytes;
            packets.push(packet);
        }
        let mut frames: Vec<IoSlice<'_>> = packets.iter().map(|packet| IoSlice::new(packet.frame.bytes())).collect();
        connection.send_pieces(&mut frames).await?;
        control.adapt(connection, queue)?;
    }
}

/// Receives frames until the connection ends, and gives each to `take`, which returns whether it is valid. `silence`: the
/// silence after which the other end sends a keep-alive.
pub async fn receive(
    connection: &Connection,
    mtu: u16,
    silence: Duration,
    mut take: impl AsyncFnMut(Frame<'_>) -> Result<(), CarryError>,
) -> Result<(), CarryError> {
    let mut decoder = Decoder::new(mtu);
    loop {
        let patience = silence * SILENCES;
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
        // There is more, but other tasks have waited.
        if bytes > half {
            yield_now().await;
        }
    }
}
