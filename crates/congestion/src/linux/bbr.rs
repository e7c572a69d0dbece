//! BBR as the kernel has it (`tcp_bbr.c`, 6.x: version 1, draft-cardwell-iccrg-bbr-congestion-control-00).
//!
//! It models the path by the greatest delivery rate of ten round trips and the least round trip of ten seconds, and paces at
//! gains of that rate. A loss is no sign of congestion to it, but it takes losses that repeat at one rate for a policer's.
//!
//! Left out: how late a qdisc sends what was paced (`bbr_packets_in_net_at_edt`), which the internal pacing of TCP does not
//! do.

mod aggregation;
mod filter;
mod policer;

use std::ops::Range;

pub(crate) use aggregation::Aggregation;
use filter::MaxFilter;
use policer::LongTerm;

use crate::sample::{RateSample, Repair};
use crate::{CongestionControl, Window};

/// Rates are segments per microsecond, times this.
const RATE: u64 = 1 << 24;
/// Gains are in 256ths.
const UNIT: u64 = 256;
const HIGH_GAIN: u64 = UNIT * 2885 / 1000 + 1;
const DRAIN_GAIN: u64 = UNIT * 1000 / 2885;
const WINDOW_GAIN: u64 = UNIT * 2;
const CYCLE: [u64; 8] = [UNIT * 5 / 4, UNIT * 3 / 4, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT];
/// The number of round trips over which the greatest rate is taken.
const RATE_ROUNDS: u64 = CYCLE.len() as u64 + 2;
const LEAST_RTT_HOLDS_US: u64 = 10_000_000;
const PROBE_RTT_US: u64 = 200_000;
/// The window while the round trip is probed, and the least window at any time.
const WINDOW_LEAST: u32 = 4;
/// The number of round trips in which the rate grew by less than a quarter, after which the pipe is full.
const FULL_ROUNDS: u32 = 3;
const INITIAL_WINDOW: u64 = 10;
/// The pacing rate as a percentage of the estimated rate.
const PACED_PERCENT: u64 = 99;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// One connection's BBR of Linux.
#[derive(Debug, Clone)]
pub struct LinuxBbr {
    mode: Mode,
    /// Round trips, counted by what was delivered when the segment of a sample was sent.
    rounds: u64,
    next_round: u64,
    begins_round: bool,
    rates: MaxFilter,
    least_rtt_us: u64,
    least_rtt_at: u64,
    probe_rtt_until: Option<u64>,
    probe_rtt_round_done: bool,
    /// Segments sent while the number of delivered segments was in this range say nothing about the path: the round trip was
    /// probed.
    probed: Range<u64>,
    /// It was idle since the last acknowledgement.
    restarts: bool,
    full_rate: u64,
    full_rounds: u32,
    is_full: bool,
    phase: usize,
    phase_at: u64,
    pacing_gain: u64,
    window_gain: u64,
    /// The pacing rate, in segments per microsecond times [`RATE`].
    pacing: u64,
    has_seen_rtt: bool,
    repair: Repair,
    conserves: bool,
    /// The window before a recovery or before the round trip was probed.
    window_before: u32,
    /// That of the last acknowledgement.
    window: u32,
    mss: u64,
    srtt_us: u64,
    policer: LongTerm,
    aggregation: Aggregation,
    random: u32,
    now_us: u64,
}

impl Default for LinuxBbr {
    fn default() -> Self {
        let mut bbr = Self {
            mode: Mode::Startup,
            rounds: 0,
            next_round: 0,
            begins_round: false,
            rates: MaxFilter::default(),
            least_rtt_us: u64::MAX,
            least_rtt_at: 0,
            probe_rtt_until: None,
            probe_rtt_round_done: false,
            probed: 0..0,
            restarts: false,
            full_rate: 0,
            full_rounds: 0,
            is_full: false,
            phase: 0,
            phase_at: 0,
            pacing_gain: HIGH_GAIN,
            window_gain: HIGH_GAIN,
            pacing: 0,
            has_seen_rtt: false,
            repair: Repair::Open,
            conserves: false,
            window_before: 0,
            window: INITIAL_WINDOW as u32,
            mss: 1448,
            srtt_us: 0,
            policer: LongTerm::default(),
            aggregation: Aggregation::default(),
            random: 0x9e37_79b9,
            now_us: 0,
        };
        // As if a millisecond had been measured.
        bbr.pacing = paced(INITIAL_WINDOW * RATE / 1000, HIGH_GAIN);
        bbr
    }
}

