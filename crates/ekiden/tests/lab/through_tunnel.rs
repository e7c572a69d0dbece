//! A scenario's tunnel in the lab.

use ekiden_record::Outcome;
use libtest_mimic::Failed;

use super::place::Place;

/// TCP and what is not TCP have a connection each.
pub fn whole() -> Result<(), Failed> {
    let place = Place::from(
        r#"
name = "tunnel"
[node.client]
[node.in]
kind = "router"
[node.out]
kind = "router"
[node.server]
[link.near]
ends = ["client", "in"]
rate = "100Mbit/s"
[link.far]
ends = ["in", "out"]
rate = "20Mbit/s"
delay = "10ms"
queue = "100KB"
[link.there]
ends = ["out", "server"]
rate = "100Mbit/s"
[tunnel.t]
ends = ["in", "out"]
discipline = "fq_codel"
separate = true
[flow.f]
from = "client"
to = "server"
bytes = "3MB"
[background.udp]
from = "client"
to = "server"
rate = "1Mbit/s"
[ping.p]
from = "client"
to = "server"
interval = "20ms"
"#,
    )?;
    let record = place.run()?;
    let complete = record.flows.iter().all(|flow| flow.outcome == Outcome::Complete);
    let [ping] = &record.pings[..] else { return Err("no ping".into()) };
    // Two connections, two directions each.
    let forth: Vec<_> = record.tunnels.iter().filter(|direction| direction.from == "in").collect();
    let bytes: Vec<_> = forth.iter().map(|direction| direction.bytes).collect();
    let tcp = forth.iter().filter(|direction| direction.bytes > 3_000_000).count();
    if complete
        && record.tunnels.len() == 4
        && tcp == 1
        && forth.iter().all(|direction| direction.packets > 10)
        && ping.sent > 10
    {
        return Ok(());
    }
    Err(format!("complete: {complete}; bytes by connection: {bytes:?}; {ping:?}").into())
}
