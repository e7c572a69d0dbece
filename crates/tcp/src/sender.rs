//! The sending half: what may be sent, and when.
//!
//! Positions count this end's sequence numbers without wrapping: the SYN has position 0, the first byte 1.

use ekiden_congestion::CongestionControl;
use ekiden_packet::{Segment, Seq};
use ekiden_units::Time;

use crate::buffer::SendBuffer;
use crate::info::TcpInfo;
use crate::pacing::Pacer;
use crate::persist::PersistTimer;
use crate::rate::RateEstimator;
use crate::recovery::{Ack, Flight, Recovery};
use crate::scoreboard::{AckSummary, Scoreboard, Sent};
use crate::send_window::SendWindow;
use crate::settings::TcpSettings;
use crate::timer::RetransmissionTimer;
use crate::window::CongestionWindow;

mod departure;

pub(crate) struct Sender {
    settings: TcpSettings,
    first: Seq,
    /// SND.UNA.
    una: u64,
    /// SND.NXT.
    next: u64,
    /// Payload in a full segment.
    mss: u32,
    /// Both ends want SACK, and ECN.
    sack: bool,
    ecn: bool,
    buffer: SendBuffer,
    send_window: SendWindow,
    window: CongestionWindow,
    recovery: Recovery,
    board: Scoreboard,
    timer: RetransmissionTimer,
    persist: PersistTimer,
    /// Timeouts and probes in a row without an answer.
    unanswered: u32,
    last_sent: Time,
    retransmits: u64,
    rate: RateEstimator,
    pacer: Pacer,
}

/// A segment to be sent: its place in the stream and what belongs into its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub start: u64,
    pub payload: u32,
    pub fin: bool,
    pub push: bool,
    /// It was sent before.
    pub again: bool,
    /// It says that the window has been reduced (RFC 3168, section 6.1.2).
    pub cwr: bool,
}

/// What both ends want.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub sack: bool,
    pub ecn: bool,
}

impl Sender {
    pub fn new(settings: &TcpSettings, first: Seq, control: Box<dyn CongestionControl + Send>) -> Self {
        let window = CongestionWindow::new(settings, control);
        let mut board = Scoreboard::default();
        if window.asks_for_losses() {
            board.losses.tell();
        }
        Self {
            settings: settings.clone(),
            first,
            una: 0,
            next: 0,
            mss: 536,
            sack: false,
            ecn: false,
            buffer: SendBuffer::new(settings),
            send_window: SendWindow::new(),
            window,
            recovery: Recovery::new(settings),
            board,
            timer: RetransmissionTimer::new(settings),
            persist: PersistTimer::default(),
            unanswered: 0,
            last_sent: Time(0),
            retransmits: 0,
            rate: RateEstimator::default(),
            pacer: Pacer::default(),
        }
    }

    /// SND.UNA.
    pub fn una(&self) -> u64 {
        self.una
    }

    /// SND.NXT.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Payload in a full segment, in bytes.
    pub fn mss(&self) -> u32 {
        self.mss
    }

    /// Whether both ends want SACK.
    pub fn has_sack(&self) -> bool {
        self.sack
    }

    /// The least round-trip time.
    pub fn least_rtt(&self) -> Option<Time> {
        self.timer.estimator().least()
    }

    pub fn seq(&self, position: u64) -> Seq {
        self.first + position as u32
    }

    /// The position of an acknowledgement number near what is outstanding.
    pub fn position(&self, seq: Seq) -> i64 {
        self.una as i64 + i64::from(seq.since(self.seq(self.una)))
    }

    /// Whether the SYN has been sent, and `ack` acknowledges it and nothing more.
    pub fn is_ack_of_syn(&self, ack: Seq) -> bool {
        self.next > 0 && self.position(ack) == 1
    }

    /// The SYN, for the first time.
    fn open(&mut self, now: Time) -> Outgoing {
        self.board.push(0, 1, false, now);
        self.next = 1;
        self.timer.note_sent(now, 1);
        self.timer.start(now);
        Outgoing { start: 0, payload: 0, fin: false, push: false, again: false, cwr: false }
    }

    /// The SYN is to be sent again, now with an acknowledgement.
    pub fn reopen(&mut self) {
        self.board.mark_all();
    }

