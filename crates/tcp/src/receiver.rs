//! The receiving half: reassembly, the advertised window, and when to acknowledge.
//!
//! Positions count the peer's sequence numbers without wrapping: its SYN has position 0, its first byte 1.

use ekiden_packet::{Ecn, SackBlock, SackBlocks, Segment, Seq, Timestamps};
use ekiden_units::Time;

use crate::ranges::Ranges;
use crate::rtt::on_tick;
use crate::settings::TcpSettings;
use crate::tuning::{FIRST_WINDOW, Standing, Tuning};

/// The number of received ranges that are remembered, latest first, to be reported in SACK blocks (RFC 2018, section 4).
const REPORTED: usize = 4;

/// A timestamp of the peer older than this is invalid (RFC 7323, section 5.5).
const TIMESTAMP_AGE_MOST: Time = Time::secs(24 * 86_400);

/// The limit of challenge ACKs: this many in this time (RFC 5961, section 7).
const CHALLENGES: (u32, Time) = (10, Time::secs(5));

/// Largest shift of window scaling (RFC 7323, section 2.3).
const SCALE_MOST: u8 = 14;

/// The maximum number of ranges held behind gaps is the buffer's size divided by `RANGE_BYTES`, within the bounds `RANGES_MOST`. So
/// a peer that sends only every second byte does not make the receiver keep millions.
const RANGE_BYTES: u64 = 256;
const RANGES_MOST: (u64, u64) = (64, 65_536);

/// Rounding up advertises at most this part of the buffer beyond it.
const SURPLUS: u64 = 16;

#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    first: Seq,
    /// RCV.NXT.
    next: u64,
    /// What arrived beyond `next`.
    held: Ranges,
    /// The maximum number of ranges in `held`.
    ranges_most: usize,
    /// The ranges of `held` that changed last, the latest first.
    recent: Vec<(u64, u64)>,
    /// The position of the peer's FIN, if it is known.
    end: Option<u64>,
    /// The position up to which the application has read.
    read: u64,
    /// The largest window that is advertised now.
    buffer: u64,
    /// The state of receive buffer autotuning, if it is on.
    tuning: Option<Tuning>,
    scale: u8,
    /// The largest right edge of the window that was advertised.
    edge: u64,
    /// The position up to which acknowledgements were sent.
    acked: u64,
    ack_now: bool,
    /// Challenge ACKs sent, and since when.
    challenges: (u32, Time),
    ack_at: Option<Time>,
    quick_acks: u32,
    ack_every: u32,
    ack_delay: Time,
    acks_by_clock: bool,
    acks_wait_for_reader: bool,
    /// The largest segment seen: the peer's effective MSS.
    largest: u64,
    sack: bool,
    /// A marked packet has arrived, and the sender has not said yet that it slows down (RFC 3168, section 6.1.3).
    echoes_congestion: bool,
    /// TS.Recent, and when it was set.
    timestamp: Option<(u32, Time)>,
}

/// What a segment brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accepted {
    /// Bytes of the segment's payload to skip: they had arrived before.
    pub skip: u32,
    /// Bytes of the payload after those that are to be kept.
    pub length: u32,
    /// Where in the peer's stream they belong, its first byte being 0.
    pub offset: u64,
}

/// The shift by which a buffer's size fits into 16 bits.
pub(crate) fn scale_for(buffer: u64) -> u8 {
    (0..SCALE_MOST).find(|scale| buffer >> scale <= u64::from(u16::MAX)).unwrap_or(SCALE_MOST)
}

