//! What the gateway decides, case by case.

use std::time::Duration;

use crate::common::{Gateway, RTT_US, SCALE, SEGMENT, Stream, WINDOW, paper, throttled};
use ekiden_window_balance::{BalanceSettings, ObservedFlow, Packet, flags};

/// Three streams with 150, 40 and 5 segments in flight, the first of which has lost something.
fn group() -> (Gateway, [Stream; 3]) {
    let mut gateway = Gateway::new();
    let streams = [(7, 150), (8, 40), (9, 5)].map(|(number, window)| gateway.running(number, window));
    (gateway, streams)
}

#[test]
fn the_hundredth_repetition_throttles_the_whole_group() {
    let (mut gateway, [first, mut second, mut third]) = group();
    assert_eq!(gateway.duplicates(&first, 99), None);
    assert_eq!(gateway.ack(&mut second, 1), None);
    assert_eq!((gateway.group.throttled_by(), gateway.group.throttlings()), (None, 0));
    assert_eq!(gateway.duplicate(&first), Some(throttled(150 * SEGMENT, SCALE)), "that ACK itself is the first");
    assert_eq!((gateway.group.throttled_by(), gateway.group.throttlings()), (Some(7), 1));
    assert_eq!(gateway.ack(&mut second, 1), Some(throttled(40 * SEGMENT, SCALE)));
    assert_eq!(gateway.ack(&mut third, 1), Some(throttled(5 * SEGMENT, SCALE)));
    assert_eq!(throttled(40 * SEGMENT, SCALE), 4_000, "0.8 of 40,000 bytes, in eights");
}

#[test]
fn the_group_is_let_go_when_the_ack_number_advances() {
    let (mut gateway, [mut first, mut second, _]) = group();
    gateway.duplicates(&first, 120);
    gateway.resend(&first, first.acked);
    assert!(gateway.duplicate(&first).is_some());
    // An ACK that was overtaken is neither an advance nor a repetition, and no sender takes its window.
    let old = gateway.ack_packet(&first, first.acked - u64::from(SEGMENT));
    assert_eq!(gateway.observe(&first, old), None);
    assert_eq!(gateway.ack(&mut first, 1), None, "not even the ACK that advances");
    assert_eq!(gateway.ack(&mut second, 1), None);
    assert_eq!(gateway.group.throttled_by(), None);
    // It counts from the start.
    assert_eq!(gateway.duplicates(&first, 99), None);
    assert!(gateway.duplicate(&first).is_some());
    assert_eq!(gateway.group.throttlings(), 2);
}

#[test]
fn of_several_that_throttle_the_last_lets_go() {
    let (mut gateway, [mut first, mut second, third]) = group();
    gateway.duplicates(&first, 100);
    gateway.duplicates(&second, 100);
    assert_eq!((gateway.group.throttled_by(), gateway.group.throttlings()), (Some(7), 1));
    assert!(gateway.ack(&mut first, 1).is_some(), "the second one still stands still");
    assert!(gateway.duplicate(&third).is_some());
    assert_eq!(gateway.ack(&mut second, 1), None);
    assert_eq!(gateway.duplicate(&third), None);
}

#[test]
fn a_stream_that_ends_lets_go() {
    type End = fn(&mut Gateway, &mut Stream);
    let reset: End = |gateway, stream| {
        let packet = Packet { flags: flags::RST, ..gateway.data_packet(stream, stream.sent) };
        gateway.observe(stream, packet);
    };
    let reset_back: End = |gateway, stream| {
        let packet = Packet { flags: flags::RST | flags::ACK, ..gateway.ack_packet(stream, stream.acked) };
        assert_eq!(gateway.observe(stream, packet), None);
    };
    let begin_anew: End = |gateway, stream| {
        gateway.open(stream.number, SCALE, SCALE);
    };
    let finish: End = |gateway, stream| {
        let packet = Packet { flags: flags::FIN | flags::ACK, ..gateway.data_packet(stream, stream.sent) };
        gateway.observe(stream, packet);
        assert!(gateway.duplicate(stream).is_some(), "what was lost is still missing");
        let all = stream.sent + u64::from(SEGMENT) + 1;
        let packet = gateway.ack_packet(stream, all);
        assert_eq!(gateway.observe(stream, packet), None);
    };
    for end in [reset, reset_back, begin_anew, finish] {
        let (mut gateway, [mut first, mut second, _]) = group();
        gateway.duplicates(&first, 100);
        assert!(gateway.ack(&mut second, 1).is_some());
        end(&mut gateway, &mut first);
        assert_eq!(gateway.ack(&mut second, 1), None);
        assert_eq!(gateway.group.flow(7), None, "nothing is left of it");
        // A second end does not count twice.
        gateway.duplicates(&second, 100);
        reset(&mut gateway, &mut first);
        assert_eq!(gateway.group.throttled_by(), Some(8));
    }
}

