//! What state a connection is in, and why it ended.

/// The states of RFC 9293, section 3.3.2, without LISTEN: a listener makes a connection for each SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // They are the RFC's.
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// Why a connection ended before both ends said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The peer refused it.
    Refused,
    /// The peer reset it.
    Reset,
    /// The peer did not answer.
    TimedOut,
    /// This end reset it.
    Aborted,
}
