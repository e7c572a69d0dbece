//! Every shape of a packet: what is ours is rewritten wherever its header stands, what is not passes as it is.

use ekiden_window_balance::frame::NotRead;
use ekiden_window_balance::{Direction, flags};
use libtest_mimic::Failed;

use crate::both::{Both, SEGMENT, is_read, paper};
use crate::frames::{Dice, Ends, Shape, ao, md5, padded, sack, scale, timestamps, with_window};

/// Extension headers: hop-by-hop with a router alert, routing of 24 bytes, destination options.
fn extensions() -> Vec<(u8, Vec<u8>)> {
    let mut routing = vec![0, 2, 4, 0];
    routing.extend([0; 20]);
    vec![(0, vec![0, 0, 5, 2, 0, 0, 1, 0]), (43, routing), (60, vec![0, 0, 1, 4, 0, 0, 0, 0])]
}

/// ACKs of a throttled stream in all shapes that are read.
fn ours(ends: Ends, acked: u32) -> Vec<(&'static str, Shape)> {
    let plain = Shape { ack: 1 + acked, ..ends.shape(Direction::Acks) };
    let with = |options: Vec<u8>| Shape { options, ..plain.clone() };
    let tagged = |tags: &[u16]| Shape { tags: tags.to_vec(), ..plain.clone() };
    let ahead = 1 + acked + 3 * SEGMENT;
    let mut shapes = vec![
        ("plain", plain.clone()),
        ("VLAN", tagged(&[0x8100])),
        ("QinQ", tagged(&[0x88a8, 0x8100])),
        ("timestamps", with(timestamps())),
        ("timestamps laid out otherwise", with(padded(&[8, 10, 0, 0, 1, 2, 0, 0, 3, 4]))),
        ("SACK", with(sack(&[(ahead, ahead + SEGMENT)]))),
        (
            "SACK and timestamps",
            with([timestamps(), sack(&[(ahead, ahead + 2 * SEGMENT), (ahead, ahead + 1)])].concat()),
        ),
        ("four blocks", with(sack(&[(ahead, ahead + 3 * SEGMENT), (1, 2), (3, 4), (5, 6)]))),
        ("forty bytes of options", with([vec![1; 36], vec![0, 1, 2, 3]].concat())),
        ("unknown options", with(vec![254, 4, 1, 2, 76, 2, 0, 0])),
        ("a window scale out of place", with(vec![3, 3, 14, 0])),
        ("with payload", Shape { payload: 100, ..plain.clone() }),
        ("with push and ECE", Shape { flags: flags::ACK | 0x48, ..plain.clone() }),
        ("one with an odd payload in QinQ", Shape { payload: 33, ..tagged(&[0x8100, 0x8100]) }),
    ];
    if ends.sender.is_ipv4() {
        let options = |bytes: &[u8]| Shape { ip_options: bytes.to_vec(), ..plain.clone() };
        shapes.push(("IP options", options(&[148, 4, 0, 0])));
        shapes.push(("40 bytes of IP options", options(&[1; 40])));
        shapes.push((
            "IP and TCP options in a VLAN",
            Shape { tags: vec![0x8100], options: timestamps(), ..options(&[1; 8]) },
        ));
    } else {
        shapes.push(("extension headers", Shape { extensions: extensions(), ..plain.clone() }));
        shapes.push(("hop-by-hop", Shape { extensions: extensions()[..1].to_vec(), ..plain.clone() }));
        shapes
            .push(("the same in a VLAN", Shape { tags: vec![0x8100], extensions: extensions(), ..with(timestamps()) }));
    }
    shapes
}

pub fn windows_are_lowered_in_every_shape() -> Result<(), Failed> {
    for ends in [Ends::ipv4(4000), Ends::ipv6(4000)] {
        let mut both = Both::new(paper());
        let acked = both.throttled(ends);
        for (name, shape) in ours(ends, acked) {
            let before = shape.frame();
            let after = both.shape(Direction::Acks, &shape);
            assert_ne!(after, before, "{name}: the window stays");
            let at = before.iter().zip(&after).position(|(a, b)| a != b).expect("it differs");
            let field = u16::from_be_bytes([after[at], after[at + 1]]);
            assert!(field < shape.window, "{name}: {field}");
            // Computed anew over the whole packet, not from the old one.
            assert_eq!(after, with_window(&before, &shape, (at, at + 2), field), "{name}");
        }
    }
    Ok(())
}

