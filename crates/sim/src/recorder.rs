//! Events of a run, what its queues were, and the record made of it.

use ekiden_record::{
    Chosen, Event as Noted, FORMAT, Flow, LinkDirection, Manifest, PathDelay, Ping, Record, TunnelDirection,
};
use ekiden_scenario::Scenario;

use crate::options::Options;
use crate::queues::Queues;

/// What was noted so far.
pub(crate) struct Recorder {
    pub queues: Queues,
    pub events: Vec<Noted>,
}

/// The parts' reports at the end of the run.
pub(crate) struct Reports {
    pub flows: Vec<Flow>,
    pub links: Vec<LinkDirection>,
    pub tunnels: Vec<TunnelDirection>,
    pub pings: Vec<Ping>,
    pub overlay: Vec<Chosen>,
}

impl Recorder {
    pub fn new(scenario: &Scenario) -> Self {
        Self { queues: Queues::new(scenario), events: Vec::new() }
    }

    /// The record of the run, which is over.
    pub fn record(mut self, scenario: &Scenario, options: &Options, reports: Reports) -> Record {
        let Reports { flows, links, tunnels, pings, overlay } = reports;
        self.events.sort_by_key(|event| event.at_us);
        Record {
            format: FORMAT,
            manifest: Manifest {
                producer: "simulate".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                command: options.command.clone(),
                kernel: None,
                seed: scenario.seed,
                scenario_name: scenario.name.clone(),
                scenario: scenario.to_toml(),
                started_unix_ms: options.started_unix_ms,
                resolution_us: Some(options.resolution.0 / 1000),
            },
            flows,
            paths: paths(scenario),
            pings,
            links,
            tunnels,
            stolen_percent: None,
            waited_percent: None,
            series: None,
            events: self.events,
            congestion: None,
            overlay,
        }
    }
}

/// The legs of all flows, each once, with what the scenario says of them.
fn paths(scenario: &Scenario) -> Vec<PathDelay> {
    let mut paths: Vec<PathDelay> = Vec::new();
    for flow in scenario.flows.values() {
        let stations: Vec<_> = [&flow.from].into_iter().chain(&flow.via).chain([&flow.to]).collect();
        for leg in stations.windows(2) {
            if paths.iter().any(|path| path.from == *leg[0] && path.to == *leg[1]) {
                continue;
            }
            let nominal = scenario.base_rtt(leg[0], leg[1]).unwrap_or_default();
            paths.push(PathDelay {
                from: leg[0].clone(),
                to: leg[1].clone(),
                nominal_us: nominal.0 as f64 / 1e3,
                probes: 0,
                lost: 0,
                p50_us: None,
                p99_us: None,
                max_us: None,
            });
        }
    }
    paths
}
