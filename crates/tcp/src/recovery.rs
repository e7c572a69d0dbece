//! Loss recovery: fast retransmit and fast recovery (RFC 5681, 6582, 6675, 6937), and what follows a timeout (RFC 6298,
//! section 5; RFC 5681, section 3.1).
//!
//! It works over the scoreboard and the congestion window of a sender, which are passed in as [`Flight`]. It decides which
//! segments count as lost and when the window falls. The congestion control decides how far. It has no clock: the
//! retransmission timer is the sender's, which is told in an [`Effect`] what to do with it.

use crate::proportion::Proportion;
use crate::scoreboard::{News, Scoreboard};
use crate::settings::{PartialAcks, Pipe, Reduction, Settings};
use crate::window::CongestionWindow;

/// The state of one sender's handling of losses.
#[derive(Debug)]
pub(crate) struct Recovery {
    settings: Settings,
    sack: bool,
    phase: Phase,
    /// Duplicate acknowledgements in a row.
    duplicates: u32,
    /// SND.NXT at the last loss event: `recover` of RFC 6582.
    recover: u64,
    recoveries: u64,
    timeouts: u64,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// No loss is known.
    Open,
    /// Fast recovery, until everything before its end has arrived.
    Fast(FastRecovery),
    /// After a timeout, until everything before `end` has arrived.
    AfterTimeout {
        /// SND.NXT at the timeout.
        end: u64,
        /// SND.UNA at the timeout.
        una: u64,
    },
}

#[derive(Debug, Clone, Copy)]
struct FastRecovery {
    /// SND.NXT when it began: RecoveryPoint.
    end: u64,
    /// A partial acknowledgement has restarted the retransmission timer.
    has_restarted_timer: bool,
    /// Its first retransmission, and without SACK that after a partial acknowledgement, goes whatever the pipe holds.
    must_retransmit: bool,
    /// The last segment was sent again (RFC 6675, NextSeg(), rule 4).
    rescued: bool,
    /// The pipe as [`Pipe::Acknowledgements`] counts it.
    counted: u32,
    proportion: Proportion,
}

/// What a sender has in flight, and its window.
pub(crate) struct Flight<'a> {
    pub board: &'a mut Scoreboard,
    pub window: &'a mut CongestionWindow,
    /// SND.UNA.
    pub una: u64,
    /// SND.NXT.
    pub next: u64,
    /// Payload in a full segment, in bytes.
    pub mss: u32,
}

/// An acknowledgement, of which the scoreboard has been told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ack {
    /// It acknowledges new data cumulatively.
    pub advances: bool,
    /// It is a duplicate in the sense of RFC 5681, section 2; with SACK, of RFC 6675, section 2.
    pub is_duplicate: bool,
    pub news: News,
}

/// What an acknowledgement means for the sender's clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effect {
    /// The retransmission timer starts anew.
    pub restarts_timer: bool,
    /// A fast recovery begins.
    pub begins_recovery: bool,
}

impl Effect {
    const NONE: Self = Self::timer(false);
    const BEGINS: Self = Self { restarts_timer: true, begins_recovery: true };

    const fn timer(restarts_timer: bool) -> Self {
        Self { restarts_timer, begins_recovery: false }
    }
}

