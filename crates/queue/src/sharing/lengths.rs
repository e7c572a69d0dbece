//! How long the transfers of a class are, and which of those that run is likely to end soonest.
//!
//! Lengths are unknown until a transfer ends. But what has ended tells, for each number of bytes that a transfer has moved,
//! how likely it is to end within the next ones. For the least mean time those go first that promise the most ends for each
//! byte that they are given (the index of Gittins; Aalto, Ayesta and Righter, Queueing Systems 63, 2009). Where lengths
//! differ much these are the transfers that have moved the least; where they are alike, those that have moved the most, so
//! that one ends before the next begins.

/// The bounds of bins: `SHORTEST` bytes, and from there on `PER_DOUBLING` bins for each doubling.
const SHORTEST: f64 = 1_024.0;
const PER_DOUBLING: f64 = 2.0;
const BINS: usize = 64;
/// What is known of a bin is halved when this many transfers have passed it, so that what is long past counts less.
const KEPT: f64 = 256.0;
/// At first a bin is taken for one that `PRIOR` transfers have passed, with a chance to end in each byte of `PRIOR_ENDS`
/// divided by the bytes moved: lengths that differ much (Pareto).
const PRIOR: f64 = 1.0;
const PRIOR_ENDS: f64 = 1.0;

/// What is known of the lengths of transfers.
#[derive(Debug, Clone)]
pub struct Lengths {
    bins: [Bin; BINS],
}

/// Transfers that have moved about as much.
#[derive(Debug, Clone, Copy)]
struct Bin {
    /// Bytes that transfers have moved while they were in it.
    moved: f64,
    /// Transfers that ended in it.
    ended: f64,
}

/// For each bin, how many ends a byte of a transfer in it promises at best.
#[derive(Debug, Clone, Copy)]
pub struct Promises([f64; BINS]);

impl Default for Lengths {
    fn default() -> Self {
        let bin = |bin| {
            let moved = PRIOR * width(bin);
            Bin { moved, ended: moved * PRIOR_ENDS / bounds(bin).1 }
        };
        Self { bins: std::array::from_fn(bin) }
    }
}

impl Lengths {
    /// A transfer that had moved `from` bytes has now moved `to`.
    pub fn moves(&mut self, from: u64, to: u64) {
        let (mut from, to) = (from as f64, to as f64);
        while from < to {
            let bin = bin_of(from);
            let until = bounds(bin).1.min(to);
            self.bins[bin].moved += until - from;
            if self.bins[bin].moved > KEPT * width(bin) {
                self.bins[bin].moved /= 2.0;
                self.bins[bin].ended /= 2.0;
            }
            from = until;
        }
    }

    /// A transfer has ended that has moved so many bytes.
    pub fn ends(&mut self, moved: u64) {
        // Its last byte stands in the bin.
        self.bins[bin_of(moved.saturating_sub(1) as f64)].ended += 1.0;
    }

    /// What transfers promise.
    pub fn promises(&self) -> Promises {
        // The chance to pass a bin, and the mean number of bytes in it.
        let passing: Vec<(f64, f64)> = (0..BINS).map(|bin| self.bins[bin].passing(width(bin))).collect();
        let best = |first: usize| {
            let (mut passes, mut bytes, mut best) = (1.0, 0.0, 0.0_f64);
            for (chance, mean) in &passing[first..] {
                bytes += passes * mean;
                passes *= chance;
                best = best.max((1.0 - passes) / bytes);
            }
            best
        };
        Promises(std::array::from_fn(best))
    }
}

impl Bin {
    fn passing(self, width: f64) -> (f64, f64) {
        let ends_per_byte = self.ended / self.moved;
        let chance = (-ends_per_byte * width).exp();
        let mean = if ends_per_byte * width > 1e-9 { (1.0 - chance) / ends_per_byte } else { width };
        (chance, mean)
    }
}

impl Promises {
    /// How many ends each byte promises at best that a transfer is given that has moved so many.
    pub fn of(&self, moved: u64) -> f64 {
        self.0[bin_of(moved as f64)]
    }
}

fn bin_of(moved: f64) -> usize {
    if moved < SHORTEST {
        return 0;
    }
    (1 + ((moved / SHORTEST).log2() * PER_DOUBLING) as usize).min(BINS - 1)
}

/// Where a bin begins and ends, in bytes moved. The last one has no end.
fn bounds(bin: usize) -> (f64, f64) {
    let begin = |bin: usize| if bin == 0 { 0.0 } else { SHORTEST * ((bin - 1) as f64 / PER_DOUBLING).exp2() };
    (begin(bin), if bin + 1 == BINS { f64::INFINITY } else { begin(bin + 1) })
}

fn width(bin: usize) -> f64 {
    let (begin, end) = bounds(bin);
    if end.is_finite() { end - begin } else { begin }
}

#[cfg(test)]
mod tests {
    use ekiden_units::random::Random;
    use proptest::prelude::*;

    use super::*;

    fn learned(lengths: impl Iterator<Item = u64>) -> Promises {
        let mut learned = Lengths::default();
        for length in lengths {
            learned.moves(0, length);
            learned.ends(length);
        }
        learned.promises()
    }

    #[test]
    fn of_lengths_that_are_alike_those_promise_most_that_have_moved_most() {
        let promises = learned((0..1_000).map(|n| 480_000 + 40 * n));
        let of = [20_000, 50_000, 100_000, 200_000, 300_000, 400_000].map(|moved| promises.of(moved));
        assert!(of.windows(2).all(|two| two[0] <= two[1]) && of[5] > 3.0 * of[0], "{of:?}");
        assert!(promises.of(2_000_000) < of[5], "none was so long");
    }

    #[test]
    fn of_lengths_that_differ_much_those_promise_most_that_have_moved_least() {
        // Pareto: the chance to be longer than x is 10 kB / x.
        let mut random = Random::new(1);
        let promises = learned((0..5_000).map(|_| 10_000_000_000 / (1 + random.up_to(999_999))));
        let of = [20_000, 80_000, 320_000, 1_280_000].map(|moved| promises.of(moved));
        assert!(of.windows(2).all(|two| two[0] > two[1]), "{of:?}");
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let long = (0..2_000).map(|_| 5_000_000);
        let promises = learned((0..2_000).map(|_| 50_000).chain(long));
        assert!(promises.of(40_000) < promises.of(4_000_000));
    }

    proptest! {
        #[test]
        fn any_lengths_give_numbers(lengths in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50), moved: u64) {
            let mut learned = Lengths::default();
            for (from, to) in lengths {
                learned.moves(from, to);
                learned.ends(to);
            }
            let promise = learned.promises().of(moved);
            prop_assert!(promise.is_finite() && promise >= 0.0);
        }
    }
}
