//! Another node's connection: authentication, then one stream after another.

use std::io;
use std::sync::Arc;

use ekiden_relay_proto::segment::{
    Acceptor, Event, HEADER_BYTES, Incoming, Key, Kind, Open, encode_failed, encode_opened,
};
use ekiden_relay_proto::{Failure, FailureCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Upstream, reach_via};
use crate::config::{Listener, Tcp};
use crate::duplex::{Duplex, Side};
use crate::node::Node;
use crate::segment::{Early, fresh_nonce, invalid, read_frame};

pub(super) async fn serve(node: &Arc<Node>, listener: &Listener, mut stream: TcpStream) {
    let limit = node.config().limits.handshake;
    let (name, key, mut request) = match timeout(limit, authenticate(node, &mut stream)).await {
        Ok(Ok(Some(first))) => first,
        Ok(Ok(None)) => return Side::node(stream).end_cleanly(),
        Ok(Err(error)) => return tracing::debug!("a node did not get through its handshake: {error}"),
        Err(_) => return,
    };
    loop {
        let after = match serve_stream(node, &listener.tcp, stream, &request).await {
            Ok(after) => after,
            Err(error) => return tracing::debug!("a stream from node {name} was reset: {error}"),
        };
        stream = after;
        let idle = node.config().limits.pool_idle * 2;
        let next = tokio::select! {
            biased;
            // What was proved with the old key does not hold any more.
            () = node.key_changed(&key) => return Side::node(stream).end_cleanly(),
            next = timeout(idle, read_open(&mut stream)) => next,
            () = node.stopping() => return Side::node(stream).end_cleanly(),
        };
        request = match next {
            Ok(Ok(open)) => open,
            // The usual end of a warm connection.
            Ok(Err(error)) if error.kind() != io::ErrorKind::InvalidData => return,
            Ok(Err(error)) => return tracing::warn!("node {name} broke the protocol: {error}"),
            Err(_) => return Side::node(stream).end_cleanly(),
        };
    }
}

/// The dialler's name, the key it has, and its first request. `None` if it was refused and told so.
async fn authenticate(node: &Arc<Node>, stream: &mut TcpStream) -> io::Result<Option<(String, Key, Open)>> {
    let config = node.config();
    let Some(key) = config.key.clone() else { return Err(invalid("no key_file")) };
    let mut acceptor = Acceptor::new(key.clone(), fresh_nonce()?);
    let (Kind::Hello, body) = read_frame(stream).await? else { return Err(invalid("not a HELLO")) };
    let hello = match acceptor.hello(&body) {
        Ok(hello) => hello,
        Err(error) => {
            let failure = Failure::new(FailureCode::Authentication, format_args!("node {}: {error}", config.name));
            stream.write_all(&encode_failed(&failure)).await?;
            return Ok(None);
        }
    };
    stream.write_all(&hello).await?;
    let (Kind::Auth, body) = read_frame(stream).await? else { return Err(invalid("not an AUTH")) };
    match acceptor.authenticate(&body) {
        Ok(name) => Ok(Some((name, key, read_open(stream).await?))),
        Err(error) => {
            tracing::warn!("a node was refused: {error}");
            let failure = Failure::new(FailureCode::Authentication, format_args!("node {}: {error}", config.name));
            stream.write_all(&encode_failed(&failure)).await?;
            Ok(None)
        }
    }
}

async fn read_open(stream: &mut TcpStream) -> io::Result<Open> {
    match read_frame(stream).await? {
        (Kind::Open, body) => Open::decode(&body).map_err(invalid),
        (other, _) => Err(invalid(format_args!("{other:?} instead of OPEN"))),
    }
}

/// One stream, from OPEN to both ENDs. Returns the connection, ready for the next.
async fn serve_stream(node: &Arc<Node>, tcp: &Tcp, mut stream: TcpStream, request: &Open) -> io::Result<TcpStream> {
    let busy = node.begin();
    let reached = reach_via(node, &request.chain, &request.target, request.client, Early::Node(&stream)).await;
    let Upstream { side, peer, bound } = match reached {
        Ok(upstream) => upstream,
        Err(failure) => {
            tracing::debug!("segment to {}: {failure}", request.target);
            stream.write_all(&encode_failed(&failure)).await?;
            let limit = node.config().limits.handshake;
            timeout(limit, discard(&mut stream)).await??;
            return Ok(stream);
        }
    };
    let bound = bound.or_else(|| side.stream.local_addr().ok());
    stream.write_all(&encode_opened(bound)).await?;
    let mut client = Side::node(stream);
    client.follow(node, tcp);
    let (client, side) = Box::pin(Duplex::new(client, side, &[]).run()).await.map_err(io::Error::other)?;
    Upstream { side, peer, bound: None }.finish(node);
    drop(busy);
    Ok(client.stream)
}

/// After FAILED: throws away the payload that was on its way, up to the END behind it.
async fn discard(stream: &mut TcpStream) -> io::Result<()> {
    let mut incoming = Incoming::default();
    let mut piece = [0; 4096];
    loop {
        let payload = (incoming.payload() as usize).min(piece.len());
        if payload > 0 {
            let n = stream.read(&mut piece[..payload]).await?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            incoming.took_payload(n as u32);
            continue;
        }
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).await?;
        match incoming.took_header(&header).map_err(invalid)? {
            Some(Event::End) => return Ok(()),
            Some(Event::Reset(_)) => return Err(io::ErrorKind::ConnectionReset.into()),
            Some(Event::Data(_)) | None => {}
        }
    }
}
