//! Nodes of an overlay on loopback: which path a stream takes, and what happens when that path fails.

use crate::common::overlay::{Overlay, here};
use crate::common::*;
use ekiden_keys::Identity;
use ekiden_relay::{Config, OverlayStatus, Relay, ShareStatus, socket_name};
use ekiden_service::status_socket;

/// What clients of each kind get over the overlay, with nothing lost of what they say first.
fn clients_are_served(overlay: &Overlay) {
    use std::io::{Read, Write};
    let origin = server(|mut stream| {
        let head = read_head(&mut stream);
        let length = head.lines().next().unwrap().len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
            length,
            "x".repeat(length)
        )
        .unwrap();
    });
    let entry = overlay.nodes[0].as_ref().unwrap();
    for method in ["GET", "POST"] {
        let mut web = connect(entry.address("web").unwrap());
        write!(
            web,
            "{method} http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        web.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("xxx"), "{method}: {answer}");
    }
    let speaker = server(|mut stream| {
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        stream.write_all(&said).unwrap();
    });
    assert_eq!(exchange(overlay.stream(speaker).unwrap(), b"said"), b"said");
}

#[test]
fn a_stream_leaves_the_overlay_at_the_node_near_its_destination() {
    let overlay = Overlay::new(3, here, "class = \"bulk\"");
    let echo = echo();
    let data = noise(300_000, 1);
    assert!(exchange(overlay.stream(echo).unwrap(), &data) == data);
    wait_until("the streams are over", || overlay.nodes.iter().flatten().all(|node| node.busy() == 0));
    assert!(overlay.nodes[0].as_ref().unwrap().idle(&overlay.name(2)) > 0, "c was dialled");
    let mut web = connect(overlay.nodes[0].as_ref().unwrap().address("web").unwrap());
    use std::io::Write;
    write!(web, "CONNECT {echo} HTTP/1.1\r\nHost: {echo}\r\n\r\n").unwrap();
    assert!(read_head(&mut web).starts_with("HTTP/1.1 200 "));
    // It is answered before it runs.
    wait_until("it runs", || !overlay.status(0).shares.is_empty());
    let shares = overlay.status(0).shares;
    assert_eq!(shares.len(), 1, "{shares:?}");
    let (peer, class) = (overlay.name(2), "bulk".to_owned());
    assert_eq!(shares[0], ShareStatus { peer, class, streams: 1, held_bit_s: None });
    assert!(exchange(web, &data) == data);
    clients_are_served(&overlay);
    // Questions show how far the nodes are.
    wait_until("the legs are known", || {
        let status = overlay.status(0);
        let is_known = |to: &str| {
            status.legs.iter().any(|leg| leg.from == overlay.name(0) && leg.to == format!("{}{to}", overlay.prefix))
        };
        is_known("b") && is_known("c") && status.nodes.len() == 3
    });
    clients_are_served(&overlay);
}

#[test]
fn a_stream_takes_the_next_path_before_the_client_is_told_of_a_failure() {
    let nowhere = closed_port();
    let overlay = Overlay::new(3, |at, to| ((at, to) == (0, 2)).then_some(nowhere), "most_relays = 1");
    let (echo, data) = (echo(), noise(100_000, 2));
    // At first nothing is known, and node a cannot reach node c. That streams want to go there makes it ask.
    wait_until("node a knows that b reaches c", || match overlay.stream(echo) {
        Some(stream) => exchange(stream, &data) == data,
        None => false,
    });
    clients_are_served(&overlay);
    for _ in 0..20 {
        assert!(exchange(overlay.stream(echo).expect("a path"), &data) == data);
    }
    wait_until("the path is in use", || overlay.stream(echo).is_some() && overlay.path() == ["b", "c"]);
}

#[test]
fn a_node_that_must_be_passed_is_passed_or_there_is_no_stream() {
    let mut overlay = Overlay::new(4, here, "through = [\"@b\"]");
    let (echo, data) = (echo(), noise(100_000, 6));
    // At first nothing is known of any leg.
    for _ in 0..20 {
        assert!(exchange(overlay.stream(echo).expect("a path"), &data) == data);
    }
    clients_are_served(&overlay);
    wait_until("a path is in use", || overlay.stream(echo).is_some() && !overlay.path().is_empty());
    let over_b = |overlay: &Overlay| {
        let status = overlay.status(0);
        let paths = status.exits.iter().flat_map(|place| &place.candidates).map(|of| &of.path);
        paths.chain(status.exits.iter().map(|place| &place.path)).all(|path| path.contains(&overlay.name(1)))
    };
    assert!(over_b(&overlay));
    drop(overlay.nodes[1].take());
    for _ in 0..5 {
        assert!(overlay.stream(echo).is_none(), "a stream without b");
    }
    overlay.nodes[1] = Some(overlay.start(1, ""));
    wait_until("b is used again", || overlay.stream(echo).is_some_and(|stream| exchange(stream, &data) == data));
    assert!(over_b(&overlay));
}

