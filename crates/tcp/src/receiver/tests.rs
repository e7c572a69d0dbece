//! The receiver against a model that keeps every byte: RFC 2018, section 4, and the cumulative acknowledgement.

use std::collections::BTreeSet;

use ekiden_packet::{Flags, Options};
use proptest::prelude::*;

use super::*;
use crate::rtt::timestamp;

const FIRST: Seq = Seq(u32::MAX - 300);

fn data(start: u64, length: u32, fin: bool) -> Segment {
    Segment {
        seq: FIRST + start as u32,
        payload: length,
        flags: Flags { fin, ..Flags::default() },
        ..Segment::default()
    }
}

fn receiver() -> Receiver {
    let settings = TcpSettings { receive_buffer: 4000, ack_every: 1, ..TcpSettings::rfc() };
    let mut receiver = Receiver::new(&settings, FIRST, false, true);
    acknowledgement(&mut receiver, false);
    receiver
}

fn acknowledgement(receiver: &mut Receiver, timestamps: bool) -> Segment {
    let timestamps = timestamps.then(Timestamps::default);
    let mut ack = Segment { options: Options { timestamps, ..Options::default() }, ..Segment::default() };
    receiver.acknowledge(&mut ack);
    ack
}

/// Which positions have arrived.
struct Arrived([bool; 1000]);

impl Arrived {
    fn none() -> Self {
        Self([false; 1000])
    }

    fn add(&mut self, start: u64, end: u64) {
        self.0[start as usize..end as usize].fill(true);
    }

    /// The first that is missing.
    fn next(&self) -> u64 {
        self.around(1).1
    }

    /// The range that holds a position.
    fn around(&self, at: u64) -> (u64, u64) {
        let at = at as usize;
        let start = at - self.0[..at].iter().rev().take_while(|has| **has).count();
        let end = at + self.0[at..].iter().take_while(|has| **has).count();
        (start as u64, end as u64)
    }

    /// The ranges beyond the first that is missing.
    fn held(&self) -> BTreeSet<(u64, u64)> {
        let beyond = (self.next()..1000).filter(|at| self.0[*at as usize] && !self.0[*at as usize - 1]);
        beyond.map(|at| self.around(at)).collect()
    }
}

#[test]
fn the_window_grows_with_what_is_read_in_a_round_trip_and_stands_still_at_a_gap() {
    // tcp_rcvbuf_grow: twice what was taken, and twice that in proportion to its growth. Initial: ten segments of 1000.
    let settings = TcpSettings { mss: 1000, receive_buffer: 1 << 20, autotunes_window: true, ..TcpSettings::rfc() };
    let mut receiver = Receiver::new(&settings, FIRST, true, false);
    let mut arrives = |ms: u64, start: u64, length: u32| {
        let now = Time::ms(ms);
        let timestamps = Some(Timestamps { value: 1, echo: timestamp(Time::ms(ms - 100)) });
        let segment = data(start, length, false);
        receiver.tune(now, &Segment { options: Options { timestamps, ..segment.options }, ..segment });
        receiver.take(now, &segment);
        receiver.read(u64::MAX);
        let ack = acknowledgement(&mut receiver, false);
        u64::from(ack.window) << scale_for(1 << 20)
    };
    let rounded = |window: u64| window.next_multiple_of(1 << scale_for(1 << 20));
    assert_eq!(arrives(100, 1, 10_000), rounded(65_535));
    // Ten segments are no more than ten; then twenty, forty.
    assert_eq!(arrives(200, 10_001, 20_000), rounded(65_535));
    assert!(arrives(250, 30_001, 32) <= rounded(65_535), "once per round trip");
    assert_eq!(arrives(300, 30_033, 40_000), rounded(2 * 20_032 + 4 * 20_032 * 10_032 / 10_000));
    let large = arrives(400, 70_033, 10);
    assert_eq!(large, rounded(2 * 40_000 + 4 * 40_000 * 19_968 / 20_032));
    // 70,043 is missing: nothing is read, and the right edge stays.
    for ms in 5..20 {
        assert_eq!(arrives(ms * 100, 70_044 + ms * 5000, 5000), large);
    }
}

#[test]
fn linux_opens_a_closed_window_by_a_sixteenth_of_the_buffer_and_the_rfcs_by_two_segments() {
    for (acks_wait_for_reader, early) in [(false, 2000), (true, 0)] {
        let settings = TcpSettings { receive_buffer: 64_000, ack_every: 2, acks_wait_for_reader, ..TcpSettings::rfc() };
        let mut receiver = Receiver::new(&settings, FIRST, false, false);
        acknowledgement(&mut receiver, false);
        for start in 0..64 {
            receiver.take(Time(0), &data(1 + start * 1000, 1000, false));
        }
        assert_eq!(acknowledgement(&mut receiver, false).window, 0);
        receiver.read(2000);
        assert_eq!((receiver.ack_is_due(Time(0)), acknowledgement(&mut receiver, false).window), (early > 0, early));
        receiver.read(2000);
        assert_eq!((receiver.ack_is_due(Time(0)), acknowledgement(&mut receiver, false).window), (true, 4000));
    }
}

