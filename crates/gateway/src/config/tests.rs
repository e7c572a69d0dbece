use std::path::Path;

use ekiden_config::Source;
use ekiden_window_balance::Policy;

use super::{Config, resolve};

const PLAIN: &str = "device = \"wan0\"\n[group.a]\nsources = [\"10.1.0.0/16\"]\n";

fn parse(text: &str) -> Result<Config, String> {
    resolve::parse(Source { text, file: Path::new("gateway.toml") }).map_err(|error| error.to_string())
}

#[test]
fn defaults_are_those_of_the_parts() {
    let config = parse(PLAIN).unwrap();
    assert_eq!((config.ipv4_streams, config.ipv6_streams, config.groups.len()), (10_000, 10_000, 1));
    let group = &config.groups[0].settings;
    assert_eq!(group.balance, ekiden_window_balance::BalanceSettings::default());
    assert_eq!((group.source_ports.clone(), group.destinations.len()), (0..=u16::MAX, 2));
}

#[test]
fn every_key_is_read() {
    let text = "device = \"wan0\"\nipv4_streams = 5\nipv6_streams = 6\nidle = \"2min\"\n[group.a]\nsources = [\"10.1.2.3\", \"2001:db8::/32\"]\n\
                destinations = [\"192.0.2.0/24\", \"::/0\"]\nsource_ports = \"5000-6000\"\ndestination_ports = 20\npolicy = \"paper\"\n\
                repeats = 3\npart = \"50%\"\nobserves = \"sent\"\nhold = \"5s\"\nassumed_scale = 7\n";
    let config = parse(text).unwrap();
    let group = &config.groups[0].settings;
    assert_eq!((config.ipv4_streams, config.ipv6_streams, config.idle().open.as_secs()), (5, 6, 120));
    assert_eq!(group.sources[0].to_string(), "10.1.2.3/32");
    assert_eq!((group.source_ports.clone(), group.destination_ports.clone()), (5000..=6000, 20..=20));
    let balance = &group.balance;
    assert_eq!((balance.policy, balance.repeats, balance.part, balance.hold.as_secs()), (Policy::Paper, 3, 0.5, 5));
    assert_eq!(group.assumed_scale, Some(7));
}

#[test]
fn what_is_shown_reads_as_the_same() {
    let more = "[group.b]\nsources = [\"10.2.0.0/16\"]\ndestination_ports = 20\npolicy = \"paper\"\npart = \"12.5%\"\nassumed_scale = 3\n";
    for text in [PLAIN.to_owned(), format!("{PLAIN}{more}")] {
        let config = parse(&text).unwrap();
        assert_eq!(parse(&config.to_string()).unwrap(), config, "{config}");
    }
}

