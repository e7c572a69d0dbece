//! The retransmission timer (RFC 6298, section 5), and the round-trip times that it is set from.

use ekiden_units::Time;

use crate::rtt::{Estimator, on_tick};
use crate::settings::TcpSettings;

#[derive(Debug)]
pub(crate) struct RetransmissionTimer {
    estimator: Estimator,
    /// [`crate::Rto::tick`].
    tick: Time,
    /// [`TcpSettings::rtt_per_window`].
    once_per_window: bool,
    at: Option<Time>,
    /// The segment that is timed, if only one is: its end, and when it was sent.
    timed: Option<(u64, Time)>,
}

impl RetransmissionTimer {
    pub fn new(settings: &TcpSettings) -> Self {
        Self {
            estimator: Estimator::new(settings.rto),
            tick: settings.rto.tick,
            once_per_window: settings.rtt_per_window,
            at: None,
            timed: None,
        }
    }

    pub fn estimator(&self) -> &Estimator {
        &self.estimator
    }

    /// When it runs out, if it runs.
    pub fn at(&self) -> Option<Time> {
        self.at
    }

    /// Starts or restarts the timer.
    pub fn start(&mut self, now: Time) {
        self.at = Some(on_tick(now + self.estimator.rto(), self.tick));
    }

    pub fn stop(&mut self) {
        self.at = None;
    }

    pub fn is_due(&self, now: Time) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// It expired: the next timeout is longer (RFC 6298, rule 5.5).
    pub fn back_off(&mut self, now: Time) {
        self.estimator.back_off();
        self.forget_timed();
        self.start(now);
    }

    /// The SYN is acknowledged, after it was sent again ([`Estimator::fall_back`]).
    pub fn fall_back(&mut self) {
        self.estimator.fall_back();
    }

    /// A segment up to `end` is sent for the first time: it is timed, unless another is.
    pub fn note_sent(&mut self, now: Time, end: u64) {
        self.timed = self.timed.or(Some((end, now)));
    }

    /// Stops timing the segment that is timed.
    pub fn forget_timed(&mut self) {
        self.timed = None;
    }

    /// Everything before `una` is acknowledged. `exact`: the round trip of a segment that was sent once; `echoed`: that of a
    /// timestamp.
    pub fn measure(&mut self, now: Time, una: u64, exact: Option<Time>, echoed: Option<Time>) {
        let Some(rtt) = exact.or(echoed) else { return };
        let timed = self.timed.filter(|(end, _)| *end <= una);
        if self.once_per_window && echoed.is_none() {
            timed.iter().for_each(|(_, at)| self.estimator.sample(now.since(*at)));
        } else {
            self.estimator.sample(rtt);
        }
        if timed.is_some() {
            self.timed = None;
        }
    }
}