pub fn other_packets_pass_as_they_are() -> Result<(), Failed> {
    for ends in [Ends::ipv4(4001), Ends::ipv6(4001)] {
        let mut both = Both::new(paper());
        let acked = both.throttled(ends);
        let plain = Shape { ack: 1 + acked, ..ends.shape(Direction::Acks) };
        let with = |options: Vec<u8>| Shape { options, ..plain.clone() };
        let mut shapes = vec![
            ("MD5", with(md5()), Err(NotRead::Signed)),
            ("AO", with(ao()), Err(NotRead::Signed)),
            ("an option of length 0", with(vec![8, 0, 0, 0]), Err(NotRead::Malformed)),
            ("an option behind the end", with(vec![1, 1, 8, 10]), Err(NotRead::Malformed)),
            ("a kind without a length", with(vec![1, 1, 1, 5]), Err(NotRead::Malformed)),
            ("three tags", Shape { tags: vec![0x8100; 3], ..plain.clone() }, Err(NotRead::Other)),
            ("a window of 0", Shape { window: 0, ..plain.clone() }, Ok(())),
            ("a window of 1", Shape { window: 1, ..plain.clone() }, Ok(())),
            ("no ACK", Shape { flags: 0, ..plain.clone() }, Ok(())),
            ("SYN and RST", Shape { flags: flags::SYN | flags::RST, ..plain.clone() }, Ok(())),
            ("a RST elsewhere", Shape { flags: flags::RST, seq: 1 << 30, ..plain.clone() }, Ok(())),
        ];
        if ends.sender.is_ipv4() {
            let fragment = |fragment| Shape { fragment, payload: 16, ..plain.clone() };
            shapes.push(("the first fragment", fragment(0x2000), Err(NotRead::Other)));
            shapes.push(("a later fragment", fragment(0x2001), Err(NotRead::Other)));
            shapes.push(("the last fragment", fragment(0x0100), Err(NotRead::Other)));
        } else {
            let extended = |kind, bytes: &[u8]| Shape { extensions: vec![(kind, bytes.to_vec())], ..plain.clone() };
            shapes.push(("a fragment", extended(44, &[0, 0, 0, 1, 0, 0, 0, 1]), Err(NotRead::Other)));
            shapes.push(("an atomic fragment", extended(44, &[0; 8]), Err(NotRead::Other)));
            shapes.push(("IPsec", extended(51, &[0, 4, 0, 0, 0, 0, 0, 1]), Err(NotRead::Other)));
            shapes.push((
                "an extension behind the end",
                extended(60, &[0, 200, 1, 4, 0, 0, 0, 0]),
                Err(NotRead::Malformed),
            ));
            let many = Shape { extensions: vec![(60, vec![0, 0, 1, 4, 0, 0, 0, 0]); 7], ..plain.clone() };
            shapes.push(("seven extensions", many, Err(NotRead::Other)));
        }
        for (name, shape, read) in shapes {
            let frame = shape.frame();
            assert_eq!(is_read(Direction::Acks, &frame), read, "{name}");
            assert_eq!(both.pass(Direction::Acks, &frame, 0), frame, "{name}");
        }
        // Bytes that are wrong: where, and what to.
        let frame = plain.frame();
        let tcp = frame.len() - 20;
        for (name, at, value) in [
            ("a data offset of 0", tcp + 12, 0),
            ("a data offset of 4 words", tcp + 12, 0x40),
            ("a data offset behind the end", tcp + 12, 0xf0),
            ("another version of IP", 14, 0x25),
            ("UDP", if ends.sender.is_ipv4() { 23 } else { 20 }, 17),
            ("ARP", 13, 6),
            ("a length behind the end", if ends.sender.is_ipv4() { 17 } else { 19 }, 200),
            ("a length of less than the header", if ends.sender.is_ipv4() { 17 } else { 19 }, 19),
        ] {
            let mut frame = frame.clone();
            frame[at] = value;
            assert!(is_read(Direction::Acks, &frame).is_err(), "{name}");
            assert_eq!(both.pass(Direction::Acks, &frame, 0), frame, "{name}");
        }
        // The kernel's test runs want a whole IP header.
        for length in headers(ends)..frame.len() {
            assert_eq!(is_read(Direction::Acks, &frame[..length]), Err(NotRead::Malformed), "cut to {length}");
            assert_eq!(both.pass(Direction::Acks, &frame[..length], 0), frame[..length]);
        }
        // And still it is throttled.
        assert_ne!(both.shape(Direction::Acks, &plain), plain.frame());
        let counters = both.gateway.counters()?;
        assert_eq!((counters.rewritten, counters.seen), (both.rewritten, both.passed));
        assert!(counters.malformed > 10 && counters.signed == 2 && counters.full == 0, "{counters:?}");
    }
    Ok(())
}

