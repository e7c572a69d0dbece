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
