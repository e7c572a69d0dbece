//! One connection of a leg, from one look to the next.

use std::sync::Arc;

use ekiden_overlay::judged::{Judged, Taken};
use ekiden_overlay::shown::{PATH_PART, STALLED, Shown, is_steady};
use ekiden_tcp_info::Limits;
use ekiden_tcp_info::TcpInfo;
use ekiden_units::Time;

use super::OnLeg;

/// A connection has stalled when several retransmissions have failed, for at least this time in milliseconds and this number
/// of round trips.
const STALLS_MS: u32 = 3000;
const STALLS_ROUNDS: u32 = 8;

/// What is kept of a connection that carries a stream.
#[derive(Debug)]
pub struct LegSeen {
    pub leg: OnLeg,
    /// The place of its class.
    pub class: usize,
    /// The rate to which the connection is held, in bytes per second.
    pub limit: Option<u64>,
    /// Whether that is by its class's ceiling, so that its rate says nothing of the leg.
    pub is_capped: bool,
    /// Whether it stands still and this has been reported.
    has_stalled: bool,
    /// When its stream began, and whether nothing has come on it for a while since then.
    since: Time,
    waits: bool,
    judged: Judged,
    last: Option<(Time, TcpInfo)>,
    rate_before: f64,
}

/// What a connection has shown since the look before, and the bytes of the stream.
#[derive(Debug, Clone, Copy)]
pub struct SeenNow {
    pub shown: Shown,
    pub acked_bytes: u64,
    pub received_bytes: u64,
}

impl LegSeen {
    /// `info` is what the connection says as the stream begins.
    pub fn new(leg: OnLeg, class: usize, now: Time, info: Option<TcpInfo>) -> Self {
        let last = info.map(|info| (now, info));
        Self {
            leg,
            class,
            limit: None,
            is_capped: false,
            has_stalled: false,
            since: now,
            waits: false,
            judged: Judged::new(now),
            last,
            rate_before: 0.0,
        }
    }

    /// What has happened since the last look; `None` if there was none.
    pub fn look(&mut self, now: Time, info: &TcpInfo) -> Option<SeenNow> {
        let (at, before) = self.last.replace((now, *info))?;
        let span_s = now.since(at).as_secs();
        if span_s <= 0.0 {
            return None;
        }
        let acked_bytes = info.acked_bytes.saturating_sub(before.acked_bytes);
        let received_bytes = info.received_bytes.saturating_sub(before.received_bytes);
        let rate_bit_s = acked_bytes as f64 * 8.0 / span_s;
        let mut limits = Limits::default();
        limits.add(0, &before);
        limits.add((span_s * 1e6) as u64, info);
        let path = limits.shares().map_or(0.0, |shares| shares.path);
        let is_steady = is_steady(rate_bit_s, self.rate_before, info.resent_bytes > before.resent_bytes);
        self.rate_before = rate_bit_s;
        self.judged.carried(rate_bit_s.max(received_bytes as f64 * 8.0 / span_s));
        let segments = |bytes: u64, then: u64| bytes.saturating_sub(then) / u64::from(info.mss_bytes.max(1));
        let silent_ms = (STALLED.as_ms() as u32).max(info.rtt_us / 250);
        let shown = Shown {
            span_s,
            rtt_s: (acked_bytes > 0).then_some(f64::from(info.rtt_us) / 1e6),
            rate_bit_s,
            is_limited: path >= PATH_PART && is_steady && acked_bytes > 0 && !self.is_capped,
            is_stalled: acked_bytes == 0 && info.is_silent(silent_ms),
            sent: segments(info.sent_bytes, before.sent_bytes),
            resent: segments(info.resent_bytes, before.resent_bytes),
        };
        Some(SeenNow { shown, acked_bytes, received_bytes })
    }

    /// Whether nothing that was sent is acknowledged any more. True once for each stall.
    pub fn begins_to_stall(&mut self, info: &TcpInfo) -> bool {
        let stalls = info.is_silent(STALLS_MS.max(info.rtt_us / 1000 * STALLS_ROUNDS));
        !std::mem::replace(&mut self.has_stalled, stalls) && stalls
    }

    /// Whether the silence has lasted long enough that the other node's data may be dropped on the way. Only the other node
    /// sees whether it sends. True once for each such silence.
    pub fn begins_to_wait(&mut self, info: &TcpInfo, now: Time) -> bool {
        let least_ms = STALLS_MS.max(info.rtt_us / 1000 * STALLS_ROUNDS);
        let waits = info.last_received_ms >= least_ms && now.since(self.since).as_ms() >= least_ms.into();
        !std::mem::replace(&mut self.waits, waits) && waits
    }

    /// What the stream says about the nodes in between, if it says something now: its path, and the rate that came as a part
    /// of the rate that the nodes were believed to give.
    pub fn says(&mut self, is_over: bool, now: Time) -> Option<(Arc<Taken>, f64)> {
        let taken = self.leg.taken.clone()?;
        let part = self.judged.says(&taken, is_over, now)?;
        Some((taken, part))
    }
}

