//! A scenario's flows from beginning to end, as a record.

use ekiden_net::processors::Times;
use ekiden_record::{FORMAT, Manifest, Outcome, Record, Series};
use ekiden_scenario::Scenario;

use crate::background::Sources;
use crate::congestion::Tracer;
use crate::flow::{self, Progress};
use crate::pings::Pings;
use crate::{Error, Lab, probe};

/// Probes of each path before the flows start.
const PROBES: u32 = 10;

/// Where a record comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The command line, program first.
    pub command: Vec<String>,
    /// When it was started, in milliseconds since 1970 (UTC).
    pub started_unix_ms: u64,
}

impl Lab {
    /// Measures the idle paths of the scenario's flows, runs the flows, and returns what came out, whether they
    /// succeeded or not: see [`verdict`]. Flows through proxies, tunnels and gateways need [`Lab::start_nodes`] before.
    ///
    /// What is sampled goes to `series`; the record does not say where.
    ///
    /// # Errors
    /// [`Error::Build`] if something could not even start.
    pub fn run(
        &self,
        origin: Origin,
        series: &mut dyn Series,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Record, Error> {
        let mut paths = Vec::new();
        for (from, to) in probe::legs(&self.scenario) {
            paths.push(probe::measure(self, &from, &to, PROBES)?);
        }
        let manifest = manifest(&self.scenario, origin);
        let tracer = Tracer::start(self)?;
        let background = Sources::start(self)?;
        let pings = Pings::start(self)?;
        let before = Times::now();
        // Time zero of the record, for all that is in it.
        let origin_ns = self.begin_ns();
        let origin_us = origin_ns / 1000;
        let mut outcomes = flow::run_all(self, origin_ns, series, progress)?;
        outcomes.events.extend(self.gateway_events(origin_us)?);
        outcomes.events.sort_by_key(|event| event.at_us);
        let waited_percent = self.waited_percent().into_iter().chain(outcomes.waited_percent).max_by(f64::total_cmp);
        let times = Times::now().zip(before).map(|(now, before)| now.since(&before));
        let pings = pings.finish()?.into_iter().map(|pinged| pinged.report).collect();
        drop(background);
        let congestion = tracer.map(|tracer| tracer.finish(origin_us));
        Ok(Record {
            format: FORMAT,
            manifest,
            flows: outcomes.flows,
            paths,
            pings,
            links: self.link_counters(),
            tunnels: self.tunnel_directions()?,
            overlay: self.chosen_paths(origin_us)?,
            stolen_percent: times.map(|times| times.stolen_percent()),
            waited_percent,
            series: None,
            events: outcomes.events,
            congestion,
        })
    }
}

/// Whether every flow of a record is complete; else the first error, differences before failures.
///
/// # Errors
/// [`Error::Differs`] or [`Error::Flow`].
pub fn verdict(record: &Record) -> Result<(), Error> {
    for flow in &record.flows {
        if let Outcome::Differs { connection, at_bytes } = flow.outcome {
            return Err(Error::Differs { flow: flow.name.clone(), connection, at_bytes });
        }
    }
    for flow in &record.flows {
        if let Outcome::Failed { reason } = &flow.outcome {
            return Err(Error::Flow { flow: flow.name.clone(), reason: reason.clone() });
        }
    }
    Ok(())
}

fn manifest(scenario: &Scenario, origin: Origin) -> Manifest {
    Manifest {
        producer: "lab".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        command: origin.command,
        kernel: nix::sys::utsname::uname().ok().map(|name| name.release().to_string_lossy().into_owned()),
        seed: scenario.seed,
        scenario_name: scenario.name.clone(),
        scenario: scenario.to_toml(),
        started_unix_ms: origin.started_unix_ms,
        resolution_us: None,
    }
}
