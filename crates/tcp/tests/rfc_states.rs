//! Against the RFCs: states, single segments and the receiver, with segments made by hand.

use crate::common::peer::{Bench, FIN, NONE, RST, SYN, at, plain};
use crate::common::reno;
use ekiden_packet::{Options, Segment, Seq, Timestamps};
use ekiden_tcp::{Connection, Failure, State, TcpSettings};
use ekiden_units::Time;

#[test]
fn both_may_open_at_once() {
    // RFC 9293, section 3.5, figure 7.
    let mut bench = Bench::opening(&plain(TcpSettings::rfc()), [0, 0]);
    bench.segment(0, None, SYN, 0, bench.syn_options());
    assert_eq!(bench.end.state(), State::SynReceived);
    let answer = bench.sent();
    assert_eq!((answer.len(), answer[0].flags, answer[0].seq.0, answer[0].ack.map(|ack| ack.0)), (1, SYN, 0, Some(1)));
    bench.segment(0, Some(1), SYN, 0, bench.syn_options());
    assert_eq!(bench.end.state(), State::Established);
    assert_eq!(bench.end.info().outstanding, 0);
    bench.peer_next = 1;
    bench.end.write(1000);
    assert_eq!(bench.full_sent(), [1]);
}

#[test]
fn an_acknowledgement_of_nothing_that_was_sent_resets_a_half_open_connection() {
    // RFC 9293, section 3.10.7.4, fifth check, SYN-RECEIVED: <SEQ=SEG.ACK><CTL=RST>.
    for wrong in [0, 2] {
        let mut bench = Bench::opening(&plain(TcpSettings::rfc()), [0, 0]);
        bench.segment(0, None, SYN, 0, bench.syn_options());
        bench.sent();
        bench.segment(1, Some(wrong), NONE, 0, Options::default());
        let reset = bench.sent();
        assert_eq!((reset.len(), reset[0].flags, reset[0].seq.0), (1, RST, wrong), "{wrong}");
        assert_eq!(bench.end.state(), State::SynReceived);
    }
}

#[test]
fn an_acknowledgement_of_a_syn_that_was_not_sent_yet_is_one_of_nothing() {
    // RFC 9293, section 3.10.7: acceptable are those up to SND.NXT, which is the SYN's own number until it is sent.
    let settings = plain(TcpSettings::rfc());
    let syn = |ack| Segment { source: 2, destination: 1, ack, flags: SYN, ..Segment::default() };
    let mut opening = Connection::connect(&settings, reno(), (1, 2), Seq(0));
    opening.on_segment(Time::secs(1), &syn(Some(Seq(1))));
    assert_eq!(opening.state(), State::SynSent);
    let ack = Segment { seq: Seq(1), ack: Some(Seq(1)), flags: NONE, ..syn(None) };
    let mut answering = Connection::accept(&settings, reno(), &syn(None), Seq(0), Time::secs(1)).unwrap();
    answering.on_segment(Time::secs(1), &ack);
    assert_eq!(answering.state(), State::SynReceived);
    let mut both = Connection::connect(&settings, reno(), (1, 2), Seq(0));
    both.on_segment(Time::secs(1), &syn(None));
    both.on_segment(Time::secs(1), &syn(Some(Seq(1))));
    assert_eq!(both.state(), State::SynReceived);
    for end in [&mut opening, &mut answering, &mut both] {
        let sent: Vec<_> = std::iter::from_fn(|| end.poll_transmit(Time::secs(1))).map(|sent| sent.segment).collect();
        assert!(sent.iter().any(|segment| segment.flags == SYN), "it goes on: {sent:?}");
    }
}

#[test]
fn a_syn_that_comes_again_before_the_answer_is_acknowledged_is_answered_again() {
    // RFC 9293, section 3.10.7.4: the answer was lost.
    let settings = plain(TcpSettings::rfc());
    let syn = Segment { source: 2, destination: 1, flags: SYN, ..Segment::default() };
    let now = Time::secs(1);
    let mut end = Connection::accept(&settings, reno(), &syn, Seq(5), now).unwrap();
    let mut sent = |segment: Option<&Segment>| -> Vec<_> {
        segment.map(|segment| end.on_segment(now, segment));
        std::iter::from_fn(|| end.poll_transmit(now))
            .map(|sent| (sent.segment.flags, sent.segment.seq, sent.segment.ack))
            .collect()
    };
    let answer = [(SYN, Seq(5), Some(Seq(1)))];
    assert_eq!(sent(None), answer);
    assert_eq!(sent(Some(&syn)), answer);
    // Not another one.
    assert_eq!(sent(Some(&Segment { seq: Seq(7), ..syn })), []);
    let ack = Segment { seq: Seq(1), ack: Some(Seq(6)), flags: NONE, ..syn };
    assert_eq!(sent(Some(&ack)), []);
    assert_eq!(end.state(), State::Established);
}

