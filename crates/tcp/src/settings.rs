//! What a connection's TCP does, as far as stacks differ, and the stacks that it can imitate.

use ekiden_units::Time;

/// The settings of one end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The most payload in a segment that this end takes, without options: the value of the MSS option (RFC 9293, section
    /// 3.7.1), the link's MTU less 40.
    pub mss: u32,
    /// Unacknowledged and unsent payload that is held at most, in bytes.
    pub send_buffer: u64,
    /// In what pieces the send buffer takes data, in bytes: another one as long as less than the buffer is held. 1: exactly up
    /// to its size. Linux asks for room only when it begins a new train of segments (`tcp_sendmsg_locked`).
    pub send_piece: u64,
    /// Whether a program that found the send buffer full can write again only when two thirds of it or less are held, as
    /// in Linux (`sk_stream_write_space`: when what is free is at least half of what is held); otherwise at once.
    pub wakes_at_a_third: bool,
    /// Payload that is held for the application at most, in bytes; so the largest window that is advertised.
    pub receive_buffer: u64,
    /// Whether the advertised window begins at 64 KiB and grows with what the application takes per round trip, as in Linux
    /// (`tcp_rcv_space_adjust`, `tcp_rcvbuf_grow`); otherwise it is the whole buffer from the start.
    pub tunes_window: bool,
    /// Window scaling (RFC 7323, section 2). Used if both ends want it.
    pub window_scaling: bool,
    /// Timestamps (RFC 7323, section 3). Used if both ends want them.
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018). Used if both ends want them.
    pub sack: bool,
    /// The initial congestion window in segments (RFC 6928).
    pub initial_window: u32,
    /// Whether windows grow by the segments that an acknowledgement covers (RFC 3465, without its limit, as Linux does) or by
    /// one per acknowledgement.
    pub byte_counting: bool,
    /// Duplicate acknowledgements that mean a loss: DupThresh (RFC 5681, section 3.2; RFC 6675, section 2).
    pub duplicate_acks: u32,
    /// Whether the first duplicate acknowledgements release new segments (RFC 3042).
    pub limited_transmit: bool,
    /// How fast recovery goes on after an acknowledgement of a part, without SACK.
    pub partial_acks: PartialAcks,
    /// How the sending rate falls in fast recovery.
    pub reduction: Reduction,
    /// How many segments count as being in the network during fast recovery with SACK.
    pub pipe: Pipe,
    /// Whether selective acknowledgements count for nothing from a timeout on until all that was outstanding then has arrived
    /// (RFC 2018, section 8, and ns-2's `Sack1TcpAgent::timeout` and `recv`, which forget them at the timeout and at every
    /// acknowledgement that follows). So everything is sent again.
    pub timeout_forgets_sack: bool,
    /// Whether a retransmission counts as lost when something sent after it has arrived (RFC 8985 without its time for
    /// reordering). Needs SACK. Otherwise only the retransmission timer finds lost retransmissions.
    pub lost_retransmissions: bool,
    /// Whether an acknowledgement that comes sooner after a retransmission than the least round trip is one of the first copy,
    /// so that nothing sent before the retransmission counts as lost for it (RFC 8985, section 6.2, step 2). ns-2's
    /// TCP-Linux does not ask.
    pub doubts_early_acks: bool,
    /// Whether fast recovery with SACK, when nothing else may be sent, sends again what is not known to be lost (RFC 6675,
    /// NextSeg(), rules 3 and 4); Linux does not (`tcp_xmit_retransmit_queue`).
    pub unsure_retransmissions: bool,
    /// Whether a timeout during recovery lowers the slow start threshold again (RFC 5681, equation 4); Linux does not.
    pub timeout_reduces_again: bool,
    /// Whether a timeout that follows another of the same segment lowers the slow start threshold again, so that it comes to its
    /// least, two segments; as in ns-2. The others lower it once for each segment (RFC 5681, section 3.1).
    pub every_timeout_reduces: bool,
    /// Whether a loss that is found after a timeout, before all that was outstanding then has arrived, begins a fast recovery,
    /// which lowers the window from where it is by then; as in ns-2's `LinuxTcpAgent::tcp_fastretrans_alert`. Otherwise
    /// what is lost is only sent again.
    pub reduces_after_timeout: bool,
    /// Whether a loss in slow start and a timeout halve the window whatever the congestion control says, as in ns-2's
    /// `TcpAgent::slowdown` and `timeout`. The others leave it to the congestion control.
    pub halves_in_slow_start: bool,
    /// Whether only a window that was used grows (RFC 7661; Linux).
    pub window_validation: bool,
    /// Whether a connection that was idle for longer than RTO starts with the initial window again (RFC 5681, section 4.1).
    pub idle_restart: bool,
    /// Nagle's algorithm (RFC 9293, section 3.7.4).
    pub nagle: bool,
    /// Whether a sender without timestamps measures the round-trip time of one segment at a time only, so once per window
    /// (RFC 6298, section 3; RFC 1323, section 3.1), and of none that was sent before a fast retransmit or a timeout; as
    /// in 4.3BSD and many after it, and in ns-2's `TcpAgent::output` and `newack`. Otherwise that of each.
    pub rtt_per_window: bool,
    /// Whether every acknowledgement restarts the retransmission timer, duplicates too, as in ns-2's
    /// `LinuxTcpAgent::time_processing`. Otherwise only those that acknowledge new data do (RFC 6298, rule 5.3).
    pub every_ack_restarts_timer: bool,
    /// The retransmission timer.
    pub rto: Rto,
    /// Timeouts or probes in a row without an answer after which the connection is given up (RFC 9293, section 3.8.3: R2).
    pub retries: u32,
    /// Full segments that are acknowledged together at most (RFC 5681, section 4.2: 2). 1: no delayed acknowledgements.
    pub ack_every: u32,
    /// How long an acknowledgement waits at most (RFC 5681, section 4.2: below 500 ms).
    pub ack_delay: Time,
    /// Whether delayed acknowledgements go when the clock shows a multiple of `ack_delay`, so sooner than that on average, as with
    /// BSD's fast timer.
    pub acks_by_clock: bool,
    /// Segments at the start of a connection that are acknowledged one by one, as Linux does.
    pub quick_acks: u32,
    /// How long the side that ended first remembers the connection: twice the MSL (RFC 9293, section 3.4.2).
    pub time_wait: Time,
}

