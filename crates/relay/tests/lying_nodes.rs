//! A node in between that passes streams on, but not all of them: what honest clients lose to one that knows how it is judged.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::overlay::Overlay;
use common::*;
use ekiden_relay::{Config, Relay};
use ekiden_relay_proto::leg::{FrameKind, HEADER_BYTES, Header};

/// What comes back of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// All but the last byte.
    LastByte,
    /// One byte, and an end.
    Early,
    /// All, and one byte more.
    More,
    /// All. The stream is broken off as soon as it is so old.
    Breaks(Duration),
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

/// A line to a node, on plain legs, on which what comes back is not what was sent. Counts the streams.
fn liar(listener: TcpListener, node: SocketAddr, lie: Lie) -> Arc<AtomicUsize> {
    let given = Arc::new(AtomicUsize::new(0));
    let count = given.clone();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let given = count.clone();
            std::thread::spawn(move || {
                // Other nodes come with TLS, and are not let in.
                let mut first = [0];
                if near.peek(&mut first).is_err() || first == [0x16] {
                    return;
                }
                let far = TcpStream::connect(node).unwrap();
                let passed = Arc::new(Mutex::new(Passed::default()));
                let (mut from, mut to, of) = (near.try_clone().unwrap(), far.try_clone().unwrap(), passed.clone());
                std::thread::spawn(move || {
                    while let Some((header, body)) = frame(&mut from) {
                        if header.kind == FrameKind::Open {
                            given.fetch_add(1, Ordering::Relaxed);
                            *of.lock().unwrap() = Passed::default();
                            if let Lie::Breaks(after) = lie {
                                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                                std::thread::spawn(move || {
                                    std::thread::sleep(after);
                                    [from, to].map(|stream| stream.shutdown(Shutdown::Both))
                                });
                            }
                        }
                        if to.write_all(&[&header.encode()[..], &body].concat()).is_err() {
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

/// Node a with its clients, b on a line that lies, and c, which is near the destination and far from a.
fn beside_a_liar(lie: Lie) -> (Overlay, Relay, Arc<AtomicUsize>) {
    let (listener, address) = listener();
    let (far, there) = common::listener();
    let seen = |at, to| ((at, to) == (0, 2)).then_some(there);
    let route = "class = \"interactive\"\nmost_relays = 1";
    let overlay = Overlay::with_impostor(3, seen, route, Some(address));
    let node = spare_port();
    let text = format!(
        "name = \"{}\"\nkey_file = \"1.pem\"\nthreads = 2\n\
         [listen.plain]\nkind = \"leg\"\naddress = \"{node}\"\nplain_key_file = \"key\"\n[overlay]\nmembers_file = \"1.members\"\n",
        overlay.name(1)
    );
    let relay = Relay::start(Config::parse(&text, &overlay.folder.join("b.toml")).unwrap()).unwrap();
    let given = liar(listener, node, lie);
    let c = overlay.addresses[2];
    std::thread::spawn(move || {
        for near in far.incoming().flatten() {
            let far = TcpStream::connect(c).unwrap();
            for (mut from, mut to) in [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far.try_clone().unwrap(), near.try_clone().unwrap()),
            ] {
                std::thread::spawn(move || {
                    let mut piece = vec![0; 65_536];
                    while let Ok(n @ 1..) = from.read(&mut piece) {
                        std::thread::sleep(Duration::from_millis(40));
                        if to.write_all(&piece[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
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

/// What so many clients lose in so long, each; once the first stream has gone to the liar.
fn lost(overlay: &Overlay, given: &AtomicUsize, time: Duration) -> Vec<[usize; 2]> {
    let echo = echo();
    wait_until("b is given a stream", || {
        let _ = is_served(overlay, echo);
        given.load(Ordering::Relaxed) > 0
    });
    let begun = Instant::now();
    let client = || {
        let mut count = [0; 2];
        while begun.elapsed() < time {
            count[usize::from(!is_served(overlay, echo))] += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        count
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(client)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn loses_little(lie: Lie) {
    let (overlay, _relay, given) = beside_a_liar(lie);
    let counts = lost(&overlay, &given, Duration::from_secs(6));
    assert!(counts.iter().all(|[got, lost]| *got > 5 && *lost <= 1), "{lie:?}: {counts:?}");
    assert!(given.load(Ordering::Relaxed) <= 3, "{lie:?}: {given:?}");
    let aside = overlay.status(0).nodes.into_iter().find(|node| node.name == overlay.name(1)).unwrap().aside_s;
    assert!(aside.is_some() || matches!(lie, Lie::Breaks(_)), "{lie:?}");
}

#[test]
fn a_node_that_keeps_the_last_byte_is_set_aside() {
    loses_little(Lie::LastByte);
}

#[test]
fn a_node_that_says_the_end_early_is_set_aside() {
    loses_little(Lie::Early);
}

#[test]
fn a_node_that_says_more_than_the_destination_is_set_aside() {
    loses_little(Lie::More);
}

#[test]
fn a_node_that_breaks_streams_off_gets_few() {
    loses_little(Lie::Breaks(Duration::ZERO));
}
