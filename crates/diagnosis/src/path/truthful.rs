//! Nothing untrue is said of paths that are drawn at random, and what a path shows is mostly found.
//!
//! `EKIDEN_PATHS=1000 cargo test -p ekiden-diagnosis truthful` draws 1000 paths of each kind.

use ekiden_record::{Finding, Judgement, PathDirection, Way};
use ekiden_units::random::Random;

use super::base::Base;
use super::rate::rate;
use super::simulated::{Bucket, Path};
use super::tests::is_true;
use super::trace::Trace;
use super::{find, round_trip, spent_before_second};

/// Default number of paths of each kind, unless the environment sets another.
const PATHS: u64 = 120;

/// A policer of less than this part of the line's rate is not said to be absent.
const SHOWS: f64 = 0.7;

/// A number between 0 and 1, by its path, its kind and its place.
struct Draw(Random);

impl Draw {
    fn next(&mut self) -> f64 {
        (self.0.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn even(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.next()
    }

    fn logarithmic(&mut self, least: f64, most: f64) -> f64 {
        self.even(least.ln(), most.ln()).exp()
    }

    fn chance(&mut self, part: f64) -> bool {
        self.next() < part
    }

    /// 1 to 300 Mbit/s, 2 to 300 ms, a product of up to 150 kB; a buffer of 0.1 to 4 products and at least ten packets.
    fn path(&mut self, seed: u64) -> Path {
        let (rate, rtt_us) = (self.logarithmic(1e6, 3e8), self.logarithmic(2e3, 3e5));
        self.between(rate.min(150e3 * 8e6 / rtt_us), rtt_us, seed)
    }

    fn between(&mut self, rate_bit_s: f64, rtt_us: f64, seed: u64) -> Path {
        let buffer_bytes = (self.logarithmic(0.1, 4.0) * rate_bit_s * rtt_us / 8e6).max(15e3);
        Path { rate_bit_s, rtt_us, buffer_bytes, seed, ..Path::PLAIN }
    }

    /// A policer of a tenth to half of the line's rate, with a burst of half a product of its rate to one and a half.
    fn policed(&mut self, path: Path) -> Path {
        let rate_bit_s = self.even(0.1, 0.5) * path.rate_bit_s;
        let depth_bytes = (self.even(0.5, 1.5) * rate_bit_s * path.rtt_us / 8e6).max(15e3);
        Path { policer: Some(Bucket { rate_bit_s, depth_bytes }), ..path }
    }

    /// With losses in runs of 1 to 20, 0.1 to 5 % of the packets.
    fn losing(&mut self, path: Path) -> Path {
        let (loss_run, lost) = (self.logarithmic(1.0, 20.0).round() as u32, self.logarithmic(1e-3, 5e-2));
        Path { loss_run, lost, ..path }
    }
}

/// What was found of a path, with the base round trip.
struct Found {
    path: Path,
    /// Whether the policer dropped the first packet that was lost in the first pass.
    is_policed_first: bool,
    rtt: Finding,
    direction: PathDirection,
}

impl Found {
    fn of(path: Path) -> Self {
        let (first, is_policed_first) = path.load_and_tell();
        let (trace, base) = (Trace::of(&first, Way::Forth).unwrap(), Base::of(&first));
        let second =
            spent_before_second(&trace, base).map(|_| Path { by_bbr: true, seed: path.seed + 1_000, ..path }.load());
        let second = second.as_ref().and_then(|measured| Trace::of(measured, Way::Forth));
        let hops = Finding::Absent { evidence: String::new() };
        let mut direction = find::direction(&trace, second.as_ref(), base, hops);
        // Nothing waits on the way back.
        let mut back = PathDirection { rate_bit_s: Finding::Absent { evidence: String::new() }, ..direction.clone() };
        let rtt = round_trip(base, &mut direction, &mut back);
        Self { path, is_policed_first, rtt, direction }
    }

    /// What is untrue of it.
    fn untrue(&self) -> Vec<&'static str> {
        let Self { path, rtt, direction, .. } = self;
        // That there is none is said of those that drop first, at less than a part of the line's rate.
        let shows = |bucket: &Bucket| self.is_policed_first && bucket.rate_bit_s < SHOWS * path.rate_bit_s;
        let is_absent = matches!(direction.policer_bit_s, Finding::Absent { .. });
        let is_policed = |bucket: &Bucket| shows(bucket) || !is_absent;
        let policer = path.policer.filter(is_policed).map_or(0.0, |bucket| bucket.rate_bit_s);
        // A shaper's rate is what there is, but for its burst. Either queue may be the one that was seen full.
        let is_observed = matches!(direction.rate_bit_s, Finding::Observed { .. });
        let rate = path.shaper.filter(|_| is_observed).map_or(path.rate_bit_s, |bucket| bucket.rate_bit_s);
        let is_buffer = |bytes: f64| is_true(&direction.buffer_bytes, bytes);
        let bdp = rate * path.rtt_us / 8e6;
        let all = [
            ("rtt", is_true(rtt, path.rtt_us)),
            ("rate", is_true(&direction.rate_bit_s, rate)),
            ("bdp", is_true(&direction.bdp_bytes, bdp)),
            ("buffer", is_buffer(path.buffer_bytes) || path.shaper.is_some() && is_buffer(path.shaper_queue_bytes)),
            ("loss", is_true(&direction.random_loss, path.lost)),
            ("policer", is_true(&direction.policer_bit_s, policer)),
            ("mtu", is_true(&direction.mtu_bytes, path.packet())),
            ("drop tail", !matches!(direction.drop_tail, Judgement::No { .. })),
            // A bound of nothing is none.
            ("nothing", !matches!(direction.rate_bit_s, Finding::AtLeast { value, .. } if value < 1_000.0)),
        ];
        all.into_iter().filter(|(_, is_true)| !is_true).map(|(name, _)| name).collect()
    }

    /// What was seen of it: no bounds alone, but of losses that were not.
    fn seen(&self) -> Vec<&'static str> {
        let PathDirection { rate_bit_s, buffer_bytes, random_loss, policer_bit_s, mtu_bytes, drop_tail, .. } =
            &self.direction;
        let is_observed = |finding: &Finding| matches!(finding, Finding::Observed { .. });
        let all = [
            ("rate", is_observed(rate_bit_s)),
            ("a bound of the rate", rate_bit_s.estimate_or_bound().is_some()),
            ("buffer", is_observed(buffer_bytes)),
            ("loss", is_observed(random_loss)),
            ("a bound of loss", random_loss.estimate_or_bound().is_some()),
            ("policer", is_observed(policer_bit_s)),
            ("no policer", matches!(policer_bit_s, Finding::Absent { .. })),
            ("mtu", mtu_bytes.estimate_or_bound().is_some()),
            ("drop tail", matches!(drop_tail, Judgement::Yes { .. })),
        ];
        all.into_iter().filter(|(_, is_seen)| *is_seen).map(|(name, _)| name).collect()
    }
}

