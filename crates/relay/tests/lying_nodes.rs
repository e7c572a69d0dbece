//! A node in between that passes streams on, but not all of them: how soon one that knows how it is judged is set aside.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::overlay::Overlay;
use crate::common::*;
use ekiden_relay::{Config, Relay};
use ekiden_relay_proto::leg::{FrameKind, HEADER_BYTES, Header, Open};

/// What comes back of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// All but the last byte.
    LastByte,
    /// One byte, and an end.
    Early,
    /// All, and one byte more.
    More,
    /// Nothing: the stream is broken off.
    Breaks,
    /// What this destination says, which is another one.
    Elsewhere(SocketAddr),
}

/// A frame as it comes.
fn frame(stream: &mut TcpStream) -> Option<(Header, Vec<u8>)> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).ok()?;
    let header = Header::decode(header).ok()?;
    let mut body = vec![0; if header.kind == FrameKind::Reset { 0 } else { header.length as usize }];
    stream.read_exact(&mut body).ok()?;
    Some((header, body))
}

/// What was passed on of a stream.
#[derive(Default)]
struct Passed {
    held: Option<u8>,
    is_cut: bool,
}

/// A line to a node, on which what comes back on plain legs is not what was sent; with TLS it is. Counts the streams.
fn liar(listener: TcpListener, [node, with_tls]: [SocketAddr; 2], lie: Lie) -> Arc<AtomicUsize> {
    let given = Arc::new(AtomicUsize::new(0));
    let count = given.clone();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let given = count.clone();
            std::thread::spawn(move || {
                let mut first = [0];
                if near.peek(&mut first).is_err() || first == [0x16] {
                    return pass(&near, &TcpStream::connect(with_tls).unwrap());
                }
                let far = TcpStream::connect(node).unwrap();
                let passed = Arc::new(Mutex::new(Passed::default()));
                let (mut from, mut to, of) = (near.try_clone().unwrap(), far.try_clone().unwrap(), passed.clone());
                std::thread::spawn(move || {
                    while let Some((header, body)) = frame(&mut from) {
                        let mut out = [&header.encode()[..], &body].concat();
                        if header.kind == FrameKind::Open {
                            given.fetch_add(1, Ordering::Relaxed);
                            *of.lock().unwrap() = Passed::default();
                            if let Lie::Elsewhere(other) = lie {
                                out = Open { target: other.into(), ..Open::decode(&body).unwrap() }.encode();
                            }
                        }
                        if to.write_all(&out).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Write);
                });
                back(far, near, lie, &passed);
            });
        }
    });
    given
}

/// Passes all on in both directions.
fn pass(near: &TcpStream, far: &TcpStream) {
    for (from, to) in [(near, far), (far, near)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

fn back(mut from: TcpStream, mut to: TcpStream, lie: Lie, passed: &Mutex<Passed>) {
    while let Some((header, mut body)) = frame(&mut from) {
        let mut passed = passed.lock().unwrap();
        let mut out = Vec::new();
        match (lie, header.kind) {
            (Lie::LastByte, FrameKind::Data) => {
                body.splice(0..0, passed.held.take());
                passed.held = body.pop();
                if !body.is_empty() {
                    out = Header::frame(FrameKind::Data, &body);
                }
            }
            (Lie::LastByte, FrameKind::End) => {}
            (Lie::Early, FrameKind::Data | FrameKind::End) if passed.is_cut => {}
            (Lie::Early, FrameKind::Data) => {
                passed.is_cut = true;
                out = Header::frame(FrameKind::Data, &body[..1]);
                out.extend(Header { kind: FrameKind::End, length: 0 }.encode());
            }
            (Lie::Breaks, FrameKind::Data) => {
                let _ = [&from, &to].map(|stream| stream.shutdown(Shutdown::Both));
                return;
            }
            (Lie::More, FrameKind::Data) => {
                body.push(7);
                out = Header::frame(FrameKind::Data, &body);
            }
            _ => out = [&header.encode()[..], &body].concat(),
        }
        if to.write_all(&out).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Node a with its clients, b on a line that lies, and c, which is near the destination. Streams go over b.
fn behind_a_liar(lie: Lie) -> (Overlay, Relay, Arc<AtomicUsize>) {
    let (listener, address) = listener();
    let overlay = Overlay::behind_an_impostor(3, "class = \"interactive\"\nthrough = [\"@b\"]", address);
    let nodes = [spare_port(), spare_port()];
    let [node, with_tls] = nodes;
    let text = format!(
        "name = \"{}\"\nkey_file = \"1.pem\"\nthreads = 2\n\
         [listen.plain]\nkind = \"leg\"\naddress = \"{node}\"\nplain_key_file = \"key\"\n\
         [listen.leg]\nkind = \"leg\"\naddress = \"{with_tls}\"\n[overlay]\nmembers_file = \"1.members\"\n",
        overlay.name(1)
    );
    let relay = Relay::start(Config::parse(&text, &overlay.folder.join("b.toml")).unwrap()).unwrap();
    let given = liar(listener, nodes, lie);
    (overlay, relay, given)
}

/// Whether 64 bytes come back in time, and an end after the client's own.
fn is_served(overlay: &Overlay, to: SocketAddr) -> bool {
    let Some(mut stream) = overlay.stream(to) else { return false };
    stream.set_read_timeout(Some(Duration::from_millis(2_500))).unwrap();
    let mut got = Vec::new();
    let is_whole = stream.write_all(&[7; 64]).is_ok() && stream.read_exact(&mut [0; 64]).is_ok();
    is_whole && stream.shutdown(Shutdown::Write).is_ok() && stream.read_to_end(&mut got).is_ok() && got.is_empty()
}

/// After so many streams the node is set aside.
fn is_set_aside(lie: Lie, after: usize) {
    let (overlay, _relay, given) = behind_a_liar(lie);
    let echo = echo();
    for number in 1..=after {
        wait_until("b is given a stream", || {
            assert!(!is_served(&overlay, echo), "{lie:?}");
            given.load(Ordering::Relaxed) == number
        });
        // What happens within two seconds counts once, and exits are asked a quarter of a second later.
        std::thread::sleep(Duration::from_millis(2_600));
    }
    let aside = || overlay.status(0).nodes.into_iter().find(|node| node.name == overlay.name(1)).unwrap().aside_s;
    wait_until("b is set aside", || aside().is_some());
}

#[test]
fn a_node_that_keeps_the_last_byte_is_set_aside() {
    is_set_aside(Lie::LastByte, 1);
}

#[test]
fn a_node_that_says_the_end_early_is_set_aside() {
    is_set_aside(Lie::Early, 1);
}

#[test]
fn a_node_that_says_more_than_the_destination_is_set_aside() {
    is_set_aside(Lie::More, 1);
}

#[test]
fn a_node_that_breaks_streams_off_is_set_aside_the_second_time() {
    is_set_aside(Lie::Breaks, 2);
}

#[test]
fn a_node_that_connects_to_another_destination_is_set_aside() {
    // It takes what comes and says nothing, as a destination may.
    let (silent, address) = listener();
    std::thread::spawn(move || silent.incoming().flatten().collect::<Vec<_>>());
    is_set_aside(Lie::Elsewhere(address), 1);
}
