//! How TCP stacks differ: the settings of a connection, and profiles that imitate stacks.

use ekiden_units::Time;

/// The settings of one end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSettings {
    /// The value of the MSS option (RFC 9293, section 3.7.1): the most payload, and TCP options, in a segment that this end
    /// takes. The link's MTU less 40.
    pub mss: u32,
    /// The size of the send buffer: the most unacknowledged and unsent payload, in bytes.
    pub send_buffer: u64,
    /// The send buffer takes data in pieces of this many bytes: a whole piece whenever the buffer is not full. With 1 it takes
    /// exactly its size. Linux checks for room only when it begins a new GSO segment (`tcp_sendmsg_locked`).
    pub send_piece: u64,
    /// Whether a program that found the send buffer full can write again only when at least a third of it is free, as in Linux
    /// (`sk_stream_write_space`: the free part is at least half of the used part); otherwise as soon as there is room.
    pub wakes_at_a_third: bool,
    /// The size of the receive buffer in bytes, which is also the largest window that is advertised.
    pub receive_buffer: u64,
    /// Receive buffer autotuning: whether the advertised window begins at 64 KiB and grows with what the application reads per
    /// round trip, as in Linux (`tcp_rcv_space_adjust`, `tcp_rcvbuf_grow`). Otherwise it is the whole buffer from the start.
    pub autotunes_window: bool,
    /// Window scaling (RFC 7323, section 2). Used if both ends want it.
    pub window_scaling: bool,
    /// Timestamps (RFC 7323, section 3). Used if both ends want them.
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018). Used if both ends want them.
    pub sack: bool,
    /// Explicit congestion notification (RFC 3168). Used if both ends want it.
    pub ecn: bool,
    /// The initial congestion window in segments (RFC 6928).
    pub initial_window: u32,
    /// The initial slow start threshold in segments; `None`: arbitrarily high (RFC 5681, section 3.1). RFC 2001 had 65,535 bytes.
    pub initial_ssthresh: Option<u32>,
    /// What of an acknowledgement makes the congestion window grow.
    pub counting: Counting,
    /// Duplicate acknowledgements that mean a loss: DupThresh (RFC 5681, section 3.2; RFC 6675, section 2).
    pub duplicate_acks: u32,
    /// Whether the first duplicate acknowledgements release new segments (RFC 3042).
    pub limited_transmit: bool,
    /// What a partial acknowledgement does in fast recovery without SACK.
    pub partial_acks: PartialAcks,
    /// How the congestion window falls in fast recovery.
    pub reduction: Reduction,
    /// How the pipe, the segments in the network, is estimated during fast recovery with SACK.
    pub pipe: Pipe,
    /// Whether a timeout discards SACK information, and ignores more of it until everything outstanding at the timeout has been
    /// acknowledged, so that everything is sent again (RFC 2018, section 8; ns-2's `Sack1TcpAgent::timeout` and `recv`).
    pub timeout_forgets_sack: bool,
    /// Whether a retransmission counts as lost when a segment sent after it has arrived (RFC 8985 without its reordering
    /// window). Needs SACK. Otherwise only the retransmission timer finds lost retransmissions.
    pub lost_retransmissions: bool,
    /// Whether an acknowledgement that arrives sooner after a retransmission than the minimum RTT is attributed to the first
    /// copy, so that it does not mark segments sent before the retransmission as lost (RFC 8985, section 6.2, step 2). ns-2's
    /// TCP-Linux does not check.
    pub doubts_early_acks: bool,
    /// Whether fast recovery with SACK retransmits segments that are not known to be lost when nothing else may be sent (RFC
    /// 6675, NextSeg(), rules 3 and 4). Linux does not (`tcp_xmit_retransmit_queue`).
    pub speculative_retransmissions: bool,
    /// Whether a timeout during recovery lowers the slow start threshold again (RFC 5681, equation 4); Linux does not.
    pub timeout_reduces_again: bool,
    /// Whether repeated timeouts of the same segment each lower the slow start threshold, down to two segments, as in ns-2.
    /// Other stacks lower it once per segment (RFC 5681, section 3.1).
    pub every_timeout_reduces: bool,
    /// Whether a loss found after a timeout, before everything outstanding at the timeout has arrived, begins a fast recovery,
    /// which lowers the window from its current value, as in ns-2's `LinuxTcpAgent::tcp_fastretrans_alert`. Otherwise the
    /// lost segments are only sent again.
    pub reduces_after_timeout: bool,
    /// Whether a loss reduces the congestion window also where less than that is outstanding (Linux, `tcp_reno_ssthresh`,
    /// `cubictcp_recalc_ssthresh`), or what is outstanding (RFC 5681, equation 4).
    pub reduces_unused: bool,
    /// Which reductions halve the window whatever the congestion control says.
    pub halves: Halves,
    /// Whether the congestion window grows only while it limits the sender (RFC 7661; Linux).
    pub window_validation: bool,
    /// What becomes of the congestion window while a connection is idle for longer than RTO.
    pub idle: Idle,
    /// Whether a segment that lies wholly beyond a window that shrank is sent again only if it is the first, as in Linux
    /// (`__tcp_retransmit_skb`). Otherwise it is sent whatever the window (RFC 9293, section 3.8.6; RFC 7323, section 2.4).
    pub retransmits_within_window: bool,
    /// Nagle's algorithm (RFC 9293, section 3.7.4).
    pub nagle: bool,
    /// Whether a sender without timestamps times one segment at a time, so once per window (RFC 6298, section 3; RFC 1323,
    /// section 3.1), and none sent before a fast retransmit or a timeout, as in 4.3BSD and its descendants, and in ns-2's
    /// `TcpAgent::output` and `newack`. Otherwise it times every segment.
    pub rtt_per_window: bool,
    /// Whether every acknowledgement restarts the retransmission timer, duplicates too, as in ns-2's
    /// `LinuxTcpAgent::time_processing`. Otherwise only those that acknowledge new data do (RFC 6298, rule 5.3).
    pub every_ack_restarts_timer: bool,
    /// The retransmission timer.
    pub rto: Rto,
    /// Timeouts or probes in a row without an answer after which the connection is given up (RFC 9293, section 3.8.3: R2).
    pub retries: u32,
    /// The most full segments that one acknowledgement covers (RFC 5681, section 4.2: 2). 1: no delayed acknowledgements.
    pub ack_every: u32,
    /// The longest delay of an acknowledgement (RFC 5681, section 4.2: below 500 ms).
    pub ack_delay: Time,
    /// Whether delayed acknowledgements are sent when the clock reaches a multiple of `ack_delay`, as by BSD's fast timer: after
    /// half of it on average.
    pub acks_by_clock: bool,
    /// How many segments at the start of a connection are acknowledged one by one: Linux's quick ACKs.
    pub quick_acks: u32,
    /// Whether an acknowledgement that is due waits, up to `ack_delay`, for the application to take what has arrived, unless the
    /// window's right edge moves with it, as in Linux (`__tcp_ack_snd_check`, `__tcp_cleanup_rbuf`). So the peer of a program that
    /// reads late sees longer round trips.
    pub acks_wait_for_reader: bool,
    /// How long the end that closed first stays in TIME-WAIT: twice the MSL (RFC 9293, section 3.4.2).
    pub time_wait: Time,
}

