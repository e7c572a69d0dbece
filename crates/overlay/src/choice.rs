//! Which of the paths is taken: the one before, unless another is better for a while, or the one before has broken down.
//!
//! This module decides by how much another must be better, and for how long.

use ekiden_units::Time;
use serde::Serialize;

use crate::path::{Candidate, Class, Path, Wanted};

/// A rival must take less than this part of the time that the path in use takes ...
const BETTER_PART: f64 = 0.9;
/// ... be faster by at least this time ...
const BETTER_BY: Time = Time::ms(5);
/// ... and be so for at least this time.
const FOR: Time = Time::secs(30);
/// If a rival takes less than this part of the time, the path in use has broken down, and the rival is taken at once.
const BROKEN_PART: f64 = 0.5;
/// The path in use has also broken down if its time is at least this multiple of its best time lately. Then any rival that
/// is better is taken at once, and the part [`FIRST_TRIES`] of the streams tries what may be better.
const BROKEN_TIMES: f64 = 3.0;
/// The time in seconds in which the remembered best time of the path doubles, as it grows old.
const BEST_DOUBLES_S: f64 = 600.0;
/// One of the paths within this part of the best is drawn, so that nodes do not all choose the same relay.
const NEAR_PART: f64 = 0.03;
/// The part of streams that try a path that may be better by [`HOPED_PART`] than what is known ...
const TRIES: f64 = 1.0 / 10.0;
/// ... and the greater part that holds for the first `FIRST` tries.
const FIRST_TRIES: f64 = 1.0 / 3.0;
const FIRST: u64 = 8;
/// The interval before the path that was tried last is tried again: what it gave has to be heard first.
const TRIED: Time = Time::secs(10);
/// The factor by which a path must promise to be better to be tried.
const HOPED_PART: f64 = 1.1;

/// Why a path is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The first choice.
    First,
    /// It was taken before, and no other is better by enough.
    Kept,
    /// What was taken before has failed.
    Failed,
    /// What was taken before has become much slower than this.
    Slow,
    /// It has been better for a while.
    Better,
    /// By this one stream alone, to learn what it gives.
    Tried,
}

/// The path in use from this node to another, for streams of one class.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    path: Option<Path>,
    /// Since when it is in use, and why it was taken.
    since: Time,
    why: Option<Why>,
    /// The time it took at its best lately, and when that was.
    best: Option<(Time, Time)>,
    /// Since when a rival has been better.
    rivalled: Option<Time>,
    /// How often the path has changed.
    changes: u64,
    /// How many streams have tried another, and which path the last one tried.
    tries: u64,
    tried: Option<(Path, Time)>,
}

impl Why {
    /// Whether another path than before comes into use by this decision.
    pub fn is_change(self) -> bool {
        !matches!(self, Self::Kept | Self::Tried)
    }

    /// As a sentence's end: the path is taken "because …".
    pub fn because(self) -> &'static str {
        match self {
            Self::First => "it was the best known at first",
            Self::Kept => "it was in use, and no other is better by enough",
            Self::Failed => "the path before it has failed",
            Self::Slow => "the path before it has become much slower",
            Self::Better => "it has been better than the path before it for a while",
            Self::Tried => "some streams try what may be better",
        }
    }
}

impl Choice {
    /// The path in use, since when, and why it was taken.
    pub fn current(&self) -> Option<(&Path, Time, Why)> {
        Some((self.path.as_ref()?, self.since, self.why?))
    }

    /// The path that a stream has tried last, and when.
    pub fn tried(&self) -> Option<(&Path, Time)> {
        self.tried.as_ref().map(|(path, at)| (path, *at))
    }

