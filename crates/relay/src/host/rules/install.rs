//! Giving the rules to the kernel, and taking them back.

use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Command, Stdio};

use ekiden_net::device;
use ekiden_net::policy_route::{self, Family};
use ekiden_net::privileges::{Capability, lend};

use super::{Rules, Taken};

/// Where the program nft may be. No other folder is looked into, whatever PATH says: the program gets a privilege.
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
    /// The program is missing.
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
    /// The kernel or nft does not take them.
    #[error("{what}: {why}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// What was said.
        why: String,
    },
    /// The kernel is set so that it would lose intercepted connections.
    #[error("with {setting} the kernel loses what a transparent listener takes: sysctl {right}")]
    Setting {
        /// What is so.
        setting: String,
        /// What must be so.
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
        /// The interface's.
        interface: String,
    },
    /// This machine is no router.
    #[error("{setting} = 0: what a transparent listener does not take would go nowhere: sysctl {setting}=1")]
    NoForwarding {
        /// The setting that says so.
        setting: &'static str,
    },
    /// A process with rules for a node of this name runs here.
    #[error("another process has the rules of a node named '{name}' here: give this one another name, or end that one")]
    Taken {
        /// The node's name.
        name: String,
    },
}

/// Rules that are in the kernel until this is dropped. When the process is killed they stay, without effect: what they
/// would bring to a listener passes when there is none.
#[derive(Debug)]
pub struct Installed {
    rules: Rules,
    /// Held as long as the rules are: names in this space belong to the network namespace, as the rules do, and end with
    /// the process.
    _name: UnixDatagram,
}

impl Installed {
    /// Puts `rules` into the kernel, in the place of those that a killed process of the same node has left.
    pub fn new(rules: Rules) -> Result<Self, RulesError> {
        let name = hold_name(&rules)?;
        check_settings(&rules)?;
        // What nft refuses it refuses whole; only routes can be left.
        put(&rules).inspect_err(|_| drop(remove_routes(&rules)))?;
        if let Some(other) =
            [Family::V4, Family::V6].into_iter().find(|&family| rules.families().all(|one| one != family))
        {
            // What a predecessor with other listeners has left; where it cannot be there, that is an error too.
            let _ = policy_route::stop_delivering(rules.mark(), other);
        }
        tracing::info!("table inet {} is in the packet filter, mark {:#x}", rules.table(), rules.mark());
        Ok(Self { rules, _name: name })
    }

    /// Changes what is taken, for the same node or one of another name, and puts back what others have deleted. Connections
    /// that run stay possible. On an error everything is as it was.
    pub fn change(&mut self, rules: Option<Rules>) -> Result<(), RulesError> {
        let rules = rules.unwrap_or_else(|| self.rules.draining());
        // The running streams are marked under the first name.
        let rules = Rules { node: self.rules.node.clone(), ..rules }.with_families_of(&self.rules);
        check_settings(&rules)?;
        self.rules = self.rules.clone().with_families_of(&rules);
        put(&rules)?;
        self.rules = rules;
        Ok(())
    }

    /// Takes no new connections any more.
    pub fn drain(&mut self) {
        if let Err(error) = self.change(None) {
            tracing::warn!("new connections are still brought to this node: {error}");
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        if let Err(error) = take_away(&self.rules) {
            tracing::warn!("table inet {} or its routes stay: {error}", self.rules.table());
        }
    }
}

fn hold_name(rules: &Rules) -> Result<UnixDatagram, RulesError> {
    let bound = SocketAddr::from_abstract_name(rules.table()).and_then(|name| UnixDatagram::bind_addr(&name));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => RulesError::Taken { name: rules.node.clone() },
        _ => RulesError::Refused { what: "cannot hold the node's name", why: error.to_string() },
    })
}

/// First the routes, then what needs them: a marked packet without one would be lost.
fn put(rules: &Rules) -> Result<(), RulesError> {
    for family in rules.families() {
        policy_route::deliver_marked(rules.mark(), family).map_err(route_error)?;
    }
    nft(&rules.to_string())
}

/// The other way round. The table may have been deleted by someone.
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
    // If it does not read all of it, it says why.
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

/// Whether the kernel is set so that taken connections come about.
fn check_settings(rules: &Rules) -> Result<(), RulesError> {
    let value = |key: &str| -> u32 {
        let file = format!("/proc/sys/net/ipv4/{key}");
        std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    let lost = |setting: String, right: String| Err(RulesError::Setting { setting, right });
    // An answer to a cookie is not known as one of ours; an accepted connection with the mark would talk to itself.
    for (key, wrong, right) in [("tcp_syncookies", 2, 1), ("tcp_fwmark_accept", 1, 0)] {
        if !rules.taken.is_empty() && value(key) == wrong {
            return lost(format!("net.ipv4.{key} = {wrong}"), format!("net.ipv4.{key}={right}"));
        }
    }
    for taken in &rules.taken {
        check_interfaces(taken)?;
    }
    // Sources are checked by routes (RFC 3704), here by those for the mark, which lead nowhere.
    let of_v4 = rules.taken.iter().filter(|taken| taken.to.is_ipv4());
    for interface in of_v4.flat_map(|taken| &taken.interfaces) {
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

/// Whether a listener's interfaces are there, and what comes in by them goes on if it is not taken.
fn check_interfaces(taken: &Taken) -> Result<(), RulesError> {
    let (family, setting) = match taken.to.is_ipv4() {
        true => ("ipv4", "net.ipv4.ip_forward"),
        false => ("ipv6", "net.ipv6.conf.all.forwarding"),
    };
    let forwards = |interface: &str| {
        let file = format!("/proc/sys/net/{family}/conf/{interface}/forwarding");
        std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0")
    };
    for interface in &taken.interfaces {
        let is_there = device::index(interface).is_ok();
        if !is_there && !taken.late {
            return Err(RulesError::NoInterface { listener: taken.name.clone(), interface: interface.clone() });
        }
        let may_pass = forwards("all") || is_there && forwards(interface);
        if !may_pass {
            return Err(RulesError::NoForwarding { setting });
        }
    }
    Ok(())
}