#[test]
fn what_cannot_be_used_is_told_with_its_line() {
    let group = |line: &str| format!("{PLAIN}{line}\n");
    let second = |line: &str| format!("{PLAIN}[group.b]\n{line}\n");
    let cases = [
        ("device = \"wan0\"\n".to_owned(), "gateway.toml: no group is named"),
        (
            PLAIN.replace("wan0", "a name that is too long"),
            "gateway.toml:1: \"a name that is too long\" cannot be the name",
        ),
        (PLAIN.replace("wan0", "wan0\\n"), "gateway.toml:1: \"wan0\\n\" cannot be the name of a network device"),
        (PLAIN.replace("[group.a]", "[group]"), "gateway.toml:3: the keys of a group stand in one table with its name"),
        (PLAIN.replace("[group.a]", "nothing = 1\n[group]"), "gateway.toml:4: the keys of a group stand in one table"),
        (PLAIN.replace("device", "devices"), "gateway.toml:1: unknown field `devices`"),
        (
            PLAIN.replace("10.1.0.0/16", "10.1.0.0/33"),
            "gateway.toml:3: sources: '10.1.0.0/33': the prefix of an IPv4 network has 0 to 32 bits",
        ),
        (
            PLAIN.replace("10.1.0.0/16", "sender.example"),
            "gateway.toml:3: sources: \"sender.example\" is neither an address nor a network, such as 10.1.0.5 or 10.1.0.0/16; names are \
             not resolved",
        ),
        (PLAIN.replace("\"10.1.0.0/16\"", ""), "gateway.toml:3: sources is empty"),
        (
            PLAIN.replace("10.1.0.0", "10.1.2.3"),
            "gateway.toml:3: sources: 10.1.2.3/16 is no network: 10.1.0.0/16 is the one",
        ),
        (
            PLAIN.replace("10.1.0.0/16", "::ffff:10.1.2.0/120"),
            "gateway.toml:3: sources: no packet has an address of ::ffff:10.1.2.0/120: write 10.1.2.0/24",
        ),
        (PLAIN.replace("10.1.0.0/16", "::ffff:10.1.2.3"), "gateway.toml:3: sources: no packet has an address of"),
        (
            PLAIN.replace("group.a", "group.\"a\\u001b[31m\""),
            "gateway.toml:2: \"a\\u{1b}[31m\" cannot be the name of a group",
        ),
        (PLAIN.replace("group.a", "group.\"\""), "gateway.toml:2: \"\" cannot be the name of a group"),
        (format!("ipv4_streams = 0\n{PLAIN}"), "gateway.toml:1: ipv4_streams = 0 is out of range: 1 to 10000000"),
        (format!("idle = \"1s\"\n{PLAIN}"), "gateway.toml:1: idle = 1s is out of range"),
        (
            format!("restart_within = \"2h\"\n{PLAIN}"),
            "gateway.toml:1: restart_within = 7200s is out of range: 0s to 3600s",
        ),
        (group("source_ports = \"7-6\""), "gateway.toml:4: source_ports: neither a port nor a range"),
        (group("source_ports = 1.5"), "gateway.toml:4: group.a.source_ports: neither a port nor a range"),
        (group("source_ports = 65536"), "gateway.toml:4: source_ports: neither a port nor a range"),
        (group("destinations = [\"::/0\"]"), "gateway.toml:2: group 'a' has sources and destinations of different IP"),
        (group("part = \"50%\""), "gateway.toml:4: 'part' needs policy = \"paper\""),
        (group("observes = \"sent\""), "gateway.toml:4: 'observes' needs policy = \"paper\""),
        (group("policy = \"fair\""), "gateway.toml:4: group.a.policy: unknown variant `fair`"),
        (group("policy = \"paper\"\npart = \"0%\""), "gateway.toml:5: part = 0% is out of range"),
        (group("repeats = 0"), "gateway.toml:4: repeats = 0 is out of range"),
        (group("assumed_scale = 15"), "gateway.toml:4: assumed_scale = 15 is out of range: 0 to 14"),
        (second("sources = [\"10.1.0.0/16\"]"), "gateway.toml:4: groups 'a' and 'b' overlap"),
    ];
    for (text, reason) in cases {
        let error = parse(&text).unwrap_err();
        assert!(error.starts_with(reason), "{text}\n{error}\n{reason}");
        assert!(!error.contains('\n'), "{error}");
    }
    // One in the other, or beside it, is no overlap.
    for line in ["sources = [\"10.1.2.0/24\"]", "sources = [\"10.2.0.0/16\"]", "sources = [\"0.0.0.0/0\"]"] {
        parse(&second(line)).unwrap();
    }
}

#[test]
fn a_key_at_the_wrong_place_is_told_where_it_belongs() {
    let behind = |line: &str| parse(&format!("{PLAIN}{line}\n")).unwrap_err();
    let above = |line: &str| parse(&format!("{line}\n{PLAIN}")).unwrap_err();
    for line in ["device = \"wan0\"", "idle = \"60s\"", "restart_within = \"60s\"", "ipv4_streams = 5"] {
        let error = behind(line);
        assert!(
            error.starts_with("gateway.toml:4: unknown field")
                && error.ends_with("; it belongs above the first [group.…]"),
            "{error}"
        );
    }
    for line in ["sources = [\"10.1.0.0/16\"]", "hold = \"5s\"", "policy = \"paper\""] {
        let error = above(line);
        assert!(
            error.starts_with("gateway.toml:1: unknown field") && error.ends_with("; it belongs into [group.NAME]"),
            "{error}"
        );
    }
    assert!(!behind("nothing = 1").contains("it belongs") && !above("nothing = 1").contains("it belongs"));
    for policy in ["delay", "mark", "drop"] {
        let error = behind(&format!("policy = {policy:?}"));
        assert!(error.ends_with("; `ekiden simulate` alone has it"), "{error}");
    }
}
