//! Connections that are made before a stream wants them, seen by a peer that is this test, and by real nodes.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::peer::{accept_node, frame, say};
use crate::common::process::Process;
use crate::common::*;
use ekiden_relay::Relay;
use ekiden_relay_proto::leg::{FrameKind, Opened};
use nix::sys::signal::Signal;

/// What all nodes of the process have logged.
fn logged(part: &str) -> usize {
    log::logged(part).len()
}

fn entry_text(peer: &str, address: SocketAddr, warm: usize, limits: &str) -> String {
    format!(
        "[listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"192.0.2.1:1\"\nvia = [\"{peer}\"]\n\
         [peer.{peer}]\naddress = \"{address}\"\nplain_key_file = \"key\"\nwarm = {warm}\n{limits}"
    )
}

/// Whether something has come on the connection, or its end. Leaves it where it is.
fn is_quiet(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    seen.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Takes out the one that is not silent any more.
fn stirred(streams: &mut Vec<TcpStream>) -> TcpStream {
    let mut at = None;
    wait_until("one is not silent any more", || {
        at = streams.iter().position(|stream| !is_quiet(stream));
        at.is_some()
    });
    streams.swap_remove(at.unwrap())
}

/// A stream on a connection, from OPEN to DELIVERED.
fn serve_one(stream: &mut TcpStream, client: TcpStream) {
    assert_eq!(frame(stream).0, FrameKind::Open);
    stream.write_all(&Opened::at(None).encode()).unwrap();
    say(stream, FrameKind::End);
    drop(client);
    assert_eq!(frame(stream).0, FrameKind::End);
    say(stream, FrameKind::Delivered);
}

#[test]
fn connections_are_there_before_the_first_client_and_those_that_are_taken_are_made_up_for() {
    let (listener, address) = listener();
    let entry = node(&entry_text("p", address, 2, "[limits]\npool_idle = \"1s\"\n"));
    let mut idle = vec![accept_node(&listener), accept_node(&listener)];
    wait_until("both are ready", || entry.idle("p") == 2);
    let client = connect(entry.address("fwd").unwrap());
    let mut used = stirred(&mut idle);
    idle.push(accept_node(&listener));
    serve_one(&mut used, client);
    // Three are more than two: the surplus is closed, and that is not the one whose congestion window has grown.
    drop(stirred(&mut idle));
    assert!(is_quiet(&used) && is_quiet(&idle[0]));
    let client = connect(entry.address("fwd").unwrap());
    serve_one(&mut used, client);
    assert!(is_quiet(&idle[0]));
}

#[test]
fn where_there_is_no_room_for_both_the_used_connection_is_kept() {
    let (listener, address) = listener();
    let entry = node(&entry_text("p", address, 1, "[limits]\npool = 1\n"));
    let mut used = accept_node(&listener);
    wait_until("it is ready", || entry.idle("p") == 1);
    for _ in 0..3 {
        let client = connect(entry.address("fwd").unwrap());
        let mut spare = accept_node(&listener);
        wait_until("the spare one is ready", || entry.idle("p") == 1);
        serve_one(&mut used, client);
        assert!(ends_cleanly(&mut spare));
        assert_eq!(entry.idle("p"), 1);
    }
}

#[test]
fn a_connection_that_has_died_is_replaced_without_a_client() {
    let (listener, address) = listener();
    let entry = node(&entry_text("p", address, 1, ""));
    for reset_it in [true, false] {
        // A stream shows that the other node does want it.
        let mut stream = accept_node(&listener);
        wait_until("it is ready", || entry.idle("p") == 1);
        let client = connect(entry.address("fwd").unwrap());
        serve_one(&mut stream, client);
        // The one that was made up for it.
        let spare = accept_node(&listener);
        wait_until("both are ready", || entry.idle("p") == 2);
        for stream in [stream, spare] {
            if reset_it { reset(stream) } else { drop(stream) }
        }
    }
    accept_node(&listener);
}

#[test]
fn a_node_that_is_down_is_tried_less_and_less_and_the_log_says_so_once() {
    log::keep();
    // The same port again after the pause.
    let address = spare_port();
    let listener = TcpListener::bind(address).unwrap();
    let entry = node(&entry_text("downer", address, 3, ""));
    let streams = [(); 3].map(|()| accept_node(&listener));
    drop((listener, streams));
    let line = "no connections to node downer can be made ahead, will keep trying";
    wait_until("it is said", || logged(line) == 1);
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(3500));
    let listener = TcpListener::bind(address).unwrap();
    let mut streams = Vec::new();
    while streams.len() < 3 {
        streams.push(accept_node(&listener));
    }
    assert!(begun.elapsed() > Duration::from_secs(4), "tried again too soon");
    assert_eq!(logged(line), 1);
    wait_until("it is said that all is well", || logged("connections to node downer are made ahead again") == 1);
    drop(entry);
}

