//! What is found on paths that are known.

use ekiden_record::{Finding, Judgement, PathDirection, Way};

use super::base::Base;
use super::ended::{End, end};
use super::simulated::{Bucket, Path};
use super::trace::{Trace, longest_us};
use super::{find, has_changed, picture, spent_before_second};
use ekiden_measure_proto::message::Segments;
use ekiden_measure_proto::row::Row;

/// What is found on a path, with a second pass where one is wanted.
pub fn find(path: Path) -> PathDirection {
    let first = path.load();
    let (trace, base) = (Trace::of(&first, Way::Forth).unwrap(), Base::of(&first));
    let second = spent_before_second(&trace, base).map(|_| Path { by_bbr: true, ..path }.load());
    let second = second.as_ref().and_then(|measured| Trace::of(measured, Way::Forth));
    find::direction(&trace, second.as_ref(), base, Finding::Absent { evidence: String::new() })
}

/// Whether a finding is true of a value: its range holds it, or its bound does.
pub fn is_true(finding: &Finding, value: f64) -> bool {
    match finding {
        Finding::Observed { low, high, .. } => (*low..=*high).contains(&value),
        Finding::AtLeast { value: least, .. } => *least <= value,
        Finding::AtMost { value: most, .. } => *most >= value,
        Finding::Absent { .. } => value == 0.0,
        Finding::NotObservable { .. } => true,
    }
}

pub fn is_observed(finding: &Finding) -> bool {
    matches!(finding, Finding::Observed { .. })
}

/// Plain paths from slow to fast, near to far, with short buffers and long ones.
fn plain() -> impl Iterator<Item = Path> {
    let rates = [1.5e6, 6e6, 20e6, 48e6, 150e6];
    let all = move |rate_bit_s: f64| {
        [6_500.0, 40_000.0, 120_000.0].into_iter().flat_map(move |rtt_us| {
            let of = move |part: f64| {
                let buffer_bytes = (part * rate_bit_s * rtt_us / 8e6_f64).max(15_000.0);
                Path { rate_bit_s, rtt_us, buffer_bytes, ..Path::PLAIN }
            };
            [0.2, 0.6, 2.0].map(of)
        })
    };
    rates.into_iter().flat_map(all)
}

#[test]
fn an_mtu_is_told_of_segments_that_arrived_whole_and_of_no_others() {
    let mtu = |change: &dyn Fn(&mut Segments, &mut Segments)| {
        let mut load = Path::PLAIN.load();
        let (sent, arrived) = (&mut load.near_seen[0].end.segments, &mut load.far_seen[0].end.segments);
        change(sent.as_mut().unwrap(), arrived.as_mut().unwrap());
        let trace = Trace::of(&load, Way::Forth).unwrap();
        find::direction(&trace, None, Base::of(&load), Finding::Absent { evidence: String::new() }).mtu_bytes
    };
    assert_eq!(mtu(&|_, _| {}).value(), Some(1500.0));
    let said = |finding: Finding| format!("{finding:?}");
    let short = said(mtu(&|_, arrived| arrived.longest_bytes = 1208));
    assert!(short.contains("AtLeast { value: 1260.0") && short.contains("longer ones were not seen"), "{short}");
    let probing = said(mtu(&|sent, arrived| (sent.mtu_probing, arrived.longest_bytes) = (2, 1024)));
    assert!(probing.contains("value: 1076.0") && probing.contains("tcp_mtu_probing = 2"), "{probing}");
    let unknown = mtu(&|_, arrived| arrived.longest_bytes = 0);
    assert!(matches!(unknown, Finding::NotObservable { .. }), "{unknown:?}");
    // So short ones a receiver's kernel takes for granted: what was acknowledged tells.
    let least = mtu(&|sent, arrived| (sent.longest_bytes, arrived.longest_bytes) = (524, 0));
    assert_eq!(least.estimate_or_bound(), Some(576.0));
}

