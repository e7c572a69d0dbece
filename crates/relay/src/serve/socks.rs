//! SOCKS: the handshake up to the reply.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use ekiden_relay_proto::socks4;
use ekiden_relay_proto::socks5::{self, Server, Step};
use ekiden_relay_proto::{Failure, FailureCode, Target};
use ekiden_transport::Connection;
use tokio::time::timeout;

use super::begun::Begun;
use super::caller::Caller;
use super::departure::{ClientEof, unless_client_leaves};
use super::failed::Asked;
use super::login::{self, Login};
use super::secure::Secured;
use super::timeouts::{left, linger};
use super::{Stream, class_of, user_quota};
use crate::access::quota::{ClientKey, QuotaGuard};
use crate::config::{Listener, ListenerKind, Reply};
use crate::peer::Early;
use crate::reach::{Destination, Upstream, is_allowed, reach};
use crate::shared::Current;
use crate::shared::Node;
use crate::stream::Side;

/// The version of SOCKS that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// With 4a.
    Four,
    Five,
}

impl Version {
    /// Whether a listener of this kind takes it.
    fn is_taken_by(self, kind: &ListenerKind) -> bool {
        match kind {
            ListenerKind::Mixed { .. } => true,
            ListenerKind::Socks5 { .. } => self == Self::Five,
            _ => false,
        }
    }

    /// The most bytes that a message of it takes.
    fn longest(self) -> usize {
        match self {
            Self::Four => socks4::MAX_REQUEST,
            Self::Five => socks5::MAX_MESSAGE,
        }
    }

    /// The reply to a request that was granted.
    fn granted(self, bound: Option<SocketAddr>) -> Vec<u8> {
        match self {
            Self::Four => socks4::reply(true, bound).to_vec(),
            Self::Five => socks5::reply(0, bound),
        }
    }

    fn refused(self, code: FailureCode) -> Vec<u8> {
        match self {
            Self::Four => socks4::reply(false, None).to_vec(),
            Self::Five => socks5::reply(code.socks_reply(), None),
        }
    }
}

pub(super) async fn prepare(
    node: &Arc<Node>,
    listener: &Listener,
    current: Current,
    version: Version,
    (client, secured): (Connection, Secured),
    caller: Caller,
) -> Option<Stream> {
    let limit = node.config().limits.handshake;
    // Boxed: reaching the destination should not keep room for it.
    let asked = Box::pin(request(node, (&client, &secured), listener, current, version, caller));
    let Request { target, first, user } = match timeout(limit, asked).await {
        Ok(Ok(Some(request))) => request,
        Ok(Ok(None)) => {
            // The refusal must arrive before the connection is closed.
            linger(&client).await;
            return None;
        }
        Ok(Err(_)) | Err(_) => return None,
    };
    let busy = node.begin();
    let config = node.config();
    let class = class_of(&config, listener, user.as_ref().map(|user| user.key().as_str()));
    let to = Destination::asked(&target).asked_by(caller.asker()).of_class(class);
    let asked = Box::new(Asked::new(caller.address(), "socks", &target));
    if listener.reply == Reply::Early && is_allowed(node, &target) {
        client.send_all(&version.granted(None)).await.ok()?;
        let early = if first.is_empty() { Early::Host(&client) } else { Early::Nothing };
        let reaching = reach(node, to, early);
        let reached = unless_client_leaves(&client, ClientEof::HalfClose, pin!(reaching)).await;
        return match reached {
            Ok(upstream) => Some(Stream::new(busy, client, upstream, first, asked).of(user)),
            Err(failure) => {
                // The client was told of success already: dropping its connection resets it.
                asked.log_failure(node, &failure);
                None
            }
        };
    }
    // A client that waits for the reply and ends its side has left. One that has sent payload already has not waited, and may
    // end its side early.
    let eof = if first.is_empty() { ClientEof::Leaves } else { ClientEof::HalfClose };
    let reaching = reach(node, to, Early::Nothing);
    let reached = unless_client_leaves(&client, eof, pin!(reaching)).await;
    let answer = match &reached {
        Ok(Upstream { side, bound, .. }) => version.granted(bound.or_else(|| side.stream.local_addr().ok())),
        Err(Failure { code, .. }) => version.refused(*code),
    };
    // A few bytes fit into the send buffer of a new connection: this does not block.
    let written = timeout(limit, client.send_all(&answer)).await;
    match (reached, written) {
        (Ok(upstream), Ok(Ok(()))) => Some(Stream::new(busy, client, upstream, first, asked).of(user)),
        (Ok(_), _) => None,
        (Err(failure), _) => {
            asked.log_failure(node, &failure);
            Side::host(client).end_cleanly();
            None
        }
    }
}