/// Passes connections on to `to`, and counts them.
fn line(to: SocketAddr, count: &'static AtomicUsize) -> SocketAddr {
    server(move |near| {
        count.fetch_add(1, Ordering::SeqCst);
        let far = connect(to);
        let (mut from, mut back) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        near.set_read_timeout(None).unwrap();
        far.set_read_timeout(None).unwrap();
        std::thread::spawn(move || drop(std::io::copy(&mut from, &mut back)));
        let (mut near, mut far) = (near, far);
        let _ = std::io::copy(&mut near, &mut far);
        let _ = far.shutdown(Shutdown::Both);
    })
}

/// A node that goes through `peer` at `address`.
fn real_entry(mode: Mode, peer: &str, address: SocketAddr, warm: usize) -> Relay {
    let (own, known) = (mode.node("key"), mode.peer("key"));
    node(&format!(
        "name = \"entry\"\n{own}[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
         [peer.{peer}]\naddress = \"{address}\"\n{known}warm = {warm}\n[[route]]\nto = [\"*\"]\nvia = [\"{peer}\"]\n"
    ))
}

#[test]
fn the_accepting_node_keeps_them_for_as_long_as_the_other_one_does() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let echo = late_echo();
    for mode in [Mode::Plain, Mode::Tls] {
        MADE.store(0, Ordering::SeqCst);
        let exit = leg_node(mode, "n1", None, "[limits]\nhandshake = \"300ms\"\npool_idle = \"100ms\"\n");
        let entry = real_entry(mode, "n1", line(exit.address("leg").unwrap(), &MADE), 2);
        wait_until("they are there", || exit.connections() == 2);
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!((MADE.load(Ordering::SeqCst), exit.connections()), (2, 2), "{mode:?}");
        let (code, stream) = socks(entry.address("socks").unwrap(), &echo.ip().to_string(), echo.port());
        assert_eq!((code, exchange(stream, b"hello")), (0, b"hello".to_vec()));
        drop(entry);
        wait_until("they go with it", || exit.connections() == 0);
    }
}

#[test]
fn a_key_that_is_not_taken_is_said_once() {
    log::keep();
    for (mode, peer, why) in [
        (Mode::Plain, "plainer", "the other node does not have the same key"),
        (Mode::Tls, "tlser", "it does not take this node's key"),
    ] {
        let line = format!(
            "no connections to node {peer} can be made ahead, will keep trying: node entry to node {peer}: {why}"
        );
        let (own, nodes) = (mode.node("key"), mode.listener("other-key"));
        let exit = node(&format!("{own}[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n{nodes}"));
        let entry = real_entry(mode, peer, exit.address("leg").unwrap(), 2);
        wait_until("it is said", || logged(&line) == 1);
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(logged(&format!("node {peer} can be made ahead")), 1);
        drop(entry);
        wait_until("nothing is left", || exit.connections() == 0);
    }
}

#[test]
fn who_refused_whom_is_said_where_both_sides_log() {
    log::keep();
    let exit = leg_node(Mode::Tls, "refused", None, "");
    let (own, pinned) = (Mode::Tls.node("other-key"), Mode::Tls.peer("other-key"));
    let _entry = node(&format!(
        "name = \"refuser\"\n{own}[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
         [peer.refused]\naddress = \"{}\"\n{pinned}warm = 1\n",
        exit.address("leg").unwrap()
    ));
    wait_until("the dialler says that it refused", || {
        logged(&format!("node refuser to node refused: it has presented the key {}", fingerprint("key"))) == 1
    });
    wait_until("the acceptor says that it was refused", || {
        logged("refused this node: it does not take this node's key") >= 1
    });
    assert_eq!(logged("was refused: it does not take"), 0);
}

#[test]
fn they_do_not_hold_up_a_node_that_stops() {
    let (listener, address) = listener();
    let text = entry_text("p", address, 2, "[limits]\ndrain = \"1h\"\n");
    let mut process = Process::start("warm-stop", &text);
    let mut idle = [accept_node(&listener), accept_node(&listener)];
    process.signal(Signal::SIGTERM);
    process.ensure_ends();
    for stream in &mut idle {
        assert!(ends_cleanly(stream));
    }
}
