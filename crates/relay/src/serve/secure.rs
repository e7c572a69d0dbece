//! TLS with clients, before their protocol: the handshake, and what a client's certificate says of it.

use std::io;
use std::sync::Arc;

use ekiden_keys::{Fingerprint, has_odd_common_name, subject_name};
use ekiden_relay_proto::mixup::{Guess, Spoken, guess};
use ekiden_transport::{Connection, Unsecured, accept_host};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::caller::Caller;
use super::timeouts::linger;
use crate::access::quota::ClientKey;
use crate::config::Listener;
use crate::config::tls::ListenerTls;
use crate::shared::Node;

/// The most bytes by which a client of another protocol is known.
const GUESSED_BY: usize = 8;

/// How a client's connection was secured.
#[derive(Debug, Default)]
pub(super) struct Secured {
    /// By what its listener said then.
    pub by: Option<Arc<ListenerTls>>,
    /// The name in the client's certificate.
    pub user: Option<String>,
}

impl Secured {
    /// Whether `listener`, as it is now, still takes it.
    pub fn is_taken_by(&self, listener: &Listener) -> bool {
        listener.takes_clients_of(self.by.as_ref())
    }
}

/// The connection of a client, behind the handshake. `None` if it has failed, and the client was told so; or if too many others shake hands,
/// and this was the oldest of the client that has most.
pub(super) async fn accept(
    node: &Node,
    listener: &Listener,
    tls: &Arc<ListenerTls>,
    client: TcpStream,
    caller: Caller,
) -> Option<(Connection, Secured)> {
    let (limit, key) = (node.config().limits.handshake, ClientKey::from(caller.address().ip()));
    let place = node.add_shaking(key);
    tokio::select! {
        shaken = timeout(limit, shake_hands(node, listener, tls, client, caller)) => shaken.ok().flatten(),
        () = place.evicted() => {
            let from = caller.address();
            let line = format_args!("a connection from {from} on {listener} was closed for a newer one: too many are in TLS handshakes");
            node.lines.info("evicted", key, line);
            None
        }
    }
}

async fn shake_hands(
    node: &Node,
    listener: &Listener,
    tls: &Arc<ListenerTls>,
    client: TcpStream,
    caller: Caller,
) -> Option<(Connection, Secured)> {
    let client = Connection::from(client);
    let first = client.peek_first().await.ok()?;
    if matches!(guess(&[first]), Guess::Speaks(Spoken::Socks4 | Spoken::Socks5)) || first.is_ascii_uppercase() {
        return turn_away(node, listener, client, caller).await;
    }
    let key = ClientKey::from(caller.address().ip());
    match accept_host(client.into_socket()?, &tls.ready, caller.address().ip()).await {
        Ok(client) => {
            let user = client.peer_certificate().map(|certificate| name(node, listener, &certificate, caller));
            Some((client, Secured { by: Some(tls.clone()), user }))
        }
        Err(Unsecured { why, socket }) => {
            let from = caller.address();
            match why.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied => {
                    node.lines.info("handshake", key, format_args!("{from} on {listener} was refused: {why}"));
                }
                _ => tracing::debug!("{from} on {listener} did not get through its handshake: {why}"),
            }
            // The alert must arrive before the connection is closed.
            linger(&socket.into()).await;
            None
        }
    }
}

/// The user that a client's certificate is for.
fn name(node: &Node, listener: &Listener, certificate: &[u8], caller: Caller) -> String {
    let name = subject_name(certificate).unwrap_or_else(|| Fingerprint::of(certificate).to_string());
    if has_odd_common_name(certificate) {
        let (from, key) = (caller.address(), ClientKey::from(caller.address().ip()));
        let line = format_args!(
            "{from} on {listener} counts as {name:?}: the common name in its certificate has characters that are not seen, or is no text of \
             1 to 255 bytes"
        );
        node.lines.info("name", key, line);
    }
    name
}

/// Tells a client, in the protocol that it speaks without TLS, that it must speak TLS. One that speaks nothing that is known gets an alert.
async fn turn_away<T>(node: &Node, listener: &Listener, client: Connection, caller: Caller) -> Option<T> {
    let spoken = spoken(&client).await.ok()?;
    let (from, key) = (caller.address(), ClientKey::from(caller.address().ip()));
    let what = spoken.map_or("something else".into(), |spoken| spoken.to_string());
    node.lines.info("mixup", key, format_args!("{from} speaks {what} on {listener}, which speaks TLS"));
    client.send_all(&spoken.unwrap_or(Spoken::Tls).refusal(Spoken::Tls)).await.ok()?;
    linger(&client).await;
    None
}

/// What a client speaks, if that is known.
async fn spoken(client: &Connection) -> io::Result<Option<Spoken>> {
    let (mut bytes, mut n) = ([0; GUESSED_BY], 0);
    loop {
        match guess(&bytes[..n]) {
            Guess::Speaks(spoken) => return Ok(Some(spoken)),
            Guess::More if n < GUESSED_BY => match client.receive(&mut bytes[n..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => n += more,
            },
            Guess::More | Guess::Unknown => return Ok(None),
        }
    }
}
