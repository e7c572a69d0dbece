//! The sending half: what may be sent, and when.
//!
//! Positions count this end's sequence numbers without wrapping: the SYN has position 0, the first byte 1. What
//! acknowledgements and timeouts do to the congestion window stands in `recovery.rs`.

use ekiden_congestion::{CongestionControl, Window};
use ekiden_units::Time;
use ekiden_wire::{Segment, Seq};

use crate::recovery::{Phase, Proportion};
use crate::rtt::{Estimator, on_tick};
use crate::scoreboard::{Scoreboard, Sent};
use crate::settings::{Pipe, Settings};

pub(crate) struct Sender {
    pub settings: Settings,
    first: Seq,
    /// SND.UNA.
    pub una: u64,
    /// SND.NXT.
    pub next: u64,
    /// The end of what the application has written.
    written: u64,
    /// No more will be written: a FIN follows.
    finished: bool,
    /// The application found the send buffer full and was not let write since.
    starved: bool,
    /// Payload in a full segment.
    pub mss: u32,
    /// The right edge of the peer's window.
    edge: u64,
    /// The largest window that the peer has offered.
    window_most: u64,
    /// SND.WL1, and the shift of the peer's windows.
    window_seq: Seq,
    scale: u8,
    pub sack: bool,
    pub window: Window,
    pub control: Box<dyn CongestionControl + Send>,
    pub phase: Phase,
    pub duplicates: u32,
    pub proportion: Proportion,
    /// [`Pipe::Acknowledgements`].
    pub counted: u32,
    /// The segment that is timed, if only one is: its end, and when it was sent.
    pub timed: Option<(u64, Time)>,
    /// The first retransmission of a recovery is sent whatever the pipe holds.
    pub must_retransmit: bool,
    /// The last segment was sent again in this recovery (RFC 6675, NextSeg(), rule 4).
    pub rescued: bool,
    /// `next` at the last loss event: `recover` of RFC 6582.
    pub recover: u64,
    pub board: Scoreboard,
    pub estimator: Estimator,
    pub rto_at: Option<Time>,
    /// Timeouts and probes in a row without an answer.
    pub unanswered: u32,
    /// `una` at the last timeout.
    pub timeout_una: Option<u64>,
    probe_at: Option<Time>,
    probes: u32,
    probe_due: bool,
    last_sent: Time,
    /// The congestion window was what stopped the last sending.
    pub is_limited: bool,
    /// The most that was outstanding in the last window of data, which ends at the second.
    pub most_out: (u32, u64),
    pub retransmits: u64,
    pub timeouts: u64,
    pub recoveries: u64,
}

/// A segment to be sent: its place in the stream and what belongs into its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub start: u64,
    pub payload: u32,
    pub fin: bool,
    pub push: bool,
}

impl Sender {
    pub fn new(settings: &Settings, first: Seq, control: Box<dyn CongestionControl + Send>) -> Self {
        Self {
            settings: settings.clone(),
            first,
            una: 0,
            next: 0,
            written: 1,
            finished: false,
            starved: false,
            mss: 536,
            edge: 1,
            window_most: 0,
            window_seq: Seq(0),
            scale: 0,
            sack: false,
            window: Window { cwnd: settings.initial_window, ..Window::default() },
            control,
            phase: Phase::Open,
            duplicates: 0,
            proportion: Proportion::default(),
            counted: 0,
            timed: None,
            must_retransmit: false,
            rescued: false,
            recover: 0,
            board: Scoreboard::default(),
            estimator: Estimator::new(settings.rto),
            rto_at: None,
            unanswered: 0,
            timeout_una: None,
            probe_at: None,
            probes: 0,
            probe_due: false,
            last_sent: Time(0),
            is_limited: false,
            most_out: (0, 0),
            retransmits: 0,
            timeouts: 0,
            recoveries: 0,
        }
    }

    pub fn seq(&self, position: u64) -> Seq {
        self.first + position as u32
    }

    /// The position of an acknowledgement number near what is outstanding.
    pub fn position(&self, seq: Seq) -> i64 {
        self.una as i64 + i64::from(seq.since(self.seq(self.una)))
    }

    /// Whether `ack` acknowledges the SYN, which must have been sent for it, and nothing more.
    pub fn is_ack_of_syn(&self, ack: Seq) -> bool {
        self.next > 0 && self.position(ack) == 1
    }

    /// The SYN, for the first time.
    fn open(&mut self, now: Time) -> Outgoing {
        self.board.push(0, 1, false, now);
        self.next = 1;
        self.timed = Some((1, now));
        self.arm(now);
        Outgoing { start: 0, payload: 0, fin: false, push: false }
    }

