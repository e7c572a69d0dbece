//! Opening streams to other nodes: on a warm connection of the pool, or on a new one.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::time::Duration;

use ekiden_net::tcp_info::tcp_info;
use ekiden_relay_proto::leg::{About, FrameKind, HEADER_BYTES, Header, Open, Opened, decode_failed};
use ekiden_relay_proto::{Failure, FailureCode};
use ekiden_transport::frames::{self, invalid, read_frame, read_rest};
use ekiden_transport::segments::Segments;
use ekiden_transport::{Connection, is_transient};
use ekiden_units::Bytes;
use tokio::time::{sleep, timeout};

use crate::config::{Config, Peer};
use crate::exit::names::Resolver;
use crate::exit::spare::Spare;
use crate::shared::Node;
use crate::stream::{BetweenStreams, Framing};

use self::dial::{dial_limits, dial_peer, first_window};
use self::early::{consume, put_payload, said};

pub mod ask;
mod dial;
mod early;
pub mod probe;

pub use self::early::Early;

/// The interval at which this node checks whether a peer acknowledges.
const SILENCE_STEP: Duration = Duration::from_millis(250);

/// How much longer a connection may take than an acknowledgement: its SYN is sent again after 1 s and 3 s (RFC 6298).
const SYN_AGAIN: Duration = Duration::from_secs(2);

/// Opens a stream at a peer.
pub async fn open(node: &Node, first: &str, request: &Open, early: Early<'_>) -> Result<(Connection, Opened), Failure> {
    let config = node.config();
    let Some(peer) = config.peers.get(first) else {
        let text = format_args!("node {} does not know the node '{first}'", config.name);
        return Err(Failure::new(FailureCode::UnknownNode, text));
    };
    let is_member = config.overlay.as_ref().is_some_and(|overlay| overlay.members.contains_key(first));
    let request = request.encode();
    let opened = open_at(node, &config, (first, peer), &request, &early, is_member);
    tokio::select! {
        biased;
        opened = opened => opened,
        failure = fails_meanwhile(node, first), if is_member => Err(failure),
    }
}

/// Completes when it turns out that a node answers no questions, although its host may acknowledge data: its process is
/// stopped, or hangs. A caller that knows another path need not wait for it.
async fn fails_meanwhile(node: &Node, name: &str) -> Failure {
    if node.overlay.has_failed(name) {
        return pending().await;
    }
    while !node.overlay.has_failed(name) {
        sleep(SILENCE_STEP).await;
    }
    Failure::new(FailureCode::NodeUnreachable, format_args!("node {name} answers no questions"))
}

