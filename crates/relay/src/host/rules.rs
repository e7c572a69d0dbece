//! The rules that a node needs in the packet filter and the routing. They bring connections to its transparent listeners. They
//! also deliver to it the packets for its sockets whose own address is a client's or a server's.
//!
//! The rules are a table of nftables and, in the routing, a rule and a table of one route. Their names and numbers derive from
//! the node's name, so that nodes on one machine do not disturb each other. [`Rules`] describes them, and is printed as the
//! script for nft. [`Installed`] means that they are in the kernel.
//!
//! They are installed by running `nft` with this script: what is printed is what is installed.

mod install;

use std::fmt;
use std::net::SocketAddr;

use ekiden_net::policy_route::{Family, PRIORITY};
use ipnet::IpNet;

use crate::config::pattern::Pattern;
use crate::config::{Config, ListenerKind};
pub use install::{Installed, RulesError};

/// The rules for a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    node: String,
    intercepted: Vec<Intercepted>,
    v4: bool,
    v6: bool,
    /// Whether the kernel is to track none of the connections with foreign addresses. What this node takes and then opens in the
    /// client's name has the same addresses and ports twice. Connection tracking would take both for one connection, and packets
    /// of one of them for invalid.
    untracked: bool,
}

/// The connections that one transparent listener takes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Intercepted {
    name: String,
    to: SocketAddr,
    interfaces: Vec<String>,
    /// Whether the interfaces may appear after the node has started.
    late: bool,
    except: Vec<Pattern>,
}

impl Rules {
    /// The rules for `config`. `None` if it needs none.
    pub fn of(config: &Config) -> Option<Self> {
        let mut intercepted = Vec::new();
        for (name, listener) in &config.listeners {
            if let ListenerKind::Transparent { interfaces, late, except, .. } = &listener.kind {
                let (interfaces, except) = (interfaces.clone(), except.clone());
                intercepted.push(Intercepted {
                    name: name.clone(),
                    to: listener.address,
                    interfaces,
                    late: *late,
                    except,
                });
            }
        }
        let clients = &config.exit.client_addresses;
        let v4 = intercepted.iter().any(|one| one.to.is_ipv4()) || clients.iter().any(|net| net.addr().is_ipv4());
        let v6 = intercepted.iter().any(|one| one.to.is_ipv6()) || clients.iter().any(|net| net.addr().is_ipv6());
        let untracked = !intercepted.is_empty() && !clients.is_empty();
        (v4 || v6).then(|| Self { node: config.name.clone(), intercepted, v4, v6, untracked })
    }

    /// The same rules for the connections that run, without those that take new ones.
    fn draining(&self) -> Self {
        Self { intercepted: Vec::new(), ..self.clone() }
    }

    /// The same rules, also for the connections of `other` that may still run.
    fn with_running_of(self, other: &Self) -> Self {
        let untracked = self.untracked || other.untracked;
        Self { v4: self.v4 || other.v4, v6: self.v6 || other.v6, untracked, ..self }
    }

    fn families(&self) -> impl Iterator<Item = Family> {
        [self.v4.then_some(Family::V4), self.v6.then_some(Family::V6)].into_iter().flatten()
    }

    /// The name of the table in nftables. A node's name (1 to 64 letters, digits, `-`, `_` and `.`) can be part of one.
    fn table(&self) -> String {
        format!("ekiden_{}", self.node)
    }

    /// The mark of the node's packets, which is also the number of its routing table: one of 2²⁴, a hash (FNV-1a) of the node's
    /// name.
    fn mark(&self) -> u32 {
        let hash =
            self.node.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        0x4500_0000 | (hash >> 8)
    }
}

/// A script for `nft -f`. Comments in it show the commands that would set the routing.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, mark) = (self.table(), self.mark());
        for family in self.families() {
            let ip = if family == Family::V4 { "ip" } else { "ip -6" };
            writeln!(f, "# {ip} rule add priority {PRIORITY} fwmark {mark:#x} lookup {mark}")?;
            writeln!(f, "# {ip} route add local default dev lo table {mark}")?;
        }
        // Created first, so that there is a table to delete. The whole script takes effect at once.
        writeln!(f, "table inet {table}\ndelete table inet {table}\ntable inet {table} {{")?;
        // Tracking comes between the two priorities.
        let (priority, notrack) = if self.untracked { ("raw", "notrack ") } else { ("mangle", "") };
        writeln!(f, "\tchain prerouting {{\n\t\ttype filter hook prerouting priority {priority}; policy accept;")?;
        for (i, intercepted) in self.intercepted.iter().enumerate() {
            let family = if intercepted.to.is_ipv4() { "ipv4" } else { "ipv6" };
            let interfaces: Vec<String> = intercepted.interfaces.iter().map(|name| format!("\"{name}\"")).collect();
            // Only SYNs: other connections began without this node and go on without it. This rule stands before the one for
            // existing sockets, because only the listener can replace a connection in TIME_WAIT by a new one.
            writeln!(
                f,
                "\t\tiifname {{ {} }} meta nfproto {family} tcp flags & (fin | syn | rst | ack) == syn \
                 fib daddr type unicast jump listener{i}",
                interfaces.join(", ")
            )?;
        }
        // Another program's listener for any address would take what this host forwards to others. Only sockets with an address of
        // their own may: the rules pass over what belongs to a listener of that kind.
        writeln!(f, "\t\tsocket wildcard 1 accept")?;
        for family in self.families() {
            // ICMP errors about such a socket's packets belong to it too: otherwise it would not learn the path's MTU.
            let (family, icmp) = if family == Family::V4 { ("ipv4", "icmp") } else { ("ipv6", "ipv6-icmp") };
            writeln!(
                f,
                "\t\tmeta nfproto {family} meta l4proto {{ tcp, {icmp} }} socket transparent 1 {notrack}meta mark set {mark:#x} accept"
            )?;
        }
        writeln!(f, "\t}}")?;
        for (i, intercepted) in self.intercepted.iter().enumerate() {
            intercepted.chain(f, i, &format!("{notrack}meta mark set {mark:#x} accept"))?;
        }
        if self.untracked {
            writeln!(f, "\tchain output {{\n\t\ttype filter hook output priority raw; policy accept;")?;
            writeln!(f, "\t\tmeta l4proto tcp socket transparent 1 notrack\n\t}}")?;
        }
        writeln!(f, "}}")
    }
}

impl Intercepted {
    /// The chain of the listener with this number, which does with what it takes as `then` says.
    fn chain(&self, f: &mut fmt::Formatter<'_>, i: usize, then: &str) -> fmt::Result {
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
        writeln!(f, "\t\tmeta nfproto {family} meta l4proto tcp tproxy {ip} to {} {then}\n\t}}", self.to)
    }
}