    /// What the peer's SYN says: its window's shift, its effective MSS, and whether both ends want SACK.
    pub fn negotiate(&mut self, segment: &Segment, mss: u32, scale: u8, sack: bool) {
        (self.mss, self.scale, self.sack) = (mss, scale, sack);
        self.board.keeps_order = sack && self.settings.lost_retransmissions;
        self.window_seq = segment.seq;
        self.edge = self.una.max(1) + u64::from(segment.window);
        self.window_most = segment.window.into();
    }

    /// The window that a segment brings (RFC 9293, section 3.10.7.4).
    pub fn update_window(&mut self, segment: &Segment, acked: u64) {
        if segment.seq.since(self.window_seq) < 0 || acked < self.una {
            return;
        }
        self.window_seq = segment.seq;
        // A SYN's is not scaled (RFC 7323, section 2.2).
        let window = u64::from(segment.window) << if segment.flags.syn { 0 } else { self.scale };
        let was_closed = self.edge <= self.next;
        self.edge = acked + window;
        self.window_most = self.window_most.max(window);
        if was_closed && self.edge > self.next {
            (self.probe_at, self.probes, self.probe_due) = (None, 0, false);
        }
    }

    /// The least acknowledgement that may still come (RFC 5961, section 5.2).
    pub fn oldest_ack(&self) -> i64 {
        self.una as i64 - self.window_most as i64
    }

    /// The window that the peer offers.
    pub fn peer_window(&self) -> u64 {
        self.edge.saturating_sub(self.una)
    }

    /// The application writes. Returns how many bytes were taken.
    pub fn write(&mut self, bytes: u64) -> u64 {
        let piece = self.settings.send_piece.max(1);
        let most = self.room().checked_next_multiple_of(piece).unwrap_or(u64::MAX);
        let taken = if self.finished { 0 } else { bytes.min(most) };
        self.written += taken;
        if bytes > 0 {
            self.starved = self.settings.wakes_at_a_third && taken < bytes;
        }
        taken
    }

    /// How many bytes the application may write now, at least: the rest of the last piece may come on top.
    pub fn room(&self) -> u64 {
        let (buffer, held) = (self.settings.send_buffer, self.held());
        let waits = self.starved && held > buffer - buffer / 3;
        if waits { 0 } else { buffer.saturating_sub(held) }
    }

    /// Bytes that were written and are not acknowledged.
    fn held(&self) -> u64 {
        self.written - self.una.clamp(1, self.written)
    }

