//! Numbers that look random and are a function of a seed: SplitMix64 (Steele, Lea, Flood 2014).
//!
//! Word `n` of a sequence can be had without those before it, which is what comparing a stream at any offset needs.

use crate::Fraction;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of random numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// True with probability `part`.
    #[inline]
    pub fn is_below(&mut self, part: Fraction) -> bool {
        if part.0 == 0 {
            return false;
        }
        // The high half of the product maps a 64-bit number evenly to 0..10⁹.
        let billionth = (u128::from(self.draw()) * u128::from(Fraction::ONE.0)) >> 64;
        (billionth as u64) < part.0
    }

    /// A number from 0 to `most`, evenly distributed.
    #[inline]
    pub fn up_to(&mut self, most: u64) -> u64 {
        // The high half of the product, as above.
        let product = u128::from(self.draw()) * (u128::from(most) + 1);
        (product >> 64) as u64
    }

    /// The next number, evenly distributed over all of 64 bits.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }
}

/// Word `n` of the sequence of `seed`.
pub fn word(seed: u64, n: u64) -> u64 {
    mix(seed.wrapping_add(n.wrapping_add(1).wrapping_mul(STEP)))
}

/// A seed of its own for each thing that a name and number tell apart.
pub fn derive(seed: u64, name: &str, number: u64) -> u64 {
    name.bytes().fold(word(seed, number), |state, byte| mix(state ^ u64::from(byte)))
}

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
