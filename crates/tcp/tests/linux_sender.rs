//! What a Linux does that the RFCs leave open, against segments made by hand.

use crate::common::peer::{Bench, at, plain};
use ekiden_tcp::{Reduction, TcpSettings};
use ekiden_units::Time;

#[test]
fn a_writer_that_found_the_buffer_full_waits_until_a_third_is_free() {
    // sk_stream_write_space: free space of at least half of what is held.
    let settings = TcpSettings { send_buffer: 9000, send_piece: 1, initial_window: 20, ..plain(TcpSettings::linux()) };
    let mut bench = Bench::established(&settings);
    assert_eq!(bench.end.write(20_000), 9000);
    assert_eq!(bench.full_sent().len(), 9);
    for number in 2..=3 {
        bench.ack(at(number), &[]);
        assert_eq!((bench.end.room(), bench.end.write(11_000)), (0, 0), "{number}");
    }
    bench.ack(at(4), &[]);
    assert_eq!(bench.end.write(11_000), 3000);
    // Who did not ask for more than there was is not waiting.
    bench.ack(at(7), &[]);
    assert_eq!((bench.end.room(), bench.end.write(1000)), (3000, 1000));
    bench.ack(at(8), &[]);
    assert_eq!(bench.end.room(), 3000);
}

#[test]
fn the_send_buffer_is_exceeded_by_less_than_a_piece() {
    let settings = TcpSettings { send_buffer: 10_000, send_piece: 4000, ..plain(TcpSettings::linux()) };
    let mut bench = Bench::established(&settings);
    assert_eq!(bench.end.write(9000), 9000);
    assert_eq!(bench.end.write(90_000), 4000);
    assert_eq!(bench.end.write(90_000), 0);
}

#[test]
fn what_is_not_known_to_be_lost_is_not_sent_again() {
    // RFC 6675, NextSeg(), rules 3 and 4 would send 3 to 8, and 10, when nothing else is left; tcp_xmit_retransmit_queue
    // does not.
    for speculative_retransmissions in [true, false] {
        let settings =
            TcpSettings { speculative_retransmissions, lost_retransmissions: false, ..plain(TcpSettings::linux()) };
        let mut bench = Bench::established(&settings);
        bench.end.write(10_000);
        assert_eq!(bench.full_sent().len(), 10);
        let blocks = [(at(9), at(10)), (at(4), at(5)), (at(2), at(3))];
        for count in 1..=3 {
            bench.ack(1, &blocks[3 - count..]);
        }
        assert_eq!(bench.full_sent(), [1]);
        for ack in [2, 4, 5, 6, 7, 8] {
            bench.ack(at(ack), &[(at(9), at(10))]);
        }
        assert_eq!(bench.full_sent().is_empty(), !speculative_retransmissions);
    }
}

#[test]
fn a_retransmission_that_cannot_have_arrived_yet_tells_nothing_of_others() {
    // RFC 8985, section 6.2, step 2; tcp_rack_advance. 1 is sent again although it is only late; its acknowledgement comes
    // sooner than a round trip after that, so it does not show that 4 to 20, sent before, were overtaken.
    let settings = TcpSettings { initial_window: 20, ..plain(TcpSettings::linux()) };
    for (passed, lost) in [(10, 0), (100, 14)] {
        let mut bench = Bench::established(&settings);
        bench.end.write(20_000);
        assert_eq!(bench.full_sent().len(), 20);
        bench.pass(Time::ms(100));
        bench.ack(1, &[(at(2), at(5))]);
        assert!(bench.end.info().is_recovering);
        assert_eq!(bench.full_sent(), [1]);
        bench.pass(Time::ms(passed));
        bench.ack(at(7), &[]);
        let info = bench.end.info();
        assert_eq!((info.lost, info.outstanding), (lost, 14), "after {passed} ms");
    }
}

