//! Flows for which the nodes of an overlay choose the path.

use ekiden_record::{Chosen, Kept, Outcome, Record};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};

/// The direct way from c to a loses packets; that over b does not, and that over d carries half as much.
const DETOUR: &str = r#"
name = "detour"
seed = 1
[tcp]
congestion = "cubic"
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
[node.d]
kind = "proxy"
forwards = false
[link.near]
ends = ["client", "a"]
rate = "100Mbit/s"
delay = "0.2ms"
queue = "200KB"
[link.far]
ends = ["server", "c"]
rate = "100Mbit/s"
delay = "0.2ms"
queue = "200KB"
[link.direct]
ends = ["a", "c"]
rate = "20Mbit/s"
delay = "30ms"
queue = "150KB"
loss = "2%"
[link.ab]
ends = ["a", "b"]
rate = "20Mbit/s"
delay = "15ms"
queue = "100KB"
[link.bc]
ends = ["b", "c"]
rate = "20Mbit/s"
delay = "20ms"
queue = "100KB"
[link.ad]
ends = ["a", "d"]
rate = "10Mbit/s"
delay = "25ms"
queue = "100KB"
[link.dc]
ends = ["d", "c"]
rate = "10Mbit/s"
delay = "25ms"
queue = "100KB"
[flow.files]
from = "server"
to = "client"
via = ["c", "auto", "a"]
duration = "120s"
file = "2MB"
"#;

fn run(text: &str) -> Record {
    let scenario = Scenario::parse(text, "test.toml").unwrap();
    simulate(&scenario, &Options::default(), &mut Kept::default(), &mut |_| {}).unwrap()
}

fn path(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).into()).collect()
}

fn streams(chosen: &Chosen, names: &[&str]) -> u64 {
    chosen.streams.iter().find(|of| of.path == path(names)).map_or(0, |of| of.streams)
}

#[test]
fn streams_leave_a_lossy_leg_for_a_detour() {
    let record = run(DETOUR);
    let [chosen] = &record.overlay[..] else { panic!("{:?}", record.overlay) };
    println!("{chosen:#?} {:#?}", record.flows);
    assert_eq!((chosen.node.as_str(), chosen.exit.as_str()), ("c", "a"));
    assert_eq!(record.flows[0].outcome, Outcome::Complete);
}