/// A rate as [`Aggregation`] takes it, of segments a second.
pub(crate) fn segments_us(per_second: f64) -> u64 {
    (per_second / 1e6 * RATE as f64) as u64
}

fn paced(rate: u64, gain: u64) -> u64 {
    rate * gain / UNIT * PACED_PERCENT / 100
}

impl LinuxBbr {
    /// Its name in the kernel.
    pub const NAME: &str = "bbr";

    fn rate(&self) -> u64 {
        if self.policer.is_used { self.policer.rate } else { self.rates.most() }
    }

    /// Segments of `rate` in the least round trip, by a gain, with room for what waits in hosts.
    fn in_flight(&self, rate: u64, gain: u64) -> u64 {
        self.with_room(self.bdp(rate, gain))
    }

    fn bdp(&self, rate: u64, gain: u64) -> u64 {
        if self.least_rtt_us == u64::MAX {
            return INITIAL_WINDOW;
        }
        let product = u128::from(rate) * u128::from(self.least_rtt_us) * u128::from(gain) / u128::from(UNIT);
        product.div_ceil(u128::from(RATE)) as u64
    }

    /// Segments that a host sends or acknowledges at once (`bbr_quantization_budget`).
    fn with_room(&self, window: u64) -> u64 {
        let even = (window + 3 * self.burst()).div_ceil(2) * 2;
        if self.mode == Mode::ProbeBandwidth && self.phase == 0 { even + 2 } else { even }
    }

    /// Segments of a burst: those of a millisecond, 2 at least (`bbr_tso_segs_goal`).
    fn burst(&self) -> u64 {
        let bytes_s = self.pacing_bytes_s();
        let least = if bytes_s < 1_200_000 / 8 { 1 } else { 2 };
        ((bytes_s >> 10).min(65_535 - 320) / self.mss.max(1)).clamp(least, 0x7f)
    }

    fn pacing_bytes_s(&self) -> u64 {
        (u128::from(self.pacing) * u128::from(self.mss) * 1_000_000 / u128::from(RATE)) as u64
    }

    fn update_model(&mut self, sample: &RateSample) {
        self.update_rate(sample);
        self.aggregation.update(sample, self.begins_round, self.is_full, self.rate(), self.window);
        if self.mode == Mode::ProbeBandwidth && self.is_next_phase(sample) {
            self.phase = (self.phase + 1) % CYCLE.len();
            self.phase_at = sample.now_us;
        }
        self.look_for_full(sample);
        self.look_for_drained(sample);
        self.update_least_rtt(sample);
    }

    fn set_gains(&mut self) {
        (self.pacing_gain, self.window_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth if self.policer.is_used => (UNIT, WINDOW_GAIN),
            Mode::ProbeBandwidth => (CYCLE[self.phase], WINDOW_GAIN),
            Mode::ProbeRtt => (UNIT, UNIT),
        };
    }

    fn update_rate(&mut self, sample: &RateSample) {
        self.begins_round = false;
        let Some(before) = sample.before else { return };
        if before.delivered >= self.next_round {
            self.next_round = sample.delivered;
            self.rounds += 1;
            self.begins_round = true;
            self.conserves = false;
        }
        if self.policer.sample(sample, self.begins_round, self.mode == Mode::ProbeBandwidth, self.mss) {
            self.probe_bandwidth(sample.now_us);
        }
        let rate = (sample.delivered - before.delivered) * RATE / before.interval_us.max(1);
        if !before.is_app_limited || rate >= self.rates.most() {
            self.rates.update(self.rounds, rate);
        }
    }

