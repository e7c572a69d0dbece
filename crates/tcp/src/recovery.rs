//! Loss recovery: fast retransmit and fast recovery (RFC 5681, 6582, 6675, 6937), and what follows a timeout (RFC 6298,
//! section 5; RFC 5681, section 3.1). The answer to congestion that the peer echoes too (ECN, RFC 3168, section 6.1.2), which
//! falls as after a loss, but with nothing to be sent again.
//!
//! It works on a sender's scoreboard and congestion window, passed in as [`Flight`]. It decides which segments count as lost
//! and when the window falls; the congestion control decides how far. It has no clock: the sender owns the retransmission
//! timer, and an [`Effect`] tells it what to do with the timer.

use crate::prr::Prr;
use crate::scoreboard::{AckSummary, Scoreboard};
use crate::settings::{PartialAcks, Pipe, Reduction, TcpSettings};
use crate::window::CongestionWindow;

/// The state of one sender's handling of losses.
#[derive(Debug)]
pub(crate) struct Recovery {
    settings: TcpSettings,
    sack: bool,
    phase: Phase,
    /// Duplicate acknowledgements in a row.
    duplicates: u32,
    /// SND.NXT at the last loss event: `recover` of RFC 6582.
    recover: u64,
    /// The window was reduced, and the peer has not been told (CWR).
    owes_cwr: bool,
    recoveries: u64,
    timeouts: u64,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// No loss is known.
    Open,
    /// The peer has echoed congestion: the window falls, until something beyond `end` has been acknowledged.
    Reducing {
        /// SND.NXT when it began. Only the segment there tells the peer to end its echo.
        end: u64,
        prr: Prr,
    },
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
    /// The next retransmission is sent even if the pipe is full: the first of the recovery and, without SACK, the one after a
    /// partial acknowledgement.
    must_retransmit: bool,
    /// The rescue retransmission was used (RFC 6675, NextSeg(), rule 4).
    rescued: bool,
    /// The pipe as [`Pipe::Acknowledgements`] counts it.
    counted: u32,
    prr: Prr,
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

/// An acknowledgement that the scoreboard has taken into account.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ack {
    /// It acknowledges new data cumulatively.
    pub advances: bool,
    /// It is a duplicate in the sense of RFC 5681, section 2; with SACK, of RFC 6675, section 2.
    pub is_duplicate: bool,
    /// It says that a marked packet has arrived.
    pub echoes_congestion: bool,
    pub summary: AckSummary,
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
    pub fn new(settings: &TcpSettings) -> Self {
        Self {
            settings: settings.clone(),
            sack: false,
            phase: Phase::Open,
            duplicates: 0,
            recover: 0,
            owes_cwr: false,
            recoveries: 0,
            timeouts: 0,
        }
    }

    /// Whether both ends want SACK.
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

    /// Whether selective acknowledgements are ignored now.
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

    /// Segments that count against the window when a new one is to be sent.
    pub fn pipe_before_new(&self, board: &Scoreboard) -> u32 {
        // Without limited transmit, duplicate acknowledgements free no window outside of recovery.
        match self.phase {
            Phase::Open | Phase::Reducing { .. } if !self.settings.limited_transmit => board.len(),
            _ => self.pipe(board),
        }
    }

    /// Whether the first lost segment may be sent again now.
    pub fn may_retransmit(&self, board: &Scoreboard, cwnd: u32) -> bool {
        let must = matches!(self.phase, Phase::Fast(FastRecovery { must_retransmit: true, .. }));
        board.lost() > 0 && (must || self.pipe(board) < cwnd)
    }

    /// Marks a segment for retransmission although it is not known to be lost (RFC 6675, NextSeg(), rules 3 and 4). To be
    /// called when no lost and no new segment may be sent. Returns whether there is one.
    pub fn mark_speculative(&mut self, board: &mut Scoreboard, cwnd: u32) -> bool {
        let has_room = self.pipe(board) < cwnd;
        let Phase::Fast(fast) = &mut self.phase else { return false };
        if !(self.sack && self.settings.speculative_retransmissions && has_room) {
            return false;
        }
        if board.mark_speculative() {
            return true;
        }
        let rescues = !fast.rescued && board.mark_last();
        fast.rescued |= rescues;
        rescues
    }