/// What of an acknowledgement makes the congestion window grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// That it is one (RFC 5681, section 3.1, before RFC 3465).
    Acknowledgements,
    /// The segments that it covers; in the slow start after a timeout one at most, since most of what it covers may have arrived
    /// before (RFC 3465, section 2.3; without the limit of two segments elsewhere).
    Covered,
    /// The segments of which it is the first to tell that they have arrived, as in Linux (`tcp_newly_delivered`).
    Delivered,
}

/// Which reductions halve the window whatever the congestion control says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halves {
    /// None.
    Never,
    /// Those by a timeout.
    AtTimeouts,
    /// These, and those by a loss in slow start, as in ns-2's `TcpAgent::slowdown`.
    InSlowStartToo,
}

/// What becomes of the congestion window while a connection is idle for longer than RTO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// It stays.
    Keeps,
    /// It falls to the initial window (RFC 5681, section 4.1).
    Restarts,
    /// It halves with every RTO, down to the initial window; the slow start threshold is at least three quarters of what it was,
    /// as in Linux (`tcp_cwnd_restart`; RFC 2861, section 3.1).
    Halves,
}

/// What a partial acknowledgement does in fast recovery without SACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartialAcks {
    /// It ends the recovery: Reno as in RFC 2581.
    EndRecovery,
    /// The next segment is sent again; the first such acknowledgement restarts the retransmission timer: the impatient
    /// variant (RFC 6582, section 3.2).
    RestartTimerOnce,
    /// The next segment is sent again; each restarts the timer: the slow-but-steady variant (RFC 6582, section 4).
    RestartTimer,
}