/// Says `request` to a peer and waits for the answer.
async fn open_at(
    node: &Node,
    config: &Config,
    (first, peer): (&str, &Peer),
    request: &[u8],
    early: &Early<'_>,
    is_member: bool,
) -> Result<(Connection, Opened), Failure> {
    // Every node of the chain has the limit `connect` to reach the next, but only one of them waits at a time.
    let limit = config.limits.connect * 2;
    let learn = |about: About| node.builds.learn(first, &about);
    // Where there may be another path, a silent node has only this long to acknowledge.
    let silence = is_member.then(|| node.overlay.silence(first));
    let permit = loop {
        let warm = match timeout(config.limits.connect, node.pool.get(first, peer)).await {
            Ok(Ok(warm)) => warm,
            Ok(Err(permit)) => break permit,
            Err(_) => return Err(no_dial_permit(&config.name, first)),
        };
        let stream = warm.wake().map_err(|e| lost(first, &e))?;
        let answer = timeout(limit, ask(&stream, request, early, silence, &learn)).await;
        if !matches!(answer, Ok(Ok(_) | Err(Unanswered::Ended | Unanswered::Abandoned(_)))) {
            node.pool.forget(first);
        }
        match answer {
            Ok(Ok(answer)) => {
                recovered(node, first);
                return answered(node, first, peer, stream, answer);
            }
            // The idle connection was dead. The peer may be well.
            Ok(Err(Unanswered::Ended | Unanswered::Reset(_))) => continue,
            Ok(Err(Unanswered::Silent)) => {
                node.overlay.leg_failed(first);
                return Err(silent(first));
            }
            Ok(Err(Unanswered::Broken(error))) => return Err(broken(node, first, &error)),
            Ok(Err(Unanswered::Abandoned(error))) => return Err(abandoned(&error)),
            Err(_) => return Err(no_answer(first)),
        }
    };
    let limits = dial_limits(config).map(|limit| silence.map_or(limit, |silence| limit.min(silence + SYN_AGAIN)));
    let segments = node.pool.segments(first);
    let dial = async || {
        let window = first_window(node, config);
        let dialled = dial_peer(config, &node.names, &node.spare, &segments, (first, peer), limits, window).await;
        dialled.inspect_err(|failure| {
            warn(node, first, failure);
            node.leg_failed(first, failure);
        })
    };
    let (mut stream, mut auth) = dial().await?;
    if let Some(permit) = permit {
        permit.connected();
    }
    auth.extend(request);
    let mut answer = timeout(limit, ask(&stream, &auth, early, silence, &learn)).await;
    if matches!(&answer, Ok(Err(unanswered)) if unanswered.is_of_an_end()) {
        // The node has closed it before it could know of the stream: it stops, and another process takes its place.
        (stream, auth) = dial().await?;
        auth.extend(request);
        answer = timeout(limit, ask(&stream, &auth, early, silence, &learn)).await;
    }
    match answer {
        Ok(Ok(answer)) => {
            recovered(node, first);
            answered(node, first, peer, stream, answer)
        }
        // The other node refuses this node's key only after this side has finished its handshake.
        Ok(Err(Unanswered::Reset(error) | Unanswered::Broken(error)))
            if error.kind() == io::ErrorKind::PermissionDenied =>
        {
            let failure = unaccepted(&config.name, first, &error);
            warn(node, first, &failure);
            Err(failure)
        }
        Ok(Err(Unanswered::Silent)) => {
            segments.forget();
            node.overlay.leg_failed(first);
            Err(silent(first))
        }
        Ok(Err(unanswered @ (Unanswered::Ended | Unanswered::Reset(_) | Unanswered::Broken(_)))) => {
            let failure = match unanswered {
                Unanswered::Reset(error) | Unanswered::Broken(error) => broken(node, first, &error),
                _ => lost(first, &io::ErrorKind::UnexpectedEof.into()),
            };
            warn(node, first, &failure);
            Err(failure)
        }
        Ok(Err(Unanswered::Abandoned(error))) => Err(abandoned(&error)),
        Err(_) => Err(no_answer(first)),
    }
}

/// Makes a connection to a peer on which a stream can be opened at once.
pub async fn connect_ahead(node: &Node, name: &str, peer: &Peer) -> Result<Connection, Failure> {
    let config = node.config();
    let window = first_window(node, &config);
    connect_with(&config, &node.names, &node.spare, &node.pool.segments(name), (name, peer), window).await
}

/// The same with a configuration, names, spare descriptors and knowledge of the path of the caller's.
pub async fn connect_with(
    config: &Config,
    names: &Resolver,
    spare: &Spare,
    segments: &Segments,
    (name, peer): (&str, &Peer),
    first_window: Option<Bytes>,
) -> Result<Connection, Failure> {
    let limits = dial_limits(config);
    let (stream, auth) = dial_peer(config, names, spare, segments, (name, peer), limits, first_window).await?;
    stream.send_all(&auth).await.map_err(|error| lost(name, &error))?;
    let stream = BetweenStreams::new(stream);
    // A node that takes this node's key sends nothing. One that refuses it says so within a round trip.
    let rtt = tcp_info(stream.socket()).map_or(0, |info| info.rtt_us);
    let time = Duration::from_micros(rtt.into()) * 2 + Duration::from_millis(100);
    let said = match timeout(time, something_said(&stream)).await {
        Err(_) => return Ok(stream.into_inner()),
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) => timeout(config.limits.handshake, read_frame(&*stream)).await.map_err(|_| no_answer(name))?,
    };
    let error = match said {
        Ok((FrameKind::Failed, body)) => invalid(decode_failed(&body).map_or_else(|e| e.to_string(), |said| said.text)),
        Ok((kind, _)) => invalid(format_args!("{kind:?} before any OPEN")),
        Err(error) => error,
    };
    Err(unfit(&config.name, name, &error))
}

/// Completes when a byte or the end of the stream can be read.
async fn something_said(stream: &Connection) -> io::Result<()> {
    loop {
        stream.readable().await?;
        match stream.try_peek(&mut [0]) {
            Err(error) if is_transient(&error) => {}
            other => return other.map(|_| ()),
        }
    }
}

