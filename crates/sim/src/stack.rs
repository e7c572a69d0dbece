//! The TCP of a node: from a scenario's words to the engine's settings.

use std::sync::Arc;

use ekiden_congestion::{CongestionControl, Settings as Parameters, Tunables, choice, control};
use ekiden_scenario::{Profile, Scenario, Tcp};
use ekiden_tcp::Settings;

use crate::Error;

/// IPv4 and TCP headers without options.
const HEADERS: u32 = 40;

/// The parameters of ekiden's congestion controls.
pub(crate) fn parameters() -> Result<Arc<Tunables>, Error> {
    let tunables = Tunables::new(&Parameters::default()).map_err(|error| Error::Parameters(error.to_string()))?;
    Ok(Arc::new(tunables))
}

/// Whether the congestion controls of all nodes and tunnels are there.
pub(crate) fn suits(scenario: &Scenario) -> Result<(), Error> {
    let tunables = parameters()?;
    let nodes = scenario.nodes.iter().map(|(name, node)| (format!("node.{name}"), &node.tcp));
    let tunnels = scenario.tunnels.iter().map(|(name, tunnel)| (format!("tunnel.{name}"), &tunnel.tcp));
    match nodes.chain(tunnels).find(|(_, tcp)| !tcp.is_auto() && control(&tcp.congestion, &tunables).is_none()) {
        Some((whose, tcp)) => Err(Error::Congestion { whose, name: tcp.congestion.clone() }),
        None => Ok(()),
    }
}

/// The TCP of one end of a connection.
#[derive(Clone)]
pub(crate) struct Stack {
    pub settings: Settings,
    /// Whether its congestion control is chosen by what its path shows.
    pub is_auto: bool,
    congestion: String,
    tunables: Arc<Tunables>,
}

impl Stack {
    /// `mtu` is the least on the way.
    pub fn new(tcp: &Tcp, mtu: u32, tunables: &Arc<Tunables>) -> Self {
        let mut settings = match tcp.profile {
            Profile::Linux => Settings::linux(),
            Profile::Rfc => Settings::rfc(),
            Profile::Ns2 => Settings::ns2(),
            Profile::Opnet => Settings::opnet(),
        };
        settings.mss = mtu.saturating_sub(HEADERS);
        settings.send_buffer = tcp.send_buffer.0;
        settings.receive_buffer = tcp.receive_buffer.0;
        settings.sack = tcp.sack;
        settings.timestamps = tcp.timestamps;
        settings.window_scaling = tcp.window_scaling;
        settings.initial_window = tcp.initial_window.unwrap_or(settings.initial_window);
        settings.rto.least = tcp.rto_min.unwrap_or(settings.rto.least);
        settings.rtt_per_window = tcp.rtt_per_window;
        let congestion = if tcp.is_auto() { choice::CAREFUL.name().into() } else { tcp.congestion.clone() };
        Self { settings, is_auto: tcp.is_auto(), congestion, tunables: Arc::clone(tunables) }
    }

    /// The congestion control of a new connection.
    pub fn control(&self) -> Box<dyn CongestionControl + Send> {
        self.control_of(&self.congestion)
    }

    /// The same, of this name.
    pub fn control_of(&self, name: &str) -> Box<dyn CongestionControl + Send> {
        control(name, &self.tunables).expect("the name is known: see `suits`")
    }
}
