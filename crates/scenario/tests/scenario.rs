//! What a scenario file may say, and how a wrong one is refused.

use ekiden_scenario::{Amount, NodeKind, Queue, Scenario};
use ekiden_units::{BitRate, Bytes, Fraction, Time};
use proptest::prelude::*;

const THREE_NODES: &str = r#"
name = "three"
[tcp]
receive_buffer = "64KiB"
[node.client]
[node.p1]
kind = "proxy"
tcp = { receive_buffer = "16MiB" }
[node.server]
[link.near]
ends = ["client", "p1"]
rate = "100Mbit/s"
delay = "12.5ms"
queue = "50 packets"
[link.far]
ends = ["p1", "server"]
rate = "70Mbit/s"
delay = "5ms"
queue = "100KB"
loss = "0.1%"
mtu = 1400
[flow.download]
from = "server"
to = "client"
bytes = "16MiB"
via = ["p1"]
"#;

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, "test.toml").map_err(|error| error.to_string())
}

#[test]
fn every_default_is_resolved() {
    let scenario = parse(THREE_NODES).unwrap();
    let client = &scenario.nodes["client"];
    assert_eq!((client.kind, client.tcp.receive_buffer), (NodeKind::Host, Bytes::kib(64)));
    assert_eq!(scenario.nodes["p1"].tcp.receive_buffer, Bytes::mib(16));
    assert_eq!(client.tcp.congestion, "reno");
    let (near, far) = (&scenario.links["near"].forth, &scenario.links["far"].forth);
    assert_eq!((near.queue, near.mtu, near.loss), (Queue::Packets(50), 1500, Fraction(0)));
    assert_eq!((far.queue, far.mtu, far.loss), (Queue::Bytes(Bytes(100_000)), 1400, Fraction(1_000_000)));
    assert_eq!(far.rate, BitRate::mbit(70));
    let flow = &scenario.flows["download"];
    assert_eq!((flow.amount, flow.start, flow.parallel), (Amount::Bytes(Bytes::mib(16)), Time(0), 1));
}

#[test]
fn shown_scenarios_parse_back_to_the_same() {
    let scenario = parse(THREE_NODES).unwrap();
    assert_eq!(parse(&scenario.to_toml()).unwrap(), scenario);
}

#[test]
fn base_rtt_is_twice_the_sum_of_the_delays() {
    let scenario = parse(THREE_NODES).unwrap();
    assert_eq!(scenario.base_rtt("client", "server"), Some(Time::ms(35)));
    let way: Vec<_> = scenario.path("server", "client").unwrap().iter().map(|hop| hop.name).collect();
    assert_eq!(way, ["far", "near"]);
}

#[test]
fn paths_avoid_hosts_and_prefer_little_delay() {
    let text = r#"
name = "ring"
[node.a]
[node.b]
[node.c]
[node.r]
kind = "router"
[link.ab]
ends = ["a", "b"]
rate = "1Mbit/s"
delay = "1ms"
[link.bc]
ends = ["b", "c"]
rate = "1Mbit/s"
delay = "1ms"
[link.ar]
ends = ["a", "r"]
rate = "1Mbit/s"
delay = "5ms"
[link.rc]
ends = ["r", "c"]
rate = "1Mbit/s"
delay = "5ms"
[link.slow]
ends = ["a", "c"]
rate = "1Mbit/s"
delay = "20ms"
"#;
    let scenario = parse(text).unwrap();
    let way: Vec<_> = scenario.path("a", "c").unwrap().iter().map(|hop| hop.to).collect();
    assert_eq!(way, ["r", "c"], "b is a host and does not forward");
}

