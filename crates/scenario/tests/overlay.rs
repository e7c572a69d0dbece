//! Flows for which the nodes of an overlay choose paths.

use ekiden_scenario::{NodeKind, Scenario};

/// Three proxies, each with a line to each other. Between a and c packets would take the shorter way over b, if b forwarded them.
const TRIANGLE: &str = r#"
name = "triangle"
[node.client]
[node.server]
[node.a]
kind = "proxy"
forwards = false
[node.b]
kind = "proxy"
forwards = false
[node.c]
kind = "proxy"
forwards = false
[link.near]
ends = ["client", "a"]
rate = "1Gbit/s"
[link.far]
ends = ["server", "c"]
rate = "1Gbit/s"
[link.ac]
ends = ["a", "c"]
rate = "20Mbit/s"
delay = "40ms"
[link.ab]
ends = ["a", "b"]
rate = "20Mbit/s"
delay = "10ms"
[link.bc]
ends = ["b", "c"]
rate = "20Mbit/s"
delay = "10ms"
[flow.files]
from = "server"
to = "client"
duration = "10s"
file = "1MB"
via = ["c", "auto", "a"]
"#;

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, "test.toml").map_err(|error| error.to_string())
}

#[test]
fn the_proxies_are_the_overlay_and_the_flow_names_its_ends() {
    let scenario = parse(TRIANGLE).unwrap();
    let via = &scenario.flows["files"].via;
    assert_eq!(via.chosen(), Some(("c", "a")));
    assert_eq!(
        (via.to_vec(), via.words()),
        (vec!["c".into(), "a".into()], vec!["c".into(), "auto".into(), "a".into()])
    );
    assert_eq!(scenario.members(), ["a", "b", "c"]);
    assert_eq!(parse(&scenario.to_toml()).unwrap(), scenario);
    // A chain that is written out is no overlay.
    let chain = parse(&TRIANGLE.replace("\"auto\"", "\"b\"")).unwrap();
    assert_eq!((chain.flows["files"].via.chosen(), chain.members()), (None, vec![]));
}

#[test]
fn packets_do_not_pass_a_proxy_that_forwards_none() {
    let way = |text: &str| {
        let scenario = parse(text).unwrap();
        scenario.path("a", "c").unwrap().iter().map(|hop| hop.name.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(way(TRIANGLE), ["ac"]);
    let forwards = TRIANGLE.replace("[node.b]\nkind = \"proxy\"\nforwards = false", "[node.b]\nkind = \"proxy\"");
    assert_eq!(way(&forwards), ["ab", "bc"]);
    assert_eq!(parse(&forwards).unwrap().nodes["b"].kind, NodeKind::Proxy);
}

#[test]
fn what_cannot_be_chosen_is_refused_with_line_and_reason() {
    let between = "must stand between two proxies";
    let wrong = [
        ("via = [\"c\", \"auto\", \"a\"]", "via = [\"auto\"]", 37, between),
        ("via = [\"c\", \"auto\", \"a\"]", "via = [\"auto\", \"c\", \"a\"]", 37, between),
        ("via = [\"c\", \"auto\", \"a\"]", "via = [\"c\", \"auto\"]", 37, between),
        ("via = [\"c\", \"auto\", \"a\"]", "via = [\"c\", \"auto\", \"b\", \"a\"]", 37, between),
        ("via = [\"c\", \"auto\", \"a\"]", "via = [\"c\", \"auto\", \"auto\"]", 37, "has 'auto' twice"),
        ("via = [\"c\", \"auto\", \"a\"]", "via = [\"c\", \"auto\", \"client\"]", 37, "node 'client' is not a proxy"),
        ("via = [\"c\", \"auto\", \"a\"]", "via = [\"c\", \"auto\", \"c\"]", 37, "'c' comes twice"),
        ("[node.client]", "[node.auto]\n[node.client]", 3, "'auto' cannot name a node"),
        ("[node.client]", "[node.client]\nforwards = false", 4, "'forwards', which only a proxy has"),
        ("[node.client]", "[node.client]\norder = \"soonest\"", 4, "'order', which only a proxy has"),
        ("[link.ac]\nends = [\"a\", \"c\"]", "[link.ac]\nends = [\"a\", \"b\"]", 37, "no route from 'c' to 'a'"),
        (
            "[flow.files]",
            "[gateway.g]\nnode = \"b\"\nflows = [\"files\"]\n[flow.files]",
            33,
            "node 'b' has forwards = false, and must forward packets here",
        ),
    ];
    for (from, to, line, reason) in wrong {
        assert!(TRIANGLE.contains(from), "{from}");
        let message = parse(&TRIANGLE.replacen(from, to, 1)).expect_err(to);
        assert!(
            message.starts_with(&format!("test.toml:{line}: ")) && message.contains(reason),
            "{line} {to}: {message}"
        );
    }
    let gateway = "[node.r]\nkind = \"router\"\n[link.r]\nends = [\"r\", \"a\"]\nrate = \"1Mbit/s\"\n[gateway.g]\nnode = \"r\"\nflows = [\"files\"]\n";
    let message =
        parse(&TRIANGLE.replace("file = \"1MB\"\n", "").replacen("[flow.files]", &format!("{gateway}[flow.files]"), 1));
    assert!(message.unwrap_err().contains("the nodes choose the path of flow 'files'"));
}
