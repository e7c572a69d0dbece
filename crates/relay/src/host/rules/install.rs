//! Puts the rules into the kernel, and removes them.

use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Command, Stdio};

use ekiden_net::device;
use ekiden_net::policy_route::{self, Family};
use ekiden_net::privileges::{Capability, lend};

use super::{Intercepted, Rules};

/// The paths at which the program nft is looked for. PATH does not count, because the program is given a capability.
const NFT: [&str; 7] = [
    "/usr/sbin/nft",
    "/usr/bin/nft",
    "/sbin/nft",
    "/bin/nft",
    "/usr/local/sbin/nft",
    "/usr/local/bin/nft",
    "/run/current-system/sw/bin/nft",
];

fn folders() -> String {
    NFT.map(|program| program.trim_end_matches("/nft")).join(", ")
}

/// Why a node's rules are not in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The program nft is missing.
    #[error(
        "a transparent listener or exit needs the program nft, which is in none of {}: install nftables",
        folders()
    )]
    NoNft,
    /// The kernel does not let this process change its rules.
    #[error("{what} needs CAP_NET_ADMIN: run as root, or give that capability to ekiden")]
    NotAllowed {
        /// What was tried.
        what: &'static str,
    },
    /// The kernel or nft refused them.
    #[error("{what}: {why}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// The error that was reported.
        why: String,
    },
    /// With this setting the kernel would lose intercepted connections.
    #[error("with {setting} the kernel loses what a transparent listener takes: sysctl {right}")]
    Setting {
        /// The setting, with its present value.
        setting: String,
        /// The setting, with the value that it must have.
        right: String,
    },
    /// There is no such interface.
    #[error(
        "[listen.{listener}]: there is no network interface '{interface}' here: name one that 'ip link' shows, or say \
         late_interfaces = true if it comes later"
    )]
    NoInterface {
        /// The listener's name.
        listener: String,
        /// The interface's name.
        interface: String,
    },
    /// This machine does not forward packets.
    #[error("{setting} = 0: what a transparent listener does not take would go nowhere: sysctl {setting}=1")]
    NoForwarding {
        /// The setting that prevents it.
        setting: &'static str,
    },
    /// Another process here has the rules of a node with this name.
    #[error("another process has the rules of a node named '{name}' here: give this one another name, or end that one")]
    NameInUse {
        /// The node's name.
        name: String,
    },
}

impl Rules {
    /// Whether the machine lacks what they need, as far as that can be told without changing anything: the program nft, interfaces,
    /// settings of the kernel.
    ///
    /// # Errors
    /// [`RulesError`].
    pub fn check(&self) -> Result<(), RulesError> {
        if !NFT.iter().any(|program| Path::new(program).exists()) {
            return Err(RulesError::NoNft);
        }
        check_settings(self)
    }
}

/// Rules that are in the kernel until this is dropped. If the process is killed they stay, but without effect: while no
/// listener is there, the connections that they would bring to it pass.
#[derive(Debug)]
pub struct Installed {
    rules: Rules,
    /// A bound name in the abstract socket namespace, which no other process can bind as long as this one takes connections. Like the
    /// rules, it belongs to the network namespace. It ends with the process.
    name: Option<UnixDatagram>,
}

impl Installed {
    /// Puts `rules` into the kernel. They replace those that a killed process of the same node has left.
    pub fn new(rules: Rules) -> Result<Self, RulesError> {
        let name = hold_name(&rules)?;
        check_settings(&rules)?;
        // nft takes a script whole or not at all, so that after an error only routes have to be removed.
        put(&rules).inspect_err(|_| drop(remove_routes(&rules)))?;
        if let Some(other) =
            [Family::V4, Family::V6].into_iter().find(|&family| rules.families().all(|one| one != family))
        {
            // Removes the route that a killed process with other listeners may have left. If there is none, that is an error
            // too.
            let _ = policy_route::stop_delivering(rules.mark(), other);
        }
        tracing::info!("table inet {} is in the packet filter, mark {:#x}", rules.table(), rules.mark());
        Ok(Self { rules, name: Some(name) })
    }

    /// Replaces the rules; `None` means that no new connections are taken. The node may have another name now. Restores what
    /// others have deleted. Running connections go on. On an error the packet filter stays as it was.
    pub fn change(&mut self, rules: Option<Rules>) -> Result<(), RulesError> {
        let rules = rules.unwrap_or_else(|| self.rules.draining());
        // The node keeps its first name here: the running streams have the mark that derives from it.
        let rules = Rules { node: self.rules.node.clone(), ..rules }.with_running_of(&self.rules);
        check_settings(&rules)?;
        self.rules = self.rules.clone().with_running_of(&rules);
        put(&rules)?;
        self.rules = rules;
        Ok(())
    }

    /// Stops taking new connections. From here on another process of the same node may put its rules there, which are as good for the
    /// connections that run.
    pub fn drain(&mut self) {
        if self.name.is_none() {
            return;
        }
        if let Err(error) = self.change(None) {
            tracing::warn!("new connections are still brought to this node: {error}");
        }
        self.name = None;
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        if self.name.is_none() {
            // The process that holds the name now has the rules.
            self.name = hold_name(&self.rules).ok();
        }
        if self.name.is_none() {
            return;
        }
        if let Err(error) = take_away(&self.rules) {
            tracing::warn!("table inet {} or its routes stay: {error}", self.rules.table());
        }
    }
}