/// The receiver may close its own direction and go on receiving.
#[test]
fn the_receivers_fin_ends_nothing() {
    let (mut gateway, [first, _, _]) = group();
    gateway.duplicates(&first, 99);
    let fin = Packet { flags: flags::FIN | flags::ACK, ..gateway.ack_packet(&first, first.acked) };
    assert_eq!(gateway.observe(&first, fin), None, "no repetition");
    assert!(gateway.duplicate(&first).is_some());
    assert!(gateway.observe(&first, fin).is_some());
}

#[test]
fn silence_lets_go() {
    let (mut gateway, [first, mut second, _]) = group();
    gateway.duplicates(&first, 100);
    gateway.now_us += 9_000_000;
    assert!(gateway.ack(&mut second, 1).is_some());
    // A repetition tells that data still arrives.
    assert!(gateway.duplicate(&first).is_some());
    gateway.now_us += 9_999_999;
    // What a sender sends again to a receiver that is dead tells nothing, nor what the receiver sends itself.
    gateway.resend(&first, first.acked);
    let data = Packet { length: 100, segment: 100, ..gateway.ack_packet(&first, first.acked) };
    assert!(gateway.observe(&first, data).is_some());
    assert!(gateway.ack(&mut second, 1).is_some());
    gateway.now_us += 1;
    assert_eq!(gateway.ack(&mut second, 1), None);
    assert_eq!(gateway.group.throttled_by(), None);
    // It still stands where it stood.
    assert!(gateway.duplicate(&first).is_some());
    assert_eq!((gateway.group.throttled_by(), gateway.group.throttlings()), (Some(7), 2));
}

#[test]
fn only_duplicates_as_rfc_5681_has_them_count() {
    let (mut gateway, [first, _, _]) = group();
    let ack = gateway.ack_packet(&first, first.acked);
    for packet in
        [Packet { length: 1, ..ack }, Packet { window: 0, ..ack }, Packet { flags: flags::ACK | flags::FIN, ..ack }]
    {
        for _ in 0..200 {
            assert_eq!(gateway.observe(&first, packet), None);
        }
    }
    // A larger window is an update of it; a smaller one is the receiver's who holds what has arrived.
    for window in 1..200 {
        gateway.observe(&first, Packet { window: WINDOW - 200 + window, ..ack });
    }
    assert_eq!(gateway.group.throttled_by(), None);
    for window in 1..=100 {
        gateway.observe(&first, Packet { window: WINDOW - 1 - window, ..ack });
    }
    assert_eq!(gateway.group.throttled_by(), Some(7));

    // Without anything outstanding it is a keepalive's answer, or a window update.
    let mut gateway = Gateway::new();
    let mut stream = gateway.running(1, 10);
    gateway.ack(&mut stream, 10);
    assert_eq!(gateway.duplicates(&stream, 200), None);
}