#[test]
fn a_node_that_must_be_passed_and_cannot_be_is_refused() {
    let refused = |route: &str| {
        let overlay = Overlay::new(3, here, "");
        let text = overlay.text(0, route);
        let error = Config::parse(&text, &overlay.folder.join("node.toml")).unwrap_err().to_string();
        assert!(!error.contains('\n') && error.contains("node.toml:"), "{error}");
        error
    };
    assert!(refused("through = [\"nobody\"]").contains("'nobody' is no node of"));
    assert!(refused("through = [\"@a\"]").contains("is this node itself"));
    assert!(refused("exit = \"@b\"\nthrough = [\"@b\"]").contains("is the exit"));
    assert!(refused("through = [\"@b\", \"@b\"]").contains("is there twice"));
    assert!(refused("relays = [\"@c\"]\nthrough = [\"@b\"]").contains("is not in relays"));
    assert!(
        refused("most_relays = 1\nthrough = [\"@b\", \"@c\"]").contains("nodes in through: 2, and most_relays is 1")
    );
    assert!(refused("most_relays = 0\nthrough = [\"@b\"]").contains("nodes in through: 1, and most_relays is 0"));
    // Only c is in a region.
    let overlay = Overlay::new(3, here, "");
    let members = overlay.members(|_| None).replacen("near =", "region = \"eu\"\nnear =", 1);
    std::fs::write(overlay.folder.join("0.members"), members).unwrap();
    let text = overlay.text(0, "regions = [\"eu\"]\nthrough = [\"@b\"]");
    let error = Config::parse(&text, &overlay.folder.join("node.toml")).unwrap_err().to_string();
    assert!(error.contains("is in none of the route's regions"), "{error}");
    let name = overlay.name(1);
    let members =
        overlay.members(|_| None).replace(&format!("[node.{name}]\n"), &format!("[node.{name}]\nrelays = false\n"));
    std::fs::write(overlay.folder.join("0.members"), members).unwrap();
    let text = overlay.text(0, "through = [\"@b\"]");
    let error = Config::parse(&text, &overlay.folder.join("node.toml")).unwrap_err().to_string();
    assert!(error.contains("does not relay"), "{error}");
}

#[test]
fn a_node_that_is_there_and_says_nothing_is_left() {
    // Its host accepts connections, and its process does not.
    let (_silent, address) = listener();
    let overlay = Overlay::new(3, |at, to| ((at, to) == (0, 2)).then_some(address), "most_relays = 1");
    let (echo, data) = (echo(), noise(100_000, 5));
    wait_until("a stream goes over b", || match overlay.stream(echo) {
        Some(stream) => exchange(stream, &data) == data,
        None => false,
    });
}

#[test]
fn a_node_that_says_nothing_to_a_relay_is_a_node_that_cannot_be_reached() {
    use std::io::Write;
    // b sees d only where a process accepts nothing. Whoever wants to go to d must pass b.
    let (_silent, address) = listener();
    let seen = |at, to| ((at, to) == (1, 3)).then_some(address);
    let overlay = Overlay::new(4, seen, "through = [\"@b\"]");
    let echo = echo();
    // The first stream may begin before anything is known of other paths.
    let mut client = connect(overlay.nodes[0].as_ref().unwrap().address("web").unwrap());
    write!(client, "CONNECT {echo} HTTP/1.1\r\nHost: {echo}\r\n\r\n").unwrap();
    let head = read_head(&mut client);
    assert!(head.contains(" 200 ") || head.contains(" 503 "), "it is for the next path to be tried: {head}");
    let data = noise(100_000, 6);
    wait_until("streams go over b and c", || {
        let arrived = overlay.stream(echo).is_some_and(|stream| exchange(stream, &data) == data);
        arrived && overlay.path() == ["b", "c", "d"]
    });
}

