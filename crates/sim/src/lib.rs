//! A scenario in virtual time: every packet of every flow, without a kernel and without waiting.
//!
//! [`simulate`] runs a scenario and returns the same record as the lab. The same scenario gives the same record on every
//! machine. Ends of connections are [`ekiden_tcp::Connection`]s. Links are [`ekiden_link::Channel`]s, built from the same
//! [`ekiden_link::Line`] as the lab's. A node forwards and serves in zero time.
//!
//! Modules, the lowest first; each uses only those before it. Each holds its own state. It is called with the time and a packet
//! or the number of an event's subject. It returns what follows: packets to send, the time of the next call, events for the
//! record. `simulation` alone carries these out.
//!
//! 1. `error`, `options`; `packet`: what travels; `events`: the clock and the event queue
//! 2. `stack`: the TCP of a node; `socket`: one end of a connection; `sockets`: all of them
//! 3. `network`: lines and routes; `background`; `capture`; `gateway`; `tunnel`; `overlay`: nodes that choose paths; `shares`: proxies whose
//!    streams share legs in an order
//! 4. `flows`; `queues`; `recorder`: what came out
//! 5. `simulation`: the loop over events

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod background;
mod capture;
mod error;
mod events;
mod flows;
mod gateway;
mod ingress;
mod network;
mod options;
mod overlay;
mod pacer;
mod packet;
mod pings;
mod queues;
mod recorder;
mod shares;
mod simulation;
mod socket;
mod sockets;
mod stack;
mod tunnel;

use ekiden_record::{Record, Series};
use ekiden_scenario::Scenario;

use simulation::Simulation;

pub use capture::Capture;
pub use error::Error;
pub use options::{Options, Progress};

/// Runs a scenario to the end of its flows, whether they succeed or not. What is sampled goes to `series`; the record does not
/// say where. Calls `progress` now and then.
///
/// # Errors
/// As [`check_supported`], before anything runs.
pub fn simulate(
    scenario: &Scenario,
    options: &Options,
    series: &mut dyn Series,
    progress: &mut dyn FnMut(Progress),
) -> Result<Record, Error> {
    run(scenario, options, series, None, progress)
}

/// As [`simulate`], and writes all packets to `capture`, which was made for this scenario. The record is the same.
///
/// # Errors
/// As [`simulate`]. [`Capture::finish`] returns errors of the files.
pub fn simulate_captured(
    scenario: &Scenario,
    options: &Options,
    series: &mut dyn Series,
    capture: &mut Capture,
    progress: &mut dyn FnMut(Progress),
) -> Result<Record, Error> {
    run(scenario, options, series, Some(capture), progress)
}

fn run(
    scenario: &Scenario,
    options: &Options,
    series: &mut dyn Series,
    capture: Option<&mut Capture>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Record, Error> {
    check_supported(scenario)?;
    let mut simulation = Simulation::new(scenario, options, series, capture);
    simulation.run(progress);
    Ok(simulation.record())
}

/// Checks that the simulator has everything that the scenario asks for.
///
/// # Errors
/// For the first thing that it lacks.
pub fn check_supported(scenario: &Scenario) -> Result<(), Error> {
    stack::check_supported(scenario)
}
