//! How long runs take.

use std::time::Duration;

use ekiden_sweep::{Plan, Run};

use crate::engine::Engine;

/// What the simulator takes for a full packet of the slowest link, over some three links, in seconds: 120 s of 70 Mbit/s take 1.5 s on the
/// machine of docs/measurements.
const PACKET_S: f64 = 2e-6;
const PACKET_BITS: f64 = 1400.0 * 8.0;

/// How long a run is expected to take, if its flows fill the slowest link.
pub fn expected(engine: Engine, plan: &Plan, run: &Run) -> Duration {
    match engine {
        Engine::Kernel => run.expected,
        Engine::Simulator => {
            let links = plan.scenarios[run.point].links.values().flat_map(|link| [&link.forth, &link.back]);
            let slowest = links.map(|direction| direction.carried().0).min().unwrap_or_default();
            let packets = run.expected.as_secs_f64() * slowest as f64 / PACKET_BITS;
            Duration::from_secs_f64((packets * PACKET_S).max(0.01))
        }
    }
}
