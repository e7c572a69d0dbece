//! Holm's correction for several tests.

/// The chances of several tests, each as if it were the only one: below 0.05 where one in twenty such families of tests has any that is, if
/// there are no differences (Holm, Scand. J. Statist. 6, 1979). Of the `family` those that are missing count as tests that show nothing.
pub fn holm(chances: &[f64], family: usize) -> Vec<f64> {
    let family = family.max(chances.len());
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let mut corrected = vec![0.0; chances.len()];
    let mut most: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        most = most.max((chances[at] * (family - rank) as f64).min(1.0));
        corrected[at] = most;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::holm;

    #[test]
    fn it_is_the_textbooks_example() {
        let rounded = |chances: &[f64], family| {
            holm(chances, family).into_iter().map(|chance| (chance * 1000.0).round() / 1000.0).collect::<Vec<_>>()
        };
        assert_eq!(rounded(&[0.01, 0.04, 0.03, 0.005], 4), [0.03, 0.06, 0.06, 0.02]);
        assert_eq!(rounded(&[0.6, 0.7], 2), [1.0, 1.0]);
        // Two more that show nothing.
        assert_eq!(rounded(&[0.01, 0.04, 0.03, 0.005], 6), [0.05, 0.12, 0.12, 0.03]);
        assert!(holm(&[], 3).is_empty());
    }
}
