//! How even arrivals are: a full line delivers the same amount in each short interval, a window that is sent in one burst arrives in one.

use ekiden_units::quantile;

use ekiden_measure_proto::message::Peak;

/// Lengths of the intervals, in milliseconds.
const WIDTHS_MS: [usize; 5] = [2, 5, 10, 20, 50];
/// Limit on the milliseconds that are counted.
const MOST: usize = 20_000;

/// Bytes in each millisecond since the first.
#[derive(Debug, Default)]
pub(super) struct Evenness(Vec<u32>);

impl Evenness {
    /// Adds `bytes` that arrived `since_first_ns` after the first byte.
    pub fn add(&mut self, since_first_ns: u64, bytes: u64) {
        let at = (since_first_ns / 1_000_000) as usize;
        if at < MOST {
            if self.0.len() <= at {
                self.0.resize(at + 1, 0);
            }
            self.0[at] = self.0[at].saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// The peaks, without the first half: slow start is never even.
    pub fn peaks(&self) -> Vec<Peak> {
        let seen = &self.0[self.0.len() / 2..];
        let of = |width: &usize| {
            let mut sums: Vec<u64> =
                seen.chunks_exact(*width).map(|part| part.iter().map(|b| u64::from(*b)).sum()).collect();
            sums.sort_unstable();
            Some(Peak { width_ms: *width as u32, bytes: quantile::nearest(&sums, 95)? })
        };
        WIDTHS_MS.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_peaks_and_a_steady_stream_has_none() {
        let (mut steady, mut bursts) = (Evenness::default(), Evenness::default());
        for ms in 0..4_000_u64 {
            steady.add(ms * 1_000_000, 1_500);
            // Ten times as much in every tenth millisecond.
            bursts.add(ms * 1_000_000, if ms % 10 == 0 { 15_000 } else { 0 });
        }
        let at = |evenness: &Evenness| evenness.peaks().iter().map(|peak| peak.bytes).collect::<Vec<_>>();
        assert_eq!(at(&steady), [3_000, 7_500, 15_000, 30_000, 75_000]);
        assert_eq!(at(&bursts), [15_000, 15_000, 15_000, 30_000, 75_000]);
    }
}