impl Receiver {
    /// `first` is the sequence number of the peer's SYN; `scaled` and `sack` whether both ends want them.
    pub fn new(settings: &TcpSettings, first: Seq, scaled: bool, sack: bool) -> Self {
        let scale = if scaled { scale_for(settings.receive_buffer) } else { 0 };
        let most = settings.receive_buffer.min(u64::from(u16::MAX) << scale);
        let tuning = settings.autotunes_window.then(|| Tuning::new(most, settings.mss));
        let buffer = if tuning.is_some() { most.min(FIRST_WINDOW) } else { most };
        Self {
            first,
            next: 1,
            held: Ranges::default(),
            ranges_most: (most / RANGE_BYTES).clamp(RANGES_MOST.0, RANGES_MOST.1) as usize,
            recent: Vec::with_capacity(REPORTED + 1),
            end: None,
            read: 1,
            buffer,
            tuning,
            scale,
            // The SYN's own window is not scaled (RFC 7323, section 2.2).
            edge: 1 + buffer.min(u16::MAX.into()),
            acked: 0,
            ack_now: true,
            challenges: (0, Time(0)),
            ack_at: None,
            quick_acks: settings.quick_acks,
            ack_every: settings.ack_every,
            ack_delay: settings.ack_delay,
            acks_by_clock: settings.acks_by_clock,
            acks_wait_for_reader: settings.acks_wait_for_reader,
            largest: 1,
            sack,
            echoes_congestion: false,
            timestamp: None,
        }
    }

    /// RCV.NXT.
    pub fn next(&self) -> Seq {
        self.first + self.next as u32
    }

    /// The position of a sequence number, which is less than 2^31 from RCV.NXT.
    fn position(&self, seq: Seq) -> i64 {
        self.next as i64 + i64::from(seq.since(self.next()))
    }

    /// Whether a SYN is later than all that the peer has sent: by its sequence number or its timestamp, and not earlier by its
    /// timestamp.
    pub fn is_later(&self, syn: &Segment) -> bool {
        let by_seq = syn.seq.since(self.next()) > 0;
        match (self.timestamp, syn.options.timestamps) {
            (Some((recent, _)), Some(Timestamps { value, .. })) => match value.wrapping_sub(recent) as i32 {
                0 => by_seq,
                difference => difference > 0,
            },
            _ => by_seq,
        }
    }

    /// Whether the segment is one that may arrive now (RFC 9293, section 3.10.7.4), and not older than one that has
    /// arrived (PAWS: RFC 7323, section 5.3).
    pub fn is_acceptable(&self, now: Time, segment: &Segment) -> bool {
        let (start, next, edge) = (self.position(segment.seq), self.next as i64, self.edge as i64);
        let length = i64::from(segment.sequence_len());
        let in_window = match length {
            // At the edge too: the special allowance for valid ACKs while the window is closed.
            0 => next <= start && start <= edge,
            _ => start < edge && start + length > next,
        };
        in_window && !self.is_stale(now, segment)
    }

    fn is_stale(&self, now: Time, segment: &Segment) -> bool {
        match (self.timestamp, segment.options.timestamps) {
            (Some((recent, since)), Some(Timestamps { value, .. })) if !segment.flags.rst => {
                (value.wrapping_sub(recent) as i32) < 0 && now.since(since) < TIMESTAMP_AGE_MOST
            }
            _ => false,
        }
    }

    /// Remembers the peer's timestamp (RFC 7323, section 4.3).
    pub fn note_timestamp(&mut self, now: Time, segment: &Segment) {
        if let Some(Timestamps { value, .. }) = segment.options.timestamps
            && self.position(segment.seq) <= self.acked as i64
            && self.timestamp.is_none_or(|(recent, since)| {
                value.wrapping_sub(recent) as i32 >= 0 || now.since(since) >= TIMESTAMP_AGE_MOST
            })
        {
            self.timestamp = Some((value, now));
        }
    }

    /// The peer's timestamp, to be echoed.
    pub fn timestamp(&self) -> u32 {
        self.timestamp.map_or(0, |(value, _)| value)
    }

    /// An acceptable segment arrives: notes whether it was marked on the way.
    pub fn note_ecn(&mut self, segment: &Segment) {
        let was_echoing = self.echoes_congestion;
        // The answer to an earlier mark may have a mark itself.
        self.echoes_congestion = was_echoing && !segment.flags.cwr || segment.ecn == Ecn::Ce;
        // The sender learns of it at once, as in Linux (`tcp_ecn_check_ce`, `tcp_ecn_accept_cwr`).
        self.ack_now |= segment.payload > 0 && (self.echoes_congestion && !was_echoing || segment.flags.cwr);
    }

