//! About BBR, as Linux has it (`tcp_bbr.c`, version 1), a round trip at a time: it doubles until the rate of delivery grows no more, and
//! then sends at the greatest rate of ten round trips. A loss holds it up only while it doubles.

/// Round trips in which the rate grew by less than a quarter, after which the pipe counts as full.
const FULL_ROUNDS: u32 = 3;
const GROWTH: f64 = 1.25;
/// What it sends of the rate: in one of eight round trips it asks for more. The next one sends less, which is left out: what waits then keeps
/// the line full.
const ASKS: f64 = 1.25;
const CYCLE: u32 = 8;
/// The part of the rate that is paced.
const PACED: f64 = 0.99;
/// Round trips of which the greatest rate is taken.
const KEPT: usize = 10;
/// It sends four segments in 200 ms every ten seconds, to see the path without a queue.
const PROBE_EVERY_S: f64 = 10.0;
const PROBE_S: f64 = 0.2;
const WINDOW_LEAST: f64 = 4.0;

#[derive(Debug, Clone)]
pub struct Bbr {
    rates: Vec<f64>,
    full_rate: f64,
    full_rounds: u32,
    is_full: bool,
    /// The last round trip lost something.
    has_lost: bool,
    /// Round trips since it was full.
    cruised: u32,
    /// When the round trip is probed next, and until when it is.
    probes_at: f64,
    probes_until: f64,
}

impl Bbr {
    pub fn new() -> Self {
        Self {
            rates: Vec::new(),
            full_rate: 0.0,
            full_rounds: 0,
            is_full: false,
            has_lost: false,
            cruised: 0,
            probes_at: PROBE_EVERY_S,
            probes_until: 0.0,
        }
    }

    /// The number of segments to send in the next round trip, of `rtt` seconds without a queue, after `arrived` of `sent`
    /// segments arrived in `took` seconds.
    pub fn next(&mut self, now: f64, rtt: f64, (sent, arrived, took): (f64, f64, f64)) -> f64 {
        let is_probing = now < self.probes_until;
        if !is_probing {
            self.rates.push(arrived / took);
            let old = self.rates.len().saturating_sub(KEPT);
            self.rates.drain(..old);
        }
        let rate = self.rates.iter().copied().fold(0.0, f64::max);
        if now >= self.probes_at {
            (self.probes_until, self.probes_at) = (now + PROBE_S.max(rtt), now + PROBE_S.max(rtt) + PROBE_EVERY_S);
        }
        if now < self.probes_until {
            return WINDOW_LEAST;
        }
        if self.is_full {
            self.cruised += 1;
            let asks = if self.cruised % CYCLE == 1 { ASKS } else { 1.0 };
            return (rate * rtt * PACED * asks).max(WINDOW_LEAST);
        }
        if rate >= self.full_rate * GROWTH {
            (self.full_rate, self.full_rounds) = (rate, 0);
        } else {
            self.full_rounds += 1;
            self.is_full = self.full_rounds >= FULL_ROUNDS;
        }
        // In the first round trip of a recovery a segment leaves for each that arrives.
        let (lost, was_lost) = (sent > arrived, self.has_lost);
        self.has_lost = lost && !was_lost;
        let grown = if self.has_lost { sent } else { sent + arrived };
        match self.is_full {
            // What waits is drained.
            true => (rate * rtt / 2.0).max(WINDOW_LEAST),
            false => grown,
        }
    }
}