#[test]
fn duplicates_are_forgotten_when_recovery_without_sack_ends() {
    // tcp_reset_reno_sack: all that is outstanding then counts as in the network, though the duplicates said that it had left.
    let settings = TcpSettings { initial_window: 20, sack: false, ..plain(TcpSettings::linux()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(60_000);
    assert_eq!(bench.full_sent().len(), 20);
    for _ in 0..18 {
        bench.ack(1, &[]);
    }
    let sent = bench.full_sent();
    assert!(sent.contains(&1) && sent.contains(&25), "{sent:?}");
    let next = sent.iter().max().copied().unwrap_or_default() + 1;
    bench.ack(at(21), &[]);
    let info = bench.end.info();
    assert!(!info.is_recovering);
    assert_eq!((info.outstanding, info.pipe), (next - 21, next - 21));
}

#[test]
fn after_a_timeout_the_window_grows_with_what_an_acknowledgement_newly_reports() {
    // tcp_newly_delivered. Of twenty only the first is missing; its retransmission is lost, and the timer runs out.
    let settings = TcpSettings { initial_window: 20, ..plain(TcpSettings::linux()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(100_000);
    assert_eq!(bench.full_sent().len(), 20);
    bench.pass(Time::ms(100));
    for number in 2..=20 {
        bench.ack(1, &[(at(2), at(number + 1))]);
    }
    assert_eq!(bench.full_sent().first(), Some(&1));
    while bench.end.info().timeouts == 0 {
        bench.wait();
    }
    assert_eq!((bench.full_sent(), bench.end.info().cwnd), (vec![1], 1));
    // Of the twenty acknowledged, nineteen had been reported before.
    bench.ack(at(21), &[]);
    assert_eq!(bench.end.info().cwnd, 2);
    // What was not lost, and not reported: five arrive as five.
    let mut bench = Bench::established(&settings);
    bench.end.write(100_000);
    bench.full_sent();
    bench.wait();
    assert_eq!(bench.full_sent(), [1]);
    bench.ack(at(6), &[]);
    assert_eq!(bench.end.info().cwnd, 6);
}

/// Three of ten are reported, and the others lost; the peer takes back `window` of what it had offered. Returns what is
/// sent again.
fn sent_again_into(window: u16, settings: &TcpSettings) -> (Bench, Vec<u32>) {
    let settings = TcpSettings { reduction: Reduction::Pipe, ..plain(settings.clone()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(10_000);
    assert_eq!(bench.full_sent().len(), 10);
    bench.window = window;
    bench.ack(1, &[(at(8), at(11))]);
    let sent = bench.full_sent();
    (bench, sent)
}

#[test]
fn what_lies_beyond_a_window_that_shrank_is_not_sent_again_but_for_the_first() {
    // tcp_retransmit_skb. RFC 7323, section 2.4, has the first retransmission go whatever the window.
    for (window, again) in [(10_000, vec![1, 2, 3, 4, 5]), (3000, vec![1, 2, 3]), (0, vec![1])] {
        let (mut bench, sent) = sent_again_into(window, &TcpSettings::linux());
        assert_eq!(sent, again, "{window}");
        assert_eq!(sent_again_into(window, &TcpSettings::rfc()).1, [1, 2, 3, 4, 5], "{window}");
        bench.window = 10_000;
        bench.ack(1, &[(at(8), at(11))]);
        assert_eq!([sent, bench.full_sent()].concat(), [1, 2, 3, 4, 5], "when it opens");
    }
}

#[test]
fn idle_time_halves_the_window_per_timeout_and_leaves_three_quarters_as_threshold() {
    // tcp_cwnd_restart, tcp_current_ssthresh. RTO is 300 ms: 200 above the round trip.
    for (idle_ms, window) in [(290, 64), (310, 32), (590, 32), (610, 16), (910, 8), (1210, 4), (100_000, 4)] {
        let settings = TcpSettings { initial_window: 4, ..plain(TcpSettings::linux()) };
        let mut bench = Bench::established(&settings);
        let mut acked = 1;
        for flight in [4, 8, 16, 32] {
            bench.end.write(1000 * u64::from(flight));
            assert_eq!(bench.full_sent().len() as u32, flight);
            bench.pass(Time::ms(100));
            (0..flight).for_each(|number| bench.ack(at(acked + number + 1), &[]));
            acked += flight;
        }
        assert_eq!((bench.end.info().cwnd, bench.end.info().rto), (64, Time::ms(300)));
        bench.pass(Time::ms(idle_ms - 100));
        bench.end.write(100_000);
        assert_eq!((bench.full_sent().len() as u32, bench.end.info().cwnd), (window, window), "after {idle_ms} ms");
    }
}
