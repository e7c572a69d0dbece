//! Medians, percentiles, fairness, and how sure a ratio of medians is.

use ekiden_units::quantile;
use ekiden_units::random::Random;

/// Resamplings of the bootstrap.
const RESAMPLES: usize = 4000;
/// Fewer rounds say nothing about how much rounds differ.
const LEAST_ROUNDS: usize = 5;
/// What lies outside of a confidence interval on each side, in percent.
const TAIL: f64 = 2.5;

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile::median(&sorted(values))
}

/// The smallest value that at least `percent` of all values do not exceed; `None` of nothing.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let sorted = sorted(values);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Jain's index of fairness, (Σx)² / (n Σx²): 1 if all are the same, 1/n if one has everything; `None` of nothing.
pub fn jain(shares: &[u64]) -> Option<f64> {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), share| {
        let share = *share as f64;
        (sum + share, squares + share * share)
    });
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// Between what the ratio of the medians of `own` and `other` lies with 95 % confidence: the percentile bootstrap over
/// rounds (Efron and Tibshirani 1993, chapter 13). Values of one round are drawn together, because what disturbs a round
/// disturbs both. `None` with fewer than five rounds, or if the two have not the same ones.
pub fn ratio_interval(own: &[f64], other: &[f64]) -> Option<(f64, f64)> {
    if own.len() < LEAST_ROUNDS || own.len() != other.len() {
        return None;
    }
    // The same values give the same interval.
    let mut random = Random::new(0);
    let mut draw = || (random.draw() % own.len() as u64) as usize;
    let ratios: Option<Vec<f64>> = (0..RESAMPLES)
        .map(|_| {
            let (ours, others): (Vec<f64>, Vec<f64>) =
                (0..own.len()).map(|_| draw()).map(|at| (own[at], other[at])).unzip();
            Some(median(&ours)? / median(&others).filter(|median| *median > 0.0)?)
        })
        .collect();
    let ratios = ratios?;
    Some((percentile(&ratios, TAIL)?, percentile(&ratios, 100.0 - TAIL)?))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middle_values() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 99.0), Some(198.0));
        assert_eq!(percentile(&values, 50.0), Some(100.0));
        assert_eq!(percentile(&values, 100.0), Some(200.0));
        assert_eq!(percentile(&[7.0], 1.0), Some(7.0));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn fairness_is_one_of_equals_and_a_share_of_one_among_many() {
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0, 0]), None);
        assert_eq!(jain(&[5, 5, 5]), Some(1.0));
        assert_eq!(jain(&[8, 0, 0, 0]), Some(0.25));
    }

    #[test]
    fn a_ratio_of_what_does_not_vary_is_sure_and_of_what_does_is_not() {
        let steady = [2.0; 15];
        assert_eq!(ratio_interval(&steady, &[4.0; 15]), Some((0.5, 0.5)));
        let wide: Vec<f64> = (0..15).map(|round| 1.0 + f64::from(round) / 14.0).collect();
        let (low, high) = ratio_interval(&wide, &steady).unwrap();
        assert!(0.5 < low && low < 0.75 && 0.75 < high && high < 1.0, "{low} {high}");
    }

    #[test]
    fn what_disturbs_a_round_for_both_widens_no_interval() {
        let disturbed: Vec<f64> = (1..=15).map(f64::from).collect();
        let doubled: Vec<f64> = disturbed.iter().map(|value| 2.0 * value).collect();
        let (low, high) = ratio_interval(&doubled, &disturbed).unwrap();
        assert!((low - 2.0).abs() < 1e-9 && (high - 2.0).abs() < 1e-9);
    }

    #[test]
    fn few_or_unlike_rounds_give_no_interval() {
        assert_eq!(ratio_interval(&[1.0; 4], &[1.0; 4]), None);
        assert_eq!(ratio_interval(&[1.0; 6], &[1.0; 7]), None);
    }
}
