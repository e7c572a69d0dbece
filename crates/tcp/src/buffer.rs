//! What the application has written and the peer has not acknowledged.
//!
//! Positions count as in the scoreboard: the first byte has position 1.

use crate::settings::TcpSettings;

#[derive(Debug)]
pub(crate) struct SendBuffer {
    /// [`TcpSettings::send_buffer`].
    size: u64,
    /// [`TcpSettings::send_piece`].
    piece: u64,
    /// [`TcpSettings::wakes_at_a_third`].
    wakes_at_a_third: bool,
    /// The end of what was written.
    end: u64,
    /// No more will be written: a FIN follows.
    finished: bool,
    /// The application found the buffer full and could not write since.
    starved: bool,
}

impl SendBuffer {
    pub fn new(settings: &TcpSettings) -> Self {
        Self {
            size: settings.send_buffer,
            piece: settings.send_piece.max(1),
            wakes_at_a_third: settings.wakes_at_a_third,
            end: 1,
            finished: false,
            starved: false,
        }
    }

    /// The end of what was written.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The application writes. Returns how many bytes were taken.
    pub fn write(&mut self, una: u64, bytes: u64) -> u64 {
        let most = self.room(una).checked_next_multiple_of(self.piece).unwrap_or(u64::MAX);
        let taken = if self.finished { 0 } else { bytes.min(most) };
        self.end += taken;
        if bytes > 0 {
            self.starved = self.wakes_at_a_third && taken < bytes;
        }
        taken
    }

    /// How many bytes the application may write now. The last piece may exceed this, and is then taken whole.
    pub fn room(&self, una: u64) -> u64 {
        let held = self.end - una.clamp(1, self.end);
        let waits = self.starved && held > self.size - self.size / 3;
        if waits { 0 } else { self.size.saturating_sub(held) }
    }

    /// The application has written everything.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether the application has written everything.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether the application has written everything, and the peer has acknowledged all of it, the FIN too.
    pub fn is_delivered(&self, una: u64) -> bool {
        self.finished && una > self.end
    }

    /// Bytes of payload before `una`.
    pub fn acked_bytes(&self, una: u64) -> u64 {
        una.clamp(1, self.end) - 1
    }
}
