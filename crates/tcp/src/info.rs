//! What a connection is doing.

use ekiden_units::Time;

/// What a connection is doing, for records and tests. Windows count segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    /// Congestion window.
    pub cwnd: u32,
    /// Slow start threshold; `None` while there is none.
    pub ssthresh: Option<u32>,
    /// Segments sent and not acknowledged.
    pub outstanding: u32,
    /// Segments in the network, as far as is known: RFC 6675's pipe.
    pub pipe: u32,
    /// Segments that the peer has selectively acknowledged.
    pub sacked: u32,
    /// Segments that count as lost and wait to be sent again.
    pub lost: u32,
    /// The window that the peer offers, in bytes.
    pub window: u64,
    /// Smoothed round-trip time.
    pub rtt: Option<Time>,
    /// Least round-trip time.
    pub rtt_min: Option<Time>,
    /// The retransmission timeout, backed off.
    pub rto: Time,
    /// Payload in a full segment, in bytes.
    pub mss: u32,
    /// Bytes that the peer has acknowledged.
    pub acked_bytes: u64,
    /// Segments that have arrived at the peer, those that were selectively acknowledged among them.
    pub delivered: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Fast recoveries.
    pub recoveries: u64,
    /// In fast recovery.
    pub is_recovering: bool,
    /// After a timeout, what was outstanding then has not all arrived.
    pub is_after_timeout: bool,
}
