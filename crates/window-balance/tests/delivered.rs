//! The policy that follows what the path delivers, case by case.

use std::time::Duration;

use crate::common::{Gateway, RTT_US, SCALE, SEGMENT, Stream, WINDOW};
use ekiden_window_balance::{BalanceSettings, Packet};

/// How long the round trip is, in percent of the least, when a slow start has filled the queue.
const FULL: u64 = 150;

/// A stream in slow start: for so many round trips each ACK lets two segments go, and in the last one they wait in the queue.
fn doubling(gateway: &mut Gateway, number: u32, rounds: u32) -> Stream {
    doubling_as(gateway, Stream::new(number), rounds, RTT_US, FULL)
}

fn doubling_as(gateway: &mut Gateway, stream: Stream, rounds: u32, rtt_us: u64, last_percent: u64) -> Stream {
    let mut stream = gateway.open_as(stream, SCALE, SCALE);
    for _ in 0..10 {
        gateway.send(&mut stream);
    }
    gateway.now_us += rtt_us;
    for round in 1..=rounds {
        let window = 10 << (round - 1);
        let lasts_us = if round == rounds { rtt_us * last_percent / 100 } else { rtt_us };
        for _ in 0..window {
            gateway.now_us += lasts_us / window;
            gateway.ack(&mut stream, 1);
            gateway.send(&mut stream);
            gateway.send(&mut stream);
        }
    }
    // The last round ends.
    gateway.ack(&mut stream, 1);
    gateway.send(&mut stream);
    gateway.send(&mut stream);
    stream
}

/// A round trip of so many percent of the least: each ACK lets segments go, so that then `window` are in flight.
fn round(gateway: &mut Gateway, stream: &mut Stream, window: u64, percent: u64) {
    let acks = (stream.sent - stream.acked) / u64::from(SEGMENT);
    for ack in 1..=acks {
        gateway.now_us += RTT_US * percent / 100 / acks;
        gateway.ack(stream, 1);
        let end = stream.acked + (acks - ack) * u64::from(SEGMENT) + window * ack / acks * u64::from(SEGMENT);
        let told = gateway.group.limit(stream.number).map_or(u64::MAX, |limit| u64::from(limit >> SCALE << SCALE));
        while stream.sent < end && stream.sent - stream.acked + u64::from(SEGMENT) <= told {
            gateway.send(stream);
        }
    }
}

/// The same, in which the sender has as much in flight as it may, and a segment is sent again if `is_repaired`.
fn limited(gateway: &mut Gateway, stream: &mut Stream, percent: u64, is_repaired: bool) {
    if is_repaired {
        gateway.resend(stream, stream.acked);
    }
    let in_flight = (stream.sent - stream.acked) / u64::from(SEGMENT);
    let window = gateway.group.limit(stream.number).map_or(in_flight, |limit| u64::from(limit / SEGMENT));
    round(gateway, stream, window, percent);
}

/// Of this stream so many segments are missing before one that has arrived.
fn misses(gateway: &mut Gateway, stream: &Stream, segments: u64) -> Option<u16> {
    let at = |segments: u64| stream.acked + segments * u64::from(SEGMENT);
    gateway.sack(stream, &[(at(segments), at(segments + 1))])
}

/// A stream with `window` segments in flight, for which each round trip has lasted as long as any.
fn steady(gateway: &mut Gateway, number: u32, window: u32) -> Stream {
    let mut stream = gateway.open(number, SCALE, SCALE);
    for _ in 0..window {
        gateway.send(&mut stream);
    }
    gateway.now_us += RTT_US;
    gateway.clock(&mut stream, window, 5 * window);
    stream
}

/// Two streams whose slow start has sent far more than the path holds.
fn overshot() -> (Gateway, Stream, Stream) {
    overshot_with(BalanceSettings::default())
}

fn overshot_with(settings: BalanceSettings) -> (Gateway, Stream, Stream) {
    let mut gateway = Gateway::with(settings);
    let other = doubling(&mut gateway, 8, 5);
    let first = doubling(&mut gateway, 7, 5);
    (gateway, first, other)
}

