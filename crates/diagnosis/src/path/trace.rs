//! A traced stream: when its bytes were sent, when they came, and how long those that came in order were under way.

use ekiden_record::Way;
use ekiden_tcp_info::TcpInfo;
use ekiden_units::quantile;

use crate::latency::Answer;
use crate::measured::Measured;
use ekiden_measure_proto::message::StreamEnd;
use ekiden_measure_proto::row::Row;
use ekiden_measure_proto::seen::{LoadSeen, Side};

/// A sample that is later than this part of a round trip, and than this time in microseconds, may be mistaken for a queue.
const LATE_PART: f64 = 0.25;
const LATE_LEAST_US: f64 = 2_000.0;

/// Limit on the number of time steps that are evaluated, whatever the clocks of the ends say.
pub const STEPS_MOST: u32 = 100_000;

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
    /// User data in the longest segment that has arrived whole, in bytes, where the ends can tell.
    pub arrived_mss_bytes: Option<f64>,
    /// Whether the sender's kernel looks for the path's MTU by itself, and begins with short segments (`tcp_mtu_probing` = 2).
    pub begins_short: bool,
    /// The path's MTU as the sender's kernel knows it; 0 if it does not.
    pub mtu_bytes: u32,
    /// Bytes sent, in all.
    pub sent_bytes: u64,
    /// How late the looks of both ends were together: 95 % of them were no later, in microseconds.
    pub late_us: f64,
    /// How late the latest look of the sender and of the receiver was, in microseconds.
    latest_us: [f64; 2],
    /// The probes that went the same way: when each was sent, or, where it went to this end, when it came, by this end's clock in
    /// microseconds since the load began; in order.
    probes_us: Vec<f64>,
    /// Bytes of one of their IP packets.
    probe_bytes: f64,
    way: Way,
}

/// Bytes of a probe and of its answer on the line, with IPv4 and TCP with timestamps. They acknowledge each other.
pub const PROBE_BYTES: f64 = 68.0;
pub const ANSWER_BYTES: f64 = 76.0;

/// When bytes came, and how long they were under way, less the least of all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delay {
    /// The receiver's sample.
    pub row: usize,
    /// When they were sent, by the sender's clock, in microseconds.
    pub sent_us: f64,
    /// When they came, by the receiver's clock, in microseconds.
    pub at_us: f64,
    /// How long they waited on the way, in microseconds.
    pub queued_us: f64,
}

fn late_us(looks: &[u32]) -> f64 {
    let mut late = looks.to_vec();
    late.sort_unstable();
    quantile::above(&late, 95).map_or(0.0, f64::from)
}

/// The longest queue of some.
pub fn longest_us(delays: &[Delay]) -> f64 {
    delays.iter().map(|delay| delay.queued_us).fold(0.0, f64::max)
}

/// Headers of a segment, in bytes: IPv4 (RFC 791) or IPv6 (RFC 8200), TCP (RFC 9293) and its timestamps (RFC 7323).
const IPV4: u32 = 20;
const IPV6: u32 = 40;
const TCP: u32 = 20;
const TIMESTAMPS: u32 = 12;

/// Least number of acknowledged segments that shows that such segments arrive.
const WHOLE_LEAST: u64 = 10;

/// The longest segment that has arrived whole. The receiver's kernel says it of longer ones than it takes for granted; shorter ones have arrived
/// if they were all that was sent.
fn arrived(sender: &StreamEnd, receiver: &StreamEnd) -> Option<u32> {
    let (sent, arrived) = sender.segments.zip(receiver.segments)?;
    if arrived.longest_bytes > 0 {
        return Some(arrived.longest_bytes.min(sent.longest_bytes));
    }
    let is_short = (1..=TcpInfo::ASSUMED_MSS_BYTES).contains(&sent.longest_bytes);
    (is_short && sent.whole_bytes >= WHOLE_LEAST * u64::from(sent.longest_bytes)).then_some(sent.longest_bytes)
}