#[test]
fn a_later_syn_may_follow_a_connection_in_time_wait() {
    // RFC 9293, section 3.6.1; RFC 6191, section 2.
    let syn = |seq, value: Option<u32>| {
        let timestamps = value.map(|value| Timestamps { value, echo: 0 });
        let options = Options { timestamps, ..Options::default() };
        Segment { source: 2, destination: 1, seq: Seq(seq), flags: SYN, options, ..Segment::default() }
    };
    for (with_timestamps, cases) in [
        (false, vec![(2, None, false), (3, None, true), (0u32.wrapping_sub(9), None, false), (9000, None, true)]),
        // The peer's last timestamp was 1000.
        (true, vec![(3, Some(999), false), (2, Some(1000), false), (3, Some(1000), true), (0, Some(1001), true)]),
    ] {
        let settings = TcpSettings { timestamps: with_timestamps, ..plain(TcpSettings::rfc()) };
        let mut bench = Bench::established_with(&settings, [7, 0], u16::MAX);
        bench.end.finish();
        bench.sent();
        assert_eq!(bench.end.successor(&syn(9000, None)), None, "it is not over");
        bench.data(1, 2, 0, FIN);
        bench.sent();
        assert_eq!(bench.end.state(), State::TimeWait);
        for (seq, value, is_taken) in cases {
            // Beyond the SYN at 7 and the FIN at 8.
            let expected = is_taken.then_some(Seq(9 + 65_537));
            assert_eq!(bench.end.successor(&syn(seq, value)), expected, "{seq} {value:?}");
            let first = bench.end.successor(&syn(seq, value)).unwrap_or_default();
            let next = Connection::accept(&settings, reno(), &syn(seq, value), first, bench.now).unwrap();
            assert_eq!(next.state(), State::SynReceived);
        }
        let refused = Segment { ack: Some(Seq(9)), ..syn(9000, Some(2000)) };
        assert_eq!(bench.end.successor(&refused), None, "an answer, not a SYN");
    }
}

