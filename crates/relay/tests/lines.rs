//! What the log says of strangers and of peers, and how often.

use crate::common::log::logged;
use crate::common::*;
use ekiden_relay_proto::leg::{FrameKind, Header, Opened};
use std::io::{Read, Write};

#[test]
fn a_dead_peer_is_in_the_log_and_not_once_for_each_stream() {
    log::keep();
    let dead = closed_port();
    for (listener, kind) in [("socks", "socks5"), ("web", "http")] {
        let name = format!("dead-{kind}");
        let entry = node(&format!(
            "name = \"e-{kind}\"\nkey_file = \"key.pem\"\n[listen.{listener}]\nkind = \"{kind}\"\naddress = \"127.0.0.1:0\"\n\
             [peer.{name}]\naddress = \"{dead}\"\n{}[[route]]\nto = [\"*\"]\nvia = [\"{name}\"]\n",
            Mode::Tls.peer("key")
        ));
        let proxy = entry.address(listener).unwrap();
        for _ in 0..20 {
            if kind == "socks5" {
                assert_ne!(socks(proxy, "192.0.2.1", 80).0, 0);
            } else {
                let mut stream = connect(proxy);
                stream.write_all(b"CONNECT 192.0.2.1:80 HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n").unwrap();
                assert!(read_head(&mut stream).starts_with("HTTP/1.1 5"));
            }
        }
        let part = format!("node e-{kind} cannot reach node {name}: {dead}: connection refused");
        // One about the node, and one about the client's stream.
        let is_of_client = |line: &String| line.contains(" to 192.0.2.1:80: ");
        let (of_clients, of_nodes): (Vec<_>, Vec<_>) = logged(&part).into_iter().partition(is_of_client);
        assert_eq!((of_clients.len(), of_nodes.len()), (1, 1));
        assert!(logged("the leg to node dead-").is_empty(), "no path is chosen here");
        // The end of the node says how many there were.
        drop(entry);
        let (of_clients, of_nodes): (Vec<_>, Vec<_>) = logged(&part).into_iter().partition(is_of_client);
        for lines in [of_clients, of_nodes] {
            assert!(lines[1].contains("(and 19 more within 10s)"), "{lines:?}");
        }
    }
}

#[test]
fn a_stream_that_failed_is_in_the_log_once_with_its_client_and_destination_unless_that_is_left_out() {
    log::keep();
    for (says, names) in [("", true), ("log_addresses = false\n", false)] {
        let dead = closed_port();
        let entry = node(&format!("{says}[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n"));
        let before = logged("a stream by socks failed: connection refused").len();
        for _ in 0..5 {
            assert_eq!(socks(entry.address("socks").unwrap(), "127.0.0.1", dead.port()).0, 5);
        }
        let of_it = logged(&format!("by socks to {dead}: "));
        assert_eq!(of_it.len(), usize::from(names), "{of_it:?}");
        assert!(of_it.iter().all(|line| line.starts_with("127.0.0.1:") && line.contains("refused")), "{of_it:?}");
        assert_eq!(logged(&dead.port().to_string()).len(), usize::from(names));
        let nameless = logged("a stream by socks failed: connection refused").len() - before;
        assert_eq!(nameless, usize::from(!names));
    }
}

#[test]
fn a_peer_that_is_well_again_is_said_to_be_once() {
    log::keep();
    let city = leg_node(Mode::Tls, "city", None, "");
    let text = |key| {
        format!(
            "name = \"e\"\nkey_file = \"key.pem\"\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
             [peer.mended]\naddress = \"{}\"\n{}[[route]]\nto = [\"*\"]\nvia = [\"mended\"]\n",
            city.address("leg").unwrap(),
            Mode::Tls.peer(key)
        )
    };
    let mut entry = node(&text("other-key"));
    let (proxy, target) = (entry.address("socks").unwrap(), echo());
    let asked = || socks(proxy, &target.ip().to_string(), target.port());
    let again = "node mended is reached again";
    assert_ne!(asked().0, 0);
    assert!(logged(again).is_empty());
    entry.reload(config(&text("key"))).unwrap();
    // Two at a time, so that each has a connection of its own.
    let both = [asked(), asked()];
    assert!(both.iter().all(|(code, _)| *code == 0));
    assert_eq!(logged(again).len(), 1);
}