#[test]
fn a_picture_ends_with_the_last_whole_bin() {
    let mut load = Path::PLAIN.load();
    let whole = picture(&Trace::of(&load, Way::Forth).unwrap(), Way::Forth).rate_mbit;
    // An end looks on after the last byte has come.
    let last = *load.far_seen[0].rows.last().unwrap();
    load.far_seen[0].rows.push(Row { at_us: last.at_us + 50_000, ..last });
    let longer = picture(&Trace::of(&load, Way::Forth).unwrap(), Way::Forth).rate_mbit;
    assert_eq!(longer, whole);
    assert!(whole.last().is_some_and(|(at, _)| *at <= last.at_us as f64 / 1e6), "{whole:?}");
}

#[test]
fn a_plain_path_has_its_rate_and_buffer_and_nothing_else() {
    let mut seen = 0;
    for path in plain() {
        let found = find(path);
        let said =
            || format!("{} Mbit/s, {} us, {} B: {found:#?}", path.rate_bit_s / 1e6, path.rtt_us, path.buffer_bytes);
        assert!(is_true(&found.rate_bit_s, path.rate_bit_s), "{}", said());
        assert!(is_true(&found.buffer_bytes, path.buffer_bytes), "{}", said());
        assert!(is_true(&found.random_loss, 0.0), "{}", said());
        assert!(!is_observed(&found.policer_bit_s), "{}", said());
        assert!(!matches!(found.drop_tail, Judgement::No { .. }), "{}", said());
        seen += u32::from(is_observed(&found.rate_bit_s) && is_observed(&found.buffer_bytes));
    }
    // Behind buffers of a fifth of a product the second pass brings a little less than the line: a policer of nearly its rate would do that, too.
    assert!(seen >= 39, "rate and buffer were seen on {seen} of 45");
}

#[test]
fn a_policer_is_told_by_a_rate_that_holds() {
    for (rate_bit_s, rtt_us) in [(10e6, 20_000.0), (10e6, 40_000.0), (20e6, 100_000.0)] {
        let bucket = Bucket { rate_bit_s, depth_bytes: 60_000.0 };
        let line = Path { rate_bit_s: 10.0 * rate_bit_s, rtt_us, buffer_bytes: 1e6, ..Path::PLAIN };
        let found = find(Path { policer: Some(bucket), ..line });
        assert!(is_observed(&found.policer_bit_s), "{found:#?}");
        assert!(is_true(&found.policer_bit_s, rate_bit_s), "{found:#?}");
        assert!(!is_observed(&found.buffer_bytes), "{found:#?}");
        assert!(is_true(&found.rate_bit_s, line.rate_bit_s), "{found:#?}");
    }
}

#[test]
fn what_a_full_buffer_drops_is_an_overflow_however_large_the_window() {
    let mut measured = Path { rate_bit_s: 100e6, buffer_bytes: 1e6, ..Path::PLAIN }.load();
    // Few of some thousand segments, as where slow start had ended before.
    measured.near_seen[0].rows.iter_mut().for_each(|row| row.retransmits = row.retransmits.min(12));
    let trace = Trace::of(&measured, Way::Forth).unwrap();
    assert_eq!(end(&trace, &trace.delays(), Base::of(&measured)), End::Overflow);
    let found = find::direction(&trace, None, Base::of(&measured), Finding::Absent { evidence: String::new() });
    assert!(!is_observed(&found.random_loss), "{found:#?}");
}

#[test]
fn round_trips_that_grow_while_an_overflow_lasts_are_no_larger_buffer() {
    let path = Path { rate_bit_s: 100e6, buffer_bytes: 200_000.0, ..Path::PLAIN };
    let mut measured = path.load();
    let rows = &mut measured.near_seen[0].rows;
    let most = rows.iter().map(|row| row.lost).max().unwrap();
    for row in rows.iter_mut().filter(|row| row.lost > most * 4 / 5) {
        row.rtt_us = (path.rtt_us + 1.5 * path.buffer_bytes * 8e6 / path.rate_bit_s) as u32;
    }
    let second = Path { by_bbr: true, ..path }.load();
    let [trace, second] = [&measured, &second].map(|load| Trace::of(load, Way::Forth).unwrap());
    let none = Finding::Absent { evidence: String::new() };
    let found = find::direction(&trace, Some(&second), Base::of(&measured), none);
    let value = found.buffer_bytes.value().unwrap_or(0.0);
    assert!((value - path.buffer_bytes).abs() < 0.1 * path.buffer_bytes, "{found:#?}");
    assert!(is_true(&found.buffer_bytes, 1.4 * path.buffer_bytes), "either may be true: {found:#?}");
}

