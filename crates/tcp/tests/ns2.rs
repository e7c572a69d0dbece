//! What ns-2's agents do otherwise than the RFCs recommend today, against segments made by hand.

use crate::common::peer::{Bench, at, plain};
use ekiden_tcp::{Pipe, TcpSettings};
use ekiden_units::Time;

fn sack1(window: u32) -> TcpSettings {
    TcpSettings { initial_window: window, ..plain(TcpSettings::ns2()) }
}

fn linux(window: u32) -> TcpSettings {
    TcpSettings { initial_window: window, ..plain(TcpSettings::ns2_linux()) }
}

/// The first `window` segments are out, and of these every second one, from the first, was lost.
fn half_lost(settings: &TcpSettings, window: u32) -> Bench {
    let mut bench = Bench::established(settings);
    bench.end.write(100_000);
    assert_eq!(bench.full_sent().len() as u32, window);
    bench
}

#[test]
fn the_acknowledgement_of_the_syn_does_not_open_the_window() {
    // RFC 5681, section 3.1, also for those whose windows grow whether used or not.
    for settings in [
        TcpSettings::ns2(),
        TcpSettings::ns2_bitcp(),
        TcpSettings::ns2_linux(),
        TcpSettings::opnet(),
        TcpSettings::rfc(),
        TcpSettings::linux(),
    ] {
        let bench = Bench::established(&plain(settings.clone()));
        assert_eq!(bench.end.info().cwnd, settings.initial_window);
    }
}

#[test]
fn with_the_pipe_of_acknowledgements_a_loss_of_half_a_window_silences_the_sender() {
    // Fall and Floyd, section 3.4: 20 less three; each of the ten duplicates takes one, so seven are left when the last is in,
    // and only three more may be sent.
    let mut bench = half_lost(&sack1(20), 20);
    let mut sent = Vec::new();
    for arrived in (2..=20).step_by(2) {
        let blocks: Vec<_> =
            (2..=arrived).rev().step_by(2).take(3).map(|number| (at(number), at(number + 1))).collect();
        bench.ack(1, &blocks);
        sent.extend(bench.full_sent());
    }
    // The limited transmissions, the fast retransmission, and what the pipe lets go.
    assert_eq!(sent[..3], [21, 22, 1]);
    let info = bench.end.info();
    assert_eq!((info.cwnd, info.ssthresh, info.is_recovering), (10, Some(10), true));
    assert!(sent.len() <= 5, "{sent:?}: eight and more remain to be sent again");
    // RFC 6675's pipe takes off what is lost, and so has sent six of ten again by then.
    let mut bench = half_lost(&TcpSettings { pipe: Pipe::Scoreboard, ..sack1(20) }, 20);
    let mut again = Vec::new();
    for arrived in (2..=20).step_by(2) {
        let blocks: Vec<_> =
            (2..=arrived).rev().step_by(2).take(3).map(|number| (at(number), at(number + 1))).collect();
        bench.ack(1, &blocks);
        again.extend(bench.full_sent().into_iter().filter(|number| *number <= 20));
    }
    assert_eq!(again, [1, 3, 5, 7, 9, 11]);
}

#[test]
fn a_timeout_after_a_fast_retransmission_leaves_a_quarter_and_another_two_segments() {
    // `TcpAgent::slowdown`: half of the window as it is, each time.
    let mut bench = half_lost(&sack1(40), 40);
    for arrived in [2, 4, 6] {
        bench.ack(1, &[(at(arrived), at(arrived + 1))]);
    }
    assert_eq!(bench.end.info().ssthresh, Some(20));
    bench.full_sent();
    bench.wait();
    assert_eq!((bench.end.info().cwnd, bench.end.info().ssthresh), (1, Some(10)));
    assert_eq!(bench.full_sent(), [1]);
    bench.wait();
    assert_eq!((bench.end.info().cwnd, bench.end.info().ssthresh), (1, Some(2)));
}

