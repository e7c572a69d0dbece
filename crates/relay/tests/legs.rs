//! What happens between nodes: keys, the warm pool, nodes that go away.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};

use crate::common::*;
use ekiden_relay::Relay;

#[test]
fn a_second_stream_uses_the_first_ones_connection() {
    let chain = Chain::new(2);
    let server = late_echo();
    for i in 0..20 {
        let data = noise(1000 * i, 1);
        assert!(exchange(chain.socks(server), &data) == data);
        for node in &chain.nodes {
            // The end reaches the client a moment before the connection is back in the pool.
            assert!(node.connections() <= 2, "stream {i} used another connection");
        }
        wait_until("the stream is over", || chain.entry.busy() == 0 && chain.nodes.iter().all(|n| n.busy() == 0));
        assert_eq!(chain.nodes[0].connections(), 1);
        assert_eq!(chain.nodes[1].connections(), 1);
    }
    assert_eq!(socks(chain.address("socks"), "127.0.0.1", closed_port().port()).0, 5);
    wait_until("the failed stream is over", || chain.nodes.iter().all(|n| n.busy() == 0));
    assert_eq!(exchange(chain.socks(server), b"after a failure"), b"after a failure");
    wait_until("the stream is over", || chain.nodes.iter().all(|n| n.busy() == 0));
    assert_eq!(chain.nodes[0].connections(), 1);
}

#[test]
fn warm_connections_are_closed_when_nobody_uses_them() {
    let limits = "[limits]\npool_idle = \"200ms\"\n";
    let chain = Chain::with(2, limits, limits);
    assert_eq!(exchange(chain.socks(late_echo()), b"x"), b"x");
    wait_until("the pools are empty", || chain.nodes.iter().all(|node| node.connections() == 0));
    assert_eq!(exchange(chain.socks(late_echo()), b"y"), b"y");
}

#[test]
fn a_restarted_node_is_dialled_afresh() {
    let server = late_echo();
    let mut chain = Chain::new(1);
    let address = chain.nodes[0].address("leg").unwrap();
    assert_eq!(exchange(chain.socks(server), b"before"), b"before");
    drop(chain.nodes.remove(0));
    assert_eq!(socks(chain.address("socks"), "127.0.0.1", server.port()).0, 1, "the node is down");
    let (own, nodes) = (Mode::Tls.node("key"), Mode::Tls.listener("key"));
    let text = format!("{own}[listen.leg]\nkind = \"leg\"\naddress = \"{address}\"\n{nodes}");
    chain.nodes.push(node(&text));
    assert_eq!(exchange(chain.socks(server), b"after"), b"after");
}

