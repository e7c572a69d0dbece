//! The beginning of a connection between two nodes: each proves its identity to the other.
//!
//! `UNPROVEN_BYTES` bounds what a stranger can make this process hold until then.

use std::fmt::Display;
use std::io;

use ekiden_keys::{Fingerprint, random_secret};
use ekiden_relay_proto::leg::{
    Acceptor, Dialler, FrameKind, ProtocolError, SharedSecret, decode_failed, encode_failed,
};
use ekiden_relay_proto::{Failure, FailureCode};
use indexmap::IndexMap;
use tokio::net::TcpStream;

use crate::budget::Holding;
use crate::connection::Connection;
use crate::frames::{invalid, protocol_error, read_frame, read_unproven};
use crate::handshake_turns::in_turns;
use crate::security::{Credential, Security};

/// The memory that a node which connects may hold before it has proven a key: what it has sent, the state of the handshake, and
/// the answer. All of it counts in the [`budget`](crate::budget) from the first moment.
pub const UNPROVEN_BYTES: usize = 16 << 10;

/// The maximum number of characters that are logged of a message of a peer without a proven key.
const UNPROVEN_WORDS: usize = 160;

/// Whether a node that connected is admitted.
pub enum Admission {
    /// It has proven a key that may connect.
    Admitted {
        /// Its name. With TLS it is the name that the listener has for its key; with a shared key, the name that the node gives
        /// itself.
        name: String,
        /// The keys by which it was admitted.
        credential: Credential,
        /// The connection, ready for its first request.
        connection: Connection,
    },
    /// It has not.
    Refused(Refused),
}

/// A node that is refused, and has not been told so yet.
pub struct Refused {
    /// Why.
    pub why: String,
    connection: Connection,
    failed: Vec<u8>,
}

impl Refused {
    /// Tells the node, and ends the connection. This may wait for ever: the node need not take the answer.
    pub async fn tell(self) {
        // An error means that the node has gone. It is refused either way.
        let _ = self.connection.send_all(&self.failed).await;
        self.connection.end_cleanly();
    }
}

/// Authenticates both ends of `socket`, on the side that connected: proves this node, called `own`, to the other, and checks
/// that the other is the one that `security` names. Returns the connection, and bytes that must be sent before the first
/// request.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`]: one of the two refuses the other's key. [`io::ErrorKind::InvalidData`]: the other side
/// speaks something else, or has refused a shared key. [`io::ErrorKind::Unsupported`]: it takes no keys. Any other kind is an error of the connection.
pub async fn dial(
    socket: TcpStream,
    security: &Security<Option<Fingerprint>>,
    own: &str,
) -> io::Result<(Connection, Vec<u8>)> {
    match security {
        Security::Tls { identity, known, prepared } => {
            let session = prepared.dial(identity, *known).map_err(invalid)?;
            Ok((Connection::start_tls(socket, session).await?, Vec::new()))
        }
        Security::Plain(shared) => {
            let stream = Connection::from(socket);
            let dialler = Dialler::new(shared.key.clone(), own, random_secret()?);
            stream.send_all(&dialler.hello()).await?;
            match read_frame(&stream).await? {
                (FrameKind::Hello, body) => dialler.auth(&body).map(|auth| (stream, auth)).map_err(invalid),
                (FrameKind::Failed, body) => {
                    // Anyone may have said it: its first words, and nothing of it as it is.
                    let said: String =
                        decode_failed(&body).map_err(invalid)?.text.chars().take(UNPROVEN_WORDS).collect();
                    Err(invalid(format_args!("it has not proven its key, and says {said:?}")))
                }
                _ => Err(invalid("it does not speak the leg protocol")),
            }
        }
    }
}