/// What an acknowledgement of a part of the data does in fast recovery without SACK.
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

/// How the sending rate falls to the slow start threshold in fast recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// At once; then what is in the network is kept there (RFC 6582, section 3.2; RFC 6675, section 5).
    Pipe,
    /// In proportion to what arrives: PRR with its slow start reduction bound (RFC 6937).
    Proportional,
}

/// What counts as being in the network during fast recovery with SACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipe {
    /// What is neither selectively acknowledged nor lost (RFC 6675, section 4).
    Scoreboard,
    /// What was outstanding at the beginning, and one more for each segment sent, one less for each acknowledgement, two for one
    /// of a part: Fall and Floyd, "Simulation-based Comparisons of Tahoe, Reno, and SACK TCP", CCR 1996, section 3.4, and
    /// ns-2's `Sack1TcpAgent`. What is lost stays in it, so that after a loss of half a window hardly anything may be sent.
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
    /// The timer is looked at when the clock shows a multiple of this, as with BSD's slow timer; 0: it runs out exactly on time.
    pub tick: Time,
    /// What `least` bounds: the timeout (RFC 6298, rule 2.4), or, as in Linux, the part of it that follows from the
    /// variance, so that the timeout is at least `least` above the smoothed round-trip time.
    pub least_bounds_variance: bool,
    /// How much longer the timeout is after each one (RFC 6298, rule 5.5: 2).
    pub backoff: u32,
}

