//! BIC as Linux has it (`tcp_bic.c`), and with it ns-2's TCP-Linux, which took the file from 2.6. It is not the paper's, which
//! `ekiden_bic` is (Xu, Harfoush, Rhee, INFOCOM 2004):
//!
//! - A loss leaves 819/1024 of the window; the largest increment is 16 segments per round trip.
//! - The search goes a quarter of the way to the last maximum per round trip (`BICTCP_B`), not half of it. Within 8
//!   segments of the maximum, and up to 4 beyond, it takes 5 round trips per segment (`smooth_part` / `BICTCP_B`).
//! - Beyond the maximum the increment is a third of the distance from it, up to the largest.
//! - Until the first loss, and after a timeout until the next, the window grows by at least 5 % per round trip.
//! - All this is divided by a smoothed number of segments per acknowledgement, which is rounded such that it stays at 31/16
//!   when each segment is acknowledged: growth is then 1.94 times what is said above.
//! - While the window stands, nothing is looked at for a 32nd of a second.
//!
//! Left out: 2.6 waited for one acknowledgement more per segment of growth, and set a first slow start threshold of 100
//! segments up to 2.6.21, which S2's windows have passed.

use super::{STANDSTILL_US, grow};
use crate::native::slow_start;
use crate::{CongestionControl, Window};

/// Reno up to this window.
const LOW_WINDOW: u32 = 14;
/// What a loss leaves of the window, in 1024ths.
const BETA: u64 = 819;
const SCALE: u64 = 1024;
/// The divisor of the distance that a binary search covers per round trip (`BICTCP_B`).
const SEARCH: u64 = 4;
/// The largest increment, in segments per round trip (`max_increment`).
const INCREMENT_MOST: u64 = 16;
/// `smooth_part`: the number of round trips for the last `SEARCH` segments.
const SMOOTH: u64 = 20;
/// Before the first loss the maximum number of segments per segment of growth.
const COUNT_MOST_BEFORE_LOSS: u64 = 20;
/// Segments per acknowledgement are kept in 16ths; two at first.
const RATIO_SCALE: u32 = 16;

/// One connection's BIC of Linux.
#[derive(Debug, Clone)]
pub struct LinuxBic {
    now_us: u64,
    /// The window at the last loss, or what fast convergence made of it; 0 before the first and after a timeout.
    max: u32,
    /// Segments acknowledged per segment of growth (`cnt`).
    count: u32,
    /// The window when `count` was computed, and when that was.
    seen: (u32, u64),
    /// Segments per acknowledgement, in 16ths (`delayed_ack`).
    ratio: u32,
}

impl Default for LinuxBic {
    fn default() -> Self {
        Self { now_us: 0, max: 0, count: 0, seen: (0, 0), ratio: 2 * RATIO_SCALE }
    }
}

impl LinuxBic {
    /// Its name in the kernel, in configurations and in scenarios.
    pub const NAME: &str = "bic";

    /// Brings `count` up to date (`bictcp_update`).
    fn update(&mut self, window: u32) {
        if self.seen.0 == window && self.now_us.saturating_sub(self.seen.1) <= STANDSTILL_US {
            return;
        }
        self.seen = (window, self.now_us);
        if window <= LOW_WINDOW {
            self.count = window;
            return;
        }
        let (cwnd, max) = (u64::from(window), u64::from(self.max));
        let mut count = if cwnd < max {
            match (max - cwnd) / SEARCH {
                0 | 1 => cwnd * SMOOTH / SEARCH,
                step => cwnd / step.min(INCREMENT_MOST),
            }
        } else if cwnd < max + SEARCH {
            cwnd * SMOOTH / SEARCH
        } else if cwnd < max + INCREMENT_MOST * (SEARCH - 1) {
            cwnd * (SEARCH - 1) / (cwnd - max)
        } else {
            cwnd / INCREMENT_MOST
        };
        if self.max == 0 {
            count = count.min(COUNT_MOST_BEFORE_LOSS);
        }
        let per_ack = count * u64::from(RATIO_SCALE) / u64::from(self.ratio.max(1));
        self.count = u32::try_from(per_ack).unwrap_or(u32::MAX);
    }
}

impl CongestionControl for LinuxBic {
    fn on_rtt(&mut self, _window: &Window, now_us: u64, _rtt_us: u32) -> bool {
        self.now_us = self.now_us.max(now_us);
        false
    }

    fn on_ack(&mut self, window: &mut Window, acked: u32) {
        let left = slow_start(window, acked);
        if left == 0 {
            return;
        }
        self.ratio = (self.ratio - self.ratio / RATIO_SCALE).saturating_add(acked);
        self.update(window.cwnd);
        grow(window, self.count.max(1), left);
    }

    fn on_loss(&mut self, cwnd: u32) -> u32 {
        let now = u64::from(cwnd);
        let max = if cwnd < self.max { now * (SCALE + BETA) / (2 * SCALE) } else { now };
        self.max = max as u32;
        let after = if cwnd <= LOW_WINDOW { now / 2 } else { now * BETA / SCALE };
        (after as u32).max(2)
    }

    fn on_timeout(&mut self) {
        *self = Self { now_us: self.now_us, ..Self::default() };
    }
}