/// Authenticates both ends of `socket`, on the side that accepted: finds out which node connected, and proves this node, called
/// `own`, to it. The steps of a TLS handshake take turns with those of others.
///
/// # Errors
/// As [`dial`]. [`crate::is_own_key_refused`] says which side has refused.
pub async fn accept(
    socket: TcpStream,
    security: &Security<IndexMap<String, Fingerprint>>,
    own: &str,
) -> io::Result<Admission> {
    let mut holding = Holding::default();
    holding.set(UNPROVEN_BYTES);
    match security {
        Security::Tls { identity, known, prepared } => {
            let session = prepared.accept(identity, known).map_err(invalid)?;
            let from = socket.peer_addr()?.ip();
            let connection = in_turns(from, Connection::start_tls(socket, session)).await?;
            let key = connection.peer_key();
            let Some((name, key)) = known.iter().find(|(_, known)| Some(**known) == key) else {
                return Err(invalid("a key that none of the nodes has"));
            };
            let credential = Credential::Tls { ours: identity.fingerprint(), theirs: *key };
            Ok(Admission::Admitted { name: name.clone(), credential, connection })
        }
        Security::Plain(shared) => {
            let connection = Connection::from(socket);
            let name = match prove(&shared.key, &connection).await? {
                Ok(name) => name,
                Err(why) => {
                    let failure = Failure::new(FailureCode::Authentication, format_args!("node {own}: {why}"));
                    return Ok(Admission::Refused(Refused { why, connection, failed: encode_failed(&failure) }));
                }
            };
            Ok(Admission::Admitted { name, credential: Credential::Plain(shared.key.clone()), connection })
        }
    }
}

