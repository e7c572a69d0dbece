//! Flows of files in the lab.

use ekiden_record::{Flow, Outcome, Record};
use libtest_mimic::Failed;

use super::place::Place;
use super::{assert_within, ensure};

const FILE: u64 = 20_000;
const AT_ONCE: u64 = 2;

/// Each file goes over a connection of its own, two at once, directly and over a proxy: as many as in a simulation.
pub fn one_after_another() -> Result<(), Failed> {
    let place = Place::from(&format!(
        r#"
name = "files"
[node.client]
[node.p]
kind = "proxy"
[node.server]
[link.near]
ends = ["client", "p"]
rate = "100Mbit/s"
delay = "5ms"
queue = "200KB"
[link.far]
ends = ["p", "server"]
rate = "100Mbit/s"
delay = "5ms"
queue = "200KB"
[flow.direct]
from = "client"
to = "server"
duration = "3s"
file = "{FILE}B"
parallel = {AT_ONCE}
[flow.chained]
from = "client"
to = "server"
via = ["p"]
duration = "3s"
file = "{FILE}B"
parallel = {AT_ONCE}
"#
    ))?;
    let simulated = place.directory.path().join("simulated.json");
    let output = place.ekiden().arg("simulate").arg(&place.scenario).arg("--record").arg(&simulated).output()?;
    ensure(output.status.success(), || String::from_utf8_lossy(&output.stderr).into())?;
    let (real, simulated) = (place.run()?, Record::read(&simulated)?);
    for (flow, simulated) in real.flows.iter().zip(&simulated.flows) {
        ensure(flow.outcome == Outcome::Complete, || format!("{flow:?}"))?;
        // A busy machine is slower. It cannot be faster.
        let expected = simulated.received_bytes as f64;
        assert_within(flow.received_bytes as f64, 0.2 * expected, 1.1 * expected)?;
        ensure(flow.rtt_min_us.is_some_and(|rtt| rtt >= 9_000), || format!("{flow:?}"))?;
        // Two at most were under way at the end, and none that had not opened is counted.
        let (files, opened) = (flow.received_bytes / FILE, opened(&real, flow)?);
        ensure((files..=files + AT_ONCE).contains(&opened), || format!("{files} files on {opened} connections"))?;
    }
    Ok(())
}

/// A file of a byte does not say whose it is, and yet all are counted.
pub fn tiny() -> Result<(), Failed> {
    let amount = "duration = \"1s\"\nfile = \"1B\"\nparallel = 4";
    let record = Place::new("100Mbit/s", "1ms", "100KB", "", amount)?.run()?;
    let flow = &record.flows[0];
    ensure(flow.outcome == Outcome::Complete, || format!("{flow:?}"))?;
    let (files, opened) = (flow.received_bytes, opened(&record, flow)?);
    ensure(files > 50 && (files..=files + 4).contains(&opened), || format!("{files} files on {opened} connections"))
}

/// How many connections a flow has had, by the number of the last one that it still had at the end.
fn opened(record: &Record, flow: &Flow) -> Result<u64, Failed> {
    let of_flow = record.events.iter().filter(|event| event.flow.as_ref() == Some(&flow.name));
    let last = of_flow.filter_map(|event| event.connection).max().ok_or("no events of the last connections")?;
    Ok(u64::from(last) + 1)
}