    /// Takes over the peer's SYN: its window, the scale of later windows, the effective MSS, and what both ends want.
    pub fn negotiate(&mut self, segment: &Segment, mss: u32, scale: u8, wishes: Wishes) {
        let Wishes { sack, ecn } = wishes;
        (self.mss, self.sack, self.ecn) = (mss, sack, ecn);
        self.recovery.negotiate(sack);
        self.board.keeps_order = sack && self.settings.lost_retransmissions;
        self.send_window.negotiate(segment, self.una, scale);
    }

    /// The oldest acknowledgement that is acceptable (RFC 5961, section 5.2).
    pub fn oldest_ack(&self) -> i64 {
        self.una as i64 - self.send_window.most() as i64
    }

    /// The application writes. Returns how many bytes were taken.
    pub fn write(&mut self, bytes: u64) -> u64 {
        self.buffer.write(self.una, bytes)
    }

    /// Bytes that were written and have not been sent yet, not even once.
    pub fn unsent(&self) -> u64 {
        self.buffer.end().saturating_sub(self.next)
    }

    /// How many bytes the application may write now. The last piece may exceed this, and is then taken whole.
    pub fn room(&self) -> u64 {
        self.buffer.room(self.una)
    }

    /// The application has written everything.
    pub fn finish(&mut self) {
        self.buffer.finish();
    }

    pub fn has_finished_writing(&self) -> bool {
        self.buffer.is_finished()
    }

    /// Whether the peer has everything, the FIN too.
    pub fn is_finished(&self) -> bool {
        self.buffer.is_delivered(self.una)
    }

    /// An acceptable acknowledgement of `acked`, which lies between `una` and `next`.
    pub fn on_ack(&mut self, now: Time, segment: &Segment, acked: u64, echoed: Option<Time>) {
        let advances = acked > self.una;
        let is_of_syn = advances && self.una == 0;
        let window_before = self.send_window.beyond(self.una);
        let was_in_flight = self.board.pipe();
        self.update_window(segment, acked);
        let summary = self.take(now, segment, acked);
        let window = self.send_window.beyond(self.una);
        // A peer that acknowledges with a zero window is alive (RFC 9293, sections 3.8.6 and 3.8.6.1).
        if advances || self.board.is_empty() || window == 0 {
            self.unanswered = 0;
        }
        // RFC 5681, section 2; with SACK, RFC 6675, section 2.
        let is_duplicate = match self.sack {
            true => summary.sacked > 0,
            false => !advances && !self.board.is_empty() && segment.sequence_len() == 0 && window == window_before,
        };
        self.measure(now, &summary, echoed.filter(|_| advances));
        if is_of_syn && self.recovery.timeouts() > 0 {
            self.timer.fall_back();
        }
        let is_ecn = self.ecn;
        let (recovery, flight) = self.recovery();
        let echoes_congestion = is_ecn && segment.flags.ece && !segment.flags.syn;
        let effect = recovery.on_ack(flight, Ack { advances, is_duplicate, echoes_congestion, summary });
        if effect.begins_recovery {
            self.timer.forget_timed();
        }
        if self.window.sets_rate() {
            self.sample(now, &summary, was_in_flight, echoes_congestion);
        }
        // RFC 6298, rules 5.2 and 5.3.
        if self.board.is_empty() {
            self.timer.stop();
        } else if effect.restarts_timer || self.settings.every_ack_restarts_timer {
            self.timer.start(now);
        }
    }

    /// The loss recovery, and the state that it works on.
    fn recovery(&mut self) -> (&mut Recovery, Flight<'_>) {
        let Self { recovery, board, window, una, next, mss, .. } = self;
        (recovery, Flight { board, window, una: *una, next: *next, mss: *mss })
    }

    fn update_window(&mut self, segment: &Segment, acked: u64) {
        let was_closed = self.send_window.beyond(self.next) == 0;
        self.send_window.update(segment, acked);
        if was_closed && self.send_window.beyond(self.next) > 0 {
            self.persist.on_open();
        }
    }

