//! CUBIC, RFC 9438, for the TCP engine. The kernel's differs: [`LinuxCubic`](crate::LinuxCubic).
//!
//! Integers only, so that every machine computes the same: windows in 2^-32 segments, times in microseconds. Names are
//! those of the RFC's section 4.1.2. What it leaves open, or what differs:
//! - An acknowledgement of several segments counts as often, as in Linux: with delayed acknowledgements too the window
//!   comes to `target` within a round trip (sections 4.4 and 4.5 say "for each received new ACK").
//! - A stage that begins at W_max or above has K = 0 and W_max = cwnd_epoch, as after a timeout (section 4.8): the formula
//!   would have K negative.
//! - In the Reno-friendly region the window never falls: it is the larger of cwnd and W_est (section 4.3).
//! - Nothing is undone after spurious losses (section 4.9), and there is no response to ECN but to losses.

use crate::native::{HyStartPlusPlus, slow_start};
use crate::{CongestionControl, Window};

/// The constants of RFC 9438. The defaults are the RFC's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CubicSettings {
    /// C, in thousandths of a segment per cubic second (section 5.1: 0.4). At least 1.
    pub c: u32,
    /// beta_cubic: what a loss leaves of the window, in thousandths (section 4.6: 0.7). From 1 to 999.
    pub beta: u32,
    /// Fast convergence: whether a flow whose window shrinks from loss to loss releases more of it to new flows (section 4.7).
    pub fast_convergence: bool,
    /// Whether slow start ends when round-trip times rise (section 4.10): HyStart++, RFC 9406.
    pub hystart: bool,
}

impl Default for CubicSettings {
    fn default() -> Self {
        Self { c: 400, beta: 700, fast_convergence: true, hystart: true }
    }
}

/// A whole segment.
const ONE: u64 = 1 << 32;
/// C·t³ in 2^-32 segments is c·t³ · 2^32 / (10^3 · 10^18), with c in thousandths and t in microseconds: times
/// 2^11 / 5^21.
const CUBE_TIMES: u128 = 1 << 11;
const CUBE_PER: u128 = 5_u128.pow(21);

/// One connection's CUBIC.
#[derive(Debug, Clone)]
pub struct Cubic {
    settings: CubicSettings,
    /// alpha_cubic until W_est has come to cwnd_prior (section 4.3).
    alpha: u64,
    /// The latest time, the latest round-trip time, and eight times the smoothed one (RFC 6298).
    now_us: u64,
    rtt_us: u64,
    srtt8_us: u64,
    /// 0 while undefined: before the first loss, and after a timeout.
    w_max: u64,
    cwnd_prior: u64,
    stage: Option<Stage>,
    hystart: HyStartPlusPlus,
}

/// A stage of congestion avoidance.
#[derive(Debug, Clone, Copy)]
struct Stage {
    /// W_max, or the window at the stage's beginning if that is more.
    plateau: u64,
    k_us: u64,
    w_est: u64,
    /// t: since the stage began, without times in which something else than the window limited the sender.
    elapsed_us: u64,
    /// When `elapsed_us` was brought up to date.
    seen_us: u64,
}

impl Cubic {
    /// Its name in the kernel, in configurations and in scenarios.
    pub const NAME: &str = "cubic";

    /// A new connection's. Settings out of their range are clamped to it.
    pub fn new(settings: CubicSettings) -> Self {
        let beta = settings.beta.clamp(1, 999);
        let settings = CubicSettings { c: settings.c.max(1), beta, ..settings };
        let alpha = 3 * u64::from(1000 - beta) * ONE / u64::from(1000 + beta);
        Self {
            settings,
            alpha,
            now_us: 0,
            rtt_us: 0,
            srtt8_us: 0,
            w_max: 0,
            cwnd_prior: 0,
            stage: None,
            hystart: HyStartPlusPlus::new(),
        }
    }

    /// The stage under way, its clock brought up to now; a new one if there is none.
    ///
    /// A sender that its window limits gets an acknowledgement at least once per round trip, so what lies longer between two
    /// of them is time in which the window did not limit it: section 4.2 leaves that out of t.
    fn stage(&mut self, cwnd: u64) -> Stage {
        match self.stage {
            Some(stage) => {
                let longest = self.rtt_us.max(self.srtt8_us / 8);
                let passed = self.now_us.saturating_sub(stage.seen_us).min(longest);
                Stage { elapsed_us: stage.elapsed_us.saturating_add(passed), seen_us: self.now_us, ..stage }
            }
            None => {
                if self.w_max == 0 {
                    // Slow start ended without a loss (section 4.10), or this follows a timeout, whose cwnd_prior stays.
                    self.cwnd_prior = self.cwnd_prior.max(cwnd);
                }
                let plateau = self.w_max.max(cwnd);
                let cube = u128::from(plateau - cwnd) * CUBE_PER / (u128::from(self.settings.c) * CUBE_TIMES);
                // Rounded up: the curve must not begin above the window, or the stage would not begin as Reno.
                let k_us = if cube == 0 { 0 } else { cube_root(cube) + 1 };
                Stage { plateau, k_us, w_est: cwnd, elapsed_us: 0, seen_us: self.now_us }
            }
        }
    }