/// (what to replace, by what, the line named, part of the reason)
const WRONG: &[(&str, &str, usize, &str)] = &[
    ("kind = \"proxy\"", "kind = \"proxi\"", 7, "unknown variant `proxi`"),
    ("delay = \"5ms\"", "dealy = \"5ms\"", 18, "unknown field `dealy`"),
    ("delay = \"5ms\"", "delay = 5", 18, "5 has no unit: it must be a text in quotes, such as \"5ms\" or \"5s\""),
    ("queue = \"100KB\"", "queue = 50", 19, "must be a text in quotes, such as \"100KB\" or \"50 packets\""),
    ("delay = \"5ms\"", "delay = \"5h\"", 18, "delay = 18000s is out of range: 0s to 60s"),
    ("rate = \"70Mbit/s\"", "rate = \"70Mb\"", 17, "needs one of the units"),
    ("rate = \"70Mbit/s\"", "rate = \"5bit/s\"", 17, "out of range"),
    ("queue = \"100KB\"", "queue = \"100B\"", 19, "queue = 100B is out of range: 1.4KB"),
    ("queue = \"100KB\"", "queue = \"a few\"", 19, "\"50 packets\""),
    ("loss = \"0.1%\"", "loss = \"120%\"", 20, "0 to 100 %"),
    ("mtu = 1400", "mtu = 100", 21, "mtu = 100 is out of range: 128 to 65535"),
    ("ends = [\"p1\", \"server\"]", "ends = [\"p1\", \"sever\"]", 16, "no node 'sever'"),
    ("ends = [\"p1\", \"server\"]", "ends = [\"p1\", \"p1\"]", 16, "to itself"),
    ("via = [\"p1\"]", "via = [\"client\"]", 26, "not a proxy"),
    ("via = [\"p1\"]", "via = [\"p1\", \"p1\"]", 26, "twice"),
    ("to = \"client\"", "to = \"server\"", 24, "to itself"),
    ("bytes = \"16MiB\"", "", 22, "either 'bytes' or 'duration'"),
    ("bytes = \"16MiB\"", "bytes = \"1MiB\"\nduration = \"1s\"", 26, "has 'bytes' and 'duration'; keep one"),
    ("bytes = \"16MiB\"", "bytes = \"1MiB\"\nend = \"cut\"", 26, "has 'bytes', and so ends when all have arrived"),
    ("bytes = \"16MiB\"", "duration = \"1s\"\nend = \"cuts\"", 26, "did you mean `cut`?"),
    ("kind = \"proxy\"", "kind = \"host\"", 26, "not a proxy"),
    ("[node.client]", "[node.client]\nnext = [\"p1\"]", 6, "only a proxy has"),
    ("[node.client]", "[node.\"two words\"]", 5, "cannot name a node"),
    ("[node.client]", "[node.client]\n[node.alone]", 6, "'alone' has no link"),
    (
        "[node.client]",
        "[congestion.hstp]\n[node.client]",
        5,
        "no [congestion.hstp] (there are hstcp, ghstcp, bic, slow_start, far); did you mean `hstcp`?",
    ),
    ("[node.client]", "[congestion.bic]\nsmax = 5\n[node.client]", 6, "no parameter 'bic.smax'"),
    ("[node.client]", "[congestion.bic]\nsmax = 5\n[node.client]", 6, "did you mean `s_max`?"),
    (
        "[node.client]",
        "[congestion.bic]\ns_max = 0.5\n[node.client]",
        6,
        "bic.s_max cannot be '0.5': it is a number from 1 to 10000: ",
    ),
    ("[node.client]", "[congestion.bic]\ns_max = \"5\"\n[node.client]", 6, "congestion.bic.s_max: invalid type"),
    (
        "[node.client]",
        "[congestion.bic]\ns_max = 1\ns_min = 2\n[node.client]",
        5,
        "bic.s_min must not exceed bic.s_max",
    ),
    ("name = \"three\"", "", 1, "missing field `name`"),
    ("name = \"three\"", "name = three", 2, "string values must be quoted"),
];

#[test]
fn a_wrong_file_is_refused_with_line_and_reason() {
    for (from, to, line, reason) in WRONG {
        assert!(THREE_NODES.contains(from), "{from}");
        let message = parse(&THREE_NODES.replacen(from, to, 1)).expect_err(to);
        assert!(message.starts_with(&format!("test.toml:{line}: ")), "{to}: {message}");
        assert!(message.contains(reason), "{to}: {message}");
        assert!(!message.contains('\n'), "one line: {message}");
    }
}

#[test]
fn a_flow_without_a_route_is_refused() {
    let text = THREE_NODES.replace("kind = \"proxy\"\n", "").replace("via = [\"p1\"]", "");
    let message = parse(&text).unwrap_err();
    assert!(message.contains("no route from 'server' to 'client' (only routers and proxies forward; "), "{message}");
}

proptest! {
    #[test]
    fn damaged_files_never_panic(cut in 0..THREE_NODES.len(), with in "[ -~\n]{0,6}", to in 0usize..40) {
        let end = (cut + to).min(THREE_NODES.len());
        let _ = parse(&format!("{}{with}{}", &THREE_NODES[..cut], &THREE_NODES[end..]));
    }
}
