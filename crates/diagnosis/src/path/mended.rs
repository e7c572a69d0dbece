//! Paths of which something untrue was said once.

use ekiden_record::{Finding, PathDirection, Way};

use super::base::Base;
use super::simulated::{Bucket, Path};
use super::tests::{find, is_observed, is_true};
use super::trace::Trace;
use super::{direction, round_trip};

/// The base round trip and what is found, as a direction is told its product.
fn told(path: Path) -> (Finding, PathDirection) {
    let (base, mut found) = (Base::of(&path.load()), find(path));
    let mut back = PathDirection { rate_bit_s: Finding::Absent { evidence: String::new() }, ..found.clone() };
    (round_trip(base, &mut found, &mut back), found)
}

#[test]
fn a_slow_line_takes_its_time_for_a_small_message_which_is_no_round_trip() {
    for rate_bit_s in [1e6, 2.2e6, 5e6] {
        let path = Path { rate_bit_s, rtt_us: 6_000.0, buffer_bytes: 20e3, ..Path::PLAIN };
        let (rtt, found) = told(path);
        assert!(is_observed(&found.rate_bit_s) && is_observed(&found.bdp_bytes), "{found:#?}");
        assert!(
            is_true(&rtt, path.rtt_us) && is_true(&found.bdp_bytes, rate_bit_s * path.rtt_us / 8e6),
            "{rtt:?} {found:#?}"
        );
    }
    // Of a policed line only a bound is known.
    let policer = Some(Bucket { rate_bit_s: 0.54e6, depth_bytes: 15_000.0 });
    let path = Path { rate_bit_s: 1.1e6, rtt_us: 30_000.0, buffer_bytes: 15e3, policer, ..Path::PLAIN };
    let (rtt, found) = told(path);
    assert!(is_true(&rtt, path.rtt_us), "{rtt:?} {found:#?}");
}

#[test]
fn where_no_message_was_answered_the_load_says_the_round_trip_and_nothing_says_the_jitter() {
    let mut measured = Path::PLAIN.load();
    measured.answers.clear();
    let base = Base::of(&measured);
    assert!((base.rtt_us - Path::PLAIN.rtt_us).abs() < 1_000.0, "{base:?}");
    assert!(is_true(&base.finding(0.0, 0.0), Path::PLAIN.rtt_us));
    let trace = Trace::of(&measured, Way::Forth).unwrap();
    let found = direction(&trace, None, base, Finding::Absent { evidence: String::new() });
    assert!(!is_observed(&found.buffer_bytes) && !is_observed(&found.policer_bit_s), "{found:#?}");
    measured.near_seen.clear();
    measured.far_seen.clear();
    assert!(matches!(Base::of(&measured).finding(0.0, 0.0), Finding::NotObservable { .. }));
}

#[test]
fn a_buffer_of_few_packets_holds_up_to_two_more_than_stood_when_one_was_lost() {
    for seed in 1..80 {
        let path = Path { rate_bit_s: 2.5e6, rtt_us: 96e3, buffer_bytes: 15e3, jitter_us: 200.0, seed, ..Path::PLAIN };
        let found = find(path);
        assert!(is_true(&found.buffer_bytes, path.buffer_bytes), "{seed}: {found:#?}");
    }
}

#[test]
fn a_queue_that_grows_far_beyond_a_first_loss_bounds_the_buffer() {
    for seed in 1..80 {
        let path =
            Path { rate_bit_s: 5e6, rtt_us: 240e3, buffer_bytes: 5.7e5, lost: 0.002, loss_run: 1, seed, ..Path::PLAIN };
        let found = find(path);
        assert!(is_true(&found.buffer_bytes, path.buffer_bytes), "{seed}: {found:#?}");
    }
}

/// What is found of a path behind a shaper, and the shaper's rate. Given are the line's rate, round trip and buffer; the shaper's rate,
/// bucket and queue.
fn behind_a_shaper(
    (line, rtt_us, buffer_bytes, rate_bit_s, depth_bytes, shaper_queue_bytes): (f64, f64, f64, f64, f64, f64),
) -> (PathDirection, f64) {
    let shaper = Some(Bucket { rate_bit_s, depth_bytes });
    let path = Path { rate_bit_s: line, rtt_us, buffer_bytes, shaper, shaper_queue_bytes, ..Path::PLAIN };
    (find(path), rate_bit_s)
}

#[test]
fn a_shaper_with_a_short_queue_is_no_policer() {
    let paths = [
        (72.0e6, 16_656.0, 192e3, 7.05e6, 31e3, 15_000.0),
        (26.1e6, 45_991.0, 496e3, 7.19e6, 66e3, 28e3),
        (28.0e6, 42_785.0, 564e3, 7.22e6, 35_500.0, 22_600.0),
        (98.97e6, 10_577.0, 476e3, 28.7e6, 89_700.0, 20_200.0),
        (5.77e6, 207_985.0, 154e3, 2.37e6, 15e3, 34_700.0),
    ];
    for shaped in paths {
        let (found, rate_bit_s) = behind_a_shaper(shaped);
        assert!(is_true(&found.policer_bit_s, 0.0), "{found:#?}");
        assert!(!is_observed(&found.rate_bit_s) || is_true(&found.rate_bit_s, rate_bit_s), "{found:#?}");
    }
}

#[test]
fn a_shapers_burst_and_what_follows_are_no_rate_together() {
    let paths = [
        (118.0e6, 10_171.0, 273e3, 44.5e6, 20_260.0, 39_356.0),
        (66.4e6, 18_069.0, 18_500.0, 23.7e6, 15e3, 38_058.0),
        (154.4e6, 7_770.0, 55_732.0, 52.1e6, 18_523.0, 59_104.0),
        (72.1e6, 5_560.0, 15e3, 24.7e6, 15e3, 31_357.0),
    ];
    for shaped in paths {
        let (found, rate_bit_s) = behind_a_shaper(shaped);
        assert!(!is_observed(&found.rate_bit_s) || is_true(&found.rate_bit_s, rate_bit_s), "{found:#?}");
    }
}

#[test]
fn a_policer_that_takes_few_packets_at_once_is_not_measured_by_what_bursts_leave_of_it() {
    for (rate_bit_s, policed, rtt_us, depth_bytes) in
        [(203e6, 94.9e6, 567.6, 5_112.0), (100e6, 40e6, 1_000.0, 4_000.0), (50e6, 20e6, 3_000.0, 6_000.0)]
    {
        let policer = Some(Bucket { rate_bit_s: policed, depth_bytes });
        for seed in 1..10 {
            let found = find(Path { rate_bit_s, rtt_us, buffer_bytes: 15e3, policer, seed, ..Path::PLAIN });
            assert!(is_true(&found.policer_bit_s, policed) || matches!(found.policer_bit_s, Finding::Absent { .. }));
        }
    }
}

#[test]
fn runs_of_losses_that_slow_bbr_down_are_no_policer() {
    for (rate_bit_s, rtt_us, buffer_bytes) in
        [(60.7e6, 19_783.0, 27_249.0), (7.6e6, 68_194.0, 20_524.0), (23.3e6, 51_577.0, 18_582.0)]
    {
        for seed in 1..120 {
            let path = Path { rate_bit_s, rtt_us, buffer_bytes, lost: 0.045, loss_run: 20, seed, ..Path::PLAIN };
            let found = find(path);
            assert!(is_true(&found.policer_bit_s, 0.0), "{seed}: {found:#?}");
        }
    }
}