    /// How often it has changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Chooses for a new stream. `candidates` are those of [`crate::path::candidates`], with the path in use as [`Wanted::current`]; `drawn` are drawn between 0 and 1. `None`
    /// without candidates.
    pub fn choose<'a>(
        &mut self,
        candidates: &'a [Candidate],
        wanted: &Wanted<'_>,
        now: Time,
        drawn: [f64; 2],
    ) -> Option<(&'a Candidate, Why)> {
        let [part, tries] = drawn;
        let takes = |of: &Candidate| of.takes(wanted.size, wanted.class);
        let best = candidates.first()?;
        let incumbent = self.path.as_ref().and_then(|path| candidates.iter().find(|of| of.path == *path));
        let is_broken = incumbent.and_then(&takes).is_some_and(|time| self.has_broken(time, now));
        let part_that_tries = if self.tries < FIRST || is_broken { FIRST_TRIES } else { TRIES };
        let last = self.tried.as_ref().filter(|(_, at)| now.since(*at) < TRIED).map(|(path, _)| path);
        if let Some(tried) = tried(candidates, wanted, last).filter(|_| tries < part_that_tries) {
            self.tries += 1;
            self.tried = Some((tried.path.clone(), now));
            return Some((tried, Why::Tried));
        }
        let Some(least) = takes(best) else {
            // No rate is known for any path: the direct one, if there is one.
            let direct = candidates.iter().find(|of| of.path.relays().is_empty());
            return Some(match incumbent {
                Some(incumbent) => (incumbent, Why::Kept),
                None => self.take(direct.unwrap_or(best), now),
            });
        };
        let within =
            |of: &&Candidate| takes(of).is_some_and(|time| time.0 as f64 <= least.0 as f64 * (1.0 + NEAR_PART));
        // Of those the cheaper, and of equally cheap ones the shorter.
        let rank = |of: &&Candidate| (price(of, wanted), of.path.0.len());
        let less = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let near: Vec<_> = candidates.iter().take_while(within).collect();
        let lowest = near.iter().map(rank).min_by(less).unwrap_or_default();
        let near: Vec<_> = near.into_iter().filter(|of| less(&rank(of), &lowest).is_eq()).collect();
        let drawn = near[((part * near.len() as f64) as usize).min(near.len() - 1)];
        let Some(incumbent) = incumbent else { return Some(self.take(drawn, now)) };
        // No rate is known yet for the path in use: that is no reason to leave it.
        let Some(time) = takes(incumbent) else { return Some((incumbent, Why::Kept)) };
        let is_better = (least.0 as f64) < time.0 as f64 * BETTER_PART && least + BETTER_BY < time;
        if !is_better {
            self.rivalled = None;
            return Some((incumbent, Why::Kept));
        }
        let since = *self.rivalled.get_or_insert(now);
        if is_broken || (least.0 as f64) < time.0 as f64 * BROKEN_PART {
            return Some(self.change(drawn, Why::Slow, now));
        }
        match now.since(since) >= FOR {
            true => Some(self.change(drawn, Why::Better, now)),
            false => Some((incumbent, Why::Kept)),
        }
    }

    /// Takes a path when none was in use, or the one in use no longer exists.
    fn take<'a>(&mut self, candidate: &'a Candidate, now: Time) -> (&'a Candidate, Why) {
        let why = if self.path.is_some() { Why::Failed } else { Why::First };
        self.change(candidate, why, now)
    }

    fn change<'a>(&mut self, candidate: &'a Candidate, why: Why, now: Time) -> (&'a Candidate, Why) {
        self.changes += u64::from(self.path.is_some());
        (self.path, self.since, self.why, self.rivalled) = (Some(candidate.path.clone()), now, Some(why), None);
        self.best = None;
        (candidate, why)
    }

    /// Whether `time`, which the path in use takes now, is much longer than its best time lately.
    fn has_broken(&mut self, time: Time, now: Time) -> bool {
        let grown = |(best, at): (Time, Time)| best.0 as f64 * (now.since(at).as_secs() / BEST_DOUBLES_S).exp2();
        let best = self.best.map_or(f64::INFINITY, grown);
        if time.0 as f64 <= best {
            self.best = Some((time, now));
        }
        time.0 as f64 >= best * BROKEN_TIMES
    }
}