    fn is_next_phase(&self, sample: &RateSample) -> bool {
        let is_long = sample.now_us - self.phase_at > self.least_rtt_us;
        let was = u64::from(sample.was_in_flight);
        match self.pacing_gain {
            UNIT => is_long,
            gain if gain > UNIT => is_long && (sample.lost_now > 0 || was >= self.in_flight(self.rates.most(), gain)),
            _ => is_long || was <= self.in_flight(self.rates.most(), UNIT),
        }
    }

    fn look_for_full(&mut self, sample: &RateSample) {
        let is_limited = sample.before.is_none_or(|before| before.is_app_limited);
        if self.is_full || !self.begins_round || is_limited {
            return;
        }
        if self.rates.most() >= self.full_rate * 5 / 4 {
            (self.full_rate, self.full_rounds) = (self.rates.most(), 0);
        } else {
            self.full_rounds += 1;
            self.is_full = self.full_rounds >= FULL_ROUNDS;
        }
    }

    fn look_for_drained(&mut self, sample: &RateSample) {
        if self.mode == Mode::Startup && self.is_full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && u64::from(sample.in_flight) <= self.in_flight(self.rates.most(), UNIT) {
            self.probe_bandwidth(sample.now_us);
        }
    }

    /// The cycle begins at a random phase, but not at the one that drains.
    fn probe_bandwidth(&mut self, now_us: u64) {
        self.mode = Mode::ProbeBandwidth;
        // Connections that begin together diverge.
        self.random = (self.random ^ now_us as u32).wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let chance = ((u64::from(self.random) * (CYCLE.len() as u64 - 1)) >> 32) as usize;
        self.phase = (CYCLE.len() - chance) % CYCLE.len();
        self.phase_at = now_us;
    }

    fn leave_probe_rtt(&mut self, window: &mut Window, now_us: u64) {
        if self.probe_rtt_until.is_none_or(|until| now_us <= until) {
            return;
        }
        self.least_rtt_at = now_us;
        window.cwnd = window.cwnd.max(self.window_before);
        match self.is_full {
            true => self.probe_bandwidth(now_us),
            false => self.mode = Mode::Startup,
        }
    }

