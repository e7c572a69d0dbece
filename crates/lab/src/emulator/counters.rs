//! What one direction of a link has done.

use ekiden_record::{Lateness, LinkDirection};

use crate::line::{Fate, Line};

/// Counts one direction of a link.
#[derive(Default)]
pub(super) struct Counters {
    packets: u64,
    bytes: u64,
    queue_drops: u64,
    random_losses: u64,
    /// Frames that the emulation lost: no room in a socket's queue, or refused by a device.
    pub overruns: u64,
    largest_packet_bytes: u64,
    queue_max_bytes: u64,
    queue_max_packets: u64,
    lateness: Histogram,
}

impl Counters {
    pub fn offered(&mut self, bytes: usize, fate: Fate, line: &Line) {
        self.largest_packet_bytes = self.largest_packet_bytes.max(bytes as u64);
        self.queue_max_bytes = self.queue_max_bytes.max(line.waiting_bytes());
        self.queue_max_packets = self.queue_max_packets.max(line.waiting_packets());
        match fate {
            Fate::Arrives { .. } => {}
            Fate::Dropped => self.queue_drops += 1,
            Fate::Lost => self.random_losses += 1,
        }
    }

    pub fn delivered(&mut self, bytes: usize, late_ns: i64) {
        self.packets += 1;
        self.bytes += bytes as u64;
        self.lateness.add(late_ns);
    }

    pub fn report(&self, link: &str, from: &str, to: &str) -> LinkDirection {
        LinkDirection {
            link: link.into(),
            from: from.into(),
            to: to.into(),
            packets: self.packets,
            bytes: self.bytes,
            queue_drops: self.queue_drops,
            random_losses: self.random_losses,
            overruns: self.overruns,
            largest_packet_bytes: self.largest_packet_bytes,
            queue_max_bytes: self.queue_max_bytes,
            queue_max_packets: self.queue_max_packets,
            lateness: self.lateness.summary(),
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

    fn summary(&self) -> Option<Lateness> {
        (self.count > 0).then(|| Lateness {
            p50_us: self.percentile_us(50),
            p99_us: self.percentile_us(99),
            max_us: self.max_ns as f64 / 1e3,
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
