//! What acknowledgements and timeouts do: fast retransmit and recovery (RFC 5681, 6582, 6675, 6937), timeouts (RFC 6298).
//!
//! The congestion control decides how the window grows and where a loss brings it; when, stands here.

use ekiden_units::Time;
use ekiden_wire::Segment;

use crate::scoreboard::News;
use crate::sender::Sender;
use crate::settings::{PartialAcks, Reduction};

/// Where a sender stands in its handling of losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No loss is known.
    Open,
    /// Fast recovery, until everything before `high` has arrived.
    Recovery {
        /// SND.NXT when it began: RecoveryPoint.
        high: u64,
        /// A partial acknowledgement has restarted the retransmission timer.
        restarted: bool,
    },
    /// After a timeout, until everything before `high` has arrived.
    Loss {
        /// SND.NXT at the timeout.
        high: u64,
    },
}

/// The state of proportional rate reduction (RFC 6937, section 3), in segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Proportion {
    /// RecoverFS: outstanding when the recovery began.
    outstanding: u32,
    /// prr_delivered.
    delivered: u32,
    /// prr_out.
    pub sent: u32,
}

impl Sender {
    /// An acceptable acknowledgement of `acked`, which lies between `una` and `next`.
    pub fn on_ack(&mut self, now: Time, segment: &Segment, acked: u64, echoed: Option<Time>) {
        let advances = acked > self.una;
        let window_before = self.peer_window();
        self.update_window(segment, acked);
        let mut news = News::default();
        let is_of_syn = advances && self.una == 0;
        let least = self.estimator.least().filter(|_| self.settings.doubts_early_acks);
        self.board.arrived_until = least.map(|least| Time(now.0.saturating_sub(least.0)));
        if advances {
            news = self.board.acknowledge(acked);
            self.una = acked;
        }
        // A peer that has no room is there all the same (RFC 9293, sections 3.8.6 and 3.8.6.1).
        if advances || self.board.is_empty() || self.peer_window() == 0 {
            self.unanswered = 0;
        }
        if is_of_syn {
            // The SYN's does not open the window (RFC 5681, section 3.1).
            news.acked -= 1;
        }
        if self.sack && !(self.settings.timeout_forgets_sack && matches!(self.phase, Phase::Loss { .. })) {
            self.take_blocks(segment, &mut news);
        }
        // RFC 5681, section 2; with SACK, RFC 6675, section 2.
        let is_duplicate = match self.sack {
            true => news.sacked > 0,
            false => {
                !advances
                    && !self.board.is_empty()
                    && segment.sequence_len() == 0
                    && self.peer_window() == window_before
            }
        };
        self.measure(now, &news, echoed.filter(|_| advances));
        if is_of_syn && self.timeouts > 0 {
            self.estimator.fall_back();
        }
        // What advances begins anew, and may be the first duplicate itself (RFC 6675, section 5).
        self.duplicates = if advances { 0 } else { self.duplicates } + u32::from(is_duplicate);
        if advances && !matches!(self.phase, Phase::Recovery { high, .. } if acked < high) {
            self.board.forget_duplicates();
        }
        match self.phase {
            Phase::Open => self.on_ack_when_open(now, is_duplicate, &mut news),
            Phase::Recovery { high, restarted } => {
                self.on_ack_in_recovery(now, high, restarted, is_duplicate, advances, &mut news);
            }
            Phase::Loss { high } => self.on_ack_after_timeout(now, high, &news),
        }
        // RFC 6298, rules 5.2 and 5.3; in recovery see there.
        if self.board.is_empty() {
            self.rto_at = None;
        } else if advances && !matches!(self.phase, Phase::Recovery { .. }) || self.settings.every_ack_restarts_timer {
            self.arm(now);
        }
    }

