use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;

use ekiden_units::Bytes;

use super::*;

const OTHER: &str = "sha256:151a151a151a151a151a151a151a151a151a151a151a151a151a151a151a151a";
const THIRD: &str = "sha256:c17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17e";

fn plain() -> String {
    format!(
        "key_file = \"node.key\"\n[device]\naddresses = [\"10.77.0.1/24\"]\n[listen]\naddress = \"127.0.0.1:7100\"\n\
         [peer.island]\nfingerprint = \"{OTHER}\"\nallowed = [\"10.77.0.2/32\", \"fd77::/64\"]\n"
    )
}

/// A folder with the keys that the configurations name.
fn keys() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    Identity::generate(&folder.path().join("node.key")).unwrap();
    write(folder.path().join("open.password"), "secret\n").unwrap();
    for (name, digit) in [("line.key", "1"), ("other-line.key", "2"), ("proxy.password", "s")] {
        let file = folder.path().join(name);
        write(&file, digit.repeat(64)).unwrap();
        set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

fn parse(text: &str) -> Result<Config, String> {
    let folder = keys();
    Config::parse(text, &folder.path().join("t.toml")).map_err(|error| {
        let message = error.to_string();
        message.rsplit_once("t.toml").map_or(message.clone(), |(_, rest)| rest.to_owned())
    })
}

#[test]
fn what_is_not_said_has_its_default() {
    let config = parse(&plain()).unwrap();
    assert_eq!((&config.name[..], &config.device.name[..], config.device.mtu), ("ekiden", "ekiden0", 1500));
    assert_eq!(config.queue, QueueSettings { limit: Queue::Bytes(Bytes(10_000_000)), pull: Some(Pull::default()) });
    let peer = &config.peers["island"];
    assert_eq!((peer.classes.connections(), &peer.address), (1, &None));
    assert_eq!(config.allowed.peer("fd77::9".parse().unwrap()), Some(0));
}

#[test]
fn what_is_said_counts() {
    let text = format!("{}[queue]\ntarget = \"5ms\"\ninterval = \"100ms\"\nunsent = \"16KiB\"\n", plain());
    let pull = Pull { target: Time::ms(5), interval: Time::ms(100), unsent: Bytes::kib(16), paced: true };
    assert_eq!(parse(&text).unwrap().queue.pull, Some(pull));
}

#[test]
fn what_cannot_be_is_refused_with_its_line_and_a_reason() {
    let cases = [
        ("10.77.0.1/24", "10.77.0.1/33", 3, "'10.77.0.1/33' is not an address"),
        ("[\"10.77.0.1/24\"]", "[]", 2, "the device needs an address"),
        ("[listen]", "mtu = 1000\n[listen]", 4, "mtu = 1000 is out of range: 1280 to 65535"),
        ("[listen]", "name = \"a/b\"\n[listen]", 4, "cannot be the name of a device"),
        ("[listen]", "name = \"a23456789012345678\"\n[listen]", 4, "cannot be the name of a device"),
        ("127.0.0.1:7100", "localhost:7100", 5, "'localhost:7100' is not an address and port"),
        ("[listen]\naddress = \"127.0.0.1:7100\"\n", "", 4, "neither end can connect"),
        ("10.77.0.2/32", "10.77.0.2/24", 8, "10.77.0.2/24 is no network: 10.77.0.0/24 is the one around it"),
        ("10.77.0.2/32", "10.77.0.0/24", 8, "holds this node's own address 10.77.0.1"),
        ("\"fd77::/64\"", "\"10.77.0.2\"", 8, "10.77.0.2/32 overlaps 10.77.0.2/32, which peer 'island' has"),
        ("allowed =", "connections = 0\nallowed =", 8, "connections = 0 is out of range: 1 to 64"),
        ("allowed =", "address = \"10.77.0.2:7100\"\nallowed =", 8, "would go through the tunnel itself"),
        ("allowed =", "address = \"[::ffff:10.77.0.2]:7100\"\nallowed =", 8, "would go through the tunnel itself"),
        ("allowed =", "address = \"10.77.0.3\"\nallowed =", 8, "needs a port"),
        ("allowed =", "adress = \"10.77.0.3\"\nallowed =", 8, "unknown field `adress`"),
        (
            "[listen]",
            "[queue]\ndiscipline = \"drop_tail\"\ntarget = \"5ms\"\n[listen]",
            6,
            "are of discipline = \"fq_codel\"",
        ),
        ("[listen]", "[queue]\nunsent = \"0B\"\n[listen]", 5, "unsent = 0B is out of range: 1B to 1GiB"),
        (
            "[listen]",
            "[queue]\ndiscipline = \"drop_tail\"\nunsent = \"8KiB\"\n[listen]",
            6,
            "are of discipline = \"fq_codel\"",
        ),
        ("[listen]", "[tcp]\ncongestion = \"a b\"\n[listen]", 5, "'a b' cannot be a congestion control"),
        (
            "[listen]",
            "[tcp]\npacing = \"1kbit/s\"\n[listen]",
            5,
            "tcp.pacing = 1kbit/s is out of range: 8kbit/s to 16Gbit/s",
        ),
        (
            "[listen]",
            "[tcp]\nsend_buffer = \"1KiB\"\n[listen]",
            5,
            "tcp.send_buffer = 1KiB is out of range: 4KiB to 1GiB",
        ),
        ("[listen]", "[congestion.hstp]\na = 1\n[listen]", 4, "hstp"),
        ("[listen]", "[congestion.hstcp]\nlow_windo = 1\n[listen]", 5, "low_window"),
        ("[listen]", "[queue]\ntarget = \"0\"\n[listen]", 5, "target = 0s is out of range"),
        ("node.key", "other.key", 1, "other.key"),
        ("[listen]", "mtu = -1\n[listen]", 4, "mtu = -1 is out of range: 1280 to 65535"),
        ("allowed =", "connections = -1\nallowed =", 8, "connections = -1 is out of range: 1 to 64"),
        ("[\"10.77.0.2/32\", \"fd77::/64\"]", "[]", 8, "the peer needs its networks"),
        ("[listen]", "[queue]\ntarget = \"2s\"\n[listen]", 5, "target = 2s is longer than interval = 1s"),
        ("[listen]", "[queue]\ninterval = \"5ms\"\n[listen]", 5, "target = 20ms is longer than interval = 5ms"),
    ];
    for (old, new, line, reason) in cases {
        let text = plain();
        assert!(text.contains(old), "{old}");
        let message = parse(&text.replacen(old, new, 1)).expect_err(new);
        assert!(message.starts_with(&format!(":{line}: ")) && message.contains(reason), "{new}: {message}");
    }
}

#[test]
fn networks_that_no_peer_can_have_are_refused() {
    let cases = [
        ("0.0.0.0/0", "the default route, which a tunnel cannot take"),
        ("::/0", "the default route, which a tunnel cannot take"),
        ("127.0.0.0/8", "no peer can have 127.0.0.0/8: these are loopback addresses"),
        ("127.0.0.1", "loopback"),
        ("::1", "the loopback address"),
        ("224.0.0.0/4", "multicast"),
        ("239.1.0.0/16", "multicast"),
        ("ff02::/16", "multicast"),
        ("0.0.0.0", "name no host"),
        ("::", "names no host"),
        ("fe80::/64", "link-local"),
        ("::ffff:10.0.0.0/104", "IPv4 addresses in IPv6's form"),
    ];
    for (network, reason) in cases {
        let message = parse(&plain().replacen("10.77.0.2/32", network, 1)).expect_err(network);
        assert!(message.starts_with(":8: ") && message.contains(reason), "{network}: {message}");
    }
}

#[test]
fn addresses_that_a_device_cannot_have_are_refused() {
    let with = |addresses: &str| parse(&plain().replacen("\"10.77.0.1/24\"", addresses, 1));
    let cases = [
        ("\"10.78.0.1/24\", \"10.78.0.1/24\"", "the address 10.78.0.1 is there twice"),
        ("\"10.78.0.1/24\", \"10.78.0.1/16\"", "the address 10.78.0.1 is there twice"),
        ("\"10.78.0.0/24\"", "it is the network's own; take one in it, such as 10.78.0.1"),
        ("\"fd78::/64\"", "it is the network's own; take one in it, such as fd78::1"),
        ("\"10.78.0.1/0\"", "the network around it is everything"),
        ("\"224.0.0.1/24\"", "it is of multicast addresses"),
        ("\"ff02::5/64\"", "it is of multicast addresses"),
        ("\"127.0.0.2/8\"", "it is of loopback addresses"),
        ("\"0.0.0.0/32\"", "it is of addresses that name no host"),
        ("\"::1/128\"", "it is of the loopback address"),
    ];
    for (addresses, reason) in cases {
        let message = with(addresses).expect_err(addresses);
        assert!(message.starts_with(":3: ") && message.contains(reason), "{addresses}: {message}");
    }
    for addresses in
        ["\"10.78.0.0/31\"", "\"10.78.0.0\"", "\"fd78::/127\"", "\"fe80::1/64\"", "\"10.78.0.1/24\", \"10.78.0.2/24\""]
    {
        assert!(with(addresses).is_ok(), "{addresses}");
    }
}

#[test]
fn a_peer_is_not_reached_through_the_network_of_the_device() {
    let peer = |more: &str| parse(&plain().replacen("allowed =", &format!("{more}\nallowed ="), 1)).unwrap_err();
    let reason =
        "10.77.0.9 is in the network of the device's address 10.77.0.1/24: the connection to 'island' would go";
    let message = peer("address = \"10.77.0.9:7100\"");
    assert!(message.starts_with(":8: ") && message.contains(reason), "{message}");
    let message = peer("address = \"city.example:7100\"\nhttp_proxy = \"10.77.0.9:3128\"");
    assert!(message.starts_with(":9: ") && message.contains(reason), "{message}");
}

#[test]
fn what_a_file_lacks_is_named_as_the_file_has_it() {
    let text = plain();
    let lacks = |from: &str, to: &str| {
        let (head, rest) = text.split_once(from).unwrap();
        parse(&format!("{head}{}", &rest[rest.find(to).unwrap_or(rest.len())..])).unwrap_err()
    };
    assert!(lacks("[device]", "[listen]").contains("the file needs a table [device]"));
    assert!(lacks("[peer.island]", "nothing").contains("the file needs a table [peer.NAME]"));
}

#[test]
fn two_peers_share_neither_a_key_nor_an_address() {
    let second =
        |key: &str, network: &str| format!("{}[peer.b]\nfingerprint = \"{key}\"\nallowed = [\"{network}\"]\n", plain());
    assert!(parse(&second(THIRD, "10.78.0.0/16")).is_ok());
    assert!(parse(&second(OTHER, "10.78.0.0/16")).unwrap_err().contains("peer 'island' has the same key"));
    assert!(
        parse(&second(THIRD, "10.77.0.2/31")).unwrap_err().contains("overlaps 10.77.0.2/32, which peer 'island' has")
    );
}

#[test]
fn plain_connections_need_no_key_of_the_node_s_own() {
    let text = "name = \"city\"\n[device]\naddresses = [\"10.77.0.1/24\"]\n[listen]\naddress = \"127.0.0.1:7100\"\n\
                plain_key_file = \"line.key\"\n[peer.island]\nplain_key_file = \"line.key\"\nallowed = [\"10.77.0.2\"]\n";
    let config = parse(text).unwrap();
    assert!(config.identity.is_none() && matches!(config.peers["island"].security, Security::Plain(_)));
    let fingerprint = format!("fingerprint = \"{OTHER}\"\n");
    let cases = [
        (
            "[peer.island]\n",
            format!("[peer.island]\n{fingerprint}"),
            8,
            "either fingerprint, for TLS, or plain_key_file",
        ),
        (
            "[peer.island]\nplain_key_file = \"line.key\"\n",
            "[peer.island]\n".into(),
            7,
            "the peer needs its fingerprint",
        ),
        (
            "[peer.island]\nplain_key_file = \"line.key\"\n",
            format!("[peer.island]\n{fingerprint}"),
            7,
            "needs the node's own key",
        ),
        ("7100\"\nplain_key_file = \"line.key\"\n", "7100\"\n".into(), 4, "needs the node's own key"),
        ("peer.island", "peer.city".into(), 7, "the peer has this node's own name"),
        (
            "island]\nplain_key_file = \"line",
            "island]\nplain_key_file = \"other-line".into(),
            7,
            "another key than that in",
        ),
        ("line.key", "none.key".into(), 6, "none.key"),
        ("line.key", "node.key".into(), 6, "must hold 64 hexadecimal digits"),
    ];
    for (old, new, line, reason) in cases {
        let message = parse(&text.replacen(old, &new, 1)).expect_err(&new);
        assert!(message.starts_with(&format!(":{line}: ")) && message.contains(reason), "{new}: {message}");
    }
    let mixed = format!("key_file = \"node.key\"\n{text}");
    let tls = |at: &str| mixed.replacen(&format!("{at}\nplain_key_file = \"line.key\"\n"), &format!("{at}\n"), 1);
    assert!(parse(&tls("7100\"")).unwrap_err().contains("its plain_key_file is not in [listen]"));
    let message = parse(&tls("[peer.island]").replace("allowed", &format!("{fingerprint}allowed"))).unwrap_err();
    assert!(message.contains("takes no fingerprints"), "{message}");
}

#[test]
fn classes_have_connections_of_their_own() {
    let class = |more: &str| format!("{}connections = 2\n[[peer.island.class]]\nname = \"bulk\"\n{more}\n", plain());
    let config = parse(&class("protocol = \"tcp\"\nports = [5001, \"6000-6100\"]\nconnections = 3")).unwrap();
    let classes = &config.peers["island"].classes;
    assert_eq!((classes.connections(), classes.default), (5, 2));
    assert_eq!(classes.classes[0].ports, [5001..=5001, 6000..=6100]);
    let cases = [
        ("", 10, "a class needs a protocol or ports"),
        ("protocol = \"icmp\"", 12, "unknown variant `icmp`"),
        ("protocol = \"other\"\nports = [5]", 13, "only TCP and UDP have ports"),
        ("ports = [0]", 12, "ports: neither a port nor a range such as \"6000-6100\", of 1 to 65535"),
        ("ports = [70000]", 12, "ports: neither a port nor a range"),
        ("ports = [\"7-6\"]", 12, "ports: neither a port nor a range"),
        ("ports = [\"http\"]", 12, "ports: neither a port nor a range"),
        ("ports = [5]\nconnections = 0", 13, "connections = 0 is out of range: 1 to 64"),
        ("ports = [5]\nconnections = 63", 6, "the peer has 65 connections with those of its classes, and may have 64"),
        ("ports = [5]\n[[peer.island.class]]\nname = \"bulk\"\nports = [6]", 14, "two classes are called 'bulk'"),
    ];
    for (more, line, reason) in cases {
        let message = parse(&class(more)).expect_err(more);
        assert!(message.starts_with(&format!(":{line}: ")) && message.contains(reason), "{more}: {message}");
    }
}

#[test]
fn an_http_proxy_may_want_a_password() {
    let peer = |more: &str| plain().replace("allowed =", &format!("{more}\nallowed ="));
    let address = "address = \"city.example:7100\"\nhttp_proxy = \"proxy.example:3128\"";
    let proxy = |more: &str| parse(&peer(&format!("{address}\n{more}"))).unwrap().peers["island"].http_proxy.clone();
    let there = proxy("").unwrap();
    assert_eq!((there.address, there.login), (("proxy.example".into(), 3128), None));
    let login = "http_proxy_user = \"u\"\nhttp_proxy_password_file = \"proxy.password\"";
    let known = proxy(login).unwrap().login.unwrap();
    assert_eq!((known.user, known.password), ("u".into(), "s".repeat(64)));
    let cases = [
        ("http_proxy = \"proxy:1\"".to_owned(), 8, "the peer has no address that the HTTP proxy could connect to"),
        (login.to_owned(), 8, "the peer has no http_proxy that this would be for"),
        (format!("{address}\n{}", &login[..21]), 10, "go together"),
        (format!("{address}\n{}", login.replace("\"u\"", "\"a:b\"")), 10, "has no ':'"),
        (
            format!("{address}\n{}", login.replace("proxy.password", "open.password")),
            11,
            "can be read by others: chmod 600",
        ),
        (format!("{address}\n{}", login.replace("proxy.password", "no.password")), 11, "no.password: cannot be read"),
        (address.replace("proxy.example", "10.77.0.2"), 9, "would go through the tunnel itself"),
        (address.replace(":3128", ""), 9, "needs a port"),
    ];
    for (more, line, reason) in cases {
        let message = parse(&peer(&more)).expect_err(&more);
        assert!(message.starts_with(&format!(":{line}: ")) && message.contains(reason), "{more}: {message}");
    }
}

#[test]
fn what_is_shown_is_the_same_configuration() {
    let whole = format!(
        "{}address = \"city.example:7100\"\nhttp_proxy = \"proxy:3128\"\nhttp_proxy_user = \"u\"\n\
         http_proxy_password_file = \"proxy.password\"\n[[peer.island.class]]\nname = \"bulk\"\nprotocol = \"tcp\"\n\
         ports = [5001, \"6000-6100\"]\n[tcp]\ncongestion = \"reno\"\npacing = \"9Mbit/s\"\nsend_buffer = \"1MiB\"\n\
         [congestion.hstcp]\nlow_window = 40\n",
        plain()
    );
    let shared = plain().replace("[listen]", "[listen]\nplain_key_file = \"line.key\"");
    let shared = shared.replace(&format!("fingerprint = \"{OTHER}\""), "plain_key_file = \"line.key\"");
    let drop_tail = format!("{}[queue]\ndiscipline = \"drop_tail\"\n", plain());
    for text in [plain(), whole, shared, drop_tail] {
        let folder = keys();
        let file = folder.path().join("t.toml");
        let shown = Config::parse(&text, &file).unwrap().to_string();
        assert!(!shown.contains(&"s".repeat(64)), "{shown}");
        let again = Config::parse(&shown, &file).unwrap_or_else(|error| panic!("{error}\n{shown}"));
        assert_eq!(again.to_string(), shown);
    }
}

#[test]
fn the_guides_classes_are_ones() {
    let guide = include_str!("../../../../docs/guide/tunnel.md");
    let (_, rest) = guide.split_once("```toml classes\n").unwrap();
    let peer = rest.split_once("```").unwrap().0;
    let head = "key_file = \"node.key\"\n[device]\naddresses = [\"10.77.0.2/24\"]\n";
    let config = parse(&format!("{head}{peer}")).unwrap();
    assert_eq!(config.peers["city"].classes.connections(), 4);
}