    /// Updates the scoreboard, and SND.UNA, from an acknowledgement.
    fn take(&mut self, now: Time, segment: &Segment, acked: u64) -> AckSummary {
        let least = self.least_rtt().filter(|_| self.settings.doubts_early_acks);
        self.board.arrived_until = least.map(|least| Time(now.0.saturating_sub(least.0)));
        let mut summary = AckSummary::default();
        if acked > self.una {
            summary = self.board.acknowledge(acked);
            // The SYN's does not open the window (RFC 5681, section 3.1).
            let syn = u32::from(self.una == 0);
            (summary.acked, summary.delivered) = (summary.acked - syn, summary.delivered.saturating_sub(syn));
            self.una = acked;
        }
        if self.sack && !self.recovery.ignores_sack() {
            for block in segment.options.sack.iter() {
                let (start, end) = (self.position(block.start), self.position(block.end));
                // Any other block is a D-SACK (RFC 2883) or invalid.
                if start >= self.una as i64 && start < end && end <= self.next as i64 {
                    self.board.sack(start as u64, end as u64, &mut summary);
                }
            }
        }
        self.rate.on_ack(now, &summary);
        summary
    }

    fn measure(&mut self, now: Time, summary: &AckSummary, echoed: Option<Time>) {
        let exact = summary.sent_at.map(|at| now.since(at));
        self.timer.measure(now, self.una, exact, echoed);
        if let Some(rtt) = exact {
            self.window.on_rtt(now, rtt);
        }
    }

    /// The next segment to be sent, if one may be.
    pub fn poll(&mut self, now: Time, established: bool) -> Option<Outgoing> {
        if self.next == 0 {
            return Some(self.open(now));
        }
        self.pacer.look_anew();
        if self.recovery.may_retransmit(&self.board, self.window.cwnd()) && self.is_first_lost_allowed() {
            return if self.is_held(now) { None } else { self.retransmit(now) };
        }
        if !established {
            return None;
        }
        if let Some(new) = self.poll_new(now) {
            return Some(new);
        }
        if self.pacer.at().is_none() && self.recovery.mark_speculative(&mut self.board, self.window.cwnd()) {
            return self.retransmit(now);
        }
        self.pacer.end_burst();
        None
    }

    /// Whether the peer's window lets the first lost segment be sent again ([`TcpSettings::retransmits_within_window`]).
    fn is_first_lost_allowed(&self) -> bool {
        let is_allowed = |start| start == self.una || self.send_window.beyond(start) > 0;
        !self.settings.retransmits_within_window || self.board.first_lost().is_none_or(is_allowed)
    }

    fn retransmit(&mut self, now: Time) -> Option<Outgoing> {
        self.note_departure(now, self.mss);
        let sent = self.board.retransmit(now)?;
        self.recovery.on_retransmit();
        self.last_sent = now;
        self.retransmits += 1;
        // With SACK, retransmitting the first segment restarts the timer (RFC 6675, section 6); without, see `PartialAcks`.
        if self.timer.at().is_none() || self.sack && sent.start == self.una {
            self.timer.start(now);
        }
        Some(self.outgoing(&sent))
    }

    fn outgoing(&self, sent: &Sent) -> Outgoing {
        // The SYN's own number is not payload.
        let payload = if sent.start == 0 { 0 } else { sent.length - u32::from(sent.fin) };
        let push = sent.end() >= self.buffer.end();
        Outgoing { start: sent.start, payload, fin: sent.fin, push, again: true, cwr: false }
    }

    fn poll_new(&mut self, now: Time) -> Option<Outgoing> {
        let Some((payload, fin)) = self.sendable() else {
            self.window.set_cwnd_limited(false);
            self.note_app_limited();
            return None;
        };
        self.restart_after_idle(now);
        let is_cwnd_limited = self.recovery.pipe_before_new(&self.board) >= self.window.cwnd();
        self.window.set_cwnd_limited(is_cwnd_limited);
        if is_cwnd_limited || self.is_held(now) {
            return None;
        }
        let start = self.next;
        let length = payload + u32::from(fin);
        self.note_departure(now, payload);
        self.board.push(start, length, fin, now);
        self.next += u64::from(length);
        // A segment without payload cannot tell it.
        let cwr = self.recovery.on_new() && payload > 0;
        self.window.note_outstanding(self.una, self.next, self.board.len());
        self.persist.on_data();
        self.last_sent = now;
        self.timer.note_sent(now, self.next);
        if self.timer.at().is_none() {
            self.timer.start(now);
        }
        Some(Outgoing { start, payload, fin, push: self.next >= self.buffer.end(), again: false, cwr })
    }

