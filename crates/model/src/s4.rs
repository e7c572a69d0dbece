//! S4: what a window bounds over a long line: T = k · 8B / Dt.

use ekiden_units::{BitRate, Bytes, Time};

/// S4's table 1: one-way delay in ms, and k as measured at 2048 kbit/s with 1000 bytes of data in each packet.
pub const PAPER_K: [(u64, f64); 4] = [(20, 0.56), (100, 0.88), (250, 0.93), (500, 0.94)];

/// S4's example (section 4): no more than this with this window and this delay one way. Its 64 kbytes are 64,000.
pub const PAPER_BOUND: (BitRate, Bytes, Time) = (BitRate(1_280_000), Bytes(64_000), Time::ms(200));

/// What S4's k is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// Dt: the delay of the line there and back.
    pub line: Time,
    /// Do: all other delay of a round trip: sending packets, hosts.
    pub other: Time,
    /// S: user data in a packet.
    pub data: Bytes,
    /// L: the packet on the line.
    pub packet: Bytes,
}

impl Path {
    /// k = Dt / (Dt + Do) · S / L, from 0 to 1. `None` for a packet of no bytes, or no delay at all.
    pub fn k(&self) -> Option<f64> {
        let round_trip = self.line.0 as f64 + self.other.0 as f64;
        let known = self.packet.0 > 0 && round_trip > 0.0;
        known.then(|| self.line.0 as f64 / round_trip * self.data.0 as f64 / self.packet.0 as f64)
    }

    /// T = k · 8B / Dt for a window of B bytes, which holds while the window and not the line is the limit. `None` as [`Path::k`].
    pub fn throughput(&self, window: Bytes) -> Option<BitRate> {
        let round_trip = self.line.as_secs() + self.other.as_secs();
        // Not by way of k, which is 0 on a line without delay.
        self.k()
            .map(|_| BitRate((window.0 as f64 * 8.0 / round_trip * self.data.0 as f64 / self.packet.0 as f64) as u64))
    }

    /// Do of a path on which k was measured: k · (Dt + Do) = Dt · S / L. `None` if no delay gives this k.
    pub fn other_from(k: f64, line: Time, data: Bytes, packet: Bytes) -> Option<Time> {
        let other = line.0 as f64 * (data.0 as f64 / packet.0 as f64 / k - 1.0);
        (other.is_finite() && other >= 0.0).then_some(Time(other as u64))
    }
}