pub fn signed_connections_are_left_alone() -> Result<(), Failed> {
    for options in [md5(), ao()] {
        let mut both = Both::new(paper());
        let ends = Ends::ipv4(4002);
        let syn = Shape { seq: 0, ack: 0, flags: flags::SYN, options: options.clone(), ..ends.shape(Direction::Data) };
        both.shape(Direction::Data, &syn);
        assert!(both.gateway.streams()?.is_empty(), "a signed SYN has no place");
        // A signed SYN of anyone takes no place from a stream that is there.
        both.open(ends);
        both.shape(Direction::Data, &syn);
        assert!(both.gateway.streams()?[0].state.is_open);
        // The receiver alone signs: no connection would come of that.
        let ends = Ends::ipv4(4003);
        both.shape(Direction::Data, &Shape { options: scale(1), ..syn_of(ends) });
        assert_eq!(both.gateway.streams()?.len(), 2);
        let answer = Shape { flags: flags::SYN | flags::ACK, seq: 0, options, ..ends.shape(Direction::Acks) };
        both.shape(Direction::Acks, &answer);
        assert_eq!(both.gateway.streams()?.len(), 1);
        assert_eq!(both.gateway.counters()?.signed, 3);
    }
    Ok(())
}

pub fn handshakes_tell_the_scale() -> Result<(), Failed> {
    let mut both = Both::new(paper());
    // What each side offers, and the scale of the receiver's windows.
    for (port, sender, receiver, expected) in [
        (1, Some(7), Some(9), 9),
        (2, None, Some(9), 0),
        (3, Some(7), None, 0),
        (4, None, None, 0),
        (5, Some(200), Some(200), 14),
    ] {
        for ends in [Ends::ipv4(port), Ends::ipv6(port)] {
            let options = |shift: Option<u8>| shift.map(scale).unwrap_or_default();
            both.shape(Direction::Data, &Shape { options: options(sender), ..syn_of(ends) });
            let answer = Shape {
                flags: flags::SYN | flags::ACK,
                seq: 0,
                options: options(receiver),
                ..ends.shape(Direction::Acks)
            };
            both.shape(Direction::Acks, &answer);
            assert!(both.gateway.streams()?.iter().all(|stream| stream.sender != ends.sender || !stream.state.is_open));
            both.shape(Direction::Data, &ends.shape(Direction::Data));
            let streams = both.gateway.streams()?;
            let stream = streams.iter().find(|stream| stream.sender == ends.sender).ok_or("it has a place")?;
            assert_eq!(
                (stream.receiver, stream.state.is_open, stream.state.scale),
                (ends.receiver, true, expected),
                "{port}"
            );
        }
    }
    // The receiver of data may open the connection as well.
    let ends = Ends::ipv6(6);
    let syn = Shape { flags: flags::SYN, seq: 0, ack: 0, options: scale(5), ..ends.shape(Direction::Acks) };
    both.shape(Direction::Acks, &syn);
    let answer = Shape { flags: flags::SYN | flags::ACK, seq: 0, options: scale(3), ..ends.shape(Direction::Data) };
    both.shape(Direction::Data, &answer);
    assert!(both.gateway.streams()?.iter().any(|stream| stream.sender == ends.sender && stream.state.scale == 5));
    Ok(())
}

