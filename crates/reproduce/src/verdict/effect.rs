//! Means, ratios of means, and ratios of ratios: their intervals, and how sure it is on which side of a bound they are.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The part of intervals that hold the value.
const COVERED: f64 = 0.95;
/// How often an end is looked for further away, and then nearer.
const STEPS_MOST: u32 = 60;
/// An end is known well enough at this part of it.
const EXACT: f64 = 1e-9;

/// What a comparison is about, by the values of its points.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// A mean.
    Mean(Vec<f64>),
    /// A mean over another.
    Ratio {
        /// The first point's values.
        over: Vec<f64>,
        /// The second's.
        under: Vec<f64>,
        /// Both are of the same runs, in the same order.
        is_paired: bool,
    },
    /// (A / B) / (C / D).
    Ratios([Vec<f64>; 4]),
}

/// A value with its 95 % interval, which may have no end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A mean of n values, or what is computed like one.
#[derive(Debug, Clone, Copy)]
struct Mean {
    value: f64,
    /// Of the mean itself.
    variance: f64,
    freedom: f64,
}

impl Mean {
    fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let value = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|each| (each - value).powi(2)).sum();
        // What is left of equal values when they are summed up is no spread.
        let is_even = values.iter().all(|each| *each == values[0]);
        let variance = if is_even { 0.0 } else { squares / (n - 1.0) / n };
        let value = if is_even { values[0] } else { value };
        Self { value, variance, freedom: n - 1.0 }
    }

    /// A sum of independent means, each with a factor (Welch and Satterthwaite).
    fn sum(parts: &[(f64, Self)]) -> Self {
        let value = parts.iter().map(|(factor, mean)| factor * mean.value).sum();
        let variances = || parts.iter().map(|(factor, mean)| (factor * factor * mean.variance, mean.freedom));
        let variance: f64 = variances().map(|(variance, _)| variance).sum();
        let fourth: f64 = variances().map(|(variance, freedom)| variance * variance / freedom).sum();
        let freedom =
            if fourth > 0.0 { variance * variance / fourth } else { parts.iter().map(|(_, mean)| mean.freedom).sum() };
        Self { value, variance, freedom }
    }

    /// Its logarithm, by the delta method; `None` if it has none.
    fn logarithm(self) -> Option<Self> {
        (self.value > 0.0).then(|| Self {
            value: self.value.ln(),
            variance: self.variance / self.value.powi(2),
            ..self
        })
    }

    /// How probable it is to be this far above 0, or further to either side, if it is not above.
    fn chance_above_zero(self) -> f64 {
        if self.variance == 0.0 {
            return if self.value > 0.0 { 0.0 } else { 1.0 };
        }
        let t = self.value / self.variance.sqrt();
        (2.0 * students(self.freedom).map_or(0.5, |of| of.cdf(-t))).min(1.0)
    }

    /// How far the interval's ends are from the value.
    fn reach(self) -> f64 {
        self.quantile() * self.variance.sqrt()
    }

    fn quantile(self) -> f64 {
        students(self.freedom).map_or(f64::INFINITY, |of| of.inverse_cdf(0.5 + COVERED / 2.0))
    }
}

fn students(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom).ok()
}

impl Effect {
    /// All values, point by point.
    pub fn points(&self) -> Vec<&[f64]> {
        match self {
            Self::Mean(values) => vec![values],
            Self::Ratio { over, under, .. } => vec![over, under],
            Self::Ratios(all) => all.iter().map(Vec::as_slice).collect(),
        }
    }

    /// Whether the values are enough to know how much they vary.
    pub fn has_spread(&self) -> bool {
        self.points().iter().all(|values| values.len() >= 2)
    }

    /// The estimate with its interval. Of one value a point it has no ends.
    pub fn interval(&self) -> Interval {
        if !self.has_spread() {
            let means: Vec<f64> =
                self.points().iter().map(|values| values.iter().sum::<f64>() / values.len() as f64).collect();
            let value = match means[..] {
                [a, b] => a / b,
                [a, b, c, d] => a / b / (c / d),
                [a] => a,
                _ => f64::NAN,
            };
            return Interval { value, low: f64::NEG_INFINITY, high: f64::INFINITY };
        }
        match self {
            Self::Mean(values) => {
                let mean = Mean::of(values);
                Interval { value: mean.value, low: mean.value - mean.reach(), high: mean.value + mean.reach() }
            }
            Self::Ratio { over, under, .. } => {
                let value = Mean::of(over).value / Mean::of(under).value;
                if !value.is_finite() {
                    return Interval { value, low: f64::NEG_INFINITY, high: f64::INFINITY };
                }
                // The ratios that the test does not refuse: what Fieller computes, with Welch's freedom at each.
                let low = end(value, -1.0, |bound| self.chance_above(bound));
                Interval { value, low, high: end(value, 1.0, |bound| self.chance_below(bound)) }
            }
            Self::Ratios(all) => match of_logarithms(all) {
                Some(mean) => {
                    let [value, low, high] = [0.0, -1.0, 1.0].map(|side: f64| (mean.value + side * mean.reach()).exp());
                    Interval { value, low, high }
                }
                None => Interval { value: f64::NAN, low: f64::NEG_INFINITY, high: f64::INFINITY },
            },
        }
    }

