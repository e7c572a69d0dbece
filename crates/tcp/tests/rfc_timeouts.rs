//! Against the RFCs: peers that do not answer, that close their window, or whose segments are forged.

use crate::common::peer::{Bench, FIN, NONE, RST, SYN, at, plain};
use crate::common::{Fate, Pair, reno};
use ekiden_packet::{Options, Segment, Seq};
use ekiden_tcp::{Connection, Failure, State, TcpSettings, Transmit};
use ekiden_units::Time;

/// A connection whose peer has taken three segments of 1000 bytes and closed its window; seven more wait.
fn closed_window(settings: &TcpSettings) -> Bench {
    let mut bench = Bench::established_with(settings, [0, 0], 3000);
    bench.end.write(10_000);
    assert_eq!(bench.full_sent(), [1, 2, 3]);
    bench.pass(Time::ms(100));
    bench.window = 0;
    bench.ack(at(4), &[]);
    assert_eq!(bench.full_sent(), []);
    bench
}

#[test]
fn a_peer_that_answers_no_probe_is_given_up_and_one_that_answers_is_not() {
    // RFC 9293, section 3.8.6.1: "as long as the receiving TCP peer continues to send acknowledgments in response to the
    // probe segments"; otherwise section 3.8.3.
    let mut bench = closed_window(&TcpSettings { retries: 3, ..plain(TcpSettings::rfc()) });
    for _ in 0..20 {
        bench.wait();
        assert_eq!(bench.sent().len(), 1);
        bench.ack(at(4), &[]);
    }
    for _ in 0..3 {
        bench.wait();
        assert_eq!(bench.sent().len(), 1, "three probes without an answer");
    }
    bench.wait();
    assert_eq!((bench.end.state(), bench.end.failure()), (State::Closed, Some(Failure::TimedOut)));
    assert_eq!(bench.sent().iter().map(|sent| sent.flags).collect::<Vec<_>>(), [RST]);
    assert_eq!(bench.end.timeout(), None);
}

#[test]
fn a_peer_that_takes_its_window_back_is_not_given_up_while_it_answers() {
    // RFC 9293, section 3.8.6: what was sent beyond the window's edge is sent again, and its timeouts end nothing.
    let mut bench = Bench::established_with(&TcpSettings { retries: 3, ..plain(TcpSettings::rfc()) }, [0, 0], 3000);
    bench.end.write(3000);
    assert_eq!(bench.full_sent(), [1, 2, 3]);
    bench.window = 0;
    bench.ack(1, &[]);
    for _ in 0..20 {
        bench.wait();
        assert_eq!(bench.full_sent(), [1]);
        bench.ack(1, &[]);
    }
    assert_eq!(bench.end.state(), State::Established);
    bench.window = 3000;
    bench.ack(at(2), &[]);
    assert_eq!(bench.full_sent(), [2, 3]);
    // Without an answer they do.
    for _ in 0..4 {
        bench.wait();
        bench.sent();
    }
    assert_eq!(bench.end.failure(), Some(Failure::TimedOut));
}

#[test]
fn a_window_that_stays_small_is_used_when_the_timer_runs_out() {
    // RFC 9293, section 3.8.6.2.1, (4): the override timeout.
    let mut bench = closed_window(&plain(TcpSettings::rfc()));
    bench.window = 300;
    bench.ack(at(4), &[]);
    assert_eq!(bench.data_sent(), [], "silly");
    bench.wait();
    assert_eq!(bench.data_sent(), [(at(4), 300)]);
    bench.window = 200;
    bench.ack(at(4) + 300, &[]);
    assert_eq!(bench.data_sent(), []);
    bench.wait();
    assert_eq!(bench.data_sent(), [(at(4) + 300, 200)]);
}

#[test]
fn an_end_that_is_lost_again_and_again_is_sent_again_until_it_arrives() {
    let mut bench = Bench::established(&plain(TcpSettings::rfc()));
    bench.end.write(500);
    bench.end.finish();
    assert_eq!(bench.data_sent(), [(1, 501)]);
    bench.pass(Time::ms(100));
    bench.ack(501, &[]);
    assert_eq!(bench.data_sent(), []);
    for expected in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
        assert_eq!(bench.wait(), Time::secs(expected));
        assert_eq!(bench.data_sent(), [(501, 1)], "what is left of the segment: its FIN");
        assert_eq!(bench.end.state(), State::FinWait1);
    }
    bench.ack(502, &[]);
    assert_eq!(bench.end.state(), State::FinWait2);
    assert_eq!(bench.end.timeout(), None, "nothing is outstanding");
}

#[test]
fn an_end_waits_for_a_window_and_is_probed_for() {
    // A FIN takes a sequence number, for which a closed window has no room.
    let mut bench = Bench::established_with(&plain(TcpSettings::rfc()), [0, 0], 1000);
    bench.end.write(1000);
    bench.end.finish();
    assert_eq!(bench.data_sent(), [(1, 1000)]);
    bench.window = 0;
    bench.ack(1001, &[]);
    assert_eq!(bench.data_sent(), []);
    bench.wait();
    assert_eq!(bench.sent()[0].seq, Seq(1000));
    bench.window = 1;
    bench.ack(1001, &[]);
    assert_eq!(bench.data_sent(), [(1001, 1)]);
}

