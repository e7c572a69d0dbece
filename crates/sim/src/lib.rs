//! A scenario in virtual time: every packet of every flow, without a kernel and without waiting.
//!
//! [`simulate`] runs a scenario and returns the same record as the lab. The same scenario gives the same record on every
//! machine. Ends of connections are [`ekiden_tcp::Connection`]s, links are [`ekiden_link::Channel`]s, of which the lab
//! uses the same lines. A node forwards and serves without taking time.
//!
//! Rooms, the lowest first; each uses only those before it. A part holds its own state. It is given a packet or the number of
//! what an event is about, and the time. It returns what follows: packets that leave, when it wants to be called again, what
//! is to be noted. `simulation` alone carries that out.
//!
//! 1. `error`, `options`; `packet`: what travels; `events`: the clock, and what will happen
//! 2. `stack`: the TCP of a node; `socket`: one end of a connection; `sockets`: all of them
//! 3. `network`: lines and routes; `background`; `capture`; `gateway`; `tunnel`
//! 4. `flows`; `queues`; `recorder`: what came out
//! 5. `simulation`: the loop over events

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod background;
mod capture;
mod error;
mod events;
mod flows;
mod gateway;
mod network;
mod options;
mod packet;
mod queues;
mod recorder;
mod simulation;
mod socket;
mod sockets;
mod stack;
mod tunnel;

use ekiden_record::Record;
use ekiden_scenario::Scenario;

use simulation::Simulation;

pub use capture::Capture;
pub use error::Error;
pub use options::{Options, Progress};

/// Runs a scenario to the end of its flows, whether they succeed or not. `progress` is told now and then how far it is.
///
/// # Errors
/// If the scenario wants something that the simulator does not have; before anything runs.
pub fn simulate(scenario: &Scenario, options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Record, Error> {
    run(scenario, options, None, progress)
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
    run(scenario, options, Some(capture), progress)
}

fn run(
    scenario: &Scenario,
    options: &Options,
    capture: Option<&mut Capture>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Record, Error> {
    suits(scenario)?;
    let mut simulation = Simulation::new(scenario, options, capture)?;
    simulation.run(progress);
    Ok(simulation.record())
}

/// Whether the simulator has all that the scenario wants.
///
/// # Errors
/// For the first thing that it does not have.
pub fn suits(scenario: &Scenario) -> Result<(), Error> {
    stack::suits(scenario)
}
