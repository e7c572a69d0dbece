//! Who is let in between nodes, what those hear who are not, and what happens to TLS on the way.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use crate::common::log::is_logged;
use crate::common::*;
use ekiden_keys::Identity;
use ekiden_relay::Relay;
use ekiden_relay_proto::leg::{FrameKind, encode_failed};
use ekiden_relay_proto::{Failure, FailureCode};

/// What all nodes of the process have logged.
/// A fresh key of a name that no other test has, so that its fingerprint is in no other test's log.
fn key(name: &str) {
    Identity::generate(&directory().join(format!("{name}.pem"))).unwrap();
}

fn exit(own: &str, listener: &str) -> Relay {
    node(&format!(
        "name = \"city\"\nkey_file = \"{own}.pem\"\n[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n{listener}"
    ))
}

fn entry(own: &str, address: SocketAddr, peer: &str) -> Relay {
    node(&format!(
        "name = \"island\"\nkey_file = \"{own}.pem\"\n[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n\
         [listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
         [peer.city]\naddress = \"{address}\"\n{peer}[[route]]\nto = [\"*\"]\nvia = [\"city\"]\n"
    ))
}

/// What a client hears who wants to go through `entry`.
fn answer(entry: &Relay) -> String {
    let mut web = connect(entry.address("web").unwrap());
    web.write_all(b"CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    web.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn who_does_not_have_the_right_key_is_refused_in_one_clear_line_on_each_side() {
    log::keep();
    for name in ["s-city", "s-island", "s-other"] {
        key(name);
    }
    let [city, island, other] = ["s-city", "s-island", "s-other"].map(fingerprint);
    let nodes = Mode::Tls.listener("s-island");
    // The other key where one of the two is pinned; then none.
    for (own, peer, listener, hears, city_says) in [
        (
            "s-island",
            Mode::Tls.peer("s-other"),
            &nodes,
            format!("it has presented the key {city}, but the fingerprint given for it is {other}"),
            None,
        ),
        ("s-island", String::new(), &nodes, format!("its fingerprint is not pinned; it has presented {city}"), None),
        ("s-other", Mode::Tls.peer("s-city"), &nodes, "it does not take this node's key".into(), Some(other)),
        ("s-island", Mode::Tls.peer("s-city"), &String::new(), "it does not take this node's key".into(), Some(island)),
    ] {
        let exit = exit("s-city", listener);
        let entry = entry(own, exit.address("leg").unwrap(), &peer);
        let answer = answer(&entry);
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert!(answer.contains(&hears), "{answer}");
        assert_eq!(answer.split("\r\n\r\n").nth(1).unwrap().trim().lines().count(), 1, "{answer}");
        wait_until("island has logged it", || is_logged(&format!("leg from node island to node city: {hears}")));
        if let Some(key) = city_says {
            let line = format!("was refused: it has presented the key {key}, which is none of this listener's nodes");
            wait_until("city has logged it", || is_logged(&line));
            assert!(is_logged("if [overlay] is set here, to the members file, or with `ekiden overlay admit`; else"));
        }
        wait_until("nothing is left", || exit.connections() == 0);
    }
    wait_until("city has heard it", || is_logged("refused this node: it does not take this node's key"));
}

#[test]
fn another_shared_key_is_refused() {
    let exit = exit("key", "plain_key_file = \"other-key\"\n");
    let entry = entry("key", exit.address("leg").unwrap(), "plain_key_file = \"key\"\n");
    let answer = answer(&entry);
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("does not have the same key"), "{answer}");
}

#[test]
fn plain_and_tls_tell_each_other_in_one_clear_line() {
    log::keep();
    key("m-island");
    let plain = exit("key", "plain_key_file = \"key\"\n");
    let to_plain = entry("m-island", plain.address("leg").unwrap(), &Mode::Tls.peer("key"));
    let heard = answer(&to_plain);
    assert!(heard.contains("node island to node city: it does not speak TLS"), "{heard}");
    wait_until("the plain side says so", || is_logged("was refused: the other side speaks TLS"));

    let tls = exit("key", &Mode::Tls.listener("key"));
    let to_tls = entry("m-island", tls.address("leg").unwrap(), "plain_key_file = \"key\"\n");
    let heard = answer(&to_tls);
    assert!(heard.contains("node island to node city: the other side speaks TLS"), "{heard}");
    wait_until("the TLS side says so", || is_logged("on [listen.leg] was refused: it does not speak TLS"));
}

#[test]
fn what_is_no_node_gets_no_further_than_the_handshake() {
    let node = leg_node(Mode::Tls, "n", None, "[limits]\nhandshake = \"200ms\"\n");
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[1, 0, 0, 0, 0, 0, 0, 33], &[0x16, 3, 1, 2, 0], &[0xff; 64]] {
        let mut stream = connect(node.address("leg").unwrap());
        stream.write_all(bytes).unwrap();
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        // At most an alert.
        assert!(all.len() <= 7 && all.first().is_none_or(|&first| first == 0x15), "{all:?}");
    }
    wait_until("all are gone", || node.connections() == 0);
}

