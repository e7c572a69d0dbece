//! A connection from another node: first authentication, then one stream after another.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ekiden_keys::Fingerprint;
use ekiden_net::socket::canonical;
use ekiden_relay_proto::leg::{
    About, Event, FrameDecoder, FrameKind, HEADER_BYTES, Header, MessageError, Open, Opened, decode_ask, encode_failed,
};
use ekiden_relay_proto::{Failure, FailureCode};
use ekiden_transport::budget::{self, Share};
use ekiden_transport::frames::{invalid, read_frame};
use ekiden_transport::{Admission, Connection, Credential, Security, accept, segments};
use indexmap::IndexMap;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::departure::{ClientEof, unless_client_leaves};
use super::failed::Asked;
use crate::access::quota::{ClientKey, Limit};
use crate::config::Listener;
use crate::exit::spare::Asker;
use crate::overlay::{OnLeg, Owner, Sides, StreamId, by_its_word};
use crate::peer::Early;
use crate::reach::{Destination, Free, Upstream, reach_via};
use crate::shared::{InFlightGuard, Node, Permit};
use crate::stream::{BetweenStreams, Duplex, Expiry, Observed, Side, closing};

/// The nodes that a listener admits.
type Nodes = IndexMap<String, Fingerprint>;

/// How long a node that stops waits for the first request of a connection that it has accepted: the dialler may make sure of the path
/// first, which takes a round trip or two.
const FIRST_REQUEST: Duration = Duration::from_secs(2);

/// Segments of the largest size that a connection may ask for before a stream: one finds out whether they arrive.
const FILLS_MOST: u32 = 8;

/// Serves a node's connection. It counts as a stranger's until it has proven its key.
pub(super) async fn serve(permit: &mut Permit, listener: &Listener, security: &Security<Nodes>, socket: TcpStream) {
    let node = &permit.node().clone();
    let limit = node.config().limits.handshake;
    // An error means that the other side has closed already.
    let Ok(from) = socket.peer_addr().map(canonical) else { return };
    let client = ClientKey::from(from.ip());
    let own = node.config().name.clone();
    let deadline = Instant::now() + limit;
    let admitted = tokio::select! {
        admitted = timeout_at(deadline, accept(socket, security, &own)) => admitted,
        () = permit.evicted() => {
            let line = format_args!(
                "a connection from {from} on {listener} was closed for a newer one: too many have not proven a key yet"
            );
            return node.lines.info("evicted", client, line);
        }
    };
    let (name, credential, stream) = match admitted {
        Ok(Ok(Admission::Admitted { name, credential, connection })) => (name, credential, connection),
        Ok(Ok(Admission::Refused(refused))) => {
            node.lines.warn("node", client, format_args!("a node at {from} was refused: {}", refused.why));
            // The limit may pass first: the node need not take the answer.
            let _ = timeout_at(deadline, refused.tell()).await;
            return;
        }
        Err(_) => return,
        Ok(Err(error)) if ekiden_transport::is_own_key_refused(&error) => {
            let known =
                "its peer entry for this node must have the fingerprint that `ekiden keygen --show` prints here";
            let line = format_args!("a node at {from} refused this node: {error}; {known}");
            return node.lines.warn("refuses", client, line);
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            return node.lines.warn("node", client, format_args!("a node at {from} was refused: {error}"));
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            let line = format_args!("a connection from {from} on {listener} was refused: {error}");
            return node.lines.info("no node", client, line);
        }
        Ok(Err(error)) => return tracing::debug!("a node did not get through its handshake: {error}"),
    };
    permit.is_proven();
    let remembered = match credential {
        Credential::Tls { .. } => name.as_str().into(),
        Credential::Plain(_) => by_its_word(&name),
    };
    let dialler = Dialler { address: from, name: name.as_str().into(), remembered, owner: owner(&credential) };
    // Boxed: who has proven nothing holds no room for it.
    Box::pin(serve_streams(node, listener, &credential, &dialler, stream)).await;
}