#[test]
fn what_is_wrong_further_on_in_a_chain_is_in_the_log_of_the_first_node() {
    log::keep();
    let dead = closed_port();
    for mode in [Mode::Plain, Mode::Tls] {
        let middle = leg_node(mode, "middle", Some(("last", dead)), "");
        let entry = node(&format!(
            "name = \"first\"\n{}[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
             [peer.mid]\naddress = \"{}\"\n{}[[route]]\nto = [\"192.0.2.1\"]\nvia = [\"mid\", \"last\"]\n\
             [[route]]\nto = [\"192.0.2.2\"]\nvia = [\"mid\", \"nobody\"]\n",
            mode.node("key"),
            middle.address("leg").unwrap(),
            mode.peer("key")
        ));
        let proxy = entry.address("socks").unwrap();
        let part = "a stream over node mid failed behind it: ";
        let before = logged(part).len();
        for to in ["192.0.2.1", "192.0.2.1", "192.0.2.2"] {
            assert_ne!(socks(proxy, to, 80).0, 0);
        }
        let lines = &logged(part)[before..];
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(&format!("node middle cannot reach node last: {dead}")), "{lines:?}");
        drop(entry);
        let lines = &logged(part)[before..];
        assert!(lines[1].contains("does not know the node 'nobody' (and 2 more"), "the last reason is told: {lines:?}");
    }
}

#[test]
fn what_is_wrong_further_on_names_no_destination_where_that_is_left_out() {
    log::keep();
    let middle = leg_node(Mode::Plain, "hub", Some(("gone", closed_port())), "");
    let entry = node(&format!(
        "log_addresses = false\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n[peer.hub]\naddress = \"{}\"\n{}\
         [[route]]\nto = [\"*\"]\nvia = [\"hub\", \"gone\"]\n",
        middle.address("leg").unwrap(),
        Mode::Plain.peer("key")
    ));
    assert_ne!(socks(entry.address("socks").unwrap(), "192.0.2.1", 80).0, 0);
    assert_eq!(
        logged("a stream over node hub failed behind it"),
        ["a stream over node hub failed behind it: node unreachable"]
    );
}

#[test]
fn a_request_whose_response_breaks_off_at_a_node_is_in_the_log() {
    log::keep();
    for (response, name) in [("", "early"), ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "late")] {
        let (listener, address) = listener();
        let entry = node(&format!(
            "name = \"web\"\n[listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n[peer.{name}]\naddress = \"{address}\"\n\
             plain_key_file = \"key\"\n[[route]]\nto = [\"*\"]\nvia = [\"{name}\"]\n"
        ));
        let mut client = connect(entry.address("web").unwrap());
        client.write_all(b"GET http://192.0.2.1/ HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n").unwrap();
        let mut dying = peer::accept_node(&listener);
        assert_eq!(peer::frame(&mut dying).0, FrameKind::Open);
        dying.write_all(&Opened::at(None).encode()).unwrap();
        if !response.is_empty() {
            dying.write_all(&Header::frame(FrameKind::Data, response.as_bytes())).unwrap();
            assert!(read_head(&mut client).starts_with("HTTP/1.1 200"));
            body(&mut client, 4);
        } else {
            // The request is known to have been sent.
            assert_eq!(peer::frame(&mut dying).0, FrameKind::Data);
        }
        reset(dying);
        let line = format!("a stream broke off at node {name}, before it or behind it: 127.0.0.1:");
        wait_until("it is said", || logged(&line).len() == 1);
        assert!(logged(&line)[0].contains(" by http to 192.0.2.1:80: "), "{:?}", logged(&line));
    }
}

#[test]
fn a_login_that_is_missing_does_not_hide_a_mixup() {
    log::keep();
    let chain = Chain::new(0);
    let before = logged("speaks HTTP, not SOCKS5").len();
    for said in [&b"\x05\x01\x00"[..], b"GET http://192.0.2.1/ HTTP/1.1\r\n\r\n"] {
        let mut socks = connect(chain.address("locked"));
        socks.write_all(said).unwrap();
        let _ = socks.read_to_end(&mut Vec::new());
    }
    assert_eq!(logged("speaks HTTP, not SOCKS5").len(), before + 1);
}

#[test]
fn a_wrong_password_is_logged_in_the_same_form_wherever() {
    log::keep();
    let chain = Chain::new(0);
    let mut web = connect(chain.address("weblocked"));
    write!(web, "GET http://192.0.2.1/ HTTP/1.1\r\nHost: 192.0.2.1\r\nProxy-Authorization: Basic YWxpY2U6eA==\r\n\r\n")
        .unwrap();
    assert!(read_head(&mut web).starts_with("HTTP/1.1 407 "));
    let from = web.local_addr().unwrap();
    assert_eq!(logged(&format!("wrong user or password from {from} on [listen.weblocked]")).len(), 1);

    let chain = Chain::new(0);
    let mut socks = connect(chain.address("locked"));
    socks.write_all(b"\x05\x01\x02\x01\x05alice\x01x").unwrap();
    let mut answer = [0; 4];
    socks.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [5, 2, 1, 1]);
    let from = socks.local_addr().unwrap();
    assert_eq!(logged(&format!("wrong user or password from {from} on [listen.locked]")).len(), 1);
}