/// One ACK tells of many segments, and many ACKs tell of the same.
#[test]
fn with_sack_the_bytes_behind_the_gap_count_once() {
    let (mut gateway, [first, _, _]) = group();
    let at = |segments: u64| first.acked + segments * u64::from(SEGMENT);
    for _ in 0..200 {
        assert_eq!(gateway.sack(&first, &[(at(1), at(40))]), None);
    }
    // What fills a gap, has arrived twice, or was never sent.
    assert_eq!(gateway.sack(&first, &[(at(60), at(99)), (at(1), at(40))]), None, "78 segments");
    for _ in 0..200 {
        assert_eq!(gateway.sack(&first, &[(at(40), at(60)), (at(1), at(99))]), None);
        assert_eq!(gateway.sack(&first, &[(at(0) - 5_000, at(0)), (at(1), at(99))]), None);
        assert_eq!(gateway.sack(&first, &[(at(99), at(200))]), None);
        assert_eq!(gateway.sack(&first, &[(at(120), at(110))]), None);
        assert_eq!(gateway.duplicate(&first), None, "a window update");
    }
    assert_eq!(gateway.sack(&first, &[(at(99), at(120))]), None, "99 segments");
    assert!(gateway.sack(&first, &[(at(99), at(121))]).is_some());
}

/// Without SACK, a sender that goes back sends what has arrived, and the receiver repeats itself for each.
#[test]
fn duplicates_of_what_was_sent_twice_do_not_count() {
    let (mut gateway, [mut first, _, _]) = group();
    for segments in 0..60 {
        gateway.resend(&first, first.acked + segments * u64::from(SEGMENT));
    }
    gateway.ack(&mut first, 100);
    assert_eq!((gateway.duplicates(&first, 200), gateway.group.throttled_by()), (None, None));
    // It counts again behind what had been sent by then.
    gateway.clock(&mut first, 150, 150);
    assert_eq!(gateway.duplicates(&first, 99), None);
    assert!(gateway.duplicate(&first).is_some());
}

/// Offloads put many segments together: a segment is still what is on the wire.
#[test]
fn large_packets_are_of_small_segments() {
    let mut gateway = Gateway::new();
    let mut stream = gateway.open(1, SCALE, SCALE);
    gateway.send(&mut stream);
    gateway.ack(&mut stream, 1);
    for _ in 0..40 {
        for _ in 0..3 {
            let packet = Packet { length: 50 * SEGMENT, ..gateway.data_packet(&stream, stream.sent) };
            gateway.observe(&stream, packet);
            stream.sent += u64::from(50 * SEGMENT);
        }
        gateway.now_us += RTT_US;
        gateway.ack(&mut stream, 150);
    }
    for _ in 0..3 {
        let packet = Packet { length: 50 * SEGMENT, ..gateway.data_packet(&stream, stream.sent) };
        gateway.observe(&stream, packet);
        stream.sent += u64::from(50 * SEGMENT);
    }
    assert_eq!(gateway.duplicates(&stream, 99), None);
    assert_eq!(gateway.duplicate(&stream), Some(throttled(150 * SEGMENT, SCALE)));
}

/// What the sender was told before stays allowed; the window falls as data is acknowledged.
#[test]
fn windows_take_nothing_back_if_they_are_not_to() {
    let mut gateway = Gateway::with(BalanceSettings { keeps_edge: true, ..paper() });
    let (first, mut second) = (gateway.running(7, 150), gateway.running(8, 40));
    let told = |field: Option<u16>| u64::from(field.unwrap_or(WINDOW)) << SCALE;
    let edge = second.acked + told(None);
    gateway.duplicates(&first, 100);
    let mut last = u64::MAX;
    while last > u64::from(throttled(40 * SEGMENT, SCALE)) << SCALE {
        gateway.send(&mut second);
        let window = told(gateway.ack(&mut second, 1));
        assert!(second.acked + window >= edge && window <= last, "{window} after {last}");
        last = window;
    }
    assert!(second.acked + 40_000 >= edge, "no later than it could");
}

#[test]
fn the_number_of_repetitions_can_be_chosen() {
    let settings = BalanceSettings { repeats: 3, part: 0.5, hold: Duration::from_secs(1), ..paper() };
    let mut gateway = Gateway::with(settings);
    let stream = gateway.running(1, 10);
    assert_eq!(gateway.duplicates(&stream, 2), None);
    assert_eq!(gateway.duplicate(&stream), Some(625), "half of 10,000 bytes, in eights");
}

