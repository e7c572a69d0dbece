//! HyStart (Ha and Rhee, 2011) as in Linux's CUBIC (`hystart_update` of tcp_cubic.c): slow start ends before the queue
//! overflows, when the acknowledgements of a round come in a train that is long, or late.

/// Below this window, in segments, slow start never ends.
const LEAST_WINDOW: u32 = 16;
/// Acknowledgements at most this far apart belong to one train.
const TRAIN_GAP_US: u64 = 2_000;
/// Linux's allowance for delayed acknowledgements (`hystart_ack_delay`), 1 ms below 2 Gbit/s: a train ends slow start when it
/// is longer than half of the least round-trip time plus this.
const ACK_DELAY_US: u64 = 1_000;
/// Round-trip time samples per round.
const SAMPLES: u32 = 8;
/// Bounds of the delay threshold, an eighth of the least round-trip time, in microseconds.
const LATE_US: (u64, u64) = (4_000, 16_000);

/// One connection's HyStart. [`HyStart::default`] is that of a new one, and after a timeout.
#[derive(Debug, Clone, Default)]
pub(crate) struct HyStart {
    found: bool,
    /// The least round-trip time so far.
    least_us: Option<u64>,
    /// Segments of the round that are not acknowledged: what was outstanding when it began.
    left: u32,
    began_us: u64,
    /// The last acknowledgement of the train.
    train_us: u64,
    /// The least round-trip time of the round, and how many were looked at.
    round_us: u64,
    samples: u32,
}

impl HyStart {
    /// An acknowledgement of `acked` segments in slow start, with the window before it. Returns whether slow start ends; that
    /// happens once.
    pub fn ends(&mut self, now_us: u64, rtt_us: Option<u64>, cwnd: u32, acked: u32) -> bool {
        let is_new_round = acked > self.left;
        self.left = self.left.saturating_sub(acked);
        let Some(rtt_us) = rtt_us.filter(|_| !self.found) else { return false };
        let least_us = self.least_us.map_or(rtt_us, |least_us| least_us.min(rtt_us));
        self.least_us = Some(least_us);
        if is_new_round {
            self.left = cwnd.saturating_sub(acked);
            (self.began_us, self.train_us) = (now_us, now_us);
            (self.round_us, self.samples) = (u64::MAX, 0);
        }
        if cwnd < LEAST_WINDOW {
            return false;
        }
        if now_us.saturating_sub(self.train_us) <= TRAIN_GAP_US {
            self.train_us = now_us;
            self.found |= now_us.saturating_sub(self.began_us) > (least_us + ACK_DELAY_US) / 2;
        }
        self.round_us = self.round_us.min(rtt_us);
        if self.samples < SAMPLES {
            self.samples += 1;
        } else {
            self.found |= self.round_us > least_us + (least_us / 8).clamp(LATE_US.0, LATE_US.1);
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window at which slow start ends on a path of this round-trip time, where a segment takes `segment_us` on the line
    /// and there is no end to the queue. Windows double; a round begins when the one before is acknowledged.
    fn window_at_the_end(rtt_us: u64, segment_us: u64) -> u32 {
        let mut hystart = HyStart::default();
        let (mut cwnd, mut now_us) = (10, rtt_us);
        for _ in 0..20 {
            let window = cwnd;
            let began_us = now_us;
            for segment in 0..u64::from(window) {
                now_us = began_us + segment * segment_us;
                // What arrives as fast as the line carries it was sent twice as fast: half of it waits.
                if hystart.ends(now_us, Some(rtt_us + segment * segment_us / 2), cwnd, 1) {
                    return cwnd;
                }
                cwnd += 1;
            }
            now_us = (began_us + rtt_us).max(now_us + segment_us);
        }
        u32::MAX
    }

    #[test]
    fn a_train_of_half_a_round_trip_ends_slow_start() {
        // 70 Mbit/s and segments of 1400 bytes: 160 us each. The round in which 22 ms pass is the one of 160 segments, of
        // which 138 are acknowledged then; at 18 ms the one of 80, of which 60 are. Linux: 298 to 301, and 139 to 142.
        assert_eq!(window_at_the_end(43_000, 160), 160 + 138);
        assert_eq!(window_at_the_end(18_000, 160), 80 + 60);
    }

    #[test]
    fn late_acknowledgements_end_slow_start() {
        let mut hystart = HyStart::default();
        assert!(!hystart.ends(0, Some(100_000), 10, 10));
        // 12.5 ms too late, each a train of its own; the ninth tells.
        let ended = (1..20).find(|n| hystart.ends(100_000 + n * 3_000, Some(112_501), 20, 1));
        assert_eq!(ended, Some(9));
        assert!(!hystart.found || !HyStart::default().ends(0, None, 100, 1));
    }

    #[test]
    fn without_a_measurement_nothing_ends() {
        let mut hystart = HyStart::default();
        assert!((0..1000).all(|n| !hystart.ends(n * 100, None, 1000, 1)));
    }
}
