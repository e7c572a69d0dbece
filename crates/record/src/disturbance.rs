//! Whether the machine has disturbed a run. Reports, tables and judging scripts all use this rule, or read the field
//! `disturbed` of a record's JSON.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::Record;

/// Lateness of a link's packets, at the 99th percentile and in microseconds, above which a run is disturbed.
///
/// A lab that gets its processors delivers 99 % of packets less than 0.5 to 1 ms late on the machines that were tried
/// (`docs/guide/lab.md`), and `ekiden lab check` tolerates 1 ms of the round trip's 99th percentile. Above it the
/// result is the machine's: late packets leave in bursts that overflow the queue. At 1.3 to 5.2 ms CUBIC had 57 to 59
/// Mbit/s instead of 63 to 65 (`docs/guide/lab.md`), at 4 ms HSTCP 47 instead of 61 (`docs/measurements/s0.md`).
const LATENESS_P99_MOST_US: f64 = 1000.0;

/// How the machine disturbed a run, whose result then does not follow from the scenario alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Disturbance {
    /// Packets that the emulation itself lost, on all links. One is too many: the scenario has no such loss.
    pub overruns: u64,
    /// The greatest 99th percentile of lateness of a direction of a link, in microseconds; `None` if none was too late.
    pub lateness_p99_us: Option<f64>,
}

impl Disturbance {
    /// The disturbance of two runs together.
    pub fn and(self, other: Self) -> Self {
        let late = self.lateness_p99_us.into_iter().chain(other.lateness_p99_us).max_by(f64::total_cmp);
        Self { overruns: self.overruns.saturating_add(other.overruns), lateness_p99_us: late }
    }
}

/// For people, such as `3 overruns, 1.2 ms late`.
impl Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.overruns > 0 {
            write!(f, "{} overruns", self.overruns)?;
        }
        if let Some(p99_us) = self.lateness_p99_us {
            let comma = if self.overruns > 0 { ", " } else { "" };
            write!(f, "{comma}{:.1} ms late", p99_us / 1e3)?;
        }
        Ok(())
    }
}

impl Record {
    /// What the machine did to the run; `None` if it is valid: the emulation lost no packet itself, and on no link were
    /// more than 1 % of packets more than 1 ms late. Where time is virtual no machine disturbs.
    ///
    /// How much a hypervisor took ([`Record::stolen_percent`]) explains a disturbance, and is none: what it did to the
    /// packets is in their lateness.
    pub fn disturbance(&self) -> Option<Disturbance> {
        let overruns = self.links.iter().fold(0_u64, |sum, link| sum.saturating_add(link.overruns));
        let late = self.links.iter().filter_map(|link| Some(link.lateness?.p99_us));
        let lateness_p99_us = late.filter(|p99_us| *p99_us > LATENESS_P99_MOST_US).max_by(f64::total_cmp);
        (overruns > 0 || lateness_p99_us.is_some()).then_some(Disturbance { overruns, lateness_p99_us })
    }
}
