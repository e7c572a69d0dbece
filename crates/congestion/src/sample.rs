//! What an acknowledgement tells a control that sets a rate.

/// How a sender repairs losses while an acknowledgement arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Repair {
    /// Nothing is known to be lost.
    #[default]
    Open,
    /// Fast recovery.
    Recovery,
    /// After a timeout of the retransmission timer.
    Timeout,
}

/// A sample of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation-02, section 3.3; Linux: `struct rate_sample`), and what
/// else a control of [`CongestionControl::on_sample`](crate::CongestionControl::on_sample) reads. Counts are of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateSample {
    /// When the acknowledgement arrived, in microseconds.
    pub now_us: u64,
    /// Delivered over the whole connection.
    pub delivered: u64,
    /// The same, when the newest segment that this acknowledgement reports was sent. `None`: it reports none, or the interval is
    /// shorter than the least round trip.
    pub before: Option<Before>,
    /// Newly delivered.
    pub delivered_now: u32,
    /// Newly found lost.
    pub lost_now: u32,
    /// Lost over the whole connection.
    pub lost: u64,
    /// In the network before this acknowledgement.
    pub was_in_flight: u32,
    /// In the network after it.
    pub in_flight: u32,
    /// A round trip that was measured, in microseconds.
    pub rtt_us: Option<u32>,
    /// The smoothed round trip (RFC 6298), in microseconds; 0 before the first.
    pub srtt_us: u32,
    /// User data in a full segment, in bytes.
    pub mss: u32,
    /// Whether losses are being repaired.
    pub repair: Repair,
    /// Whether it echoes that packets were marked on the way (ECN, RFC 3168).
    pub is_marked: bool,
}

/// Where the interval of a [`RateSample`] begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Before {
    /// Segments delivered then.
    pub delivered: u64,
    /// How long ago that was: the longer of the intervals in which they were sent and acknowledged, in microseconds.
    pub interval_us: u64,
    /// The application, and not the path, limited the sender then.
    pub is_app_limited: bool,
    /// Segments in the network then, with that one (draft-ietf-ccwg-bbr-04: P.tx_in_flight).
    pub in_flight: u32,
    /// Segments that had been found lost (P.lost).
    pub lost: u64,
}

/// A segment that was found lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LostSegment {
    /// Segments in the network when it was sent, with it.
    pub in_flight: u32,
    /// Segments found lost since then, with it.
    pub lost: u64,
    /// The application limited the sender when it was sent.
    pub is_app_limited: bool,
}
