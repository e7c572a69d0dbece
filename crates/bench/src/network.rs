//! The network that is measured on: four namespaces joined by plain veth pairs.
//!
//! ```text
//! client 10.78.1.1 ─── 10.78.1.2 relay 10.78.2.1 ─── 10.78.2.2 server 10.78.4.2
//!                              10.78.3.1                               │
//!                                  └──── 10.78.3.2 exit 10.78.4.1 ─────┘
//! ```
//! The relay's node also forwards packets: that is the way without a relay. The exit is the second node of a chain.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use ekiden_net::namespace::Namespace;

/// The server, as the relay and the client see it.
pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 78, 2, 2)), 7000);
/// Where it listens: the exit sees it under another address.
pub const EVERY_ADDRESS_OF_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 7000);

/// Ports of connections begin above those of listeners: a relay that is started again must find its port free.
const PORTS: &str = "10000 65535";

/// The nodes.
pub struct Network {
    /// Where the load comes from.
    pub client: Namespace,
    /// Where relays run.
    pub relay: Namespace,
    /// Where the second node of a chain runs.
    pub exit: Namespace,
    /// Where the load goes to.
    pub server: Namespace,
}

impl Network {
    /// Builds it; it is gone when the last process in it is.
    pub fn build() -> Result<Self> {
        let node = || -> Result<Namespace> {
            let node = Namespace::create().context("cannot make a network namespace")?;
            node.run(configure).context("cannot set up a network namespace")?;
            Ok(node)
        };
        let network = Self { client: node()?, relay: node()?, exit: node()?, server: node()? };
        let Self { client, relay, exit, server } = &network;
        ip(relay, &[pair("down", client, "up"), pair("up", server, "down"), pair("chain", exit, "down")])?;
        ip(exit, &[pair("up", server, "chain")])?;
        ip(client, &[address("up", "10.78.1.1"), "route add default via 10.78.1.2".into()])?;
        ip(relay, &[address("down", "10.78.1.2"), address("up", "10.78.2.1"), address("chain", "10.78.3.1")])?;
        ip(exit, &[address("down", "10.78.3.2"), address("up", "10.78.4.1")])?;
        let back = "route add default via 10.78.2.1".into();
        ip(server, &[address("down", "10.78.2.2"), address("chain", "10.78.4.2"), back])?;
        Ok(network)
    }
}

/// Sets the calling thread's namespace up, so that figures do not depend on the machine's defaults.
fn configure() -> io::Result<()> {
    let settings = [
        ("ipv4/ip_forward", "1"),
        // Congestion control of the machine may be bbr, which paces: relays would be measured waiting.
        ("ipv4/tcp_congestion_control", "reno"),
        ("ipv4/tcp_no_metrics_save", "1"),
        ("ipv4/tcp_rmem", "4096 131072 6291456"),
        ("ipv4/tcp_wmem", "4096 16384 4194304"),
        ("ipv4/tcp_max_syn_backlog", "8192"),
        ("core/somaxconn", "8192"),
        // Tens of thousands of connections a second would use up the ports of a minute.
        ("ipv4/ip_local_port_range", PORTS),
        ("ipv4/tcp_tw_reuse", "1"),
    ];
    for (name, value) in settings {
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value).map_err(|error| io::Error::new(error.kind(), format!("{path} = {value}: {error}")))?;
    }
    // These kernels may lack: IPv6, and (before 6.14) a choice of how soon a port can be used again.
    for (name, value) in [("ipv6/conf/all/disable_ipv6", "1"), ("ipv4/tcp_tw_reuse_delay", "1")] {
        match fs::write(format!("/proc/sys/net/{name}"), value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    Ok(())
}

/// A device here whose other end is `peer` in `other`.
fn pair(name: &str, other: &Namespace, peer: &str) -> String {
    let (process, descriptor) = (std::process::id(), other.as_fd().as_raw_fd());
    format!("link add name {name} type veth peer name {peer} netns /proc/{process}/fd/{descriptor}")
}

fn address(device: &str, address: &str) -> String {
    format!("address add {address}/24 dev {device}\nlink set dev {device} up\nlink set lo up")
}

/// Runs commands of ip(8) in `namespace`.
fn ip(namespace: &Namespace, lines: &[String]) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    namespace.attach(&mut command);
    let mut child = command.spawn().context("cannot run ip (Debian's package iproute2)")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(lines.join("\n").as_bytes()).context("cannot write to ip")?;
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip failed: {}", said.lines().next().unwrap_or("it does not say why"));
    Ok(())
}
