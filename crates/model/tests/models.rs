//! The closed forms against the papers' own figures.

use ekiden_model::{payload_rate, s0, s3};
use ekiden_scenario::{Direction, Discipline, Queue};
use ekiden_units::{BitRate, Bytes, Fraction, Time};

#[test]
fn a_64_kib_window_bounds_the_osaka_path() {
    let mbit = |rtt| s3::window_limit(Bytes::kib(64), Time::ms(rtt)).unwrap().as_mbit();
    assert!((mbit(18) - 29.1).abs() < 0.1);
    assert!((mbit(43) - 12.2).abs() < 0.1);
}

#[test]
fn even_splits_multiply_and_the_longest_leg_bounds() {
    let limit = |ms: &[u64]| {
        let rtts: Vec<_> = ms.iter().copied().map(Time::ms).collect();
        s3::split_limit(Bytes::kib(64), &rtts).unwrap().0
    };
    assert_eq!(limit(&[25, 25]), 2 * limit(&[50]));
    assert_eq!(limit(&[40, 10]), limit(&[10, 40]));
    assert!(limit(&[25, 25]) > limit(&[30, 20]));
    assert_eq!(s3::split_limit(Bytes::kib(64), &[]), None);
}

#[test]
fn the_papers_proxies_lost_three_tenths_each() {
    let efficiency = |n| s3::paper_gain(n) / f64::from(n);
    for (n, published) in [(1, 1.0), (2, 0.85), (3, 0.80), (4, 0.775)] {
        assert!((efficiency(n) - published).abs() < 1e-9, "{n}");
    }
}

#[test]
fn reno_fills_a_line_whose_queue_holds_the_bdp_and_three_quarters_without_queue() {
    assert_eq!(s0::reno_utilisation(Bytes(100_000), Bytes(100_000)), 1.0);
    assert!((s0::reno_utilisation(Bytes(100_000), Bytes(0)) - 0.75).abs() < 1e-9);
    // S0's path at +25 ms: 70 Mbit/s × 43 ms and 100 KB.
    let osaka = s0::reno_utilisation(Bytes(376_250), Bytes(100_000));
    assert!((0.88..0.92).contains(&osaka), "{osaka}");
}

#[test]
fn headers_take_their_part_of_the_line() {
    let line = Direction {
        rate: BitRate::mbit(10),
        delay: Time(0),
        jitter: Time(0),
        queue: Queue::Packets(100),
        discipline: Discipline::DropTail,
        policer: None,
        loss: Fraction(0),
        loss_burst: 1,
        reorder: Fraction(0),
        reorder_by: None,
        changes: Vec::new(),
        outages: Vec::new(),
        mtu: 1500,
    };
    assert_eq!(payload_rate(&line, true), BitRate(9_653_333));
    assert_eq!(payload_rate(&line, false), BitRate(9_733_333));
}
