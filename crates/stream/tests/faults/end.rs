//! One end of a connection, as its kernel has it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::task::Waker;

use ekiden_tcp_info::TcpInfo;

/// How long a closed socket whose receiver has no room is kept, in milliseconds: by default, and if the pauses may be longest.
const ORPHAN_MS: [u64; 2] = [24_000, 340_000];
/// How long a closed socket waits for the other side's end.
const FIN_WAIT_MS: u64 = 60_000;

/// What a connection is made of: the buffers of each end, and what the line does.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    pub send_most: [usize; 2],
    pub receive_most: [usize; 2],
    pub segment: usize,
    pub delay_ms: u64,
    pub is_sealed: bool,
}

impl Default for Line {
    fn default() -> Self {
        Self { send_most: [1000; 2], receive_most: [1000; 2], segment: 100, delay_ms: 1, is_sealed: false }
    }
}

/// One end of a connection: the other one is `number ^ 1`.
#[derive(Default)]
pub struct End {
    /// The node whose end it is; `None`: a host's.
    pub node: Option<usize>,
    pub received: VecDeque<u8>,
    pub receive_most: usize,
    pub received_total: u64,
    /// Up to where the other side was told that it may send.
    pub told_edge: u64,
    pub has_end: bool,
    pub error: Option<ErrorKind>,
    /// CLOSED, by a reset or a time-out, and when.
    pub is_broken: bool,
    pub broke_ms: u64,
    pub queued: VecDeque<u8>,
    pub send_most: usize,
    /// With a connection that broke, what was queued then.
    pub stale: usize,
    pub sent: u64,
    pub acked: u64,
    pub edge: u64,
    pub is_shut: bool,
    pub end_sent: bool,
    pub end_acked: bool,
    pub resets_on_close: bool,
    pub is_patient: bool,
    pub is_closed: bool,
    /// The kernel knows nothing of it any more.
    pub is_gone: bool,
    pub has_reset: bool,
    pub segment: usize,
    pub delay_ms: u64,
    /// The last that is under way to this end arrives then.
    pub last_arrival: u64,
    pub is_cut_off: bool,
    pub sent_at: u64,
    /// When something was last acknowledged.
    pub progress_ms: u64,
    pub busy_ms: u64,
    pub busy_since: Option<u64>,
    // What its event loop knows.
    pub readable: bool,
    pub writable: bool,
    pub read_closed: bool,
    pub write_closed: bool,
    pub has_error: bool,
    pub wants_room: bool,
    pub has_news: bool,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    pub watchers: Vec<Waker>,
    /// With TLS: what was taken and is not yet the kernel's; close_notify was sent; it has come.
    pub is_sealed: bool,
    pub pending: VecDeque<u8>,
    pub has_said_close: bool,
    pub was_told_close: bool,
    /// It is of a connection with a host, where close_notify is the end.
    pub is_with_host: bool,
    /// close_notify waits for room.
    pub owes_close: bool,
}

impl End {
    pub fn room(&self) -> usize {
        self.send_most.saturating_sub(self.queued.len() + (self.sent - self.acked) as usize)
    }

    pub fn receive_room(&self) -> usize {
        self.receive_most - self.received.len()
    }

    pub fn orphan_ms(&self) -> u64 {
        if self.end_acked { FIN_WAIT_MS } else { ORPHAN_MS[usize::from(self.is_patient)] }
    }

    /// What a call says that finds nothing to receive.
    pub fn nothing(&mut self) -> io::Result<usize> {
        if self.has_end {
            return match self.is_sealed && !self.was_told_close {
                true => Err(ErrorKind::UnexpectedEof.into()),
                false => Ok(0),
            };
        }
        if let Some(error) = self.error.take() {
            return Err(error.into());
        }
        if self.is_broken {
            return match self.is_sealed {
                true => Err(ErrorKind::UnexpectedEof.into()),
                false => Ok(0),
            };
        }
        self.readable = false;
        Err(ErrorKind::WouldBlock.into())
    }

    /// Whether its FIN has come. Looking takes an error that is there instead.
    pub fn has_received_end(&mut self) -> bool {
        if self.received.is_empty() && !self.has_end {
            self.error = None;
        }
        self.has_end
    }

    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take().map(Into::into)
    }

    /// Whether it has room for the least segment that every host takes.
    pub fn takes_a_segment(&self) -> bool {
        self.receive_most >= 536
    }

    /// Whether an end has come to it that was said.
    pub fn was_told_end(&self) -> bool {
        self.has_end && (self.was_told_close || !(self.is_sealed && self.is_with_host))
    }

    /// Whether close_notify must stand before a FIN that is an end.
    pub fn needs_close(&self) -> bool {
        self.is_sealed && self.is_with_host && !self.has_said_close
    }

    /// What was received has all been read, and nothing is behind it.
    pub fn is_drained(&self) -> bool {
        self.received.is_empty() && !self.has_end
    }

    /// Whether nothing has come that is still to be seen.
    pub fn is_quiet(&self) -> bool {
        self.is_drained() && !self.is_broken
    }

    pub fn has_unsent(&self) -> bool {
        if self.is_broken { self.stale > 0 } else { !self.queued.is_empty() }
    }

    pub fn info(&self, now_ms: u64) -> TcpInfo {
        let unacked = (self.sent - self.acked) as usize;
        let ends = self.end_sent && !self.end_acked && !self.is_broken;
        let busy = self.busy_ms + self.busy_since.map_or(0, |since| now_ms - since);
        TcpInfo {
            acked_bytes: self.acked,
            unsent_bytes: self.queued.len() as u32,
            unacked_segments: (unacked.div_ceil(self.segment) + usize::from(ends)) as u32,
            mss_bytes: self.segment as u32,
            send_window_bytes: (self.edge - self.acked) as u32,
            last_sent_ms: (now_ms - self.sent_at) as u32,
            busy_us: busy * 1000,
            is_ending: self.is_shut && !self.end_acked && !self.is_broken,
            has_received_end: self.has_end,
            is_over: self.is_broken || (self.end_acked && self.has_end),
            ..Default::default()
        }
    }
}
