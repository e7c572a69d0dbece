//! What a stream says about the nodes in between: whether its rate is the rate that they had told.
//!
//! This module decides when a stream has run long enough to say so.

use ekiden_units::{BitRate, Time};

use crate::known::ENOUGH;
use crate::path::{Class, Path};

/// The age at which a stream is judged, if it has not ended before ...
const AFTER: Time = Time::secs(6);
/// ... and the least age if it has ended. Both ages count from `ROUNDS` round trips of the path after the stream's
/// beginning: a stream that ends in slow start says nothing.
const LEAST: Time = Time::secs(3);
const ROUNDS: u64 = 12;

/// A path that a stream takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// The path.
    pub path: Path,
    /// Where the stream leaves the overlay.
    pub exit: String,
    /// What it gives at least, as far as is known.
    pub sure: BitRate,
    /// What the direct path gives at least, as far as is known.
    pub direct: BitRate,
    /// The sum of its round trips, as far as is known.
    pub rtt: Time,
    /// What it was chosen for.
    pub class: Class,
}

/// A stream while it runs.
#[derive(Debug, Clone, Copy)]
pub struct Judged {
    begun: Time,
    most_bit_s: f64,
    is_done: bool,
}

impl Judged {
    /// A stream that begins now.
    pub fn new(now: Time) -> Self {
        Self { begun: now, most_bit_s: 0.0, is_done: false }
    }

    /// What it has carried since the look before, about a second ago, in the direction of most bytes.
    pub fn carried(&mut self, bit_s: f64) {
        self.most_bit_s = self.most_bit_s.max(bit_s);
    }

    /// The part that came of the rate that the nodes in between were believed to give, for [`crate::known::Known::judge`].
    /// Returned once in the life of a stream. If nothing was known of the path, the part of what the direct path is known to
    /// give. `None` if the stream says nothing: it is short, or interactive, or no node is in between, or it got less than
    /// expected but not less than the direct path is known to give.
    pub fn says(&mut self, taken: &Taken, is_over: bool, now: Time) -> Option<f64> {
        let least = if is_over { LEAST } else { AFTER };
        if self.is_done || now.since(self.begun) < least + Time(taken.rtt.0.saturating_mul(ROUNDS)) {
            return None;
        }
        self.is_done = true;
        let believed = if taken.sure > BitRate(0) { taken.sure } else { taken.direct };
        if taken.class != Class::Bulk || taken.path.relays().is_empty() || believed == BitRate(0) {
            return None;
        }
        let part = self.most_bit_s / believed.0 as f64;
        let is_worse = self.most_bit_s < taken.direct.0 as f64 * ENOUGH;
        (part >= ENOUGH || is_worse).then_some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(class: Class) -> Taken {
        let path = Path(vec!["delhi".into(), "paris".into()]);
        let (sure, direct) = (BitRate::mbit(100), BitRate::mbit(10));
        Taken { path, exit: "paris".into(), sure, direct, rtt: Time::ms(50), class }
    }

    fn judged(taken: &Taken, mbit: f64, after: u64, is_over: bool) -> Option<f64> {
        let mut judged = Judged::new(Time::secs(1));
        judged.carried(mbit * 1e6);
        judged.says(taken, is_over, Time::secs(1 + after))
    }

    #[test]
    fn nodes_in_between_are_judged_by_what_the_direct_path_gives() {
        let bulk = taken(Class::Bulk);
        assert_eq!(judged(&bulk, 90.0, 4, true), Some(0.9));
        assert_eq!(judged(&bulk, 2.0, 4, true), Some(0.02));
        // The origin may have been slow.
        assert_eq!(judged(&bulk, 50.0, 4, true), None);
        assert_eq!(judged(&bulk, 2.0, 3, true), None);
        let far = Taken { rtt: Time::ms(400), ..bulk.clone() };
        assert_eq!(judged(&far, 2.0, 7, true), None);
        assert_eq!(judged(&taken(Class::Interactive), 2.0, 4, true), None);
        let direct = Taken { path: Path(vec!["paris".into()]), ..bulk };
        assert_eq!(judged(&direct, 2.0, 4, true), None);
    }

    #[test]
    fn a_path_of_which_nothing_was_known_is_judged_by_the_direct_one() {
        let unknown = Taken { sure: BitRate(0), ..taken(Class::Bulk) };
        assert_eq!(judged(&unknown, 2.0, 4, true), Some(0.2));
        assert_eq!(judged(&unknown, 50.0, 4, true), Some(5.0));
        assert_eq!(judged(&Taken { direct: BitRate(0), ..unknown }, 2.0, 4, true), None);
    }

    #[test]
    fn a_long_stream_is_judged_once_while_it_runs() {
        let bulk = taken(Class::Bulk);
        assert_eq!(judged(&bulk, 2.0, 6, false), None);
        let mut judged = Judged::new(Time::secs(0));
        [2e6, 95e6, 3e6].into_iter().for_each(|bit_s| judged.carried(bit_s));
        assert_eq!(judged.says(&bulk, false, Time::secs(7)), Some(0.95));
        judged.carried(500e6);
        assert_eq!(judged.says(&bulk, true, Time::secs(60)), None);
    }
}
