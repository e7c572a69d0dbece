//! The congestion window: what makes it grow and fall (RFC 5681; validation: RFC 7661).
//!
//! The sender and its loss recovery decide when; the congestion control decides how far. Windows count segments.

use ekiden_congestion::{CongestionControl, Window};
use ekiden_units::Time;

use crate::settings::TcpSettings;

pub(crate) struct CongestionWindow {
    window: Window,
    control: Box<dyn CongestionControl + Send>,
    initial: u32,
    /// [`TcpSettings::window_validation`].
    validates: bool,
    /// [`TcpSettings::byte_counting`].
    counts_segments: bool,
    /// [`TcpSettings::halves_in_slow_start`].
    halves_in_slow_start: bool,
    /// The congestion window, and nothing else, stopped the last sending (Linux: `is_cwnd_limited`).
    is_cwnd_limited: bool,
    /// The most that was outstanding in the last window of data.
    most_out: u32,
    /// Where that window of data ends.
    most_out_end: u64,
}

impl CongestionWindow {
    pub fn new(settings: &TcpSettings, control: Box<dyn CongestionControl + Send>) -> Self {
        Self {
            window: Window { cwnd: settings.initial_window, ..Window::default() },
            control,
            initial: settings.initial_window,
            validates: settings.window_validation,
            counts_segments: settings.byte_counting,
            halves_in_slow_start: settings.halves_in_slow_start,
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

    /// `acked` segments were acknowledged outside of fast recovery.
    pub fn grow(&mut self, acked: u32) {
        if acked == 0 {
            return;
        }
        let is_used =
            self.is_cwnd_limited || self.is_in_slow_start() && self.window.cwnd < self.most_out.saturating_mul(2);
        if is_used || !self.validates {
            self.control.on_ack(&mut self.window, if self.counts_segments { acked } else { 1 });
        }
    }

    /// A loss event with `outstanding` segments in flight: lowers the slow start threshold, not the window.
    pub fn reduce(&mut self, outstanding: u32, by_timeout: bool) {
        // FlightSize (RFC 5681, equation 4) is the window, unless something else limits the sender.
        let flight = self.window.cwnd.min(outstanding);
        let in_slow_start = self.is_in_slow_start();
        self.window.ssthresh = self.control.on_loss(flight);
        if self.halves_in_slow_start && (in_slow_start || by_timeout) {
            self.window.ssthresh = (flight / 2).max(2);
        }
        self.window.cwnd_cnt = 0;
    }

    /// Sets the window, in fast recovery.
    pub fn set(&mut self, cwnd: u32) {
        self.window.cwnd = cwnd;
    }

    /// Fast recovery ends: the window becomes the slow start threshold.
    pub fn fall_to_threshold(&mut self) {
        self.window.cwnd = self.window.ssthresh;
        self.window.cwnd_cnt = 0;
    }

    /// The retransmission timer ran out, after [`CongestionWindow::reduce`] if that is due.
    pub fn on_timeout(&mut self) {
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

    /// The restart window after idle time (RFC 5681, section 4.1).
    pub fn restart(&mut self) {
        self.control.on_idle();
        self.window.cwnd = self.window.cwnd.min(self.initial);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A congestion control that counts idle times.
    struct Idle(Arc<AtomicU32>);

    impl CongestionControl for Idle {
        fn on_rtt(&mut self, _window: &Window, _now_us: u64, _rtt_us: u32) -> bool {
            false
        }

        fn on_ack(&mut self, _window: &mut Window, _acked: u32) {}

        fn on_loss(&mut self, cwnd: u32) -> u32 {
            cwnd
        }

        fn on_timeout(&mut self) {}

        fn on_idle(&mut self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }
    }

    #[test]
    fn the_congestion_control_is_told_of_an_idle_time() {
        let count = Arc::new(AtomicU32::new(0));
        let mut window = CongestionWindow::new(&TcpSettings::rfc(), Box::new(Idle(Arc::clone(&count))));
        window.restart();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
