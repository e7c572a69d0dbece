//! The one rule by which a claim is judged: numbers in, a verdict out.
//!
//! 1. A claim holds if each of its comparisons lies within its bounds. A comparison is about a mean, a ratio of means or a ratio of two such
//!    ratios ([`Effect`]), or about the greatest of several ([`Comparison::effects`]).
//! 2. [`chances`] gives two numbers: how probable such values are if the claim does *not* hold, and if it does. Both are of two-sided tests,
//!    so that a verdict never contradicts the 95 % interval that is shown beside it.
//! 3. [`holm`] corrects each for the number of claims of the paper that the same engine decides.
//! 4. [`decide`]: *reproduced* or *differs* below [`ALPHA`]. If neither is, it is *open*, unless the interval says that there is no difference
//!    worth the name: then it differs.

mod effect;
mod holm;

use serde::Serialize;

pub use effect::{Effect, Interval};
pub use holm::holm;

/// The part of true claims that may be called wrong, and of wrong ones that may be called true, over all claims of a paper and engine.
pub const ALPHA: f64 = 0.05;
/// How far from its bound a comparison may be, as a part of it, to count as no difference at all, unless a claim says it.
pub const MARGIN: f64 = 0.02;

/// An inequality about measured values.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What is compared; of several the greatest.
    pub effects: Vec<Effect>,
    /// It must be above this.
    pub above: Option<f64>,
    /// It must be below this.
    pub below: Option<f64>,
}

/// What values say of a claim, before the correction for the number of claims.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chances {
    /// How probable values as good as these are if the claim does not hold.
    pub supports: f64,
    /// How probable values as bad as these are if it holds.
    pub contradicts: f64,
    /// All of an interval is this near to its comparison's only bound, as a part of it; the least of all comparisons.
    pub nearness: Option<f64>,
}

/// What is said of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The values bear the claim out.
    Reproduced,
    /// They contradict it.
    Differs,
    /// What it says is a difference is none, or next to none.
    NoDifference,
    /// They do neither.
    Open,
}

impl Comparison {
    /// The effect that counts: of several the greatest.
    pub fn effect(&self) -> Option<&Effect> {
        let value = |effect: &&Effect| effect.interval().value;
        self.effects.iter().max_by(|a, b| value(a).total_cmp(&value(b)))
    }

    /// `None` if a point has fewer than two values.
    fn chances(&self) -> Option<Chances> {
        if self.effects.is_empty() || !self.effects.iter().all(Effect::has_spread) {
            return None;
        }
        let several = self.effects.len() as f64;
        let each = |p: &dyn Fn(&Effect) -> f64| self.effects.iter().map(p).collect::<Vec<f64>>();
        let greatest = |all: Vec<f64>| all.into_iter().fold(0.0, f64::max);
        // The least of several chances is small more often than one is.
        let least = |all: Vec<f64>| (all.into_iter().fold(1.0, f64::min) * several).min(1.0);
        let mut supports: Vec<f64> = Vec::new();
        let mut contradicts: Vec<f64> = Vec::new();
        if let Some(bound) = self.above {
            // The greatest is above if any is, and not above if none is.
            supports.push(least(each(&|effect| effect.chance_above(bound))));
            contradicts.push(greatest(each(&|effect| effect.chance_not_above(bound))));
        }
        if let Some(bound) = self.below {
            supports.push(greatest(each(&|effect| effect.chance_below(bound))));
            contradicts.push(least(each(&|effect| effect.chance_not_below(bound))));
        }
        let bounds = contradicts.len() as f64;
        Some(Chances {
            supports: greatest(supports),
            contradicts: (contradicts.into_iter().fold(1.0, f64::min) * bounds).min(1.0),
            nearness: self.nearness(),
        })
    }

    fn nearness(&self) -> Option<f64> {
        let bound = match (self.above, self.below) {
            (Some(bound), None) | (None, Some(bound)) if bound != 0.0 => bound,
            _ => return None,
        };
        let [effect] = &self.effects[..] else { return None };
        let Interval { low, high, .. } = effect.interval();
        let far = (low / bound - 1.0).abs().max((high / bound - 1.0).abs());
        far.is_finite().then_some(far)
    }
}

/// What the values of a claim's comparisons say of it; `None` if there are too few of them.
pub fn chances(comparisons: &[Comparison]) -> Option<Chances> {
    let all: Vec<Chances> = comparisons.iter().map(Comparison::chances).collect::<Option<_>>()?;
    let several = all.len() as f64;
    let contradicts = all.iter().map(|chances| chances.contradicts).reduce(f64::min)?;
    Some(Chances {
        supports: all.iter().map(|chances| chances.supports).fold(0.0, f64::max),
        contradicts: (contradicts * several).min(1.0),
        nearness: all.iter().filter_map(|chances| chances.nearness).reduce(f64::min),
    })
}