#[test]
fn an_unknown_node_in_a_chain_is_named() {
    let first = leg_node(Mode::Tls, "first", None, "");
    let address = first.address("leg").unwrap();
    let (own, known) = (Mode::Tls.node("key"), Mode::Tls.peer("key"));
    let entry = node(&format!(
        "name = \"entry\"\n{own}[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n\
         [peer.first]\naddress = \"{address}\"\n{known}[[route]]\nto = [\"*\"]\nvia = [\"first\", \"nowhere\"]\n"
    ));
    let mut web = connect(entry.address("web").unwrap());
    web.write_all(b"CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    web.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("node first does not know the node 'nowhere'"), "{answer}");
}

#[test]
fn strangers_on_a_leg_listener_get_nothing() {
    let node = leg_node(Mode::Plain, "n", None, "[limits]\nhandshake = \"200ms\"\n");
    let address = node.address("leg").unwrap();
    for bytes in
        [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[1, 0, 0, 0, 0, 0, 0, 33], &[6, 0, 0, 0, 0, 0, 0, 1, 0], &[0xff; 64]]
    {
        let mut stream = connect(address);
        stream.write_all(bytes).unwrap();
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        assert!(all.is_empty(), "{all:?}");
    }
    wait_until("all are gone", || node.connections() == 0);
}

#[test]
fn a_leg_cut_in_the_middle_is_a_reset_for_both_hosts() {
    for (mode, cut_toward_exit) in [(Mode::Plain, true), (Mode::Plain, false), (Mode::Tls, true), (Mode::Tls, false)] {
        let exit = leg_node(mode, "n1", None, "");
        let (wire, address) = listener();
        let entry = entry_to(mode, address);
        let (host, target) = listener();
        let exit_address = exit.address("leg").unwrap();
        // The line between the two nodes, which ends cleanly on the side that is cut.
        let line = std::thread::spawn(move || {
            let (near, far) = (accept(&wire), connect(exit_address));
            for (mut from, mut to) in [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far.try_clone().unwrap(), near.try_clone().unwrap()),
            ] {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
            (near, far)
        });
        let mut client = socks(entry.address("socks").unwrap(), "127.0.0.1", target.port()).1;
        let mut server = accept(&host);
        client.write_all(&noise(100_000, 1)).unwrap();
        server.read_exact(&mut vec![0; 100_000]).unwrap();
        server.write_all(b"some").unwrap();
        client.read_exact(&mut [0; 4]).unwrap();
        let (near, far) = line.join().unwrap();
        // A FIN without END, to one of the nodes.
        if cut_toward_exit { far.shutdown(Shutdown::Write) } else { near.shutdown(Shutdown::Write) }.unwrap();
        assert!(!ends_cleanly(&mut client));
        assert!(!ends_cleanly(&mut server));
    }
}

fn entry_to(mode: Mode, peer: SocketAddr) -> Relay {
    node(&entry_text(mode, peer, "key", "key"))
}

/// A node with the key `own`, and a peer at `peer` that it expects to have the key `theirs`.
fn entry_text(mode: Mode, peer: SocketAddr, own: &str, theirs: &str) -> String {
    let (own, known) = (mode.node(own), mode.peer(theirs));
    format!(
        "name = \"entry\"\n{own}[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
         [peer.n1]\naddress = \"{peer}\"\n{known}[[route]]\nto = [\"*\"]\nvia = [\"n1\"]\n"
    )
}

/// A node with the key `own` that admits those with the key `theirs`.
fn exit_text(mode: Mode, own: &str, theirs: &str) -> String {
    let (own, nodes) = (mode.node(own), mode.listener(theirs));
    format!("{own}[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n{nodes}")
}

#[test]
fn a_new_key_ends_what_is_warm_on_either_side() {
    let server = late_echo();
    for (mode, entry_changes, own, theirs) in [
        (Mode::Plain, true, "key", "other-key"),
        (Mode::Plain, false, "key", "other-key"),
        (Mode::Tls, true, "key", "other-key"),
        (Mode::Tls, true, "other-key", "key"),
        (Mode::Tls, false, "key", "other-key"),
        (Mode::Tls, false, "other-key", "key"),
    ] {
        let mut exit = node(&exit_text(mode, "key", "key"));
        let address = exit.address("leg").unwrap();
        let mut entry = node(&entry_text(mode, address, "key", "key"));
        let stream = |entry: &Relay| socks(entry.address("socks").unwrap(), &server.ip().to_string(), server.port());
        // One stream runs on, one connection is warm.
        let running = stream(&entry).1;
        assert_eq!(exchange(stream(&entry).1, b"x"), b"x");
        wait_until("one is warm", || exit.connections() == 2 && exit.busy() == 1);
        if entry_changes {
            entry.reload(config(&entry_text(mode, address, own, theirs))).unwrap();
        } else {
            exit.reload(config(&exit_text(mode, own, theirs))).unwrap();
        }
        wait_until("the warm one is closed", || exit.connections() == 1);
        assert_eq!(exchange(running, b"runs on"), b"runs on");
        wait_until("the other one is not kept", || exit.connections() == 0);
        assert_eq!(stream(&entry).0, 1, "{mode:?}, {entry_changes}, {own}, {theirs}: the keys differ");
    }
}
