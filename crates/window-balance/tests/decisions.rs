//! What the gateway decides, case by case.

mod common;

use std::time::Duration;

use common::{Gateway, RTT_US, SCALE, SEGMENT, Stream, WINDOW, throttled};
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
    // An ACK that was overtaken is neither an advance nor a repetition, but has its window rewritten.
    let old = gateway.ack_packet(&first, first.acked - u64::from(SEGMENT));
    assert!(gateway.observe(&first, old).is_some());
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
    // Any packet of the stream tells that it lives.
    gateway.resend(&first, first.acked);
    gateway.now_us += 9_999_999;
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
    // The window may differ.
    for window in 1..=100 {
        gateway.observe(&first, Packet { window: WINDOW - window, ..ack });
    }
    assert_eq!(gateway.group.throttled_by(), Some(7));

    // Without anything outstanding it is a keepalive's answer, or a window update.
    let mut gateway = Gateway::new();
    let mut stream = gateway.running(1, 10);
    gateway.ack(&mut stream, 10);
    assert_eq!(gateway.duplicates(&stream, 200), None);
}

/// However much it was: sequence numbers wrap.
#[test]
fn nothing_is_outstanding_of_data_that_went_another_way() {
    let mut gateway = Gateway::new();
    let mut stream = gateway.running(1, 10);
    for _ in 0..5 {
        gateway.ack(&mut stream, 1_000_000);
        gateway.duplicates(&stream, 200);
        assert_eq!(gateway.group.throttled_by(), None);
    }
}

#[test]
fn the_number_of_repetitions_can_be_chosen() {
    let settings =
        BalanceSettings { repeats: 3, part: 0.5, idle: Duration::from_secs(1), ..BalanceSettings::default() };
    let mut gateway = Gateway::with(settings);
    let stream = gateway.running(1, 10);
    assert_eq!(gateway.duplicates(&stream, 2), None);
    assert_eq!(gateway.duplicate(&stream), Some(625), "half of 10,000 bytes, in eights");
}

#[test]
fn flows_are_the_bytes_acknowledged_in_a_round_trip() {
    let mut gateway = Gateway::new();
    let mut stream = gateway.open(1, SCALE, SCALE);
    assert_eq!((gateway.group.flow(1), gateway.group.rtt_us(1)), (None, Some(RTT_US as u32)), "of the handshake");
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
fn unknown_streams_are_left_alone_but_throttle() {
    let (mut gateway, [_, mut second, _]) = group();
    // Its beginning was not seen.
    let mut unknown = Stream::new(20);
    gateway.run(&mut unknown, 150);
    assert_eq!(gateway.group.flow(20), Some(150 * SEGMENT));
    assert_eq!(gateway.duplicates(&unknown, 100), None);
    assert_eq!(gateway.group.throttled_by(), Some(20));
    assert!(gateway.ack(&mut second, 1).is_some());
    // A stream that begins now has no flow yet.
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
            gateway.observe(&stream, Packet { seq: stream.first, ..answer });
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
        let mut gateway = Gateway::with(BalanceSettings { repeats: 3, ..BalanceSettings::default() });
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
    assert_eq!(field(1, 9, WINDOW), Some(2), "0.8 of a segment is 1.6, but a segment needs 2");
    assert_eq!(field(4, 14, WINDOW), Some(1), "0.2");
    assert_eq!(field(4, 14, 1), None);
    assert_eq!(field(100, 0, WINDOW), None, "80,000 bytes are more than the window");
}

#[test]
fn in_slow_start_what_is_sent_is_twice_what_is_acknowledged() {
    let flows = [ObservedFlow::Acknowledged, ObservedFlow::Sent].map(|observes| {
        let mut gateway = Gateway::with(BalanceSettings { observes, ..BalanceSettings::default() });
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
