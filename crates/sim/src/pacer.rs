//! Pacing of a connection, as the kernel does it for a real one.

use std::sync::Arc;

use ekiden_queue::{LOOKING, Pacing, PathSeen, Siblings};
use ekiden_tcp::TcpInfo;
use ekiden_units::Time;

/// When the next segment of a connection may leave.
pub(crate) struct Pacer {
    /// Of a tunnel's: finds the limit.
    pacing: Option<Pacing>,
    /// In bytes per second; `None`: no limit but the kernel's own.
    limit: Option<u64>,
    looked: Option<Time>,
    /// It has been paced once: then the kernel spreads what it sends for good.
    is_on: bool,
    free_at: Time,
    is_held: bool,
}

impl Pacer {
    /// For one of a tunnel's connections.
    pub fn new(siblings: Arc<Siblings>) -> Self {
        Self { pacing: Some(Pacing::new(siblings)), ..Self::limited(None) }
    }

    /// For a connection that has this limit, in bytes per second.
    pub fn limited(limit: Option<u64>) -> Self {
        let (pacing, looked) = Default::default();
        Self { pacing, limit, looked, is_on: limit.is_some(), free_at: Time(0), is_held: false }
    }

    /// Gives the connection another limit.
    pub fn limit(&mut self, limit: Option<u64>) {
        self.limit = limit;
        self.is_on |= limit.is_some();
    }

    /// Looks at the connection now and then.
    pub fn look(&mut self, now: Time, info: &TcpInfo, is_awaited: bool) {
        let Some(pacing) = &mut self.pacing else { return };
        pacing.waiting(now, is_awaited);
        let Some(rtt) = info.rtt else { return };
        if self.looked.is_some_and(|looked| now < looked + LOOKING) {
            return;
        }
        self.looked = Some(now);
        let full = |segments: u64| segments * u64::from(info.mss);
        let (acked, arrived) = (info.acked_bytes + full(info.sacked.into()), full(info.delivered));
        let in_flight = full(info.outstanding.saturating_sub(info.sacked).into());
        self.limit = pacing.look(now, PathSeen { rtt, acked, arrived, retransmits: info.retransmits, in_flight });
        self.is_on |= self.limit.is_some();
    }

    /// Whether a segment may leave now.
    pub fn may_send(&mut self, now: Time) -> bool {
        self.is_held = now < self.free_at;
        !self.is_held
    }

    /// When a segment that was held may leave.
    pub fn free_at(&self) -> Option<Time> {
        self.is_held.then_some(self.free_at)
    }

    /// A segment leaves.
    pub fn sent(&mut self, now: Time, payload: u32, info: &TcpInfo) {
        let Some(rtt) = info.rtt.filter(|_| payload > 0 && self.is_on) else { return };
        // Linux: twice the window in a round trip in the first half of slow start, else 1.2 times.
        let is_starting = info.ssthresh.is_none_or(|ssthresh| info.cwnd < ssthresh / 2);
        let percent = if is_starting { 200 } else { 120 };
        let window = u128::from(info.cwnd.max(info.outstanding)) * u128::from(info.mss);
        let own = window * percent * 10_000_000 / u128::from(rtt.0.max(1));
        let rate = own.min(self.limit.map_or(u128::MAX, u128::from)).max(1);
        let lasts = u128::from(payload) * 1_000_000_000 / rate;
        self.free_at = self.free_at.max(now) + Time(u64::try_from(lasts).unwrap_or(u64::MAX));
    }
}