/// A peer's answer to OPEN.
enum OpenReply {
    Opened(Opened),
    Failed(Failure),
}

/// Why there is no answer to OPEN.
enum Unanswered {
    /// The connection ended before the first byte of an answer. A node ends one only between two streams, so it has
    /// taken nothing of this one.
    Ended,
    /// It was reset before the first byte of an answer. What was sent may have been taken.
    Reset(io::Error),
    /// The connection broke, or the peer broke the protocol: the stream fails.
    Broken(io::Error),
    /// The sender of the early payload has gone.
    Abandoned(io::Error),
    /// The peer's host acknowledges nothing.
    Silent,
}

impl Unanswered {
    /// Whether nothing of the stream can have been acted on, or may be acted on again, because the connection has ended.
    fn is_of_an_end(&self) -> bool {
        match self {
            Self::Ended => true,
            Self::Reset(error) => error.kind() != io::ErrorKind::PermissionDenied,
            Self::Broken(_) | Self::Abandoned(_) | Self::Silent => false,
        }
    }
}

impl From<io::Error> for Unanswered {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Sends `request` and the early payload, and waits for the answer. Gives up when nothing is acknowledged for `silence`. What the node says
/// of itself `learn` gets.
async fn ask(
    stream: &Connection,
    request: &[u8],
    early: &Early<'_>,
    silence: Option<Duration>,
    learn: &(dyn Fn(About) + Sync),
) -> Result<OpenReply, Unanswered> {
    let mut once = 0;
    let answer = tokio::select! {
        biased;
        answer = ask_with(stream, request, early, &mut once, learn) => answer,
        () = falls_silent(stream, silence) => Err(Unanswered::Silent),
    };
    match answer {
        Err(Unanswered::Reset(error)) if once > 0 => Err(Unanswered::Broken(error)),
        answer => answer,
    }
}

/// Completes when sent data has waited for an acknowledgement for `limit`. Never, if `limit` is `None`.
async fn falls_silent(stream: &Connection, limit: Option<Duration>) {
    let Some(limit) = limit else { return pending().await };
    sleep(limit).await;
    let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    while !tcp_info(stream.socket()).is_ok_and(|info| info.is_silent(limit_ms)) {
        sleep(SILENCE_STEP).await;
    }
}

/// As [`ask`]. Counts in `once` the bytes it has sent that must not arrive twice.
async fn ask_with(
    stream: &Connection,
    request: &[u8],
    early: &Early<'_>,
    once: &mut usize,
    learn: &(dyn Fn(About) + Sync),
) -> Result<OpenReply, Unanswered> {
    let mut request = request.to_vec();
    let framing = if matches!(early, Early::Node(_)) { Framing::Leg } else { Framing::Raw };
    let speaker = match early {
        Early::Nothing => None,
        Early::Repeatable(bytes) => {
            put_payload(&mut request, bytes);
            None
        }
        Early::Host(stream) | Early::Node(stream) | Early::Introduced(_, stream) => {
            if let Early::Introduced(bytes, _) = early {
                put_payload(&mut request, bytes);
            }
            // Tokio does not know yet whether a connection just accepted is readable. Mostly it is.
            match said(stream, framing, Connection::peek_now) {
                Ok(seen) => {
                    request.extend(seen.frames);
                    *once = seen.bytes;
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(Unanswered::Abandoned(error)),
            }
            Some(*stream)
        }
    };
    stream.send_all(&request).await.map_err(Unanswered::Reset)?;
    let mut answer = pin!(async {
        let mut header = [0; HEADER_BYTES];
        match stream.receive(&mut header).await {
            Ok(0) => Err(Unanswered::Ended),
            Ok(n) => {
                let first = read_rest(stream, header, n).await?;
                Ok(frames::answer(stream, first, learn).await?)
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Unanswered::Broken(error)),
            Err(error) => Err(Unanswered::Reset(error)),
        }
    });
    let (kind, body) = match speaker.filter(|_| *once == 0) {
        None => answer.await?,
        Some(speaker) => loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer?,
                ready = speaker.readable() => ready?,
            }
            match said(speaker, framing, Connection::try_peek) {
                Ok(seen) => {
                    *once = seen.bytes;
                    stream.send_all(&seen.frames).await.map_err(Unanswered::Reset)?;
                    break answer.await?;
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(Unanswered::Abandoned(error)),
            }
        },
    };
    match kind {
        FrameKind::Opened => {
            let opened = Opened::decode(&body).map_err(invalid)?;
            if let Some(speaker) = speaker {
                consume(speaker, *once).map_err(Unanswered::Abandoned)?;
            }
            Ok(OpenReply::Opened(opened))
        }
        FrameKind::Failed => Ok(OpenReply::Failed(decode_failed(&body).map_err(invalid)?)),
        other => Err(invalid(format_args!("{other:?} frame instead of an answer to OPEN")).into()),
    }
}

fn answered(
    node: &Node,
    name: &str,
    peer: &Peer,
    stream: Connection,
    answer: OpenReply,
) -> Result<(Connection, Opened), Failure> {
    match answer {
        OpenReply::Opened(opened) => Ok((stream, opened)),
        OpenReply::Failed(failure) => {
            // END ends the stream for the peer, even if payload is still on its way.
            let end = Header { kind: FrameKind::End, length: 0 }.encode();
            if stream.send_last(&end) && failure.code != FailureCode::Authentication {
                node.pool.put(name, peer, stream);
            }
            warn_beyond(node, name, &failure);
            Err(failure)
        }
    }
}

/// An answer to OPEN has come: what [`warn`] said holds no more.
fn recovered(node: &Node, peer: &str) {
    node.lines.recovered(&["refused", "dead"], peer, format_args!("node {peer} is reached again"));
}

/// Logs that a peer is dead or refuses, because every stream over it fails until the operator acts.
fn warn(node: &Node, peer: &str, failure: &Failure) {
    match failure.code {
        _ if failure.is_local => node.lines.warn("lack", peer, format_args!("{failure}")),
        FailureCode::Authentication => node.lines.warn_until("refused", peer, format_args!("leg from {failure}")),
        _ => node.lines.warn_until(
            "dead",
            peer,
            format_args!("{failure}; streams through node {peer} fail until it is back"),
        ),
    }
}

/// Logs a failure behind `peer`. The peer logs it too, but the operator of this node may not see that log, and a SOCKS client
/// learns only a number.
fn warn_beyond(node: &Node, peer: &str, failure: &Failure) {
    if matches!(
        failure.code,
        FailureCode::UnknownNode | FailureCode::Authentication | FailureCode::NodeUnreachable | FailureCode::Overloaded
    ) {
        let told = node.told(failure);
        node.lines.warn("beyond", peer, format_args!("a stream over node {peer} failed behind it: {told}"));
    }
}

fn unaccepted(own: &str, peer: &str, why: &io::Error) -> Failure {
    Failure::new(FailureCode::Authentication, format_args!("node {own} to node {peer}: {why}"))
}

/// The failure for a connection that cannot be used: one of the two nodes refuses the other, or the connection broke.
fn unfit(own: &str, peer: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied => unaccepted(own, peer, error),
        _ => lost(peer, error),
    }
}