    /// An acceptable segment arrives: lets the window grow, if it is tuned.
    pub fn tune(&mut self, now: Time, segment: &Segment) {
        if self.tuning.is_none() || segment.payload == 0 {
            return;
        }
        let standing = Standing {
            next: self.next,
            window: self.edge.saturating_sub(self.acked),
            read: self.read,
            has_read_all: self.readable() == 0,
            largest: self.largest,
        };
        if let Some(window) = self.tuning.as_mut().and_then(|tuning| tuning.on_segment(now, segment, &standing)) {
            self.buffer = self.buffer.max(window);
        }
    }

    /// Takes an acceptable segment's payload and FIN.
    pub fn take(&mut self, now: Time, segment: &Segment) -> Accepted {
        if segment.payload == 0 && !segment.flags.fin {
            return Accepted::default();
        }
        let at = self.position(segment.seq);
        // A repeated SYN takes the sequence number before the payload.
        let at = at + i64::from(segment.flags.syn);
        let start = at.max(self.next as i64) as u64;
        let data_end = (at + i64::from(segment.payload)).max(0) as u64;
        let limit = self.end.unwrap_or(u64::MAX).min(self.edge);
        let end = data_end.min(limit);
        self.largest = self.largest.max(segment.payload.into());
        let mut place_end = end;
        if segment.flags.fin && data_end >= self.next && data_end <= limit {
            self.end = Some(data_end);
            // The FIN has its place too, and is reported if it is early.
            place_end = data_end + 1;
            self.ack_now = true;
        }
        if start >= place_end || start > self.next && !self.has_room_behind_gap(start, place_end) {
            self.ack_now = true;
            return Accepted::default();
        }
        self.place(now, start, place_end);
        match end.checked_sub(start).filter(|length| *length > 0) {
            Some(length) => Accepted { skip: (start as i64 - at) as u32, length: length as u32, offset: start - 1 },
            None => Accepted::default(),
        }
    }

    /// Whether a piece behind a gap may be held.
    fn has_room_behind_gap(&self, start: u64, end: u64) -> bool {
        self.held.len() < self.ranges_most || self.held.touches(start, end)
    }

    fn place(&mut self, now: Time, start: u64, end: u64) {
        if start > self.next {
            // RFC 5681, section 4.2: at once, so that the sender learns of the gap.
            let joined = self.held.insert(start, end);
            self.recent.retain(|known| known.1 < joined.0 || joined.1 < known.0);
            self.recent.insert(0, joined);
            self.recent.truncate(REPORTED);
            self.ack_now = true;
            return;
        }
        // RFC 5681, section 4.2: at once too if the segment fills a gap.
        self.ack_now |= !self.held.is_empty();
        (_, self.next) = self.held.insert(self.next, end);
        self.held.remove_before(self.next);
        self.recent.retain(|known| known.0 > self.next);
        if self.quick_acks > 0 {
            self.quick_acks -= 1;
            self.ack_now = true;
        } else if self.covers_enough() && !self.waits_for_reader() {
            self.ack_now = true;
        } else if self.ack_at.is_none() {
            self.ack_at = Some(match self.acks_by_clock {
                true => on_tick(now + Time(1), self.ack_delay),
                false => now + self.ack_delay,
            });
        }
    }

    /// Whether an acknowledgement would cover as many segments as one may.
    fn covers_enough(&self) -> bool {
        self.next - self.acked > u64::from(self.ack_every - 1) * self.largest
    }

    /// Whether an acknowledgement waits for the application: it would move the window's right edge by less than it acknowledges.
    fn waits_for_reader(&self) -> bool {
        self.acks_wait_for_reader && (self.read + self.buffer).saturating_sub(self.next) < self.edge - self.acked
    }

    /// Bytes in order that the application has not taken.
    pub fn readable(&self) -> u64 {
        let end = self.end.map_or(self.next, |end| end.min(self.next));
        end - self.read
    }