    /// How probable values as high as these, or as far to the other side, are if it is not above the bound.
    pub fn chance_above(&self, bound: f64) -> f64 {
        self.greatest_beyond(bound, -1.0, |bound| self.beside(bound).map_or(1.0, Mean::chance_above_zero))
    }

    /// The same if it is not below the bound.
    pub fn chance_below(&self, bound: f64) -> f64 {
        let below = |mean: Mean| Mean { value: -mean.value, ..mean }.chance_above_zero();
        self.greatest_beyond(bound, 1.0, |bound| self.beside(bound).map_or(1.0, below))
    }

    /// The greatest chance at the bound and beyond it, on this `side`. Where little is known of what a ratio divides by, a bound further away
    /// may be more probable than one nearer: then the nearer one is not refused either, and what is not refused is an interval.
    fn greatest_beyond(&self, bound: f64, side: f64, chance: impl Fn(f64) -> f64) -> f64 {
        let here = chance(bound);
        let Self::Ratio { over, under, .. } = self else { return here };
        let value = Mean::of(over).value / Mean::of(under).value;
        let first = (value - bound).abs().max(value.abs() * 1e-3) / 8.0;
        if !first.is_finite() {
            return here;
        }
        let beyond = (0..STEPS_MOST).map(|step| chance(bound + side * first * (f64::from(step) / 2.0).exp2()));
        beyond.fold(here, f64::max)
    }

    /// How probable values as low as these are if it is above the bound. Without any spread, at the bound is not above.
    pub fn chance_not_above(&self, bound: f64) -> f64 {
        match self.beside(bound) {
            Some(Mean { value, variance: 0.0, .. }) => f64::from(u8::from(value > 0.0)),
            _ => self.chance_below(bound),
        }
    }

    /// How probable values as high as these are if it is below the bound.
    pub fn chance_not_below(&self, bound: f64) -> f64 {
        match self.beside(bound) {
            Some(Mean { value, variance: 0.0, .. }) => f64::from(u8::from(value < 0.0)),
            _ => self.chance_above(bound),
        }
    }

    /// What is above 0 if it is above the bound.
    fn beside(&self, bound: f64) -> Option<Mean> {
        match self {
            Self::Mean(values) => Some(shifted(Mean::of(values), bound)),
            Self::Ratio { over, under, is_paired: true } => {
                let each: Vec<f64> = over.iter().zip(under).map(|(over, under)| over - bound * under).collect();
                Some(Mean::of(&each))
            }
            Self::Ratio { over, under, .. } => Some(Mean::sum(&[(1.0, Mean::of(over)), (-bound, Mean::of(under))])),
            Self::Ratios(all) if bound > 0.0 => of_logarithms(all).map(|mean| shifted(mean, bound.ln())),
            Self::Ratios(_) => None,
        }
    }
}

fn shifted(mean: Mean, by: f64) -> Mean {
    Mean { value: mean.value - by, ..mean }
}

/// The logarithm of (A / B) / (C / D).
fn of_logarithms(all: &[Vec<f64>; 4]) -> Option<Mean> {
    let signs = [1.0, -1.0, -1.0, 1.0];
    let parts: Option<Vec<(f64, Mean)>> =
        signs.into_iter().zip(all).map(|(sign, values)| Some((sign, Mean::of(values).logarithm()?))).collect();
    Some(Mean::sum(&parts?))
}

