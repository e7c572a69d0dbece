//! Records that were encrypted, until the socket has taken them.

use std::cell::Cell;

use rustls::Error;
use rustls::unbuffered::InsufficientSizeError;

use super::ENCRYPTED_PIECE;
use crate::budget::{self, Room};

thread_local! {
    /// A free buffer for the next session that encrypts something.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Encrypted records that are to be sent.
#[derive(Default)]
pub struct Encrypted {
    pub bytes: Vec<u8>,
    /// Of `bytes`, the first `filled` are in use and the first `sent` have been sent.
    pub sent: usize,
    pub filled: usize,
}

impl Encrypted {
    /// Lets `write` append a record. If `write` asks for more room, it gets it and is called once more.
    pub fn fill(
        &mut self,
        mut write: impl FnMut(&mut [u8]) -> Result<Result<usize, InsufficientSizeError>, Error>,
    ) -> Result<(), Error> {
        let usual = if budget::room() == Room::Plenty { ENCRYPTED_PIECE } else { 0 };
        if self.bytes.is_empty() && usual > 0 {
            self.bytes = SPARE.take();
        }
        let mut written = write(&mut self.bytes[self.filled..])?;
        if let Err(InsufficientSizeError { required_size }) = written {
            self.bytes.resize((self.filled + required_size).max(usual), 0);
            written = write(&mut self.bytes[self.filled..])?;
        }
        self.filled += written.map_err(|_| Error::EncryptError)?;
        Ok(())
    }

    /// Leaves its buffer to the next session: all has been sent.
    pub fn free(self) {
        SPARE.set(self.bytes);
    }
}