#[cfg(test)]
mod tests {
    use ekiden_overlay::leg::Look;
    use ekiden_overlay::shown::Sum;

    use super::*;

    fn seen() -> LegSeen {
        LegSeen::new(OnLeg { peer: "paris".into(), taken: None, class: None, owner: None }, 0, Time(0), None)
    }

    /// A second in which `bytes` were acknowledged, and all of it was busy.
    fn info(seconds: u64, bytes: u64) -> TcpInfo {
        let busy_us = seconds * 1_000_000;
        TcpInfo {
            acked_bytes: bytes,
            busy_us,
            unsent_bytes: 100_000,
            mss_bytes: 1_000,
            rtt_us: 50_000,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn a_rate_is_the_legs_when_the_path_limits_it_and_it_grows_no_more() {
        let mut seen = seen();
        assert!(seen.look(Time::secs(0), &info(0, 0)).is_none());
        let mut sum = |seconds: u64, bytes: u64| {
            let mut sum = Sum::default();
            sum.add(&seen.look(Time::secs(seconds), &info(seconds, bytes)).unwrap().shown);
            sum.look()
        };
        // Slow start.
        assert_eq!(sum(1, 1_000_000), Look { span_s: 1.0, rtt_s: Some(0.05), carried_bit_s: 8e6, ..Look::default() });
        assert_eq!(sum(2, 3_000_000).rate_bit_s, None);
        assert_eq!(sum(3, 5_000_000).rate_bit_s, Some(16e6));
        // The program had little to send.
        let idle = TcpInfo { busy_us: 3_100_000, ..info(4, 5_100_000) };
        let mut sum = Sum::default();
        sum.add(&seen.look(Time::secs(4), &idle).unwrap().shown);
        assert_eq!((sum.look().rate_bit_s, sum.look().carried_bit_s), (None, 8e5));
    }

    #[test]
    fn a_connection_stalls_once_for_each_time_that_it_begins_to() {
        let mut seen = seen();
        let waiting = |last_ack_ms| TcpInfo { unacked_segments: 3, last_ack_ms, ..info(1, 1_000) };
        let shown = [2_900, 3_000, 9_000, 100, 3_100].map(|ms| seen.begins_to_stall(&waiting(ms)));
        assert_eq!(shown, [false, true, false, false, true]);
        assert!(!seen.begins_to_stall(&TcpInfo { rtt_us: 500_000, ..waiting(100) }));
        assert!(!seen.begins_to_stall(&TcpInfo { rtt_us: 500_000, ..waiting(3_900) }));
    }

    #[test]
    fn a_stream_waits_once_for_each_time_that_nothing_comes() {
        let mut seen = seen();
        let mut waits = |at_ms, last_received_ms| {
            seen.begins_to_wait(&TcpInfo { last_received_ms, ..TcpInfo::default() }, Time::ms(at_ms))
        };
        // On a connection that has rested, the stream is younger.
        let shown = [(100, 60_000), (3_100, 63_000), (4_000, 63_900), (5_000, 10), (8_000, 3_010)]
            .map(|(at, ms)| waits(at, ms));
        assert_eq!(shown, [false, true, false, false, true]);
    }

    #[test]
    fn a_leg_that_acknowledges_nothing_has_failed_and_one_that_is_idle_has_not() {
        let mut seen = seen();
        seen.look(Time::secs(0), &info(0, 1_000));
        let mut is_stalled = |seconds: u64, now: TcpInfo| {
            let mut sum = Sum::default();
            sum.add(&seen.look(Time::secs(seconds), &now).unwrap().shown);
            sum.is_stalled()
        };
        let info = |seconds, bytes| TcpInfo { unsent_bytes: 0, ..info(seconds, bytes) };
        assert!(!is_stalled(1, TcpInfo { last_ack_ms: 5_000, ..info(1, 1_000) }));
        let waiting = TcpInfo { unacked_segments: 3, ..info(2, 1_000) };
        assert!(!is_stalled(2, TcpInfo { last_ack_ms: 900, ..waiting }));
        assert!(is_stalled(3, TcpInfo { last_ack_ms: 1_100, ..waiting }));
        assert!(!is_stalled(4, TcpInfo { last_ack_ms: 1_900, rtt_us: 500_000, ..waiting }));
        // A receiver that has no room is probed, and acknowledges that.
        let full = TcpInfo { unsent_bytes: 100_000, send_window_bytes: 500, last_ack_ms: 20_000, ..info(5, 1_000) };
        assert!(!is_stalled(5, TcpInfo { unanswered_probes: 1, ..full }));
        assert!(is_stalled(6, TcpInfo { unanswered_probes: 2, ..full }));
        assert!(is_stalled(7, TcpInfo { send_window_bytes: 50_000, ..full }));
        // Two segments of 1,000 bytes at 40 byte/s.
        let paced = TcpInfo { send_window_bytes: 50_000, pacing_bytes_s: 40, last_ack_ms: 50_000, ..full };
        assert!(!is_stalled(8, paced));
        assert!(is_stalled(9, TcpInfo { last_ack_ms: 52_000, ..paced }));
    }
}