/// Checks paths of a kind: no finding is untrue, and each finding in `seen_least` is seen on at least the part of them that it names.
fn check(kind: u64, seen_least: &[(&str, f64)], draw: fn(&mut Draw, u64) -> Path) {
    let paths = std::env::var("EKIDEN_PATHS").ok().and_then(|paths| paths.parse().ok()).unwrap_or(PATHS);
    let (mut untrue, mut seen) = (Vec::new(), std::collections::BTreeMap::<_, u64>::new());
    for number in 1..=paths {
        let found = Found::of(draw(&mut Draw(Random::new(kind << 32 | number)), number));
        let of_path = found.untrue();
        if !of_path.is_empty() {
            untrue.push(format!("{number}: {of_path:?} of {:?}: {:?} {:?}", found.path, found.rtt, found.direction));
        }
        found.seen().into_iter().for_each(|name| *seen.entry(name).or_default() += 1);
    }
    println!("kind {kind}: {} of {paths} untrue; seen: {seen:?}", untrue.len());
    assert!(untrue.is_empty(), "{} of {paths} untrue: {untrue:#?}", untrue.len());
    for (name, part) in seen_least {
        let seen = seen.get(name).copied().unwrap_or(0);
        assert!(seen as f64 >= part * paths as f64, "{name}: seen on {seen} of {paths}");
    }
}

#[test]
fn jitter_makes_no_policer_and_no_queue() {
    check(1, &[("a bound of the rate", 1.0), ("rate", 0.3)], |draw, seed| {
        let lost = if draw.chance(0.3) { draw.logarithmic(1e-4, 1e-2) } else { 0.0 };
        Path { jitter_us: draw.even(1e3, 15e3), lost, ..draw.path(seed) }
    });
}

#[test]
fn losses_in_runs_are_no_policer_and_no_full_buffer() {
    check(2, &[("rate", 0.85), ("buffer", 0.55)], |draw, seed| {
        let path = draw.path(seed);
        draw.losing(path)
    });
}

#[test]
fn a_clamped_segment_says_no_more_than_that_it_passed() {
    check(3, &[("mtu", 1.0), ("rate", 0.9), ("buffer", 0.7)], |draw, seed| {
        let lost = if draw.chance(0.5) { draw.logarithmic(1e-4, 1e-2) } else { 0.0 };
        // PPPoE leaves packets of 1492 bytes: an MSS of 1452, less the timestamps.
        let mss = if draw.chance(0.5) { 1_440 } else { draw.even(500.0, 1_441.0) as u64 };
        Path { mss, lost, ..draw.path(seed) }
    });
}

#[test]
fn a_very_short_path_has_no_bound_of_nothing() {
    check(4, &[("a bound of the rate", 1.0), ("rate", 0.35)], |draw, seed| {
        let (rate, rtt_us) = (draw.logarithmic(1e7, 1e9), draw.logarithmic(50.0, 2e3));
        draw.between(rate, rtt_us, seed)
    });
}

#[test]
fn a_policer_is_still_found() {
    check(5, &[("policer", 0.75)], |draw, seed| {
        let path = draw.path(seed);
        draw.policed(path)
    });
}

