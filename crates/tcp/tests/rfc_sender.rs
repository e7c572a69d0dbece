//! Against the RFCs: the sender. Losses, timers and windows, with segments made by hand.

use crate::common::peer::{Bench, at, plain};
use ekiden_tcp::{Failure, State, TcpSettings};
use ekiden_units::Time;

#[test]
fn the_timeout_doubles_until_a_segment_that_was_sent_once_is_measured() {
    // RFC 6298, rules 2.2, 2.4, 5.4 to 5.6, and section 3 (Karn). SRTT 100 ms, so at least a second.
    let mut bench = Bench::established(&plain(TcpSettings::rfc()));
    bench.end.write(10_000);
    assert_eq!(bench.full_sent().len(), 10);
    let mut waits = Vec::new();
    for _ in 0..8 {
        waits.push(bench.wait().0 / 1_000_000_000);
        assert_eq!(bench.full_sent(), [1], "one segment, the first");
        assert_eq!(bench.end.info().cwnd, 1, "RFC 5681, section 3.1: the loss window");
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    // RFC 5681, equation 4, once: half of the ten in flight.
    assert_eq!(bench.end.info().ssthresh, Some(5));
    // An acknowledgement of what was sent again measures nothing: the backed-off timeout stays.
    bench.ack(at(2), &[]);
    assert_eq!(bench.end.info().rto, Time::secs(60));
    assert_eq!(bench.full_sent(), [2, 3], "slow start");
    bench.ack(at(11), &[]);
    assert_eq!(bench.end.info().rto, Time::secs(60));
    bench.end.write(1000);
    assert_eq!(bench.full_sent(), [11]);
    bench.pass(Time::ms(100));
    bench.ack(at(12), &[]);
    assert_eq!(bench.end.info().rto, Time::secs(1));
}

#[test]
fn a_connection_is_given_up_after_its_retries() {
    // RFC 9293, section 3.8.3.
    let settings = TcpSettings { retries: 3, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(1000);
    assert_eq!(bench.full_sent(), [1]);
    for _ in 0..3 {
        bench.wait();
        assert_eq!(bench.full_sent(), [1]);
    }
    bench.wait();
    assert_eq!((bench.end.state(), bench.end.failure()), (State::Closed, Some(Failure::TimedOut)));
}

#[test]
fn a_duplicate_that_also_advances_counts_as_the_first() {
    // RFC 6675, section 5: a cumulative acknowledgement resets DupAcks, also one with new blocks. Small segments, so that
    // the number of bytes does not decide.
    let settings = TcpSettings { initial_window: 20, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    for number in 0..12 {
        bench.end.write(10);
        assert_eq!(bench.data_sent(), [(1 + 10 * number, 10)]);
    }
    // Neighbours change places all along: each acknowledgement advances and brings a block.
    bench.ack(1, &[(11, 21)]);
    bench.ack(21, &[(31, 41)]);
    bench.ack(41, &[(51, 61)]);
    bench.ack(61, &[(71, 81)]);
    assert!(!bench.end.info().is_recovering, "DupAcks is 1");
    bench.ack(61, &[(71, 91)]);
    assert!(!bench.end.info().is_recovering, "DupAcks is 2");
    bench.ack(61, &[(71, 101)]);
    assert!(bench.end.info().is_recovering, "DupAcks is 3");
    assert_eq!(bench.data_sent(), [(61, 10)]);
}

#[test]
fn what_is_lost_is_sent_again_as_far_as_the_pipe_allows() {
    // RFC 6675, section 4, SetPipe(), and section 5, (4) and (C).
    let settings = TcpSettings { initial_window: 20, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(20_000);
    assert_eq!(bench.full_sent().len(), 20);
    // 11 to 13 have arrived, so IsLost() holds for 1 to 10. Pipe: 20 less three and ten; cwnd: 10.
    bench.ack(1, &[(at(11), at(14))]);
    assert_eq!(bench.full_sent(), [1, 2, 3]);
    let info = bench.end.info();
    assert_eq!((info.cwnd, info.lost, info.pipe), (10, 7, 10));
}

#[test]
fn what_is_sent_again_without_being_lost_counts_twice_in_the_pipe() {
    // RFC 6675, section 4: SetPipe() (a) and (b), NextSeg() rule 3.
    let settings = TcpSettings { initial_window: 20, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(20_000);
    assert_eq!(bench.full_sent().len(), 20);
    let blocks = [(at(20), at(21)), (at(10), at(11)), (at(2), at(3))];
    for count in 1..=3 {
        bench.ack(1, &blocks[3 - count..]);
    }
    // IsLost(1); nothing is known of 3 to 9 and 11 to 19.
    assert_eq!(bench.full_sent(), [1]);
    let info = bench.end.info();
    assert_eq!((info.cwnd, info.pipe), (10, 17));
    // 11 to 19 remain: one may be sent, then the two for which 11 has made room.
    bench.ack(at(11), &[(at(20), at(21))]);
    assert_eq!(bench.full_sent(), [11]);
    assert_eq!(bench.end.info().pipe, 10);
    bench.ack(at(12), &[(at(20), at(21))]);
    assert_eq!(bench.full_sent(), [12, 13]);
    assert_eq!(bench.end.info().pipe, 10);
}

#[test]
fn what_was_rescued_is_sent_again_when_it_is_known_to_be_lost() {
    // RFC 6675, section 5, (C.3), and NextSeg(), rule 1: rule 4 leaves HighRxt as it is.
    let settings = TcpSettings { initial_window: 10, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(10_000);
    assert_eq!(bench.full_sent().len(), 10);
    bench.ack(1, &[(at(2), at(10))]);
    assert_eq!(bench.full_sent(), [1, 10], "rule 4");
    bench.pass(Time::ms(100));
    bench.ack(at(10), &[]);
    bench.end.write(10_000);
    assert_eq!(bench.full_sent(), [11, 12, 13]);
    assert_eq!(bench.end.info().pipe, 5);
    bench.pass(Time::ms(100));
    bench.ack(at(10), &[(at(11), at(14))]);
    assert_eq!(bench.full_sent(), [10, 14, 15, 16, 17], "both copies of 10 are lost");
    assert_eq!(bench.end.info().pipe, 5);
    // Once: after that only the timer helps.
    bench.pass(Time::ms(100));
    bench.ack(at(10), &[(at(11), at(18))]);
    assert_eq!(bench.full_sent(), [18, 19, 20]);
}

#[test]
fn a_peer_that_drops_what_it_reported_is_believed_after_a_timeout() {
    // RFC 2018, section 8.
    let settings = TcpSettings { initial_window: 10, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(10_000);
    assert_eq!(bench.full_sent().len(), 10);
    bench.ack(1, &[(at(2), at(9))]);
    assert_eq!(bench.full_sent(), [1, 10], "10 by RFC 6675, section 4, NextSeg(), rule 4");
    // 1 arrives; 2 to 8 were dropped.
    bench.ack(at(2), &[]);
    assert!(bench.full_sent().iter().all(|number| *number >= 9), "reports count until the timer runs out");
    bench.wait();
    assert_eq!(bench.full_sent(), [2]);
    for number in 2..10 {
        bench.pass(Time::ms(100));
        bench.ack(at(number + 1), &[]);
        bench.full_sent();
    }
    bench.ack(at(11), &[]);
    assert_eq!(bench.end.info().outstanding, 0);
    assert_eq!(bench.end.info().timeouts, 1, "one timeout is enough");
}

#[test]
fn a_closed_window_is_probed_ever_more_seldom_until_it_opens() {
    // RFC 9293, section 3.8.6.1: after RTO, then doubling; the connection stays as long as the peer answers.
    let settings = plain(TcpSettings::rfc());
    let mut bench = Bench::established_with(&settings, [0, 0], 3000);
    bench.end.write(10_000);
    assert_eq!(bench.full_sent(), [1, 2, 3]);
    bench.pass(Time::ms(100));
    bench.window = 0;
    bench.ack(at(4), &[]);
    assert_eq!(bench.full_sent(), []);
    let mut waits = Vec::new();
    for _ in 0..30 {
        waits.push(bench.wait().0 / 1_000_000_000);
        let probe = bench.sent();
        assert_eq!((probe.len(), probe[0].seq.0, probe[0].sequence_len()), (1, at(4) - 1, 0), "one old number");
        bench.pass(Time::ms(0));
        bench.ack(at(4), &[]);
        assert_eq!(bench.sent(), []);
    }
    assert_eq!(waits[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
    bench.window = 2000;
    bench.ack(at(4), &[]);
    assert_eq!(bench.full_sent(), [4, 5]);
    bench.window = 0;
    bench.pass(Time::ms(100));
    bench.ack(at(6), &[]);
    bench.sent();
    assert_eq!(bench.wait(), Time::secs(1), "begins anew");
}

#[test]
fn limited_transmit_sends_one_new_segment_for_each_of_the_first_two_duplicates() {
    // RFC 3042, section 2; RFC 6675, section 5, (3); RFC 5681, section 3.2: not in FlightSize.
    for sack in [true, false] {
        for limited_transmit in [true, false] {
            let settings = TcpSettings { initial_window: 10, sack, limited_transmit, ..plain(TcpSettings::rfc()) };
            let mut bench = Bench::established(&settings);
            bench.end.write(100_000);
            assert_eq!(bench.full_sent().len(), 10);
            let expected = if limited_transmit { [vec![11], vec![12]] } else { [vec![], vec![]] };
            for (duplicate, expected) in [1, 2].into_iter().zip(expected) {
                bench.ack(1, &[(at(2), at(2 + duplicate))]);
                assert_eq!(bench.full_sent(), expected);
                assert_eq!(bench.end.info().cwnd, 10);
            }
            bench.ack(1, &[(at(2), at(5))]);
            assert_eq!(bench.full_sent(), [1]);
            assert_eq!(bench.end.info().ssthresh, Some(5));
        }
    }
}

#[test]
fn plain_reno_recovers_again_after_a_partial_acknowledgement() {
    // RFC 2581, section 3.2, knows no `recover`: three more duplicates are another loss.
    let settings = TcpSettings { initial_window: 20, ..plain(TcpSettings::opnet()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(20_000);
    assert_eq!(bench.full_sent().len(), 20);
    for _ in 0..3 {
        bench.ack(1, &[]);
    }
    assert_eq!(bench.full_sent(), [1]);
    bench.ack(at(5), &[]);
    assert!(!bench.end.info().is_recovering);
    bench.full_sent();
    for _ in 0..3 {
        bench.ack(at(5), &[]);
    }
    assert_eq!(bench.full_sent().first(), Some(&5));
    assert_eq!(bench.end.info().recoveries, 2);
}

#[test]
fn plain_reno_counts_duplicates_anew_after_a_partial_acknowledgement() {
    // RFC 2581, section 3.2: FlightSize is all that is outstanding, and each duplicate since lets one segment leave.
    let settings = TcpSettings { initial_window: 20, ..plain(TcpSettings::opnet()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(100_000);
    assert_eq!(bench.full_sent().len(), 20);
    // 1 and 10 are lost. The window is 10 and one more for each duplicate: 28.
    for _ in 0..18 {
        bench.ack(1, &[]);
    }
    assert_eq!(bench.full_sent().last(), Some(&28));
    bench.ack(at(10), &[]);
    // 21 to 28 arrive. The window is 5 and one more for each; 19 are outstanding.
    let mut sent = Vec::new();
    for _ in 21..=28 {
        bench.ack(at(10), &[]);
        sent.extend(bench.full_sent());
    }
    assert_eq!(sent, [10]);
    assert_eq!(bench.end.info().ssthresh, Some(5));
}

#[test]
fn an_acknowledgement_after_a_timeout_opens_the_window_by_one_segment() {
    // RFC 3465, section 2.3: L is one segment in the slow start that follows a timeout. Most of what a first acknowledgement
    // covers arrived before.
    let mut bench = Bench::established(&TcpSettings { initial_window: 20, ..plain(TcpSettings::rfc()) });
    bench.end.write(100_000);
    assert_eq!(bench.full_sent().len(), 20);
    bench.pass(Time::ms(100));
    bench.ack(1, &[(at(2), at(20))]);
    assert_eq!(bench.full_sent().first(), Some(&1));
    bench.wait();
    assert_eq!((bench.full_sent().first(), bench.end.info().cwnd), (Some(&1), 1));
    for (number, window) in [(19, 2), (20, 3)] {
        bench.ack(at(number), &[]);
        assert_eq!(bench.end.info().cwnd, window);
    }
}

#[test]
fn newreno_sends_the_next_hole_again_for_each_partial_acknowledgement() {
    // RFC 6582, section 3.2, steps 2 and 3.
    let settings = TcpSettings { initial_window: 10, sack: false, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(100_000);
    assert_eq!(bench.full_sent().len(), 10);
    // 1 and 5 are lost: eight duplicates. Two of limited transmit.
    let mut sent = Vec::new();
    for _ in 0..8 {
        bench.ack(1, &[]);
        sent.push(bench.full_sent());
    }
    // The window is ssthresh + 3 = 8 and grows by one per duplicate; 12 are outstanding, so the eighth lets 13 go.
    assert_eq!(sent, [vec![11], vec![12], vec![1], vec![], vec![], vec![], vec![], vec![13]]);
    // Limited transmit's two arrive: 14 and 15.
    for expected in [14, 15] {
        bench.ack(1, &[]);
        assert_eq!(bench.full_sent(), [expected]);
    }
    // Partial: 5 again, the window less four and one more: 5 + 10 - 4 + 1 = 12; 11 are outstanding: 16.
    bench.ack(at(5), &[]);
    assert_eq!(bench.full_sent(), [5, 16]);
    assert!(bench.end.info().is_recovering);
    // RFC 6582: RecoveryPoint is what was sent when it began: 12.
    bench.ack(at(13), &[]);
    let info = bench.end.info();
    assert_eq!((info.is_recovering, info.cwnd, info.recoveries), (false, 5, 1));
}

#[test]
fn newreno_does_not_take_duplicates_after_a_timeout_for_a_loss() {
    // RFC 6582, section 3.2, step 2, and section 4.
    let settings = TcpSettings { initial_window: 10, sack: false, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(100_000);
    bench.full_sent();
    bench.wait();
    assert_eq!(bench.full_sent(), [1]);
    // All ten had arrived; their acknowledgements are late, and the retransmissions bring duplicates.
    for number in 2..=11 {
        bench.ack(at(number), &[]);
        bench.full_sent();
    }
    for _ in 0..5 {
        bench.ack(at(11), &[]);
    }
    assert_eq!(bench.end.info().recoveries, 0);
}

#[test]
fn nagle_holds_a_small_segment_while_anything_is_outstanding() {
    // RFC 9293, section 3.7.4.
    let settings = TcpSettings { nagle: true, ..plain(TcpSettings::rfc()) };
    let mut bench = Bench::established(&settings);
    bench.end.write(10);
    assert_eq!(bench.data_sent(), [(1, 10)]);
    bench.end.write(10);
    assert_eq!(bench.data_sent(), []);
    bench.end.write(990);
    assert_eq!(bench.data_sent(), [(11, 1000)], "a full one goes");
    bench.end.write(5);
    assert_eq!(bench.data_sent(), []);
    bench.ack(11, &[]);
    assert_eq!(bench.data_sent(), []);
    bench.ack(1011, &[]);
    assert_eq!(bench.data_sent(), [(1011, 5)]);
    bench.end.write(5);
    bench.end.finish();
    assert_eq!(bench.data_sent(), [(1016, 6)], "the last, with the FIN");
}

#[test]
fn a_small_part_of_the_window_is_not_used() {
    // RFC 9293, section 3.8.6.2.1: a full segment, or half of the largest window, or everything.
    let settings = plain(TcpSettings::rfc());
    let mut bench = Bench::established_with(&settings, [0, 0], 1500);
    bench.end.write(10_000);
    assert_eq!(bench.data_sent(), [(1, 1000)], "500 is less than half of 1500");
    bench.ack(1, &[]);
    assert_eq!(bench.data_sent(), []);
    bench.window = 750;
    bench.ack(1001, &[]);
    assert_eq!(bench.data_sent(), [(1001, 750)]);
}

#[test]
fn an_idle_connection_starts_again_with_the_initial_window() {
    // RFC 5681, section 4.1.
    let settings = TcpSettings { initial_window: 4, ..plain(TcpSettings::rfc()) };
    for (idle, window) in [(Time::ms(900), 8), (Time::ms(1100), 4)] {
        let mut bench = Bench::established(&settings);
        bench.end.write(4000);
        assert_eq!(bench.full_sent().len(), 4);
        bench.pass(Time::ms(100));
        for number in 2..=5 {
            bench.ack(at(number), &[]);
        }
        assert_eq!(bench.end.info().cwnd, 8);
        bench.pass(idle.since(Time::ms(100)));
        bench.end.write(100_000);
        assert_eq!(bench.full_sent().len(), window);
    }
}

#[test]
fn sequence_numbers_may_wrap_in_the_middle_of_a_recovery() {
    // RFC 9293, section 3.4: all arithmetic is modulo 2^32.
    let run = |first: u32| {
        let settings = TcpSettings { initial_window: 10, ..plain(TcpSettings::rfc()) };
        let mut bench = Bench::established_with(&settings, [first, first.wrapping_mul(3)], u16::MAX);
        bench.end.write(100_000);
        let mut trace = vec![bench.full_sent()];
        let blocks: [(u32, &[(u32, u32)]); 7] = [
            (1, &[(2, 3)]),
            (1, &[(4, 5), (2, 3)]),
            (1, &[(6, 9), (4, 5), (2, 3)]),
            (1, &[(6, 11), (4, 5), (2, 3)]),
            (3, &[(6, 11), (4, 5)]),
            (5, &[(6, 12)]),
            (12, &[]),
        ];
        for (ack, blocks) in blocks {
            bench.pass(Time::ms(10));
            let blocks: Vec<_> = blocks.iter().map(|(start, end)| (at(*start), at(*end))).collect();
            bench.ack(at(ack), &blocks);
            trace.push(bench.full_sent());
            let info = bench.end.info();
            trace.push(vec![info.cwnd, info.pipe, info.lost, info.is_recovering.into()]);
        }
        trace
    };
    let plain = run(0);
    assert!(plain.concat().len() > 40);
    for before in 0..12 {
        assert_eq!(run(0u32.wrapping_sub(before * 1000 + 1)), plain);
        assert_eq!(run(0u32.wrapping_sub(before * 1000 + 501)), plain);
    }
}