#[test]
fn a_sender_that_heeds_losses_shows_no_policer() {
    // Reno's recovery is slower than the line behind a short buffer, too.
    for path in plain() {
        let measured = path.load();
        let trace = Trace::of(&measured, Way::Forth).unwrap();
        let found = find::direction(&trace, None, Base::of(&measured), Finding::Absent { evidence: String::new() });
        assert!(!is_observed(&found.policer_bit_s), "{found:#?}");
    }
}

#[test]
fn what_came_twice_was_not_lost() {
    // Packets that others overtake fill no buffer.
    for seed in 1..20 {
        let path = Path { late: 0.1, buffer_bytes: 1e9, seed, ..Path::PLAIN };
        let measured = path.load();
        let trace = Trace::of(&measured, Way::Forth).unwrap();
        assert!(trace.came_twice() > 0, "{seed}");
        assert_eq!(end(&trace, &trace.delays(), Base::of(&measured)), End::NoLoss, "{seed}");
        let found = find(path);
        assert!(!is_observed(&found.buffer_bytes), "{seed}: {found:#?}");
        assert!(!matches!(found.drop_tail, Judgement::Yes { .. }), "{seed}: {found:#?}");
        assert!(!is_observed(&found.policer_bit_s), "{seed}: {found:#?}");
    }
}

#[test]
fn a_single_lost_segment_is_seen() {
    let mut few = 0;
    for seed in 1..40 {
        let measured = Path { lost: 0.01, buffer_bytes: 1e9, seed, ..Path::PLAIN }.load();
        let trace = Trace::of(&measured, Way::Forth).unwrap();
        let (resent, _) = trace.losses();
        let ended = end(&trace, &trace.delays(), Base::of(&measured));
        assert_eq!(trace.came_twice(), 0, "{seed}");
        assert_eq!(ended == End::NoLoss, resent == 0, "{seed}: {resent} were sent again");
        few += u32::from(resent == 1);
    }
    assert!(few > 0);
}

#[test]
fn a_short_buffer_is_no_chance() {
    for (rate_bit_s, rtt_us, buffer_bytes) in [(10e6, 20_000.0, 8e3), (20e6, 40_000.0, 10e3), (5e6, 30_000.0, 6e3)] {
        let path = Path { rate_bit_s, rtt_us, buffer_bytes, ..Path::PLAIN };
        let found = find(path);
        assert!(!is_observed(&found.random_loss), "{found:#?}");
    }
}

#[test]
fn chance_is_seen_where_the_second_pass_had_a_longer_queue() {
    let loses = |seed: u64, buffer_bytes: f64| {
        let path = Path { lost: 0.02, buffer_bytes, seed, ..Path::PLAIN };
        let found = find(path);
        assert!(is_true(&found.buffer_bytes, path.buffer_bytes), "{found:#?}");
        assert!(is_true(&found.random_loss, path.lost), "{found:#?}");
        is_observed(&found.random_loss)
    };
    // BBR fills a buffer of one product no longer than Reno does.
    assert_eq!((1..10).filter(|seed| loses(*seed, 1e5)).count(), 0);
    assert!((1..10).filter(|seed| loses(*seed, 3e5)).count() >= 6);
}

#[test]
fn a_policer_of_few_segments_on_a_slow_line_fills_no_buffer() {
    for (rate_bit_s, policed, depth_bytes) in [(10e6, 2e6, 16e3), (5e6, 1e6, 32e3)] {
        let bucket = Bucket { rate_bit_s: policed, depth_bytes };
        let path = Path { rate_bit_s, rtt_us: 25_000.0, policer: Some(bucket), ..Path::PLAIN };
        let found = find(path);
        assert!(!matches!(found.policer_bit_s, Finding::Absent { .. }), "{found:#?}");
        assert!(!is_observed(&found.buffer_bytes), "{found:#?}");
        assert!(matches!(found.drop_tail, Judgement::NotObservable { .. }), "{found:#?}");
    }
}

