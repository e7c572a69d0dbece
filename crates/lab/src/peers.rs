//! Proxies that are other programs, Dante and squid: run in their nodes with configurations made from the scenario.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ekiden_scenario::{NodeKind, Program, Scenario};
use nix::unistd::{Uid, User};

use crate::error::building;
use crate::flow::CURL;
use crate::ports::{HTTP_PORT, SOCKS_PORT, flow_port};
use crate::programs::{START_LIMIT, find};
use crate::{Error, Lab};

/// How long until it is looked again whether a program listens.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A program, the package of Debian that has it, and the port on which a proxy with it listens.
#[derive(Clone, Copy)]
struct Peer {
    program: &'static str,
    package: &'static str,
    port: u16,
}

/// `None` for ekiden's own.
fn peer(program: Program) -> Option<Peer> {
    match program {
        Program::Ekiden => None,
        Program::Dante => Some(Peer { program: "danted", package: "dante-server", port: SOCKS_PORT }),
        Program::Squid => Some(Peer { program: "squid", package: "squid", port: HTTP_PORT }),
    }
}

/// Checks that this machine has the programs that the scenario's proxies and fetched flows are, and that transparent ones need.
///
/// # Errors
/// [`Error::NoProgram`] for the first that is missing.
pub fn check_programs(scenario: &Scenario) -> Result<(), Error> {
    let proxies = scenario.nodes.iter().filter(|(_, node)| node.kind == NodeKind::Proxy);
    let peers = proxies.filter_map(|(name, node)| peer(node.program).map(|peer| (name, peer.program, peer.package)));
    let fetched = scenario.flows.values().filter(|flow| flow.fetch.is_some());
    let taken = scenario.flows.values().filter(|flow| flow.transparent);
    let filters = taken.flat_map(|flow| [flow.via.first(), flow.via.last()]).flatten();
    let missing = peers
        .chain(fetched.map(|flow| (&flow.to, CURL, CURL)))
        .chain(filters.map(|proxy| (proxy, "nft", "nftables")))
        .find(|(_, program, _)| find(program).is_none());
    match missing {
        Some((node, program, package)) => Err(Error::NoProgram { node: node.clone(), program, package }),
        None => Ok(()),
    }
}

/// A destination that the proxy reaches by another one.
struct Onward {
    server: Ipv4Addr,
    port: u16,
    next: Ipv4Addr,
}

impl Lab {
    /// Starts Dante and squid on the proxies that have them, one after the other as each listens, those beside senders first: a squid
    /// that finds its next one away when it starts takes it for dead, and refuses its first request.
    ///
    /// # Errors
    /// [`Error::NoProgram`] if one is missing here, [`Error::Node`] with what it said.
    pub(crate) fn start_peers(&mut self) -> Result<(), Error> {
        check_programs(&self.scenario)?;
        let scenario = self.scenario.clone();
        let proxies = scenario.nodes.iter().filter(|(_, node)| node.kind == NodeKind::Proxy);
        let peers = proxies.filter_map(|(name, node)| Some((name, node.program, peer(node.program)?)));
        let mut peers: Vec<_> = peers.collect();
        if peers.is_empty() {
            return Ok(());
        }
        let far =
            |name: &String| scenario.flows.values().filter_map(|flow| flow.via.iter().position(|at| at == name)).max();
        peers.sort_by_key(|(name, ..)| far(name));
        let place = self.directory()?;
        for (name, program, peer) in peers {
            let Some(path) = find(peer.program) else { continue };
            let (own, onward) = (self.address(name)?, self.onward(name)?);
            let text = match program {
                Program::Squid => squid(name, own, &onward, &path, &place),
                _ => dante(own, &onward),
            };
            let log = self.start_peer(name, peer.program, &path, &text, &place)?;
            self.await_peer(name, peer.program, SocketAddr::from((own, peer.port)), &log)?;
        }
        Ok(())
    }

    /// Where a proxy sends what is fetched through it, if not straight to the sender.
    fn onward(&self, name: &str) -> Result<Vec<Onward>, Error> {
        let mut found = Vec::new();
        for (index, flow) in self.scenario.flows.values().enumerate() {
            let before = flow.via.iter().position(|proxy| proxy == name).and_then(|at| at.checked_sub(1));
            let (Some(before), true) = (before, flow.fetch.is_some()) else { continue };
            let (server, next) = (self.address(&flow.from)?, self.address(&flow.via[before])?);
            found.push(Onward { server, port: flow_port(index), next });
        }
        Ok(found)
    }