#[test]
fn an_acknowledgement_from_outside_of_the_window_brings_no_data() {
    // RFC 5961, section 5.2: (SND.UNA - MAX.SND.WND) <= SEG.ACK <= SND.NXT, or an acknowledgement is all that it gets.
    let mut bench = Bench::established_with(&plain(TcpSettings::rfc()), [0, 0], 3000);
    for number in 1..=10 {
        bench.end.write(1000);
        assert_eq!(bench.full_sent(), [number]);
        bench.ack(at(number + 1), &[]);
    }
    for (ack, taken) in [(10_001, 10), (10_002, 0), (7001, 10), (7000, 0), (1, 0), (u32::MAX, 0)] {
        bench.pass(Time::secs(10));
        let at = bench.end.readable() as u32 + 1;
        assert_eq!(bench.data(at, ack, 10, NONE).length, taken, "{ack}");
        let answer = bench.sent();
        assert_eq!((answer.len(), answer[0].ack), (1, Some(Seq(at + taken))));
    }
}

#[test]
fn what_is_not_acceptable_is_answered_seldom() {
    // RFC 5961, section 7: "no more than 10 in a 5 second interval". Data is answered always: it may be sent again because
    // an acknowledgement was lost.
    for (at, ack, flags) in [(1, Some(5000), NONE), (100, None, RST), (1, None, SYN), (0, Some(1), NONE)] {
        let mut bench = Bench::established(&plain(TcpSettings::rfc()));
        for _ in 0..2 {
            bench.pass(Time::secs(5));
            let mut answers = 0;
            for _ in 0..50 {
                bench.segment(at, ack, flags, 0, Options::default());
                answers += bench.sent().len();
            }
            assert_eq!(answers, 10, "{flags:?}");
        }
        bench.data(1, 1, 100, NONE);
        bench.sent();
        for _ in 0..50 {
            bench.data(1, 1, 100, NONE);
            assert_eq!(bench.sent().len(), 1);
        }
    }
}

#[test]
fn forged_data_does_not_make_two_ends_answer_each_other_for_ever() {
    let settings = TcpSettings::rfc();
    let mut pair = Pair::new([settings.clone(), settings], Time::ms(10), [0, 0]);
    let mut fate = |_: usize, _: &mut Transmit| Fate::Arrives;
    while pair.state(1) != Some(State::Established) {
        assert!(pair.step(&mut fate));
    }
    let forged = Segment {
        source: 2000,
        destination: 1000,
        seq: Seq(1),
        ack: Some(Seq(1)),
        window: 1000,
        payload: 10,
        ..Segment::default()
    };
    pair.deliver(0, &Transmit { segment: Segment { options: stamped(), ..forged }, offset: 0 });
    let mut steps = 0;
    while pair.step(&mut fate) {
        steps += 1;
        assert!(steps < 200, "they go on and on");
    }
}

fn stamped() -> Options {
    Options { timestamps: Some(ekiden_packet::Timestamps { value: 50, echo: 0 }), ..Options::default() }
}

#[test]
fn both_may_close_at_once() {
    // RFC 9293, section 3.6, figure 13.
    let mut bench = Bench::established(&plain(TcpSettings::rfc()));
    bench.end.finish();
    assert_eq!(bench.data_sent(), [(1, 1)]);
    bench.data(1, 1, 0, FIN);
    assert_eq!(bench.end.state(), State::Closing);
    assert_eq!(bench.sent().iter().map(|sent| sent.ack).collect::<Vec<_>>(), [Some(Seq(2))]);
    bench.ack(2, &[]);
    assert_eq!(bench.end.state(), State::TimeWait);
    assert_eq!(bench.wait(), Time::secs(240));
    assert_eq!((bench.end.state(), bench.end.failure()), (State::Closed, None));
}

#[test]
fn a_stream_longer_than_all_sequence_numbers_goes_on() {
    // RFC 9293, section 3.4: numbers come again; positions do not.
    const MSS: u32 = 60_000;
    let settings = TcpSettings { mss: MSS, send_buffer: 1 << 40, ..plain(TcpSettings::rfc()) };
    let settings = TcpSettings { mss: MSS, initial_window: 1000, ..settings };
    let mut end = Connection::connect(&settings, reno(), (1, 2), Seq(u32::MAX - 5));
    let mut now = Time::secs(1);
    let mut last = end.poll_transmit(now).map(|sent| sent.segment).expect("a SYN");
    let mut peer = Connection::accept(&settings, reno(), &last, Seq(77), now).expect("a SYN");
    let total = 3 * (1u64 << 32) + 12_345;
    end.write(total);
    end.finish();
    let (mut received, mut offset) = (0, 0);
    while !end.is_finished() {
        now = now + Time::ms(1);
        while let Some(sent) = peer.poll_transmit(now) {
            end.on_segment(now, &sent.segment);
        }
        while let Some(sent) = end.poll_transmit(now) {
            assert_eq!(last.seq + last.sequence_len(), sent.segment.seq, "no gap");
            assert!(sent.segment.payload == 0 || sent.offset == offset);
            offset += u64::from(sent.segment.payload);
            last = sent.segment;
            peer.on_segment(now, &last);
            received += peer.read(u64::MAX);
        }
    }
    assert_eq!((received, offset, end.info().retransmits), (total, total, 0));
    assert!(peer.is_peer_finished());
}