#[test]
fn after_a_timeout_everything_is_sent_again_whatever_sack_tells() {
    // `Sack1TcpAgent::timeout` and `recv` clear the scoreboard.
    let mut bench = half_lost(&sack1(10), 10);
    bench.ack(1, &[(at(3), at(5))]);
    bench.full_sent();
    bench.wait();
    assert_eq!(bench.full_sent(), [1]);
    bench.ack(at(2), &[(at(3), at(5))]);
    assert_eq!(bench.full_sent(), [2, 3], "3 is there");
    // Without that it is left out.
    let keeps = TcpSettings { timeout_forgets_sack: false, ..sack1(10) };
    let mut bench = half_lost(&keeps, 10);
    bench.ack(1, &[(at(3), at(5))]);
    bench.full_sent();
    bench.wait();
    assert_eq!(bench.full_sent(), [1]);
    bench.ack(at(2), &[(at(3), at(5))]);
    assert_eq!(bench.full_sent(), [2, 5]);
}

#[test]
fn only_one_segment_is_timed() {
    // RFC 6298, section 3. The first round trip is the SYN's: 100 ms. Of the window that follows the first segment is timed: its
    // acknowledgement comes after 100 ms, those of the others later.
    let mut bench = half_lost(&sack1(10), 10);
    bench.pass(Time::ms(100));
    bench.ack(at(2), &[]);
    let rto = bench.end.info().rto;
    bench.pass(Time::ms(80));
    bench.ack(at(3), &[]);
    bench.ack(at(4), &[]);
    assert_eq!(bench.end.info().rto, rto, "2 and 3 took 180 ms, and nobody measured it");
}

#[test]
fn tcp_linux_restarts_the_timer_with_every_acknowledgement() {
    let mut bench = half_lost(&linux(10), 10);
    let before = bench.end.timeout().unwrap();
    bench.pass(Time::ms(100));
    bench.ack(1, &[(at(2), at(3))]);
    assert_eq!(bench.end.timeout().unwrap().since(before), Time::ms(100));
    let mut bench = half_lost(&sack1(10), 10);
    let before = bench.end.timeout().unwrap();
    bench.pass(Time::ms(100));
    bench.ack(1, &[(at(2), at(3))]);
    assert_eq!(bench.end.timeout(), Some(before));
}

#[test]
fn tcp_linux_recovers_with_the_window_that_a_timeout_left() {
    // Lost again after the timeout: 1 was sent again before 2 and 3, which have arrived.
    let mut bench = half_lost(&linux(10), 10);
    bench.wait();
    assert_eq!(bench.full_sent(), [1]);
    // A round trip: what is acknowledged earlier was not sent again in vain (RFC 8985, section 6.2).
    bench.pass(Time::ms(100));
    bench.ack(at(2), &[]);
    assert_eq!(bench.full_sent(), [2, 3]);
    bench.pass(Time::ms(100));
    bench.ack(at(2), &[(at(3), at(4))]);
    let info = bench.end.info();
    assert!(info.is_recovering);
    assert_eq!((info.cwnd, info.ssthresh), (2, Some(2)), "for the rest of the ten");
}

#[test]
fn tcp_linux_believes_an_acknowledgement_that_comes_too_soon_for_a_retransmission() {
    // 1 is late. Three acknowledgements tell of 2, 3 and 4, so 1 is sent again; 10 ms later its first copy is acknowledged. If that
    // is taken for the second's, 5 to 10 were overtaken.
    let lost = |settings: TcpSettings| {
        let mut bench = half_lost(&settings, 10);
        bench.pass(Time::ms(100));
        for last in 3..=5 {
            bench.ack(1, &[(at(2), at(last))]);
        }
        assert_eq!(bench.full_sent().first(), Some(&1));
        bench.pass(Time::ms(10));
        bench.ack(at(5), &[]);
        bench.end.info().lost
    };
    assert_eq!(lost(linux(10)), 6);
    assert_eq!(lost(TcpSettings { doubts_early_acks: true, ..linux(10) }), 0);
}