/// As [`lost`]; names the builds where the peer has said what this node does not know.
fn broken(node: &Node, peer: &str, error: &io::Error) -> Failure {
    if error.kind() != io::ErrorKind::InvalidData {
        return lost(peer, error);
    }
    let builds = node.builds.beside_ours(peer);
    Failure::new(FailureCode::NodeUnreachable, format_args!("node {peer} broke the protocol: {error}; {builds}"))
}

fn lost(peer: &str, error: &io::Error) -> Failure {
    Failure::new(FailureCode::NodeUnreachable, format_args!("lost the connection to node {peer}: {error}"))
}

fn abandoned(error: &io::Error) -> Failure {
    Failure::new(FailureCode::Other, format_args!("the client has gone: {error}"))
}

fn silent(peer: &str) -> Failure {
    Failure::new(
        FailureCode::NodeUnreachable,
        format_args!("node {peer} acknowledges nothing: its host or the line is down"),
    )
}

fn no_answer(peer: &str) -> Failure {
    Failure::new(FailureCode::TimedOut, format_args!("node {peer} did not answer in time"))
}

/// The failure when no connection came back and there was no permit to dial: streams that wait for a permit to dial a dead
/// node wait in vain.
fn no_dial_permit(own: &str, peer: &str) -> Failure {
    let text = format_args!(
        "node {own} had no connection to node {peer} in time: many streams wait for one, and that node is slow or does not answer"
    );
    Failure::new(FailureCode::NodeUnreachable, text)
}