    fn take_blocks(&mut self, segment: &Segment, news: &mut News) {
        for block in segment.options.sack.iter() {
            let (start, end) = (self.position(block.start), self.position(block.end));
            // Anything else tells of duplicates (RFC 2883) or is nonsense.
            if start >= self.una as i64 && start < end && end <= self.next as i64 {
                self.board.sack(start as u64, end as u64, news);
            }
        }
    }

    fn measure(&mut self, now: Time, news: &News, echoed: Option<Time>) {
        let exact = news.sent_at.map(|at| now.since(at));
        let Some(rtt) = exact.or(echoed) else { return };
        let timed = self.timed.filter(|(end, _)| *end <= self.una);
        if self.settings.rtt_per_window && echoed.is_none() {
            timed.iter().for_each(|(_, at)| self.estimator.sample(now.since(*at)));
        } else {
            self.estimator.sample(rtt);
        }
        if timed.is_some() {
            self.timed = None;
        }
        if exact.is_some() {
            let rtt_us = u32::try_from(rtt.0 / 1000).unwrap_or(u32::MAX);
            self.control.on_rtt(&self.window, now.0 / 1000, rtt_us);
        }
    }

    fn on_ack_when_open(&mut self, now: Time, is_duplicate: bool, news: &mut News) {
        let threshold = self.settings.duplicate_acks;
        let is_lost = if self.sack {
            self.board.mark_lost(threshold, self.mss) > 0 || self.duplicates >= threshold && self.board.has_gaps()
        } else {
            if is_duplicate {
                self.board.duplicate(news);
            }
            // Those that follow a timeout may answer needless retransmissions (RFC 6582, section 3.2, step 2). Plain Reno
            // does not ask.
            let counts = self.settings.partial_acks == PartialAcks::EndRecovery || self.una > self.recover;
            is_duplicate && self.duplicates >= threshold && counts
        };
        if is_lost {
            self.enter_recovery(now, news);
        } else if news.acked > 0 {
            self.grow(news.acked);
        }
    }

    fn enter_recovery(&mut self, now: Time, news: &News) {
        self.recoveries += 1;
        self.reduce(false);
        self.recover = self.next;
        self.phase = Phase::Recovery { high: self.next, restarted: false };
        self.board.mark_first();
        if self.sack && self.settings.lost_retransmissions {
            self.board.mark_overtaken();
        }
        self.must_retransmit = true;
        self.arm(now);
        self.rescued = false;
        self.timed = None;
        self.counted = self.board.len().saturating_sub(self.settings.duplicate_acks);
        self.proportion = Proportion { outstanding: self.board.len().max(1), delivered: 0, sent: 0 };
        self.pace(news, false);
    }

    /// The slow start threshold falls.
    fn reduce(&mut self, by_timeout: bool) {
        // FlightSize (RFC 5681, equation 4) is the window, unless something else limits the sender.
        let flight = self.window.cwnd.min(self.board.len());
        let in_slow_start = self.window.cwnd < self.window.ssthresh;
        self.window.ssthresh = self.control.on_loss(flight);
        if self.settings.halves_in_slow_start && (in_slow_start || by_timeout) {
            self.window.ssthresh = (flight / 2).max(2);
        }
        self.window.cwnd_cnt = 0;
    }

    /// Sets the window so that as much is sent as the reduction allows.
    ///
    /// All goes well if the acknowledgement advances and tells of no further loss (`SafeACK` of RFC 9937, section 5;
    /// `tcp_cwnd_reduction` of Linux).
    fn pace(&mut self, news: &News, goes_well: bool) {
        let ssthresh = self.window.ssthresh;
        if self.settings.reduction == Reduction::Pipe {
            self.window.cwnd = ssthresh;
            return;
        }
        let state = &mut self.proportion;
        state.delivered += news.delivered;
        let pipe = self.board.pipe();
        let more = if pipe > ssthresh {
            let due = (u64::from(state.delivered) * u64::from(ssthresh)).div_ceil(state.outstanding.into());
            u32::try_from(due).unwrap_or(u32::MAX).saturating_sub(state.sent)
        } else {
            // Slow start as long as the acknowledgements say that all goes well; else one for one.
            let limit = state.delivered.saturating_sub(state.sent).max(news.delivered) + u32::from(goes_well);
            limit.min(ssthresh - pipe)
        };
        self.window.cwnd = (pipe + more).max(1);
    }

