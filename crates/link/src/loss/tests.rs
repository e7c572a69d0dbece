use ekiden_queue::Queue;
use ekiden_units::Fraction;
use proptest::prelude::*;

use super::{ALWAYS, Loss, Model};
use crate::{Direction, plain};

fn link(loss: u64, loss_burst: u32) -> Direction {
    Direction { queue: Queue::Packets(1), loss: Fraction(loss), loss_burst, ..plain::direction() }
}

/// The numbers of lost packets and of runs of them among `packets`.
fn count(mut loss: Loss, packets: u32) -> (u32, u32) {
    let (mut lost, mut runs, mut was_lost) = (0, 0, false);
    for _ in 0..packets {
        let is_lost = loss.is_next_lost();
        lost += u32::from(is_lost);
        runs += u32::from(is_lost && !was_lost);
        was_lost = is_lost;
    }
    (lost, runs)
}

#[test]
fn a_million_packets_have_the_mean_loss_and_the_mean_run() {
    const PACKETS: u32 = 1_000_000;
    for (part, burst) in [(0.01, 2), (0.01, 10), (0.001, 4), (0.2, 3), (0.5, 5), (0.1, 100), (0.8, 4)] {
        for seed in 0..4 {
            let loss = Loss::new(&link((part * 1e9) as u64, burst), seed);
            let (lost, runs) = count(loss, PACKETS);
            let (packets, burst) = (f64::from(PACKETS), f64::from(burst));
            let (ends, begins) = (1.0 / burst, part / (1.0 - part) / burst);
            // The states of packets n apart correlate as (1 − begins − ends)ⁿ: the sum is a geometric series.
            let correlation = 1.0 - begins - ends;
            let variance = part * (1.0 - part) / packets * (1.0 + correlation) / (1.0 - correlation);
            let mean = f64::from(lost) / packets;
            // Five standard deviations: once in two million.
            assert!((mean - part).abs() < 5.0 * variance.sqrt(), "loss {mean} is not {part}, runs of {burst}");
            // Runs are geometrically distributed.
            let run = f64::from(lost) / f64::from(runs);
            let deviation = burst * (1.0 - 1.0 / burst).sqrt() / f64::from(runs).sqrt();
            assert!((run - burst).abs() < 5.0 * deviation, "runs of {run} are not of {burst}, loss {part}");
        }
    }
}

#[test]
fn a_run_of_one_is_independent_loss() {
    let loss = Loss::new(&link(500_000_000, 1), 1);
    let (lost, runs) = count(loss, 100_000);
    // Half of the packets, and half of those before which one came through; five standard deviations.
    assert!(lost.abs_diff(50_000) < 800 && runs.abs_diff(25_000) < 700, "{lost} in {runs} runs");
}

#[test]
fn the_first_packets_are_lost_as_often_as_later_ones() {
    let lost = (0..10_000).filter(|seed| Loss::new(&link(300_000_000, 10_000), *seed).is_next_lost()).count();
    assert!(lost.abs_diff(3_000) < 230, "{lost}");
}

proptest! {
    #[test]
    fn as_many_runs_begin_as_end(loss in 1u64..1_000_000_000, burst in 2u32..=100_000) {
        // What a scenario accepts.
        let loss = loss.min(1_000_000_000 * u64::from(burst) / (u64::from(burst) + 1));
        let Model::Gilbert { begins, ends, .. } = Loss::new(&link(loss, burst), 1).model else { unreachable!() };
        prop_assert!(begins > 0 && begins <= ALWAYS);
        let (up, down) = (begins as f64 * (1e9 - loss as f64), ends as f64 * loss as f64);
        prop_assert!((up / down - 1.0).abs() < 1e-6, "{up} {down}");
    }

    #[test]
    fn nothing_panics_whatever_the_values(loss in any::<u64>(), burst in any::<u32>()) {
        let mut loss = Loss::new(&link(loss, burst), 1);
        (0..10).for_each(|_| { loss.is_next_lost(); });
    }
}