#[test]
fn linux_announces_a_window_that_has_doubled_and_the_rfcs_two_segments_more() {
    for (acks_wait_for_reader, [early, late]) in [(false, [true, true]), (true, [false, true])] {
        let settings = TcpSettings { receive_buffer: 16_000, ack_every: 2, acks_wait_for_reader, ..TcpSettings::rfc() };
        let mut receiver = Receiver::new(&settings, FIRST, false, false);
        acknowledgement(&mut receiver, false);
        // 10,000 of 16,000 arrive and are acknowledged: 6,000 are left.
        for start in 0..10 {
            receiver.take(Time(0), &data(1 + start * 1000, 1000, false));
        }
        assert_eq!(acknowledgement(&mut receiver, false).window, 6000);
        receiver.read(5000);
        assert_eq!(receiver.ack_is_due(Time(0)), early, "11,000 instead of 6,000");
        receiver.read(1000);
        assert_eq!(receiver.ack_is_due(Time(0)), late, "12,000");
    }
}

#[test]
fn the_right_edge_of_a_scaled_window_never_retreats() {
    // RFC 9293, section 3.8.6. 32 bytes are the least that this window can tell.
    let settings = TcpSettings { mss: 1000, receive_buffer: 1 << 20, ..TcpSettings::rfc() };
    let shift = scale_for(1 << 20);
    let mut receiver = Receiver::new(&settings, FIRST, true, false);
    let (mut start, mut edge) = (1, 0);
    for step in 0..900u32 {
        // Segments of all sizes; the application reads now and then, and lets the window close.
        let length = 800 + step * 7 % 200;
        receiver.take(Time(0), &data(start, length, false));
        start += u64::from(length);
        if step % 300 < 100 {
            receiver.read(u64::MAX);
        }
        let ack = acknowledgement(&mut receiver, false);
        let offered = start + (u64::from(ack.window) << shift);
        assert!(offered >= edge, "{offered} after {edge}");
        edge = offered;
    }
}

#[test]
fn a_buffer_that_nobody_reads_is_exceeded_by_a_small_part_whatever_the_segments() {
    let settings = TcpSettings { mss: 1000, receive_buffer: 1 << 20, ..TcpSettings::rfc() };
    for length in [1, 33, 1000] {
        let mut receiver = Receiver::new(&settings, FIRST, true, false);
        let mut start = 1;
        while receiver.is_acceptable(Time(0), &data(start, length, false)) {
            start += u64::from(receiver.take(Time(0), &data(start, length, false)).length);
            acknowledgement(&mut receiver, false);
        }
        assert!((1 << 20..(1 << 20) * 17 / 16 + 1000).contains(&start), "{start} with segments of {length}");
    }
}

