//! Flows whose proxies take connections that pass.

use ekiden_scenario::Scenario;

const CHAIN: &str = r#"
name = "chain"
[node.client]
[node.p1]
kind = "proxy"
[node.p2]
kind = "proxy"
[node.server]
[node.aside]
kind = "proxy"
[link.a]
ends = ["client", "p1"]
rate = "1Gbit/s"
[link.b]
ends = ["p1", "p2"]
rate = "1Gbit/s"
[link.c]
ends = ["p2", "server"]
rate = "1Gbit/s"
[link.d]
ends = ["p2", "aside"]
rate = "1Gbit/s"
[flow.upload]
from = "client"
to = "server"
via = ["p1", "p2"]
bytes = "1MB"
transparent = true
"#;

fn parse(from: &str, to: &str) -> Result<Scenario, String> {
    assert!(CHAIN.contains(from), "{from}");
    Scenario::parse(&CHAIN.replace(from, to), "test.toml").map_err(|error| error.to_string())
}

#[test]
fn a_transparent_flow_passes_its_first_and_last_proxy() {
    for via in [r#"["p1", "p2"]"#, r#"["p1"]"#, r#"["p2"]"#, r#"["p1", "aside", "p2"]"#] {
        let scenario = parse(r#"via = ["p1", "p2"]"#, &format!("via = {via}")).unwrap();
        assert!(scenario.flows["upload"].transparent);
        assert_eq!(Scenario::parse(&scenario.to_toml(), "again").unwrap(), scenario);
    }
    let plain = parse("transparent = true", "transparent = false").unwrap();
    assert!(!plain.flows["upload"].transparent && !plain.to_toml().contains("transparent"));
}

#[test]
fn what_cannot_be_is_refused_with_its_line_and_the_reason() {
    let via = "via = [\"p1\", \"p2\"]\n";
    let refused = [
        (via, "", ":27", "needs a proxy in 'via'"),
        (via, "via = [\"p1\", \"aside\"]\n", ":28", "'aside' is not on that from 'client' to 'server'"),
        (via, "via = [\"p1\", \"auto\", \"p2\"]\n", ":28", "'auto' is for others"),
        ("transparent", "fetch = \"http\"\ntransparent", ":29", "leave 'fetch' out"),
        ("true", "\"yes\"", ":28", "must be true or false"),
    ];
    for (from, to, line, reason) in refused {
        let message = parse(from, to).expect_err(reason);
        assert!(message.starts_with(&format!("test.toml{line}")) && message.contains(reason), "{message}");
    }
}