#[test]
fn a_syns_window_is_not_scaled() {
    // RFC 7323, section 2.2.
    let settings = TcpSettings { initial_window: 10, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::opening(&settings, [0, 0]);
    bench.window = 2000;
    bench.segment(0, Some(1), SYN, 0, Options { window_scale: Some(3), ..bench.syn_options() });
    bench.peer_next = 1;
    bench.end.write(100_000);
    assert_eq!(bench.end.info().window, 2000);
    assert_eq!(bench.full_sent(), [1, 2]);
    // Others are: 500 << 3.
    bench.window = 500;
    bench.ack(at(3), &[]);
    assert_eq!(bench.end.info().window, 4000);
    assert_eq!(bench.full_sent(), [3, 4, 5, 6]);
}

#[test]
fn one_lost_syn_leaves_the_initial_window_and_two_leave_one_segment() {
    // RFC 6928, section 2, and RFC 5681, section 3.1.
    for (timeouts, window) in [(0, 10), (1, 10), (2, 1), (3, 1)] {
        let mut bench = Bench::opening(&plain(TcpSettings::rfc()), [0, 0]);
        for _ in 0..timeouts {
            bench.wait();
            assert_eq!(bench.sent()[0].flags, SYN);
        }
        bench.segment(0, Some(1), SYN, 0, bench.syn_options());
        bench.peer_next = 1;
        bench.end.write(100_000);
        assert_eq!(bench.full_sent().len(), window, "after {timeouts} timeouts");
    }
}

#[test]
fn after_a_lost_syn_without_a_measurement_the_timeout_begins_at_three_seconds() {
    // RFC 6298, rule 5.7.
    let mut bench = Bench::opening(&plain(TcpSettings::rfc()), [0, 0]);
    assert_eq!(bench.wait(), Time::secs(1));
    bench.sent();
    bench.segment(0, Some(1), SYN, 0, bench.syn_options());
    bench.peer_next = 1;
    bench.end.write(1000);
    assert_eq!(bench.full_sent(), [1]);
    assert_eq!(bench.wait(), Time::secs(3));
}

#[test]
fn each_state_is_left_on_an_exact_reset_only() {
    // RFC 9293, section 3.10.7.4, second check, with RFC 5961, section 3.2: others bring an acknowledgement.
    for (state, prepare) in states() {
        let mut bench = Bench::established(&plain(TcpSettings::rfc()));
        prepare(&mut bench);
        assert_eq!(bench.end.state(), state);
        bench.sent();
        let next = bench.peer_next;
        bench.segment(next + 10, None, RST, 0, Options::default());
        assert_eq!(bench.end.state(), state, "a reset elsewhere in the window");
        assert_eq!(bench.sent().len(), 1, "{state:?}: a challenge");
        bench.segment(next.wrapping_sub(10), None, RST, 0, Options::default());
        bench.segment(next + 10_000_000, None, RST, 0, Options::default());
        assert_eq!((bench.end.state(), bench.sent()), (state, vec![]), "a reset outside of the window");
        bench.segment(next, None, SYN, 0, Options::default());
        assert_eq!(bench.end.state(), state, "RFC 5961, section 4.2");
        assert_eq!(bench.sent().len(), 1);
        bench.segment(next, None, RST, 0, Options::default());
        assert_eq!(bench.end.state(), State::Closed);
        // In TIME-WAIT both ends have said so.
        let failure = (state != State::TimeWait).then_some(Failure::Reset);
        assert_eq!(bench.end.failure(), failure, "{state:?}");
        assert_eq!((bench.sent(), bench.end.timeout()), (vec![], None));
    }
}

type Prepare = fn(&mut Bench);

/// The synchronised states, and how to bring an established connection there.
fn states() -> [(State, Prepare); 8] {
    fn finish(bench: &mut Bench) {
        bench.end.finish();
        assert_eq!(bench.data_sent(), [(1, 1)]);
    }
    fn peer_finishes(bench: &mut Bench, ack: u32) {
        bench.data(1, ack, 0, FIN);
    }
    [
        (State::Established, |_| {}),
        (State::FinWait1, finish),
        (State::FinWait2, |bench| {
            finish(bench);
            bench.ack(2, &[]);
        }),
        (State::CloseWait, |bench| peer_finishes(bench, 1)),
        (State::Closing, |bench| {
            finish(bench);
            peer_finishes(bench, 1);
        }),
        (State::LastAck, |bench| {
            peer_finishes(bench, 1);
            finish(bench);
        }),
        (State::TimeWait, |bench| {
            finish(bench);
            bench.ack(2, &[]);
            peer_finishes(bench, 2);
        }),
        (State::TimeWait, |bench| {
            finish(bench);
            peer_finishes(bench, 2);
        }),
    ]
}

#[test]
fn a_refused_connection_is_closed_and_a_reset_of_something_else_is_not_heard() {
    // RFC 9293, section 3.10.7.3.
    let mut bench = Bench::opening(&plain(TcpSettings::rfc()), [0, 0]);
    bench.segment(0, None, RST, 0, Options::default());
    bench.segment(0, Some(7), RST, 0, Options::default());
    assert_eq!(bench.end.state(), State::SynSent);
    bench.segment(0, Some(1), RST, 0, Options::default());
    assert_eq!((bench.end.state(), bench.end.failure()), (State::Closed, Some(Failure::Refused)));
    // SYN-RECEIVED: section 3.10.7.4.
    let mut bench = Bench::opening(&plain(TcpSettings::rfc()), [0, 0]);
    bench.segment(0, None, SYN, 0, bench.syn_options());
    bench.sent();
    bench.segment(1, None, RST, 0, Options::default());
    assert_eq!((bench.end.state(), bench.end.failure()), (State::Closed, Some(Failure::Refused)));
}

#[test]
fn a_half_closed_connection_still_receives() {
    // RFC 9293, section 3.6: FIN-WAIT-2 takes data; its window keeps moving.
    let mut bench = Bench::established(&plain(TcpSettings::rfc()));
    bench.end.finish();
    assert_eq!(bench.data_sent(), [(1, 1)]);
    bench.ack(2, &[]);
    for number in 0..5 {
        assert_eq!(bench.data(1 + 1000 * number, 2, 1000, NONE).length, 1000);
        assert_eq!(bench.sent()[0].ack.map(|ack| ack.0), Some(1001 + 1000 * number));
    }
    assert_eq!(bench.end.read(5000), 5000);
    bench.data(5001, 2, 0, FIN);
    assert_eq!(bench.end.state(), State::TimeWait);
    assert_eq!(bench.sent()[0].ack.map(|ack| ack.0), Some(5002));
    // The peer's FIN again: acknowledged, and the wait begins anew.
    bench.pass(Time::secs(100));
    bench.data(5001, 2, 0, FIN);
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(bench.wait(), Time::secs(240));
    assert_eq!((bench.end.state(), bench.end.failure()), (State::Closed, None));
}

#[test]
fn a_timestamp_older_than_the_last_is_refused_and_acknowledged() {
    // RFC 7323, section 5.3, R1; a reset is not refused.
    let settings = TcpSettings { timestamps: true, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    bench.timestamp = Some(2000);
    assert_eq!(bench.data(1, 1, 500, NONE).length, 500);
    assert_eq!(bench.sent()[0].options.timestamps.map(|times| times.echo), Some(2000), "RFC 7323, section 4.3");
    bench.timestamp = Some(1999);
    assert_eq!(bench.data(501, 1, 500, NONE).length, 0);
    assert_eq!(bench.sent().len(), 1);
    // Timestamps wrap.
    for value in [2000, 2000 + (1 << 30), (1 << 31) + 1000, u32::MAX, 5] {
        bench.timestamp = Some(value);
        let next = bench.end.readable() as u32 + 1;
        assert_eq!(bench.data(next, 1, 500, NONE).length, 500, "{value}");
        assert_eq!(bench.sent()[0].options.timestamps.map(|times| times.echo), Some(value));
    }
    bench.timestamp = Some(u32::MAX);
    let next = bench.end.readable() as u32 + 1;
    bench.segment(next, None, RST, 0, Options::default());
    assert_eq!(bench.end.state(), State::Closed);
}

#[test]
fn after_24_days_any_timestamp_counts_and_is_echoed() {
    // RFC 7323, section 5.5.
    let settings = TcpSettings { timestamps: true, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    bench.timestamp = Some(2000);
    bench.data(1, 1, 500, NONE);
    bench.sent();
    bench.pass(Time::secs(25 * 86_400));
    bench.timestamp = Some(1500);
    assert_eq!(bench.data(501, 1, 500, NONE).length, 500);
    assert_eq!(bench.sent()[0].options.timestamps.map(|times| times.echo), Some(1500));
    bench.timestamp = Some(1499);
    assert_eq!(bench.data(1001, 1, 500, NONE).length, 0, "protected again");
}

#[test]
fn every_second_full_segment_is_acknowledged_and_a_single_one_late() {
    // RFC 5681, section 4.2; RFC 9293, section 3.8.6.3.
    let settings = TcpSettings { ack_every: 2, ack_delay: Time::ms(200), ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    for pair in 0..3 {
        bench.data(1 + 2000 * pair, 1, 1000, NONE);
        assert_eq!(bench.sent(), []);
        bench.data(1001 + 2000 * pair, 1, 1000, NONE);
        assert_eq!(bench.sent().len(), 1);
    }
    bench.data(6001, 1, 1000, NONE);
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.wait(), Time::ms(200));
    assert_eq!(bench.sent()[0].ack.map(|ack| ack.0), Some(7001));
    // Out of order, and what fills the gap: at once.
    bench.data(8001, 1, 1000, NONE);
    assert_eq!(bench.sent().len(), 1);
    bench.data(7001, 1, 1000, NONE);
    assert_eq!(bench.sent()[0].ack.map(|ack| ack.0), Some(9001));
    // With data that goes out anyway.
    bench.data(9001, 1, 1000, NONE);
    bench.end.write(1000);
    assert_eq!(bench.sent()[0].ack.map(|ack| ack.0), Some(10_001));
    assert!(bench.end.timeout() > Some(bench.now + Time::ms(200)), "nothing is left to acknowledge");
}
