//! A node of an overlay that is sick, or lies.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ekiden_relay_proto::leg::{FrameKind, HEADER_BYTES, Header, Opened, decode_ask, encode_failed};
use ekiden_relay_proto::{Failure, FailureCode};

use super::listener;
use super::overlay::Overlay;
use super::peer::{accept_node, any_frame, frame, say};

/// What the sick node does with a stream.
#[derive(Clone, Copy, PartialEq)]
pub enum Sickness {
    /// It says that the stream is open, and takes what comes.
    Invents,
    /// It answers questions alone.
    Mute,
    /// It answers nothing.
    Hung,
    /// It says that the destination refuses.
    Refuses,
    /// It says that the stream is open, and resets it.
    Resets,
    /// It says that the stream is open, and that its destination has ended.
    Ends,
}

/// A node that is near everybody by its own word. Returns where, and counts the streams that it was given.
pub fn sick(sickness: Sickness) -> (SocketAddr, Arc<AtomicUsize>) {
    let (address, given, _) = sick_and_heard(sickness);
    (address, given)
}

/// The same, and counts the frames of payload of the streams of which it says nothing.
pub fn sick_and_heard(sickness: Sickness) -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (listener, address) = listener();
    let (given, heard) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let (count, frames) = (given.clone(), heard.clone());
    std::thread::spawn(move || {
        loop {
            let Some(mut stream) = accepted(&listener) else { continue };
            let (given, heard) = (count.clone(), frames.clone());
            std::thread::spawn(move || while serve(&mut stream, sickness, &given, &heard).is_some() {});
        }
    });
    (address, given, heard)
}

/// A node that goes before it has proven its key is not let in.
fn accepted(listener: &TcpListener) -> Option<TcpStream> {
    std::panic::catch_unwind(|| accept_node(listener)).ok()
}

/// A question or a stream; none after the end of the connection.
fn serve(stream: &mut TcpStream, sickness: Sickness, given: &AtomicUsize, heard: &AtomicUsize) -> Option<()> {
    stream.set_read_timeout(None).unwrap();
    if stream.peek(&mut [0]).ok()? == 0 {
        return None;
    }
    match any_frame(stream) {
        (FrameKind::About, _) => Some(()),
        (FrameKind::Ask, _) if sickness == Sickness::Hung => Some(()),
        (FrameKind::Ask, wanted) => {
            let leg = |to: &String| format!("{to:?}:{{\"rtt_us\":1,\"loss\":0,\"age_s\":0}}");
            let wanted = decode_ask(&wanted).unwrap();
            let own = wanted.iter().find(|name| name.ends_with('b')).cloned().unwrap_or_default();
            let legs: Vec<String> = wanted.iter().map(leg).collect();
            let told = format!("{{\"told_format\":1,\"node\":{own:?},\"load\":0,\"legs\":{{{}}}}}", legs.join(","));
            stream.write_all(&Header::frame(FrameKind::Told, told.as_bytes())).ok()
        }
        (FrameKind::Open, _) => {
            given.fetch_add(1, Ordering::Relaxed);
            match sickness {
                Sickness::Mute | Sickness::Hung => loop {
                    let mut header = [0; HEADER_BYTES];
                    stream.read_exact(&mut header).ok()?;
                    let header = Header::decode(header).ok()?;
                    heard.fetch_add(usize::from(header.kind == FrameKind::Data), Ordering::Relaxed);
                    let length = if header.kind == FrameKind::Reset { 0 } else { header.length as usize };
                    stream.read_exact(&mut vec![0; length]).ok()?;
                },
                Sickness::Refuses => {
                    let refused = Failure::new(FailureCode::Refused, "it refuses");
                    stream.write_all(&encode_failed(&refused)).ok()?;
                    while frame(stream).0 != FrameKind::End {}
                    return Some(());
                }
                Sickness::Invents | Sickness::Resets => {
                    stream.write_all(&Opened::at(Some("127.0.0.1:9".parse().unwrap())).encode()).ok()?;
                }
                // At once: the client has not said anything yet.
                Sickness::Ends => {
                    let opened = Opened::at(Some("127.0.0.1:9".parse().unwrap())).encode();
                    stream.write_all(&[&opened[..], &Header::frame(FrameKind::End, &[])].concat()).ok()?;
                }
            }
            if sickness == Sickness::Resets {
                say(stream, FrameKind::Reset);
                return None;
            }
            let _ = std::io::copy(stream, &mut std::io::sink());
            None
        }
        other => panic!("{other:?}"),
    }
}

/// How long a client waits for an answer.
pub const WAITS: Duration = Duration::from_millis(2_500);

/// Whether a stream is opened and 64 bytes come back in time.
pub fn is_served(overlay: &Overlay, to: SocketAddr) -> bool {
    let Some(mut stream) = overlay.stream(to) else { return false };
    stream.set_read_timeout(Some(WAITS)).unwrap();
    stream.write_all(&[7; 64]).is_ok() && stream.read_exact(&mut [0; 64]).is_ok()
}
