//! What it means that a server ends a connection, or its handshake.

use std::io;

use ekiden_transport::is_own_key_refused;

use crate::Error;

/// Whether the other end has closed the connection.
pub fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Why a handshake did not come about.
pub fn of_handshake(to: String, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied if is_own_key_refused(error) => Error::Key {
            to,
            why: "it does not know this client's key: `ekiden keygen --show FILE` prints the fingerprint here, which the server's --node NAME=FINGERPRINT or configuration must have"
                .into(),
        },
        io::ErrorKind::PermissionDenied => Error::Key { to, why: error.to_string() },
        io::ErrorKind::Unsupported => Error::Open { to },
        _ if is_closed(error) => Error::Closed { to },
        io::ErrorKind::TimedOut => Error::NotAServer { to, why: "it does not finish a handshake".into() },
        _ => Error::NotAServer { to, why: error.to_string() },
    }
}
