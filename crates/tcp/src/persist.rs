//! The persist timer: zero-window probes, and the override timeout for small windows (RFC 9293, sections 3.8.6.1 and
//! 3.8.6.2.1).

use ekiden_units::Time;

#[derive(Debug, Default)]
pub(crate) struct PersistTimer {
    at: Option<Time>,
    /// Probes since data was sent last.
    count: u32,
    is_due: bool,
}

impl PersistTimer {
    /// When the timer runs out, if it runs.
    pub fn at(&self) -> Option<Time> {
        self.at
    }

    /// Whether the timer ran out, and neither a probe nor data was sent since.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Starts the timer. It waits for `rto`, doubled with every probe, up to `most`.
    pub fn start(&mut self, now: Time, rto: Time, most: Time) {
        let factor = 1u64.checked_shl(self.count).unwrap_or(u64::MAX);
        self.at = Some(now + Time(rto.0.saturating_mul(factor)).min(most));
    }

    /// Stops the timer: no probe is needed.
    pub fn cancel(&mut self) {
        self.at = None;
    }

    /// Whether the timer has run out. It stops then.
    pub fn runs_out(&mut self, now: Time) -> bool {
        let runs_out = self.at.is_some_and(|at| at <= now);
        if runs_out {
            self.at = None;
        }
        runs_out
    }

    /// Schedules a probe.
    pub fn plan(&mut self) {
        self.count = self.count.saturating_add(1);
        self.is_due = true;
    }

    /// Whether a probe is to be sent. The caller sends it.
    pub fn take(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }

    /// Data is sent.
    pub fn on_data(&mut self) {
        (self.count, self.is_due) = (0, false);
    }

    /// The peer's window opens: the timer stops, and its pauses begin short again.
    pub fn on_open(&mut self) {
        *self = Self::default();
    }

    pub fn stop(&mut self) {
        (self.at, self.is_due) = (None, false);
    }
}
