//! Tunnels, gateways, background, copies of nodes, and what the simulator alone does with links and TCP.

use ekiden_scenario::{
    Background, Discipline, GatewayPolicy, ObservedFlow, OnOff, PaperPolicy, Point, Policer, Profile, Queue, Scenario,
    Sweep,
};
use ekiden_units::{BitRate, Bytes, Fraction, Time};
use proptest::prelude::*;

const EVERYTHING: &str = include_str!("everything.toml");

/// Hosts a and b, routers r, s and t between them, and nothing said that has a default.
const CHAIN: &str = r#"
name = "chain"
[node.a]
[node.r]
kind = "router"
[node.s]
kind = "router"
[node.t]
kind = "router"
[node.b]
[link.ar]
ends = ["a", "r"]
rate = "1Gbit/s"
[link.rs]
ends = ["r", "s"]
rate = "10Mbit/s"
mtu = 1000
[link.st]
ends = ["s", "t"]
rate = "1Gbit/s"
[link.tb]
ends = ["t", "b"]
rate = "1Gbit/s"
[flow.bulk]
from = "a"
to = "b"
bytes = "1MB"
[tunnel.t]
ends = ["r", "t"]
[gateway.g]
node = "s"
flows = ["bulk"]
[background.udp]
from = "r"
to = "b"
rate = "1Mbit/s"
"#;

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, "test.toml").map_err(|error| error.to_string())
}