#[test]
fn a_node_that_is_killed_is_left_and_comes_back() {
    let mut overlay = Overlay::new(4, here, "most_relays = 1");
    let (echo, data) = (echo(), noise(100_000, 3));
    assert!(exchange(overlay.stream(echo).unwrap(), &data) == data);
    drop(overlay.nodes[3].take());
    assert!(overlay.stream(echo).is_none(), "the only node near the destination is gone");
    overlay.nodes[3] = Some(overlay.start(3, ""));
    wait_until("it is used again", || overlay.stream(echo).is_some_and(|stream| exchange(stream, &data) == data));
}

#[test]
fn the_next_node_near_a_destination_stands_in_for_one_that_has_died() {
    let overlay = Overlay::new(4, here, "most_relays = 1");
    // c is near the destination as well, but less so; a's members say so from the beginning.
    let name = overlay.name(2);
    let members =
        overlay.members(|_| None).replace(&format!("[node.{name}]\n"), &format!("[node.{name}]\nnear = [\"*\"]\n"));
    std::fs::write(overlay.folder.join("0.members"), members).unwrap();
    let mut overlay = overlay;
    drop(overlay.nodes[0].take());
    overlay.nodes[0] = Some(overlay.start(0, "most_relays = 1"));
    let (echo, data) = (echo(), noise(100_000, 3));
    assert!(exchange(overlay.stream(echo).expect("d"), &data) == data);
    assert_eq!(overlay.status(0).exits[0].exit, overlay.name(3));
    drop(overlay.nodes[3].take());
    for _ in 0..5 {
        assert!(exchange(overlay.stream(echo).expect("c stands in"), &data) == data);
    }
    assert!(overlay.status(0).exits.iter().any(|place| place.exit == overlay.name(2)));
}

