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

fn parse(text: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    Identity::generate(&folder.path().join("node.key")).unwrap();
    for (name, digit) in [("line.key", "1"), ("other-line.key", "2")] {
        let file = folder.path().join(name);
        write(&file, digit.repeat(64)).unwrap();
        set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    }
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
    assert_eq!((peer.connections, &peer.address), (1, &None));
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
        ("allowed =", "address = \"10.77.0.3\"\nallowed =", 8, "is not host:port"),
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
        ("[listen]", "[queue]\ntarget = \"0\"\n[listen]", 5, "target = 0ns is out of range"),
        ("node.key", "other.key", 1, "other.key"),
    ];
    for (old, new, line, reason) in cases {
        let text = plain();
        assert!(text.contains(old), "{old}");
        let message = parse(&text.replacen(old, new, 1)).expect_err(new);
        assert!(message.starts_with(&format!(":{line}: ")) && message.contains(reason), "{new}: {message}");
    }
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