    fn update_least_rtt(&mut self, sample: &RateSample) {
        let is_old = sample.now_us > self.least_rtt_at + LEAST_RTT_HOLDS_US;
        if let Some(rtt) = sample.rtt_us.map(u64::from)
            && (rtt < self.least_rtt_us || is_old)
        {
            (self.least_rtt_us, self.least_rtt_at) = (rtt, sample.now_us);
        }
        if is_old && !self.restarts && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.probed.start = sample.delivered;
            self.keep_window();
            self.probe_rtt_until = None;
        }
        if sample.before.is_some() {
            self.restarts = false;
        }
    }

    fn probe_rtt(&mut self, window: &mut Window, sample: &RateSample) {
        if self.mode != Mode::ProbeRtt {
            return;
        }
        self.probed.end = sample.delivered + u64::from(sample.in_flight) + 1;
        if self.probe_rtt_until.is_none() {
            if sample.in_flight <= WINDOW_LEAST {
                self.probe_rtt_until = Some(sample.now_us + PROBE_RTT_US);
                self.probe_rtt_round_done = false;
                self.next_round = sample.delivered;
            }
            return;
        }
        self.probe_rtt_round_done |= self.begins_round;
        if self.probe_rtt_round_done {
            self.leave_probe_rtt(window, sample.now_us);
        }
    }

    fn keep_window(&mut self) {
        let is_low = self.repair >= Repair::Recovery || self.mode == Mode::ProbeRtt;
        self.window_before = if is_low { self.window_before.max(self.window) } else { self.window };
    }

    fn pace(&mut self, rate: u64, gain: u64) {
        let pacing = paced(rate, gain);
        if !self.has_seen_rtt && self.srtt_us > 0 {
            self.has_seen_rtt = true;
            self.pacing = paced(u64::from(self.window) * RATE / self.srtt_us, HIGH_GAIN);
        }
        if self.is_full || pacing > self.pacing {
            self.pacing = pacing;
        }
    }

    fn set_window(&mut self, window: &mut Window, sample: &RateSample) {
        let acked = sample.delivered_now;
        if acked > 0 && !self.recovers(window, sample) {
            let target = self.bdp(self.rate(), self.window_gain) + self.aggregation.room(self.is_full, self.rate());
            let target = u32::try_from(self.with_room(target)).unwrap_or(u32::MAX);
            if self.is_full {
                window.cwnd = (window.cwnd + acked).min(target);
            } else if window.cwnd < target || sample.delivered < INITIAL_WINDOW {
                window.cwnd += acked;
            }
            window.cwnd = window.cwnd.max(WINDOW_LEAST);
        }
        window.cwnd = window.cwnd.min(window.clamp);
        if self.mode == Mode::ProbeRtt {
            window.cwnd = window.cwnd.min(WINDOW_LEAST);
        }
    }

    /// The first round trip of a recovery conserves packets; after it the window is as before (`bbr_set_cwnd_to_recover_or_restore`).
    fn recovers(&mut self, window: &mut Window, sample: &RateSample) -> bool {
        let (was, is) = (self.repair, sample.repair);
        if sample.lost_now > 0 {
            window.cwnd = window.cwnd.saturating_sub(sample.lost_now).max(1);
        }
        if is == Repair::Recovery && was != Repair::Recovery {
            self.conserves = true;
            self.next_round = sample.delivered;
            window.cwnd = sample.in_flight + sample.delivered_now;
        } else if was >= Repair::Recovery && is == Repair::Open {
            window.cwnd = window.cwnd.max(self.window_before);
            self.conserves = false;
        }
        self.repair = is;
        if self.conserves {
            window.cwnd = window.cwnd.max(sample.in_flight + sample.delivered_now);
        }
        self.conserves
    }
}

impl CongestionControl for LinuxBbr {
    fn on_rtt(&mut self, _: &Window, _: u64, rtt_us: u32) -> bool {
        let rtt = u64::from(rtt_us);
        self.srtt_us = if self.srtt_us == 0 { rtt } else { (7 * self.srtt_us + rtt) / 8 };
        false
    }

    fn on_ack(&mut self, _: &mut Window, _: u32) {}

    fn on_loss(&mut self, _: u32) -> u32 {
        self.keep_window();
        i32::MAX as u32
    }

    fn on_timeout(&mut self) {
        self.repair = Repair::Timeout;
        self.full_rate = 0;
        self.begins_round = true;
    }

    fn on_idle(&mut self, _window: &mut Window, _idle_us: u64) -> bool {
        self.restarts = true;
        self.aggregation.restart(self.now_us);
        if self.mode == Mode::ProbeBandwidth {
            let rate = self.rate();
            self.pace(rate, UNIT);
        }
        false
    }

    fn on_sample(&mut self, window: &mut Window, sample: &RateSample) {
        self.now_us = sample.now_us;
        self.mss = sample.mss.into();
        // The kernel marks the connection itself as limited by its application (`bbr_update_min_rtt`).
        let mut sample = *sample;
        if let Some(before) = &mut sample.before {
            before.is_app_limited |= self.probed.contains(&before.delivered);
        }
        let sample = &sample;
        self.update_model(sample);
        self.probe_rtt(window, sample);
        self.set_gains();
        let (rate, gain) = (self.rate(), self.pacing_gain);
        self.pace(rate, gain);
        self.set_window(window, sample);
        self.window = window.cwnd;
    }

    fn sets_rate(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<f64> {
        Some(self.pacing as f64 / RATE as f64 * 1e6)
    }
}