/// Bytes of the headers before TCP's.
fn headers(ends: Ends) -> usize {
    if ends.sender.is_ipv4() { 34 } else { 54 }
}

fn syn_of(ends: Ends) -> Shape {
    Shape { flags: flags::SYN, seq: 0, ack: 0, ..ends.shape(Direction::Data) }
}

pub fn ends_of_streams_give_their_places_back() -> Result<(), Failed> {
    let mut both = Both::new(paper());
    for (port, is_reset) in [(4004, true), (4005, false)] {
        for ends in [Ends::ipv4(port), Ends::ipv6(port)] {
            let acked = both.throttled_again(ends);
            let last = acked + 20 * SEGMENT;
            if is_reset {
                let reset = Shape { flags: flags::RST, seq: 1 + last, ..ends.shape(Direction::Data) };
                both.shape(Direction::Data, &reset);
            } else {
                let finish = flags::FIN | flags::ACK;
                both.shape(Direction::Data, &Shape { flags: finish, seq: 1 + last, ..ends.shape(Direction::Data) });
                both.shape(Direction::Acks, &Shape { ack: 1 + last, ..ends.shape(Direction::Acks) });
                assert_eq!(both.gateway.streams()?.len(), 1, "the FIN is not acknowledged yet");
                both.shape(Direction::Acks, &Shape { ack: 2 + last, ..ends.shape(Direction::Acks) });
            }
            assert_eq!(both.gateway.streams()?.len(), 0);
        }
    }
    assert_eq!((both.gateway.counters()?.ended, both.gateway.counted_streams()?), (4, 0));
    Ok(())
}

impl Both {
    /// As `throttled`, whatever there was before.
    fn throttled_again(&mut self, ends: Ends) -> u32 {
        self.open(ends);
        let last = 20 * SEGMENT;
        for offset in (0..last).step_by(SEGMENT as usize) {
            self.data(ends, offset);
        }
        for _ in 0..5 {
            self.ack(ends, 0);
        }
        0
    }
}

pub fn mutilated_frames_pass_as_the_native_build_reads_them() -> Result<(), Failed> {
    let mut dice = Dice(0x5eed);
    for ends in [Ends::ipv4(4006), Ends::ipv6(4006)] {
        let mut both = Both::new(paper());
        let acked = both.throttled(ends);
        let mut shapes = ours(ends, acked);
        shapes.push(("data", Shape { seq: 1 + acked, payload: 1000, ..ends.shape(Direction::Data) }));
        shapes.push(("SYN", Shape { options: scale(7), ..syn_of(ends) }));
        let mut unread = 0;
        for round in 0..20_000 {
            if round % 100 == 99 {
                both.run(ends);
            }
            let (_, shape) = &shapes[dice.roll(shapes.len() as u64) as usize];
            let mut frame = shape.frame();
            for _ in 0..dice.roll(4) {
                // Rather in the headers than behind them.
                let at = 12 + dice.roll(frame.len().min(110) as u64 - 12) as usize;
                frame[at] = [dice.roll(256) as u8, 0, 255, frame[at] ^ 1 << dice.roll(8)][dice.roll(4) as usize];
            }
            if dice.roll(4) == 0 {
                frame.truncate(headers(ends) + dice.roll((frame.len() - headers(ends) + 1) as u64) as usize);
            }
            let direction = if dice.roll(3) == 0 { Direction::Data } else { Direction::Acks };
            let segment = [0, 0, 1000, 65_535][dice.roll(4) as usize];
            unread += u64::from(is_read(direction, &frame).is_err());
            both.now_us += 10;
            both.pass(direction, &frame, segment);
        }
        assert!(unread > 2_000 && both.rewritten > 1_000, "{unread} not read, {} rewritten", both.rewritten);
    }
    Ok(())
}
