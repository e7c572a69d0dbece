//! A chain of TCP connections, one behind the other through split proxies: the slowest leg bounds it (S3's T_n = W / max(RTT_i), S0
//! chapter 3). A lossy leg between two proxies, as of a radio link, recovers in its own round trip alone.

use ekiden_congestion::ResponseFunction;
use ekiden_units::{BitRate, Bytes, Time};

use crate::loss::{Acks, cubic_window, hstcp_window, mathis_window, rate};

/// The response function of a leg's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Reno (RFC 5681), each segment acknowledged or every second one.
    Reno(Acks),
    /// CUBIC (RFC 9438).
    Cubic,
    /// HSTCP (RFC 3649) with its own parameters. Gentle HSTCP is as HSTCP where no queue grows.
    Hstcp,
}

/// One connection of a chain; a direct connection is a chain of one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leg {
    /// The base round trip.
    pub rtt: Time,
    /// What its line carries of user data.
    pub rate: BitRate,
    /// The least of the send buffer and the receive window.
    pub window: Bytes,
    /// User data in a segment.
    pub segment: Bytes,
    /// The part of the segments that is lost at random, 0 to 1.
    pub loss: f64,
    /// Its congestion control.
    pub control: Control,
}

/// What bounds a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// window / RTT.
    Window,
    /// The line's rate.
    Line,
    /// The congestion window that random loss leaves.
    Loss,
}

impl Leg {
    /// The most that it carries in steady state, and what bounds it; of equal ones the first of [`Limit`]. `None` for an RTT of 0.
    pub fn throughput(&self) -> Option<(BitRate, Limit)> {
        let window = BitRate::of(self.window, self.rtt)?;
        let limits = [(window, Limit::Window), (self.rate, Limit::Line)];
        let lossy = self.loss_window().and_then(|window| rate(window, self.segment, self.rtt));
        let lossy = lossy.map(|rate| (rate, Limit::Loss));
        limits.into_iter().chain(lossy).min_by_key(|(rate, _)| *rate)
    }

    /// The congestion window that loss leaves, in segments; `None` without loss.
    pub fn loss_window(&self) -> Option<f64> {
        match self.control {
            _ if self.loss <= 0.0 => None,
            Control::Reno(acks) => mathis_window(self.loss, acks),
            Control::Cubic => cubic_window(self.loss, self.rtt),
            Control::Hstcp => hstcp_window(self.loss, &ResponseFunction::default()),
        }
    }

    /// The window that fills the leg at a rate: rate × RTT. Both of its ends need it, to send and to receive.
    pub fn window_for(&self, rate: BitRate) -> Bytes {
        Bytes::at(rate, self.rtt)
    }
}

/// What a chain of legs carries in steady state, which of them bounds it (from 0), and by what. `None` without legs, or for an RTT of 0.
pub fn throughput(legs: &[Leg]) -> Option<(BitRate, usize, Limit)> {
    let each: Option<Vec<_>> = legs.iter().map(Leg::throughput).collect();
    let each = each?.into_iter().enumerate().map(|(number, (rate, limit))| (rate, number, limit));
    each.min_by_key(|(rate, ..)| *rate)
}