fn set(text: &str, sets: &[&str]) -> Result<Scenario, String> {
    let sweep = Sweep::parse(&sets.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    let point: &Point = &sweep.points()[0];
    Scenario::parse_with(text, "test.toml", point).map_err(|error| error.to_string())
}

#[test]
fn every_default_is_resolved() {
    let scenario = parse(CHAIN).unwrap();
    let node = &scenario.nodes["a"];
    assert_eq!((node.tcp.profile, node.tcp.rto_min), (Profile::Linux, None));
    let link = &scenario.links["rs"].forth;
    assert_eq!((link.discipline, link.loss_burst), (Discipline::DropTail, 1));
    let tunnel = &scenario.tunnels["t"];
    assert_eq!((tunnel.connections, tunnel.queue), (1, Queue::Bytes(Bytes(10_000_000))));
    assert_eq!(tunnel.tcp, scenario.nodes["r"].tcp);
    let gateway = &scenario.gateways["g"];
    assert_eq!((gateway.policy, gateway.paper, gateway.enabled), (GatewayPolicy::Delivered, None, true));
    let paper = set(CHAIN, &["gateway.g.policy=paper"]).unwrap().gateways["g"].paper;
    let others = [GatewayPolicy::Delay, GatewayPolicy::Mark, GatewayPolicy::Drop];
    for (name, policy) in ["delay", "mark", "drop"].into_iter().zip(others) {
        let gateway = set(CHAIN, &[&format!("gateway.g.policy={name}")]).unwrap().gateways["g"].clone();
        assert_eq!((gateway.policy, gateway.paper), (policy, None));
    }
    let defaults = PaperPolicy { repeats: 100, part: Fraction(800_000_000), observes: ObservedFlow::Acknowledged };
    assert_eq!(paper, Some(defaults));
    let background = Background {
        from: "r".into(),
        to: "b".into(),
        rate: BitRate::mbit(1),
        packet: Bytes(1000),
        start: Time(0),
        duration: None,
        on_off: None,
    };
    assert_eq!(scenario.background["udp"], background, "its packets fit the way");
}

#[test]
fn every_key_arrives() {
    let scenario = parse(EVERYTHING).unwrap();
    let (p, q) = (&scenario.nodes["p"].tcp, &scenario.nodes["q"].tcp);
    assert_eq!((p.profile, p.rto_min), (Profile::Rfc, Some(Time::secs(1))));
    assert_eq!((q.profile, q.rto_min), (Profile::Ns2, Some(Time::ms(300))));
    assert_eq!((p.rtt_per_window, q.rtt_per_window), (Some(true), None));
    assert_eq!((p.initial_ssthresh, q.initial_ssthresh), (Some(Bytes(65_535)), None));
    assert_eq!((scenario.flows["files"].file, scenario.flows["bulk-0"].file), (Some(Bytes(500_000)), None));
    let link = &scenario.links["pr"].forth;
    assert_eq!((link.discipline, link.loss_burst, link.mtu), (Discipline::Codel, 4, 9001));
    assert_eq!(link.policer, Some(Policer { rate: BitRate::mbit(5), burst: Bytes(20_000) }));
    let tunnel = &scenario.tunnels["t"];
    assert_eq!((tunnel.connections, tunnel.queue), (2, Queue::Packets(500)));
    assert_eq!((tunnel.tcp.profile, tunnel.tcp.sack, tunnel.tcp.initial_window), (Profile::Linux, true, Some(3)));
    let gateway = &scenario.gateways["g"];
    let paper = PaperPolicy { repeats: 50, part: Fraction(750_000_000), observes: ObservedFlow::Sent };
    assert_eq!((gateway.policy, gateway.paper, gateway.enabled), (GatewayPolicy::Paper, Some(paper), false));
    assert_eq!(gateway.flows, ["bulk-0", "bulk-1", "relayed-0"]);
    let background = &scenario.background["udp-1"];
    assert_eq!((background.from.as_str(), background.duration), ("a-1", Some(Time::secs(10))));
    assert_eq!(background.on_off, Some(OnOff { on: Time::ms(100), off: Time::ms(300) }));
}

#[test]
fn shown_scenarios_parse_back_to_the_same() {
    for text in [CHAIN, EVERYTHING] {
        let scenario = parse(text).unwrap();
        assert_eq!(parse(&scenario.to_toml()).unwrap(), scenario);
    }
    let delaying = set(CHAIN, &["gateway.g.policy=delay"]).unwrap();
    assert_eq!(parse(&delaying.to_toml()).unwrap(), delaying);
}

#[test]
fn what_the_lab_does_anyway_is_not_shown() {
    let shown = parse(&CHAIN[..CHAIN.find("[tunnel.t]").unwrap()]).unwrap().to_toml();
    for key in ["profile", "rto_min", "discipline", "loss_burst", "tunnel", "gateway", "background", "copies"] {
        assert!(!shown.contains(key), "{key}: {shown}");
    }
}

/// (what to replace in the chain, by what, the line named, part of the reason)
const WRONG: &[(&str, &str, usize, &str)] = &[
    ("name = \"chain\"", "name = \"chain\"\ntcp.profile = \"bsd\"", 3, "unknown variant `bsd`"),
    ("name = \"chain\"", "name = \"chain\"\ntcp.rto_min = \"0\"", 3, "rto_min = 0s is out of range: 1ms to 60s"),
    ("mtu = 1000", "mtu = 65536", 17, "mtu = 65536 is out of range: 128 to 65535"),
    ("mtu = 1000", "discipline = \"fifo\"", 17, "unknown variant `fifo`"),
    ("mtu = 1000", "loss_burst = 0", 17, "loss_burst = 0 is out of range: 1 to 100000"),
    ("mtu = 1000", "loss_burst = 1.5", 17, "invalid type"),
    ("mtu = 1000", "policer = { burst = \"9KB\" }", 17, "missing field `rate`"),
    ("mtu = 1000", "policer.rate = \"1bit/s\"", 17, "policer.rate = 1bit/s is out of range: 1kbit/s to 1Tbit/s"),
    (
        "mtu = 1000",
        "policer = { rate = \"1Mbit/s\", burst = \"1499B\" }",
        17,
        "policer.burst = 1.499KB is out of range: 1.5KB to",
    ),
    ("mtu = 1000", "loss_burst = 4\nloss = \"80.1%\"", 18, "cannot come in runs of 4: at most 4 of 5 packets"),
    (
        "mtu = 1000",
        "mtu = 1000\n[node.z]\ntcp.initial_ssthresh = \"1B\"",
        19,
        "initial_ssthresh = 1B is out of range: 1KiB",
    ),
    ("bytes = \"1MB\"", "bytes = \"1MB\"\nfile = \"1KB\"", 28, "needs a 'duration' with end = \"cut\""),
    (
        "bytes = \"1MB\"",
        "duration = \"1s\"\nend = \"drain\"\nfile = \"1KB\"",
        29,
        "needs a 'duration' with end = \"cut\"",
    ),
    ("bytes = \"1MB\"", "duration = \"1s\"\nfile = \"0B\"", 28, "file = 0B is out of range"),
    (
        "bytes = \"1MB\"",
        "duration = \"1s\"\nfile = \"1KB\"",
        33,
        "a gateway balances connections that are there at once",
    ),
    ("[tunnel.t]", "[tunnel.\"a b\"]", 28, "cannot name a tunnel"),
    ("ends = [\"r\", \"t\"]", "ends = [\"r\", \"x\"]", 29, "no node 'x'"),
    ("ends = [\"r\", \"t\"]", "ends = [\"r\", \"r\"]", 29, "leads from 'r' to itself"),
    ("ends = [\"r\", \"t\"]", "ends = [\"a\", \"t\"]", 29, "'a' is a host; only routers and proxies forward"),
    ("ends = [\"r\", \"t\"]", "ends = [\"r\"]", 29, "it is a list of 1"),
    ("[gateway.g]", "connections = 65\n[gateway.g]", 30, "connections = 65 is out of range: 1 to 64"),
    ("[gateway.g]", "discipline = \"red\"\n[gateway.g]", 30, "a tunnel's discipline is \"drop_tail\" or \"fq_codel\""),
    ("[gateway.g]", "target = \"1ms\"\n[gateway.g]", 30, "'target' needs 'discipline = \"fq_codel\"'"),
    ("[gateway.g]", "discipline = \"fq_codel\"\nunsent = \"0B\"\n[gateway.g]", 31, "unsent = 0B is out of range: 1B"),
    ("[gateway.g]", "queue = \"1KB\"\n[gateway.g]", 30, "queue = 1KB is out of range: 1.5KB"),
    ("[gateway.g]", "tcp = { sacks = true }\n[gateway.g]", 30, "unknown field `sacks`"),
    ("[gateway.g]", "[tunnel.u]\nends = [\"t\", \"r\"]\n[gateway.g]", 30, "'u' has the same ends as tunnel 't'"),
    ("node = \"s\"", "node = \"x\"", 31, "no node 'x'"),
    ("node = \"s\"", "node = \"b\"", 31, "'b' is a host"),
    ("flows = [\"bulk\"]", "flows = [\"bulky\"]", 32, "no flow 'bulky'"),
    ("flows = [\"bulk\"]", "flows = []", 30, "gateway 'g' has no flows"),
    ("flows = [\"bulk\"]", "flows = [\"bulk\"]\npart = \"50%\"", 33, "'part' needs 'policy = \"paper\"'"),
    (
        "flows = [\"bulk\"]",
        "flows = [\"bulk\"]\npolicy = \"mark\"\nrepeats = 3",
        34,
        "'repeats' needs 'policy = \"paper\"'",
    ),
    ("flows = [\"bulk\"]", "flows = [\"bulk\"]\npolicy = \"shape\"", 33, "unknown variant `shape`"),
    ("flows = [\"bulk\"]", "flows = [\"bulk\", \"bulk\"]", 32, "in the group of gateway 'g' already"),
    ("flows = [\"bulk\"]", "flows = [\"bulk\"]\npolicy = \"paper\"\nrepeats = 0", 34, "repeats = 0 is out of range"),
    ("flows = [\"bulk\"]", "flows = [\"bulk\"]\npolicy = \"paper\"\npart = \"0\"", 34, "part = 0% is out of range"),
    ("[background.udp]", "[gateway.h]\nnode = \"r\"\nflows = [\"bulk\"]\n[background.udp]", 35, "gateway 'g' already"),
    ("to = \"b\"\nbytes", "to = \"r\"\nbytes", 32, "flow 'bulk' does not pass through 's'"),
    ("from = \"r\"", "from = \"x\"", 34, "no node 'x'"),
    ("from = \"r\"", "from = \"b\"", 35, "goes from 'b' to itself"),
    ("rate = \"1Mbit/s\"", "rate = \"1bit/s\"", 36, "rate = 1bit/s is out of range"),
    ("rate = \"1Mbit/s\"", "rate = \"1Mbit/s\"\npacket = \"27B\"", 37, "packet = 27B is out of range: 28B"),
    ("rate = \"1Mbit/s\"", "rate = \"1Mbit/s\"\npacket = \"1001B\"", 37, "is more than the MTU of its way, 1000"),
    ("rate = \"1Mbit/s\"", "rate = \"1Mbit/s\"\non = \"1s\"", 37, "needs both 'on' and 'off', or neither"),
    ("rate = \"1Mbit/s\"", "rate = \"1Mbit/s\"\non = \"0\"\noff = \"1s\"", 37, "on = 0s is out of range"),
    ("rate = \"1Mbit/s\"", "rate = \"1Mbit/s\"\nduration = \"0\"", 37, "duration = 0s is out of range"),
    ("[node.a]", "[node.a]\ncopies = 0", 4, "copies = 0 is out of range: 1 to 250"),
    ("[node.a]", "[node.a]\ncopies = 250", 5, "more than 250 nodes"),
    ("[node.a]", "[node.a-0]\n[node.a]\ncopies = 2", 4, "node 'a-0' is there twice"),
    ("[node.s]", "[node.s]\ncopies = 2", 32, "'s' has copies; name one of them here, such as 's-0'"),
    ("[node.t]", "[node.t]\ncopies = 2", 30, "'t' has copies"),
];

#[test]
fn a_wrong_file_is_refused_with_line_and_reason() {
    for (from, to, line, reason) in WRONG {
        assert!(CHAIN.contains(from), "{from}");
        let message = parse(&CHAIN.replacen(from, to, 1)).expect_err(to);
        assert!(message.starts_with(&format!("test.toml:{line}: ")), "{to}: {message}");
        assert!(message.contains(reason), "{to}: {message}");
        assert!(!message.contains('\n'), "one line: {message}");
    }
}

#[test]
fn ends_without_a_route_are_refused() {
    // The host b is the only way from t to u.
    let island = "[node.u]\nkind = \"router\"\n[link.bu]\nends = [\"b\", \"u\"]\nrate = \"1Gbit/s\"\n";
    let to_island = |from: &str, to: &str| {
        let text = CHAIN.replacen(from, to, 1).replacen("[link.ar]", &format!("{island}[link.ar]"), 1);
        parse(&text).expect_err(to)
    };
    let message = to_island("ends = [\"r\", \"t\"]", "ends = [\"r\", \"u\"]");
    assert!(message.contains("tunnel 't': no route from 'r' to 'u'"), "{message}");
    let message = to_island("from = \"r\"\nto = \"b\"", "from = \"r\"\nto = \"u\"");
    assert!(message.contains("background 'udp': no route from 'r' to 'u'"), "{message}");
}

#[test]
fn a_gateway_sees_relayed_flows_on_any_stretch_but_not_where_they_end() {
    let relayed = CHAIN.replacen("[node.t]\nkind = \"router\"", "[node.t]\nkind = \"proxy\"", 1);
    let relayed = relayed.replacen("bytes =", "via = [\"t\"]\nbytes =", 1);
    parse(&relayed).unwrap();
    let message = parse(&relayed.replacen("node = \"s\"", "node = \"t\"", 1)).unwrap_err();
    assert!(message.contains("does not pass through 't'"), "{message}");
}

#[test]
fn every_sort_of_new_key_can_be_set() {
    let sets = [
        "link.rs.discipline=red",
        "link.rs.loss_burst=7",
        "link.rs.policer.rate=2Mbit/s",
        "tunnel.t.connections=4",
        "tunnel.t.tcp.sack=false",
    ];
    let scenario = set(CHAIN, &sets).unwrap();
    assert_eq!((scenario.links["rs"].forth.discipline, scenario.links["rs"].forth.loss_burst), (Discipline::Red, 7));
    assert_eq!(scenario.links["rs"].forth.policer, Some(Policer { rate: BitRate::mbit(2), burst: Bytes::kib(64) }));
    let tunnel = &scenario.tunnels["t"];
    assert_eq!((tunnel.connections, tunnel.tcp.sack, scenario.nodes["r"].tcp.sack), (4, false, true));
    let sets =
        ["gateway.g.enabled=false", "gateway.g.policy=paper", "gateway.g.repeats=3", "background.udp.duration=1s"];
    let scenario = set(CHAIN, &sets).unwrap();
    let gateway = &scenario.gateways["g"];
    assert_eq!((gateway.enabled, gateway.paper.map(|paper| paper.repeats)), (false, Some(3)));
    assert_eq!(scenario.background["udp"].duration, Some(Time::secs(1)));
    assert!(!set(CHAIN, &["tcp.sack=false"]).unwrap().tunnels["t"].tcp.sack, "by way of its first end");
    let on_off = set(CHAIN, &["background.udp.on+background.udp.off=1ms"]).unwrap().background["udp"].on_off;
    assert_eq!(on_off, Some(OnOff { on: Time::ms(1), off: Time::ms(1) }));
    let copies = set(EVERYTHING, &["node.a.copies=5"]).unwrap();
    assert_eq!((copies.nodes.len(), copies.links.len(), copies.flows.len()), (11, 10, 16));
    let bytes = set(EVERYTHING, &["flow.files.bytes=1MB"]).unwrap();
    assert_eq!((bytes.flows["files"].file, bytes.flows["files"].end), (None, None), "they give way");
}

#[test]
fn a_wrong_set_of_a_new_key_is_refused_with_the_reason() {
    for (wrong, reason) in [
        ("tunnel.t=1", "is a table"),
        ("tunnel.t.tcp=1", "is a table"),
        ("gateway=1", "is a table"),
        ("gateway.x.part=1%", "there is no gateway 'x'; there is: g"),
        ("gateway.g.tcp.sack=true", "there is no key 'gateway.g.tcp.sack'"),
        ("gateway.g.enabled=perhaps", "must be true or false"),
        ("background.udp.on=1s", "needs both 'on' and 'off'"),
        ("background.x.rate=1Mbit/s", "there is no background 'x'; there is: udp"),
        ("tunnel.t.connections=many", "invalid type"),
        ("node.a-0.tcp.sack=true", "there is no node 'a-0'"),
    ] {
        let message = set(CHAIN, &[wrong]).expect_err(wrong);
        assert!(message.starts_with(&format!("--set {wrong}: ")) && message.contains(reason), "{message}");
    }
}

#[test]
fn copies_must_be_equally_many_where_they_are_joined() {
    let text = CHAIN.replacen("[node.a]", "[node.a]\ncopies = 2", 1).replacen("[node.b]", "[node.b]\ncopies = 3", 1);
    let message = parse(&text).unwrap_err();
    assert!(message.contains("flow 'bulk' joins copy to copy, but there are 2 of 'a' and 3 of 'b'"), "{message}");
}

#[test]
fn one_copy_can_be_named() {
    let text = CHAIN.replacen("[node.a]", "[node.a]\ncopies = 2", 1).replacen("from = \"a\"", "from = \"a-1\"", 1);
    let scenario = parse(&text).unwrap();
    assert_eq!(scenario.flows.keys().collect::<Vec<_>>(), ["bulk"]);
    assert_eq!(scenario.flows["bulk"].from, "a-1");
}

/// A cluster, with its copies written out by hand if `written_out`.
fn cluster(count: usize, written_out: bool) -> String {
    let each = |written: &dyn Fn(&str) -> String| match written_out {
        true => (0..count).map(|number| written(&format!("-{number}"))).collect::<String>(),
        false => written(""),
    };
    let copies = if written_out { String::new() } else { format!("copies = {count}\n") };
    let all_flows = (0..count).map(|number| format!("\"f-{number}\"")).collect::<Vec<_>>().join(", ");
    let all_flows = if written_out { all_flows } else { "\"f\"".into() };
    [
        "name = \"cluster\"\n".to_owned(),
        each(&|n| format!("[node.s{n}]\n{copies}tcp = {{ sack = false }}\n")),
        "[node.in]\nkind = \"router\"\n[node.out]\nkind = \"router\"\n".into(),
        each(&|n| format!("[node.d{n}]\n{copies}")),
        each(&|n| format!("[link.s{n}]\nends = [\"s{n}\", \"in\"]\nrate = \"1Gbit/s\"\n")),
        "[link.line]\nends = [\"in\", \"out\"]\nrate = \"1Gbit/s\"\n".into(),
        each(&|n| format!("[link.d{n}]\nends = [\"out\", \"d{n}\"]\nrate = \"1Gbit/s\"\n")),
        each(&|n| format!("[flow.f{n}]\nfrom = \"s{n}\"\nto = \"d{n}\"\nbytes = \"1MB\"\n")),
        each(&|n| format!("[background.u{n}]\nfrom = \"in\"\nto = \"d{n}\"\nrate = \"1Mbit/s\"\n")),
        format!("[gateway.g]\nnode = \"in\"\nflows = [{all_flows}]\n"),
    ]
    .concat()
}

proptest! {
    #[test]
    fn copies_are_what_they_stand_for(count in 1usize..40) {
        prop_assert_eq!(parse(&cluster(count, false)).unwrap(), parse(&cluster(count, true)).unwrap());
    }

    #[test]
    fn runs_of_losses_can_begin_whenever_they_are_accepted(burst in 1u32..100_000, loss in 0u64..=1_000_000_000) {
        let of = |parts: u64| format!("{}.{:07}%", parts / 10_000_000, parts % 10_000_000);
        let text = CHAIN.replacen("mtu = 1000", &format!("loss = \"{}\"\nloss_burst = {burst}", of(loss)), 1);
        // The mean number of packets between two runs, burst · (1 − loss) / loss, is at least one, in exact numbers.
        let fits = burst == 1 || u128::from(burst) * u128::from(1_000_000_000 - loss) >= u128::from(loss);
        prop_assert_eq!(parse(&text).is_ok(), fits);
    }

    #[test]
    fn damaged_files_never_panic(cut in 0..EVERYTHING.len(), with in "[ -~\n]{0,6}", to in 0usize..40) {
        let end = (cut + to).min(EVERYTHING.len());
        let _ = parse(&format!("{}{with}{}", &EVERYTHING[..cut], &EVERYTHING[end..]));
    }
}
