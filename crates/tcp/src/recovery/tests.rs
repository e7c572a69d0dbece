//! Loss recovery over a scoreboard of ten segments, without a sender.

use std::sync::Arc;

use ekiden_congestion::{CongestionParameters, Tunables, control};
use ekiden_units::Time;

use super::*;

const MSS: u32 = 100;

/// A window of segments 1 to 10, all sent.
struct Bench {
    recovery: Recovery,
    board: Scoreboard,
    window: CongestionWindow,
    una: u64,
    next: u64,
}

/// Where a segment begins.
fn at(number: u64) -> u64 {
    1 + (number - 1) * u64::from(MSS)
}

impl Bench {
    fn new(settings: &TcpSettings, sack: bool) -> Self {
        let tunables = Tunables::new(&CongestionParameters::default()).unwrap();
        let reno = control("reno", &Arc::new(tunables)).unwrap();
        let mut bench = Self {
            recovery: Recovery::new(settings),
            board: Scoreboard::default(),
            window: CongestionWindow::new(settings, reno),
            una: 1,
            next: at(11),
        };
        bench.recovery.negotiate(sack);
        (1..=10).for_each(|number| bench.board.push(at(number), MSS, false, Time(0)));
        bench
    }

    /// An acknowledgement of all before segment `next`, and of segment `sacked`.
    fn ack(&mut self, next: u64, sacked: Option<u64>) -> Effect {
        let advances = at(next) > self.una;
        self.una = at(next);
        let mut summary = self.board.acknowledge(self.una);
        if let Some(number) = sacked {
            self.board.sack(at(number), at(number + 1), &mut summary);
        }
        let ack = Ack { advances, is_duplicate: !advances, echoes_congestion: false, summary };
        let flight =
            Flight { board: &mut self.board, window: &mut self.window, una: self.una, next: self.next, mss: MSS };
        self.recovery.on_ack(flight, ack)
    }

    /// A new segment is sent.
    fn send(&mut self) {
        self.board.push(self.next, MSS, false, Time(1));
        self.recovery.on_new();
        self.next += u64::from(MSS);
    }

    fn time_out(&mut self) {
        let flight =
            Flight { board: &mut self.board, window: &mut self.window, una: self.una, next: self.next, mss: MSS };
        self.recovery.on_timeout(flight, false);
    }

    /// What would be sent again now, if anything.
    fn retransmit(&mut self) -> Option<u64> {
        if !self.recovery.may_retransmit(&self.board, self.window.cwnd()) {
            return None;
        }
        self.recovery.on_retransmit();
        self.board.retransmit(Time(1)).map(|sent| sent.start)
    }
}

#[test]
fn the_third_duplicate_begins_a_recovery_and_its_point_ends_it() {
    let mut bench = Bench::new(&TcpSettings::rfc(), true);
    assert_eq!([2, 3].map(|number| bench.ack(1, Some(number))), [Effect::NONE; 2]);
    assert_eq!(bench.ack(1, Some(4)), Effect::BEGINS);
    assert!(bench.recovery.is_fast());
    assert_eq!(bench.window.cwnd(), 5);
    // The first goes although six others fill the window.
    assert_eq!((bench.retransmit(), bench.retransmit()), (Some(at(1)), None));
    assert_eq!(bench.ack(5, None), Effect::timer(true));
    assert!(bench.recovery.is_fast(), "a partial acknowledgement does not end it");
    assert_eq!(bench.ack(11, None), Effect::timer(true));
    assert!(!bench.recovery.is_fast());
    assert_eq!((bench.window.cwnd(), bench.recovery.recoveries()), (5, 1));
}

#[test]
fn without_sack_a_partial_acknowledgement_sends_the_next_again_and_restarts_the_timer_once() {
    let mut bench = Bench::new(&TcpSettings::rfc(), false);
    let effects = [1, 1, 1].map(|next| bench.ack(next, None));
    assert_eq!(effects, [Effect::NONE, Effect::NONE, Effect::BEGINS]);
    assert_eq!(bench.retransmit(), Some(at(1)));
    assert_eq!((bench.ack(3, None), bench.retransmit()), (Effect::timer(true), Some(at(3))));
    assert_eq!((bench.ack(5, None), bench.retransmit()), (Effect::timer(false), Some(at(5))));
}

#[test]
fn a_timeout_of_the_same_segment_reduces_once() {
    let mut bench = Bench::new(&TcpSettings::rfc(), true);
    bench.time_out();
    assert_eq!((bench.window.cwnd(), bench.window.ssthresh()), (1, 5));
    assert!(bench.recovery.is_after_timeout());
    assert_eq!((bench.retransmit(), bench.retransmit()), (Some(at(1)), None));
    bench.time_out();
    assert_eq!((bench.window.ssthresh(), bench.recovery.timeouts()), (5, 2));
    // Of the next one, again.
    bench.ack(2, None);
    bench.time_out();
    assert_eq!(bench.window.ssthresh(), 2);
    bench.ack(11, None);
    assert!(!bench.recovery.is_after_timeout());
}

#[test]
fn what_is_lost_of_that_sent_in_a_recovery_begins_another_one_when_it_ends() {
    for settings in [TcpSettings::rfc(), TcpSettings::linux()] {
        let mut bench = Bench::new(&settings, true);
        (2..=4).for_each(|number| _ = bench.ack(1, Some(number)));
        assert_eq!(bench.retransmit(), Some(at(1)));
        (5..=10).for_each(|number| _ = bench.ack(1, Some(number)));
        // Of the four sent now the first is lost. The recovery knows it, and sends it again.
        (0..4).for_each(|_| bench.send());
        (12..=14).for_each(|number| _ = bench.ack(1, Some(number)));
        let sent_again = bench.retransmit();
        let ssthresh = bench.window.ssthresh();
        assert_eq!(bench.ack(11, None), Effect::BEGINS);
        assert!(bench.window.ssthresh() < ssthresh, "it has a reduction of its own");
        // Once is enough.
        assert_eq!(
            [sent_again, bench.retransmit()].map(|start| start == Some(at(11))).iter().filter(|is| **is).count(),
            1
        );
        assert_eq!((bench.ack(15, None), bench.recovery.is_fast()), (Effect::timer(true), false));
    }
}