impl<'a> Trace<'a> {
    /// Of the only stream of a direction.
    pub fn of(measured: &'a Measured, way: Way) -> Option<Self> {
        let (senders, receivers) = match Side::Near.sends(way) {
            true => (&measured.near_seen, &measured.far_seen),
            false => (&measured.far_seen, &measured.near_seen),
        };
        let find = |seen: &'a [LoadSeen]| seen.iter().find(|seen| seen.way == way);
        let (sender, receiver) = find(senders).zip(find(receivers))?;
        let mss = sender.end.mss_bytes.max(1);
        let mtu = sender.end.path_mtu_bytes;
        let ip = if measured.from.ip().to_canonical().is_ipv4() { IPV4 } else { IPV6 };
        let headers = ip + TCP + if sender.end.has_timestamps { TIMESTAMPS } else { 0 };
        let sent_bytes = sender.rows.last().map_or(0, |row| row.sent_bytes);
        let probe_ns = |answer: &Answer| if way == Way::Forth { answer.sent_ns } else { answer.back_ns };
        let since_us = |ns: u64| (ns as f64 - measured.began_ns as f64) / 1e3;
        let mut probes_us: Vec<_> = measured.answers.iter().map(|answer| since_us(probe_ns(answer))).collect();
        probes_us.sort_by(f64::total_cmp);
        Some(Self {
            sent: &sender.rows,
            arrived: &receiver.rows,
            mss_bytes: f64::from(mss),
            packet_bytes: f64::from(mss) + f64::from(headers),
            arrived_mss_bytes: arrived(&sender.end, &receiver.end).map(f64::from),
            begins_short: sender.end.segments.is_some_and(|segments| segments.mtu_probing == 2),
            mtu_bytes: mtu,
            sent_bytes,
            late_us: [sender, receiver].map(|seen| late_us(&seen.end.late_us)).iter().sum(),
            latest_us: [sender, receiver].map(|seen| seen.end.late_us.iter().copied().max().map_or(0.0, f64::from)),
            probes_us,
            probe_bytes: if way == Way::Forth { PROBE_BYTES } else { ANSWER_BYTES },
            way,
        })
    }

    /// The sender's first sample in which it had sent the byte at an offset.
    fn sent_row(&self, offset: u64) -> Option<usize> {
        let at = self.sent.partition_point(|row| row.sent_bytes < offset);
        (at < self.sent.len()).then_some(at)
    }

    /// How late a sample may be without being mistaken for a queue, in microseconds.
    fn late_most_us(&self) -> f64 {
        let rtt_us = self.sent.iter().map(|row| row.rtt_min_us).filter(|rtt| *rtt > 0).min().unwrap_or(0);
        (f64::from(rtt_us) * LATE_PART).max(LATE_LEAST_US)
    }

    /// How late the latest look of an end was, in microseconds.
    pub fn latest_us(&self) -> f64 {
        self.latest_us.into_iter().fold(0.0, f64::max)
    }

    /// How late an end's latest sample was, in microseconds, if that could be mistaken for a queue.
    pub fn stalled_us(&self) -> Option<f64> {
        Some(self.latest_us()).filter(|latest_us| *latest_us > self.late_most_us())
    }

    /// Whether a sample may have been taken by a look that was too late: it follows a pause, and that end was late at some time.
    fn may_be_late(&self, rows: &[Row], row: usize, latest_us: f64) -> bool {
        let most_us = self.late_most_us();
        let before_us = row.checked_sub(1).map_or(0, |before| rows[before].at_us);
        latest_us > most_us && rows[row].at_us.saturating_sub(before_us) as f64 > most_us
    }

    /// The receiver's first sample in which a segment had come out of order.
    pub fn first_hole(&self) -> Option<usize> {
        let before = self.arrived.first()?.retransmits;
        self.arrived.iter().position(|row| row.retransmits > before)
    }

    /// The end of the bytes that surely came at their first sending: all that were acknowledged before a lost one was sent again. A probe for
    /// the tail (RFC 8985) is sent where none is known to be lost.
    fn sent_once(&self) -> u64 {
        let again = self.sent.iter().position(|row| row.retransmits > 0 && row.lost > 0);
        again.map_or(u64::MAX, |row| row.checked_sub(1).map_or(0, |before| self.sent[before].kernel_bytes))
    }