    /// The application has written everything.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    pub fn has_finished_writing(&self) -> bool {
        self.finished
    }

    /// Whether the peer has everything, the FIN too.
    pub fn is_finished(&self) -> bool {
        self.finished && self.una > self.written
    }

    /// Bytes that the peer has acknowledged.
    pub fn acked_bytes(&self) -> u64 {
        self.una.clamp(1, self.written) - 1
    }

    /// The next segment to be sent, if one may be.
    pub fn poll(&mut self, now: Time, established: bool) -> Option<Outgoing> {
        if self.next == 0 {
            return Some(self.open(now));
        }
        if self.board.lost() > 0 && (self.must_retransmit || self.pipe() < self.window.cwnd) {
            return self.retransmit(now);
        }
        if !established {
            return None;
        }
        if let Some(new) = self.poll_new(now) {
            return Some(new);
        }
        let may_more = self.sack
            && self.settings.unsure_retransmissions
            && matches!(self.phase, Phase::Recovery { .. })
            && self.pipe() < self.window.cwnd;
        if may_more && self.board.mark_unsure() {
            return self.retransmit(now);
        }
        if may_more && !self.rescued && self.board.mark_last() {
            self.rescued = true;
            return self.retransmit(now);
        }
        None
    }

    /// Segments in the network, as far as is known.
    pub fn pipe(&self) -> u32 {
        match (self.phase, self.settings.pipe) {
            (Phase::Recovery { .. }, Pipe::Acknowledgements) if self.sack => self.counted,
            _ => self.board.pipe(),
        }
    }

    fn retransmit(&mut self, now: Time) -> Option<Outgoing> {
        let sent = self.board.retransmit(now)?;
        // Not the first of a recovery: what it stands for was not taken off.
        self.counted += u32::from(!self.must_retransmit);
        self.must_retransmit = false;
        self.proportion.sent += 1;
        self.last_sent = now;
        self.retransmits += 1;
        // The first anew with SACK (RFC 6675, section 6); without it, partial acknowledgements have their own rule.
        if self.rto_at.is_none() || self.sack && sent.start == self.una {
            self.arm(now);
        }
        Some(self.outgoing(&sent))
    }

    fn outgoing(&self, sent: &Sent) -> Outgoing {
        // The SYN's own number is not payload.
        let payload = if sent.start == 0 { 0 } else { sent.length - u32::from(sent.fin) };
        Outgoing { start: sent.start, payload, fin: sent.fin, push: sent.end() >= self.written }
    }

    fn poll_new(&mut self, now: Time) -> Option<Outgoing> {
        // Without limited transmit what duplicate acknowledgements tell counts only in recovery.
        let in_network = match self.phase {
            Phase::Open if !self.settings.limited_transmit => self.board.len(),
            _ => self.pipe(),
        };
        let (payload, fin) = self.sendable()?;
        self.restart_after_idle(now);
        if in_network >= self.window.cwnd {
            self.is_limited = true;
            return None;
        }
        let start = self.next;
        let length = payload + u32::from(fin);
        self.board.push(start, length, fin, now);
        self.next += u64::from(length);
        self.counted += 1;
        self.timed = self.timed.or(Some((self.next, now)));
        self.proportion.sent += 1;
        self.last_sent = now;
        self.is_limited = false;
        (self.probes, self.probe_due) = (0, false);
        self.note_most_out();
        if self.rto_at.is_none() {
            self.arm(now);
        }
        Some(Outgoing { start, payload, fin, push: self.next >= self.written })
    }

    /// The payload and the FIN of the next new segment, if window, Nagle and silly window avoidance let it go.
    fn sendable(&mut self) -> Option<(u32, bool)> {
        let unsent = self.written.saturating_sub(self.next);
        let fin_is_due = self.finished && self.next <= self.written;
        if unsent == 0 && !fin_is_due {
            self.is_limited = false;
            return None;
        }
        let usable = self.edge.saturating_sub(self.next);
        let payload = u64::from(self.mss).min(unsent).min(usable);
        let fin = fin_is_due && payload == unsent && usable > payload;
        let is_whole = payload == u64::from(self.mss);
        let is_last = payload == unsent;
        let waits = match (is_whole, is_last) {
            (true, _) => false,
            (false, true) => payload + u64::from(fin) == 0 || self.settings.nagle && !fin && !self.board.is_empty(),
            // The window cuts it off (RFC 9293, section 3.8.6.2.1). The timer for probes is the override timeout.
            (false, false) => payload == 0 || payload < self.window_most / 2 && !self.probe_due,
        };
        if waits {
            self.is_limited = false;
            return None;
        }
        Some((payload as u32, fin))
    }

    /// RFC 5681, section 4.1.
    fn restart_after_idle(&mut self, now: Time) {
        if self.settings.idle_restart && self.board.is_empty() && now.since(self.last_sent) > self.estimator.rto() {
            self.window.cwnd = self.window.cwnd.min(self.settings.initial_window);
            // Once, even if nothing can be sent now.
            self.last_sent = now;
        }
    }

    fn note_most_out(&mut self) {
        if self.una >= self.most_out.1 {
            self.most_out = (0, self.next);
        }
        self.most_out.0 = self.most_out.0.max(self.board.len());
    }

    /// Starts the retransmission timer anew.
    pub fn arm(&mut self, now: Time) {
        self.rto_at = Some(on_tick(now + self.estimator.rto(), self.settings.rto.tick));
    }

    /// Starts or stops the timer for zero-window probes and small windows, when everything that may be sent was.
    pub fn arm_probe(&mut self, now: Time) {
        let waits = self.board.is_empty() && self.next <= self.written && (self.finished || self.next < self.written);
        match (waits, self.probe_at) {
            (true, None) => {
                let factor = 1u64.checked_shl(self.probes).unwrap_or(u64::MAX);
                let wait = Time(self.estimator.rto().0.saturating_mul(factor)).min(self.settings.rto.most);
                self.probe_at = Some(now + wait);
            }
            (false, Some(_)) => self.probe_at = None,
            _ => {}
        }
    }

    /// Whether a zero-window probe is to be sent. It is an old sequence number without payload, which every receiver
    /// answers (RFC 9293, section 3.10.7.4), as Linux does it; section 3.8.6.1 would send a byte.
    pub fn take_probe(&mut self) -> bool {
        std::mem::take(&mut self.probe_due)
    }

    /// The next time at which [`Sender::on_time`] has something to do.
    pub fn timeout(&self) -> Option<Time> {
        [self.rto_at, self.probe_at].into_iter().flatten().min()
    }

    /// Timers run out. Returns whether the connection is given up.
    pub fn on_time(&mut self, now: Time) -> bool {
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe_at = None;
            if self.is_given_up() {
                return true;
            }
            self.probes = self.probes.saturating_add(1);
            self.probe_due = true;
        }
        if self.rto_at.is_some_and(|at| at <= now) {
            if self.is_given_up() {
                return true;
            }
            self.time_out(now);
        }
        false
    }

    /// One more try without an answer; or as many as there may be have been made (RFC 9293, section 3.8.3: R2).
    fn is_given_up(&mut self) -> bool {
        let is_over = self.unanswered >= self.settings.retries;
        self.unanswered += u32::from(!is_over);
        is_over
    }

    /// All timers stop.
    pub fn stop(&mut self) {
        (self.rto_at, self.probe_at, self.probe_due) = (None, None, false);
    }
}
