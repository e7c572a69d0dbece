//! What links do to packets, in the lab.

use ekiden_record::Outcome;
use libtest_mimic::Failed;

use super::place::Place;
use super::{assert_within, ensure};

pub fn policer() -> Result<(), Failed> {
    let loss = "0\"\npolicer.rate = \"8Mbit/s";
    let record = Place::with_loss("100Mbit/s", "1ms", "100KB", "", "bytes = \"4MB\"", loss)?.run()?;
    let (line, flow) = (&record.links[0], &record.flows[0]);
    ensure(line.policer_drops > 0 && flow.received_bytes == 4_000_000, || format!("{line:?}"))?;
    assert_within(flow.received_bytes as f64 * 8.0 / flow.duration_us as f64, 0.0, 8.0)
}

/// Losses of each packet alone would be some 28; runs of 100,000 begin too seldom for these packets.
pub fn bursts() -> Result<(), Failed> {
    let record =
        Place::with_loss("50Mbit/s", "1ms", "1MB", "", "bytes = \"4MB\"", "1%\"\nloss_burst = 100000 #\"")?.run()?;
    let (lost, received) = (record.links[0].random_losses, record.flows[0].received_bytes);
    ensure(lost == 0 && received == 4_000_000, || format!("{lost} packets lost, {received} bytes received"))
}

/// 20 Mbit/s for a second, 4 for the next one, then an outage until 2.6 s; what comes back takes 40 ms, what goes there 5.
pub fn schedule() -> Result<(), Failed> {
    let line = "0\"\nback.delay = \"40ms\"\nchanges = [{ at = \"1s\", rate = \"4Mbit/s\" }]\n\
        outages = [{ at = \"2s\", lasts = \"600ms\" }] #\"";
    let record = Place::with_loss("20Mbit/s", "5ms", "100KB", "", "duration = \"2500ms\"", line)?.run()?;
    let (forth, flow) = (&record.links[0], &record.flows[0]);
    ensure(forth.outage_losses > 0, || format!("{forth:?}"))?;
    assert_within(record.paths[0].p50_us.unwrap_or_default(), 45_000.0, 60_000.0)?;
    // 20 + 4 Mbit, less headers and what a slow start and losses take.
    assert_within(flow.received_bytes as f64 * 8.0 / 1e6, 12.0, 24.0)?;
    // In a shell it begins with the program: curl finds nobody there (7) before, and nothing during the outage (28).
    let line = "0\"\noutages = [{ at = \"0s\", lasts = \"1h\" }] #\"";
    for (line, code) in [(line, 28), ("0", 7)] {
        let place = Place::with_loss("20Mbit/s", "5ms", "100KB", "", "bytes = \"1KB\"", line)?;
        let output = place.shell(&["curl", "-s", "--connect-timeout", "2", "http://10.77.0.2:1/"]).output()?;
        ensure(output.status.code() == Some(code), || format!("{line}: {output:?}"))?;
    }
    Ok(())
}

/// If all are late there and back, so is every probe; if some are, all arrive.
pub fn reorder() -> Result<(), Failed> {
    let all = "0\"\nreorder = \"100%\"\nreorder_by = \"20ms";
    let record = Place::with_loss("50Mbit/s", "5ms", "1MB", "", "bytes = \"1KB\"", all)?.run()?;
    assert_within(record.paths[0].p50_us.unwrap_or_default(), 50_000.0, 65_000.0)?;
    let line = "0\"\nreorder = \"3%\"\nreorder_by = \"4ms";
    let record = Place::with_loss("50Mbit/s", "5ms", "1MB", "", "bytes = \"8MB\"", line)?.run()?;
    let (line, flow) = (&record.links[0], &record.flows[0]);
    ensure(line.random_losses == 0 && flow.received_bytes == 8_000_000, || format!("{line:?} {flow:?}"))
}

/// More than std's listeners let wait (128), and than a host opens at once.
pub fn many_at_once() -> Result<(), Failed> {
    let record = Place::new("1Gbit/s", "1ms", "10MB", "", "bytes = \"1KB\"\nparallel = 600")?.run()?;
    let flow = &record.flows[0];
    ensure(flow.outcome == Outcome::Complete && flow.received_bytes == 600_000, || format!("{flow:?}"))
}
