//! Whether the machine has disturbed a run. Reports, tables and judging scripts all use this rule, or read the field
//! `disturbed` of a record's JSON.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use crate::{LinkDirection, Record};

/// Lateness of a link's packets, at the 99th percentile and in microseconds, above which a run is disturbed.
///
/// A lab that gets its processors delivers 99 % of packets less than 0.5 to 1 ms late on the machines that were tried
/// (`docs/guide/lab.md`), and `ekiden lab check` tolerates 1 ms of the round trip's 99th percentile. Above it the
/// result is the machine's: late packets leave in bursts that overflow the queue. At 1.3 to 5.2 ms CUBIC had 57 to 59
/// Mbit/s instead of 63 to 65 (`docs/guide/lab.md`), at 4 ms HSTCP 47 instead of 61 (`docs/measurements/s0.md`).
const LATENESS_P99_MOST_US: f64 = 1000.0;

/// The part of a run, in percent, that a node's program, a sender or a receiver may wait for a processor.
///
/// The emulation has precedence over them, so beside other work it is on time and they are not: with four legs of 12.5 ms, window
/// limited, programs that waited for 24 to 35 % of the time carried 21 to 23 of 39 Mbit/s, and packets were not late. Programs that fill a
/// fast line wait for each other, too.
const WAITED_MOST_PERCENT: f64 = 15.0;

/// How the machine disturbed a run, whose result then does not follow from the scenario alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Packets that the emulation itself lost, on all links. One is too many: the scenario has no such loss.
    pub overruns: u64,
    /// The greatest 99th percentile of lateness of a direction of a link, in microseconds; `None` if none was too late.
    pub lateness_p99_us: Option<f64>,
    /// The greatest lateness of any packet, in microseconds; `None` if the shortest queue takes as long to drain.
    pub lateness_max_us: Option<f64>,
    /// The greatest part of the run, in percent, that one of its programs waited for a processor; `None` if that was little.
    pub waited_percent: Option<f64>,
}

impl Disturbance {
    /// How the machine disturbed a run with these counters. `waited_percent` is the part of the run that a program waited
    /// for a processor ([`Record::waited_percent`]). `None` if the run is valid. It is valid if
    /// - the emulation lost no packet itself,
    /// - on no link were more than 1 % of packets more than 1 ms late,
    /// - no packet was later than the shortest queue of any link takes to drain. The emulation stands still for all links at
    ///   once. The packets that it then sends at once overflow such a queue, at the next link or behind the sender that the
    ///   acknowledgements wake. A stall of 45 ms over a queue of 11 ms lost 286 packets and half of a run's goodput, while
    ///   99 % of packets were less than 0.2 ms late,
    /// - and no program waited for a processor for more than 15 % of the run.
    pub fn of(links: &[LinkDirection], waited_percent: Option<f64>) -> Option<Self> {
        let overruns = links.iter().fold(0_u64, |sum, link| sum.saturating_add(link.overruns));
        let lateness = || links.iter().filter_map(|link| link.lateness);
        let lateness_p99_us = greatest(lateness().map(|late| late.p99_us)).filter(|us| *us > LATENESS_P99_MOST_US);
        let drain_us = lateness().filter_map(|late| late.queue_drain_us).min_by(f64::total_cmp);
        let lateness_max_us =
            greatest(lateness().map(|late| late.max_us)).filter(|us| drain_us.is_some_and(|drain_us| *us > drain_us));
        let waited_percent = waited_percent.filter(|percent| *percent > WAITED_MOST_PERCENT);
        let late = [lateness_p99_us, lateness_max_us, waited_percent];
        let is_valid = overruns == 0 && late.iter().all(Option::is_none);
        (!is_valid).then_some(Self { overruns, lateness_p99_us, lateness_max_us, waited_percent })
    }

    /// The disturbance of two runs together.
    pub fn and(self, other: Self) -> Self {
        Self {
            overruns: self.overruns.saturating_add(other.overruns),
            lateness_p99_us: greatest(self.lateness_p99_us.into_iter().chain(other.lateness_p99_us)),
            lateness_max_us: greatest(self.lateness_max_us.into_iter().chain(other.lateness_max_us)),
            waited_percent: greatest(self.waited_percent.into_iter().chain(other.waited_percent)),
        }
    }
}

/// For people, such as `3 overruns, 1.2 ms late, once 45.0 ms late, 30 % without a processor`.
impl Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let overruns = (self.overruns > 0).then(|| format!("{} overruns", self.overruns));
        let late = self.lateness_p99_us.map(|us| format!("{:.1} ms late", us / 1e3));
        let once = self.lateness_max_us.map(|us| format!("once {:.1} ms late", us / 1e3));
        let waited = self.waited_percent.map(|percent| format!("{percent:.0} % without a processor"));
        let parts: Vec<_> = [overruns, late, once, waited].into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

impl Record {
    /// How the machine disturbed the run, by [`Disturbance::of`]; `None` if it is valid. In virtual time no machine disturbs
    /// a run.
    ///
    /// The time that a hypervisor took ([`Record::stolen_percent`]) explains a disturbance, and is none itself: its effect
    /// on the packets is in their lateness.
    pub fn disturbance(&self) -> Option<Disturbance> {
        Disturbance::of(&self.links, self.waited_percent)
    }
}

fn greatest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.max_by(f64::total_cmp)
}
