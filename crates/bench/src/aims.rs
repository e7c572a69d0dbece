//! What ekiden wants to reach, beside whom, and whether it does.

use crate::measure::Measure;
use crate::relay::Relay;
use crate::rounds::Outcome;
use crate::stats::{median, ratio_interval};

/// Streams up to which the aims for few of them hold.
const FEW: u16 = 8;
/// Streams from which on no round may be far above the median: some have fewer pipes than streams.
const MANY: u16 = 2_000;

/// One figure of one of ours, perhaps beside another's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Aim {
    pub measure: Measure,
    pub ours: Relay,
    /// The figure is divided by this one's.
    pub beside: Option<Relay>,
    /// `None`: the ratio is shown, but not judged.
    pub bound: Option<Bound>,
    /// It is for the round with the greatest ratio, and not for the medians.
    pub of_worst_round: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// What was found.
pub struct Verdict {
    pub aim: Aim,
    /// The ratio of medians, or the median itself if it is compared with no other.
    pub value: f64,
    /// Between what the ratio lies with 95 % confidence.
    pub interval: Option<(f64, f64)>,
}

/// All aims, for these numbers of streams.
pub fn all(streams: &[u16]) -> Vec<Aim> {
    use Bound::{AtLeast, AtMost};
    let mut aims = Vec::new();
    let mut aim = |ours, measure, beside, bound| aims.push(Aim { measure, ours, beside, bound, of_worst_round: false });
    let (haproxy, nginx, floor) = (Some(Relay::Haproxy), Some(Relay::Nginx), Some(Relay::Bare));
    for &count in streams {
        let few = count <= FEW;
        aim(Relay::Ekiden, Measure::CpuPerGb(count), haproxy, Some(AtMost(if few { 0.9 } else { 1.0 })));
        aim(Relay::Ekiden, Measure::CpuPerGb(count), floor, Some(AtMost(if few { 1.1 } else { 1.2 })));
        aim(Relay::Ekiden, Measure::Rate(count), haproxy, None);
        aim(Relay::Ekiden, Measure::Fairness(count), None, Some(AtLeast(0.9)));
    }
    aim(Relay::Ekiden, Measure::Connections, haproxy, Some(AtLeast(1.1)));
    aim(Relay::Ekiden, Measure::Connections, nginx, Some(AtLeast(1.0)));
    aim(Relay::Ekiden, Measure::CpuPerConnection, haproxy, Some(AtMost(0.9)));
    aim(Relay::Ekiden, Measure::CpuPerConnection, floor, None);
    aim(Relay::Ekiden, Measure::DelayP50, nginx, Some(AtMost(1.0)));
    aim(Relay::Ekiden, Measure::DelayP99, nginx, Some(AtMost(1.0)));
    aim(Relay::Ekiden, Measure::IdleKilobytes, None, Some(AtMost(4.0)));
    for (ours, peer) in [(Relay::Chain, Relay::HaproxyChain), (Relay::ChainTls, Relay::HaproxyTls)] {
        for &count in streams.iter().filter(|count| **count <= FEW) {
            aim(ours, Measure::CpuPerGb(count), Some(peer), Some(AtMost(0.9)));
        }
        aim(ours, Measure::Connections, Some(peer), Some(AtLeast(1.0)));
        aim(ours, Measure::DelayP50, Some(peer), Some(AtMost(1.0)));
        aim(ours, Measure::DelayP99, Some(peer), Some(AtMost(1.0)));
    }
    for &count in streams.iter().filter(|count| **count >= MANY) {
        let (measure, ours) = (Measure::CpuPerGb(count), Relay::Ekiden);
        aims.push(Aim { measure, ours, beside: haproxy, bound: Some(AtMost(1.3)), of_worst_round: true });
    }
    aims
}

/// Those of `aims` whose figures were measured.
pub fn judged(aims: &[Aim], outcome: &Outcome) -> Vec<Verdict> {
    let values = |relay, measure| outcome.values.get(&(relay, measure)).map(Vec::as_slice);
    let judge = |aim: &Aim| {
        let own = values(aim.ours, aim.measure)?;
        let Some(beside) = aim.beside else { return Some((median(own)?, None)) };
        let other = values(beside, aim.measure)?;
        if aim.of_worst_round {
            let ratios = own.iter().zip(other).map(|(own, other)| own / other);
            return ratios.max_by(f64::total_cmp).map(|worst| (worst, None));
        }
        let below = median(other).filter(|median| *median > 0.0)?;
        Some((median(own)? / below, ratio_interval(own, other)))
    };
    aims.iter().filter_map(|aim| judge(aim).map(|(value, interval)| Verdict { aim: *aim, value, interval })).collect()
}