/// The verdict, from chances that are corrected. Without a `margin` no difference is too small.
pub fn decide(corrected: &Chances, margin: Option<f64>) -> Decision {
    let is_near = margin.is_some_and(|margin| corrected.nearness.is_some_and(|nearness| nearness <= margin));
    match corrected {
        // Both cannot be: the same values are not above a bound and below it.
        Chances { supports, .. } if *supports <= ALPHA => Decision::Reproduced,
        Chances { contradicts, .. } if *contradicts <= ALPHA => Decision::Differs,
        _ if is_near => Decision::NoDifference,
        _ => Decision::Open,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ratio(over: &[f64], under: &[f64]) -> Effect {
        Effect::Ratio { over: over.into(), under: under.into(), is_paired: false }
    }

    fn above(effects: Vec<Effect>, bound: f64) -> Comparison {
        Comparison { effects, above: Some(bound), below: None }
    }

    fn verdict(comparison: Comparison) -> Decision {
        decide(&chances(&[comparison]).unwrap(), Some(MARGIN))
    }

    #[test]
    fn the_four_ends_of_a_comparison() {
        let reno = [50.0, 51.0, 49.0, 50.5, 49.5];
        let times = |by: f64| reno.map(|value| value * by);
        assert_eq!(verdict(above(vec![ratio(&times(1.2), &reno)], 1.0)), Decision::Reproduced);
        assert_eq!(verdict(above(vec![ratio(&times(0.8), &reno)], 1.0)), Decision::Differs);
        assert_eq!(verdict(above(vec![ratio(&times(1.01), &reno)], 1.0)), Decision::Open);
        let calm = [50.0, 50.01, 49.99, 50.0, 50.0];
        assert_eq!(verdict(above(vec![ratio(&calm, &calm.map(|value| value * 1.0001))], 1.0)), Decision::NoDifference);
    }

    #[test]
    fn values_that_do_not_vary_decide_it() {
        let [more, same] = [[2.0, 2.0], [1.0, 1.0]];
        assert_eq!(verdict(above(vec![ratio(&more, &same)], 1.0)), Decision::Reproduced);
        assert_eq!(verdict(above(vec![ratio(&same, &more)], 1.0)), Decision::Differs);
        // "More" is wrong of what is the same.
        assert_eq!(verdict(above(vec![ratio(&same, &same)], 1.0)), Decision::Differs);
    }

    #[test]
    fn one_value_decides_nothing() {
        assert_eq!(chances(&[above(vec![Effect::Mean(vec![5.0])], 1.0)]), None);
        assert_eq!(chances(&[above(vec![ratio(&[5.0, 5.0], &[1.0])], 1.0)]), None);
        assert_eq!(chances(&[]), None);
        assert_eq!(chances(&[above(Vec::new(), 1.0)]), None);
    }

    #[test]
    fn the_best_point_is_above_if_any_is_and_below_if_all_are() {
        let [high, low] = [vec![5.0, 5.1, 4.9], vec![1.0, 1.1, 0.9]].map(Effect::Mean);
        let best = |above, below| Comparison { effects: vec![low.clone(), high.clone()], above, below };
        assert_eq!(best(None, None).effect(), Some(&high));
        assert_eq!(verdict(best(Some(4.0), Some(6.0))), Decision::Reproduced);
        assert_eq!(verdict(best(Some(6.0), None)), Decision::Differs);
        assert_eq!(verdict(best(None, Some(4.0))), Decision::Differs);
    }

    #[test]
    fn a_claim_holds_if_all_of_it_does_and_fails_if_a_part_does() {
        let [good, bad] =
            [vec![5.0, 5.1, 4.9], vec![1.0, 1.1, 0.9]].map(|values| above(vec![Effect::Mean(values)], 3.0));
        let of = |all: &[Comparison]| decide(&chances(all).unwrap(), None);
        assert_eq!(of(&[good.clone(), good.clone()]), Decision::Reproduced);
        assert_eq!(of(&[good, bad]), Decision::Differs);
    }

    fn values() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(0.1..100.0_f64, 2..9)
    }

    proptest! {
        #[test]
        fn no_verdict_contradicts_the_interval_beside_it(over in values(), under in values(), bound in 0.1..10.0_f64) {
            let comparison = above(vec![ratio(&over, &under)], bound);
            let interval = comparison.effects[0].interval();
            match decide(&chances(std::slice::from_ref(&comparison)).unwrap(), Some(MARGIN)) {
                Decision::Reproduced => prop_assert!(interval.value > bound && interval.low > bound * 0.99, "{interval:?}"),
                Decision::Differs => prop_assert!(interval.value < bound && interval.high < bound * 1.01, "{interval:?}"),
                Decision::NoDifference => prop_assert!(interval.low >= bound * 0.98 && interval.high <= bound * 1.02),
                // Where the spreads differ much the test is less sure further away.
                Decision::Open => {}
            }
        }

        #[test]
        fn the_opposite_claim_has_the_opposite_verdict(over in values(), under in values(), bound in 0.1..10.0_f64) {
            let of = |comparison| decide(&chances(&[comparison]).unwrap(), None);
            let effects = vec![ratio(&over, &under)];
            let more = of(Comparison { effects: effects.clone(), above: Some(bound), below: None });
            let less = of(Comparison { effects, above: None, below: Some(bound) });
            prop_assert_eq!(more == Decision::Reproduced, less == Decision::Differs);
            prop_assert_eq!(more == Decision::Differs, less == Decision::Reproduced);
        }

        #[test]
        fn units_do_not_matter(over in values(), under in values(), unit in 0.001..1000.0_f64) {
            let scaled = |values: &[f64]| values.iter().map(|value| value * unit).collect::<Vec<_>>();
            let one = chances(&[above(vec![ratio(&over, &under)], 1.0)]).unwrap();
            let other = chances(&[above(vec![ratio(&scaled(&over), &scaled(&under))], 1.0)]).unwrap();
            prop_assert!((one.supports - other.supports).abs() < 1e-6 && (one.contradicts - other.contradicts).abs() < 1e-6);
        }

        #[test]
        fn further_claims_make_no_verdict_easier(own in values(), bound in 1.0..90.0_f64, others in prop::collection::vec(0.0..1.0_f64, 0..9)) {
            let alone = chances(&[above(vec![Effect::Mean(own)], bound)]).unwrap();
            let all: Vec<f64> = std::iter::once(alone.supports).chain(others.iter().copied()).collect();
            prop_assert!(holm(&all, all.len())[0] >= alone.supports);
            prop_assert!(holm(&all, all.len() + 5)[0] >= holm(&all, all.len())[0]);
        }
    }
}
