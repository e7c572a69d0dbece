//! Chance that a seed decides.

/// SplitMix64 (Steele, Lea, Flood, 2014).
pub struct Random(pub u64);

impl Random {
    /// From 0 to 1, without 0.
    pub fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((mixed ^ (mixed >> 31)) >> 11) as f64 + 1.0) / 9_007_199_254_740_993.0
    }

    /// Segments up to and with the next that is lost, if a part of `loss` is.
    pub fn until(&mut self, loss: f64) -> f64 {
        if loss <= 0.0 {
            return f64::INFINITY;
        }
        (self.part().ln() / (1.0 - loss.min(0.999)).ln()).ceil().max(1.0)
    }
}
