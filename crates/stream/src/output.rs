//! Writing to a side of a stream from memory.

use ekiden_relay_proto::leg::{FrameKind, Header, MAX_DATA};
use ekiden_transport::wire::{self, Wire};

use crate::framing::Framing;
use crate::pump::PumpError;

/// Where a stream's bytes go.
#[derive(Debug)]
pub struct Output<'a, W> {
    /// The connection.
    pub connection: &'a W,
    /// What is spoken on it.
    pub framing: Framing,
}

impl<W> Clone for Output<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Output<'_, W> {}

impl<'a, W: Wire> Output<'a, W> {
    /// To a host.
    pub fn raw(connection: &'a W) -> Self {
        Self { connection, framing: Framing::Raw }
    }

    /// Writes all of `bytes`.
    pub async fn write(self, bytes: &[u8]) -> Result<(), PumpError> {
        let written = async {
            if self.framing == Framing::Raw {
                return wire::send_all(self.connection, bytes).await;
            }
            for piece in bytes.chunks(MAX_DATA as usize) {
                let mut frame = Header { kind: FrameKind::Data, length: piece.len() as u32 }.encode().to_vec();
                frame.extend(piece);
                wire::send_all(self.connection, &frame).await?;
            }
            Ok(())
        };
        written.await.map_err(PumpError::Send)
    }
}
