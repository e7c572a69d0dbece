//! The TCP of a node: the engine's settings that follow from a scenario.
//!
//! The profile decides whose `cubic` a name means: Linux's or the RFC's.

use std::sync::Arc;

use ekiden_congestion::{CongestionControl, PathMemory, Tunables, control, linux_control};
use ekiden_scenario::{Profile, Scenario, Tcp};
use ekiden_tcp::TcpSettings;
use ekiden_units::{Bytes, Time};

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

/// The most that a program takes to run after it was woken, under `linux`: an assumption, with which small send buffers carry what
/// they carry in the lab (docs/measurements/fidelity.md).
const WAKE_UP: Time = Time(400_000);

/// Payload that Linux holds in a send buffer: how much in one GSO segment, in full segments (`tcp_xmit_size_goal`, less room for
/// headers, `MAX_TCP_HEADER`), and how much in all when it begins no other. It limits memory, of which each GSO segment needs
/// some for itself: 832 bytes (Linux 6.18, `skmem` of ss).
fn send_space(tcp: &Tcp, mss: u32) -> (u64, u64) {
    const ROOM_FOR_HEADERS: u32 = 321;
    const TIMESTAMPS: u32 = 12;
    const OVERHEAD: u64 = 832;
    let segment = mss.saturating_sub(if tcp.timestamps { TIMESTAMPS } else { 0 }).max(1);
    let most = tcp.gso_max_size() - ROOM_FOR_HEADERS;
    let piece = u64::from((most / segment).max(1) * segment);
    let all = u128::from(tcp.send_memory()) * u128::from(piece) / u128::from(piece + OVERHEAD);
    (piece, all as u64)
}

/// The TCP of one end of a connection.
#[derive(Clone)]
pub(crate) struct Stack {
    pub settings: TcpSettings,
    congestion: String,
    /// The most that a program takes to run after it was woken.
    pub wakes_within: Time,
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
        let mut wakes_within = Time(0);
        if tcp.profile == Profile::Linux {
            (settings.send_piece, settings.send_buffer) = send_space(tcp, settings.mss);
            wakes_within = WAKE_UP;
        }
        settings.receive_buffer = tcp.receive_buffer.0;
        settings.sack = tcp.sack;
        settings.ecn = tcp.ecn;
        settings.timestamps = tcp.timestamps;
        settings.window_scaling = tcp.window_scaling;
        settings.initial_window = tcp.initial_window.unwrap_or(settings.initial_window);
        let segments =
            |bytes: Bytes| u32::try_from(bytes.0 / u64::from(settings.mss.max(1))).unwrap_or(u32::MAX).max(2);
        settings.initial_ssthresh = tcp.initial_ssthresh.map(segments);
        settings.rto.least = tcp.rto_min.unwrap_or(settings.rto.least);
        settings.rtt_per_window = tcp.rtt_per_window.unwrap_or(settings.rtt_per_window);
        let is_linux = matches!(tcp.profile, Profile::Linux | Profile::Ns2Linux);
        Self { settings, wakes_within, congestion: tcp.congestion.clone(), is_linux, tunables: Arc::clone(tunables) }
    }

    /// The congestion control of a new connection, whose path may be known.
    pub fn control(&self, path: &PathMemory) -> Box<dyn CongestionControl + Send> {
        let control = if self.is_linux { linux_control } else { control };
        let mut control = control(&self.congestion, &self.tunables).expect("the name is known: see `check_supported`");
        control.remember(path);
        control
    }
}