    /// A new segment is sent. Returns whether it is to tell that the window has been reduced.
    pub fn on_new(&mut self) -> bool {
        match &mut self.phase {
            Phase::Fast(fast) => {
                fast.counted += 1;
                fast.prr.on_sent();
            }
            Phase::Reducing { prr, .. } => prr.on_sent(),
            Phase::Open | Phase::AfterTimeout { .. } => {}
        }
        std::mem::take(&mut self.owes_cwr)
    }

    /// A lost segment is sent again.
    pub fn on_retransmit(&mut self) {
        if let Phase::Fast(fast) = &mut self.phase {
            // The pipe already counts the segment that a forced retransmission replaces.
            fast.counted += u32::from(!fast.must_retransmit);
            fast.must_retransmit = false;
            fast.prr.on_sent();
        }
    }

    /// An acknowledgement arrives.
    pub fn on_ack(&mut self, mut flight: Flight, mut ack: Ack) -> Effect {
        // An ACK that advances resets the count, and with SACK may be the first duplicate itself (RFC 6675, section 5).
        let before = if ack.advances { 0 } else { self.duplicates };
        self.duplicates = before + u32::from(ack.is_duplicate);
        if ack.advances && !self.is_fast() {
            flight.board.forget_duplicates();
        }
        let mut effect = match self.phase {
            Phase::Open => self.on_ack_when_open(&mut flight, &mut ack),
            Phase::Reducing { end, prr } => self.on_ack_while_reducing(end, prr, &mut flight, &mut ack),
            Phase::Fast(fast) => self.on_ack_in_recovery(fast, &mut flight, &mut ack),
            Phase::AfterTimeout { end, .. } => self.on_ack_after_timeout(end, &mut flight, &ack),
        };
        // RFC 6298, rule 5.3. In fast recovery `on_ack_in_recovery` decides.
        effect.restarts_timer |= ack.advances && !self.is_fast();
        effect
    }

    fn on_ack_when_open(&mut self, flight: &mut Flight, ack: &mut Ack) -> Effect {
        if self.detects_loss(flight, ack) {
            return self.enter(flight, ack, true);
        }
        if ack.echoes_congestion {
            self.reduce(flight);
            return self.go_on_reducing(flight.next, Prr::new(flight.board.len()), flight, ack);
        }
        flight.window.grow(&ack.summary);
        Effect::NONE
    }

    /// The window falls once per window of data, however often the peer echoes congestion.
    fn on_ack_while_reducing(&mut self, end: u64, prr: Prr, flight: &mut Flight, ack: &mut Ack) -> Effect {
        if flight.una > end {
            flight.window.fall_to_threshold();
            self.phase = Phase::Open;
            return self.on_ack_when_open(flight, ack);
        }
        // A loss in the same window of data does not lower it again.
        match self.detects_loss(flight, ack) {
            true => self.enter(flight, ack, false),
            false => self.go_on_reducing(end, prr, flight, ack),
        }
    }

    fn go_on_reducing(&mut self, end: u64, mut prr: Prr, flight: &mut Flight, ack: &Ack) -> Effect {
        self.set_window(&mut prr, flight, ack, ack.advances);
        self.phase = Phase::Reducing { end, prr };
        Effect::NONE
    }

    /// Lowers the slow start threshold, which the peer will be told.
    fn reduce(&mut self, flight: &mut Flight) {
        flight.window.reduce(flight.board.len(), false);
        self.owes_cwr = true;
    }

    /// Whether an acknowledgement outside of fast recovery means a loss.
    fn detects_loss(&mut self, flight: &mut Flight, ack: &mut Ack) -> bool {
        let threshold = self.settings.duplicate_acks;
        if self.sack {
            flight.board.mark_lost(threshold, flight.mss) > 0 || self.duplicates >= threshold && flight.board.has_gaps()
        } else {
            if ack.is_duplicate {
                flight.board.duplicate(&mut ack.summary);
            }
            // Duplicates after a timeout may be caused by needless retransmissions (RFC 6582, section 3.2, step 2). Plain Reno
            // does not check.
            let counts = self.settings.partial_acks == PartialAcks::EndRecovery || flight.una > self.recover;
            ack.is_duplicate && self.duplicates >= threshold && counts
        }
    }