    /// The payload and the FIN of the next new segment, if the window, Nagle and silly window avoidance allow it.
    fn sendable(&self) -> Option<(u32, bool)> {
        let unsent = self.buffer.end().saturating_sub(self.next);
        let fin_is_due = self.buffer.is_finished() && self.next <= self.buffer.end();
        if unsent == 0 && !fin_is_due {
            return None;
        }
        let usable = self.send_window.beyond(self.next);
        let payload = u64::from(self.mss).min(unsent).min(usable);
        let fin = fin_is_due && payload == unsent && usable > payload;
        let is_whole = payload == u64::from(self.mss);
        let is_last = payload == unsent;
        let waits = match (is_whole, is_last) {
            (true, _) => false,
            (false, true) => payload + u64::from(fin) == 0 || self.settings.nagle && !fin && !self.board.is_empty(),
            // The window cuts the segment short (RFC 9293, section 3.8.6.2.1). The persist timer is the override timeout.
            (false, false) => payload == 0 || payload < self.send_window.most() / 2 && !self.persist.is_due(),
        };
        (!waits).then_some((payload as u32, fin))
    }

    fn restart_after_idle(&mut self, now: Time) {
        if !self.board.is_empty() {
            return;
        }
        let (idle, rto) = (now.since(self.last_sent), self.timer.estimator().rto());
        if idle > rto {
            self.window.on_idle(idle, rto);
            // Restart once per idle time, even if nothing can be sent now.
            self.last_sent = now;
        }
    }

    /// Starts or stops the persist timer. To be called when everything that may be sent has been sent.
    pub fn arm_probe(&mut self, now: Time) {
        let end = self.buffer.end();
        let has_more = self.next < end || self.buffer.is_finished() && self.next == end;
        if !(self.board.is_empty() && has_more) {
            self.persist.cancel();
        } else if self.persist.at().is_none() {
            self.persist.start(now, self.timer.estimator().rto(), self.settings.rto.most);
        }
    }

    /// Whether a zero-window probe is to be sent: a segment with an old sequence number and no payload, as Linux sends it.
    /// Every receiver answers it (RFC 9293, section 3.10.7.4); section 3.8.6.1 would send one byte.
    pub fn take_probe(&mut self) -> bool {
        self.persist.take()
    }

    /// The next time at which [`Sender::on_time`] has something to do.
    pub fn timeout(&self) -> Option<Time> {
        [self.timer.at(), self.persist.at(), self.pacer.at()].into_iter().flatten().min()
    }

    /// Handles expired timers. Returns whether the connection is given up.
    pub fn on_time(&mut self, now: Time) -> bool {
        if self.persist.runs_out(now) {
            if self.is_given_up() {
                return true;
            }
            self.persist.plan();
        }
        if self.timer.is_due(now) {
            if self.is_given_up() {
                return true;
            }
            self.timer.back_off(now);
            let again = self.unanswered > 1;
            let (recovery, flight) = self.recovery();
            recovery.on_timeout(flight, again);
        }
        false
    }

    /// Counts one more timeout or probe without an answer. Returns whether R2 is reached (RFC 9293, section 3.8.3).
    fn is_given_up(&mut self) -> bool {
        let is_over = self.unanswered >= self.settings.retries;
        self.unanswered += u32::from(!is_over);
        is_over
    }

    /// The connection has ended, or only waits: all timers stop.
    pub fn stop(&mut self) {
        self.window.on_end();
        self.timer.stop();
        self.persist.stop();
        self.pacer.look_anew();
    }

    /// What it is doing.
    pub fn info(&self) -> TcpInfo {
        let ssthresh = self.window.ssthresh();
        let estimator = self.timer.estimator();
        TcpInfo {
            cwnd: self.window.cwnd(),
            ssthresh: (ssthresh < i32::MAX as u32 / 2).then_some(ssthresh),
            outstanding: self.board.len(),
            pipe: self.recovery.pipe(&self.board),
            sacked: self.board.sacked(),
            lost: self.board.lost(),
            window: self.send_window.beyond(self.una),
            rtt: estimator.smoothed(),
            rtt_min: estimator.least(),
            rto: estimator.rto(),
            mss: self.mss,
            acked_bytes: self.buffer.acked_bytes(self.una),
            delivered: self.rate.delivered(),
            retransmits: self.retransmits,
            timeouts: self.recovery.timeouts(),
            recoveries: self.recovery.recoveries(),
            is_recovering: self.recovery.is_fast(),
            is_after_timeout: self.recovery.is_after_timeout(),
        }
    }
}
