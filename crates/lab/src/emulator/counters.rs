//! What one direction of a link has done.

use ekiden_link::{Counts, Fate, Line, queue_drain};
use ekiden_record::{Lateness, LinkDirection};
use ekiden_scenario::Direction;
use ekiden_units::Time;

/// Counts one direction of a link, and how late its deliveries are.
#[derive(Default)]
pub(super) struct Counters {
    counts: Counts,
    /// Frames that the emulation lost: no room in a socket's queue, or refused by a device.
    pub overruns: u64,
    lateness: Histogram,
}

impl Counters {
    pub fn offered(&mut self, bytes: usize, fate: Fate, line: &Line) {
        self.counts.offered(bytes as u32, fate, line);
    }

    pub fn delivered(&mut self, bytes: usize, late_ns: i64) {
        self.counts.delivered(bytes as u32);
        self.lateness.add(late_ns);
    }

    /// Of the direction of the link `name` that leads from `from` to `to`.
    pub fn report(&self, name: &str, direction: &Direction, from: &str, to: &str) -> LinkDirection {
        let Counts {
            packets,
            bytes,
            policer_drops,
            queue_drops,
            queue_marks,
            random_losses,
            outage_losses,
            largest_packet_bytes,
            queue_max_bytes,
            queue_max_packets,
            ..
        } = self.counts;
        LinkDirection {
            link: name.into(),
            from: from.into(),
            to: to.into(),
            packets,
            bytes,
            policer_drops,
            queue_drops,
            queue_marks,
            random_losses,
            outage_losses,
            overruns: self.overruns,
            largest_packet_bytes,
            queue_max_bytes,
            queue_max_packets,
            queue_wait_mean_us: self.counts.mean_wait_us(),
            lateness: self.lateness.summary(queue_drain(direction)),
        }
    }
}

/// Lateness in steps of 5 µs from −0.5 ms to 10 ms; what is beyond counts as the last step, but for the maximum.
struct Histogram {
    steps: Vec<u32>,
    count: u64,
    max_ns: i64,
}

const STEP_NS: i64 = 5_000;
const LEAST_NS: i64 = -500_000;
const STEPS: usize = 2_100;

impl Default for Histogram {
    fn default() -> Self {
        Self { steps: vec![0; STEPS], count: 0, max_ns: i64::MIN }
    }
}

impl Histogram {
    fn add(&mut self, ns: i64) {
        let step = (ns - LEAST_NS).max(0) / STEP_NS;
        self.steps[(step as usize).min(STEPS - 1)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    fn summary(&self, queue_drain: Time) -> Option<Lateness> {
        (self.count > 0).then(|| Lateness {
            p50_us: self.percentile_us(50),
            p99_us: self.percentile_us(99),
            max_us: self.max_ns as f64 / 1e3,
            queue_drain_us: Some(queue_drain.0 as f64 / 1e3),
        })
    }

    fn percentile_us(&self, percent: u64) -> f64 {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        let step = self.steps.iter().position(|&count| {
            seen += u64::from(count);
            seen >= wanted
        });
        let upper_ns = LEAST_NS + (step.unwrap_or(STEPS) as i64 + 1) * STEP_NS;
        upper_ns.min(self.max_ns) as f64 / 1e3
    }
}