/// The end, from the `inside` on, at which a chance falls to what lies outside of intervals; infinite on this `side` if there is none.
fn end(inside: f64, side: f64, chance: impl Fn(f64) -> f64) -> f64 {
    let is_outside = |at: f64| chance(at) <= 1.0 - COVERED;
    let first = inside.abs().max(f64::MIN_POSITIVE) * 1e-3;
    let steps = (0..STEPS_MOST).map(|doubled| inside + side * first * f64::from(doubled).exp2());
    let Some(mut outside) = steps.into_iter().find(|at| is_outside(*at)) else { return side * f64::INFINITY };
    let mut inside = inside;
    for _ in 0..STEPS_MOST {
        if (outside - inside).abs() <= EXACT * outside.abs() {
            break;
        }
        let middle = f64::midpoint(inside, outside);
        if is_outside(middle) {
            outside = middle;
        } else {
            inside = middle;
        }
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-3 * expected.abs().max(1.0), "{value} is not {expected}");
    }

    #[test]
    fn a_mean_is_tested_as_student_does() {
        // t = 0.48 / 0.2083 = 2.304; with four degrees of freedom, of which there is a closed form, that is p = 0.0826. The quantile is 2.776.
        let mean = Effect::Mean(vec![5.1, 4.9, 5.6, 5.8, 6.0]);
        let Interval { value, low, high } = mean.interval();
        for (value, expected) in [(value, 5.48), (low, 4.9016), (high, 6.0584), (mean.chance_above(5.0), 0.0826)] {
            near(value, expected);
        }
        near(mean.chance_below(5.0), 1.0);
        near(mean.chance_above(low), 0.05);
        near(mean.chance_below(high), 0.05);
    }

    #[test]
    fn two_means_are_compared_as_welch_does() {
        let over = vec![24.0, 27.5, 22.0, 28.0, 24.0];
        let under = vec![20.0, 21.0, 19.0, 20.5, 19.5];
        let ratio = Effect::Ratio { over, under, is_paired: false };
        let Interval { value, low, high } = ratio.interval();
        near(value, 1.255);
        near(ratio.chance_above(low), 0.05);
        near(ratio.chance_below(high), 0.05);
        // t = 5.1 / 1.1979 by hand, with 4.756 degrees of freedom.
        let Mean { value, variance, freedom } = ratio.beside(1.0).unwrap();
        near(value / variance.sqrt(), 4.2574);
        near(freedom, 4.7565);
    }

    #[test]
    fn what_varies_together_is_compared_run_by_run() {
        let under = vec![10.0, 20.0, 30.0, 40.0];
        let over: Vec<f64> = under.iter().map(|value| value * 1.1 + value % 7.0 * 0.01).collect();
        let [apart, paired] =
            [false, true].map(|is_paired| Effect::Ratio { over: over.clone(), under: under.clone(), is_paired });
        assert!(apart.chance_above(1.0) > 0.5 && paired.chance_above(1.0) < 0.05);
        assert!(paired.interval().low > 1.0 && apart.interval().low < 1.0);
    }

    #[test]
    fn ratios_of_ratios_are_compared_by_their_logarithms() {
        let about = |value: f64| vec![value * 0.99, value, value * 1.01];
        let four = Effect::Ratios([about(6.0), about(2.0), about(3.0), about(2.0)]);
        let Interval { value, low, high } = four.interval();
        near(value, 2.0);
        near((low.ln() + high.ln()) / 2.0, 2.0_f64.ln());
        near(four.chance_above(low), 0.05);
        assert!(four.chance_above(1.5) < 0.05 && four.chance_below(1.5) > 0.95);
    }

    #[test]
    fn a_bound_is_not_refused_where_one_further_away_is_not() {
        // At 0.6 Welch's t has more degrees of freedom than at 0, and alone would refuse it.
        let over = vec![66.1, 81.7];
        let ratio = Effect::Ratio { over, under: vec![0.1, 67.1, 0.1], is_paired: false };
        assert!(
            ratio.beside(0.6).unwrap().chance_above_zero() < 0.05
                && ratio.beside(0.0).unwrap().chance_above_zero() > 0.05
        );
        assert_eq!(ratio.interval().low, f64::NEG_INFINITY);
        assert!(ratio.chance_above(0.6) > 0.05);
    }

    #[test]
    fn a_ratio_to_what_may_be_nothing_has_no_end() {
        let ratio = Effect::Ratio { over: vec![5.0, 6.0], under: vec![-1.0, 1.5], is_paired: false };
        assert_eq!((ratio.interval().value, ratio.interval().high), (22.0, f64::INFINITY));
        let none = Effect::Ratio { over: vec![5.0, 6.0], under: vec![0.0, 0.0], is_paired: false };
        assert_eq!(none.interval().value, f64::INFINITY);
        assert!(none.chance_above(1.0) < 0.2);
    }
}