#[test]
fn flows_are_the_bytes_acknowledged_in_a_round_trip() {
    let mut gateway = Gateway::new();
    let mut stream = gateway.open(1, SCALE, SCALE);
    assert_eq!((gateway.group.flow(1), gateway.group.rtt_us(1)), (None, None));
    gateway.run(&mut stream, 100);
    assert_eq!(gateway.group.flow(1), Some(100 * SEGMENT));
    let rtt_us = gateway.group.rtt_us(1).unwrap();
    assert!((99_000..=101_000).contains(&rtt_us), "{rtt_us}");
}

/// In slow start each ACK lets two segments go; what was acknowledged in the round so far counts when it is more.
#[test]
fn flows_follow_slow_start() {
    let mut gateway = Gateway::new();
    let mut stream = gateway.open(1, SCALE, SCALE);
    for _ in 0..10 {
        gateway.send(&mut stream);
    }
    let mut window = 10;
    for _ in 0..6 {
        let before = gateway.group.flow(1);
        for _ in 0..window {
            gateway.now_us += RTT_US / window;
            gateway.ack(&mut stream, 1);
            gateway.send(&mut stream);
            gateway.send(&mut stream);
        }
        let flow = f64::from(gateway.group.flow(1).unwrap()) / f64::from(SEGMENT);
        // `window` were acknowledged in this round trip.
        assert!(flow >= window as f64 * 0.65 && flow <= window as f64 * 1.05, "{flow} of {window}, before {before:?}");
        window *= 2;
    }
}

/// A round with a retransmission takes longer, and its ACK number jumps: the flow is still that of one round trip.
#[test]
fn flows_are_per_round_trip_after_losses_too() {
    let mut gateway = Gateway::new();
    let mut stream = gateway.running(1, 50);
    // The first segment in flight is lost: the other 49 are repetitions, in one round trip.
    for _ in 0..49 {
        gateway.now_us += RTT_US / 50;
        gateway.duplicate(&stream);
        gateway.send(&mut stream);
    }
    gateway.resend(&stream, stream.acked);
    gateway.now_us += RTT_US;
    gateway.ack(&mut stream, 50);
    gateway.clock(&mut stream, 49, 5);
    let flow = gateway.group.flow(1).unwrap() / SEGMENT;
    assert!((25..=50).contains(&flow), "{flow} segments per round trip");
}

/// What was acknowledged so far in such a round took more than a round trip.
#[test]
fn rounds_with_a_retransmission_count_when_they_are_complete() {
    let mut gateway = Gateway::new();
    let mut stream = gateway.running(1, 10);
    for _ in 0..20 {
        gateway.send(&mut stream);
    }
    gateway.clock(&mut stream, 10, 11);
    gateway.resend(&stream, stream.acked);
    gateway.now_us += RTT_US;
    gateway.ack(&mut stream, 15);
    assert_eq!(gateway.group.flow(1), Some(10 * SEGMENT));
}

/// While the group is throttled, a stream keeps the limit that it got at first.
#[test]
fn limits_do_not_follow_the_throttled_flow() {
    let (mut gateway, [first, mut second, _]) = group();
    gateway.duplicates(&first, 100);
    let limit = throttled(40 * SEGMENT, SCALE);
    for _ in 0..30 {
        assert_eq!(gateway.ack(&mut second, 1), Some(limit));
    }
    for _ in 0..40 {
        gateway.send(&mut second);
        gateway.now_us += RTT_US / 4;
        assert_eq!(gateway.ack(&mut second, 1), Some(limit));
    }
    assert!(gateway.group.flow(8).unwrap() < 40 * SEGMENT);
}

#[test]
fn streams_whose_handshake_was_not_seen_are_left_alone_and_count_for_nothing() {
    let (mut gateway, [first, mut second, _]) = group();
    let mut unknown = Stream::new(20);
    gateway.run(&mut unknown, 150);
    assert_eq!((gateway.duplicates(&unknown, 200), gateway.group.flow(20)), (None, None));
    assert_eq!((gateway.group.throttled_by(), gateway.ack(&mut second, 1)), (None, None));
    // A stream that begins now has no flow yet.
    gateway.duplicates(&first, 100);
    let mut late = gateway.open(21, SCALE, SCALE);
    gateway.send(&mut late);
    assert_eq!(gateway.ack(&mut late, 1), None);
}

