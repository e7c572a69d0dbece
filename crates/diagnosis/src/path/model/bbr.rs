//! About BBR (draft-cardwell-iccrg-bbr-congestion-control-00): its start-up, drain and cycle of pacing, for the model of a path.

use std::collections::BTreeMap;

/// Start-up's gain: 2 / ln 2.
const HIGH_GAIN: f64 = 2.885;
/// The pacing gains after start-up, each for a round trip.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// The line is full if the rate has grown by less than this factor in three rounds.
const GROWN: f64 = 1.25;
/// Round trips that the greatest rate is remembered for.
const REMEMBERED: usize = 10;

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    StartUp,
    Drain,
    Cycle(usize),
}

/// A sender's state; rates are segments per microsecond.
pub struct Bbr {
    phase: Phase,
    /// The best rate of each of the last rounds, the latest last.
    rates: Vec<f64>,
    full_rate: f64,
    rounds_full: u32,
    /// Segments that were delivered when each was sent, and when that was.
    sent: BTreeMap<u64, (f64, u32)>,
    /// The round ends when so many are delivered.
    round_until: u32,
    rtt_min_us: f64,
    phase_us: f64,
    next_us: f64,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            phase: Phase::StartUp,
            rates: vec![0.0],
            full_rate: 0.0,
            rounds_full: 0,
            sent: BTreeMap::new(),
            round_until: 0,
            rtt_min_us: f64::INFINITY,
            phase_us: 0.0,
            next_us: 0.0,
        }
    }
}

impl Bbr {
    fn rate(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// Whether a segment may be sent now; else when.
    pub fn may_send(&self, now_us: f64) -> Result<(), f64> {
        if now_us + 0.01 >= self.next_us { Ok(()) } else { Err(self.next_us) }
    }

    /// A segment is sent.
    pub fn sent(&mut self, number: u64, now_us: f64, delivered: u32) {
        self.sent.insert(number, (now_us, delivered));
        let gain = match self.phase {
            Phase::StartUp => HIGH_GAIN,
            Phase::Drain => 1.0 / HIGH_GAIN,
            Phase::Cycle(at) => CYCLE[at],
        };
        let pace = gain * self.rate();
        if pace > 0.0 {
            self.next_us = self.next_us.max(now_us - 1_000.0) + 1.0 / pace;
        }
    }

    /// A segment is acknowledged; the window from now on, in segments.
    pub fn acknowledged(&mut self, number: u64, now_us: f64, delivered: u32, in_flight: f64) -> f64 {
        let Some((sent_us, before)) = self.sent.remove(&number) else { return self.window() };
        let rtt_us = (now_us - sent_us).max(1.0);
        self.rtt_min_us = self.rtt_min_us.min(rtt_us);
        let rate = f64::from(delivered.saturating_sub(before)) / rtt_us;
        if before >= self.round_until {
            self.round_until = delivered;
            self.end_round();
        }
        if let Some(last) = self.rates.last_mut() {
            *last = last.max(rate);
        }
        self.turn(now_us, in_flight);
        self.window()
    }

    fn end_round(&mut self) {
        let rate = self.rate();
        self.rates.push(0.0);
        if self.rates.len() > REMEMBERED {
            self.rates.remove(0);
        }
        if self.phase == Phase::StartUp {
            if rate >= GROWN * self.full_rate {
                (self.full_rate, self.rounds_full) = (rate, 0);
            } else {
                self.rounds_full += 1;
            }
        }
    }

    fn turn(&mut self, now_us: f64, in_flight: f64) {
        let next = match self.phase {
            Phase::StartUp if self.rounds_full >= 3 => Phase::Drain,
            Phase::Drain if in_flight <= self.rate() * self.rtt_min_us => Phase::Cycle(0),
            Phase::Cycle(at) if now_us > self.phase_us + self.rtt_min_us => Phase::Cycle((at + 1) % CYCLE.len()),
            phase => phase,
        };
        if next != self.phase {
            (self.phase, self.phase_us) = (next, now_us);
        }
    }

    fn window(&self) -> f64 {
        let gain = if matches!(self.phase, Phase::Cycle(_)) { 2.0 } else { HIGH_GAIN };
        (gain * self.rate() * self.rtt_min_us.min(1e9)).max(10.0)
    }
}