/// Finds out whether the dialler has the shared key. Returns its name, or why it is refused.
async fn prove(key: &SharedSecret, stream: &Connection) -> io::Result<Result<String, String>> {
    let refused = |why: &dyn Display| Ok(Err(why.to_string()));
    let mut acceptor = Acceptor::new(key.clone(), random_secret()?);
    let body = match read_unproven(stream, FrameKind::Hello).await {
        Ok(body) => body,
        // The dialler speaks TLS and cannot read the refusal, but it can see from it that this side does not speak TLS.
        Err(error) if protocol_error(&error) == Some(&ProtocolError::Tls) => return refused(&ProtocolError::Tls),
        Err(error) => return Err(error),
    };
    let hello = match acceptor.hello(&body) {
        Ok(hello) => hello,
        Err(error) => return refused(&error),
    };
    stream.send_all(&hello).await?;
    // The dialler knows by now whether this node has its key. It reports nothing, and closes the connection.
    let read = read_unproven(stream, FrameKind::Auth).await.map_err(|error| match error.kind() {
        kind @ (io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) => {
            io::Error::new(kind, "it closed the connection before it had proven the key: it may have another one")
        }
        _ => error,
    });
    match acceptor.authenticate(&read?) {
        Ok(name) => Ok(Ok(name)),
        Err(error) => refused(&error),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use ekiden_relay_proto::leg::{Header, MAX_CONTROL, MAX_FILL, SharedSecret};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::handshake_turns::hold;
    use crate::security::SharedKey;
    use crate::tls::Prepared;
    use crate::{HostTls, accept_host, budget};
    use ekiden_keys::{Certificate, Identity};

    #[tokio::test]
    async fn a_dialler_with_another_key_closes_the_connection_and_the_other_end_says_what_that_means() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialler = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        let plain = |byte| SharedKey { key: SharedSecret([byte; 32]), file: PathBuf::new() };
        let (theirs, ours) = (Security::Plain(plain(8)), Security::Plain(plain(7)));
        let dialled = async { dial(dialler, &theirs, "there").await.err().map(|error| error.to_string()) };
        let (dialled, accepted) = tokio::join!(dialled, accept(socket, &ours, "here"));
        assert_eq!(dialled.as_deref(), Some("the other node does not have the same key"));
        let said = accepted.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.starts_with("it closed the connection before it had proven the key"), "{said}");
    }

    #[tokio::test]
    async fn a_handshake_waits_for_its_turn_with_nodes_and_with_hosts() {
        let identity = Identity::generate(&tempfile::tempdir().unwrap().path().join("key")).unwrap();
        let prepared = Prepared::default;
        let known = [(String::from("there"), identity.fingerprint())].into();
        let nodes = Security::Tls { identity: identity.clone(), known, prepared: prepared() };
        let tls = HostTls::new(&Certificate::of(&identity, "city").unwrap(), None, &[]).unwrap();
        let node = Security::Tls { known: Some(identity.fingerprint()), identity, prepared: prepared() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for is_node in [true, false] {
            let dialler = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (socket, from) = listener.accept().await.unwrap();
            let held = hold();
            let shaking = async {
                let dialling = dial(dialler, &node, "there");
                match is_node {
                    true => drop(tokio::join!(dialling, async { accept(socket, &nodes, "here").await.unwrap() })),
                    // The node does not know what a host is shown.
                    false => drop(tokio::join!(dialling, accept_host(socket, &tls, from.ip()))),
                }
            };
            let mut shaking = Box::pin(shaking);
            assert!(timeout(Duration::from_millis(50), &mut shaking).await.is_err(), "{is_node}");
            drop(held);
            timeout(Duration::from_secs(60), shaking).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_a_stranger_may_hold_counts_until_its_handshake_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let security = Security::Plain(SharedKey { key: SharedSecret([7; 32]), file: PathBuf::new() });
        let mut strangers = Vec::new();
        for _ in 0..100 {
            let stranger = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (socket, _) = listener.accept().await.unwrap();
            let mut accepting = Box::pin(accept(socket, &security, "own"));
            assert!(timeout(Duration::from_millis(1), &mut accepting).await.is_err());
            strangers.push((stranger, accepting));
        }
        assert!(budget::held() >= 100 * UNPROVEN_BYTES);
        drop(strangers);
        // Other tests of the program hold a little.
        assert!(budget::held() < 50 * UNPROVEN_BYTES);
        let identity = Identity::generate(&tempfile::tempdir().unwrap().path().join("key")).unwrap();
        let tls = HostTls::new(&Certificate::of(&identity, "city").unwrap(), None, &[]).unwrap();
        let mut hosts = Vec::new();
        for _ in 0..100 {
            let host = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (socket, _) = listener.accept().await.unwrap();
            let mut accepting = Box::pin(accept_host(socket, &tls, [127, 0, 0, 1].into()));
            assert!(timeout(Duration::from_millis(1), &mut accepting).await.is_err());
            hosts.push((host, accepting));
        }
        assert!(budget::held() >= 100 * UNPROVEN_BYTES);
        drop(hosts);
        assert!(budget::held() < 50 * UNPROVEN_BYTES);
    }

    #[tokio::test]
    async fn before_a_proof_a_frame_that_is_none_of_it_is_refused_by_its_header() {
        let security = Security::Plain(SharedKey { key: SharedSecret([7; 32]), file: PathBuf::new() });
        let hello = Dialler::new(SharedSecret([7; 32]), "test", [8; 32]).hello();
        for (before, kind, length) in [
            (&[][..], FrameKind::Fill, MAX_FILL),
            (&[], FrameKind::Hello, MAX_CONTROL),
            (&hello, FrameKind::Fill, MAX_FILL),
            (&hello, FrameKind::Auth, MAX_CONTROL),
            (&hello, FrameKind::Open, 1),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stranger = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (socket, _) = listener.accept().await.unwrap();
            let said = [before, &Header { kind, length }.encode()].concat();
            stranger.try_write(&said).unwrap();
            let accepted = timeout(Duration::from_secs(5), accept(socket, &security, "own")).await;
            let refused = accepted.expect("nothing more is waited for").err().expect("it is refused");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{kind:?}: {refused}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_known_although_the_other_side_takes_no_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialler = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        // The dialler reads nothing, so that this side's socket is full before the handshake.
        while timeout(Duration::from_millis(200), socket.writable()).await.is_ok() {
            let _ = socket.try_write(&[0; 1 << 16]);
        }
        // The beginning of a TLS record.
        dialler.try_write(&[22, 3, 1, 0, 200, 1, 0, 0]).unwrap();
        let security = Security::Plain(SharedKey { key: SharedSecret([7; 32]), file: PathBuf::new() });
        let admission = timeout(Duration::from_secs(10), accept(socket, &security, "own")).await.unwrap().unwrap();
        assert!(matches!(admission, Admission::Refused(_)));
    }
}