    fn on_ack_in_recovery(
        &mut self,
        now: Time,
        high: u64,
        restarted: bool,
        is_duplicate: bool,
        advances: bool,
        news: &mut News,
    ) {
        if self.una >= high {
            self.leave_recovery(now);
            return;
        }
        self.counted = self.counted.saturating_sub(1 + u32::from(advances));
        let mut goes_well = advances;
        if self.sack {
            let mut lost = self.board.mark_lost(self.settings.duplicate_acks, self.mss);
            if self.settings.lost_retransmissions {
                lost += self.board.mark_overtaken();
            }
            goes_well &= lost == 0;
            if advances {
                self.arm(now);
            }
        } else if is_duplicate {
            self.board.duplicate(news);
        } else if advances {
            match self.settings.partial_acks {
                PartialAcks::EndRecovery => {
                    self.leave_recovery(now);
                    return;
                }
                PartialAcks::RestartTimerOnce if restarted => {}
                PartialAcks::RestartTimerOnce | PartialAcks::RestartTimer => self.arm(now),
            }
            self.phase = Phase::Recovery { high, restarted: true };
            self.board.mark_first();
            self.must_retransmit = true;
            goes_well = false;
        }
        self.pace(news, goes_well);
    }

    fn leave_recovery(&mut self, now: Time) {
        self.phase = Phase::Open;
        self.window.cwnd = self.window.ssthresh;
        self.window.cwnd_cnt = 0;
        self.duplicates = 0;
        self.must_retransmit = false;
        self.arm(now);
    }

    fn on_ack_after_timeout(&mut self, now: Time, high: u64, news: &News) {
        if self.una >= high {
            self.phase = Phase::Open;
            self.duplicates = 0;
        } else if self.sack && self.settings.lost_retransmissions {
            let is_lost = self.board.mark_overtaken() > 0;
            if is_lost && self.settings.reduces_after_timeout {
                self.enter_recovery(now, news);
                return;
            }
        }
        if news.acked > 0 {
            self.grow(news.acked);
        }
    }

    fn grow(&mut self, acked: u32) {
        let in_slow_start = self.window.cwnd < self.window.ssthresh;
        let is_used = self.is_limited || in_slow_start && self.window.cwnd < self.most_out.0.saturating_mul(2);
        if is_used || !self.settings.window_validation {
            self.control.on_ack(&mut self.window, if self.settings.byte_counting { acked } else { 1 });
        }
    }

    /// The retransmission timer ran out (RFC 6298, section 5.4 to 5.7; RFC 5681, section 3.1).
    pub fn time_out(&mut self, now: Time) {
        self.estimator.back_off();
        self.timeouts += 1;
        if self.una > 0 {
            // Not again for a segment that was sent again by the timer already.
            let is_first = match self.phase {
                Phase::Open => true,
                Phase::Recovery { .. } => self.settings.timeout_reduces_again,
                Phase::Loss { .. } => self.timeout_una != Some(self.una) || self.settings.every_timeout_reduces,
            };
            if is_first {
                self.reduce(true);
            }
            self.control.on_timeout();
            self.phase = Phase::Loss { high: self.next };
            self.recover = self.next;
            self.timeout_una = Some(self.una);
        }
        // A single lost SYN does not lower the initial window (RFC 6928, section 2).
        if self.una > 0 || self.unanswered > 1 {
            self.window.cwnd = 1;
        }
        self.window.cwnd_cnt = 0;
        self.duplicates = 0;
        self.must_retransmit = false;
        self.timed = None;
        if self.settings.timeout_forgets_sack {
            self.board.forget_sacked();
        }
        self.board.mark_all();
        self.arm(now);
    }
}