#[test]
fn a_policer_behind_jitter_is_no_loss() {
    check(6, &[("policer", 0.45)], |draw, seed| {
        let path = draw.path(seed);
        Path { jitter_us: draw.even(0.0, 15e3), ..draw.policed(path) }
    });
}

#[test]
fn a_plain_path_is_found() {
    check(7, &[("rate", 0.9), ("buffer", 0.75), ("drop tail", 0.75), ("no policer", 0.75)], |draw, seed| {
        let path = draw.path(seed);
        Path { jitter_us: draw.even(0.0, 0.01) * path.rtt_us, ..path }
    });
}

#[test]
fn bursts_of_twenty_are_no_full_buffer() {
    check(8, &[("rate", 0.85), ("buffer", 0.6)], |draw, seed| {
        let lost = draw.even(0.0, 0.05);
        Path { loss_run: 20, lost, ..draw.path(seed) }
    });
}

#[test]
fn all_together_say_nothing_untrue() {
    check(9, &[], |draw, seed| {
        let (rate, rtt_us) = (draw.logarithmic(1e6, 1e9), draw.logarithmic(50.0, 3e5));
        let mut path = draw.between(rate.min(150e3 * 8e6 / rtt_us), rtt_us, seed);
        if draw.chance(0.5) {
            path.jitter_us = draw.even(0.0, 15e3);
        }
        if draw.chance(0.5) {
            path = draw.losing(path);
        }
        if draw.chance(0.4) {
            path = draw.policed(path);
        }
        Path { mss: if draw.chance(0.3) { 1_440 } else { path.mss }, ..path }
    });
}

#[test]
fn any_policer_is_no_loss() {
    check(10, &[], |draw, seed| {
        let (rate, rtt_us) = (draw.logarithmic(1e6, 3e8), draw.logarithmic(50.0, 3e5));
        let path = draw.between(rate.min(150e3 * 8e6 / rtt_us), rtt_us, seed);
        let bucket =
            Bucket { rate_bit_s: draw.even(0.05, SHOWS) * path.rate_bit_s, depth_bytes: draw.logarithmic(3e3, 3e5) };
        let jitter_us = if draw.chance(0.7) { draw.even(0.0, 15e3) } else { 0.0 };
        let path = if draw.chance(0.3) { draw.losing(path) } else { path };
        Path { policer: Some(bucket), jitter_us, ..path }
    });
}

#[test]
fn a_shapers_burst_is_no_rate_of_the_path() {
    check(11, &[("a bound of the rate", 1.0)], |draw, seed| {
        let path = draw.path(seed);
        let rate_bit_s = draw.even(0.05, 0.5) * path.rate_bit_s;
        let product = rate_bit_s * path.rtt_us / 8e6;
        let depth_bytes = (draw.logarithmic(0.1, 4.0) * product).max(15e3);
        let shaper_queue_bytes = (draw.logarithmic(0.5, 2.0) * product).max(15e3);
        Path { shaper: Some(Bucket { rate_bit_s, depth_bytes }), shaper_queue_bytes, ..path }
    });
}

#[test]
fn what_a_policer_lets_through_at_once_is_no_rate_of_the_line() {
    check(12, &[("policer", 0.5)], |draw, seed| {
        let (rate, rtt_us) = (draw.logarithmic(5e7, 3e8), draw.logarithmic(1e4, 5e4));
        let path = draw.between(rate, rtt_us, seed);
        let rate_bit_s = draw.even(0.05, 0.2) * rate;
        let depth_bytes = (draw.even(0.5, 2.0) * rate_bit_s * rtt_us / 8e6).max(15e3);
        let jitter_us = if draw.chance(0.5) { draw.even(0.0, 3e3) } else { 0.0 };
        Path { policer: Some(Bucket { rate_bit_s, depth_bytes }), jitter_us, ..path }
    });
}

#[test]
fn a_rate_beyond_a_policers_that_did_not_stand_is_a_bound() {
    let policed = |rate: f64| Finding::Observed { value: rate, low: rate, high: rate, evidence: String::new() };
    let mut seen = 0;
    for number in 1..=200 {
        let mut draw = Draw(Random::new(13 << 32 | number));
        let path = draw.path(number);
        let load = Path { jitter_us: draw.even(1e3, 15e3), ..path }.load();
        let (trace, base) = (Trace::of(&load, Way::Forth).unwrap(), Base::of(&load));
        let delays = trace.delays();
        let none = Finding::Absent { evidence: String::new() };
        let Finding::Observed { value, low, high, .. } = rate(&trace, None, &delays, base, &none) else { continue };
        if high - low < 0.3 * value {
            continue;
        }
        seen += 1;
        let found = rate(&trace, None, &delays, base, &policed(low / 2.0));
        assert!(matches!(found, Finding::AtLeast { value, .. } if value == low / 2.0), "{found:?}");
        assert!(matches!(rate(&trace, None, &delays, base, &policed(value)), Finding::Observed { .. }));
    }
    assert!(seen > 2, "{seen}");
}
