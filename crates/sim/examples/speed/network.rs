//! Whole simulations: what an event costs.

use std::time::{Duration, Instant};

use ekiden_record::Kept;
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, Progress, simulate};

/// Bytes of payload that one connection moves: enough for the start not to count.
const BYTES: u64 = 1_000_000_000;

/// What a simulation took.
pub struct Run {
    pub events: u64,
    /// Processor time.
    pub used: Duration,
    pub wall: Duration,
    pub virtual_s: f64,
}

impl Run {
    fn ns_per_event(&self) -> f64 {
        self.used.as_nanos() as f64 / self.events as f64
    }
}

/// Runs a scenario.
pub fn run(scenario: &Scenario) -> Run {
    let mut last = None;
    let (begun, used) = (Instant::now(), crate::used());
    simulate(scenario, &Options::default(), &mut Kept::default(), &mut |progress| last = Some(progress))
        .expect("the scenario suits");
    let (wall, used) = (begun.elapsed(), crate::used() - used);
    let Progress { now, events, .. } = last.expect("progress is told at the end");
    Run { events, used, wall, virtual_s: now.as_secs() }
}

/// Nanoseconds per event, when this many connections share a line for ten seconds.
pub fn connections(count: u32) -> f64 {
    let text = format!(
        "name = 't'\n[tcp]\ncongestion = 'cubic'\n[node.a]\n[node.r]\nkind = 'router'\n[node.b]\n\
         [link.near]\nends = ['a', 'r']\nrate = '10Gbit/s'\n\
         [link.far]\nends = ['r', 'b']\nrate = '1Gbit/s'\ndelay = '20ms'\nqueue = '5MB'\n\
         [flow.f]\nfrom = 'a'\nto = 'b'\nparallel = {count}\nduration = '10s'\n"
    );
    run(&Scenario::parse(&text, "t.toml").expect("the scenario is valid")).ns_per_event()
}

/// Nanoseconds per event, when one connection keeps this many packets in flight; with loss, as long as its congestion
/// control lets it.
pub fn in_flight(packets: u32, loss: &str, sack: bool) -> f64 {
    // 10 Gbit/s and 1500 bytes: 1200 ns for each packet.
    let delay_us = u64::from(packets) * 1200 / 2000;
    let window = u64::from(packets) * 1460;
    let text = format!(
        "name = 't'\n[tcp]\ncongestion = 'ekiden_hstcp'\ntimestamps = false\nsack = {sack}\nsend_buffer = '{window}B'\n\
         receive_buffer = '{window}B'\n[node.a]\n[node.b]\n\
         [link.l]\nends = ['a', 'b']\nrate = '10Gbit/s'\ndelay = '{delay_us}us'\nqueue = '1GB'\nloss = '{loss}'\n\
         [flow.f]\nfrom = 'a'\nto = 'b'\nbytes = '{BYTES}B'\n"
    );
    let mut scenario = Scenario::parse(&text, "t.toml").expect("the scenario is valid");
    for node in scenario.nodes.values_mut() {
        node.tcp.initial_window = Some(packets);
    }
    run(&scenario).ns_per_event()
}