/// One stream after another.
async fn serve_streams(
    node: &Arc<Node>,
    listener: &Listener,
    credential: &Credential,
    dialler: &Dialler,
    stream: Connection,
) {
    let (name, from, client) = (&dialler.name, dialler.address, ClientKey::from(dialler.address.ip()));
    let mut stream = BetweenStreams::new(stream);
    let mut may_stop = Instant::now() + FIRST_REQUEST;
    let mut greeting = About::own().encode();
    loop {
        // Waits for as long as the dialler keeps it warm, and nobody else needs the room. The kernel's keepalive notices a
        // dialler that has vanished.
        let idle = node.add_idle_leg(dialler.owner.clone());
        let next = tokio::select! {
            biased;
            // The key is no longer admitted.
            () = node.revoked(listener.address, credential) => return stream.end_unheard().await,
            next = read_request(node, &stream, dialler, &mut greeting) => next,
            () = idle.evicted() => {
                tracing::debug!("an idle connection of node {name} was closed to make room");
                return stream.end_unheard().await;
            }
            _busy = stops(node, may_stop) => {
                // The dialler may not have read all of the last stream yet.
                stream.sent().await;
                return stream.end_unheard().await;
            }
        };
        drop(idle);
        may_stop = Instant::now();
        let request = match next {
            Ok(Ok(open)) => open,
            Ok(Err(unknown)) => {
                let failure = unsupported(node, dialler, unknown);
                let said = [std::mem::take(&mut greeting), encode_failed(&failure)].concat();
                match refuse(node, stream.into_inner(), &said, dialler).await {
                    Ok(after) => stream = after,
                    Err(error) => return tracing::debug!("a refused stream from node {name} was reset: {error}"),
                }
                continue;
            }
            // The usual end of a warm connection.
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return,
            Err(error) => {
                drop(stream.into_inner());
                let builds = node.builds.beside_ours(&dialler.owner);
                let line = format_args!("node {name} at {from} broke the protocol: {error}; {builds}");
                return node.lines.warn("protocol", client, line);
            }
        };
        stream = match serve_stream(node, stream.into_inner(), &request, dialler, &mut greeting).await {
            Ok(after) => after,
            Err(error) => return tracing::debug!("a stream from node {name} was reset: {error}"),
        };
    }
}

/// Completes when the node stops, but not before `until`. It does not end without the connection from then on.
async fn stops(node: &Arc<Node>, until: Instant) -> InFlightGuard {
    node.stopping().await;
    let busy = node.begin();
    sleep_until(until).await;
    busy
}

/// The node that has connected.
struct Dialler {
    address: SocketAddr,
    name: Arc<str>,
    /// What its streams are remembered by.
    remembered: Arc<str>,
    owner: Owner,
}

/// Nodes that share a key can call themselves as they like.
fn owner(credential: &Credential) -> Owner {
    match credential {
        Credential::Tls { theirs, .. } => theirs.to_string().into(),
        Credential::Plain(_) => "a shared key".into(),
    }
}