/// What it costs to send through the nodes in between.
fn price(of: &Candidate, wanted: &Wanted<'_>) -> f64 {
    let prices = of.path.relays().iter().filter_map(|relay| wanted.prices?.get(relay));
    prices.sum()
}

/// The path that may be the best, if it may be better than what is known, and something is known. `last` was tried a moment
/// ago.
fn tried<'a>(candidates: &'a [Candidate], wanted: &Wanted<'_>, last: Option<&Path>) -> Option<&'a Candidate> {
    let best = candidates.iter().map(|of| of.sure).max().filter(|sure| sure.0 > 0 && wanted.class == Class::Bulk)?;
    let hoped = candidates.iter().filter(|of| last != Some(&of.path)).max_by_key(|of| of.hoped)?;
    (hoped.hoped.0 as f64 > best.0 as f64 * HOPED_PART).then_some(hoped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leg::Holds;
    use crate::path::DataDirection;
    use ekiden_units::BitRate;

    const WANTED: Wanted<'_> = Wanted {
        exit: "a",
        relays: &[],
        required: &[],
        relays_most: 2,
        size: None,
        class: Class::Bulk,
        direction: DataDirection::Down,
        current: None,
        prices: None,
    };

    fn candidate(path: &str, mbit: f64, rtt_ms: u64) -> Candidate {
        let rate = BitRate((mbit * 1e6) as u64);
        let (rtt, path) = (Time::ms(rtt_ms), Path(path.split(' ').map(String::from).collect()));
        let leg = Holds { rtt, rate: Some(rate), carried: rate, loss: 0.0, age: Time(0), is_brief: false };
        Candidate { path, legs: vec![leg], sure: rate, hoped: rate, rtt }
    }

    fn sorted(mut all: Vec<Candidate>) -> Vec<Candidate> {
        all.sort_by_key(|of| of.takes(None, Class::Bulk).unwrap_or(Time(u64::MAX)));
        all
    }

    /// Which path is taken of these, at this second.
    fn chosen(choice: &mut Choice, all: Vec<Candidate>, second: u64) -> (String, Why) {
        let all = sorted(all);
        let (of, why) = choice.choose(&all, &WANTED, Time::secs(second), [0.0, 1.0]).unwrap();
        (of.path.to_string(), why)
    }

    #[test]
    fn a_rival_has_to_be_better_by_enough_and_for_a_while() {
        let mut choice = Choice::default();
        let both = |rival: f64| vec![candidate("a", 10.0, 100), candidate("b a", rival, 100)];
        assert_eq!(chosen(&mut choice, both(5.0), 0), ("a".into(), Why::First));
        // Ten percent of noise for an hour.
        for second in 1..3_600 {
            let noise = if second % 2 == 0 { 9.0 } else { 11.0 };
            assert_eq!(chosen(&mut choice, both(noise), second), ("a".into(), Why::Kept));
        }
        assert_eq!(chosen(&mut choice, both(15.0), 3_600), ("a".into(), Why::Kept));
        assert_eq!(chosen(&mut choice, both(10.0), 3_610), ("a".into(), Why::Kept));
        assert_eq!(chosen(&mut choice, both(15.0), 3_620), ("a".into(), Why::Kept));
        assert_eq!(chosen(&mut choice, both(15.0), 3_649), ("a".into(), Why::Kept));
        assert_eq!(chosen(&mut choice, both(15.0), 3_650), ("b → a".into(), Why::Better));
        assert_eq!(choice.changes(), 1);
    }

    #[test]
    fn what_has_broken_down_is_left_at_once() {
        let mut choice = Choice::default();
        let with = |direct: f64| vec![candidate("a", direct, 100), candidate("b a", 5.0, 100)];
        assert_eq!(chosen(&mut choice, with(10.0), 0), ("a".into(), Why::First));
        assert_eq!(chosen(&mut choice, with(1.0), 1), ("b → a".into(), Why::Slow));
        // Streams do not return to it while it is only equally good.
        assert_eq!(chosen(&mut choice, with(5.2), 2), ("b → a".into(), Why::Kept));
        assert_eq!(chosen(&mut choice, vec![candidate("a", 1.0, 100)], 3), ("a".into(), Why::Failed));
        assert_eq!(choice.current().unwrap().2, Why::Failed);
    }

    #[test]
    fn a_path_that_breaks_down_is_left_for_one_that_is_but_a_little_better() {
        let mut choice = Choice::default();
        let with = |direct: f64| vec![candidate("a", direct, 100), candidate("b a", 5.0, 100)];
        assert_eq!(chosen(&mut choice, with(10.0), 0), ("a".into(), Why::First));
        assert_eq!(chosen(&mut choice, with(10.0), 1), ("a".into(), Why::Kept));
        // It may be shared with others.
        assert_eq!(chosen(&mut choice, with(4.0), 2), ("a".into(), Why::Kept));
        assert_eq!(chosen(&mut choice, with(3.2), 3), ("b → a".into(), Why::Slow));
        // Long afterwards that is what it gives.
        let mut choice = Choice::default();
        chosen(&mut choice, with(10.0), 0);
        chosen(&mut choice, with(10.0), 1);
        assert_eq!(chosen(&mut choice, with(3.2), 1_800), ("a".into(), Why::Kept));
    }

    #[test]
    fn nodes_draw_among_what_is_nearly_as_fast() {
        let all = sorted(vec![candidate("b a", 10.0, 100), candidate("c a", 9.8, 100), candidate("d a", 5.0, 100)]);
        let of = |part: f64| {
            let (of, _) = Choice::default().choose(&all, &WANTED, Time(0), [part, 1.0]).unwrap();
            of.path.to_string()
        };
        assert_eq!([of(0.1), of(0.9)], ["b → a", "c → a"]);
    }

    #[test]
    fn of_paths_that_are_about_as_good_the_cheaper_is_taken() {
        let all = sorted(vec![candidate("b a", 10.0, 100), candidate("c a", 9.9, 100), candidate("d a", 5.0, 100)]);
        let prices = [("b".to_owned(), 2.0), ("c".to_owned(), 1.0)].into();
        let wanted = Wanted { prices: Some(&prices), ..WANTED };
        for part in [0.0, 0.99] {
            let (of, _) = Choice::default().choose(&all, &wanted, Time(0), [part, 1.0]).unwrap();
            assert_eq!(of.path.to_string(), "c → a");
        }
    }

    #[test]
    fn some_streams_try_what_may_be_better_and_the_rest_stay() {
        let mut unknown = candidate("b a", 50.0, 100);
        unknown.sure = BitRate(0);
        let all = sorted(vec![candidate("a", 10.0, 100), unknown.clone()]);
        let mut choice = Choice::default();
        let mut with = |tries: f64, second: u64| {
            let (of, why) = choice.choose(&all, &WANTED, Time::secs(second), [0.0, tries]).unwrap();
            (of.path.to_string(), why)
        };
        assert_eq!(with(0.9, 0), ("a".into(), Why::First));
        // More at first, but none again until the result may be known.
        assert_eq!(with(0.3, 1), ("b → a".into(), Why::Tried));
        assert_eq!(with(0.3, 2), ("a".into(), Why::Kept));
        (1..8).for_each(|try_| assert_eq!(with(0.3, 20 * try_), ("b → a".into(), Why::Tried)));
        assert_eq!(with(0.3, 200), ("a".into(), Why::Kept));
        assert_eq!(with(0.09, 201), ("b → a".into(), Why::Tried));
        // Where nothing is known, the direct path is the first.
        let mut direct = candidate("a", 1.0, 200);
        direct.sure = BitRate(0);
        let all = [unknown, direct];
        let (first, why) = Choice::default().choose(&all, &WANTED, Time(0), [0.0, 0.0]).unwrap();
        assert_eq!((first.path.to_string(), why), ("a".into(), Why::First));
    }
}