impl Recovery {
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            sack: false,
            phase: Phase::Open,
            duplicates: 0,
            recover: 0,
            recoveries: 0,
            timeouts: 0,
        }
    }

    /// Both ends want SACK, or not.
    pub fn negotiate(&mut self, sack: bool) {
        self.sack = sack;
    }

    /// Fast recoveries so far.
    pub fn recoveries(&self) -> u64 {
        self.recoveries
    }

    /// Timeouts so far.
    pub fn timeouts(&self) -> u64 {
        self.timeouts
    }

    pub fn is_fast(&self) -> bool {
        matches!(self.phase, Phase::Fast(_))
    }

    /// Whether what was outstanding at a timeout has not all arrived.
    pub fn is_after_timeout(&self) -> bool {
        matches!(self.phase, Phase::AfterTimeout { .. })
    }

    /// Whether selective acknowledgements count for nothing now.
    pub fn ignores_sack(&self) -> bool {
        self.settings.timeout_forgets_sack && self.is_after_timeout()
    }

    /// Segments in the network, as far as is known.
    pub fn pipe(&self, board: &Scoreboard) -> u32 {
        match (self.phase, self.settings.pipe) {
            (Phase::Fast(fast), Pipe::Acknowledgements) if self.sack => fast.counted,
            _ => board.pipe(),
        }
    }

    /// Segments that fill the window when a new one is to be sent.
    pub fn pipe_before_new(&self, board: &Scoreboard) -> u32 {
        // Without limited transmit what duplicate acknowledgements tell counts only in recovery.
        match self.phase {
            Phase::Open if !self.settings.limited_transmit => board.len(),
            _ => self.pipe(board),
        }
    }

    /// Whether the first lost segment may be sent again now.
    pub fn may_retransmit(&self, board: &Scoreboard, cwnd: u32) -> bool {
        let must = matches!(self.phase, Phase::Fast(FastRecovery { must_retransmit: true, .. }));
        board.lost() > 0 && (must || self.pipe(board) < cwnd)
    }

    /// Nothing that is lost and nothing new may be sent: marks what fast recovery sends again all the same (RFC 6675,
    /// NextSeg(), rules 3 and 4). Returns whether there is something.
    pub fn mark_unsure(&mut self, board: &mut Scoreboard, cwnd: u32) -> bool {
        let has_room = self.pipe(board) < cwnd;
        let Phase::Fast(fast) = &mut self.phase else { return false };
        if !(self.sack && self.settings.unsure_retransmissions && has_room) {
            return false;
        }
        if board.mark_unsure() {
            return true;
        }
        let rescues = !fast.rescued && board.mark_last();
        fast.rescued |= rescues;
        rescues
    }

    /// A new segment is sent.
    pub fn on_new(&mut self) {
        if let Phase::Fast(fast) = &mut self.phase {
            fast.counted += 1;
            fast.proportion.on_sent();
        }
    }

    /// A lost segment is sent again.
    pub fn on_retransmit(&mut self) {
        if let Phase::Fast(fast) = &mut self.phase {
            // Not the first of a recovery: what it stands for was not taken off.
            fast.counted += u32::from(!fast.must_retransmit);
            fast.must_retransmit = false;
            fast.proportion.on_sent();
        }
    }

    /// An acknowledgement arrives.
    pub fn on_ack(&mut self, mut flight: Flight, mut ack: Ack) -> Effect {
        // What advances begins anew, and may be the first duplicate itself (RFC 6675, section 5).
        let before = if ack.advances { 0 } else { self.duplicates };
        self.duplicates = before + u32::from(ack.is_duplicate);
        let is_partial = matches!(self.phase, Phase::Fast(fast) if flight.una < fast.end);
        if ack.advances && !is_partial {
            flight.board.forget_duplicates();
        }
        let mut effect = match self.phase {
            Phase::Open => self.on_ack_when_open(&mut flight, &mut ack),
            Phase::Fast(fast) => self.on_ack_in_recovery(fast, &mut flight, &mut ack),
            Phase::AfterTimeout { end, .. } => self.on_ack_after_timeout(end, &mut flight, &ack),
        };
        // RFC 6298, rule 5.3; in recovery see there.
        effect.restarts_timer |= ack.advances && !self.is_fast();
        effect
    }

    fn on_ack_when_open(&mut self, flight: &mut Flight, ack: &mut Ack) -> Effect {
        let threshold = self.settings.duplicate_acks;
        let is_lost = if self.sack {
            flight.board.mark_lost(threshold, flight.mss) > 0 || self.duplicates >= threshold && flight.board.has_gaps()
        } else {
            if ack.is_duplicate {
                flight.board.duplicate(&mut ack.news);
            }
            // Those that follow a timeout may answer needless retransmissions (RFC 6582, section 3.2, step 2). Plain Reno
            // does not ask.
            let counts = self.settings.partial_acks == PartialAcks::EndRecovery || flight.una > self.recover;
            ack.is_duplicate && self.duplicates >= threshold && counts
        };
        if is_lost {
            return self.enter(flight, ack);
        }
        flight.window.grow(ack.news.acked);
        Effect::NONE
    }

    /// Fast recovery begins.
    fn enter(&mut self, flight: &mut Flight, ack: &Ack) -> Effect {
        let outstanding = flight.board.len();
        self.recoveries += 1;
        self.recover = flight.next;
        flight.window.reduce(outstanding, false);
        flight.board.mark_first();
        if self.sack && self.settings.lost_retransmissions {
            flight.board.mark_overtaken();
        }
        let mut fast = FastRecovery {
            end: flight.next,
            has_restarted_timer: false,
            must_retransmit: true,
            rescued: false,
            counted: outstanding.saturating_sub(self.settings.duplicate_acks),
            proportion: Proportion::new(outstanding),
        };
        self.pace(&mut fast, flight, ack, false);
        self.phase = Phase::Fast(fast);
        Effect::BEGINS
    }

    /// Sets the window so that as much is sent as the reduction allows.
    fn pace(&self, fast: &mut FastRecovery, flight: &mut Flight, ack: &Ack, goes_well: bool) {
        let ssthresh = flight.window.ssthresh();
        flight.window.set(match self.settings.reduction {
            Reduction::Pipe => ssthresh,
            Reduction::Proportional => {
                fast.proportion.window(flight.board.pipe(), ssthresh, ack.news.delivered, goes_well)
            }
        });
    }

    fn on_ack_in_recovery(&mut self, mut fast: FastRecovery, flight: &mut Flight, ack: &mut Ack) -> Effect {
        if flight.una >= fast.end {
            return self.leave(flight);
        }
        fast.counted = fast.counted.saturating_sub(1 + u32::from(ack.advances));
        let mut restarts_timer = false;
        let mut goes_well = ack.advances;
        if self.sack {
            let mut lost = flight.board.mark_lost(self.settings.duplicate_acks, flight.mss);
            if self.settings.lost_retransmissions {
                lost += flight.board.mark_overtaken();
            }
            goes_well &= lost == 0;
            restarts_timer = ack.advances;
        } else if ack.is_duplicate {
            flight.board.duplicate(&mut ack.news);
        } else if ack.advances {
            restarts_timer = match self.settings.partial_acks {
                PartialAcks::EndRecovery => return self.leave(flight),
                PartialAcks::RestartTimerOnce => !fast.has_restarted_timer,
                PartialAcks::RestartTimer => true,
            };
            fast.has_restarted_timer = true;
            flight.board.mark_first();
            fast.must_retransmit = true;
            goes_well = false;
        }
        self.pace(&mut fast, flight, ack, goes_well);
        self.phase = Phase::Fast(fast);
        Effect::timer(restarts_timer)
    }

    /// Fast recovery ends.
    fn leave(&mut self, flight: &mut Flight) -> Effect {
        flight.window.fall_to_threshold();
        self.phase = Phase::Open;
        self.duplicates = 0;
        Effect::timer(true)
    }

    fn on_ack_after_timeout(&mut self, end: u64, flight: &mut Flight, ack: &Ack) -> Effect {
        if flight.una >= end {
            self.phase = Phase::Open;
            self.duplicates = 0;
        } else if self.sack && self.settings.lost_retransmissions {
            let is_lost = flight.board.mark_overtaken() > 0;
            if is_lost && self.settings.reduces_after_timeout {
                return self.enter(flight, ack);
            }
        }
        flight.window.grow(ack.news.acked);
        Effect::NONE
    }

    /// The retransmission timer ran out (RFC 6298, rules 5.4 to 5.6; RFC 5681, section 3.1), `again` if nothing was heard
    /// since it did before.
    pub fn on_timeout(&mut self, flight: Flight, again: bool) {
        self.timeouts += 1;
        let is_syn = flight.una == 0;
        if !is_syn {
            // Not again for a segment that was sent again by the timer already.
            let reduces = match self.phase {
                Phase::Open => true,
                Phase::Fast(_) => self.settings.timeout_reduces_again,
                Phase::AfterTimeout { una, .. } => una != flight.una || self.settings.every_timeout_reduces,
            };
            if reduces {
                flight.window.reduce(flight.board.len(), true);
            }
            flight.window.on_timeout();
            self.phase = Phase::AfterTimeout { end: flight.next, una: flight.una };
            self.recover = flight.next;
        }
        // A single lost SYN does not lower the initial window (RFC 6928, section 2).
        if !is_syn || again {
            flight.window.fall_to_one();
        }
        flight.window.forget_growth();
        self.duplicates = 0;
        if self.settings.timeout_forgets_sack {
            flight.board.forget_sacked();
        }
        flight.board.mark_all();
    }
}

#[cfg(test)]
mod tests;
