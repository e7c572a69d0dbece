//! Random draws, each a function of a seed and of its purpose: the offered traffic is the same for every policy.

use ekiden_units::random::{self, derive};

/// A sequence of draws.
#[derive(Debug, Clone)]
pub struct Random(random::Random);

impl Random {
    /// The sequence of a seed for one thing, which a name and a number tell apart from others.
    pub fn new(seed: u64, name: &str, number: u64) -> Self {
        Self(random::Random::new(derive(seed, name, number)))
    }

    /// From 0 on and below 1, evenly.
    pub fn part(&mut self) -> f64 {
        self.0.up_to((1 << 53) - 1) as f64 / (1_u64 << 53) as f64
    }

    /// Between both, so that each factor is as likely as any other.
    pub fn between(&mut self, [least, most]: [f64; 2]) -> f64 {
        match least > 0.0 {
            true => least * (most / least).powf(self.part()),
            false => least + self.part() * (most - least),
        }
    }

    /// A whole number below `most`.
    pub fn below(&mut self, most: usize) -> usize {
        self.0.up_to((most as u64).saturating_sub(1)) as usize
    }

    /// Of the normal distribution with mean 0 and deviation 1.
    pub fn normal(&mut self) -> f64 {
        let (radius, turn) = ((1.0 - self.part()).ln() * -2.0, self.part() * std::f64::consts::TAU);
        radius.sqrt() * turn.cos()
    }

    /// 1 with noise of this deviation, at most three of it off, and never below a tenth.
    pub fn noise(&mut self, deviation: f64) -> f64 {
        (1.0 + self.normal().clamp(-3.0, 3.0) * deviation).max(0.1)
    }

    /// A number from the Poisson distribution with this mean.
    pub fn poisson(&mut self, mean: f64) -> usize {
        let (limit, mut product) = ((-mean).exp(), self.part());
        let mut count = 0;
        while product > limit {
            product *= self.part();
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn draws_have_the_means_that_they_claim() {
        let mut random = Random::new(1, "test", 0);
        let mean = |draw: &mut dyn FnMut() -> f64| (0..20_000).map(|_| draw()).sum::<f64>() / 20_000.0;
        assert!((0.49..0.51).contains(&mean(&mut || random.part())));
        assert!((-0.02..0.02).contains(&mean(&mut || random.normal())));
        assert!((0.98..1.02).contains(&mean(&mut || random.normal().powi(2))));
        assert!((0.68..0.72).contains(&mean(&mut || random.poisson(0.7) as f64)));
        assert!((9.9..10.1).contains(&mean(&mut || random.between([1.0, 100.0]).log10() * 10.0)));
    }

    #[test]
    fn each_thing_has_draws_of_its_own() {
        let first = |name: &str, number: u64| Random::new(7, name, number).part();
        assert_eq!(first("legs", 1), first("legs", 1));
        assert_ne!(first("legs", 1), first("legs", 2));
        assert_ne!(first("legs", 1), first("traffic", 1));
    }
}
