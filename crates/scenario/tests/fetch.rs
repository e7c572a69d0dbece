//! Flows that the receiver fetches, and proxies that run other programs.

use ekiden_scenario::{Fetch, Program, Scenario};

/// What of a text is replaced by what.
type Changes<'a> = &'a [(&'a str, &'a str)];

const CHAIN: &str = r#"
name = "chain"
[node.server]
[node.p1]
kind = "proxy"
[node.p2]
kind = "proxy"
[node.client]
[link.a]
ends = ["server", "p1"]
rate = "1Gbit/s"
[link.b]
ends = ["p1", "p2"]
rate = "1Gbit/s"
[link.c]
ends = ["p2", "client"]
rate = "1Gbit/s"
[flow.download]
from = "server"
to = "client"
via = ["p1", "p2"]
bytes = "1MB"
fetch = "http"
"#;

fn parse(changes: Changes<'_>) -> Result<Scenario, String> {
    let text = changes.iter().fold(CHAIN.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    Scenario::parse(&text, "test.toml").map_err(|error| error.to_string())
}

#[test]
fn a_fetched_flow_goes_through_ekiden_or_a_program_that_speaks_its_protocol() {
    let own = parse(&[]).unwrap();
    assert_eq!((own.flows["download"].fetch, own.nodes["p1"].program), (Some(Fetch::Http), Program::Ekiden));
    for (program, fetch) in [("dante", "socks"), ("squid", "http"), ("squid", "ftp"), ("ekiden", "socks")] {
        let kind = format!("kind = \"proxy\"\nprogram = \"{program}\"");
        let scenario = parse(&[("kind = \"proxy\"", &kind), ("\"http\"", &format!("\"{fetch}\""))]).unwrap();
        assert_eq!(Scenario::parse(&scenario.to_toml(), "again").unwrap(), scenario);
    }
    parse(&[("via = [\"p1\", \"p2\"]\n", ""), ("\"http\"", "\"ftp\"")]).unwrap();
}

#[test]
fn what_cannot_be_is_refused_with_its_line_and_the_reason() {
    let squid = ("kind = \"proxy\"", "kind = \"proxy\"\nprogram = \"squid\"");
    let one = ("[node.p1]\nkind = \"proxy\"", "[node.p1]\nkind = \"proxy\"\nprogram = \"squid\"");
    let refused: [(Changes<'_>, &str, &str); 9] = [
        (&[("[node.client]", "[node.client]\nprogram = \"squid\"")], ":9", "which only a proxy has"),
        (&[("[node.p2]", "[node.p2]\nprogram = \"nginx\"")], ":7", "expected one of `ekiden`, `dante`, `squid`"),
        (&[squid, ("fetch = \"http\"\n", "")], ":20", "whose program is squid: that needs fetch = \"http\" or \"ftp\""),
        (&[squid, ("\"http\"", "\"socks\"")], ":20", "whose program is squid"),
        (&[one], ":24", "all its proxies run one program; 'p2' runs another one than 'p1'"),
        (&[squid, ("[node.p2]\n", "[node.p2]\nnext = [\"p1\"]\n")], ":8", "which ekiden alone has"),
        (&[("bytes = \"1MB\"", "duration = \"1s\"")], ":23", "needs 'bytes'"),
        (&[("fetch", "parallel = 2\nfetch")], ":24", "is one connection"),
        (&[("via = [\"p1\", \"p2\"]\n", ""), ("\"http\"", "\"socks\"")], ":22", "needs a proxy in 'via'"),
    ];
    for (changes, line, reason) in refused {
        let message = parse(changes).expect_err(reason);
        assert!(message.starts_with(&format!("test.toml{line}")) && message.contains(reason), "{message}");
    }
}

#[test]
fn a_gateway_balances_no_fetched_flow() {
    let gateway = "fetch = \"http\"\n[gateway.g]\nnode = \"p1\"\nflows = [\"download\"]";
    let message = parse(&[("fetch = \"http\"", gateway)]).unwrap_err();
    assert!(message.contains("the receiver fetches flow 'download'"), "{message}");
}
