//! The congestion window: what makes it grow and fall (RFC 5681; validation: RFC 7661).
//!
//! The sender and its loss recovery decide when; the congestion control decides how far. Windows count segments.

use ekiden_congestion::{CongestionControl, LostSegment, RateSample, Window};
use ekiden_units::Time;

use crate::scoreboard::AckSummary;
use crate::settings::{Counting, Halves, Idle, TcpSettings};

pub(crate) struct CongestionWindow {
    window: Window,
    control: Box<dyn CongestionControl + Send>,
    /// The control sets the window by itself, and a rate.
    sets_rate: bool,
    initial: u32,
    /// [`TcpSettings::window_validation`].
    validates: bool,
    /// [`TcpSettings::counting`].
    counting: Counting,
    /// The slow start that follows a timeout.
    is_after_timeout: bool,
    /// [`TcpSettings::idle`].
    idle: Idle,
    /// [`TcpSettings::reduces_unused`].
    reduces_unused: bool,
    /// [`TcpSettings::halves`].
    halves: Halves,
    /// The congestion window, and nothing else, stopped the last sending (Linux: `is_cwnd_limited`).
    is_cwnd_limited: bool,
    /// The most that was outstanding in the last window of data.
    most_out: u32,
    /// Where that window of data ends.
    most_out_end: u64,
}

impl CongestionWindow {
    pub fn new(settings: &TcpSettings, control: Box<dyn CongestionControl + Send>) -> Self {
        let mut window = Window { cwnd: settings.initial_window, ..Window::default() };
        window.ssthresh = settings.initial_ssthresh.unwrap_or(window.ssthresh);
        Self {
            window,
            sets_rate: control.sets_rate(),
            control,
            initial: settings.initial_window,
            validates: settings.window_validation,
            counting: settings.counting,
            is_after_timeout: false,
            idle: settings.idle,
            reduces_unused: settings.reduces_unused,
            halves: settings.halves,
            is_cwnd_limited: false,
            most_out: 0,
            most_out_end: 0,
        }
    }

    pub fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    /// The slow start threshold; a huge one while there is none.
    pub fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    fn is_in_slow_start(&self) -> bool {
        self.window.cwnd < self.window.ssthresh
    }

    /// Notes whether the congestion window, and nothing else, stopped the last sending.
    pub fn set_cwnd_limited(&mut self, is_cwnd_limited: bool) {
        self.is_cwnd_limited = is_cwnd_limited;
    }

    /// `outstanding` segments lie between `una` and `next`.
    pub fn note_outstanding(&mut self, una: u64, next: u64, outstanding: u32) {
        if una >= self.most_out_end {
            (self.most_out, self.most_out_end) = (0, next);
        }
        self.most_out = self.most_out.max(outstanding);
    }

    /// A round-trip time was measured, of a segment that was sent once.
    pub fn on_rtt(&mut self, now: Time, rtt: Time) {
        let rtt_us = u32::try_from(rtt.0 / 1000).unwrap_or(u32::MAX);
        self.control.on_rtt(&self.window, now.0 / 1000, rtt_us);
    }

    /// Whether [`CongestionWindow::on_sample`] is to be called.
    pub fn sets_rate(&self) -> bool {
        self.sets_rate
    }

    /// Whether [`CongestionWindow::on_lost`] is to be called.
    pub fn asks_for_losses(&self) -> bool {
        self.control.asks_for_losses()
    }

    /// A segment was found lost.
    pub fn on_lost(&mut self, lost: &LostSegment) {
        self.control.on_lost(lost);
    }

    /// An acknowledgement arrived, in whatever phase.
    pub fn on_sample(&mut self, sample: &RateSample) {
        self.control.on_sample(&mut self.window, sample);
    }

    /// The rate at which segments are to leave, per second. `None`: as the window allows.
    pub fn pacing_rate(&self) -> Option<f64> {
        if self.sets_rate { self.control.pacing_rate() } else { None }
    }

    /// An acknowledgement arrived outside of fast recovery.
    pub fn grow(&mut self, ack: &AckSummary) {
        if ack.acked == 0 || self.sets_rate {
            return;
        }
        self.is_after_timeout &= self.is_in_slow_start();
        let count = match self.counting {
            Counting::Acknowledgements => 1,
            Counting::Covered => {
                if self.is_after_timeout {
                    1
                } else {
                    ack.acked
                }
            }
            Counting::Delivered => ack.delivered,
        };
        let is_used =
            self.is_cwnd_limited || self.is_in_slow_start() && self.window.cwnd < self.most_out.saturating_mul(2);
        if count > 0 && (is_used || !self.validates) {
            self.control.on_ack(&mut self.window, count);
        }
    }