#[test]
fn a_slow_start_that_overshoots_limits_those_that_take_part_to_what_the_path_delivers() {
    let (mut gateway, mut first, mut other) = overshot();
    assert_eq!(misses(&mut gateway, &first, 9), None);
    assert_eq!(gateway.group.throttlings(), 0);
    let flow = gateway.group.flow(7).unwrap();
    // 160 segments in a round trip of 150 % of the least.
    assert!((95 * SEGMENT..=125 * SEGMENT).contains(&flow), "{flow}");
    let at = |segments: u64| first.acked + segments * u64::from(SEGMENT);
    let field = gateway.sack(&first, &[(at(12), at(13)), (at(9), at(10))]);
    assert_eq!(field, Some((flow >> SCALE) as u16), "with two more, eleven are missing");
    assert_eq!((gateway.group.throttlings(), gateway.group.last_throttled_by()), (1, Some(7)));
    let field = u32::from(gateway.ack(&mut other, 1).unwrap()) << SCALE;
    assert!((95 * SEGMENT..=125 * SEGMENT).contains(&field), "{field}");
    // The same gap throttles once, and so does what is found missing until it is repaired.
    gateway.now_us += 10 * RTT_US;
    gateway.sack(&first, &[(at(50), at(60))]);
    gateway.ack(&mut first, 13);
    misses(&mut gateway, &first, 100);
    assert_eq!(gateway.group.throttlings(), 1);
    // One that opens afterwards has no part in it.
    let mut late = gateway.running(9, 20);
    assert_eq!(gateway.ack(&mut late, 1), None);
}

#[test]
fn ten_segments_are_missing_and_not_nine() {
    for (missing, throttlings) in [(9, 0), (10, 1)] {
        let (mut gateway, first, _) = overshot();
        misses(&mut gateway, &first, missing);
        assert_eq!(gateway.group.throttlings(), throttlings, "{missing}");
    }
}

/// The flow grew by half in one of the last two rounds.
#[test]
fn growth_by_half_is_a_slow_start_and_less_is_none() {
    for (window, rounds_since, throttlings) in [(148, 1, 0), (152, 1, 1), (152, 2, 1), (152, 3, 0)] {
        let mut gateway = Gateway::with(BalanceSettings::default());
        let mut stream = steady(&mut gateway, 7, 100);
        round(&mut gateway, &mut stream, window, 100);
        (0..rounds_since).for_each(|_| round(&mut gateway, &mut stream, window, 100));
        gateway.ack(&mut stream, 1);
        misses(&mut gateway, &stream, 20);
        assert_eq!(gateway.group.throttlings(), throttlings, "{window} segments, {rounds_since} rounds ago");
    }
}

/// What a receiver claims costs nobody anything who has no part in it.
#[test]
fn whose_slow_start_is_over_or_who_meets_no_queue_is_not_limited() {
    let mut gateway = Gateway::with(BalanceSettings::default());
    let mut steady = steady(&mut gateway, 8, 40);
    round(&mut gateway, &mut steady, 40, FULL);
    round(&mut gateway, &mut steady, 40, FULL);
    let mut elsewhere = doubling_as(&mut gateway, Stream::new(9), 5, RTT_US, 100);
    let mut nearly = doubling_as(&mut gateway, Stream::new(10), 5, RTT_US, 105);
    let first = doubling(&mut gateway, 7, 5);
    assert!(misses(&mut gateway, &first, 20).is_some());
    for (stream, why) in [(&mut steady, "no growth"), (&mut elsewhere, "no queue"), (&mut nearly, "hardly any")] {
        assert_eq!(gateway.ack(stream, 1), None, "{why}");
    }
    // Growth in two of the last four rounds counts: behind it are the one in which the queue filled, and these.
    for (rounds, is_limited) in [(1, true), (3, false)] {
        let mut gateway = Gateway::with(BalanceSettings::default());
        let mut other = doubling(&mut gateway, 8, 5);
        (0..rounds).for_each(|_| round(&mut gateway, &mut other, 100, FULL));
        let first = doubling(&mut gateway, 7, 5);
        misses(&mut gateway, &first, 20);
        assert_eq!(gateway.ack(&mut other, 1).is_some(), is_limited, "{rounds}");
    }
}

