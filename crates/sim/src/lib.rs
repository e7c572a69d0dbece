//! A scenario in virtual time: every packet of every flow, without a kernel and without waiting.
//!
//! [`simulate`] runs a scenario and returns the same record as the lab. The same scenario gives the same record on every
//! machine. Ends of connections are [`ekiden_tcp::Connection`]s, links are [`ekiden_link::Channel`]s, of which the lab
//! uses the same lines. A node forwards and serves without taking time.

mod background;
mod capture;
mod events;
mod gateway;
mod network;
mod queues;
mod recorder;
mod simulation;
mod socket;
mod stack;
mod tunnel;

use ekiden_record::Record;
use ekiden_scenario::Scenario;
use ekiden_units::Time;

use simulation::Simulation;

pub use capture::Capture;

/// What a run is to note, and what its record says of where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How often the state of senders and queues is noted.
    pub resolution: Time,
    /// The command line that the record names.
    pub command: Vec<String>,
    /// When it was started, in milliseconds since 1970.
    pub started_unix_ms: u64,
}

impl Default for Options {
    /// Ten samples a second, as in the lab.
    fn default() -> Self {
        Self { resolution: Time::ms(100), command: Vec::new(), started_unix_ms: 0 }
    }
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time.
    pub now: Time,
    /// Events that have happened.
    pub events: u64,
    /// Bytes that have arrived, over all flows.
    pub received_bytes: u64,
}

/// Why a scenario cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such congestion control here.
    #[error(
        "{whose}.tcp.congestion: the simulator has no '{name}'; it has reno, cubic, ekiden_hstcp, ekiden_ghstcp, ekiden_bic"
    )]
    Congestion {
        /// A node or a tunnel, such as `node.island`.
        whose: String,
        /// What it asks for.
        name: String,
    },
    /// The congestion controls' parameters do not fit together.
    #[error("{0}")]
    Parameters(String),
}

/// Runs a scenario to the end of its flows, whether they succeed or not. `progress` is told now and then how far it is.
///
/// # Errors
/// If the scenario wants something that the simulator does not have; before anything runs.
pub fn simulate(scenario: &Scenario, options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Record, Error> {
    suits(scenario)?;
    let mut simulation = Simulation::new(scenario, options)?;
    simulation.run(progress);
    Ok(simulation.record(options))
}

/// As [`simulate`], with the packets that pass written down in `capture`, which was made for this scenario. The record is the
/// same.
///
/// # Errors
/// As [`simulate`]. What goes wrong with the files, [`Capture::finish`] says.
pub fn simulate_captured(
    scenario: &Scenario,
    options: &Options,
    capture: &mut Capture,
    progress: &mut dyn FnMut(Progress),
) -> Result<Record, Error> {
    suits(scenario)?;
    let mut simulation = Simulation::new(scenario, options)?;
    capture.know(&simulation.sockets);
    simulation.network.capture = Some(std::mem::take(capture));
    simulation.run(progress);
    *capture = simulation.network.capture.take().unwrap_or_default();
    Ok(simulation.record(options))
}

/// Whether the simulator has all that the scenario wants.
///
/// # Errors
/// For the first thing that it does not have.
pub fn suits(scenario: &Scenario) -> Result<(), Error> {
    stack::suits(scenario)
}
