//! Flows of files in the lab.

use ekiden_record::{Flow, Outcome, Record};
use libtest_mimic::Failed;

use crate::place::Place;
use crate::{assert_within, ensure};

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
        assert_within(flow.received_bytes as f64, 0.4 * expected, 1.1 * expected)?;
        ensure(flow.retransmits < 10 && flow.rtt_min_us.is_some(), || format!("{flow:?}"))?;
        let last = last_connection(&real, flow).ok_or("no events of the last connections")?;
        // Two at most were under way at the end, and none that had not opened is counted.
        let files = flow.received_bytes / FILE;
        ensure((files..=files + AT_ONCE).contains(&last), || format!("connection {last} after {files} files"))?;
    }
    Ok(())
}

/// A file of a byte does not say whose it is, and yet all are counted.
pub fn tiny() -> Result<(), Failed> {
    let amount = "duration = \"1s\"\nfile = \"1B\"\nparallel = 4";
    let record = Place::new("100Mbit/s", "1ms", "100KB", "", amount)?.run()?;
    let flow = &record.flows[0];
    ensure(flow.outcome == Outcome::Complete, || format!("{flow:?}"))?;
    let last = last_connection(&record, flow).ok_or("no events of the last connections")?;
    let files = flow.received_bytes;
    ensure(files > 50 && (files.saturating_sub(1)..=files + 4).contains(&last), || format!("{last} after {files}"))
}

fn last_connection(record: &Record, flow: &Flow) -> Option<u64> {
    let of_flow = record.events.iter().filter(|event| event.flow.as_ref() == Some(&flow.name));
    of_flow.filter_map(|event| event.connection.map(u64::from)).max()
}