/// Also if the claims come again and again.
#[test]
fn a_limit_that_is_there_stays_when_the_group_is_throttled_again() {
    let (mut gateway, first, mut other) = overshot();
    misses(&mut gateway, &first, 20);
    gateway.ack(&mut other, 1);
    for number in 0..3 {
        (0..3).for_each(|_| limited(&mut gateway, &mut other, 100, false));
        let limit = gateway.group.limit(8);
        let again = doubling(&mut gateway, 20 + number, 5);
        gateway.now_us += 500_000;
        misses(&mut gateway, &again, 20);
        gateway.duplicate(&other);
        assert_eq!((gateway.group.throttlings(), gateway.group.limit(8)), (2 + number as u16, limit));
    }
}

/// A limit does not help where others fill the queue, and nothing is known of rounds with a retransmission.
#[test]
fn a_limit_ends_after_some_sixteen_rounds_that_do_not_speak_for_it() {
    for (percent, is_repaired) in [(3 * FULL, false), (100, true)] {
        let (mut gateway, first, mut other) = overshot();
        misses(&mut gateway, &first, 20);
        gateway.ack(&mut other, 1);
        // Rounds do not end quite with those of the sender.
        (0..13).for_each(|_| limited(&mut gateway, &mut other, percent, is_repaired));
        assert!(gateway.group.limit(8).is_some(), "at {percent} %");
        (0..9).for_each(|_| limited(&mut gateway, &mut other, percent, is_repaired));
        assert_eq!(gateway.group.limit(8), None, "at {percent} %");
    }
}

/// Then it gets no other, until its flow has grown again.
#[test]
fn a_stream_whose_limit_did_not_help_is_left_alone() {
    let (mut gateway, first, mut other) = overshot();
    misses(&mut gateway, &first, 20);
    gateway.ack(&mut other, 1);
    (0..22).for_each(|_| limited(&mut gateway, &mut other, 3 * FULL, false));
    assert_eq!(gateway.group.limit(8), None);
    let again = |gateway: &mut Gateway, other: &Stream, number| {
        let first = doubling(gateway, number, 5);
        gateway.now_us += 500_000;
        misses(gateway, &first, 20);
        gateway.duplicate(other);
        gateway.group.limit(8).is_some()
    };
    assert!(!again(&mut gateway, &other, 20));
    for window in [100, 200, 400, 400] {
        round(&mut gateway, &mut other, window, 3 * FULL);
    }
    assert!(again(&mut gateway, &other, 21));
}

/// Its round trips are no sign of a queue then.
#[test]
fn that_a_path_has_become_longer_is_known_in_the_end() {
    for (rounds, is_limited) in [(2, true), (200, false)] {
        let mut gateway = Gateway::with(BalanceSettings::default());
        let mut stream = steady(&mut gateway, 8, 20);
        (0..rounds).for_each(|_| round(&mut gateway, &mut stream, 20, 200));
        for window in [40, 80, 160, 160] {
            round(&mut gateway, &mut stream, window, 200);
        }
        let first = doubling(&mut gateway, 7, 5);
        misses(&mut gateway, &first, 20);
        assert_eq!(gateway.ack(&mut stream, 1).is_some(), is_limited, "after {rounds} rounds");
    }
}

#[test]
fn losses_without_a_slow_start_limit_nothing() {
    let mut gateway = Gateway::with(BalanceSettings::default());
    let mut stream = steady(&mut gateway, 8, 150);
    assert_eq!((misses(&mut gateway, &stream, 100), gateway.group.throttlings()), (None, 0));
    assert_eq!(gateway.ack(&mut stream, 1), None);
}

/// Without SACK nobody can say what is missing: there it is the repetitions.
#[test]
fn without_sack_repetitions_throttle_a_slow_start() {
    let (mut gateway, first, _) = overshot();
    assert_eq!(gateway.duplicates(&first, 99), None);
    assert!(gateway.duplicate(&first).is_some());
}

#[test]
fn limits_follow_the_path() {
    let (mut gateway, first, mut other) = overshot();
    misses(&mut gateway, &first, 20);
    gateway.ack(&mut other, 1);
    // What was in flight before.
    limited(&mut gateway, &mut other, FULL, false);
    let mut after = |percent: u64, rounds: u64| {
        (0..rounds).for_each(|_| limited(&mut gateway, &mut other, percent, false));
        f64::from(gateway.group.limit(8).unwrap())
    };
    // Three to six, since rounds do not end quite with those of the sender.
    const STEPS: std::ops::Range<f64> = 1.19..1.45;
    // Round trips as short as any, or up to an eighth longer: a step each.
    let (limit, grown) = (after(100, 1), after(100, 5));
    assert!(STEPS.contains(&(grown / limit)), "{limit} {grown}");
    let grown_on = after(108, 5);
    assert!(STEPS.contains(&(grown_on / grown)), "{grown} {grown_on}");
    // Up to a quarter longer: it stays. Longer than that: it shrinks.
    let stays = after(120, 2);
    assert_eq!(after(120, 3), stays);
    let shrunk = after(140, 6);
    assert!((0.65..0.75).contains(&(shrunk / stays)), "{stays} {shrunk}");
}

