//! What happens between nodes: keys, the warm pool, nodes that go away.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};

use common::*;

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
    let address = chain.nodes[0].address("seg").unwrap();
    assert_eq!(exchange(chain.socks(server), b"before"), b"before");
    drop(chain.nodes.remove(0));
    assert_eq!(socks(chain.address("socks"), "127.0.0.1", server.port()).0, 1, "the node is down");
    let text = format!("key_file = \"key\"\n[listen.seg]\nkind = \"segment\"\naddress = \"{address}\"\n");
    chain.nodes.push(node(&text));
    assert_eq!(exchange(chain.socks(server), b"after"), b"after");
}

#[test]
fn a_node_with_another_key_is_refused_in_both_roles() {
    let stranger = node(
        "name = \"stranger\"\nkey_file = \"other-key\"\n[listen.seg]\nkind = \"segment\"\naddress = \"127.0.0.1:0\"\n",
    );
    let to_stranger = entry_to(stranger.address("seg").unwrap());
    let server = echo();
    let (code, _) = socks(to_stranger.address("socks").unwrap(), "127.0.0.1", server.port());
    assert_eq!(code, 1);
    let mut web = connect(to_stranger.address("web").unwrap());
    write!(web, "CONNECT {server} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    web.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("does not have the same key"), "{answer}");
}

#[test]
fn an_unknown_node_in_a_chain_is_named() {
    let first = segment_node("first", None, "");
    let address = first.address("seg").unwrap();
    let entry = node(&format!(
        "name = \"entry\"\nkey_file = \"key\"\n[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n\
         [peer.first]\naddress = \"{address}\"\n[[route]]\nto = [\"*\"]\nvia = [\"first\", \"nowhere\"]\n"
    ));
    let mut web = connect(entry.address("web").unwrap());
    web.write_all(b"CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    web.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("node first does not know the node 'nowhere'"), "{answer}");
}

#[test]
fn strangers_on_a_segment_listener_get_nothing() {
    let node = segment_node("n", None, "[limits]\nhandshake = \"200ms\"\n");
    let address = node.address("seg").unwrap();
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
fn a_segment_cut_in_the_middle_is_a_reset_for_both_hosts() {
    for cut_toward_exit in [true, false] {
        let exit = segment_node("n1", None, "");
        let (wire, address) = listener();
        let entry = entry_to(address);
        let (host, target) = listener();
        let exit_address = exit.address("seg").unwrap();
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

fn entry_to(peer: SocketAddr) -> ekiden_relay::Relay {
    node(&format!(
        "name = \"entry\"\nkey_file = \"key\"\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
         [listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n\
         [peer.n1]\naddress = \"{peer}\"\n[[route]]\nto = [\"*\"]\nvia = [\"n1\"]\n"
    ))
}

#[test]
fn a_new_key_ends_what_is_warm_on_either_side() {
    let server = late_echo();
    for entry_changes in [true, false] {
        let exit_text =
            |key| format!("key_file = \"{key}\"\n[listen.seg]\nkind = \"segment\"\naddress = \"127.0.0.1:0\"\n");
        let mut exit = node(&exit_text("key"));
        let address = exit.address("seg").unwrap();
        let entry_text = |key: &str| {
            format!(
                "key_file = \"{key}\"\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
                 [peer.n1]\naddress = \"{address}\"\n[[route]]\nto = [\"*\"]\nvia = [\"n1\"]\n"
            )
        };
        let mut entry = node(&entry_text("key"));
        let stream = |entry: &ekiden_relay::Relay| {
            socks(entry.address("socks").unwrap(), &server.ip().to_string(), server.port())
        };
        // One stream runs on, one connection is warm.
        let running = stream(&entry).1;
        assert_eq!(exchange(stream(&entry).1, b"x"), b"x");
        wait_until("one is warm", || exit.connections() == 2 && exit.busy() == 1);
        if entry_changes {
            entry.reload(config(&entry_text("other-key"))).unwrap();
        } else {
            exit.reload(config(&exit_text("other-key"))).unwrap();
        }
        wait_until("the warm one is closed", || exit.connections() == 1);
        assert_eq!(exchange(running, b"runs on"), b"runs on");
        wait_until("the other one is not kept", || exit.connections() == 0);
        assert_eq!(stream(&entry).0, 1, "the keys differ");
    }
}