    /// A loss event with `outstanding` segments in flight: lowers the slow start threshold, not the window.
    pub fn reduce(&mut self, outstanding: u32, by_timeout: bool) {
        // FlightSize (RFC 5681, equation 4) is the window, unless something else limits the sender.
        let flight = if self.reduces_unused { self.window.cwnd } else { self.window.cwnd.min(outstanding) };
        let in_slow_start = self.is_in_slow_start();
        self.window.ssthresh = self.control.on_loss(flight);
        let halves = match self.halves {
            Halves::Never => false,
            Halves::AtTimeouts => by_timeout,
            Halves::InSlowStartToo => by_timeout || in_slow_start,
        };
        if halves {
            self.window.ssthresh = (flight / 2).max(2);
        }
        self.window.cwnd_cnt = 0;
    }

    /// Sets the window, in fast recovery.
    pub fn set(&mut self, cwnd: u32) {
        if !self.sets_rate {
            self.window.cwnd = cwnd;
        }
    }

    /// Fast recovery ends: the window becomes the slow start threshold.
    pub fn fall_to_threshold(&mut self) {
        self.set(self.window.ssthresh);
        self.window.cwnd_cnt = 0;
    }

    /// The retransmission timer ran out, after [`CongestionWindow::reduce`] if that is due.
    pub fn on_timeout(&mut self) {
        self.is_after_timeout = true;
        self.control.on_timeout();
    }

    /// Slow start begins with the loss window (RFC 5681, section 3.1).
    pub fn fall_to_one(&mut self) {
        self.window.cwnd = 1;
    }

    /// Forgets the fraction of a segment by which the window has grown.
    pub fn forget_growth(&mut self) {
        self.window.cwnd_cnt = 0;
    }

    /// The connection has ended.
    pub fn on_end(&mut self) {
        self.control.on_end();
    }

    /// Nothing was sent for `idle`, which is longer than `rto`.
    pub fn on_idle(&mut self, idle: Time, rto: Time) {
        if self.idle != Idle::Keeps || self.sets_rate {
            self.control.on_idle(&mut self.window, idle.0 / 1000);
        }
        if self.sets_rate {
            return;
        }
        let Window { cwnd, ssthresh, .. } = &mut self.window;
        let least = self.initial.min(*cwnd);
        match self.idle {
            Idle::Keeps => {}
            Idle::Restarts => *cwnd = least,
            Idle::Halves => {
                *ssthresh = (*ssthresh).max((*cwnd >> 1) + (*cwnd >> 2));
                // A timeout of exactly the time that is left does not count.
                let timeouts = (idle.0 - 1) / rto.0.max(1);
                *cwnd = cwnd.checked_shr(timeouts.try_into().unwrap_or(u32::MAX)).unwrap_or(0).max(least);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use ekiden_congestion::{CongestionParameters, Tunables, control};

    use super::*;

    /// A congestion control that counts idle times.
    struct Counter(Arc<AtomicU32>);

    impl CongestionControl for Counter {
        fn on_rtt(&mut self, _window: &Window, _now_us: u64, _rtt_us: u32) -> bool {
            false
        }

        fn on_ack(&mut self, _window: &mut Window, _acked: u32) {}

        fn on_loss(&mut self, cwnd: u32) -> u32 {
            cwnd
        }

        fn on_timeout(&mut self) {}

        fn on_idle(&mut self, _window: &mut Window, _idle_us: u64) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }
    }

    #[test]
    fn the_congestion_control_is_told_of_an_idle_time() {
        let count = Arc::new(AtomicU32::new(0));
        let mut window = CongestionWindow::new(&TcpSettings::rfc(), Box::new(Counter(Arc::clone(&count))));
        window.on_idle(Time::ms(500), Time::ms(300));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn who_decides_a_reduction() {
        // 80 segments in slow start: BIC leaves seven eighths, ns-2's `TcpAgent::slowdown` half.
        let tunables = &Arc::new(Tunables::new(&CongestionParameters::default()).unwrap());
        for (settings, after_loss, after_timeout) in
            [(TcpSettings::ns2(), 40, 40), (TcpSettings::ns2_bitcp(), 70, 40), (TcpSettings::rfc(), 70, 70)]
        {
            for (by_timeout, expected) in [(false, after_loss), (true, after_timeout)] {
                let mut window = CongestionWindow::new(&settings, control("ekiden_bic", tunables).unwrap());
                window.window.cwnd = 80;
                window.reduce(80, by_timeout);
                assert_eq!(window.ssthresh(), expected, "{:?}, timeout: {by_timeout}", settings.halves);
            }
        }
    }

    #[test]
    fn idle_time_leaves_three_quarters_of_the_window_as_threshold_in_linux() {
        let tunables = &Arc::new(Tunables::new(&CongestionParameters::default()).unwrap());
        for (settings, ssthresh, expected) in [
            (TcpSettings::linux(), 20, (20, 30)),
            (TcpSettings::linux(), 35, (20, 35)),
            (TcpSettings::rfc(), 20, (10, 20)),
            (TcpSettings::ns2(), 20, (40, 20)),
        ] {
            let reno = control("reno", tunables).unwrap();
            let mut window = CongestionWindow::new(&settings, reno);
            (window.window.cwnd, window.window.ssthresh) = (40, ssthresh);
            window.on_idle(Time::ms(500), Time::ms(300));
            assert_eq!((window.cwnd(), window.ssthresh()), expected);
        }
    }
}