    /// Returns where its log is.
    fn start_peer(
        &mut self,
        node: &str,
        program: &'static str,
        path: &Path,
        text: &str,
        place: &Path,
    ) -> Result<PathBuf, Error> {
        let [file, log, pid] = ["conf", "log", "pid"].map(|ending| place.join(format!("{node}.{ending}")));
        fs::write(&file, text).map_err(building(format!("write {}", file.display())))?;
        let log_file = File::create(&log).map_err(building(format!("write {}", log.display())))?;
        let mut command = self.command(node, path)?;
        match program {
            "squid" => command.args(["-N", "-d", "1", "-f"]).arg(&file),
            _ => command.arg("-f").arg(&file).arg("-p").arg(&pid),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
        self.start(node, &mut command)?;
        Ok(log)
    }

    /// Waits until a program listens.
    fn await_peer(&mut self, node: &str, what: &'static str, address: SocketAddr, log: &Path) -> Result<(), Error> {
        let start = Instant::now();
        let listens = || TcpStream::connect_timeout(&address, START_LIMIT).map(drop);
        while self.namespace(node)?.run(listens).is_err() {
            let has_ended = self.programs.iter_mut().any(|program| matches!(program.try_wait(), Ok(Some(_))));
            if has_ended || start.elapsed() > START_LIMIT {
                let said = fs::read_to_string(log).unwrap_or_default();
                let wrong = said.lines().find(|line| line.contains("FATAL") || line.contains("error:"));
                let reason = wrong.or_else(|| said.lines().last()).unwrap_or("it does not listen, and said nothing");
                return Err(Error::Node { what, node: node.into(), reason: reason.into() });
            }
            sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

/// Who runs this.
fn user() -> String {
    User::from_uid(Uid::effective()).ok().flatten().map_or("root".into(), |user| user.name)
}

fn dante(own: Ipv4Addr, onward: &[Onward]) -> String {
    let user = user();
    let any = "from: 0.0.0.0/0 to: 0.0.0.0/0";
    let mut text = format!(
        "logoutput: stderr\ninternal: {own} port = {SOCKS_PORT}\nexternal: {own}\nclientmethod: none\nsocksmethod: none\n\
         user.privileged: {user}\nuser.unprivileged: {user}\nclient pass {{ {any} }}\nsocks pass {{ {any} }}\n"
    );
    for Onward { server, port, next } in onward {
        let _ = writeln!(
            text,
            "route {{ from: 0.0.0.0/0 to: {server}/32 port = {port} via: {next} port = {SOCKS_PORT} proxyprotocol: socks_v5 }}"
        );
    }
    text
}

/// Squid's files are looked for beside the program: it may be unpacked and not installed.
fn squid(node: &str, own: Ipv4Addr, onward: &[Onward], program: &Path, place: &Path) -> String {
    let root = program.ancestors().nth(3).unwrap_or_else(|| Path::new("/"));
    let file = |name: &str| root.join(name).display().to_string();
    let mut text = format!(
        "http_port {own}:{HTTP_PORT}\nvisible_hostname {node}\nhttp_access allow all\ncache deny all\naccess_log none\n\
         cache_store_log none\ncache_log /dev/null\npid_filename none\nnetdb_filename none\npinger_enable off\n\
         coredump_dir {}\nshutdown_lifetime 0 seconds\nmax_filedescriptors 4096\ndns_nameservers {own}\n\
         unlinkd_program {}\nmime_table {}\nicon_directory {}\nerror_directory {}\n",
        place.display(),
        file("usr/lib/squid/unlinkd"),
        file("usr/share/squid/mime.conf"),
        file("usr/share/squid/icons"),
        file("usr/share/squid-langpack/en"),
    );
    for (number, Onward { port, next, .. }) in onward.iter().enumerate() {
        let _ = write!(
            text,
            "acl to{number} port {port}\n\
             cache_peer {next} parent {HTTP_PORT} 0 no-query no-digest no-netdb-exchange default name=next{number}\n\
             cache_peer_access next{number} allow to{number}\nnever_direct allow to{number}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONWARD: Onward =
        Onward { server: Ipv4Addr::new(10, 77, 0, 1), port: 30_001, next: Ipv4Addr::new(10, 77, 0, 2) };

    #[test]
    fn a_chain_leads_on_by_the_flow_and_its_last_proxy_straight_to_the_sender() {
        let own = Ipv4Addr::new(10, 77, 0, 3);
        let route = "to: 10.77.0.1/32 port = 30001 via: 10.77.0.2 port = 1080";
        assert!(dante(own, &[ONWARD]).contains(route));
        assert!(!dante(own, &[]).contains("route"));
        let place = Path::new("/run/lab");
        let parent = "acl to0 port 30001\ncache_peer 10.77.0.2 parent 3128 0 ";
        let text = squid("p", own, &[ONWARD], Path::new("/opt/usr/sbin/squid"), place);
        assert!(text.contains(parent) && text.contains("mime_table /opt/usr/share/squid/mime.conf\n"), "{text}");
        assert!(!squid("p", own, &[], Path::new("/usr/sbin/squid"), place).contains("cache_peer"));
    }

    #[test]
    fn a_missing_program_is_named_with_its_node_and_package() {
        let error = Error::NoProgram { node: "p1".into(), program: "danted", package: "dante-server" };
        assert_eq!(
            error.to_string(),
            "node 'p1': there is no 'danted' in PATH or /usr/sbin; Debian's package dante-server has it"
        );
        assert!(find("no-such-program-as-this").is_none());
    }
}
