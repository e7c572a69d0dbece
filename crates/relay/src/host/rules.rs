//! What the packet filter and the routing must do for a node: bring connections to its transparent listeners, and
//! deliver to it what comes for sockets that have a client's or a server's address.
//!
//! Everything that it has in the kernel carries its name or its mark, so that nodes do not disturb each other:
//! a table of nftables, and in the routing a mark, a rule for it and a table with one route. [`Rules`] is what there has
//! to be, and as text what is given to nft; [`Installed`] is that it is there.

mod install;

use std::fmt;
use std::net::SocketAddr;

use ekiden_net::policy_route::{Family, PRIORITY};
use ipnet::IpNet;

use crate::config::route::Pattern;
use crate::config::{Config, ListenerKind};
pub use install::{Installed, RulesError};

/// What there has to be for a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    node: String,
    taken: Vec<Taken>,
    v4: bool,
    v6: bool,
}

/// What one transparent listener takes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Taken {
    name: String,
    to: SocketAddr,
    interfaces: Vec<String>,
    /// Whether they may come later.
    late: bool,
    except: Vec<Pattern>,
}

impl Rules {
    /// `None` if the node needs none.
    pub fn of(config: &Config) -> Option<Self> {
        let mut taken = Vec::new();
        for (name, listener) in &config.listeners {
            if let ListenerKind::Transparent { interfaces, late, except, .. } = &listener.kind {
                let (interfaces, except) = (interfaces.clone(), except.clone());
                taken.push(Taken { name: name.clone(), to: listener.address, interfaces, late: *late, except });
            }
        }
        let clients = &config.exit.client_addresses;
        let v4 = taken.iter().any(|one| one.to.is_ipv4()) || clients.iter().any(|net| net.addr().is_ipv4());
        let v6 = taken.iter().any(|one| one.to.is_ipv6()) || clients.iter().any(|net| net.addr().is_ipv6());
        (v4 || v6).then(|| Self { node: config.name.clone(), taken, v4, v6 })
    }

    /// The same without taking new connections: for those that run.
    fn draining(&self) -> Self {
        Self { taken: Vec::new(), ..self.clone() }
    }

    /// The same with the address families of `other`, whose connections may still run.
    fn with_families_of(self, other: &Self) -> Self {
        Self { v4: self.v4 || other.v4, v6: self.v6 || other.v6, ..self }
    }

    fn families(&self) -> impl Iterator<Item = Family> {
        [self.v4.then_some(Family::V4), self.v6.then_some(Family::V6)].into_iter().flatten()
    }

    /// The name of the table in nftables. A node's name (1 to 64 letters, digits, `-`, `_` and `.`) can stand in one.
    fn table(&self) -> String {
        format!("ekiden_{}", self.node)
    }

    /// The mark of its packets and the number of its table of routes. Of 2²⁴, by the name (FNV-1a).
    fn mark(&self) -> u32 {
        let hash =
            self.node.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        0x4500_0000 | (hash >> 8)
    }
}

/// A script for `nft -f`, with what the routing has beside it as comments.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, mark) = (self.table(), self.mark());
        for family in self.families() {
            let ip = if family == Family::V4 { "ip" } else { "ip -6" };
            writeln!(f, "# {ip} rule add priority {PRIORITY} fwmark {mark:#x} lookup {mark}")?;
            writeln!(f, "# {ip} route add local default dev lo table {mark}")?;
        }
        // Made first, so that there is one to delete: all of it takes effect at once.
        writeln!(f, "table inet {table}\ndelete table inet {table}\ntable inet {table} {{")?;
        writeln!(f, "\tchain prerouting {{\n\t\ttype filter hook prerouting priority mangle; policy accept;")?;
        for (i, taken) in self.taken.iter().enumerate() {
            let family = if taken.to.is_ipv4() { "ipv4" } else { "ipv6" };
            let interfaces: Vec<String> = taken.interfaces.iter().map(|name| format!("\"{name}\"")).collect();
            // Beginnings of connections only: the others began without this node and go on without it. Before what is for
            // sockets that are there: a connection in TIME_WAIT gives way to a new one only by way of the listener.
            writeln!(
                f,
                "\t\tiifname {{ {} }} meta nfproto {family} tcp flags & (fin | syn | rst | ack) == syn \
                 fib daddr type unicast jump listener{i}",
                interfaces.join(", ")
            )?;
        }
        for family in self.families() {
            // Errors by ICMP for a packet of such a socket belong to it too, or it would not learn the path's MTU.
            let (family, icmp) = if family == Family::V4 { ("ipv4", "icmp") } else { ("ipv6", "ipv6-icmp") };
            writeln!(
                f,
                "\t\tmeta nfproto {family} meta l4proto {{ tcp, {icmp} }} socket transparent 1 meta mark set {mark:#x} accept"
            )?;
        }
        writeln!(f, "\t}}")?;
        for (i, taken) in self.taken.iter().enumerate() {
            taken.chain(f, i, mark)?;
        }
        writeln!(f, "}}")
    }
}

impl Taken {
    fn chain(&self, f: &mut fmt::Formatter<'_>, i: usize, mark: u32) -> fmt::Result {
        writeln!(f, "\tchain listener{i} {{ # {:?}", self.name)?;
        for (network, port) in self.except.iter().filter_map(Pattern::addresses) {
            let of_other_family = network.is_some_and(|net| net.addr().is_ipv4() != self.to.is_ipv4());
            if of_other_family {
                continue;
            }
            let network = match network {
                Some(net @ IpNet::V4(_)) => format!("ip daddr {net} "),
                Some(net @ IpNet::V6(_)) => format!("ip6 daddr {net} "),
                None => String::new(),
            };
            let port = port.map(|port| format!("tcp dport {port} ")).unwrap_or_default();
            writeln!(f, "\t\t{network}{port}return")?;
        }
        let (family, ip) = if self.to.is_ipv4() { ("ipv4", "ip") } else { ("ipv6", "ip6") };
        writeln!(
            f,
            "\t\tmeta nfproto {family} meta l4proto tcp tproxy {ip} to {} meta mark set {mark:#x} accept\n\t}}",
            self.to
        )
    }
}
