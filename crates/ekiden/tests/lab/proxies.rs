//! Flows through proxies.

use ekiden_record::Outcome;
use libtest_mimic::Failed;

use super::ensure;
use super::place::Place;

/// Two proxies on the way between two hosts.
const CHAIN: &str = r#"
name = "chain"
[node.client]
kind = "host"
[node.p1]
kind = "proxy"
[node.p2]
kind = "proxy"
[node.server]
kind = "host"
[link.near]
ends = ["client", "p1"]
rate = "100Mbit/s"
delay = "1ms"
queue = "100KB"
[link.far]
ends = ["p1", "p2"]
rate = "100Mbit/s"
delay = "10ms"
queue = "400KB"
[link.there]
ends = ["p2", "server"]
rate = "100Mbit/s"
delay = "1ms"
queue = "100KB"
"#;

pub fn relayed() -> Result<(), Failed> {
    let place = Place::from(&format!(
        r#"{CHAIN}
[flow.direct]
from = "client"
to = "server"
bytes = "2MB"
[flow.chained]
from = "client"
to = "server"
bytes = "3MB"
via = ["p1", "p2"]
parallel = 3
start = "500ms"
"#
    ))?;
    let record = place.run()?;
    let received: Vec<_> = record.flows.iter().map(|flow| flow.received_bytes).collect();
    ensure(received == [2_000_000, 9_000_000], || format!("received {received:?}"))?;
    ensure(record.flows.iter().all(|flow| flow.outcome == Outcome::Complete), || "not complete".into())?;
    let nominal: Vec<_> = record.paths.iter().map(|path| path.nominal_us.round() as u64 / 1000).collect();
    ensure(nominal == [24, 2, 20, 2], || format!("paths of {nominal:?} ms"))
}

/// The first proxy answers for the receiver, so the sender sees the round trip to that proxy alone.
pub fn taken_as_it_passes() -> Result<(), Failed> {
    let flow = |name: &str, via: &str| {
        format!(
            "[flow.{name}]\nfrom = \"client\"\nto = \"server\"\nbytes = \"2MB\"\nvia = {via}\ntransparent = {}\n",
            via != "[]"
        )
    };
    let flows = [("direct", "[]"), ("chain", r#"["p1", "p2"]"#), ("alone", r#"["p1"]"#)];
    let place = Place::from(&(CHAIN.to_owned() + &flows.map(|(name, via)| flow(name, via)).concat()))?;
    let record = place.run()?;
    let seen: Vec<_> = record.flows.iter().map(|flow| (flow.received_bytes, flow.rtt_min_us)).collect();
    let is_complete = record.flows.iter().all(|flow| flow.outcome == Outcome::Complete);
    ensure(is_complete && seen.iter().all(|(bytes, _)| *bytes == 2_000_000), || format!("{seen:?}"))?;
    let [direct, chain, alone] = [0, 1, 2].map(|at: usize| seen[at].1.unwrap_or_default());
    ensure(direct >= 23_000 && [chain, alone].iter().all(|us| (1_000..20_000).contains(us)), || format!("{seen:?}"))
}