/// The next OPEN, or what it requires and this node does not know. Questions before it are answered; `greeting` goes before the first answer
/// of a connection.
async fn read_request(
    node: &Node,
    stream: &Connection,
    dialler: &Dialler,
    greeting: &mut Vec<u8>,
) -> io::Result<Result<Open, MessageError>> {
    let mut fills = 0;
    loop {
        let answer = match read_frame(stream).await? {
            (FrameKind::Open, body) => {
                return match Open::decode(&body) {
                    Err(malformed @ MessageError::Malformed(_)) => Err(invalid(malformed)),
                    decoded => Ok(decoded),
                };
            }
            (FrameKind::About, body) => {
                let about = About::decode(&body).map_err(invalid)?;
                node.builds.learn(&dialler.owner, &about);
                if !about.asks {
                    continue;
                }
                Vec::new()
            }
            (FrameKind::Ask, body) => {
                let wanted = decode_ask(&body).map_err(invalid)?;
                sleep(node.overlay.wait_to_answer(&dialler.owner)).await;
                node.overlay.asked(&node.config(), &wanted);
                let told = node.overlay.tell(&dialler.name, &wanted);
                Header::frame(FrameKind::Told, &told)
            }
            // A connection is tried once.
            (FrameKind::Fill, _) if fills == FILLS_MOST => return Err(invalid("FILL again and again")),
            (FrameKind::Fill, _) => {
                fills += 1;
                timeout(node.config().limits.handshake, segments::answer(stream)).await??;
                continue;
            }
            (FrameKind::Receipts, question) => {
                sleep(node.overlay.wait_to_tell_receipts(&dialler.owner)).await;
                let answer = node.overlay.tell_receipts(&question).map_err(invalid)?;
                Header::frame(FrameKind::Told, &answer)
            }
            // A refusal that crossed DELIVERED.
            (FrameKind::Reset, _) => return Err(io::ErrorKind::ConnectionAborted.into()),
            (other, _) => return Err(invalid(format_args!("{other:?} instead of OPEN"))),
        };
        let answer = [std::mem::take(greeting), answer].concat();
        timeout(node.config().limits.handshake, stream.send_all(&answer)).await??;
    }
}

/// One stream, from OPEN to both ENDs. Returns the connection, ready for the next.
async fn serve_stream(
    node: &Arc<Node>,
    stream: Connection,
    request: &Open,
    from: &Dialler,
    greeting: &mut Vec<u8>,
) -> io::Result<BetweenStreams> {
    let busy = node.begin();
    let counted = node.count_stream_of(&from.owner);
    // Where this node serves others besides, it must leave them memory.
    if let Some(counted) = counted.as_ref().ok().filter(|_| node.config().serves_several()) {
        budget::pays(counted.payer(), Share::Half);
    }
    let class = Some(request.class.as_str()).filter(|class| !class.is_empty());
    let to = Destination::asked(&request.target).on_behalf_of(request.client).of_class(class);
    let asker = Asker { node: Some(&from.owner), client: request.client.map(|client| client.ip()) };
    let to = to.asked_by(asker).called(request.id.as_ref()).with(&request.passed);
    // Where the stream leaves the overlay, its entry may ask for what became of it.
    let id = request.id.filter(|_| request.chain.is_empty() && node.config().overlay.is_some());
    let mut arrival = id.and_then(|id| node.overlay.leave(&from.remembered, StreamId(id).towards(&request.target)));
    let reached = match &counted {
        // A node ends a stream with a frame. One that ends the connection instead has given the stream up.
        Ok(_) => {
            let reaching = reach_via(node, &request.chain, to, Early::Node(&stream));
            unless_client_leaves(&stream, ClientEof::Leaves, pin!(reaching)).await
        }
        Err(limit) => Err(too_many(node, from, *limit)),
    };
    if let Some(arrival) = &mut arrival {
        arrival.answers(reached.is_ok());
    }
    let legs = reached.is_ok().then(|| {
        let beyond = reached.as_ref().ok().and_then(Upstream::leg);
        let owner = Some(from.owner.clone());
        let of = OnLeg { peer: from.name.clone(), taken: None, class: class.map(Arc::from), owner };
        Box::new(Sides { on: [Some(of), beyond], arrival })
    });
    let greeting = std::mem::take(greeting);
    let Upstream { side, peer, bound, passed, made, .. } = match reached {
        Ok(upstream) => upstream,
        Err(failure) => {
            Asked::new(from.address, format!("node {}", from.name), &request.target).log_failure(node, &failure);
            let failure = if request.chain.is_empty() { named(node, failure) } else { failure };
            return refuse(node, stream, &[greeting, encode_failed(&failure)].concat(), from).await;
        }
    };
    let opened = Opened { passed, ..Opened::at(bound.or_else(|| side.stream.local_addr().ok())) };
    stream.send_all(&[greeting, opened.encode()].concat()).await?;
    let (client, side) = (Side::node(stream), Side { was_sent_little: true, ..side });
    let mut expiry = Expiry::new(&node.config().limits);
    let run = Box::pin(Duplex::new(client, side, &[]).run(&mut expiry, Observed::new(&node.overlay, legs))).await;
    let finished = run.map_err(|broken| {
        Asked::new(from.address, format!("node {}", from.name), &request.target).log_broken(
            node,
            peer.as_deref(),
            &broken,
        );
        io::Error::other(broken)
    })?;
    let afterwards = Free { node: node.clone(), peer, made };
    // Where no place is left for it, what a dialler has left is the next node's, or the kernel's.
    let place = || node.abandoned.try_acquire().ok();
    let stream = closing::close_dialled(finished, afterwards, &mut expiry, place).await?;
    drop(busy);
    Ok(stream)
}