/// How the congestion window falls to the slow start threshold in fast recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// At once; then the sender keeps the pipe at the threshold (RFC 6582, section 3.2; RFC 6675, section 5).
    Pipe,
    /// In proportion to the data that arrives: PRR with its slow start reduction bound (RFC 6937).
    Proportional,
}

/// How the pipe, the segments in the network, is estimated during fast recovery with SACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipe {
    /// The segments that are neither sacked nor lost (RFC 6675, section 4).
    Scoreboard,
    /// The segments outstanding at the beginning, plus one for each segment sent, less one for each acknowledgement, or two for a
    /// partial one: Fall and Floyd, "Simulation-based Comparisons of Tahoe, Reno, and SACK TCP", CCR 1996, section 3.4, and
    /// ns-2's `Sack1TcpAgent`. Lost segments stay in it, so that after a loss of half a window hardly anything may be sent.
    Acknowledgements,
}

/// The retransmission timeout (RFC 6298).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rto {
    /// Before the first round-trip time was measured.
    pub initial: Time,
    /// The least.
    pub least: Time,
    /// The largest, backed off too.
    pub most: Time,
    /// The clock's granularity: G.
    pub granularity: Time,
    /// The timer expires only when the clock reaches a multiple of this, as by BSD's slow timer; 0: exactly on time.
    pub tick: Time,
    /// What `least` bounds: the timeout (RFC 6298, rule 2.4), or, as in Linux, the part of it that follows from the
    /// variance, so that the timeout is at least `least` above the smoothed round-trip time.
    pub least_bounds_variance: bool,
    /// The factor by which each timeout makes the next one longer (RFC 6298, rule 5.5: 2).
    pub backoff: u32,
}

impl TcpSettings {
    /// What the RFCs recommend today.
    pub fn rfc() -> Self {
        Self {
            mss: 1460,
            send_buffer: 4 << 20,
            send_piece: 1,
            wakes_at_a_third: false,
            receive_buffer: 4 << 20,
            autotunes_window: false,
            window_scaling: true,
            timestamps: true,
            sack: true,
            ecn: false,
            initial_window: 10,
            initial_ssthresh: None,
            counting: Counting::Covered,
            duplicate_acks: 3,
            limited_transmit: true,
            partial_acks: PartialAcks::RestartTimerOnce,
            reduction: Reduction::Pipe,
            pipe: Pipe::Scoreboard,
            timeout_forgets_sack: false,
            lost_retransmissions: false,
            doubts_early_acks: true,
            speculative_retransmissions: true,
            timeout_reduces_again: true,
            every_timeout_reduces: false,
            reduces_after_timeout: false,
            reduces_unused: false,
            halves: Halves::Never,
            window_validation: true,
            idle: Idle::Restarts,
            retransmits_within_window: false,
            nagle: true,
            rtt_per_window: false,
            every_ack_restarts_timer: false,
            rto: Rto {
                initial: Time::secs(1),
                least: Time::secs(1),
                most: Time::secs(60),
                granularity: Time::ms(1),
                tick: Time(0),
                least_bounds_variance: false,
                backoff: 2,
            },
            retries: 15,
            ack_every: 2,
            ack_delay: Time::ms(200),
            acks_by_clock: false,
            quick_acks: 0,
            acks_wait_for_reader: false,
            time_wait: Time::secs(240),
        }
    }

