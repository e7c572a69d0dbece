//! A traced stream: when its bytes were sent, when they came, and how long those that came in order were under way.

use ekiden_record::Way;

use crate::client::Measured;
use crate::load::{Seen, Side};
use crate::message::Row;

/// A queue is seen when it delays by more than this, beyond the jitter of looking.
pub const QUEUE_LEAST_US: f64 = 400.0;

/// A stream as both ends saw it.
pub struct Trace<'a> {
    /// The sender's samples.
    pub sent: &'a [Row],
    /// The receiver's.
    pub arrived: &'a [Row],
    /// User data in a segment, in bytes.
    pub mss_bytes: f64,
    /// The segment's IP packet, in bytes.
    pub packet_bytes: f64,
    /// The path's MTU as the sender's kernel knows it; 0 if it does not.
    pub mtu_bytes: u32,
    /// Bytes sent, in all.
    pub sent_bytes: u64,
}

/// When bytes came, and how long they were under way, less the least of all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delay {
    /// The receiver's sample.
    pub row: usize,
    /// When they came, by the receiver's clock, in microseconds.
    pub at_us: f64,
    /// How long they waited on the way, in microseconds.
    pub queued_us: f64,
}

/// IPv4 or IPv6, TCP and its timestamps.
const HEADERS: [u32; 4] = [52, 40, 72, 60];

impl<'a> Trace<'a> {
    /// Of the only stream of a direction.
    pub fn of(measured: &'a Measured, way: Way) -> Option<Self> {
        let (senders, receivers) = match Side::Near.sends(way) {
            true => (&measured.near_seen, &measured.far_seen),
            false => (&measured.far_seen, &measured.near_seen),
        };
        let find = |seen: &'a [Seen]| seen.iter().find(|seen| seen.way == way);
        let (sender, receiver) = find(senders).zip(find(receivers))?;
        let mss = sender.end.mss_bytes.max(1);
        let mtu = sender.end.path_mtu_bytes;
        let headers = mtu.checked_sub(mss).filter(|headers| HEADERS.contains(headers)).unwrap_or(HEADERS[0]);
        let sent_bytes = sender.rows.last().map_or(0, |row| row.sent_bytes);
        Some(Self {
            sent: &sender.rows,
            arrived: &receiver.rows,
            mss_bytes: f64::from(mss),
            packet_bytes: f64::from(mss) + f64::from(headers),
            mtu_bytes: mtu,
            sent_bytes,
        })
    }

    /// When the sender had first sent the byte at an offset, by its clock in microseconds.
    fn sent_us(&self, offset: u64) -> Option<f64> {
        let at = self.sent.partition_point(|row| row.sent_bytes < offset);
        self.sent.get(at).map(|row| row.at_us as f64)
    }

    /// The receiver's first sample in which a segment had come out of order.
    pub fn first_hole(&self) -> Option<usize> {
        let before = self.arrived.first()?.retransmits;
        self.arrived.iter().position(|row| row.retransmits > before)
    }

    /// How long what came before the first hole was under way: what comes behind a hole waits at the receiver, too.
    pub fn delays(&self) -> Vec<Delay> {
        let until = self.first_hole().unwrap_or(self.arrived.len());
        let mut delays = Vec::new();
        let mut before = self.arrived.first().map_or(0, |row| row.kernel_bytes);
        for (row, arrived) in self.arrived[..until].iter().enumerate() {
            if arrived.kernel_bytes > before {
                before = arrived.kernel_bytes;
                if let Some(sent_us) = self.sent_us(arrived.kernel_bytes) {
                    let at_us = arrived.at_us as f64;
                    delays.push(Delay { row, at_us, queued_us: at_us - sent_us });
                }
            }
        }
        let least = delays.iter().map(|delay| delay.queued_us).min_by(f64::total_cmp).unwrap_or(0.0);
        delays.iter_mut().for_each(|delay| delay.queued_us -= least);
        delays
    }

    /// IP bytes that had come by a receiver's sample, those that came twice among them.
    fn arrived_bytes(&self, row: usize) -> f64 {
        f64::from(self.arrived[row].delivered) * self.packet_bytes
    }

    /// IP bytes that came from one sample to another.
    pub fn came_bytes(&self, from: usize, to: usize) -> f64 {
        (self.arrived_bytes(to) - self.arrived_bytes(from)).max(0.0)
    }

    /// The most that came in any time of about `width_us`, up to the sample `until`, in bit/s.
    pub fn peak_bit_s(&self, width_us: f64, until: usize) -> Option<f64> {
        let mut peak: Option<f64> = None;
        let mut from = 0;
        for to in 0..until.min(self.arrived.len()) {
            let span = |from: usize| self.arrived[to].at_us.saturating_sub(self.arrived[from].at_us) as f64;
            while from < to && span(from + 1) >= width_us {
                from += 1;
            }
            if span(from) >= width_us {
                let rate = self.came_bytes(from, to) * 8e6 / span(from);
                peak = Some(peak.map_or(rate, |peak| peak.max(rate)));
            }
        }
        peak
    }

    /// What came from one time to another by the receiver's clock, in bit/s; `None` without two samples there.
    pub fn rate_between(&self, from_us: f64, to_us: f64) -> Option<f64> {
        let from = self.arrived.partition_point(|row| (row.at_us as f64) < from_us);
        let to = self.arrived.partition_point(|row| row.at_us as f64 <= to_us).checked_sub(1)?;
        let (first, last) = (self.arrived.get(from)?, self.arrived.get(to)?);
        let time_us = last.at_us.saturating_sub(first.at_us) as f64;
        (time_us > 0.0).then(|| self.came_bytes(from, to) * 8e6 / time_us)
    }

    /// Segments sent again in all, and delivered.
    pub fn losses(&self) -> (u32, u32) {
        self.sent.last().map_or((0, 0), |row| (row.retransmits, row.delivered))
    }

    /// The largest congestion window before the first loss.
    pub fn window_before_loss(&self) -> u32 {
        let until = self.sent.iter().position(|row| row.retransmits > 0).unwrap_or(self.sent.len());
        self.sent[..until].iter().map(|row| row.cwnd).max().unwrap_or(0)
    }
}
