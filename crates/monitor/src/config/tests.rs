use ekiden_config::Source;

use super::*;

const FINGERPRINT: &str = "sha256:c17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17e";

fn parse(text: &str) -> Result<Config, String> {
    resolve::parse(Source { text, file: Path::new("/etc/m.toml") }).map_err(|error| error.to_string())
}

#[test]
fn what_is_left_out_has_a_default() {
    let config = parse("history = \"h.sqlite\"\n[target.a]\niperf3 = \"192.0.2.1\"\n").unwrap();
    assert_eq!(config.interval, Time::secs(1800));
    assert_eq!((config.offset, config.keep, &config.prometheus), (Offset::Random, None, &None));
    assert_eq!(config.history, Path::new("/etc/h.sqlite"));
    let [target] = &config.targets[..] else { panic!("{config:?}") };
    assert_eq!(target.server, Server::Iperf3("192.0.2.1".into()));
    assert_eq!((target.direction, target.streams, target.via.as_deref()), (Direction::Receive, 1, None));
    assert_eq!((target.bytes, target.duration), (Bytes(100_000_000), Time::secs(10)));
    assert_eq!(config.daily_bytes(), 4_800_000_000);
    assert_eq!(
        config.announcement(),
        "1 target every 30min, 48 times a day: at most 4.80 GB of payload a day; kept for ever in /etc/h.sqlite"
    );
}

#[test]
fn everything_can_be_said() {
    let text = format!(
        "interval = \"1h\"\noffset = \"5min\"\nhistory = \"/var/h\"\nkeep = \"720h\"\nprometheus = \"p.prom\"\nkey_file = \"k\"\n\
         [target.direct]\nserver = \"192.0.2.1:7100\"\nfingerprint = \"{FINGERPRINT}\"\ndirection = \"send\"\nbytes = \"20MB\"\n\
         duration = \"5s\"\nstreams = 4\n[target.overlay]\nserver = \"192.0.2.1:7100\"\nfingerprint = \"{FINGERPRINT}\"\n\
         via = \"127.0.0.1:1080\"\n"
    );
    let config = parse(&text).unwrap();
    assert_eq!((config.offset, config.keep), (Offset::Fixed(Time::secs(300)), Some(Time::secs(720 * 3600))));
    assert_eq!((config.history.to_str(), config.prometheus), (Some("/var/h"), Some("/etc/p.prom".into())));
    assert_eq!(config.targets[0].direction, Direction::Send);
    assert_eq!(config.targets[1].via.as_deref(), Some("127.0.0.1:1080"));
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let base = "history = \"h\"\n[target.a]\niperf3 = \"x\"\n";
    for (text, said) in [
        ("", "/etc/m.toml:1: missing field `history`"),
        ("history = \"h\"\n", "/etc/m.toml: no target is named"),
        ("history = \"\"\n", "/etc/m.toml:1: history names no file"),
        ("histroy = \"h\"\n", "/etc/m.toml:1: unknown field `histroy`"),
        (&format!("{base}durations = 1"), "/etc/m.toml:4: unknown field `durations` in target.a"),
        (&format!("interval = \"1s\"\n{base}"), "/etc/m.toml:1: interval = 1s is out of range: 10s to 168h"),
        (&format!("interval = \"10s\"\n{base}duration=\"11s\""), "/etc/m.toml:1: the targets take up to 11s"),
        (&format!("offset = \"30min\"\n{base}"), "/etc/m.toml:1: offset = 30min must be less than"),
        (&format!("offset = \"soon\"\n{base}"), "/etc/m.toml:1: offset: \"soon\" is neither"),
        (&format!("keep = \"1h\"\n{base}"), "/etc/m.toml:1: keep = 1h is out of range"),
        (&format!("prometheus = \"h\"\n{base}"), "/etc/m.toml:1: prometheus and history name the same"),
        ("history = \"h\"\n[target.\"a b\"]\niperf3 = \"x\"", "/etc/m.toml:2: \"a b\" cannot be the name"),
        ("history = \"h\"\n[target.a]\n", "/etc/m.toml:2: [target.a] needs server"),
        (&format!("{base}server = \"x:1\""), "/etc/m.toml:3: a target has either"),
        (&format!("{base}fingerprint = \"x\""), "/etc/m.toml:4: fingerprint: an iperf3 server has no key"),
        (&format!("{base}via = \"127.0.0.1\""), "/etc/m.toml:4: via: '127.0.0.1' needs a port"),
        (&format!("{base}bytes = \"1B\""), "/etc/m.toml:4: bytes = 1 B is out of range: 1.00 kB to 1.00 TB"),
        (&format!("{base}streams = 0"), "/etc/m.toml:4: streams = 0 is out of range: 1 to 128"),
        (&format!("{base}direction = \"up\""), "/etc/m.toml:4: target.a.direction: unknown variant"),
        ("history = \"h\"\n[target.a]\nserver = \"x:1\"", "/etc/m.toml:2: [target.a] needs fingerprint"),
        (
            &format!("history = \"h\"\n[target.a]\nserver = \"x:1\"\nfingerprint = \"{FINGERPRINT}\""),
            "/etc/m.toml:2: [target.a] needs a key of ours",
        ),
        (
            "history = \"h\"\nkey_file = \"k\"\n[target.a]\nserver = \"x:1\"\nfingerprint = \"sha256:1\"",
            "/etc/m.toml:5: fingerprint: ",
        ),
        ("history = \"h\"\n[target.a]\niperf3 = \"x:0\"", "/etc/m.toml:3: iperf3: 'x:0': the port must be"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(said) && !error.contains('\n'), "{text}\n{error}");
    }
}