/// What a client wants.
struct Request {
    target: Target,
    /// Payload that it has sent behind its request.
    first: Vec<u8>,
    /// Counts it among the connections of its user, if it has one.
    user: Option<Box<QuotaGuard<String>>>,
}

/// Reads the request, and checks the user. `None` if the client was refused and told so.
async fn request(
    node: &Node,
    (client, secured): (&Connection, &Secured),
    listener: &Listener,
    current: Current,
    version: Version,
    caller: Caller,
) -> io::Result<Option<Request>> {
    let users = login::users(listener);
    let mut name = None;
    let mut server = Server::new(users.is_some());
    let mut input = Vec::with_capacity(version.longest());
    let mut begun = Begun::new(node, ClientKey::from(caller.address().ip()));
    loop {
        let step = match version {
            Version::Four if users.is_some() => socks4::without_password(),
            Version::Four => socks4::step(&input),
            Version::Five => server.step(&input),
        };
        match step {
            Step::More => {
                // An incomplete message does not fill the buffer, and a read takes no more than there is room for.
                match begun.wait(client, 0, more(client, &mut input, version.longest())).await.transpose()? {
                    Some(1..) => {}
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    None => return Err(io::ErrorKind::ConnectionAborted.into()),
                }
            }
            Step::Reply { consumed, reply } => {
                input.drain(..consumed);
                client.send_all(&reply).await?;
            }
            Step::Login { consumed, user, password } => {
                input.drain(..consumed);
                // If the client has sent its request already, an end after the request belongs to the stream.
                let leaves = left(client, input.is_empty());
                let login = login::check(node, listener, caller, (&user, &password), leaves).await;
                if !matches!(login, Login::Right | Login::Wrong) {
                    // SOCKS has no word for "later".
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                let (reply, right) = server.password(login == Login::Right);
                client.send_all(&reply).await?;
                if !right {
                    return Ok(None);
                }
                name = Some(user);
            }
            Step::Connect { consumed, target } => {
                input.drain(..consumed);
                // A login that passed under an earlier configuration does not count: the client must connect again.
                node.settled().await;
                let takes_it = {
                    let now = current.borrow();
                    version.is_taken_by(&now.kind) && secured.is_taken_by(&now)
                };
                let now = login::users(&current.borrow());
                let holds = login::still_holds(users.as_deref(), now.as_deref(), name.as_deref());
                if current.has_changed().is_err() || !takes_it || !holds {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                let name = name.or_else(|| secured.user.clone().map(String::into_bytes));
                let user = match &name {
                    Some(name) => match user_quota(node, name) {
                        None => {
                            client.send_all(&version.refused(FailureCode::Forbidden)).await?;
                            return Ok(None);
                        }
                        quota => quota,
                    },
                    None => None,
                };
                return Ok(Some(Request { target, first: input, user }));
            }
            Step::Refuse { reply, reason } => {
                let (from, key) = (caller.address(), ClientKey::from(caller.address().ip()));
                node.lines.info(reason, key, format_args!("socks: {from} is refused on {listener}: {reason}"));
                client.send_all(&reply).await?;
                return Ok(None);
            }
        }
    }
}

/// Reads more behind `input`, up to `most` bytes in all.
async fn more(client: &Connection, input: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    let before = input.len();
    input.resize(most, 0);
    let got = client.receive(&mut input[before..]).await;
    input.truncate(before + *got.as_ref().unwrap_or(&0));
    got
}