    /// W_cubic(t), figure 1.
    fn w_cubic(&self, stage: Stage, t_us: u64) -> u64 {
        let distance = u128::from(t_us.abs_diff(stage.k_us));
        let cube = distance.checked_pow(3).and_then(|cube| cube.checked_mul(u128::from(self.settings.c) * CUBE_TIMES));
        // An overflow means more than any window.
        let change = cube.map_or(u64::MAX, |cube| u64::try_from(cube / CUBE_PER).unwrap_or(u64::MAX));
        if t_us < stage.k_us { stage.plateau.saturating_sub(change) } else { stage.plateau.saturating_add(change) }
    }

    /// Section 4.2 to 4.5: the window after `acked` segments in congestion avoidance.
    fn avoid(&mut self, cwnd: u64, acked: u32) -> u64 {
        let mut stage = self.stage(cwnd);
        let alpha = if stage.w_est >= self.cwnd_prior { ONE } else { self.alpha };
        stage.w_est = stage.w_est.saturating_add(per_window(alpha, acked, cwnd));
        self.stage = Some(stage);
        if self.w_cubic(stage, stage.elapsed_us) < stage.w_est {
            return cwnd.max(stage.w_est);
        }
        let ahead = stage.elapsed_us.saturating_add(self.srtt8_us / 8);
        let target = self.w_cubic(stage, ahead).clamp(cwnd, cwnd.saturating_add(cwnd / 2));
        cwnd.saturating_add(per_window(target - cwnd, acked, cwnd).min(target - cwnd))
    }
}

impl Default for Cubic {
    fn default() -> Self {
        Self::new(CubicSettings::default())
    }
}

impl CongestionControl for Cubic {
    fn on_rtt(&mut self, _window: &Window, now_us: u64, rtt_us: u32) -> bool {
        self.now_us = self.now_us.max(now_us);
        self.rtt_us = rtt_us.into();
        self.hystart.on_rtt(rtt_us);
        self.srtt8_us = match self.srtt8_us {
            0 => 8 * self.rtt_us,
            srtt8 => srtt8 - srtt8 / 8 + self.rtt_us,
        };
        false
    }

    fn on_ack(&mut self, window: &mut Window, acked: u32) {
        if window.cwnd < window.ssthresh {
            self.stage = None;
        }
        let acked =
            if self.settings.hystart { self.hystart.slow_start(window, acked) } else { slow_start(window, acked) };
        if acked == 0 {
            return;
        }
        // The fraction of a segment is kept in `cwnd_cnt`, as by the other algorithms.
        let cwnd = u64::from(window.cwnd.max(1)) * ONE + u64::from(window.cwnd_cnt);
        let most = u64::from(window.clamp.max(1)) * ONE;
        let grown = self.avoid(cwnd, acked).min(most);
        window.cwnd = (grown / ONE) as u32;
        window.cwnd_cnt = (grown % ONE) as u32;
    }

    fn on_loss(&mut self, cwnd: u32) -> u32 {
        let now = u64::from(cwnd) * ONE;
        let beta = u64::from(self.settings.beta);
        let further = self.settings.fast_convergence && now < self.w_max;
        self.w_max = if further { now / 2000 * (1000 + beta) } else { now };
        self.cwnd_prior = now;
        self.stage = None;
        // The least is RFC 5681's.
        ((u64::from(cwnd) * beta / 1000) as u32).max(2)
    }

    fn on_timeout(&mut self) {
        self.w_max = 0;
        self.stage = None;
    }
}

/// What a window that grows by `amount` per round trip has grown by after `acked` segments. `amount` is at most half of the
/// largest window, so nothing overflows.
fn per_window(amount: u64, acked: u32, cwnd: u64) -> u64 {
    let grown = u128::from(amount) * u128::from(acked) * u128::from(ONE) / u128::from(cwnd);
    u64::try_from(grown).unwrap_or(u64::MAX)
}

/// The largest number whose cube is not larger.
pub(crate) fn cube_root(value: u128) -> u64 {
    let mut root: u128 = 0;
    for bit in (0..42).rev() {
        let next = root | 1 << bit;
        if next * next * next <= value {
            root = next;
        }
    }
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn cube_roots_are_exact(root in 0_u64..1 << 42, above in any::<u64>()) {
            let (root, next) = (u128::from(root), u128::from(root) + 1);
            let value = root.pow(3) + u128::from(above) % (next.pow(3) - root.pow(3));
            prop_assert_eq!(u128::from(cube_root(value)), root);
        }
    }
}
