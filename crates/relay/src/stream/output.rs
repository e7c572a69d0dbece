//! Writing to a side of a stream from memory.

use ekiden_relay_proto::leg::{FrameKind, Header, MAX_DATA};
use ekiden_transport::Connection;

use crate::stream::framing::Framing;
use crate::stream::pump::PumpError;

/// Where a stream's bytes go.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    /// The connection.
    pub connection: &'a Connection,
    /// What is spoken on it.
    pub framing: Framing,
}

impl<'a> Output<'a> {
    /// To a host.
    pub fn raw(connection: &'a Connection) -> Self {
        Self { connection, framing: Framing::Raw }
    }

    /// Writes all of `bytes`.
    pub async fn write(self, bytes: &[u8]) -> Result<(), PumpError> {
        let written = async {
            if self.framing == Framing::Raw {
                return self.connection.send_all(bytes).await;
            }
            for piece in bytes.chunks(MAX_DATA as usize) {
                let mut frame = Header { kind: FrameKind::Data, length: piece.len() as u32 }.encode().to_vec();
                frame.extend(piece);
                self.connection.send_all(&frame).await?;
            }
            Ok(())
        };
        written.await.map_err(PumpError::Send)
    }
}
