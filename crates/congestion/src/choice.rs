//! Which congestion control a path needs, as a sender with Reno can tell: `congestion = "auto"`.
//!
//! Where losses come from a queue that overflows, no control of a single connection gets more than Reno without taking it
//! from others. Where they come at random and find the line half empty, Reno wastes it, and BIC hurts nobody. So Reno is
//! used until [`LOSSES`] losses in a row look random by both signs:
//!
//! - Hardly anything waited: by the round-trip time just before, less than [`QUEUED`] of the sender's segments, or than
//!   [`QUEUED_PART`] of its window, were in a queue (Vegas' estimate, cwnd·(1 − least RTT / RTT); Brakmo, Peterson 1995). A queue
//!   that overflows was full; large windows are granted more because round-trip times scatter without a queue too.
//! - The windows that lost differed (coefficient of variation at least [`SPREAD`]). Behind a queue too short to be seen, or a
//!   policer, losses come at one window. After random losses the spread is about 0.4.
//!
//! After [`KEPT_US`] the path is measured again, for it may have changed. What such a rule gains and what it costs stands in `docs/congestion.md`.

use std::fmt;

use crate::Algorithm;

/// What a configuration names instead of a congestion control.
pub const AUTO: &str = "auto";
/// How a line of a node's log begins that tells a choice; the address, the choice and the reason follow.
pub const TOLD: &str = "congestion control to ";
/// What a path has as long as nothing speaks against it.
pub const CAREFUL: Algorithm = Algorithm::Reno;
/// What a path has whose losses are random.
pub const BOLD: Algorithm = Algorithm::Bic;

/// How often a sender is looked at: more often than it loses, and less often than it costs. In microseconds.
pub const LOOK_US: u64 = 100_000;
/// How long [`BOLD`] is kept before the path is measured again, in microseconds.
pub const KEPT_US: u64 = 30 * 60 * 1_000_000;
/// How many losses are judged at once.
pub const LOSSES: usize = 5;
/// Losses before which less waited than this (median) are not a queue's, in thousandths of a segment.
pub const QUEUED: u64 = 1500;
/// The same as a part of the mean window, in thousandths. The larger of the two counts.
pub const QUEUED_PART: u64 = 20;
/// Losses at windows that vary less than this are not random, as a coefficient of variation in percent.
pub const SPREAD: u64 = 30;

/// A sender at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Slow start threshold, in segments; `None` before the first loss.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: u32,
    /// Least round-trip time of the connection, in microseconds.
    pub rtt_min_us: u32,
    /// Segments sent again, in all.
    pub retransmits: u32,
}

/// A loss event in congestion avoidance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loss {
    window: u32,
    /// In thousandths of a segment.
    queued: u64,
}

/// What the latest losses of a path say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// Median of what waited, in thousandths of a segment.
    pub queued: u64,
    /// Mean of the windows that lost, in segments.
    pub window: u64,
    /// Their coefficient of variation, in percent.
    pub spread: u64,
}

/// A path and what was chosen for it. Times are in microseconds of any clock that does not step back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path {
    evidence: Evidence,
    /// Whether a first finding was told.
    is_told: bool,
    bold_since_us: Option<u64>,
}

/// What is to be told of a path: the choice, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// What the path has from now on.
    pub algorithm: Algorithm,
    /// What it was chosen by.
    pub finding: Finding,
}

impl Path {
    /// What the path has now.
    pub fn current(&mut self, now_us: u64) -> Algorithm {
        match self.bold_since_us {
            Some(since) if now_us.saturating_sub(since) < KEPT_US => BOLD,
            Some(_) => {
                *self = Self::default();
                CAREFUL
            }
            None => CAREFUL,
        }
    }

    /// As [`Evidence::look`]. Returns the first finding, and the one that changes the choice.
    pub fn look(&mut self, before: &Look, now: &Look, senders: u32, now_us: u64) -> Option<Told> {
        let finding = self.evidence.look(before, now, senders)?;
        if self.current(now_us) == BOLD {
            return None;
        }
        let is_first = !std::mem::replace(&mut self.is_told, true);
        let algorithm = if finding.is_random() { BOLD } else { CAREFUL };
        if algorithm == BOLD {
            self.bold_since_us = Some(now_us);
        }
        (is_first || algorithm == BOLD).then_some(Told { algorithm, finding })
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.algorithm, self.finding)
    }
}

/// What is known of a path: the least round-trip time and the latest losses of all its connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    rtt_min_us: Option<u32>,
    losses: Vec<Loss>,
}

impl Evidence {
    /// Takes two looks at one sender with [`CAREFUL`], one after the other, closer together than losses. `senders`: how many
    /// share the path, at least 1; all their segments wait in one queue. Returns a finding for every loss from the fifth on.
    ///
    /// The loss that ends the first slow start tells nothing: there the window has doubled in the last round trip.
    pub fn look(&mut self, before: &Look, now: &Look, senders: u32) -> Option<Finding> {
        let least = [before.rtt_min_us, now.rtt_min_us].into_iter().filter(|&rtt| rtt > 0).min();
        self.rtt_min_us = [self.rtt_min_us, least].into_iter().flatten().min();
        let avoiding = before.ssthresh.is_some_and(|ssthresh| before.cwnd >= ssthresh);
        let lost = now.retransmits > before.retransmits && now.ssthresh != before.ssthresh;
        let (true, true, Some(least)) = (avoiding, lost, self.rtt_min_us) else { return None };
        let waited = u128::from(before.rtt_us.saturating_sub(least));
        let queued = 1000 * u128::from(before.cwnd) * u128::from(senders) * waited / u128::from(before.rtt_us.max(1));
        let queued = u64::try_from(queued).unwrap_or(u64::MAX);
        if self.losses.len() == LOSSES {
            self.losses.remove(0);
        }
        self.losses.push(Loss { window: before.cwnd, queued });
        (self.losses.len() == LOSSES).then(|| self.finding())
    }

    fn finding(&self) -> Finding {
        let mut queued: Vec<u64> = self.losses.iter().map(|loss| loss.queued).collect();
        queued.sort_unstable();
        let windows = self.losses.iter().map(|loss| u128::from(loss.window));
        let (sum, squares) = windows.fold((0, 0), |(sum, squares), window| (sum + window, squares + window * window));
        let count = self.losses.len() as u128;
        // (σ/μ)² = (n·Σw² − (Σw)²) / (Σw)²
        let spread = ((count * squares - sum * sum) * 10_000 / (sum * sum).max(1)).isqrt();
        Finding { queued: queued[queued.len() / 2], window: (sum / count) as u64, spread: spread as u64 }
    }
}

impl Finding {
    /// Whether the losses were random.
    pub fn is_random(&self) -> bool {
        self.is_empty() && self.spread >= SPREAD
    }

    /// Whether hardly anything waited.
    fn is_empty(&self) -> bool {
        self.queued < QUEUED.max(self.window * QUEUED_PART)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queued, window, spread } = self;
        let (whole, tenth) = (queued / 1000, queued % 1000 / 100);
        write!(
            f,
            "at the last {LOSSES} losses {whole}.{tenth} segments of {window} waited (median), windows varied by {spread} %"
        )?;
        f.write_str(match self.is_random() {
            true => ": losses are random",
            false if self.is_empty() => ": always the same window loses",
            false => ": a queue overflows",
        })
    }
}
