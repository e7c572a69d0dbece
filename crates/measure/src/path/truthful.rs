//! Nothing untrue is said of paths that are drawn at random: with jitter, losses in runs, clamped segments, and next to no distance.

use ekiden_record::{Finding, Judgement, PathDirection, Way};

use super::base::Base;
use super::model::{Bucket, Heedless, Path};
use super::tests::is_true;
use super::trace::Trace;
use super::{find, spent_before_second};

/// So many paths of each kind.
const PATHS: u64 = 60;

/// A number between 0 and 1, by its path, its kind and its place (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn even(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.next()
    }

    fn logarithmic(&mut self, least: f64, most: f64) -> f64 {
        self.even(least.ln(), most.ln()).exp()
    }

    /// 1 to 300 Mbit/s, 2 to 200 ms, a product of up to 150 kB; a buffer of 0.1 to 4 products and at least ten packets.
    fn path(&mut self, seed: u64) -> Path {
        let (rate, rtt_us) = (self.logarithmic(1e6, 3e8), self.logarithmic(2e3, 2e5));
        self.between(rate.min(150e3 * 8e6 / rtt_us), rtt_us, seed)
    }

    fn between(&mut self, rate_bit_s: f64, rtt_us: f64, seed: u64) -> Path {
        let buffer_bytes = (self.logarithmic(0.1, 4.0) * rate_bit_s * rtt_us / 8e6).max(15e3);
        Path { rate_bit_s, rtt_us, buffer_bytes, seed, ..Path::PLAIN }
    }
}

/// What was found of a path, with the base round trip.
struct Found {
    path: Path,
    rtt: Finding,
    direction: PathDirection,
}

impl Found {
    fn of(path: Path) -> Self {
        let first = path.load();
        let (trace, base) = (Trace::of(&first, Way::Forth).unwrap(), Base::of(&first));
        let second = spent_before_second(&trace, base)
            .map(|_| Path { heedless: Some(Heedless::Bbr), seed: path.seed + 1_000, ..path }.load());
        let second = second.as_ref().and_then(|measured| Trace::of(measured, Way::Forth));
        let hops = Finding::Absent { evidence: String::new() };
        Self { path, rtt: base.finding(0.0), direction: find::direction(&trace, second.as_ref(), base, hops) }
    }

    /// What is untrue of it.
    fn untrue(&self) -> Vec<&'static str> {
        let Self { path, rtt, direction } = self;
        let policer = path.policer.map_or(0.0, |bucket| bucket.rate_bit_s);
        let is_policed = policer > 0.0;
        let bdp = path.rate_bit_s * path.rtt_us / 8e6;
        let all = [
            ("rtt", is_true(rtt, path.rtt_us)),
            ("rate", is_true(&direction.rate_bit_s, path.rate_bit_s)),
            ("bdp", is_true(&direction.bdp_bytes, bdp)),
            ("buffer", is_true(&direction.buffer_bytes, path.buffer_bytes)),
            // What a policer drops is no random loss.
            ("loss", is_policed || is_true(&direction.random_loss, path.lost)),
            ("policer", is_true(&direction.policer_bit_s, policer)),
            ("mtu", is_true(&direction.mtu_bytes, path.packet())),
            ("drop tail", !matches!(direction.drop_tail, Judgement::No { .. })),
            // A bound of nothing is none.
            ("nothing", !matches!(direction.rate_bit_s, Finding::AtLeast { value, .. } if value < 1_000.0)),
        ];
        all.into_iter().filter(|(_, is_true)| !is_true).map(|(name, _)| name).collect()
    }
}

/// Paths of a kind: nothing untrue is said, and so many have their finding `seen`.
fn check(kind: u64, seen_least: u64, seen: fn(&PathDirection) -> &Finding, draw: fn(&mut Draw, u64) -> Path) {
    let mut said = 0;
    for number in 1..=PATHS {
        let found = Found::of(draw(&mut Draw(kind << 32 | number), number));
        let untrue = found.untrue();
        assert!(
            untrue.is_empty(),
            "{number}: {untrue:?} of {:#?}: {:#?} {:#?}",
            found.path,
            found.rtt,
            found.direction
        );
        said += u64::from(seen(&found.direction).estimate_or_bound().is_some());
    }
    assert!(said >= seen_least, "{said} of {PATHS} were seen");
}

#[test]
fn jitter_makes_no_policer_and_no_queue() {
    check(
        1,
        30,
        |found| &found.rate_bit_s,
        |draw, seed| {
            let lost = if draw.next() < 0.3 { draw.logarithmic(1e-4, 1e-2) } else { 0.0 };
            Path { jitter_us: draw.even(1e3, 15e3), lost, ..draw.path(seed) }
        },
    );
}

#[test]
fn losses_in_runs_are_no_policer_and_no_full_buffer() {
    check(
        2,
        50,
        |found| &found.rate_bit_s,
        |draw, seed| {
            let (loss_run, lost) = (draw.logarithmic(2.0, 20.0), draw.logarithmic(1e-3, 3e-2));
            Path { loss_run, lost, ..draw.path(seed) }
        },
    );
}

#[test]
fn a_clamped_segment_says_no_more_than_that_it_passed() {
    check(
        3,
        PATHS,
        |found| &found.mtu_bytes,
        |draw, seed| {
            let lost = if draw.next() < 0.5 { draw.logarithmic(1e-4, 1e-2) } else { 0.0 };
            Path { mss: draw.even(500.0, 1_441.0) as u64, lost, ..draw.path(seed) }
        },
    );
}

#[test]
fn a_very_short_path_has_no_bound_of_nothing() {
    check(
        4,
        50,
        |found| &found.rate_bit_s,
        |draw, seed| {
            let (rate, rtt_us) = (draw.logarithmic(1e7, 1e9), draw.logarithmic(50.0, 2e3));
            draw.between(rate, rtt_us, seed)
        },
    );
}

#[test]
fn a_policer_is_still_found() {
    check(
        5,
        20,
        |found| &found.policer_bit_s,
        |draw, seed| {
            let path = draw.path(seed);
            let rate_bit_s = draw.even(0.1, 0.5) * path.rate_bit_s;
            let depth_bytes = (draw.even(0.5, 1.5) * rate_bit_s * path.rtt_us / 8e6).max(15e3);
            Path { policer: Some(Bucket { rate_bit_s, depth_bytes }), ..path }
        },
    );
}
