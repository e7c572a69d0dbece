//! What came out, as a record.

use ekiden_record::{FORMAT, Flow, Manifest, Outcome, Path, Record, Sample};
use ekiden_scenario::Scenario;
use ekiden_tcp::Info;
use ekiden_units::Time;

use crate::Options;
use crate::simulation::Simulation;
use crate::socket::Program;

impl Simulation<'_> {
    /// Notes the state of every sender that is connected.
    pub(crate) fn sample(&mut self) {
        self.sample_tunnels();
        let at_us = self.events.now().0 / 1000;
        for (number, flow) in self.flows.iter().enumerate() {
            let Some((name, _)) = self.scenario.flows.get_index(number) else { continue };
            if flow.outcome.is_some() {
                continue;
            }
            for (connection, (source, sink)) in flow.sources.iter().zip(&flow.sinks).enumerate() {
                let Some(info) = self.sockets[*source as usize].connection.as_ref().map(|c| c.info()) else { continue };
                let Program::Sink { received, .. } = self.sockets[*sink as usize].program else { continue };
                self.samples.push(sample(
                    at_us,
                    name,
                    connection as u32,
                    received,
                    &info,
                    self.events.now(),
                    flow.start,
                ));
            }
        }
    }

    /// The record of the run, which is over.
    pub(crate) fn record(mut self, options: &Options) -> Record {
        // The last notes hold all that was dropped.
        self.note_queues();
        let flows = (0..self.flows.len()).filter_map(|number| self.flow(number)).collect();
        let links = self.network.report(self.scenario);
        let tunnels = self.report_tunnels();
        let mut events = self.noted;
        events.extend(self.network.gateways().iter().flat_map(|gateway| gateway.noted.iter().cloned()));
        events.sort_by_key(|event| event.at_us);
        Record {
            format: FORMAT,
            manifest: Manifest {
                producer: "simulate".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                command: options.command.clone(),
                kernel: None,
                seed: self.scenario.seed,
                scenario_name: self.scenario.name.clone(),
                scenario: self.scenario.to_toml(),
                started_unix_ms: options.started_unix_ms,
                resolution_us: Some(options.resolution.0 / 1000),
            },
            flows,
            paths: paths(self.scenario),
            links,
            tunnels,
            stolen_percent: None,
            samples: self.samples,
            queues: self.queues.samples,
            events,
            congestion: None,
        }
    }

    fn flow(&self, number: usize) -> Option<Flow> {
        let (name, described) = self.scenario.flows.get_index(number)?;
        let flow = &self.flows[number];
        let infos: Vec<_> = flow
            .sources
            .iter()
            .filter_map(|source| Some(self.sockets[*source as usize].connection.as_ref()?.info()))
            .collect();
        let duration = flow.last_arrival.since(flow.start);
        let goodput = (u128::from(flow.received) * 8_000_000_000).checked_div(duration.0.into()).unwrap_or_default();
        let of_flow = self.samples.iter().filter(|sample| sample.flow == *name);
        Some(Flow {
            name: name.clone(),
            from: described.from.clone(),
            to: described.to.clone(),
            via: described.via.clone(),
            outcome: flow
                .outcome
                .clone()
                .unwrap_or(Outcome::Failed { reason: "the simulation ended before it".into() }),
            received_bytes: flow.received,
            duration_us: duration.0 / 1000,
            goodput_bit_s: u64::try_from(goodput).unwrap_or(u64::MAX),
            retransmits: infos.iter().map(|info| info.retransmits).sum(),
            rtt_min_us: infos.iter().filter_map(|info| info.rtt_min).min().map(|rtt| rtt.0 / 1000),
            rtt_max_us: of_flow.map(|sample| sample.rtt_us).max(),
        })
    }
}

fn sample(at_us: u64, flow: &str, connection: u32, received_bytes: u64, info: &Info, now: Time, start: Time) -> Sample {
    let passed = now.since(start).0.max(1);
    Sample {
        at_us,
        flow: flow.into(),
        connection,
        received_bytes,
        acked_bytes: info.acked_bytes,
        cwnd_segments: info.cwnd,
        ssthresh_segments: info.ssthresh,
        unacked_segments: info.outstanding,
        window_bytes: info.window,
        rtt_us: info.rtt.map_or(0, |rtt| rtt.0 / 1000),
        rtt_min_us: info.rtt_min.map_or(0, |rtt| rtt.0 / 1000),
        retransmits: info.retransmits,
        delivery_bit_s: (u128::from(info.acked_bytes) * 8_000_000_000 / u128::from(passed)) as u64,
    }
}

/// The legs of all flows, each once, with what the scenario says of them.
fn paths(scenario: &Scenario) -> Vec<Path> {
    let mut paths: Vec<Path> = Vec::new();
    for flow in scenario.flows.values() {
        let stations: Vec<_> = [&flow.from].into_iter().chain(&flow.via).chain([&flow.to]).collect();
        for leg in stations.windows(2) {
            if paths.iter().any(|path| path.from == *leg[0] && path.to == *leg[1]) {
                continue;
            }
            let nominal = scenario.base_rtt(leg[0], leg[1]).unwrap_or_default();
            paths.push(Path {
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