/// Says FAILED, which is the last that is `said`, and discards the stream that is none. Returns the connection, ready for the next.
async fn refuse(node: &Node, stream: Connection, said: &[u8], from: &Dialler) -> io::Result<BetweenStreams> {
    stream.send_all(said).await?;
    // It has no stream any more, and gives way like one that is idle.
    let refused = node.add_refused_leg(from.owner.clone());
    tokio::select! {
        biased;
        said = timeout(node.config().limits.handshake, discard(&stream)) => said??,
        () = refused.evicted() => return Err(io::Error::other("others wait, and it does not end what was refused")),
    }
    Ok(BetweenStreams::new(stream))
}

/// The dialler requires what this node does not know.
fn unsupported(node: &Node, from: &Dialler, unknown: MessageError) -> Failure {
    let (own, name, builds) = (&node.config().name, &from.name, node.builds.beside_ours(&from.owner));
    node.lines.warn("unsupported", name, format_args!("node {name} sent {unknown}; {builds}"));
    Failure::new(FailureCode::Unsupported, format_args!("node {own} was sent {unknown} by node {name}; {builds}"))
}

/// One node has as many streams as it may.
fn too_many(node: &Node, from: &Dialler, limit: Limit) -> Failure {
    let (own, name) = (&node.config().name, &from.name);
    let line = format_args!("node {name}: {limit}, three quarters of what this node may have; others are refused");
    node.lines.warn("share", name, line);
    Failure::new(FailureCode::Overloaded, format_args!("node {own}: {limit} for node {name}, and others need the rest"))
}

/// Puts the name of this node, the exit, before the failure. Whoever reads it several nodes away must know whose configuration
/// to change.
fn named(node: &Node, failure: Failure) -> Failure {
    let name = format!("node {}", node.config().name);
    match failure.text.starts_with(&name) {
        true => failure,
        false => Failure::new(failure.code, format_args!("{name}: {}", failure.text)),
    }
}

/// After FAILED: discards the early payload, up to the END behind it.
async fn discard(stream: &Connection) -> io::Result<()> {
    let mut decoder = FrameDecoder::default();
    let mut piece = [0; 4096];
    loop {
        let payload = (decoder.payload() as usize).min(piece.len());
        if payload > 0 {
            let n = stream.receive(&mut piece[..payload]).await?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            decoder.took_payload(n as u32);
            continue;
        }
        let mut header = [0; HEADER_BYTES];
        stream.receive_exact(&mut header).await?;
        match decoder.took_header(&header).map_err(invalid)? {
            Some(Event::End | Event::Delivered) => return Ok(()),
            Some(Event::Reset(_)) => return Err(io::ErrorKind::ConnectionReset.into()),
            Some(Event::Data(_) | Event::Unknown(_)) | None => {}
        }
    }
}

#[cfg(test)]
mod tests;
