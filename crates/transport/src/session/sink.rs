//! Where decrypted bytes go.

/// Receives decrypted bytes.
pub struct Sink<'a> {
    buffer: &'a mut [u8],
    pub filled: usize,
    /// Takes what `buffer` has no room for.
    overflow: &'a mut Vec<u8>,
    /// How much payload there was.
    pub payload: usize,
}

impl<'a> Sink<'a> {
    pub fn new(buffer: &'a mut [u8], overflow: &'a mut Vec<u8>) -> Self {
        Self { buffer, filled: 0, overflow, payload: 0 }
    }

    /// The payload of a record.
    pub fn put(&mut self, bytes: &[u8]) {
        self.payload += bytes.len();
        // Once bytes are in `overflow`, all further ones go there, to keep their order.
        let room = if self.overflow.is_empty() { self.buffer.len() - self.filled } else { 0 };
        let (now, later) = bytes.split_at(bytes.len().min(room));
        self.buffer[self.filled..self.filled + now.len()].copy_from_slice(now);
        self.filled += now.len();
        self.overflow.extend_from_slice(later);
    }
}
