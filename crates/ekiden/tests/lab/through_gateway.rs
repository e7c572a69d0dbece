//! Flows of a lab that pass a gateway.

use ekiden_record::Outcome;
use libtest_mimic::Failed;

use super::ensure;
use super::place::Place;

const SCENARIO: &str = r#"
name = "balanced"
[tcp]
congestion = "reno"
[node.sender]
[node.entrance]
kind = "router"
[node.exit]
kind = "router"
[node.receiver]
[link.access]
ends = ["sender", "entrance"]
rate = "200Mbit/s"
queue = "1MB"
[link.bottleneck]
ends = ["entrance", "exit"]
rate = "20Mbit/s"
delay = "20ms"
queue = "40 packets"
[link.exit]
ends = ["exit", "receiver"]
rate = "200Mbit/s"
queue = "1MB"
[flow.bulk]
from = "sender"
to = "receiver"
bytes = "2MB"
parallel = 4
[flow.alone]
from = "sender"
to = "receiver"
bytes = "1MB"
start = "1s"
[gateway.balance]
node = "entrance"
flows = ["bulk"]
"#;

/// Slow starts overshoot a short queue: the gateway finds that in one of the streams of its flow, and no other.
pub fn balanced() -> Result<(), Failed> {
    let place = Place::from(SCENARIO)?;
    let record = place.run()?;
    ensure(record.flows.iter().all(|flow| flow.outcome == Outcome::Complete), || "not complete".into())?;
    let throttled: Vec<_> = record.events.iter().filter(|event| event.kind == "throttled").collect();
    ensure(!throttled.is_empty(), || format!("{:?}", record.events))?;
    let is_of_bulk = |event: &&ekiden_record::Event| event.flow.as_deref() == Some("bulk");
    ensure(throttled.iter().all(is_of_bulk), || format!("{throttled:?}"))?;
    ensure(throttled[0].at_us < 2_000_000, || format!("{throttled:?}"))?;
    // What it did is shown; the lab tells streams by their addresses.
    ensure(throttled[0].connection.is_none() && throttled[0].detail.contains(" to "), || format!("{throttled:?}"))?;
    let shown = place.ekiden().args(["record", "show"]).arg(place.record_file()).output()?;
    let shown = String::from_utf8_lossy(&shown.stdout);
    ensure(shown.contains("\ngateway balance: throttled "), || shown.to_string())
}
