//! Streams over segments: dialling peers, authenticating, opening streams, and the warm pool.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;

use ekiden_net::socket;
use ekiden_relay_proto::segment::{
    Dialler, HEADER_BYTES, Header, Kind, MAX_CONTROL, Nonce, Open, decode_failed, decode_opened,
};
use ekiden_relay_proto::{Failure, FailureCode, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::Peer;
use crate::dial;
use crate::node::Node;

/// Payload that may travel with OPEN, before the answer. It is left where it is until the stream is open, so
/// that it can be sent again on another connection.
pub enum Early<'a> {
    /// The client speaks only when it has been answered.
    Nothing,
    /// These bytes.
    Bytes(&'a [u8]),
    /// What a host has sent or sends while the stream is being opened.
    Host(&'a TcpStream),
    /// The same of a node: whole DATA frames.
    Node(&'a TcpStream),
}

/// The most payload sent before the answer, in bytes.
const MAX_EARLY: usize = 16 << 10;

/// Opens a stream to `target` for `client` through `chain`, whose first node is a peer.
pub async fn open(
    node: &Node,
    chain: &[String],
    target: &Target,
    client: Option<SocketAddr>,
    early: Early<'_>,
) -> Result<(TcpStream, SocketAddr), Failure> {
    let config = node.config();
    let Some((first, rest)) = chain.split_first() else {
        return Err(Failure::new(FailureCode::Other, "an empty chain"));
    };
    let Some(peer) = config.peers.get(first) else {
        let text = format_args!("node {} does not know the node '{first}'", config.name);
        return Err(Failure::new(FailureCode::UnknownNode, text));
    };
    let request = Open { chain: rest.to_vec(), target: target.clone(), client }.encode();
    // Every node on the way has `connect` to reach the next; only one of them can be the one that waits.
    let limit = config.limits.connect * 2;
    while let Some(warm) = node.pool.take(first, peer) {
        let mut stream = TcpStream::from_std(warm).map_err(|e| lost(first, &e))?;
        match timeout(limit, ask(&mut stream, &request, &early)).await {
            Ok(Ok(answer)) => return answered(node, first, peer, stream, answer),
            // Nothing was answered and nothing consumed: the connection was dead, not the peer.
            Ok(Err(Unanswered::Gone(_))) => continue,
            Ok(Err(Unanswered::Broken(error))) => return Err(lost(first, &error)),
            Err(_) => return Err(no_answer(first)),
        }
    }
    let (mut stream, mut auth) = dial_peer(node, first, peer).await?;
    auth.extend(&request);
    match timeout(limit, ask(&mut stream, &auth, &early)).await {
        Ok(Ok(answer)) => answered(node, first, peer, stream, answer),
        Ok(Err(Unanswered::Gone(error) | Unanswered::Broken(error))) => Err(lost(first, &error)),
        Err(_) => Err(no_answer(first)),
    }
}

/// Reads one control frame, and not a byte more.
pub async fn read_frame(stream: &mut (impl AsyncReadExt + Unpin)) -> io::Result<(Kind, Vec<u8>)> {
    read_rest_of_frame(stream, [0; HEADER_BYTES], 0).await
}

/// The same, of whose header `n` bytes were read.
async fn read_rest_of_frame(
    stream: &mut (impl AsyncReadExt + Unpin),
    mut header: [u8; HEADER_BYTES],
    n: usize,
) -> io::Result<(Kind, Vec<u8>)> {
    stream.read_exact(&mut header[n..]).await?;
    let header = Header::decode(header).map_err(invalid)?;
    if matches!(header.kind, Kind::Data) {
        return Err(invalid("payload where a control frame was due"));
    }
    let mut body = Vec::new();
    if header.kind == Kind::Reset {
        body.push(header.length as u8);
    } else if header.length > 0 {
        debug_assert!(header.length <= MAX_CONTROL);
        body.resize(header.length as usize, 0);
        stream.read_exact(&mut body).await?;
    }
    Ok((header.kind, body))
}

/// 32 bytes nobody can guess.
pub fn fresh_nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

/// What a peer said to OPEN.
enum Answer {
    Opened(SocketAddr),
    Failed(Failure),
}

/// Why there is no answer to OPEN.
enum Unanswered {
    /// The connection ended before the first byte of an answer: another one may be tried.
    Gone(io::Error),
    /// An answer was begun, or something else failed.
    Broken(io::Error),
}

impl From<io::Error> for Unanswered {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Connects and authenticates; returns the AUTH frame still to be sent.
async fn dial_peer(node: &Node, name: &str, peer: &Peer) -> Result<(TcpStream, Vec<u8>), Failure> {
    let config = node.config();
    let connected = dial::connect(&peer.address, None, &peer.tcp, config.limits.connect, |_| false).await;
    let mut stream = connected.map_err(|failure| {
        let text = format_args!("node {} cannot reach node {name}: {failure}", config.name);
        Failure::new(FailureCode::NodeUnreachable, text)
    })?;
    let Some(key) = peer.key.clone() else {
        return Err(Failure::new(FailureCode::Authentication, "no key_file"));
    };
    let nonce = fresh_nonce().map_err(|error| lost(name, &error))?;
    let dialler = Dialler::new(key, &config.name, nonce);
    let hello = async {
        stream.write_all(&dialler.hello()).await?;
        read_frame(&mut stream).await
    };
    let refused = |why: &dyn std::fmt::Display| {
        let text = format_args!("node {} and node {name}: {why}", config.name);
        Failure::new(FailureCode::Authentication, text)
    };
    match timeout(config.limits.handshake, hello).await {
        Ok(Ok((Kind::Hello, body))) => {
            let auth = dialler.auth(&body).map_err(|error| refused(&error))?;
            Ok((stream, auth))
        }
        Ok(Ok((Kind::Failed, body))) => Err(decode_failed(&body).unwrap_or_else(|error| refused(&error))),
        Ok(Ok(_)) => Err(refused(&"not the segment protocol")),
        Ok(Err(error)) => Err(lost(name, &error)),
        Err(_) => Err(no_answer(name)),
    }
}

/// Sends `request` and early payload, and waits for the answer.
async fn ask(stream: &mut TcpStream, request: &[u8], early: &Early<'_>) -> Result<Answer, Unanswered> {
    let (mut read, mut write) = stream.split();
    let mut request = request.to_vec();
    let (speaker, mut sent) = match early {
        Early::Nothing => (None, 0),
        Early::Bytes(bytes) => {
            request.extend(Header { kind: Kind::Data, length: bytes.len() as u32 }.encode());
            request.extend(*bytes);
            (None, bytes.len())
        }
        Early::Host(stream) | Early::Node(stream) => {
            // A connection just accepted is not known to be readable yet, but mostly is.
            let seen = said(stream, matches!(early, Early::Node(_)));
            request.extend(seen.frames);
            (Some(*stream), seen.bytes)
        }
    };
    write.write_all(&request).await.map_err(Unanswered::Gone)?;
    let mut answer = pin!(async {
        let mut header = [0; HEADER_BYTES];
        match read.read(&mut header).await {
            Ok(0) => Err(Unanswered::Gone(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => Ok(read_rest_of_frame(&mut read, header, n).await?),
            Err(error) => Err(Unanswered::Gone(error)),
        }
    });
    let (kind, body) = match speaker.filter(|_| sent == 0) {
        None => answer.await?,
        Some(speaker) => tokio::select! {
            biased;
            answer = &mut answer => answer?,
            ready = speaker.readable() => {
                ready?;
                let seen = said(speaker, matches!(early, Early::Node(_)));
                write.write_all(&seen.frames).await.map_err(Unanswered::Gone)?;
                sent = seen.bytes;
                answer.await?
            }
        },
    };
    match kind {
        Kind::Opened => {
            let bound = decode_opened(&body).map_err(invalid)?;
            if let Some(speaker) = speaker {
                consume(speaker, sent)?;
            }
            Ok(Answer::Opened(bound))
        }
        Kind::Failed => {
            let failure = decode_failed(&body).map_err(invalid)?;
            Ok(Answer::Failed(failure))
        }
        other => Err(invalid(format_args!("{other:?} frame instead of an answer to OPEN")).into()),
    }
}

/// A copy of what a speaker has said.
#[derive(Default)]
struct Said {
    /// As DATA frames.
    frames: Vec<u8>,
    /// How many bytes in the speaker's socket that is.
    bytes: usize,
}

/// What the speaker has said so far, left in its socket. An end or an error shows again when the stream runs.
fn said(speaker: &TcpStream, is_node: bool) -> Said {
    let mut frames = vec![0; HEADER_BYTES + MAX_EARLY];
    let Ok(n) = socket::peek(speaker, &mut frames[HEADER_BYTES..]) else { return Said::default() };
    frames.truncate(HEADER_BYTES + n);
    if is_node {
        frames.drain(..HEADER_BYTES);
        frames.truncate(whole_frames(&frames));
        return Said { bytes: frames.len(), frames };
    }
    if n == 0 {
        return Said::default();
    }
    frames[..HEADER_BYTES].copy_from_slice(&Header { kind: Kind::Data, length: n as u32 }.encode());
    Said { frames, bytes: n }
}

/// How many of `bytes` are complete DATA frames.
fn whole_frames(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some((header, rest)) = bytes[whole..].split_first_chunk::<HEADER_BYTES>() {
        match Header::decode(*header) {
            Ok(Header { kind: Kind::Data, length }) if rest.len() >= length as usize => {
                whole += HEADER_BYTES + length as usize;
            }
            _ => break,
        }
    }
    whole
}

/// Takes the bytes that were sent early out of the speaker's socket, where they are known to be.
fn consume(speaker: &TcpStream, mut n: usize) -> io::Result<()> {
    let mut sink = [0; 4096];
    while n > 0 {
        let most = n.min(sink.len());
        match socket::receive(speaker, &mut sink[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            got => n -= got,
        }
    }
    Ok(())
}

fn answered(
    node: &Node,
    name: &str,
    peer: &Peer,
    stream: TcpStream,
    answer: Answer,
) -> Result<(TcpStream, SocketAddr), Failure> {
    match answer {
        Answer::Opened(bound) => Ok((stream, bound)),
        Answer::Failed(failure) => {
            // The stream is over for the peer once it hears END, also if payload was on its way.
            let end = Header { kind: Kind::End, length: 0 }.encode();
            let sent = stream.try_io(Interest::WRITABLE, || socket::send(&stream, &end, false));
            if matches!(sent, Ok(n) if n == end.len()) && failure.code != FailureCode::Authentication {
                node.pool.put(name, peer, stream);
            }
            Err(failure)
        }
    }
}

fn lost(peer: &str, error: &io::Error) -> Failure {
    Failure::new(FailureCode::NodeUnreachable, format_args!("lost the connection to node {peer}: {error}"))
}

fn no_answer(peer: &str) -> Failure {
    Failure::new(FailureCode::TimedOut, format_args!("node {peer} did not answer in time"))
}

/// Bytes that break the protocol.
pub fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}