#[test]
fn every_second_byte_alone_makes_a_bounded_number_of_ranges_and_nothing_is_missing() {
    let settings = TcpSettings { receive_buffer: 1 << 20, ..TcpSettings::rfc() };
    let mut receiver = Receiver::new(&settings, FIRST, true, true);
    acknowledgement(&mut receiver, false);
    let mut kept = 0;
    for start in (2..60_000).step_by(2) {
        kept += receiver.take(Time(0), &data(start, 1, false)).length;
        assert!(receiver.ack_is_due(Time(0)));
    }
    assert_eq!((receiver.held.len(), kept), (4096, 4096), "the driver keeps no more than that either");
    // What continues a range that is held is kept, and what is next.
    let next_to_last = receiver.take(Time(0), &data(8193, 1, false));
    let (first, rest) = (data(1, 1000, false), data(1001, 59_000, false));
    let lengths =
        [next_to_last, receiver.take(Time(0), &first), receiver.take(Time(0), &rest)].map(|taken| taken.length);
    assert_eq!((lengths, receiver.readable()), ([1, 1000, 59_000], 60_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn blocks_are_true_distinct_and_the_latest_first(
        segments in prop::collection::vec((0u64..30, 1u32..4, any::<bool>()), 1..60),
        timestamps in any::<bool>(),
    ) {
        let mut receiver = receiver();
        let most = if timestamps { 3 } else { 4 };
        let mut arrived = Arrived::none();
        // The ranges as they were last reported, the latest first.
        let mut reported: Vec<(u64, u64)> = Vec::new();
        let mut most_ranges = 0;
        for (place, units, shifted) in segments {
            // Sometimes across the others' bounds.
            let (start, length) = (1 + place * 20 + 7 * u64::from(shifted), units * 20);
            let end = start + u64::from(length);
            let segment = data(start, length, false);
            if !receiver.is_acceptable(Time(0), &segment) {
                continue;
            }
            receiver.take(Time(0), &segment);
            arrived.add(start, end);
            let next = arrived.next();
            prop_assert!(receiver.ack_is_due(Time(0)));
            let ack = acknowledgement(&mut receiver, timestamps);
            prop_assert_eq!(ack.ack, Some(FIRST + next as u32));
            let position = |seq: Seq| u64::from(seq.0.wrapping_sub(FIRST.0));
            let blocks: Vec<_> = ack.options.sack.iter().map(|block| (position(block.start), position(block.end))).collect();
            for block in &blocks {
                prop_assert!(block.0 > next, "a block touches or lies below the cumulative acknowledgement");
                prop_assert_eq!(*block, arrived.around(block.0), "a block is not a whole range that has arrived");
            }
            prop_assert_eq!(blocks.iter().collect::<BTreeSet<_>>().len(), blocks.len(), "a block is there twice");
            if start > next {
                prop_assert_eq!(blocks[0], arrived.around(start), "the first block does not hold the latest segment");
            }
            // "the first SACK block ... the most recently reported ... that are not subsets": in their order.
            let mut expected = Vec::new();
            let latest = (start > next).then_some((start, end));
            for (from, _) in latest.into_iter().chain(reported.iter().copied()) {
                let whole = arrived.around(from);
                if whole.0 > next && !expected.contains(&whole) {
                    expected.push(whole);
                }
            }
            reported.clone_from(&expected);
            most_ranges = most_ranges.max(arrived.held().len());
            prop_assert!(expected.starts_with(&blocks), "{:?} are not the first of {:?}", blocks, expected);
            // "as many distinct SACK blocks as possible": as long as all can be remembered.
            if most_ranges <= REPORTED {
                prop_assert_eq!(blocks.len(), expected.len().min(most));
            }
        }
    }

    #[test]
    fn an_end_that_comes_early_is_reported_and_counts_when_all_is_there(order in Just([0u64, 1, 2, 3]).prop_shuffle(), alone: bool) {
        let mut receiver = receiver();
        let mut arrived = Arrived::none();
        for (count, index) in order.into_iter().enumerate() {
            // The FIN is with the last payload, or by itself.
            let fin = index == 3;
            let length = if fin && alone { 0 } else { 100 };
            let start = 1 + 100 * index;
            receiver.take(Time(0), &data(start, length, fin));
            arrived.add(start, start + u64::from(length) + u64::from(fin));
            prop_assert!(receiver.ack_is_due(Time(0)), "RFC 5681, section 4.2: at once");
            let ack = acknowledgement(&mut receiver, false);
            let next = arrived.next();
            prop_assert_eq!(ack.ack, Some(FIRST + next as u32));
            if start > next {
                let (from, to) = arrived.around(start);
                let first = ack.options.sack.iter().next().map(|block| (block.start, block.end));
                prop_assert_eq!(first, Some((FIRST + from as u32, FIRST + to as u32)));
            }
            prop_assert_eq!(receiver.is_finished(), count == 3);
        }
        prop_assert_eq!(receiver.readable(), if alone { 300 } else { 400 });
    }
}

/// With a buffer of 4,000 bytes that is advertised whole, and every second segment acknowledged, at the latest after 40 ms.
fn linux_receiver() -> Receiver {
    let settings = TcpSettings { receive_buffer: 4000, autotunes_window: false, quick_acks: 0, ..TcpSettings::linux() };
    let mut receiver = Receiver::new(&settings, FIRST, false, true);
    acknowledgement(&mut receiver, false);
    receiver
}

#[test]
fn an_acknowledgement_waits_for_an_application_that_reads_late() {
    let mut receiver = linux_receiver();
    let now = Time::ms(7);
    for start in [1, 501, 1001] {
        receiver.take(now, &data(start, 500, false));
        assert!(!receiver.ack_is_due(now));
    }
    // It takes a little: what has arrived is acknowledged, though the window opens by less than that.
    receiver.read(100);
    assert!(receiver.ack_is_due(now));
    assert_eq!(acknowledgement(&mut receiver, false).ack, Some(FIRST + 1501));
    // It takes nothing: the delayed acknowledgement goes out in time.
    receiver.take(now, &data(1501, 500, false));
    receiver.take(now, &data(2001, 500, false));
    assert!(!receiver.ack_is_due(now));
    assert!(receiver.ack_is_due(now + Time::ms(40)));
}

#[test]
fn an_application_that_reads_at_once_delays_no_acknowledgement() {
    let mut receiver = linux_receiver();
    let now = Time::ms(7);
    receiver.take(now, &data(1, 500, false));
    receiver.read(u64::MAX);
    assert!(!receiver.ack_is_due(now));
    receiver.take(now, &data(501, 500, false));
    receiver.read(u64::MAX);
    assert!(receiver.ack_is_due(now));
}

#[test]
fn without_linux_every_second_segment_is_acknowledged_whoever_reads() {
    let settings = TcpSettings { receive_buffer: 4000, ..TcpSettings::rfc() };
    let mut receiver = Receiver::new(&settings, FIRST, false, true);
    acknowledgement(&mut receiver, false);
    let now = Time::ms(7);
    receiver.take(now, &data(1, 500, false));
    assert!(!receiver.ack_is_due(now));
    receiver.take(now, &data(501, 500, false));
    assert!(receiver.ack_is_due(now));
}
