//! Whether a connection's data arrives: when a connection counts as stalled, and when as useless.

use std::time::Duration;

use ekiden_tcp_info::TcpInfo;
use tokio::time::Instant;

/// A connection stalls when data in flight has had no acknowledgement for this time, or for two round trips if these are
/// longer.
const STALL: Duration = Duration::from_secs(3);
/// This end's connection is useless if nothing has been acknowledged for this time although the other end is heard. A kernel
/// that looks for segments which pass (RFC 4821) finds them after its third timeout, seven times the first timeout after the
/// beginning. The first timeout is at least a round trip, and mostly little more: hence this many round trips if they are
/// longer.
const UNHEARD: Duration = Duration::from_secs(10);
const UNHEARD_ROUNDS: u32 = 14;
/// If this process has not looked for this time, it was not running, and does not know what the connection has done
/// meanwhile.
const AWAY: Duration = Duration::from_secs(1);

/// What the kernel has reported about a connection.
#[derive(Clone, Copy)]
pub struct Progress {
    /// The last report, and its time.
    pub seen: TcpInfo,
    looked: Instant,
    /// The last time at which nothing waited for an acknowledgement, or one had come.
    moved: Instant,
    heard: Option<Heard>,
}

/// Data that has come since a stall began.
#[derive(Clone, Copy)]
struct Heard {
    /// How many bytes this end had retransmitted when the first data came.
    resent_bytes: u64,
    /// When this end retransmitted after that.
    tried: Option<Instant>,
    /// When the last data came.
    last: Instant,
}

impl Progress {
    /// Of a connection that begins.
    pub fn new(now: Instant) -> Self {
        Self { seen: TcpInfo::default(), looked: now, moved: now, heard: None }
    }

    /// Takes the kernel's report.
    pub fn look(&mut self, now: Instant, info: TcpInfo) {
        let was_away = now - self.looked > AWAY;
        let moves = match (info.unacked_segments, info.unsent_bytes) {
            (0, 0) => true,
            _ if was_away => true,
            _ if (info.acked_bytes, info.sacked_segments) != (self.seen.acked_bytes, self.seen.sacked_segments) => true,
            // Nothing is in flight: the other end offers no window but answers probes, or nothing can be sent from here.
            (0, _) => Duration::from_millis(info.last_ack_ms.into()) < now - self.moved,
            _ => false,
        };
        if moves {
            (self.moved, self.heard) = (now, None);
        } else if self.stalls(now) {
            self.hear(now, info);
        }
        (self.seen, self.looked) = (info, now);
    }

    /// During a stall: notes whether the other end has been heard, and whether this one has retransmitted since.
    fn hear(&mut self, now: Instant, info: TcpInfo) {
        let comes = info.data_segments_in != self.seen.data_segments_in;
        let Some(heard) = &mut self.heard else {
            self.heard = comes.then_some(Heard { resent_bytes: info.resent_bytes, tried: None, last: now });
            return;
        };
        if comes {
            heard.last = now;
        }
        if info.resent_bytes > heard.resent_bytes {
            heard.tried.get_or_insert(now);
        }
    }

    /// Whether data has been in flight without an acknowledgement for a time after which the path seems to be gone.
    pub fn stalls(&self, now: Instant) -> bool {
        now - self.moved >= self.patience()
    }

    /// Whether the other end does not receive what this one sends, although this one receives its data: the path drops all
    /// large packets, or everything in this direction. The other end sees only silence. When a cut path is back, the other
    /// end may be heard before this one retransmits. So this one must have retransmitted after it heard the other end, and
    /// must still hear it when an acknowledgement was due.
    pub fn is_unheard(&self, now: Instant) -> bool {
        let in_vain = |heard: Heard| heard.tried.is_some_and(|tried| heard.last - tried >= self.patience());
        now - self.moved >= UNHEARD.max(self.rtt() * UNHEARD_ROUNDS) && self.heard.is_some_and(in_vain)
    }

    fn patience(&self) -> Duration {
        STALL.max(self.rtt() * 2)
    }

