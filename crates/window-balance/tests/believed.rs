//! What of packets is believed, and streams of which some passed elsewhere.

use crate::common::{Gateway, RTT_US, SCALE, SEGMENT, Stream, WINDOW, throttled};
use ekiden_window_balance::{Packet, flags};

/// Three streams with 150, 40 and 5 segments in flight, the first of which has lost something.
fn group() -> (Gateway, [Stream; 3]) {
    let mut gateway = Gateway::new();
    let streams = [(7, 150), (8, 40), (9, 5)].map(|(number, window)| gateway.running(number, window));
    (gateway, streams)
}

/// What lies behind the window says nothing, whoever sends it.
#[test]
fn made_up_packets_say_nothing() {
    let (mut gateway, [first, mut second, _]) = group();
    for nth in 0..200 {
        let repeated = gateway.ack_packet(&first, first.acked);
        let far = Packet { seq: repeated.seq.wrapping_add((1 << 23) + nth * 10_000_000), ..repeated };
        assert_eq!(gateway.observe(&first, far), None);
    }
    assert_eq!(gateway.group.throttled_by(), None);
    // Data from long ago in each round trip: rounds are measured all the same.
    let before = gateway.group.flow(8);
    for _ in 0..200 {
        let packet = gateway.data_packet(&second, second.acked - 30_000);
        gateway.observe(&second, packet);
        gateway.now_us += RTT_US / 200;
        gateway.ack(&mut second, 1);
        gateway.send(&mut second);
        gateway.send(&mut second);
    }
    assert!(gateway.group.flow(8) > before);
}

/// A half-open stream does not begin anew: whoever made its SYN up knows the receiver's sequence number.
#[test]
fn a_made_up_handshake_never_opens() {
    let mut gateway = Gateway::new();
    let stream = Stream::new(7);
    // A SYN in the receiver's name, which the sender answers.
    let syn = Packet { flags: flags::SYN, seq: 0, ack: 0, scale: SCALE, ..gateway.ack_packet(&stream, 0) };
    gateway.observe(&stream, syn);
    let answer = Packet {
        flags: flags::SYN | flags::ACK,
        seq: stream.first,
        ack: 1,
        scale: SCALE,
        length: 0,
        ..gateway.data_packet(&stream, 0)
    };
    gateway.observe(&stream, answer);
    for beyond in [1 << 20, (1 << 31) - 5, 1 << 20] {
        let guess = Packet { seq: 1, ..gateway.ack_packet(&stream, beyond) };
        gateway.observe(&stream, guess);
        gateway.observe(&stream, guess);
        assert!(!gateway.group.is_open(7), "{beyond}");
    }
    let real = Packet { seq: 1, ..gateway.ack_packet(&stream, 0) };
    gateway.observe(&stream, real);
    assert!(gateway.group.is_open(7));
}

/// Segments that the receiver sends too are lost behind the gateway, or pass elsewhere: what the sender acknowledges of them tells where
/// the next begins.
#[test]
fn a_stream_with_data_in_both_directions_begins_anew_too() {
    let (mut gateway, [first, ..]) = group();
    let mut later = Stream { sent: first.sent + 5_000_000, acked: first.sent + 4_900_000, ..first };
    let ack = Packet { seq: 300, ..gateway.ack_packet(&later, later.acked) };
    gateway.observe(&first, ack);
    assert_eq!(gateway.group.flow(7), Some(150 * SEGMENT), "it has sent 300 bytes that nobody has seen");
    let data = Packet { ack: 300, ..gateway.data_packet(&later, later.sent) };
    gateway.observe(&first, data);
    gateway.observe(&first, ack);
    assert_eq!(gateway.group.flow(7), None);
    later.acked = later.sent;
    let reset = Packet { seq: 300, flags: flags::RST, ..gateway.ack_packet(&later, later.acked) };
    gateway.observe(&first, reset);
    assert!(!gateway.group.is_open(7));
}

