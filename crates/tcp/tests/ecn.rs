//! Explicit congestion notification (RFC 3168, section 6.1).

use crate::common::peer::{Bench, NONE, plain};
use crate::common::{Fate, Pair};
use ekiden_packet::{Ecn, Flags, Options};
use ekiden_tcp::{TcpSettings, Transmit};
use ekiden_units::Time;

const ECE: Flags = Flags { ece: true, ..NONE };

fn with_ecn(settings: TcpSettings) -> TcpSettings {
    TcpSettings { ecn: true, ..settings }
}

/// A connection that has 40 segments of data, of which it has sent ten.
fn sending(settings: TcpSettings) -> Bench {
    let mut bench = Bench::established(&plain(with_ecn(settings)));
    bench.end.write(40_000);
    assert_eq!(bench.sent().len(), 10);
    bench
}

/// The segments that are acknowledged one by one, from `first` on, with these flags. Returns what is sent then.
fn acks(bench: &mut Bench, first: u32, segments: u32, flags: Flags) -> Vec<ekiden_packet::Segment> {
    (first..first + segments)
        .flat_map(|number| {
            let at = bench.peer_next;
            bench.segment(at, Some(1 + number * 1000), flags, 0, Options::default());
            bench.sent()
        })
        .collect()
}

#[test]
fn it_is_used_if_both_ends_want_it() {
    for wants in [[false, false], [false, true], [true, false], [true, true]] {
        let settings = wants.map(|ecn| TcpSettings { ecn, ..TcpSettings::rfc() });
        let mut pair = Pair::new(settings, Time::ms(10), [7, 8]);
        pair.end(0).write(3_000);
        for _ in 0..20 {
            pair.step(&mut |_, _: &mut Transmit| Fate::Arrives);
            pair.read(1);
        }
        let both = wants == [true, true];
        let of = |sent: &(Time, usize, Transmit)| sent.2.segment;
        let syns: Vec<_> = pair.sent.iter().map(of).filter(|segment| segment.flags.syn).collect();
        assert_eq!(
            syns.iter().map(|syn| (syn.flags.ece, syn.flags.cwr)).collect::<Vec<_>>(),
            [(wants[0], wants[0]), (both, false)]
        );
        for segment in pair.sent.iter().map(of) {
            let expected = if both && segment.payload > 0 { Ecn::Ect0 } else { Ecn::NotEct };
            assert_eq!(segment.ecn, expected, "{segment:?}");
            assert!(segment.flags.syn || !segment.flags.ece && !segment.flags.cwr);
        }
        assert_eq!(pair.read[1], 3_000);
    }
}

#[test]
fn an_echo_lowers_the_window_once_per_window_and_sends_nothing_again() {
    for settings in [TcpSettings::rfc(), TcpSettings::linux()] {
        let mut bench = sending(settings);
        let sent = acks(&mut bench, 1, 10, ECE);
        // Of twenty segments that the window would be, half of ten.
        assert_eq!((bench.end.info().cwnd, bench.end.info().ssthresh), (5, Some(5)));
        assert_eq!(sent.iter().filter(|segment| segment.flags.cwr).count(), 1, "{sent:?}");
        assert!(sent[0].flags.cwr && sent.iter().all(|segment| segment.ecn == Ecn::Ect0));
        // What was sent after the reduction is acknowledged without an echo: it grows again, by one in a window.
        acks(&mut bench, 11, 5, NONE);
        assert_eq!(bench.end.info().cwnd, 6);
        // A new echo lowers it again.
        acks(&mut bench, 16, 1, ECE);
        assert_eq!(bench.end.info().ssthresh, Some(3));
        assert_eq!(bench.end.info().retransmits, 0);
    }
}

#[test]
fn a_loss_in_the_window_that_was_lowered_is_repaired_without_a_second_reduction() {
    for settings in [TcpSettings::rfc(), TcpSettings::linux()] {
        let mut bench = sending(settings);
        acks(&mut bench, 1, 1, ECE);
        for end in 4..=8 {
            bench.ack(1001, &[(2001, end * 1000 + 1)]);
        }
        let again: Vec<_> = bench.sent().into_iter().filter(|segment| segment.ecn == Ecn::NotEct).collect();
        assert_eq!(again.len(), 1, "the second segment is sent again, and not to be marked: {again:?}");
        let info = bench.end.info();
        assert_eq!((info.ssthresh, info.retransmits, info.is_recovering), (Some(5), 1, true));
    }
}

#[test]
fn a_reduction_after_a_loss_is_told_too() {
    let mut bench = sending(TcpSettings::linux());
    bench.ack(1001, &[(3001, 8001)]);
    bench.ack(1001, &[(3001, 10_001)]);
    let new: Vec<_> = bench.sent().into_iter().filter(|segment| segment.ecn == Ecn::Ect0).collect();
    assert!(!new.is_empty() && new[0].flags.cwr && new[1..].iter().all(|segment| !segment.flags.cwr), "{new:?}");
}

#[test]
fn a_mark_is_echoed_until_the_sender_has_answered() {
    let mut bench = Bench::established(&plain(with_ecn(TcpSettings::rfc())));
    let mut step = |at: u32, is_marked, flags| {
        bench.is_marked = is_marked;
        bench.data(at, 1, 100, flags);
        let sent = bench.sent();
        assert_eq!(sent.len(), 1);
        sent[0].flags.ece
    };
    assert!(!step(1, false, NONE));
    assert!(step(101, true, NONE));
    assert!(step(201, false, NONE));
    let cwr = Flags { cwr: true, ..NONE };
    assert!(!step(301, false, cwr));
    assert!(!step(401, false, NONE));
    // The answer itself has been marked.
    assert!(step(501, true, cwr));
}