#[test]
fn a_slow_or_short_line_that_drops_at_its_tail_is_not_said_to_drop_early() {
    let lines = [(0.3e6, 100e3, 15e3), (1e6, 50e3, 15e3), (2e6, 100e3, 20e3), (200e6, 5e3, 60e3)];
    for (rate_bit_s, rtt_us, buffer_bytes) in lines {
        let found = find(Path { rate_bit_s, rtt_us, buffer_bytes, ..Path::PLAIN });
        assert!(!matches!(found.drop_tail, Judgement::No { .. }), "{found:#?}");
    }
}

#[test]
fn a_late_look_is_no_queue() {
    for near in [true, false] {
        let mut measured = Path { buffer_bytes: 1e9, ..Path::PLAIN }.load();
        let longest_us = |measured: &_| longest_us(&Trace::of(measured, Way::Forth).unwrap().delays());
        let true_us = longest_us(&measured);
        let seen = if near { &mut measured.near_seen[0] } else { &mut measured.far_seen[0] };
        // Nothing was looked at for a while.
        let from = seen.rows.partition_point(|row| row.at_us < 70_000);
        let until = seen.rows.partition_point(|row| row.at_us < 220_000);
        seen.rows.drain(from..until);
        seen.end.late_us.push(150_000);
        assert!((longest_us(&measured) - true_us).abs() < 12_000.0, "{near}: {true_us}, {}", longest_us(&measured));
        assert!(Trace::of(&measured, Way::Forth).unwrap().stalled_us().is_some());
    }
}

#[test]
fn an_end_that_was_late_has_seen_no_rate() {
    let mut measured = Path::PLAIN.load();
    let rate = |measured: &_| {
        let trace = Trace::of(measured, Way::Forth).unwrap();
        find::direction(&trace, None, Base::of(measured), Finding::Absent { evidence: String::new() }).rate_bit_s
    };
    assert!(is_observed(&rate(&measured)));
    measured.far_seen[0].end.late_us.push(2_000_000);
    assert!(!is_observed(&rate(&measured)));
}

#[test]
fn packets_that_were_held_up_show_no_faster_line() {
    for seed in 1..6 {
        let path = Path { rate_bit_s: 500e6, rtt_us: 100_000.0, buffer_bytes: 1e6, lost: 0.01, seed, ..Path::PLAIN };
        let mut measured = path.load();
        // What comes in two of five milliseconds is let go together.
        let rows = &mut measured.far_seen[0].rows;
        for row in 1..rows.len() {
            if rows[row].at_us % 5_000 < 2_000 {
                rows[row] = Row { at_us: rows[row].at_us, ..rows[row - 1] };
            }
        }
        let trace = Trace::of(&measured, Way::Forth).unwrap();
        let found = find::direction(&trace, None, Base::of(&measured), Finding::Absent { evidence: String::new() });
        assert!(is_true(&found.rate_bit_s, path.rate_bit_s), "{seed}: {found:#?}");
    }
}

#[test]
fn a_rate_that_does_not_hold_is_no_lines() {
    for depth_bytes in [30_000.0, 100_000.0, 200_000.0] {
        let bucket = Bucket { rate_bit_s: 20e6, depth_bytes };
        let path = Path { shaper: Some(bucket), rate_bit_s: 60e6, buffer_bytes: 400_000.0, ..Path::PLAIN };
        let found = find(path);
        let Finding::Observed { low, high, .. } = found.rate_bit_s else { continue };
        assert!(low <= 20e6 && high >= 20e6, "{depth_bytes}: {found:#?}");
    }
    for seed in 1..10 {
        let path = Path { jitter_us: 4_000.0, late: 0.0, seed, ..Path::PLAIN };
        let found = find(path);
        assert!(is_true(&found.rate_bit_s, 20e6), "{seed}: {found:#?}");
    }
}

#[test]
fn jitter_is_no_other_path() {
    let base = |path: Path| Base::of(&path.load());
    for seed in 1..40 {
        let path = Path { rtt_us: 2_700.0, jitter_us: 14_000.0, seed, ..Path::PLAIN };
        let (forth, back) = (base(path), base(Path { seed: seed + 100, ..path }));
        assert!(!has_changed(forth, back), "{forth:?} {back:?}");
        assert!(has_changed(forth, base(Path { rtt_us: 60_000.0, ..path })), "{forth:?}");
    }
}