#[test]
fn many_streams_share_few_warm_connections() {
    let chain = Chain::new(3);
    let server = late_echo();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let chain = &chain;
            scope.spawn(move || {
                for i in 0..25 {
                    let data = noise(1 + i * i * 300, thread * 100 + i as u64);
                    assert!(exchange(chain.socks(server), &data) == data, "thread {thread}, stream {i}");
                }
            });
        }
    });
    wait_until("all are over", || chain.entry.busy() == 0 && chain.nodes.iter().all(|node| node.busy() == 0));
    for node in &chain.nodes {
        assert!((1..=16).contains(&node.connections()), "{}", node.connections());
    }
}

#[test]
fn an_alert_of_somebody_who_has_seen_no_key_is_no_node_s_refusal() {
    log::keep();
    let node = leg_node(Mode::Tls, "n", None, "");
    let mut stranger = connect(node.address("leg").unwrap());
    // Fatal: certificate_unknown (RFC 8446 §6.2).
    stranger.write_all(&[0x15, 3, 3, 0, 2, 2, 46]).unwrap();
    let _ = stranger.read_to_end(&mut Vec::new());
    let from = stranger.local_addr().unwrap();
    wait_until("it is logged", || is_logged(&from.to_string()));
    assert!(is_logged(&format!("a connection from {from} on [listen.leg] was refused: TLS: ")));
    assert!(!is_logged(&format!("{from} refused this node")));
}

#[test]
fn what_a_peer_says_that_has_not_proven_its_key_is_quoted_in_part() {
    log::keep();
    let (stranger, address) = listener();
    let words = format!("node x: it \"works\" \u{202e}{}", "y".repeat(200));
    let answering = std::thread::spawn(move || {
        let mut dialler = accept(&stranger);
        assert_eq!(peer::frame(&mut dialler).0, FrameKind::Hello);
        let said = Failure::new(FailureCode::Authentication, words);
        dialler.write_all(&encode_failed(&said)).unwrap();
        let _ = dialler.read_to_end(&mut Vec::new());
    });
    let entry = entry("key", address, "plain_key_file = \"key\"\n");
    let answer = answer(&entry);
    let quoted = "has not proven its key, and says \"node x: it \\\"works\\\"  yyy";
    assert!(answer.contains(quoted) && !answer.contains(&"y".repeat(160)), "{answer}");
    wait_until("it is logged", || is_logged(&format!("leg from node island to node city: it {quoted}")));
    drop(entry);
    answering.join().unwrap();
}

/// A line between two nodes that does something to what goes toward the exit after so many bytes.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// The sender's connection ends.
    Fin,
    /// A bit is changed.
    Bit,
}

fn line(wire: &TcpListener, exit: SocketAddr, after: usize, harm: Harm) {
    let (mut near, mut far) = (accept(wire), connect(exit));
    let (mut back_from, mut back_to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
    let mut left = after;
    let mut piece = [0; 4096];
    while left > 0 {
        let n = near.read(&mut piece[..left.min(4096)]).unwrap();
        far.write_all(&piece[..n]).unwrap();
        left -= n;
    }
    match harm {
        Harm::Fin => {
            far.shutdown(Shutdown::Write).unwrap();
            // What still comes is lost.
            let _ = std::io::copy(&mut near, &mut std::io::sink());
        }
        Harm::Bit => {
            let mut byte = [0];
            near.read_exact(&mut byte).unwrap();
            far.write_all(&[byte[0] ^ 1]).unwrap();
            let _ = std::io::copy(&mut near, &mut far);
        }
    }
}

#[test]
fn tls_that_is_cut_short_or_changed_is_a_reset_for_both_hosts() {
    for (harm, after) in
        [(Harm::Fin, 100_001), (Harm::Fin, 200_000), (Harm::Fin, 333_333), (Harm::Bit, 100_001), (Harm::Bit, 250_000)]
    {
        let exit = leg_node(Mode::Tls, "n1", None, "");
        let exit_address = exit.address("leg").unwrap();
        let (wire, address) = listener();
        let middle = std::thread::spawn(move || line(&wire, exit_address, after, harm));
        let entry = entry("key", address, &Mode::Tls.peer("key"));
        let (host, target) = listener();
        let mut client: TcpStream = socks(entry.address("socks").unwrap(), "127.0.0.1", target.port()).1;
        let mut server = accept(&host);
        // The client says all it has to say, and its end, unless the reset is faster.
        let _ = client.write_all(&noise(400_000, 1)).and_then(|()| client.shutdown(Shutdown::Write));
        let mut got = Vec::new();
        let error = server.read_to_end(&mut got).expect_err("a clean end");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{harm:?} after {after}");
        assert!(got.len() < 400_000 && got == noise(400_000, 1)[..got.len()]);
        assert!(!ends_cleanly(&mut client), "{harm:?} after {after}");
        drop((entry, exit));
        middle.join().unwrap();
    }
}