/// The scale is the receiver's, whoever opened the connection, and none if one side does not scale.
#[test]
fn scales_are_learnt_from_both_syns() {
    let field = |sender: i32, receiver: i32, receiver_opens: bool| {
        let mut gateway = Gateway::new();
        let mut stream = Stream::new(1);
        if receiver_opens {
            let syn = Packet { flags: flags::SYN, scale: receiver, ..gateway.ack_packet(&stream, 0) };
            gateway.observe(&stream, syn);
            let answer = Packet { flags: flags::SYN | flags::ACK, scale: sender, ..gateway.data_packet(&stream, 0) };
            gateway.observe(&stream, Packet { seq: stream.first, ack: syn.seq + 1, ..answer });
            gateway.now_us += RTT_US;
            gateway.duplicate(&stream);
        } else {
            stream = gateway.open(1, sender, receiver);
        }
        gateway.run(&mut stream, 50);
        assert_eq!(gateway.duplicates(&stream, 99), None);
        gateway.duplicate(&stream)
    };
    for receiver_opens in [false, true] {
        assert_eq!(field(0, 5, receiver_opens), Some(throttled(50 * SEGMENT, 5)));
        assert_eq!(field(9, 0, receiver_opens), Some(throttled(50 * SEGMENT, 0)));
        assert_eq!(field(9, 1, receiver_opens), Some(throttled(50 * SEGMENT, 1)));
        assert_eq!(field(9, -1, receiver_opens), Some(throttled(50 * SEGMENT, 0)));
        assert_eq!(field(-1, -1, receiver_opens), Some(throttled(50 * SEGMENT, 0)));
        assert_eq!(field(0, 99, receiver_opens), Some(throttled(50 * SEGMENT, 14)), "RFC 7323, section 2.3");
    }
    // A receiver that offers what the sender does not answer.
    assert_eq!(field(-1, 9, true), Some(throttled(50 * SEGMENT, 0)));
}

/// Rounded down, but never below a segment, and so never to 0; never up to the packet's own window or above.
#[test]
fn windows_are_rounded_to_the_scale() {
    let field = |window: u32, scale: i32, own: u16| {
        let mut gateway = Gateway::with(BalanceSettings { repeats: 3, ..paper() });
        let mut stream = gateway.open(1, scale, scale);
        gateway.run(&mut stream, window);
        gateway.duplicates(&stream, 3);
        let ack = gateway.ack_packet(&stream, stream.acked);
        gateway.observe(&stream, Packet { window: own, ..ack })
    };
    assert_eq!(field(40, 0, 32_001), Some(32_000));
    assert_eq!(field(40, 0, 32_000), None);
    assert_eq!(field(40, 0, 0), None);
    assert_eq!(field(40, 10, WINDOW), Some(31), "31.25");
    assert_eq!(field(4, 10, WINDOW), Some(3), "3.125");
    assert_eq!(field(1, 9, WINDOW), Some(4), "0.8 of a segment is 1.6, but two segments need 4");
    assert_eq!(field(4, 14, WINDOW), Some(1), "0.2");
    assert_eq!(field(4, 14, 1), None);
    assert_eq!(field(100, 1, 40_000), None, "80,000 bytes are as much as the window");
}

#[test]
fn in_slow_start_what_is_sent_is_twice_what_is_acknowledged() {
    let flows = [ObservedFlow::Acknowledged, ObservedFlow::Sent].map(|observes| {
        let mut gateway = Gateway::with(BalanceSettings { observes, ..paper() });
        let mut stream = gateway.running(7, 50);
        let steady = gateway.group.flow(7).unwrap();
        // Two round trips; each acknowledgement lets two segments go.
        for _ in 0..150 {
            gateway.now_us += RTT_US / 100;
            gateway.ack(&mut stream, 1);
            gateway.send(&mut stream);
            gateway.send(&mut stream);
        }
        (steady, gateway.group.flow(7).unwrap())
    });
    assert_eq!(flows.map(|(steady, _)| steady), [50 * SEGMENT; 2]);
    // The round ends with the acknowledgement that covers its first segment, and this one lets two more go.
    assert_eq!(flows.map(|(_, doubling)| doubling), [99 * SEGMENT, 200 * SEGMENT]);
}
