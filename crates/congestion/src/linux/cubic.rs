//! CUBIC as the kernel has it (`tcp_cubic.c`, 6.x). It differs from RFC 9438 where the window is Reno's (section 4.3):
//!
//! - alpha_cubic stays 0.53 once W_est has come to cwnd_prior; the RFC's becomes 1.
//! - The window follows W_est a round trip behind, and W_est counts whole segments.
//! - While the window stands, nothing is looked at for a 32nd of a second. On short paths that is several round trips.
//!
//! Also, a connection that has not lost yet grows by at least 5 % per round trip, and none by more than half.

use super::hystart::HyStart;
use super::{STANDSTILL_US, grow};
use crate::cubic::cube_root;
use crate::native::slow_start;
use crate::{CongestionControl, Window};

/// What a loss leaves of the window, in 1024ths (`beta`).
const BETA: u64 = 717;
const SCALE: u64 = 1024;
/// W_est grows by a segment for this many eighths of a window: 8 (1 + beta) / 3 (1 − beta) (`beta_scale`).
const RENO_EIGHTHS: u64 = 8 * (SCALE + BETA) / 3 / (SCALE - BETA);
/// C = 0.4 segments per cubic second is 2 / 5 · 10^-18 per cubic microsecond.
const C: (u128, u128) = (2, 5_000_000_000_000_000_000);
/// Before the first loss at most this many segments per segment of growth.
const COUNT_MOST_BEFORE_LOSS: u64 = 20;

/// One connection's CUBIC of Linux.
#[derive(Debug, Clone, Default)]
pub struct LinuxCubic {
    now_us: u64,
    /// The latest round-trip time, and the least.
    rtt_us: u64,
    least_us: u64,
    /// The round-trip time sample of the current acknowledgement.
    fresh_us: Option<u64>,
    /// The window at the last loss, or what fast convergence made of it; 0 before the first and after a timeout
    /// (`last_max_cwnd`).
    max: u32,
    /// Segments acknowledged per segment of growth (`cnt`).
    count: u32,
    /// The window when `count` was computed, and when that was.
    seen: (u32, u64),
    stage: Option<Stage>,
    /// Segments acknowledged that W_est has not counted yet (`ack_cnt`).
    uncounted: u64,
    hystart: HyStart,
}

/// A stage of congestion avoidance.
#[derive(Debug, Clone, Copy)]
struct Stage {
    origin: u64,
    k_us: u64,
    /// W_est (`tcp_cwnd`).
    reno: u64,
    /// Since the stage began, without times in which something else than the window limited the sender.
    elapsed_us: u64,
    /// When `elapsed_us` was brought up to date.
    at_us: u64,
}

impl Stage {
    fn new(max: u32, cwnd: u32, now_us: u64) -> Self {
        let below = u128::from(max.saturating_sub(cwnd));
        Self {
            origin: max.max(cwnd).into(),
            k_us: cube_root(below * C.1 / C.0),
            reno: cwnd.into(),
            elapsed_us: 0,
            at_us: now_us,
        }
    }

    fn w_cubic(&self, t_us: u64) -> u64 {
        let cube = u128::from(t_us.abs_diff(self.k_us)).checked_pow(3).and_then(|cube| cube.checked_mul(C.0));
        // An overflow means more than any window.
        let change = cube.map_or(u64::MAX, |cube| u64::try_from(cube / C.1).unwrap_or(u64::MAX));
        if t_us < self.k_us { self.origin.saturating_sub(change) } else { self.origin.saturating_add(change) }
    }
}

impl LinuxCubic {
    /// Brings `count` up to date (`bictcp_update`).
    fn update(&mut self, cwnd: u32, acked: u32) {
        self.uncounted = self.uncounted.saturating_add(acked.into());
        if let Some(stage) = &mut self.stage {
            // As in RFC 9438's: a sender that its window limits hears at least once per round trip.
            stage.elapsed_us += self.now_us.saturating_sub(stage.at_us).min(self.rtt_us);
            stage.at_us = self.now_us;
        }
        if self.seen.0 == cwnd && self.now_us.saturating_sub(self.seen.1) <= STANDSTILL_US {
            return;
        }
        self.seen = (cwnd, self.now_us);
        let mut stage = match self.stage {
            Some(stage) => stage,
            None => {
                self.uncounted = acked.into();
                Stage::new(self.max, cwnd, self.now_us)
            }
        };
        let cwnd = u64::from(cwnd.max(1));
        let target = stage.w_cubic(stage.elapsed_us.saturating_add(self.least_us));
        let mut count = if target > cwnd { cwnd / (target - cwnd) } else { 100 * cwnd };
        if self.max == 0 {
            count = count.min(COUNT_MOST_BEFORE_LOSS);
        }
        let per_segment = (cwnd * RENO_EIGHTHS / 8).max(1);
        let grown = self.uncounted.saturating_sub(1) / per_segment;
        self.uncounted -= grown * per_segment;
        stage.reno += grown;
        if stage.reno > cwnd {
            count = count.min(cwnd / (stage.reno - cwnd));
        }
        self.count = u32::try_from(count).unwrap_or(u32::MAX).max(2);
        self.stage = Some(stage);
    }
}

impl CongestionControl for LinuxCubic {
    fn on_rtt(&mut self, _window: &Window, now_us: u64, rtt_us: u32) -> bool {
        self.now_us = self.now_us.max(now_us);
        self.rtt_us = rtt_us.into();
        self.fresh_us = Some(self.rtt_us);
        if self.least_us == 0 || self.rtt_us < self.least_us {
            self.least_us = self.rtt_us;
        }
        false
    }

    fn on_ack(&mut self, window: &mut Window, acked: u32) {
        let rtt_us = self.fresh_us.take();
        if window.cwnd < window.ssthresh && self.hystart.ends(self.now_us, rtt_us, window.cwnd, acked) {
            window.ssthresh = window.cwnd;
        }
        let acked = slow_start(window, acked);
        if acked > 0 {
            self.update(window.cwnd, acked);
            grow(window, self.count.max(1), acked);
        }
    }

    fn on_loss(&mut self, cwnd: u32) -> u32 {
        self.stage = None;
        let now = u64::from(cwnd);
        let max = if cwnd < self.max { now * (SCALE + BETA) / (2 * SCALE) } else { now };
        self.max = max as u32;
        ((now * BETA / SCALE) as u32).max(2)
    }

    fn on_timeout(&mut self) {
        let Self { now_us, rtt_us, .. } = *self;
        *self = Self { now_us, rtt_us, ..Self::default() };
    }
}