/// The receiver's first segment is lost before the gateway, and more than 4 MiB pass behind it.
#[test]
fn what_the_sender_acknowledges_of_a_large_window_is_believed() {
    let (mut gateway, [mut first, ..]) = group();
    let far = 8 << 20;
    let behind = Packet { seq: far, ..gateway.ack_packet(&first, first.acked + u64::from(SEGMENT)) };
    gateway.observe(&first, behind);
    let data = Packet { ack: far, ..gateway.data_packet(&first, first.sent) };
    // From anywhere else than where the sender is, nothing is.
    gateway.observe(&first, Packet { seq: data.seq.wrapping_sub(1 << 24), ..data });
    first.acked += u64::from(SEGMENT);
    let ack = Packet { seq: far, ..gateway.ack_packet(&first, first.acked) };
    gateway.observe(&first, Packet { flags: flags::RST, ..ack });
    assert!(gateway.group.is_open(7));
    gateway.observe(&first, data);
    gateway.observe(&first, Packet { flags: flags::RST, ..ack });
    assert!(!gateway.group.is_open(7));
}

/// A host that closes with data on its way sends its FIN, and then resets with the number before, which the other one takes.
#[test]
fn a_reset_behind_the_receivers_fin_may_have_the_number_of_the_fin() {
    for has_fin in [false, true] {
        let (mut gateway, [first, ..]) = group();
        let ack = gateway.ack_packet(&first, first.acked);
        if has_fin {
            gateway.observe(&first, Packet { flags: flags::FIN | flags::ACK, ..ack });
        }
        let seq = if has_fin { ack.seq } else { ack.seq - 1 };
        gateway.observe(&first, Packet { seq, flags: flags::RST, ..ack });
        assert_eq!(gateway.group.is_open(7), !has_fin);
    }
}

/// Packets go another way for a while, or the keeper's word was missing: what was known of the stream is wrong.
#[test]
fn a_stream_that_was_out_of_sight_begins_anew() {
    let (mut gateway, [first, mut second, _]) = group();
    gateway.duplicates(&second, 100);
    assert!(gateway.duplicate(&first).is_some() && gateway.group.throttled_by() == Some(8));
    for stream in [first, second] {
        let mut later = Stream { sent: stream.sent + 5_000_000, acked: stream.sent + 4_900_000, ..stream };
        for _ in 0..3 {
            assert_eq!(gateway.ack(&mut later, 1), None, "its old limit is not for it");
        }
        assert_eq!(gateway.group.limit(stream.number), None);
    }
    assert_eq!(gateway.group.throttled_by(), None);
    // From there on it is as any other.
    second = Stream { sent: second.sent + 5_000_000, acked: second.sent + 5_000_000, ..second };
    gateway.duplicate(&second);
    gateway.run(&mut second, 40);
    assert_eq!(gateway.group.flow(8), Some(40 * SEGMENT));
    gateway.duplicates(&second, 100);
    assert_eq!(gateway.duplicate(&second), Some(throttled(40 * SEGMENT, SCALE)));
}

/// Nobody can acknowledge what was not sent, or send what the receiver does not allow.
#[test]
fn what_cannot_be_changes_nothing() {
    let (mut gateway, [first, mut second, _]) = group();
    let is_as_before = |gateway: &mut Gateway, first: &Stream| {
        assert_eq!((gateway.group.flow(7), gateway.group.throttled_by()), (Some(150 * SEGMENT), None));
        assert_eq!(gateway.duplicates(first, 99), None);
        assert!(gateway.duplicate(first).is_some());
    };
    for more in [1, 1_000_000, 1 << 30] {
        let packet = gateway.ack_packet(&first, first.sent + more);
        // Whoever does not see the packets does not know the receiver's sequence number either.
        assert_eq!(gateway.observe(&first, Packet { seq: packet.seq.wrapping_add(7), ..packet }), None);
        let packet = gateway.data_packet(&first, first.acked + (u64::from(WINDOW) << SCALE) + more);
        assert_eq!(gateway.observe(&first, packet), None);
    }
    // A SYN, which the host refuses.
    let syn = Packet { flags: flags::SYN, scale: 0, ..gateway.data_packet(&first, 12_345) };
    gateway.observe(&first, syn);
    let answer = Packet { flags: flags::SYN | flags::ACK, scale: 0, ..gateway.ack_packet(&first, 99_999_999) };
    gateway.observe(&first, answer);
    for (at, back) in [(first.acked - 1, false), (first.sent + 1, false), (0, true)] {
        let packet = match back {
            true => Packet { seq: 70_000, ..gateway.ack_packet(&first, first.acked) },
            false => gateway.data_packet(&first, at),
        };
        gateway.observe(&first, Packet { flags: flags::RST | flags::ACK, length: 0, ..packet });
    }
    is_as_before(&mut gateway, &first);
    assert!(gateway.ack(&mut second, 1).is_some());
}