#[test]
fn nodes_that_are_refused_do_not_fill_the_log() {
    log::keep();
    for mode in [Mode::Plain, Mode::Tls] {
        let relay = leg_node(mode, "n1", None, "");
        let before = logged("on [listen.leg] was refused").len();
        for _ in 0..50 {
            let mut stream = connect(relay.address("leg").unwrap());
            let _ = stream.write_all(&[0x55; 200]);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let lines = logged("on [listen.leg] was refused").len() - before;
        assert!((1..=2).contains(&lines), "{mode:?}: {lines}");
    }
}

#[test]
fn what_an_exit_forbids_is_in_its_log() {
    log::keep();
    let private = "192.168.77.1";
    let entry = node(
        "name = \"forbids\"\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
         [listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n[exit]\nallow = []\n",
    );
    assert_ne!(socks(entry.address("socks").unwrap(), private, 81).0, 0);
    // The client is told first.
    wait_until("it is logged", || logged(&format!("to {private}:81")).len() == 1);
    for request in ["CONNECT 192.168.77.1:82 HTTP/1.1", "GET http://192.168.77.1:83/ HTTP/1.1"] {
        let mut stream = connect(entry.address("web").unwrap());
        write!(stream, "{request}\r\nHost: {private}\r\n\r\n").unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 403"));
    }
    // The first of each client is said at once, how many more there were at the end.
    drop(entry);
    assert_eq!(logged(&format!("to {private}:81")).len(), 1);
    assert!(!logged("(and 2 more").is_empty(), "{:?}", logged(private));
}

#[test]
fn a_stream_that_breaks_off_is_in_the_log_of_the_node_before_without_a_guess_at_who_broke_it() {
    log::keep();
    for (name, is_behind) in [("mortal", false), ("transient", true)] {
        let (listener, address) = listener();
        let middle = leg_node(Mode::Plain, "middle", Some((name, address)), "");
        let middle = middle.address("leg").map(|address| (middle, address)).unwrap();
        let (first, to, via) = match is_behind {
            true => ("middle", middle.1, format!("\"middle\", \"{name}\"")),
            false => (name, address, format!("\"{name}\"")),
        };
        let entry = node(&format!(
            "name = \"alone\"\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
             [peer.{first}]\naddress = \"{to}\"\nplain_key_file = \"key\"\n[[route]]\nto = [\"*\"]\nvia = [{via}]\n"
        ));
        let proxy = entry.address("socks").unwrap();
        let asking = std::thread::spawn(move || socks(proxy, "192.0.2.1", 80));
        let mut dying = peer::accept_node(&listener);
        assert_eq!(peer::frame(&mut dying).0, FrameKind::Open);
        dying.write_all(&Opened::at(None).encode()).unwrap();
        let (code, mut client) = asking.join().unwrap();
        assert_eq!(code, 0);
        reset(dying);
        assert!(!ends_cleanly(&mut client));
        let line = format!("a stream broke off at node {name}, before it or behind it: 127.0.0.1:");
        wait_until("it is said", || logged(&line).len() == 1);
        let asked = format!(" by {} to 192.0.2.1:80: receiving: ", if is_behind { "node alone" } else { "socks" });
        assert!(logged(&line)[0].contains(&asked), "{:?}", logged(&line));
    }
}

#[test]
fn a_node_that_is_full_says_so_seldom() {
    log::keep();
    let chain = Chain::with(0, "[limits]\nconnections = 2\n", "");
    let (begun, part) = (std::time::Instant::now(), "limits.connections is reached; new connections wait");
    let before = logged(part).len();
    let address = chain.address("socks");
    let clients = (0..8).map(|_| {
        std::thread::spawn(move || {
            for _ in 0..20 {
                let mut stream = connect(address);
                stream.write_all(&[5, 1, 0]).unwrap();
                stream.read_exact(&mut [0; 2]).unwrap();
            }
        })
    });
    clients.collect::<Vec<_>>().into_iter().for_each(|client| client.join().unwrap());
    drop(chain);
    let lines = &logged(part)[before..];
    let most = 2 + begun.elapsed().as_secs() as usize / 10;
    assert!((1..=most).contains(&lines.len()), "{} lines", lines.len());
    assert!(lines.last().unwrap().contains(" more within 10s)"), "{lines:?}");
}