fn hold_name(rules: &Rules) -> Result<UnixDatagram, RulesError> {
    let bound = SocketAddr::from_abstract_name(rules.table()).and_then(|name| UnixDatagram::bind_addr(&name));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => RulesError::NameInUse { name: rules.node.clone() },
        _ => RulesError::Refused { what: "cannot hold the node's name", why: error.to_string() },
    })
}

/// Sets the routes first: a marked packet without one would be lost.
fn put(rules: &Rules) -> Result<(), RulesError> {
    for family in rules.families() {
        policy_route::deliver_marked(rules.mark(), family).map_err(route_error)?;
    }
    nft(&rules.to_string())
}

/// Removes the table first, then the routes. The script creates the table before it deletes it, because someone may have
/// deleted it already.
fn take_away(rules: &Rules) -> Result<(), RulesError> {
    let table = rules.table();
    nft(&format!("table inet {table}\ndelete table inet {table}\n"))?;
    remove_routes(rules)
}

fn remove_routes(rules: &Rules) -> Result<(), RulesError> {
    let mark = rules.mark();
    rules.families().try_for_each(|family| policy_route::stop_delivering(mark, family).map_err(route_error))
}

fn route_error(error: io::Error) -> RulesError {
    let what = "the route for transparent connections";
    match error.kind() {
        io::ErrorKind::PermissionDenied => RulesError::NotAllowed { what },
        _ => RulesError::Refused { what, why: error.to_string() },
    }
}

fn nft(script: &str) -> Result<(), RulesError> {
    let what = "the rules for transparent connections";
    let refused = |why: String| RulesError::Refused { what, why };
    let Some(program) = NFT.iter().map(Path::new).find(|program| program.exists()) else {
        return Err(RulesError::NoNft);
    };
    let mut command = Command::new(program);
    command.args(["-f", "-"]).env_clear().env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = lend(Capability::CAP_NET_ADMIN, || command.spawn());
    let mut child = child.map_err(|error| refused(format!("{} cannot be run: {error}", program.display())))?;
    // An error means that nft has stopped reading; then it reports why.
    let _ = child.stdin.take().map(|mut input| input.write_all(script.as_bytes()));
    let output = child.wait_with_output().map_err(|error| refused(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("Operation not permitted") {
        return Err(RulesError::NotAllowed { what });
    }
    Err(refused(format!("nft: {}", said.lines().next().unwrap_or("failed without a word"))))
}

/// Checks the kernel settings that intercepted connections depend on.
fn check_settings(rules: &Rules) -> Result<(), RulesError> {
    let value = |key: &str| -> u32 {
        let file = format!("/proc/sys/net/ipv4/{key}");
        std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    let lost = |setting: String, right: String| Err(RulesError::Setting { setting, right });
    // With tcp_syncookies = 2, the ACK that answers a SYN cookie matches no socket, so that it is not delivered. With
    // tcp_fwmark_accept = 1, accepted sockets take over the mark, and their own packets come back to this machine.
    for (key, wrong, right) in [("tcp_syncookies", 2, 1), ("tcp_fwmark_accept", 1, 0)] {
        if !rules.intercepted.is_empty() && value(key) == wrong {
            return lost(format!("net.ipv4.{key} = {wrong}"), format!("net.ipv4.{key}={right}"));
        }
    }
    for intercepted in &rules.intercepted {
        check_interfaces(intercepted)?;
    }
    // rp_filter checks source addresses against the routes (RFC 3704). With src_valid_mark it uses the routes for the mark,
    // which do not lead to the clients.
    let of_v4 = rules.intercepted.iter().filter(|intercepted| intercepted.to.is_ipv4());
    for interface in of_v4.flat_map(|intercepted| &intercepted.interfaces) {
        let read = |interface: &str, key: &str| value(&format!("conf/{interface}/{key}"));
        let checks = read(interface, "rp_filter").max(read("all", "rp_filter")) > 0;
        let by_mark = ["all", interface].into_iter().find(|name| read(name, "src_valid_mark") > 0);
        if let (true, Some(name)) = (checks, by_mark) {
            let key = format!("net.ipv4.conf.{name}.src_valid_mark");
            return lost(format!("rp_filter on and {key} = 1"), format!("{key}=0"));
        }
    }
    Ok(())
}

/// Checks that a listener's interfaces exist, unless they may come later, and that packets that it does not take are forwarded.
fn check_interfaces(intercepted: &Intercepted) -> Result<(), RulesError> {
    let (family, setting) = match intercepted.to.is_ipv4() {
        true => ("ipv4", "net.ipv4.ip_forward"),
        false => ("ipv6", "net.ipv6.conf.all.forwarding"),
    };
    let forwards = |interface: &str| {
        let file = format!("/proc/sys/net/{family}/conf/{interface}/forwarding");
        std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0")
    };
    for interface in &intercepted.interfaces {
        let is_there = device::index(interface).is_ok();
        if !is_there && !intercepted.late {
            return Err(RulesError::NoInterface { listener: intercepted.name.clone(), interface: interface.clone() });
        }
        let may_pass = forwards("all") || is_there && forwards(interface);
        if !may_pass {
            return Err(RulesError::NoForwarding { setting });
        }
    }
    Ok(())
}