    /// A current Linux: RTO from 200 ms above the smoothed round-trip time, RACK, PRR, receive buffer
    /// autotuning, and writers that are woken late. Its reordering window, tail loss probes, F-RTO and undo are not imitated.
    pub fn linux() -> Self {
        Self {
            send_piece: 64 << 10,
            wakes_at_a_third: true,
            autotunes_window: true,
            counting: Counting::Delivered,
            partial_acks: PartialAcks::RestartTimer,
            reduction: Reduction::Proportional,
            lost_retransmissions: true,
            speculative_retransmissions: false,
            timeout_reduces_again: false,
            reduces_unused: true,
            idle: Idle::Halves,
            retransmits_within_window: true,
            rto: Rto { least: Time::ms(200), most: Time::secs(120), least_bounds_variance: true, ..Self::rfc().rto },
            ack_delay: Time::ms(40),
            quick_acks: 16,
            acks_wait_for_reader: true,
            time_wait: Time::secs(60),
            ..Self::rfc()
        }
    }

    /// ns-2's agent Sack1 of the time of S2 (about 2006): every segment acknowledged, windows that grow whether used or
    /// not and halve in slow start whatever the congestion control, a coarse retransmission timer of at least
    /// 200 ms, no Nagle.
    pub fn ns2() -> Self {
        Self {
            initial_window: 2,
            counting: Counting::Acknowledgements,
            pipe: Pipe::Acknowledgements,
            timeout_forgets_sack: true,
            every_timeout_reduces: true,
            reduces_unused: false,
            halves: Halves::InSlowStartToo,
            window_validation: false,
            idle: Idle::Keeps,
            nagle: false,
            rtt_per_window: true,
            rto: Rto { initial: Time::secs(3), least: Time::ms(200), granularity: Time::ms(10), ..Self::rfc().rto },
            ack_every: 1,
            ..Self::rfc()
        }
    }

    /// Sack1 with the patch of BIC's authors for ns-2.26 (2003), as far as it is known: losses in slow start reduce as BIC says too,
    /// as in the pseudo-code of BIC's paper, and the least retransmission timeout is ns-2's until October 2004.
    /// docs/measurements/s2.md says what is known.
    pub fn ns2_bitcp() -> Self {
        let ns2 = Self::ns2();
        Self { halves: Halves::AtTimeouts, rto: Rto { least: Time::secs(1), ..ns2.rto }, ..ns2 }
    }

    /// ns-2's agent Linux: TCP-Linux (Wei and Cao, "NS-2 TCP-Linux: an NS-2 TCP Implementation with Congestion Control
    /// Algorithms from Linux", WNS2 2006), the one agent that has BIC in ns-2 as it is released. It keeps SACK information after a timeout and finds lost
    /// retransmissions, leaves reductions to the congestion control, and begins a new recovery after a timeout with whatever
    /// window it has by then. Its rate halving is not imitated.
    pub fn ns2_linux() -> Self {
        Self {
            pipe: Pipe::Scoreboard,
            timeout_forgets_sack: false,
            lost_retransmissions: true,
            doubts_early_acks: false,
            reduces_after_timeout: true,
            reduces_unused: false,
            halves: Halves::Never,
            window_validation: true,
            every_ack_restarts_timer: true,
            ..Self::ns2()
        }
    }

    /// OPNET's Reno with its defaults of about the time of S1 (2003): no SACK, no timestamps, plain Reno's recovery, initial window
    /// of one segment, RTO from 1 s with a timer of 0.5 s, delayed acknowledgements by a clock of 0.2 s. docs/measurements/s1.md
    /// says what is known of it and what is assumed.
    pub fn opnet() -> Self {
        Self {
            timestamps: false,
            sack: false,
            initial_window: 1,
            counting: Counting::Acknowledgements,
            limited_transmit: false,
            partial_acks: PartialAcks::EndRecovery,
            window_validation: false,
            idle: Idle::Keeps,
            nagle: false,
            rto: Rto { most: Time::secs(64), granularity: Time(0), tick: Time::ms(500), ..Self::rfc().rto },
            acks_by_clock: true,
            ..Self::rfc()
        }
    }
}
