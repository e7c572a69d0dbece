//! The congestion window: what makes it grow and fall (RFC 5681; validation: RFC 7661).
//!
//! The congestion control decides how far. When, the sender and its loss recovery say. Windows count segments.

use ekiden_congestion::{CongestionControl, Window};
use ekiden_units::Time;

use crate::settings::Settings;

pub(crate) struct CongestionWindow {
    window: Window,
    control: Box<dyn CongestionControl + Send>,
    initial: u32,
    /// [`Settings::window_validation`].
    validates: bool,
    /// [`Settings::byte_counting`].
    counts_segments: bool,
    /// [`Settings::halves_in_slow_start`].
    halves_in_slow_start: bool,
    /// It was what stopped the last sending.
    is_limit: bool,
    /// The most that was outstanding in the last window of data.
    most_out: u32,
    /// Where that window of data ends.
    most_out_end: u64,
}

impl CongestionWindow {
    pub fn new(settings: &Settings, control: Box<dyn CongestionControl + Send>) -> Self {
        Self {
            window: Window { cwnd: settings.initial_window, ..Window::default() },
            control,
            initial: settings.initial_window,
            validates: settings.window_validation,
            counts_segments: settings.byte_counting,
            halves_in_slow_start: settings.halves_in_slow_start,
            is_limit: false,
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

    /// Whether it was what stopped the last sending.
    pub fn set_limit(&mut self, is_limit: bool) {
        self.is_limit = is_limit;
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
        let is_used = self.is_limit || self.is_in_slow_start() && self.window.cwnd < self.most_out.saturating_mul(2);
        if is_used || !self.validates {
            self.control.on_ack(&mut self.window, if self.counts_segments { acked } else { 1 });
        }
    }

    /// A loss event with so much outstanding: the slow start threshold falls. The window stays.
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

    /// Fast recovery sets it.
    pub fn set(&mut self, cwnd: u32) {
        self.window.cwnd = cwnd;
    }

    /// Fast recovery ends.
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

    /// Growth begins anew.
    pub fn forget_growth(&mut self) {
        self.window.cwnd_cnt = 0;
    }

    /// After idle time (RFC 5681, section 4.1).
    pub fn restart(&mut self) {
        self.window.cwnd = self.window.cwnd.min(self.initial);
    }
}