    /// Fast recovery begins, with a reduction of the window unless it has just had one.
    fn enter(&mut self, flight: &mut Flight, ack: &Ack, reduces: bool) -> Effect {
        let outstanding = flight.board.len();
        self.recoveries += 1;
        self.recover = flight.next;
        if reduces {
            self.reduce(flight);
        }
        // Not what the recovery before this one has sent again already.
        let must_retransmit = !flight.board.is_first_sent_again();
        if must_retransmit {
            flight.board.mark_first();
        }
        if self.sack && self.settings.lost_retransmissions {
            flight.board.mark_overtaken();
        }
        let mut fast = FastRecovery {
            end: flight.next,
            has_restarted_timer: false,
            must_retransmit,
            rescued: false,
            counted: outstanding.saturating_sub(self.settings.duplicate_acks),
            prr: Prr::new(outstanding),
        };
        self.set_window(&mut fast.prr, flight, ack, false);
        self.phase = Phase::Fast(fast);
        Effect::BEGINS
    }

    /// Sets the congestion window so that the sender sends what [`Reduction`] allows. `safe_ack`: see [`Prr::window`].
    fn set_window(&self, prr: &mut Prr, flight: &mut Flight, ack: &Ack, safe_ack: bool) {
        let ssthresh = flight.window.ssthresh();
        flight.window.set(match self.settings.reduction {
            Reduction::Pipe => ssthresh,
            Reduction::Proportional => prr.window(flight.board.pipe(), ssthresh, ack.summary.delivered, safe_ack),
        });
    }

    fn on_ack_in_recovery(&mut self, mut fast: FastRecovery, flight: &mut Flight, ack: &mut Ack) -> Effect {
        if flight.una >= fast.end {
            let effect = self.leave(flight);
            // What was sent since it began has been lost too: the next recovery begins, with a reduction of its own (RFC 6675,
            // section 5, step 2; Linux: `tcp_time_to_recover` while segments count as lost).
            let goes_on = self.sack && self.settings.pipe == Pipe::Scoreboard && flight.board.is_first_lost();
            return if goes_on { self.enter(flight, ack, true) } else { effect };
        }
        fast.counted = fast.counted.saturating_sub(1 + u32::from(ack.advances));
        let mut restarts_timer = false;
        let mut safe_ack = ack.advances;
        if self.sack {
            let mut lost = flight.board.mark_lost(self.settings.duplicate_acks, flight.mss);
            if self.settings.lost_retransmissions {
                lost += flight.board.mark_overtaken();
            }
            safe_ack &= lost == 0;
            restarts_timer = ack.advances;
        } else if ack.is_duplicate {
            flight.board.duplicate(&mut ack.summary);
        } else if ack.advances {
            restarts_timer = match self.settings.partial_acks {
                PartialAcks::EndRecovery => return self.leave(flight),
                PartialAcks::RestartTimerOnce => !fast.has_restarted_timer,
                PartialAcks::RestartTimer => true,
            };
            fast.has_restarted_timer = true;
            flight.board.mark_first();
            fast.must_retransmit = true;
            safe_ack = false;
        }
        self.set_window(&mut fast.prr, flight, ack, safe_ack);
        self.phase = Phase::Fast(fast);
        Effect::timer(restarts_timer)
    }

    /// Fast recovery ends.
    fn leave(&mut self, flight: &mut Flight) -> Effect {
        flight.board.forget_duplicates();
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
                return self.enter(flight, ack, true);
            }
        }
        flight.window.grow(&ack.summary);
        Effect::NONE
    }

    /// The retransmission timer expired (RFC 6298, rules 5.4 to 5.6; RFC 5681, section 3.1). `again`: the peer has not
    /// answered since it expired before.
    pub fn on_timeout(&mut self, flight: Flight, again: bool) {
        self.timeouts += 1;
        let is_syn = flight.una == 0;
        if !is_syn {
            // Once per segment, however often the timer retransmits it.
            let reduces = match self.phase {
                Phase::Open => true,
                Phase::Reducing { end, .. } if flight.una >= end => true,
                Phase::Reducing { .. } | Phase::Fast(_) => self.settings.timeout_reduces_again,
                Phase::AfterTimeout { una, .. } => una != flight.una || self.settings.every_timeout_reduces,
            };
            if reduces {
                flight.window.reduce(flight.board.len(), true);
                self.owes_cwr = true;
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
