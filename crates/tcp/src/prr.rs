//! Proportional rate reduction with its slow start reduction bound (RFC 6937, section 3), in segments.

/// Its state over one fast recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prr {
    /// RecoverFS: outstanding when the recovery began.
    outstanding: u32,
    /// prr_delivered.
    delivered: u32,
    /// prr_out.
    sent: u32,
}

impl Prr {
    /// A recovery begins with `outstanding` segments in flight.
    pub fn new(outstanding: u32) -> Self {
        Self { outstanding: outstanding.max(1), delivered: 0, sent: 0 }
    }

    /// A segment is sent, new or again.
    pub fn on_sent(&mut self) {
        self.sent += 1;
    }

    /// The congestion window after an acknowledgement that reports `delivered` segments and leaves `pipe` in the network.
    ///
    /// `safe_ack`: the acknowledgement advances and reports no further loss (`SafeACK` of RFC 9937, section 5;
    /// `tcp_cwnd_reduction` of Linux).
    pub fn window(&mut self, pipe: u32, ssthresh: u32, delivered: u32, safe_ack: bool) -> u32 {
        self.delivered += delivered;
        let more = if pipe > ssthresh {
            let due = (u64::from(self.delivered) * u64::from(ssthresh)).div_ceil(self.outstanding.into());
            u32::try_from(due).unwrap_or(u32::MAX).saturating_sub(self.sent)
        } else {
            // Slow start bound while acknowledgements are safe; packet conservation otherwise.
            let limit = self.delivered.saturating_sub(self.sent).max(delivered) + u32::from(safe_ack);
            limit.min(ssthresh - pipe)
        };
        (pipe + more).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_to_what_arrives_as_the_threshold_to_what_was_outstanding() {
        let mut prr = Prr::new(20);
        let mut pipe = 19;
        for delivered in 1..=8_u32 {
            pipe -= 1;
            let window = prr.window(pipe, 10, 1, true);
            while pipe < window {
                prr.on_sent();
                pipe += 1;
            }
            assert_eq!(prr.sent, delivered.div_ceil(2), "after {delivered}");
        }
    }

    #[test]
    fn below_the_threshold_it_grows_only_with_safe_acks() {
        assert_eq!(Prr::new(20).window(4, 10, 1, true), 4 + 2);
        assert_eq!(Prr::new(20).window(4, 10, 1, false), 4 + 1);
        // Not beyond the threshold.
        assert_eq!(Prr::new(20).window(9, 10, 5, true), 10);
        // What was delivered and not yet made up for may go.
        let mut prr = Prr::new(20);
        prr.window(12, 10, 4, true);
        assert_eq!(prr.window(4, 10, 1, false), 4 + 5);
    }

    #[test]
    fn something_may_always_be_sent() {
        assert_eq!(Prr::new(0).window(0, 0, 0, false), 1);
    }
}