#[test]
fn sequence_numbers_may_begin_anywhere() {
    for first in (0..8).map(|part| part << 29) {
        let mut gateway = Gateway::with(BalanceSettings::default());
        let stream = doubling_as(&mut gateway, Stream { first, ..Stream::new(7) }, 5, RTT_US, FULL);
        assert!(misses(&mut gateway, &stream, 20).is_some(), "{first}");
    }
}

/// Such a round lasts as long as the sender's timeout. The next one is no slow start after it.
#[test]
fn a_round_with_a_retransmission_changes_neither_flow_nor_growth() {
    let mut gateway = Gateway::with(BalanceSettings::default());
    let mut stream = steady(&mut gateway, 7, 40);
    for _ in 0..40 {
        gateway.now_us += RTT_US / 40;
        gateway.ack(&mut stream, 1);
    }
    let before = gateway.group.flow(7).unwrap();
    assert!(before >= 35 * SEGMENT, "{before}");
    let lost = stream.sent;
    gateway.send(&mut stream);
    gateway.now_us += 30 * RTT_US;
    gateway.resend(&stream, lost);
    gateway.now_us += RTT_US;
    gateway.ack(&mut stream, 1);
    assert_eq!(gateway.group.flow(7), Some(before));
    for _ in 0..30 {
        gateway.send(&mut stream);
    }
    gateway.now_us += RTT_US;
    gateway.clock(&mut stream, 30, 60);
    misses(&mut gateway, &stream, 20);
    assert_eq!(gateway.group.throttlings(), 0);
}

/// The first segment after a pause is acknowledged alone: a round of one segment, behind which each looks like a slow start.
#[test]
fn a_pause_is_not_followed_by_a_slow_start() {
    let mut gateway = Gateway::with(BalanceSettings::default());
    let mut stream = steady(&mut gateway, 7, 40);
    for _ in 0..40 {
        gateway.now_us += RTT_US / 40;
        gateway.ack(&mut stream, 1);
    }
    for _ in 0..3 {
        gateway.now_us += 10 * RTT_US;
        for _ in 0..30 {
            gateway.send(&mut stream);
        }
        gateway.now_us += RTT_US;
        for _ in 0..30 {
            gateway.now_us += 10;
            gateway.ack(&mut stream, 1);
        }
    }
    for _ in 0..30 {
        gateway.send(&mut stream);
    }
    misses(&mut gateway, &stream, 20);
    assert_eq!(gateway.group.throttlings(), 0);
}

/// With round trips of 100 ms between gateway and receiver.
#[test]
fn streams_of_short_paths_are_left_alone() {
    let throttlings = |shortest_ms: u64| {
        let shortest_rtt = Duration::from_millis(shortest_ms);
        let mut gateway = Gateway::with(BalanceSettings { shortest_rtt, ..BalanceSettings::default() });
        let stream = doubling(&mut gateway, 7, 5);
        misses(&mut gateway, &stream, 20);
        (gateway.group.throttlings(), gateway.group.limit(7).is_some())
    };
    assert_eq!((throttlings(50), throttlings(150)), ((1, true), (0, false)));
}

/// One of a short path beside one of a long path that throttles the group.
#[test]
fn nor_are_they_limited_by_others() {
    let shortest_rtt = Duration::from_micros(RTT_US + RTT_US / 4);
    let mut gateway = Gateway::with(BalanceSettings { shortest_rtt, ..BalanceSettings::default() });
    let mut short = doubling(&mut gateway, 8, 6);
    let long = doubling_as(&mut gateway, Stream::new(7), 4, 2 * RTT_US, FULL);
    misses(&mut gateway, &long, 20);
    assert_eq!((gateway.group.throttlings(), gateway.group.limit(7).is_some()), (1, true));
    assert_eq!((gateway.ack(&mut short, 1), gateway.group.limit(8)), (None, None));
    // However fast it is, it does not lift the limits of the long ones.
    let limit = gateway.group.limit(7).unwrap();
    assert!(limit <= gateway.group.flow(7).unwrap(), "{limit}");
}

