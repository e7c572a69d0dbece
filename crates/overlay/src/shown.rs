//! What the connections of a leg have shown from one look to the next, put together. Real and simulated connections provide
//! it from their counters: `seen.rs` of their crates.

use ekiden_units::Time;

use crate::leg::Look;

/// A path limits a sender if it does so for at least this part of the time.
pub const PATH_PART: f64 = 0.8;
/// A leg has failed if nothing is acknowledged on it for this time and for four round trips.
pub const STALLED: Time = Time::secs(1);
/// A rate that still grows by more than this factor from look to look is in slow start: the leg carries at least that rate.
const GROWS: f64 = 1.25;

/// What one connection has shown since the look before.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// The length of that time, in seconds.
    pub span_s: f64,
    /// Its smoothed round trip in seconds, if something was acknowledged.
    pub rtt_s: Option<f64>,
    /// What was acknowledged, in bit/s.
    pub rate_bit_s: f64,
    /// Whether the path was the limit, and the rate grows no more.
    pub is_limited: bool,
    /// Whether something waits for an acknowledgement, and none has come for long.
    pub is_stalled: bool,
    /// Segments sent, those sent again among them.
    pub sent: u64,
    /// Segments sent again.
    pub resent: u64,
}

/// Whether a rate has stopped growing since the look before. A retransmission ends slow start.
pub fn is_steady(rate_bit_s: f64, before_bit_s: f64, has_resent: bool) -> bool {
    rate_bit_s <= before_bit_s * GROWS || has_resent
}

/// What all connections of a leg have shown.
#[derive(Debug, Default)]
pub struct Sum {
    span_s: f64,
    rtts: Vec<f64>,
    rates: Vec<f64>,
    carried_bit_s: f64,
    sent: u64,
    resent: u64,
    is_stalled: bool,
}

impl Sum {
    /// Adds one of them.
    pub fn add(&mut self, one: &Shown) {
        self.span_s = self.span_s.max(one.span_s);
        self.rtts.extend(one.rtt_s);
        self.rates.extend(one.is_limited.then_some(one.rate_bit_s));
        self.carried_bit_s = self.carried_bit_s.max(one.rate_bit_s);
        self.sent += one.sent;
        self.resent += one.resent;
        self.is_stalled |= one.is_stalled;
    }

    /// Whether something waits for acknowledgements, and none came on any connection.
    pub fn is_stalled(&self) -> bool {
        self.is_stalled && self.rtts.is_empty()
    }

    /// All of it.
    pub fn look(&self) -> Look {
        let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        Look {
            span_s: self.span_s,
            rtt_s: mean(&self.rtts),
            rate_bit_s: mean(&self.rates),
            together_bit_s: self.rates.iter().sum(),
            carried_bit_s: self.carried_bit_s,
            sent: self.sent,
            resent: self.resent,
        }
    }
}