    /// The smoothed round-trip time.
    pub fn rtt(&self) -> Duration {
        Duration::from_micros(self.seen.rtt_us.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_flight(acked_bytes: u64) -> TcpInfo {
        TcpInfo { unacked_segments: 5, acked_bytes, ..TcpInfo::default() }
    }

    /// Looks every 100 ms for `seconds`, at what `info` returns for the number of the look. Returns whether the connection
    /// stalls then.
    fn stalls_after(progress: &mut Progress, now: &mut Instant, seconds: f64, info: impl Fn(u64) -> TcpInfo) -> bool {
        for look in 0..(seconds * 10.0) as u64 {
            *now += Duration::from_millis(100);
            progress.look(*now, info(look));
        }
        progress.stalls(*now)
    }

    #[test]
    fn data_that_nobody_acknowledges_for_three_seconds_stalls() {
        let mut now = Instant::now();
        let mut progress = Progress::new(now);
        assert!(!stalls_after(&mut progress, &mut now, 60.0, |_| TcpInfo::default()), "nothing is in flight");
        assert!(!stalls_after(&mut progress, &mut now, 2.9, |_| in_flight(0)));
        assert!(stalls_after(&mut progress, &mut now, 0.3, |_| in_flight(0)));
        assert!(!stalls_after(&mut progress, &mut now, 0.1, |_| in_flight(1)), "it goes on");
        let slow = |_| TcpInfo { rtt_us: 4_000_000, ..in_flight(1) };
        assert!(!stalls_after(&mut progress, &mut now, 7.8, slow), "two round trips");
        assert!(stalls_after(&mut progress, &mut now, 0.5, slow));
    }

    #[test]
    fn an_end_is_unheard_if_it_hears_the_other_and_nothing_is_acknowledged() {
        let sent_again = |look| TcpInfo { resent_bytes: look / 10 * 1_000, ..in_flight(0) };
        let heard = |look: u64| TcpInfo { data_segments_in: (look / 20) as u32, ..sent_again(look) };
        // The path was cut, and is back: the other end is heard.
        let late = |look: u64| TcpInfo { data_segments_in: look.saturating_sub(85) as u32, ..sent_again(look) };
        // It is heard, and this end has not sent again yet.
        let waits = |look: u64| TcpInfo { data_segments_in: (look / 20) as u32, ..in_flight(0) };
        // The other end was last heard when the cut began, and again when it ended.
        let cut =
            |look: u64| TcpInfo { data_segments_in: u32::from(look > 0) + u32::from(look > 99), ..sent_again(look) };
        // The other end is heard, and this end's retransmission cannot have been acknowledged yet.
        let tries = |look: u64| TcpInfo { resent_bytes: u64::from(look > 100), ..heard(look) };
        let cases: [(&dyn Fn(u64) -> TcpInfo, _); 6] = [
            (&heard, [false, true]),
            (&sent_again, [false; 2]),
            (&late, [false; 2]),
            (&waits, [false; 2]),
            (&cut, [false; 2]),
            (&tries, [false; 2]),
        ];
        for (info, after) in cases {
            let is_unheard_after = |seconds| {
                let mut now = Instant::now();
                let mut progress = Progress::new(now);
                stalls_after(&mut progress, &mut now, seconds, info);
                progress.is_unheard(now)
            };
            assert_eq!([9.5, 10.5].map(is_unheard_after), after);
        }
    }

    #[test]
    fn what_arrives_behind_a_gap_is_progress() {
        let mut now = Instant::now();
        let mut progress = Progress::new(now);
        let sacked = |look: u64| TcpInfo { sacked_segments: (look / 20) as u32, ..in_flight(0) };
        assert!(!stalls_after(&mut progress, &mut now, 20.0, sacked));
    }

    /// This process did not run, and what it has sent since cannot have been acknowledged yet.
    #[test]
    fn a_pause_is_no_stall() {
        let mut now = Instant::now();
        let mut progress = Progress::new(now);
        assert!(!stalls_after(&mut progress, &mut now, 1.0, |_| TcpInfo::default()));
        now += Duration::from_secs(10);
        assert!(!stalls_after(&mut progress, &mut now, 0.1, |_| in_flight(0)));
        assert!(!stalls_after(&mut progress, &mut now, 2.8, |_| in_flight(0)));
        assert!(stalls_after(&mut progress, &mut now, 0.3, |_| in_flight(0)), "it does stall");
    }
}