/// A stream that has had little to send when another one throttles the group, and has just had more.
fn quiet_beside(rounds: u32, missing: u64) -> (u32, u32) {
    let mut gateway = Gateway::with(BalanceSettings::default());
    let mut quiet = steady(&mut gateway, 8, 2);
    let first = doubling(&mut gateway, 7, rounds);
    for _ in 0..3 {
        round(&mut gateway, &mut quiet, 4, FULL);
    }
    misses(&mut gateway, &first, missing);
    gateway.ack(&mut quiet, 1);
    (gateway.group.limit(8).unwrap(), gateway.group.flow(7).unwrap())
}

#[test]
fn a_quiet_stream_is_not_held_down() {
    let (limit, flow) = quiet_beside(5, 20);
    assert!((flow / 5..flow / 3).contains(&limit), "{limit}, {flow}");
}

#[test]
fn nor_below_an_initial_window() {
    let (limit, _) = quiet_beside(2, 12);
    assert!((10 * SEGMENT..=11 * SEGMENT).contains(&limit), "{limit}: this ACK may end a round");
}

/// After a pause of `hold` and more.
#[test]
fn an_idle_stream_loses_its_limit() {
    let (mut gateway, first, mut other) = overshot();
    misses(&mut gateway, &first, 20);
    let in_flight = (other.sent - other.acked) / u64::from(SEGMENT);
    gateway.ack(&mut other, in_flight as u32);
    assert!(gateway.group.limit(8).is_some());
    gateway.now_us += 11_000_000;
    gateway.send(&mut other);
    assert_eq!(gateway.group.limit(8), None);
}

/// A receiver that claims gaps in one stream after the other.
#[test]
fn throttlings_are_half_a_second_apart() {
    let mut gateway =
        Gateway::with(BalanceSettings { shortest_rtt: Duration::from_micros(1), ..BalanceSettings::default() });
    let mut throttlings = Vec::new();
    for number in 0..20 {
        let stream = doubling_as(&mut gateway, Stream::new(number), 3, 10_000, FULL);
        misses(&mut gateway, &stream, 20);
        throttlings.push((gateway.now_us, gateway.group.throttlings()));
    }
    let (first, last) = (throttlings[0], throttlings[19]);
    let most = (last.0 - first.0) / 500_000 + 1;
    assert!(last.1 > 1 && u64::from(last.1 - first.1) <= most, "{throttlings:?}");
}

#[test]
fn a_stream_whose_windows_are_left_alone_is_followed_beyond_its_limit() {
    let watches = BalanceSettings { watches: true, ..BalanceSettings::default() };
    let (mut gateway, mut first, _) = overshot_with(watches);
    assert_eq!(gateway.group.pace(7), None);
    misses(&mut gateway, &first, 12);
    let limit = gateway.group.limit(7).unwrap();
    let pace = gateway.group.pace(7).unwrap();
    assert!(pace.bytes == limit && u64::from(pace.in_us) <= RTT_US, "{pace:?}");
    // The sender is told all of its window, and sends it.
    let acks = gateway.ack_packet(&first, first.acked + 13 * u64::from(SEGMENT));
    let told = u64::from(u32::from(WINDOW) << SCALE);
    gateway.group.observe(7, &acks);
    first.acked += 13 * u64::from(SEGMENT);
    while first.sent < first.acked + told {
        gateway.send(&mut first);
    }
    gateway.now_us += RTT_US;
    first.acked = first.sent;
    gateway.group.observe(7, &Packet { time_us: gateway.now_us, ..gateway.ack_packet(&first, first.acked) });
    gateway.send(&mut first);
    let lasts = RTT_US + 777;
    gateway.group.observe(7, &Packet { time_us: gateway.now_us + lasts, ..gateway.ack_packet(&first, first.sent) });
    assert_eq!(
        gateway.group.rtt_us(7),
        Some(lasts as u32),
        "what went beyond the limit counts, and so does what follows"
    );
}
