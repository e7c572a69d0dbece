//! How long a transfer takes that is short: slow start on an idle path. Cardwell, Savage, Anderson, *Modeling TCP latency*, INFOCOM
//! 2000, section II.B, without loss.

use ekiden_units::{BitRate, Bytes, Time};

use crate::loss::Acks;

/// A transfer on a new connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// All of the user data.
    pub bytes: Bytes,
    /// User data in a segment.
    pub segment: Bytes,
    /// The first window, in segments (RFC 6928: 10).
    pub initial_window: f64,
    /// How many segments an ACK is for: the window grows by 1 + 1/b in each round trip.
    pub acks: Acks,
    /// The base round trip.
    pub rtt: Time,
    /// What the path carries of user data: the line, or a window over the round trip.
    pub rate: BitRate,
}

impl Transfer {
    /// From the SYN to the arrival of the last byte at the receiver: one round trip for the handshake; rounds of slow start, each an RTT,
    /// until the window fills the path; the rest at its rate; and half a round trip for what was sent last to arrive.
    ///
    /// `None` without segments, an RTT or a rate.
    pub fn time(&self) -> Option<Time> {
        let (rtt, segment) = (self.rtt.as_secs(), self.segment.0 as f64);
        if self.segment.0 == 0 || self.rtt.0 == 0 || self.rate.0 == 0 || self.initial_window < 1.0 {
            return None;
        }
        let growth = match self.acks {
            Acks::Each => 2.0,
            Acks::EverySecond => 1.5,
        };
        let per_rtt = self.rate.0 as f64 / 8.0 * rtt;
        let (mut left, mut window, mut rounds) = (self.bytes.0 as f64, self.initial_window * segment, 0.0);
        while window < per_rtt && left > window {
            left -= window;
            window *= growth;
            rounds += 1.0;
        }
        let at_rate = left * 8.0 / self.rate.0 as f64;
        Some(Time(((rtt * (1.5 + rounds) + at_rate) * 1e9) as u64))
    }
}
