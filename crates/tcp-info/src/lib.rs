//! What Linux reports of a TCP connection (`TCP_INFO`), as numbers, and what limited its sender during an interval. `net` asks the kernel.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod limit;

pub use limit::{Limits, Shares};

/// The state of a connection's sender, as in tcp(7). Fields that an older kernel does not have are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// Congestion window in segments.
    pub cwnd_segments: u32,
    /// Slow start threshold in segments; 2³¹ − 1 while none was set.
    pub ssthresh_segments: u32,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: u32,
    /// Least round-trip time seen in microseconds.
    pub rtt_min_us: u32,
    /// Segments sent again, in all.
    pub retransmits: u32,
    /// Segments sent and not acknowledged.
    pub unacked_segments: u32,
    /// Segments of these that the peer has selectively acknowledged; without SACK, its duplicate acknowledgements.
    pub sacked_segments: u32,
    /// Segments of these that count as lost until they are acknowledged.
    pub lost_segments: u32,
    /// Bytes the peer has acknowledged.
    pub acked_bytes: u64,
    /// Bytes of payload sent, in all, those sent again among them (Linux 4.19 and later).
    pub sent_bytes: u64,
    /// Bytes of payload sent again (Linux 4.19 and later).
    pub resent_bytes: u64,
    /// Bytes of payload that have arrived in order from the peer.
    pub received_bytes: u64,
    /// Segments with data that have arrived from the peer, in all, those that came twice among them.
    pub data_segments_in: u32,
    /// Segments that have arrived from the peer out of order (Linux 5.4 and later).
    pub out_of_order_segments: u32,
    /// Whether the recent rate of delivery was limited by the program, which had nothing to send.
    pub is_application_limited: bool,
    /// Bytes handed over by the program and not sent yet; 0 if the connection has broken.
    pub unsent_bytes: u32,
    /// Memory that is taken by what was handed over and is not acknowledged, in bytes; 0 if the kernel does not say (`SO_MEMINFO`,
    /// Linux 4.12 and later).
    pub send_memory_bytes: u32,
    /// Limit on that memory, in bytes, beyond which a program has to wait (`SO_SNDBUF`); 0 if the kernel does not say.
    pub send_memory_most_bytes: u32,
    /// Recent rate of delivery in bytes per second.
    pub delivery_bytes_s: u64,
    /// The pacing rate in bytes per second; `u64::MAX` without a limit, and 0 if it is not known.
    pub pacing_bytes_s: u64,
    /// Segments that have arrived at the other end, in all, those that were selectively acknowledged among them (Linux 4.18 and
    /// later).
    pub delivered_segments: u32,
    /// The window that the peer advertises, in bytes (Linux 5.4 and later).
    pub send_window_bytes: u32,
    /// Largest segment sent, in bytes of payload.
    pub mss_bytes: u32,
    /// The longest segment that the peer may send, as this end has advertised it, in bytes of payload: less what timestamps take.
    pub advertised_mss_bytes: u32,
    /// Longest segment that has arrived, in bytes of payload. Up to [`Self::ASSUMED_MSS_BYTES`] it may be only what the kernel begins with.
    pub arrived_mss_bytes: u32,
    /// The path's MTU as far as it is known, in bytes with headers.
    pub path_mtu_bytes: u32,
    /// Options that both ends offered: timestamps and window scaling (RFC 7323), selective acknowledgements (RFC 2018).
    pub options: Options,
    /// Microseconds in which the sender had data to send or to be acknowledged.
    pub busy_us: u64,
    /// Microseconds in which the peer's window held the sender back.
    pub window_limited_us: u64,
    /// Microseconds in which the sender's own buffer held it back.
    pub buffer_limited_us: u64,
    /// Milliseconds since an acknowledgement came.
    pub last_ack_ms: u32,
    /// Milliseconds since data was sent, probes of a closed window not among it.
    pub last_sent_ms: u32,
    /// How long ago data was last received, in milliseconds.
    pub last_received_ms: u32,
    /// Retransmission timeouts, in all (Linux 6.7 and later).
    pub timeouts: u32,
    /// Whether this side has sent a FIN that is not acknowledged yet (FIN_WAIT1, CLOSING, LAST_ACK).
    pub is_ending: bool,
    /// Whether the other side's FIN has arrived, and the connection is open since (CLOSE_WAIT, LAST_ACK, CLOSING).
    pub has_received_end: bool,
    /// Whether the connection is over for its kernel too (CLOSED): both ends were said and acknowledged, or it was reset. Closing the
    /// socket sends nothing then.
    pub is_over: bool,
    /// Probes of a closed window, or keepalives, since the last acknowledgement.
    pub unanswered_probes: u8,
}

/// What the ends agreed on in their SYNs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Options {
    pub timestamps: bool,
    pub sack: bool,
    pub window_scaling: bool,
}

impl TcpInfo {
    /// What a kernel takes the longest segment that arrives for before any has come (`TCP_MSS_DEFAULT` of linux/tcp.h).
    pub const ASSUMED_MSS_BYTES: u32 = 536;

    /// Whether something waits for an acknowledgement: what was sent, or what the host itself could not send, as a packet filter on it may
    /// have it.
    pub fn awaits_ack(&self) -> bool {
        self.unacked_segments > 0 || self.unsent_bytes > 0
    }

    /// Whether the other side has acknowledged nothing for `ms` milliseconds, although it should have. One that has closed its window is
    /// probed ever more seldom (RFC 9293 §3.8.6.1), and is silent only if it has not answered two probes. Where nothing is under way, the
    /// kernel may wait as long as pacing takes for two segments before it sends.
    pub fn is_silent(&self, ms: u32) -> bool {
        if self.unacked_segments > 0 {
            return self.last_ack_ms >= ms;
        }
        let pause_ms = (u64::from(self.mss_bytes) * 2000).checked_div(self.pacing_bytes_s).unwrap_or(0);
        self.unsent_bytes > 0
            && u64::from(self.last_ack_ms) >= u64::from(ms) + pause_ms
            && (!self.is_shut_out() || self.unanswered_probes >= 2)
    }

    /// Whether nothing is under way, because the other side's window has no room for a segment.
    pub fn is_shut_out(&self) -> bool {
        self.unacked_segments == 0 && self.send_window_bytes < self.mss_bytes
    }

    /// Whether the send buffer is so full that the program cannot hand anything over: Linux wakes it when a third is free.
    pub fn is_send_buffer_full(&self) -> bool {
        u64::from(self.send_memory_bytes) * 3 > u64::from(self.send_memory_most_bytes) * 2
    }
}