#[test]
fn a_record_that_cannot_be_changes_nothing() {
    use crate::common::peer::{accept_node, frame};
    use ekiden_relay_proto::leg::{FrameKind, Header, decode_ask};
    use std::io::Write;
    let (listener, address) = listener();
    // A plain peer that is the test: the members file gives it a name and regions, the peer entry its address.
    let overlay = Overlay::new(2, here, "");
    let folder = &overlay.folder;
    let liar = Identity::generate(&folder.join("liar.pem")).unwrap().fingerprint();
    let name = format!("{}liar", overlay.prefix);
    let members = format!(
        "{}[node.{name}]\naddress = \"{address}\"\nfingerprint = \"{liar}\"\nnear = [\"192.0.2.0/24\"]\n",
        overlay.members(|_| None)
    );
    std::fs::write(folder.join("entry.members"), members).unwrap();
    std::fs::copy(directory().join("key"), folder.join("key")).unwrap();
    let entry = format!("{}entry", overlay.prefix);
    let text = format!(
        "name = \"{entry}\"\nkey_file = \"../key.pem\"\n[listen.fwd]\nkind = \"forward\"\naddress = \"127.0.0.1:0\"\nto = \"192.0.2.1:1\"\n\
         [peer.{name}]\naddress = \"{address}\"\nplain_key_file = \"key\"\n[[route]]\nto = [\"*\"]\nvia = \"auto\"\n\
         [overlay]\nmembers_file = \"entry.members\"\n"
    );
    let relay = Relay::start(Config::parse(&text, &folder.join("entry.toml")).unwrap()).unwrap();
    let _client = connect(relay.address("fwd").unwrap());
    let leg = |bits: &str| {
        format!(
            "{{\"told_format\":1,\"node\":\"{name}\",\"load\":0,\"legs\":{{\"{entry}\":{{\"rtt_us\":1000,\"rate_bit_s\":{bits},\"loss\":0,\"age_s\":0}}}}}}"
        )
    };
    let mut answers =
        [leg("-5"), leg("1e99"), "{\"told_format\":9}".into(), "[".repeat(60_000), leg("7000000")].into_iter();
    let mut rest = answers.len();
    // Streams and questions come on connections of their own, or one after another.
    while rest > 0 {
        let mut stream = accept_node(&listener);
        loop {
            let (kind, body) = frame(&mut stream);
            match kind {
                FrameKind::Ask => {
                    assert!(decode_ask(&body).unwrap().contains(&name));
                    stream.write_all(&Header::frame(FrameKind::Told, answers.next().unwrap().as_bytes())).unwrap();
                    rest -= 1;
                    if rest == 0 {
                        break;
                    }
                }
                FrameKind::Open => {
                    std::mem::forget(stream);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let rate = || {
        let status: OverlayStatus = serde_json::from_slice(&status_socket::ask(&socket_name(&entry)).unwrap()).unwrap();
        status.legs.iter().find(|leg| leg.from == name && leg.to == entry).and_then(|leg| leg.rate_bit_s)
    };
    wait_until("the one that can be is taken", || rate() == Some(7_000_000));
}

#[test]
fn what_an_overlay_cannot_be_is_refused_in_a_line() {
    let overlay = Overlay::new(2, here, "");
    let refused = |members: &str, route: &str| {
        std::fs::write(overlay.folder.join("0.members"), members).unwrap();
        let error = Config::parse(&overlay.text(0, route), &overlay.folder.join("node.toml")).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    let good = overlay.members(|_| None);
    let (own, other) = (&overlay.prints[0], &overlay.prints[1]);
    let second = overlay.name(1);
    let swapped = good.replacen(own.as_str(), &fingerprint("other-key").to_string(), 1);
    assert!(refused(&swapped, "").contains("the key here is not its own"), "{}", refused(&swapped, ""));
    let twice = format!("{good}[node.again]\naddress = \"192.0.2.1:1\"\nfingerprint = \"{other}\"\n");
    assert!(refused(&twice, "").contains(&format!("'again' has the same key as '{second}'")));
    assert!(refused(&format!("{good}[node.{second}]\n"), "").contains("duplicate"));
    assert!(refused(&format!("{good}[node.x]\naddress = \"192.0.2.1:1\"\n"), "").contains("fingerprint"));
    assert!(refused(&format!("{good}[node.x]\naddres = \"192.0.2.1:1\"\n"), "").contains("address"));
    assert!(refused(&good.replace("127.0.0.0/8", "127.0.0.0/99"), "").contains("the prefix of an IPv4 network"));
    assert!(refused(&good.replacen("near =", "price = -1\nnear =", 1), "").contains("price"));
    for (key, value) in [
        ("near", "[\"10.0.0.1/8\"]"),
        ("price", "1e10"),
        ("price", "nan"),
        ("region", "\"\""),
        ("region", "\"a\\nb\""),
        ("at", "\"91,0\""),
        ("address", "\"nowhere\""),
        ("address", "\"0.0.0.0:7000\""),
        ("fingerprint", "\"sha256:00\""),
    ] {
        let all = ["address = \"192.0.2.1:1\"".to_owned(), format!("fingerprint = \"{other}\"")];
        let others: Vec<_> = all.into_iter().filter(|line| !line.starts_with(key)).collect();
        let text = format!("[node.x]\n{}\n{key} = {value}\n", others.join("\n"));
        let (line, said) = (text.lines().count(), refused(&text, ""));
        assert!(said.contains(&format!("0.members:{line}: node.x.{key}: ")), "{said}");
    }
    assert!(refused(&good, "relays = [\"nobody\"]").contains("'nobody' is no node of"));
    assert!(refused(&good, "regions = [\"moon\"]").contains("no node of the overlay is in the region 'moon'"));
    assert!(refused(&good, "most_relays = 3").contains("0 to 2"));
    assert!(refused(&good, "class = \"fast\"").contains("interactive"));
    assert!(refused("", "").contains("there is no node in it: each begins with [node.NAME]"));
    let elsewhere =
        good.replacen("near =", "region = \"eu\"\nnear =", 1).replacen("address", "region = \"asia\"\naddress", 1);
    let route = format!("regions = [\"asia\"]\nexit = \"{second}\"");
    assert!(refused(&elsewhere, &route).contains("no path is left"), "{}", refused(&elsewhere, &route));
    std::fs::remove_file(overlay.folder.join("0.members")).unwrap();
    let error = Config::parse(&overlay.text(0, ""), &overlay.folder.join("node.toml")).unwrap_err().to_string();
    assert!(
        error.contains("node.toml:") && error.contains("members_file: ") && error.contains("0.members: "),
        "{error}"
    );
}

#[test]
fn questions_and_streams_take_turns_on_connections() {
    let overlay = Overlay::new(3, here, "most_relays = 1");
    let (echo, data) = (echo(), noise(100_000, 4));
    let asked = |status: OverlayStatus| {
        status.nodes.iter().filter(|node| node.heard_s.is_some_and(|seconds| seconds < 3.0)).count()
    };
    for _ in 0..6 {
        assert!(exchange(overlay.stream(echo).expect("a path"), &data) == data);
        wait_until("c was asked", || asked(overlay.status(0)) > 0);
        std::thread::sleep(std::time::Duration::from_millis(1_100));
    }
    let stream = overlay.stream(echo).expect("a path");
    reset(stream);
    assert!(exchange(overlay.stream(echo).expect("a path"), &data) == data);
}
