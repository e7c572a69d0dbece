//! One connection of a leg, from one look to the next. As `crates/relay/src/overlay/seen.rs` of a real one, where the kernel counts what
//! limits a sender: here that is looked at ten times a second.

use ekiden_overlay::judged::Judged;
use ekiden_overlay::shown::{PATH_PART, STALLED, Shown, is_steady};
use ekiden_tcp::{Connection, State, TcpInfo};
use ekiden_units::Time;

/// What is kept of a connection that carries a stream.
pub(super) struct LegSeen {
    pub judged: Judged,
    last: (Time, TcpInfo),
    rate_before: f64,
    /// Glances since the look before, and those at which the path was the limit.
    glances: (u32, u32),
    /// Bytes acknowledged at the last glance, and since when nothing more is, although something waits for it.
    waits: (u64, Time),
}

impl LegSeen {
    /// A stream begins on a connection.
    pub fn new(now: Time, info: TcpInfo) -> Self {
        let waits = (info.acked_bytes, now);
        Self { judged: Judged::new(now), last: (now, info), rate_before: 0.0, glances: (0, 0), waits }
    }

    /// Looks at what limits the sender at this moment.
    pub fn glance(&mut self, now: Time, connection: &Connection) {
        let info = connection.info();
        let is_mending = info.lost > 0 || info.sacked > 0;
        let is_starved = connection.unsent() < u64::from(info.mss.max(1)) && !is_mending;
        let is_window = u64::from(info.outstanding + 1) * u64::from(info.mss) > info.window;
        let is_path = info.outstanding > 0 && !is_starved && !is_window;
        self.glances = (self.glances.0 + 1, self.glances.1 + u32::from(is_path));
        if info.outstanding == 0 || info.acked_bytes != self.waits.0 {
            self.waits = (info.acked_bytes, now);
        }
    }

    /// What has happened since the last look, and the bytes acknowledged; `None` if that was now, or the connection is not established.
    pub fn look(&mut self, now: Time, connection: &Connection) -> Option<(Shown, u64)> {
        if let State::SynSent | State::SynReceived | State::Closed = connection.state() {
            return None;
        }
        let info = connection.info();
        let (at, before) = std::mem::replace(&mut self.last, (now, info));
        let span_s = now.since(at).as_secs();
        if span_s <= 0.0 {
            return None;
        }
        let (glances, of_path) = std::mem::take(&mut self.glances);
        let acked_bytes = info.acked_bytes.saturating_sub(before.acked_bytes);
        let rate_bit_s = acked_bytes as f64 * 8.0 / span_s;
        let resent = info.retransmits.saturating_sub(before.retransmits);
        let is_steady = is_steady(rate_bit_s, self.rate_before, resent > 0);
        self.rate_before = rate_bit_s;
        self.judged.carried(rate_bit_s);
        let rtt = info.rtt.unwrap_or_default();
        let is_path = glances > 0 && f64::from(of_path) >= f64::from(glances) * PATH_PART;
        let shown = Shown {
            rate_bit_s,
            span_s,
            rtt_s: (acked_bytes > 0).then_some(rtt.as_secs()),
            is_limited: is_path && is_steady && acked_bytes > 0,
            is_stalled: acked_bytes == 0 && now.since(self.waits.1) >= STALLED.max(Time(rtt.0.saturating_mul(4))),
            sent: info.delivered.saturating_sub(before.delivered) + resent,
            resent,
        };
        Some((shown, acked_bytes))
    }
}
