//! Why a measurement did not come about.

use std::io;

use ekiden_diagnosis::outcome::TooShort;

/// Why a measurement did not come about, as the end sees it that asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody is there.
    #[error("{to}: {source}{}", hint(source))]
    Unreachable {
        /// The server.
        to: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Who is there does not know this end's key, or has another key than expected.
    #[error("{to}: {why}")]
    Key {
        /// The server.
        to: String,
        /// What to do.
        why: String,
    },
    /// Who is there is something else.
    #[error("{to} is not a measuring server of ekiden: {why}")]
    NotAServer {
        /// The server.
        to: String,
        /// What was seen.
        why: String,
    },
    /// The server measures for someone else.
    #[error("{to} is busy: {why}")]
    Busy {
        /// The server.
        to: String,
        /// What it says.
        why: String,
    },
    /// The server does not do this.
    #[error("{to} refuses: {why}")]
    Refused {
        /// The server.
        to: String,
        /// What it says.
        why: String,
    },
    /// The load broke off.
    #[error("the measurement with {to} broke off: {why}")]
    Broken {
        /// The server.
        to: String,
        /// Why.
        why: String,
    },
    /// The server is open, and this end has a key.
    #[error("{to} is an open server, which takes no keys: measure with --open, and without --config and --key")]
    Open {
        /// The server.
        to: String,
    },
    /// The SOCKS5 listener on the way gives no connection.
    #[error("--via {via}: {why}")]
    Via {
        /// The listener.
        via: String,
        /// Why, and what to do.
        why: String,
    },
    /// What the server says of its end contradicts what this end has seen.
    #[error("{to}: the server's figures cannot be: {why}")]
    Impossible {
        /// The server.
        to: String,
        /// Which, and why.
        why: String,
    },
    /// The load was too short.
    #[error(transparent)]
    TooShort(#[from] TooShort),
    /// Who is there has closed the connection before it said anything.
    #[error(
        "{to} closes the connection at once: it is no measuring server (those listen on port 7100 unless told otherwise), or has too many connections that prove nothing, and takes more in 10 s"
    )]
    Closed {
        /// The server.
        to: String,
    },
    /// The path was another one in the end.
    #[error("the path to {to} changed while it was measured: {why}")]
    Changed {
        /// The server.
        to: String,
        /// What changed.
        why: String,
    },
    /// What was asked for cannot be.
    #[error("{0}")]
    Settings(String),
    /// This end cannot do it.
    #[error("cannot measure here: {0}")]
    Here(String),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "; is `ekiden measure server` running there, and does it listen on that address?"
        }
        io::ErrorKind::TimedOut => "; nothing answers: is the port open in the firewall?",
        _ => "",
    }
}
