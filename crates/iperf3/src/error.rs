//! Why a measurement with an iperf3 server failed.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ekiden_net::socket::SocketError;

/// Why a measurement with an iperf3 server failed. The message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings contradict each other, or are out of range.
    #[error("{0}")]
    Settings(String),
    /// The server's name has no address.
    #[error("'{server}' has no address: {source}")]
    Name {
        /// What was asked for.
        server: String,
        /// The resolver's reason.
        source: io::Error,
    },
    /// The server cannot be reached.
    #[error("no connection to {address}: {source}")]
    Connect {
        /// The last address that was tried.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The SOCKS5 listener gives no way to the server: its address, and why.
    #[error("--via {0}")]
    Socks5(String),
    /// A socket cannot be set up as asked.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The server is measuring with someone else.
    #[error("the iperf3 server is busy with another client; try again later")]
    Busy,
    /// Whatever answers does not speak iperf3's protocol.
    #[error("this is no iperf3 server: {0}")]
    NotIperf3(&'static str),
    /// The server says nothing.
    #[error("the server says nothing for {} s while it should {phase}; is it an iperf3 server?", patience.as_secs())]
    Silent {
        /// What it should do.
        phase: Phase,
        /// How long was waited.
        patience: Duration,
    },
    /// The connection ended.
    #[error("the server went away while it should {phase}{}", reason(source.as_ref()))]
    Gone {
        /// What it should do.
        phase: Phase,
        /// The kernel's reason, if the connection broke.
        source: Option<io::Error>,
    },
    /// The server ended the connection when it read the parameters.
    #[error(
        "the iperf3 server ended the connection instead of taking the parameters: it may want a user and a password, which this client \
         does not have, or be older than iperf3 3.2; what the server prints says which"
    )]
    Declined,
    /// The server refuses, or failed.
    #[error("the iperf3 server says: {}", said(*code, *errno))]
    Server {
        /// iperf3's number of the error.
        code: i32,
        /// The system's number of the error; 0 for none.
        errno: i32,
    },
    /// The server was stopped.
    #[error("the iperf3 server was stopped during the measurement")]
    Terminated,
    /// The server says something at the wrong time.
    #[error("the server says {state} while it should {phase}")]
    Order {
        /// What it said, by its number.
        state: i8,
        /// What it should do.
        phase: Phase,
    },
    /// A message is too long, or is not what it should be.
    #[error("the server's results are unusable: {0}")]
    Results(String),
    /// A transfer by bytes stands still.
    #[error("the transfer stands still: nothing arrived for {} s", patience.as_secs())]
    Stalled {
        /// How long was waited.
        patience: Duration,
    },
    /// This machine lacks something.
    #[error("cannot {what}: {source}")]
    Local {
        /// What failed.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// What the server should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Answer the first connection.
    Greet,
    /// Take the parameters.
    TakeParameters,
    /// Take the connections of the streams.
    TakeStreams,
    /// Begin.
    Begin,
    /// Take and send data.
    Carry,
    /// Say what it has received.
    SendResults,
    /// Say that it is done.
    Finish,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Greet => "answer",
            Self::TakeParameters => "take the parameters",
            Self::TakeStreams => "take the streams",
            Self::Begin => "begin",
            Self::Carry => "measure",
            Self::SendResults => "send its results",
            Self::Finish => "finish",
        })
    }
}

fn reason(source: Option<&io::Error>) -> String {
    source.map_or(String::new(), |source| format!(": {source}"))
}

/// An error of iperf3's in words. The numbers are those of its interface (`iperf_api.h`); a newer server may have others.
fn said(code: i32, errno: i32) -> String {
    let words = match code {
        27 => "the load is above the rate that it allows",
        37 => "the duration is longer than it allows",
        105 | 106 => "the cookie did not arrive",
        107..=112 => "the control connection failed",
        113 | 114 => "it cannot take the parameters",
        120 => "it was stopped",
        121 => "it is busy",
        122 => "it cannot set TCP_NODELAY",
        123 => "it cannot set the segment size",
        124 | 130 => "it cannot set the socket buffers",
        141 => "its system allows no socket buffers of this size",
        134 => "it does not have the congestion control",
        142 => "it wants a user and a password, which this client does not have",
        200..=204 => "it cannot make a stream",
        205 => "it cannot send on a stream",
        206 => "it cannot receive on a stream",
        207 | 208 => "a stream is lost",
        _ => "an error that this client has no words for",
    };
    let system = if errno > 0 { format!("; {}", io::Error::from_raw_os_error(errno)) } else { String::new() };
    format!("{words} (its error {code}{system})")
}
