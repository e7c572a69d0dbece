//! A node's TCP parameters: per-namespace sysctls.

use std::fs;
use std::io;

use ekiden_net::namespace::Namespace;
use ekiden_scenario::Tcp;
use ekiden_units::{Bytes, Time};

use crate::Error;

const IPV4: &str = "/proc/sys/net/ipv4";

/// Sets the calling thread's namespace up as a node. To be called before it has devices, which copy some of this.
/// `mtu` is that of the packets it will receive. `ends_tunnel`: its connections are a tunnel's.
pub(crate) fn configure(tcp: &Tcp, mtu: u32, forwards: bool, ends_tunnel: bool) -> io::Result<()> {
    no_ipv6()?;
    set("ip_forward", flag(forwards))?;
    for scope in ["all", "default"] {
        // The two directions of a connection may take different links, which strict reverse path filtering would drop.
        set(&format!("conf/{scope}/rp_filter"), "0")?;
        set(&format!("conf/{scope}/send_redirects"), "0")?;
    }
    // A connection must not start from cached metrics of an earlier one.
    set("tcp_no_metrics_save", "1")?;
    // A closed connection keeps its port for 60 s, and files one after another may need more ports than there are.
    set("tcp_tw_reuse", "1")?;
    set("tcp_sack", flag(tcp.sack))?;
    // Not the kernel's default, which answers a peer that asks: both ends of a connection decide.
    set("tcp_ecn", flag(tcp.ecn))?;
    set("tcp_timestamps", flag(tcp.timestamps))?;
    set("tcp_window_scaling", flag(tcp.window_scaling))?;
    if ends_tunnel {
        // As `ekiden tunnel` asks for: its connection pauses whenever the flows inside do.
        set("tcp_slow_start_after_idle", "0")?;
    }
    if let Some(least) = tcp.rto_min {
        set_rto_min(least)?;
    }
    match tcp.window_scaling {
        true => set("tcp_rmem", &limits(receive_space(tcp.receive_buffer, mtu), 131_072))?,
        false => {
            let exact = exact_space(tcp, mtu);
            set("tcp_rmem", &limits(exact, exact))?;
        }
    }
    set("tcp_wmem", &limits(tcp.send_memory(), 16_384))
}

/// Keeps the kernel from sending neighbour discovery over links that are emulated for IPv4.
pub(crate) fn no_ipv6() -> io::Result<()> {
    for scope in ["all", "default"] {
        match fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1") {
            // A kernel without IPv6 has nothing to turn off.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    Ok(())
}

/// The congestion controls of the kernel, as the calling thread's namespace sees them; none if it does not say.
pub(crate) fn available() -> Vec<String> {
    let available = fs::read_to_string(format!("{IPV4}/tcp_available_congestion_control")).unwrap_or_default();
    available.split_whitespace().map(str::to_owned).collect()
}

/// Whether the kernel has a congestion control of this name.
pub(crate) fn is_available(name: &str) -> bool {
    available().iter().any(|available| available == name)
}

/// The error that the kernel does not have the congestion control that the node asks for.
pub(crate) fn no_congestion(node: &str, tcp: &Tcp, available: &[String]) -> Error {
    Error::Congestion { node: node.into(), name: tcp.congestion.clone(), available: available.join(", ") }
}

/// Whether the kernel has the congestion control that the node asks for.
pub(crate) fn check_congestion(namespace: &Namespace, node: &str, tcp: &Tcp) -> Result<(), Error> {
    let available = namespace
        .run(|| Ok(available()))
        .map_err(crate::error::building(format!("look at the congestion controls of node '{node}'")))?;
    match available.contains(&tcp.congestion) {
        true => Ok(()),
        false => Err(no_congestion(node, tcp, &available)),
    }
}

/// The kernel's memory limit under which a socket advertises windows of up to `window`.
///
/// The kernel charges a packet's whole memory against the limit. Since Linux 6.6 it advertises a part of the limit: the
/// ratio of payload to memory in the packets received, in 256ths. For full-sized packets of a 1500-byte link that is
/// 1448 of 2304 bytes, so 160. One packet is in the receive queue while its acknowledgement is written.
fn receive_space(window: Bytes, mtu: u32) -> u64 {
    let memory = packet_memory(mtu);
    let part = u64::from(mtu.saturating_sub(HEADERS)) * 256 / memory;
    window.0.saturating_mul(256).div_ceil(part.max(1)).saturating_add(memory)
}

/// The same for windows that are not scaled, into which few packets fit: a packet more or less counts. The kernel rounds such windows down to
/// whole packets, and while one waits for the program it keeps the acknowledgement back. It does not measure the memory of packets of up to
/// 536 bytes of data, so that the route's window holds for them. They have memory for more than that: where a whole window waits for a program
/// that the machine lets run late, the kernel would lower the window, and raise it no more for small packets.
pub(crate) fn exact_space(tcp: &Tcp, mtu: u32) -> u64 {
    const UNMEASURED: u64 = 536;
    let data = u64::from(mtu.saturating_sub(HEADERS - if tcp.timestamps { 0 } else { TIMESTAMPS }));
    if data <= UNMEASURED {
        return 4 * receive_space(tcp.receive_buffer, mtu);
    }
    let part = data * 256 / packet_memory(mtu);
    tcp.receive_buffer.0.saturating_mul(256).div_ceil(part.max(1))
}

/// IPv4, TCP and its timestamps.
const HEADERS: u32 = 52;
const TIMESTAMPS: u32 = 12;

/// What the kernel charges for a received packet of `mtu` bytes: its buffer, in one of the sizes that the allocator
/// has, and its descriptor.
fn packet_memory(mtu: u32) -> u64 {
    const DESCRIPTOR: u64 = 256;
    const SHARED_INFO: u64 = 320;
    const PAGE: u64 = 4_096;
    const MARGINS: u64 = 32;
    let bytes = u64::from(mtu) + MARGINS;
    if bytes <= PAGE {
        return (bytes + SHARED_INFO).next_power_of_two() + DESCRIPTOR;
    }
    // Larger packets lie in pages, beside a small buffer.
    bytes.next_multiple_of(PAGE) + 1_024
}

/// The three numbers of tcp_rmem and tcp_wmem: least, initial, most.
fn limits(most: u64, initial: u64) -> String {
    // The kernel refuses less than 4096, and keeps the values as signed 32-bit numbers.
    let most = most.clamp(4_096, i32::MAX as u64 / 2);
    format!("4096 {} {most}", initial.min(most))
}

/// The least retransmission timeout. The kernel rounds it to its clock's tick.
fn set_rto_min(least: Time) -> io::Result<()> {
    set("tcp_rto_min_us", &least.0.div_ceil(1_000).to_string()).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            error.kind(),
            format!("this kernel has no {IPV4}/tcp_rto_min_us (Linux 6.11 has); leave 'rto_min' out"),
        ),
        _ => error,
    })
}

fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

fn set(name: &str, value: &str) -> io::Result<()> {
    let path = format!("{IPV4}/{name}");
    fs::write(&path, value).map_err(|error| io::Error::new(error.kind(), format!("{path} = {value}: {error}")))
}
