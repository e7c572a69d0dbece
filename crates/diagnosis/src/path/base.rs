//! The base round trip: without load, and without the jitter of the path.

use ekiden_record::Finding;
use ekiden_units::quantile;

use crate::measured::Measured;

/// Threshold of a queue's delay, as a multiple of [`Base::jitter_us`].
const JITTER: f64 = 3.0;
/// Least delay, in microseconds, that shows a queue: less may be jitter of the samples.
pub const QUEUE_LEAST_US: f64 = 400.0;
/// A queue shorter than this, in microseconds, may be an effect of a host that was late.
pub const SHORT_QUEUE_US: f64 = 1_000.0;
/// Limit on the delay of the fastest probe, as a multiple of [`Base::jitter_us`], if delays are spread evenly or lie near the least one.
const FASTEST_IS_LATE: f64 = 2.0;
/// The same as a multiple of [`Base::spread_us`]; the greater limit holds.
const SPREAD_IS_LATE: f64 = 1.5;

/// How much too short a kernel's clock may show a round trip, in microseconds.
const EARLY_US: f64 = 100.0;

/// What was known beforehand, and is the same for both directions.
#[derive(Debug, Clone, Copy)]
pub struct Base {
    /// The least round trip of idle probes, in microseconds.
    pub rtt_us: f64,
    /// How much longer three quarters of them were, at least.
    pub jitter_us: f64,
    /// How much longer nine tenths of them were, at most: a path's jitter, or that of a host.
    pub spread_us: f64,
}

impl Base {
    /// What the probes before the load say.
    pub fn of(measured: &Measured) -> Self {
        let idle = measured.answers.iter().filter(|answer| answer.back_ns <= measured.began_ns);
        let mut rtts_us: Vec<_> = idle.map(|answer| answer.rtt_us()).collect();
        rtts_us.sort_by(f64::total_cmp);
        let at = |percent| quantile::above(&rtts_us, percent);
        // A load's packets may be faster than all probes. The kernel's least round trip may be too short by as much as its clock of timestamps
        // is coarse, a millisecond, the smoothed one is not.
        let rows = measured.near_seen.iter().chain(&measured.far_seen).flat_map(|seen| &seen.rows);
        let rows = rows.filter(|row| row.retransmits == 0);
        let of_load = rows.map(|row| row.rtt_us).filter(|rtt_us| *rtt_us > 0).min().map(f64::from);
        let rtt_us = [at(0), of_load].into_iter().flatten().min_by(f64::total_cmp).unwrap_or(0.0);
        // Without an answer nothing is known of the jitter.
        let later_us = |percent| at(percent).map_or(f64::INFINITY, |us| (us - rtt_us).max(0.0));
        // Where even a quarter is late, it is not the host that was busy for a while.
        Self { rtt_us, jitter_us: later_us(25), spread_us: later_us(90) }
    }

    /// Delays beyond this, in microseconds, are a queue's: neither jitter of the path nor of the samples.
    pub fn queue_least_us(self) -> f64 {
        (JITTER * self.jitter_us).max(QUEUE_LEAST_US)
    }

    /// The base round trip is no less than this, in microseconds: the fastest of the probes may have been late, too.
    pub fn least_us(self) -> f64 {
        (self.rtt_us - (SPREAD_IS_LATE * self.spread_us).max(FASTEST_IS_LATE * self.jitter_us)).max(0.0)
    }

    /// The base round trip as a finding, less the time in which the line sent the probes themselves: `sent_us` is the likely time, and
    /// `sent_most_us` the longest. A line with a token bucket sends short packets at once.
    pub fn finding(self, sent_us: f64, sent_most_us: f64) -> Finding {
        if self.rtt_us <= 0.0 {
            return Finding::NotObservable {
                reason: "no small message was answered, and nothing of the loads acknowledged".into(),
            };
        }
        let value = (self.rtt_us - sent_us).max(0.0);
        let evidence = "the fastest of the small messages before the loads, and of what the loads sent".into();
        let low = (self.least_us() - sent_most_us - (value * 0.01).max(200.0)).max(0.0);
        Finding::Observed { value, low, high: self.rtt_us + EARLY_US, evidence }
    }
}
