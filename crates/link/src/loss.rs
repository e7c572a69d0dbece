//! Random loss: of each packet independently, or in bursts.

use ekiden_units::Fraction;

use ekiden_units::random::Random;

use crate::Direction;

/// Decides which of the packets sent are lost. Reproducible: a function of the seed and the number of packets sent.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    random: Random,
    model: Model,
}

#[derive(Debug, Clone)]
enum Model {
    /// Each packet is lost with this probability.
    Independent(Fraction),
    /// Gilbert (Bell System Technical Journal 39(5), 1960), with every packet lost in the bad state and none in the
    /// good one. The state may change before each packet. The first state is drawn from the stationary distribution.
    Gilbert {
        is_bad: bool,
        /// Probabilities of going from the good to the bad state and back, in parts of 2⁶⁴.
        begins: u128,
        ends: u128,
    },
}

/// A probability of one.
const ALWAYS: u128 = 1 << 64;

impl Loss {
    /// The loss of `direction`, drawn from `seed`: on average its loss rate, in bursts of its mean length.
    pub fn new(direction: &Direction, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let model = match direction.loss_burst {
            0 | 1 => Model::Independent(direction.loss),
            _ if direction.loss.0 == 0 => Model::Independent(direction.loss),
            burst => {
                let ends = ALWAYS / u128::from(burst);
                // So that the stationary probability of the bad state, begins / (begins + ends), is the loss rate.
                let kept = Fraction::ONE.0.saturating_sub(direction.loss.0).max(1);
                let begins = ALWAYS * u128::from(direction.loss.0) / (u128::from(burst) * u128::from(kept));
                Model::Gilbert { is_bad: random.is_below(direction.loss), begins: begins.min(ALWAYS), ends }
            }
        };
        Self { random, model }
    }

    /// Whether the next packet is lost.
    #[inline]
    pub fn is_next_lost(&mut self) -> bool {
        match &mut self.model {
            Model::Independent(part) => self.random.is_below(*part),
            Model::Gilbert { is_bad, begins, ends } => {
                let changes = if *is_bad { *ends } else { *begins };
                *is_bad ^= u128::from(self.random.draw()) < changes;
                *is_bad
            }
        }
    }
}

#[cfg(test)]
mod tests;
