//! The policy that follows what the path delivers, case by case.

mod common;

use std::time::Duration;

use common::{Gateway, RTT_US, SCALE, SEGMENT, Stream, WINDOW};
use ekiden_window_balance::{BalanceSettings, Packet};

/// A stream in slow start: for so many round trips each ACK lets two segments go.
fn doubling(gateway: &mut Gateway, number: u32, rounds: u32) -> Stream {
    doubling_as(gateway, Stream::new(number), rounds, RTT_US)
}

fn doubling_as(gateway: &mut Gateway, stream: Stream, rounds: u32, rtt_us: u64) -> Stream {
    let mut stream = gateway.open_as(stream, SCALE, SCALE);
    for _ in 0..10 {
        gateway.send(&mut stream);
    }
    gateway.now_us += rtt_us;
    for round in 0..rounds {
        let window = 10 << round;
        for _ in 0..window {
            gateway.now_us += rtt_us / window;
            gateway.ack(&mut stream, 1);
            gateway.send(&mut stream);
            gateway.send(&mut stream);
        }
    }
    stream
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

/// Streams of 40 segments in flight, and one that has sent far more than the path holds.
fn overshot() -> (Gateway, Stream, Stream) {
    overshot_with(BalanceSettings::default())
}

fn overshot_with(settings: BalanceSettings) -> (Gateway, Stream, Stream) {
    let mut gateway = Gateway::with(settings);
    let mut steady = steady(&mut gateway, 8, 40);
    let first = doubling(&mut gateway, 7, 5);
    gateway.clock(&mut steady, 40, 80);
    (gateway, first, steady)
}

#[test]
fn a_slow_start_that_overshoots_limits_all_to_what_the_path_delivers() {
    let (mut gateway, mut first, mut steady) = overshot();
    assert_eq!(misses(&mut gateway, &first, 9), None);
    assert_eq!(gateway.group.throttlings(), 0);
    let flow = gateway.group.flow(7).unwrap();
    assert!((70 * SEGMENT..=170 * SEGMENT).contains(&flow), "{flow}");
    let at = |segments: u64| first.acked + segments * u64::from(SEGMENT);
    let field = gateway.sack(&first, &[(at(12), at(13)), (at(9), at(10))]);
    assert_eq!(field, Some((flow >> SCALE) as u16), "with two more, eleven are missing");
    assert_eq!((gateway.group.throttlings(), gateway.group.last_throttled_by()), (1, Some(7)));
    let field = u32::from(gateway.ack(&mut steady, 1).unwrap()) << SCALE;
    assert!((40 * SEGMENT..=43 * SEGMENT).contains(&field), "{field}: this ACK may end a round");
    // The same gap throttles once, and so does what is found missing until it is repaired.
    let at = |segments: u64| first.acked + segments * u64::from(SEGMENT);
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
    let (mut gateway, first, mut steady) = overshot();
    misses(&mut gateway, &first, 20);
    gateway.ack(&mut steady, 1);
    let mut limit = gateway.group.limit(8).unwrap();
    assert!((40 * SEGMENT..=43 * SEGMENT).contains(&limit), "{limit}");
    // Round trips as short as any: one step each.
    gateway.clock(&mut steady, 40, 200);
    let grown = gateway.group.limit(8).unwrap();
    assert!((limit * 120 / 100..=limit * 145 / 100).contains(&grown), "{grown} in five round trips");
    // A little longer ones: it stays. Much longer ones: it shrinks, and ends at last.
    let mut rounds = |gateway: &mut Gateway, percent: u64, rounds: u64| {
        for _ in 0..40 * rounds {
            gateway.now_us += RTT_US * percent / 100 * u64::from(SEGMENT) / (steady.sent - steady.acked);
            gateway.ack(&mut steady, 1);
            // The sender has as much in flight as it may.
            let window = gateway.group.limit(8).unwrap_or(40 * SEGMENT) >> SCALE << SCALE;
            if steady.sent - steady.acked + u64::from(SEGMENT) <= u64::from(window) {
                gateway.send(&mut steady);
            }
        }
        gateway.group.limit(8)
    };
    let after_one = rounds(&mut gateway, 118, 2);
    assert_eq!(rounds(&mut gateway, 118, 5), after_one);
    // Longer ones although less is in flight, as where others fill the queue.
    limit = rounds(&mut gateway, 150, 6).unwrap();
    assert!(Some(limit) < after_one.map(|before| before * 80 / 100), "{limit} after {after_one:?}");
    assert_eq!(rounds(&mut gateway, 150, 20), None);
}

#[test]
fn sequence_numbers_may_begin_anywhere() {
    for first in (0..8).map(|part| part << 29) {
        let mut gateway = Gateway::with(BalanceSettings::default());
        let stream = doubling_as(&mut gateway, Stream { first, ..Stream::new(7) }, 5, RTT_US);
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
    let mut short = steady(&mut gateway, 8, 450);
    let long = doubling_as(&mut gateway, Stream::new(7), 4, 2 * RTT_US);
    misses(&mut gateway, &long, 20);
    assert_eq!((gateway.group.throttlings(), gateway.group.limit(7).is_some()), (1, true));
    assert_eq!((gateway.ack(&mut short, 1), gateway.group.limit(8)), (None, None));
    // However fast it is, it does not lift the limits of the long ones.
    let limit = gateway.group.limit(7).unwrap();
    assert!(limit <= gateway.group.flow(7).unwrap(), "{limit}");
}

/// A stream that has had little to send when another one throttles the group.
#[test]
fn a_quiet_stream_is_not_held_down() {
    let mut gateway = Gateway::with(BalanceSettings::default());
    let mut quiet = steady(&mut gateway, 8, 4);
    let first = doubling(&mut gateway, 7, 5);
    gateway.clock(&mut quiet, 4, 8);
    misses(&mut gateway, &first, 20);
    gateway.ack(&mut quiet, 1);
    let (limit, flow) = (gateway.group.limit(8).unwrap(), gateway.group.flow(7).unwrap());
    assert!((flow / 5..flow / 3).contains(&limit), "{limit}, {flow}");
}

#[test]
fn nor_below_an_initial_window() {
    let mut gateway = Gateway::with(BalanceSettings::default());
    let mut quiet = steady(&mut gateway, 8, 4);
    let first = doubling(&mut gateway, 7, 2);
    gateway.clock(&mut quiet, 4, 8);
    misses(&mut gateway, &first, 12);
    gateway.ack(&mut quiet, 1);
    let limit = gateway.group.limit(8).unwrap();
    assert!((10 * SEGMENT..=11 * SEGMENT).contains(&limit), "{limit}: this ACK may end a round");
}

/// After a pause of `hold` and more.
#[test]
fn an_idle_stream_loses_its_limit() {
    let (mut gateway, first, mut steady) = overshot();
    misses(&mut gateway, &first, 20);
    gateway.ack(&mut steady, 40);
    assert!(gateway.group.limit(8).is_some());
    gateway.now_us += 11_000_000;
    gateway.send(&mut steady);
    assert_eq!(gateway.group.limit(8), None);
}

/// A receiver that claims gaps in one stream after the other.
#[test]
fn throttlings_are_half_a_second_apart() {
    let mut gateway =
        Gateway::with(BalanceSettings { shortest_rtt: Duration::from_micros(1), ..BalanceSettings::default() });
    let mut throttlings = Vec::new();
    for number in 0..20 {
        let stream = doubling_as(&mut gateway, Stream::new(number), 3, 10_000);
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
