//! The effect of loss on a TCP connection: its response function, which gives the window at a loss rate p, and so the rate.
//!
//! `p` is the part of the segments whose loss the sender takes for one event of congestion, above 0 and at most 1. Windows
//! are in segments. All hold in steady state, with selective acknowledgements, where neither the receiver's window nor the
//! line is the limit.

use ekiden_congestion::ResponseFunction;
use ekiden_units::{BitRate, Bytes, Time};

/// How many segments a receiver acknowledges at once (b of Padhye, Firoiu, Towsley, Kurose).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acks {
    /// Each: Linux does so in slow start, and after losses.
    Each,
    /// Every second one (delayed ACKs, RFC 5681, section 4.2).
    #[default]
    EverySecond,
}

impl Acks {
    fn segments(self) -> f64 {
        match self {
            Self::Each => 1.0,
            Self::EverySecond => 2.0,
        }
    }
}

/// Reno without timeouts: W = √(3 / 2bp). Mathis, Semke, Mahdavi, Ott, *The macroscopic behavior of the TCP congestion avoidance
/// algorithm*, CCR 27(3), 1997, equation 3; periodic loss. Good below p = 2 % or so, where timeouts are few.
pub fn mathis_window(p: f64, acks: Acks) -> Option<f64> {
    is_rate(p).then(|| (1.5 / (acks.segments() * p)).sqrt())
}

/// Reno with timeouts, in segments per second: Padhye, Firoiu, Towsley, Kurose, *Modeling TCP throughput: a simple model and its
/// empirical validation*, SIGCOMM 1998, equation 30 (the approximate one). `timeout` is the first retransmission timeout, `most` the
/// receiver's window.
pub fn padhye_segments_s(p: f64, rtt: Time, timeout: Time, most: f64, acks: Acks) -> Option<f64> {
    if !is_rate(p) || rtt.0 == 0 || most <= 0.0 {
        return None;
    }
    let (rtt, timeout, b) = (rtt.as_secs(), timeout.as_secs(), acks.segments());
    let in_recovery = rtt * (2.0 * b * p / 3.0).sqrt();
    let in_timeouts = timeout * (3.0 * (3.0 * b * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
    Some((most / rtt).min(1.0 / (in_recovery + in_timeouts)))
}

/// CUBIC: the larger of its own mean window and that of the Reno-friendly region. RFC 9438, sections 5.1 and 5.2 (equation 6, C = 0.4,
/// β = 0.7), for one loss event in 1 / p segments; Reno's is 1.22 / √p there, as each segment is acknowledged.
pub fn cubic_window(p: f64, rtt: Time) -> Option<f64> {
    let own = 1.054 * rtt.as_secs().powf(0.75) / p.powf(0.75);
    Some(mathis_window(p, Acks::Each)?.max(own))
}

/// HSTCP: Reno's 1.2 / √p up to Low_Window, beyond it the window at which [`ResponseFunction::loss_rate`] is p, and no more than
/// High_Window. RFC 3649, sections 3 and 5.
pub fn hstcp_window(p: f64, response: &ResponseFunction) -> Option<f64> {
    if !is_rate(p) {
        return None;
    }
    let (low, high) = (f64::from(response.low_window), f64::from(response.high_window));
    if p >= response.loss_rate(low) {
        return Some((1.2 / p.sqrt()).min(low));
    }
    // It is a line in log-log.
    let (at_low, at_high) = (response.loss_rate(low).ln(), response.loss_rate(high).ln());
    let part = (p.ln() - at_low) / (at_high - at_low);
    Some(high.min(low * (high / low).powf(part)))
}

/// The rate of user data with a window of `window` segments of `segment` bytes of user data each. `None` for an RTT of 0.
pub fn rate(window: f64, segment: Bytes, rtt: Time) -> Option<BitRate> {
    let bytes = window * segment.0 as f64;
    (rtt.0 > 0 && bytes >= 0.0).then(|| BitRate((bytes * 8.0 / rtt.as_secs()) as u64))
}

fn is_rate(p: f64) -> bool {
    p > 0.0 && p <= 1.0
}