impl Bound {
    /// What is allowed, in words.
    pub fn words(self) -> String {
        match self {
            Bound::AtMost(most) => format!("≤ {most:.1}"),
            Bound::AtLeast(least) => format!("≥ {least:.1}"),
        }
    }

    fn allows(self, value: f64) -> bool {
        match self {
            Bound::AtMost(most) => value <= most,
            Bound::AtLeast(least) => value >= least,
        }
    }
}

impl Verdict {
    /// `None` if there is nothing to reach.
    pub fn reached(&self) -> Option<bool> {
        self.aim.bound.map(|bound| bound.allows(self.value))
    }

    /// Whether all of the interval says the same as the ratio. A figure without an interval says what it says.
    pub fn is_sure(&self) -> bool {
        let same = |(low, high): (f64, f64)| self.aim.bound.is_none_or(|bound| bound.allows(low) == bound.allows(high));
        self.interval.is_none_or(same)
    }

    /// `ratio [low–high]`.
    pub fn words(&self) -> String {
        match self.interval {
            Some((low, high)) => format!("{:.2} [{low:.2}–{high:.2}]", self.value),
            None => format!("{:.2}", self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(values: &[(Relay, Measure, &[f64])]) -> Vec<Verdict> {
        let mut outcome = Outcome::new(vec![Relay::Ekiden, Relay::Haproxy], 1, false, 2);
        outcome.values = values.iter().map(|(relay, measure, values)| ((*relay, *measure), values.to_vec())).collect();
        judged(&all(&[8, 512]), &outcome)
    }

    #[test]
    fn with_many_streams_no_round_is_to_be_far_above() {
        let mut outcome = Outcome::new(vec![Relay::Ekiden, Relay::Haproxy], 3, false, 2);
        let measure = Measure::CpuPerGb(2_000);
        outcome.values.insert((Relay::Ekiden, measure), vec![1.0, 1.5, 1.0]);
        outcome.values.insert((Relay::Haproxy, measure), vec![1.0, 1.0, 1.0]);
        let verdicts = judged(&all(&[2_000]), &outcome);
        let of = |of_worst_round| verdicts.iter().find(|verdict| verdict.aim.of_worst_round == of_worst_round).unwrap();
        assert_eq!((of(false).value, of(false).reached()), (1.0, Some(true)));
        assert_eq!((of(true).value, of(true).reached()), (1.5, Some(false)));
    }

    #[test]
    fn what_was_not_measured_on_both_sides_is_not_judged() {
        assert!(judge(&[(Relay::Ekiden, Measure::CpuPerGb(8), &[0.1])]).is_empty());
        assert!(
            judge(&[(Relay::Ekiden, Measure::CpuPerGb(8), &[0.1]), (Relay::Haproxy, Measure::CpuPerGb(8), &[0.0])])
                .is_empty()
        );
    }

    #[test]
    fn few_streams_are_to_cost_a_tenth_less_and_many_no_more() {
        for (count, reached) in [(8, false), (512, true)] {
            let cost = Measure::CpuPerGb(count);
            let verdicts = judge(&[(Relay::Ekiden, cost, &[0.095]), (Relay::Haproxy, cost, &[0.1])]);
            assert_eq!(verdicts[0].reached(), Some(reached), "{count} streams");
            assert_eq!((verdicts.len(), verdicts[0].words()), (1, "0.95".into()));
        }
    }

    #[test]
    fn an_interval_that_holds_the_bound_is_not_sure() {
        let cost = Measure::CpuPerGb(8);
        let varies: Vec<f64> = (0..15).map(|round| 0.07 + 0.003 * f64::from(round)).collect();
        let verdicts = judge(&[(Relay::Ekiden, cost, &varies), (Relay::Haproxy, cost, &[0.1; 15])]);
        assert!(!verdicts[0].is_sure(), "{}", verdicts[0].words());
        let verdicts = judge(&[(Relay::Ekiden, cost, &[0.05; 15]), (Relay::Haproxy, cost, &[0.1; 15])]);
        assert!(verdicts[0].is_sure() && verdicts[0].words() == "0.50 [0.50–0.50]");
    }

    #[test]
    fn fairness_and_memory_are_judged_alone() {
        let verdicts =
            judge(&[(Relay::Ekiden, Measure::Fairness(512), &[0.89]), (Relay::Ekiden, Measure::IdleKilobytes, &[4.0])]);
        assert_eq!(verdicts.iter().map(Verdict::reached).collect::<Vec<_>>(), [Some(false), Some(true)]);
    }
}
