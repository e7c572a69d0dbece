//! The TCP of a node: the engine's settings that follow from a scenario.

use std::sync::Arc;

use ekiden_congestion::{CongestionControl, Tunables, control, linux_control};
use ekiden_scenario::{Profile, Scenario, Tcp};
use ekiden_tcp::TcpSettings;
use ekiden_units::Bytes;

use crate::error::Error;

/// IPv4 and TCP headers without options.
const HEADERS: u32 = 40;

/// Whether the simulator has the congestion controls of all nodes and tunnels.
pub(crate) fn check_supported(scenario: &Scenario) -> Result<(), Error> {
    let tunables = Arc::new(scenario.tunables());
    let nodes = scenario.nodes.iter().map(|(name, node)| (format!("node.{name}"), &node.tcp));
    let tunnels = scenario.tunnels.iter().map(|(name, tunnel)| (format!("tunnel.{name}"), &tunnel.tcp));
    match nodes.chain(tunnels).find(|(_, tcp)| control(&tcp.congestion, &tunables).is_none()) {
        Some((whose, tcp)) => Err(Error::Congestion { whose, name: tcp.congestion.clone() }),
        None => Ok(()),
    }
}

/// Payload of the largest GSO segment, which Linux keeps and sends as one: `gso_max_size` as the lab sets it (an eighth of the
/// buffer, 4 to 64 KiB), less room for headers (`MAX_TCP_HEADER`), in full segments (`tcp_xmit_size_goal`).
fn gso_payload(send_buffer: u64, mss: u64, timestamps: bool) -> u64 {
    const ROOM_FOR_HEADERS: u64 = 321;
    const TIMESTAMPS: u64 = 12;
    let segment = mss.saturating_sub(if timestamps { TIMESTAMPS } else { 0 }).max(1);
    let most = (send_buffer / 8).clamp(4_096, 65_536) - ROOM_FOR_HEADERS;
    (most / segment).max(1) * segment
}

/// The TCP of one end of a connection.
#[derive(Clone)]
pub(crate) struct Stack {
    pub settings: TcpSettings,
    congestion: String,
    /// Whether what the kernel has of its own is the kernel's.
    is_linux: bool,
    tunables: Arc<Tunables>,
}

impl Stack {
    /// `mtu` is the least on the path.
    pub fn new(tcp: &Tcp, mtu: u32, tunables: &Arc<Tunables>) -> Self {
        let mut settings = match tcp.profile {
            Profile::Linux => TcpSettings::linux(),
            Profile::Rfc => TcpSettings::rfc(),
            Profile::Ns2 => TcpSettings::ns2(),
            Profile::Ns2Bitcp => TcpSettings::ns2_bitcp(),
            Profile::Ns2Linux => TcpSettings::ns2_linux(),
            Profile::Opnet => TcpSettings::opnet(),
        };
        settings.mss = mtu.saturating_sub(HEADERS);
        settings.send_buffer = tcp.send_buffer.0;
        if tcp.profile == Profile::Linux {
            settings.send_piece = gso_payload(tcp.send_buffer.0, u64::from(settings.mss), tcp.timestamps);
        }
        settings.receive_buffer = tcp.receive_buffer.0;
        settings.sack = tcp.sack;
        settings.timestamps = tcp.timestamps;
        settings.window_scaling = tcp.window_scaling;
        settings.initial_window = tcp.initial_window.unwrap_or(settings.initial_window);
        let segments =
            |bytes: Bytes| u32::try_from(bytes.0 / u64::from(settings.mss.max(1))).unwrap_or(u32::MAX).max(2);
        settings.initial_ssthresh = tcp.initial_ssthresh.map(segments);
        settings.rto.least = tcp.rto_min.unwrap_or(settings.rto.least);
        settings.rtt_per_window = tcp.rtt_per_window.unwrap_or(settings.rtt_per_window);
        let is_linux = matches!(tcp.profile, Profile::Linux | Profile::Ns2Linux);
        Self { settings, congestion: tcp.congestion.clone(), is_linux, tunables: Arc::clone(tunables) }
    }

    /// The congestion control of a new connection.
    pub fn control(&self) -> Box<dyn CongestionControl + Send> {
        let control = if self.is_linux { linux_control } else { control };
        control(&self.congestion, &self.tunables).expect("the name is known: see `check_supported`")
    }
}