impl Settings {
    /// What the RFCs recommend today.
    pub fn rfc() -> Self {
        Self {
            mss: 1460,
            send_buffer: 4 << 20,
            send_piece: 1,
            wakes_at_a_third: false,
            receive_buffer: 4 << 20,
            tunes_window: false,
            window_scaling: true,
            timestamps: true,
            sack: true,
            initial_window: 10,
            byte_counting: true,
            duplicate_acks: 3,
            limited_transmit: true,
            partial_acks: PartialAcks::RestartTimerOnce,
            reduction: Reduction::Pipe,
            pipe: Pipe::Scoreboard,
            timeout_forgets_sack: false,
            lost_retransmissions: false,
            doubts_early_acks: true,
            unsure_retransmissions: true,
            timeout_reduces_again: true,
            every_timeout_reduces: false,
            reduces_after_timeout: false,
            halves_in_slow_start: false,
            window_validation: true,
            idle_restart: true,
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
            time_wait: Time::secs(240),
        }
    }

    /// A current Linux: RTO from 200 ms above the smoothed round-trip time, RACK, PRR, windows that grow with what is read,
    /// writers that are woken late. Its reordering window, tail loss probes, F-RTO and undo are not imitated.
    pub fn linux() -> Self {
        Self {
            send_piece: 64 << 10,
            wakes_at_a_third: true,
            tunes_window: true,
            partial_acks: PartialAcks::RestartTimer,
            reduction: Reduction::Proportional,
            lost_retransmissions: true,
            unsure_retransmissions: false,
            timeout_reduces_again: false,
            rto: Rto { least: Time::ms(200), most: Time::secs(120), least_bounds_variance: true, ..Self::rfc().rto },
            ack_delay: Time::ms(40),
            quick_acks: 16,
            time_wait: Time::secs(60),
            ..Self::rfc()
        }
    }

    /// ns-2's agent Sack1 of the time of S2 (about 2006): every segment acknowledged, windows that grow whether used or
    /// not, windows that halve in slow start whatever the congestion control, a coarse retransmission timer of at least
    /// 200 ms, no Nagle.
    pub fn ns2() -> Self {
        Self {
            initial_window: 2,
            byte_counting: false,
            pipe: Pipe::Acknowledgements,
            timeout_forgets_sack: true,
            every_timeout_reduces: true,
            halves_in_slow_start: true,
            window_validation: false,
            idle_restart: false,
            nagle: false,
            rtt_per_window: true,
            rto: Rto { initial: Time::secs(3), least: Time::ms(200), granularity: Time::ms(10), ..Self::rfc().rto },
            ack_every: 1,
            ..Self::rfc()
        }
    }

    /// ns-2's agent Linux: TCP-Linux (Wei and Cao, "NS-2 TCP-Linux: an NS-2 TCP Implementation with Congestion Control
    /// Algorithms from Linux", WNS2 2006), the one agent of ns-2 that has BIC. It keeps what SACK tells and finds lost
    /// retransmissions, leaves reductions to the congestion control, and takes up a new recovery after a timeout with
    /// whatever window it has by then. Its rate halving is not imitated.
    pub fn ns2_linux() -> Self {
        Self {
            pipe: Pipe::Scoreboard,
            timeout_forgets_sack: false,
            lost_retransmissions: true,
            doubts_early_acks: false,
            reduces_after_timeout: true,
            halves_in_slow_start: false,
            window_validation: true,
            every_ack_restarts_timer: true,
            ..Self::ns2()
        }
    }

    /// OPNET's Reno with its defaults of about the time of S1 (2003): no SACK, no timestamps, plain Reno's recovery, initial window
    /// of one segment, RTO from 1 s with a timer of 0.5 s, acknowledgements by a clock of 0.2 s. What is known of it, and
    /// what is assumed, stands in docs/measurements/s1.md.
    pub fn opnet() -> Self {
        Self {
            timestamps: false,
            sack: false,
            initial_window: 1,
            byte_counting: false,
            limited_transmit: false,
            partial_acks: PartialAcks::EndRecovery,
            window_validation: false,
            idle_restart: false,
            nagle: false,
            rto: Rto { most: Time::secs(64), granularity: Time(0), tick: Time::ms(500), ..Self::rfc().rto },
            acks_by_clock: true,
            ..Self::rfc()
        }
    }
}
