//! Sending bytes that lie in several places.

use std::future::poll_fn;
use std::io::{self, IoSlice};

use ekiden_net::socket;
use tokio::io::Interest;

use super::{Connection, is_transient};

/// With TLS, shorter pieces are put together before they are encrypted: a record costs as much as some kilobytes.
const OWN_RECORD: usize = 16 << 10;

impl Connection {
    /// Sends all of `pieces`, one behind the other. Without TLS they are not copied.
    pub async fn send_pieces(&self, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        if self.tls.is_some() {
            return self.encrypt_pieces(pieces).await;
        }
        while !pieces.is_empty() {
            poll_fn(|cx| self.poll_write_ready(cx)).await?;
            let send = || socket::send_pieces(&self.socket, pieces);
            match self.socket.try_io(Interest::WRITABLE, send) {
                Ok(n) => IoSlice::advance_slices(&mut pieces, n),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn encrypt_pieces(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let mut short = Vec::new();
        for piece in pieces {
            if piece.len() < OWN_RECORD {
                short.extend_from_slice(piece);
            }
            if !short.is_empty() && (piece.len() >= OWN_RECORD || short.len() >= OWN_RECORD) {
                self.send_all(&short).await?;
                short.clear();
            }
            if piece.len() >= OWN_RECORD {
                self.send_all(piece).await?;
            }
        }
        self.send_all(&short).await
    }
}