    /// The application takes bytes. Announces the window if it has opened by enough (RFC 9293, section 3.8.6.2.2).
    pub fn read(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.readable());
        self.read += taken;
        self.ack_now |= taken > 0 && self.acks_wait_for_reader && self.covers_enough();
        let opened = (self.read + self.buffer).saturating_sub(self.edge);
        // Twice the step that silly window avoidance requires: ordinary acknowledgements announce smaller steps.
        if self.end.is_none()
            && opened >= (2 * self.largest).min(self.buffer / 2)
            && opened > 0
            && self.is_tight(opened)
            && !self.is_nearly_full()
        {
            self.ack_now = true;
        }
        taken
    }

    /// Linux announces nothing new while less than a sixteenth of the buffer is free (`__tcp_select_window`).
    fn is_nearly_full(&self) -> bool {
        self.acks_wait_for_reader && (self.read + self.buffer).saturating_sub(self.next) < self.buffer / 16
    }

    /// Less than half of the buffer is advertised; in Linux besides at most half of what would be (`__tcp_cleanup_rbuf`).
    fn is_tight(&self, opened: u64) -> bool {
        let advertised = self.edge - self.next.min(self.edge);
        advertised < self.buffer / 2 && (opened >= advertised || !self.acks_wait_for_reader)
    }

    /// Whether the peer's FIN has arrived with all before it.
    pub fn is_finished(&self) -> bool {
        self.end.is_some_and(|end| end < self.next)
    }

    /// Makes an acknowledgement due at once.
    pub fn must_ack(&mut self) {
        self.ack_now = true;
    }

    /// The segment is not acceptable. Unacceptable data is always acknowledged: an earlier ACK of it may have been lost.
    pub fn refuse(&mut self, now: Time, segment: &Segment) {
        if segment.payload > 0 || segment.flags.fin {
            self.must_ack();
        } else {
            self.challenge(now);
        }
    }

    /// Makes a challenge ACK due (RFC 5961), within a limit: two ends that both got forged segments would otherwise answer
    /// each other for ever.
    pub fn challenge(&mut self, now: Time) {
        let (count, since) = self.challenges;
        let (count, since) = if now.since(since) < CHALLENGES.1 { (count, since) } else { (0, now) };
        if count < CHALLENGES.0 {
            self.challenges = (count + 1, since);
            self.must_ack();
        }
    }

    pub fn ack_is_due(&self, now: Time) -> bool {
        self.ack_now || self.ack_at.is_some_and(|at| at <= now)
    }

    /// When a delayed acknowledgement is due.
    pub fn ack_at(&self) -> Option<Time> {
        self.ack_at
    }

    /// Fills in an acknowledgement, the window and SACK blocks; nothing is due afterwards.
    pub fn acknowledge(&mut self, segment: &mut Segment) {
        segment.ack = Some(self.next());
        segment.window = self.window(segment.flags.syn);
        segment.flags.ece = self.echoes_congestion;
        if self.sack && !segment.flags.syn {
            segment.options.sack = self.blocks(if segment.options.timestamps.is_some() { 3 } else { 4 });
        }
        self.acked = self.next;
        self.ack_now = false;
        self.ack_at = None;
    }

    fn window(&mut self, of_syn: bool) -> u16 {
        let edge = self.read + self.buffer;
        let scale = if of_syn { 0 } else { self.scale };
        // Rounded up, so that the edge never retreats by what the field cannot tell (Linux: `__tcp_select_window`). What many
        // small segments add to a buffer that nobody reads stays a small part of it.
        let most = (edge + self.buffer / SURPLUS).saturating_sub(self.next);
        let below_unit = (1 << scale) - 1;
        let round = |window: u64| Some((window + below_unit) & !below_unit).filter(|up| *up <= most).unwrap_or(window);
        let advertised = self.edge.saturating_sub(self.next);
        let free = round(edge.saturating_sub(self.next));
        // Silly window avoidance: small steps are not announced (RFC 9293, section 3.8.6.2.2).
        let least_step = self.largest.min(self.buffer / 2);
        let window = if self.is_nearly_full() || free < advertised + least_step { round(advertised) } else { free };
        let field = u16::try_from(window >> scale).unwrap_or(u16::MAX);
        self.edge = self.edge.max(self.next + (u64::from(field) << scale));
        field
    }

    fn blocks(&self, most: usize) -> SackBlocks {
        self.recent
            .iter()
            .take(most)
            .map(|(start, end)| SackBlock { start: self.first + *start as u32, end: self.first + *end as u32 })
            .collect()
    }
}

#[cfg(test)]
mod tests;
