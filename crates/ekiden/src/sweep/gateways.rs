//! What the gateways of a single run did.

use std::fmt::Write as _;

use ekiden_record::Record;
use ekiden_scenario::Scenario;

/// A line for each gateway that was enabled. None if this ekiden cannot read the scenario any more.
pub fn gateways(record: &Record) -> String {
    let mut text = String::new();
    let Ok(scenario) = Scenario::parse(&record.manifest.scenario, "the record") else { return text };
    for (name, _) in scenario.gateways.iter().filter(|(_, gateway)| gateway.enabled) {
        let its = format!("gateway {name}: ");
        let throttled = |event: &&ekiden_record::Event| event.kind == "throttled" && event.detail.starts_with(&its);
        let times: Vec<u64> = record.events.iter().filter(throttled).map(|event| event.at_us).collect();
        let what = match times[..] {
            [] => "never throttled".into(),
            [at] => format!("throttled once, after {}", seconds(at)),
            [first, .., _] => format!("throttled {} times, first after {}", times.len(), seconds(first)),
        };
        let _ = writeln!(text, "gateway {name}: {what}");
    }
    text
}

fn seconds(us: u64) -> String {
    format!("{:.1} s", us as f64 / 1e6)
}