    /// How long what came before the first hole was under way: what comes behind a hole waits at the receiver, too. Of a segment that was lost
    /// with all that followed it the receiver sees no hole.
    pub fn delays(&self) -> Vec<Delay> {
        let (until, most) = (self.first_hole().unwrap_or(self.arrived.len()), self.sent_once());
        let mut delays = Vec::new();
        let mut before = self.arrived.first().map_or(0, |row| row.kernel_bytes);
        for (row, arrived) in self.arrived[..until].iter().enumerate() {
            if arrived.kernel_bytes > before && arrived.kernel_bytes <= most {
                before = arrived.kernel_bytes;
                let sent = self.sent_row(arrived.kernel_bytes);
                let sent = sent.filter(|sent| !self.may_be_late(self.sent, *sent, self.latest_us[0]));
                if let Some(sent) = sent.filter(|_| !self.may_be_late(self.arrived, row, self.latest_us[1])) {
                    let (sent_us, at_us) = (self.sent[sent].at_us as f64, arrived.at_us as f64);
                    delays.push(Delay { row, sent_us, at_us, queued_us: at_us - sent_us });
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

    /// IP bytes that the line carried from one arrival to another, both before the first hole: the stream's, and the probes' between them.
    pub fn carried_bytes(&self, from: &Delay, to: &Delay) -> f64 {
        let [first, last] = [from, to].map(|delay| &self.arrived[delay.row]);
        let segments = f64::from(last.delivered.saturating_sub(first.delivered));
        let payload = last.kernel_bytes.saturating_sub(first.kernel_bytes) as f64;
        // Probes that were sent with these bytes came with them.
        let [from_us, to_us] = [from, to].map(|delay| if self.way == Way::Forth { delay.sent_us } else { delay.at_us });
        let before = |us: f64| self.probes_us.partition_point(|probe_us| *probe_us < us);
        let probes = before(to_us).saturating_sub(before(from_us)) as f64;
        payload + segments * (self.packet_bytes - self.mss_bytes) + probes * self.probe_bytes
    }

    /// Segments that came twice: they were sent again although they had not been lost.
    ///
    /// Short segments, such as the preamble, came before the first hole and are counted there; behind it only the last one is short.
    pub fn came_twice(&self) -> u32 {
        let before = match self.first_hole() {
            Some(hole) => hole.checked_sub(1).map(|row| self.arrived[row]).unwrap_or_default(),
            None => return 0,
        };
        let came = self.arrived.last().map_or(0, |row| row.delivered.saturating_sub(before.delivered));
        let rest = self.sent_bytes.saturating_sub(before.kernel_bytes) as f64;
        (f64::from(came) - (rest / self.mss_bytes).ceil()).max(0.0) as u32
    }

    /// The most that came within a time of `width_us`, in bytes of IP packets.
    pub fn most_bytes_within(&self, width_us: f64) -> f64 {
        let mut from = 0;
        let most = (0..self.arrived.len()).map(|to| {
            while self.arrived[to].at_us.saturating_sub(self.arrived[from].at_us) as f64 > width_us {
                from += 1;
            }
            self.came_bytes(from, to)
        });
        most.fold(0.0, f64::max)
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

    /// When the first look was, and when the last byte had come, by the receiver's clock in microseconds.
    pub fn arrival_us(&self) -> Option<(f64, f64)> {
        let (first, last) = self.arrived.first().zip(self.arrived.last())?;
        let until = self.arrived.iter().find(|row| row.kernel_bytes >= last.kernel_bytes)?;
        Some((first.at_us as f64, until.at_us as f64))
    }

    /// What passed in a time by the receiver's clock, pauses included, in bit/s; `None` if the trace ends before.
    pub fn passed_bit_s(&self, from_us: f64, to_us: f64) -> Option<f64> {
        self.arrived.last().filter(|last| last.at_us as f64 >= to_us)?;
        let before = |us: f64| self.arrived.partition_point(|row| row.at_us as f64 <= us).checked_sub(1);
        let (from, to) = before(from_us).zip(before(to_us))?;
        (to_us > from_us).then(|| self.came_bytes(from, to) * 8e6 / (to_us - from_us))
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
