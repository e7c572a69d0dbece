//! The relays that are compared: how each is started, found ready, and ended.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ekiden_net::namespace::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Args;
use crate::network::{Network, SERVER};
use crate::process;

/// A way from the client to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relay {
    /// No relay: the kernel forwards packets.
    Direct,
    /// One ekiden node.
    Ekiden,
    /// HAProxy in TCP mode, splicing.
    Haproxy,
    /// nginx's stream module.
    Nginx,
    /// The floor: bench/load/relay/bare.c, which does nothing but relay.
    Bare,
    /// The same with SO_RCVLOWAT on bulk sources. Measured only if it is named.
    BareLowat,
    /// Two ekiden nodes with a plain leg between them.
    Chain,
    /// Two HAProxys.
    HaproxyChain,
    /// Two ekiden nodes that speak TLS.
    ChainTls,
    /// Two HAProxys that speak TLS 1.3 and check each other's certificate.
    HaproxyTls,
}

/// All of them, in the order of the table.
const ALL: [Relay; 10] = [
    Relay::Ekiden,
    Relay::Haproxy,
    Relay::Nginx,
    Relay::Bare,
    Relay::BareLowat,
    Relay::Chain,
    Relay::HaproxyChain,
    Relay::ChainTls,
    Relay::HaproxyTls,
    Relay::Direct,
];

/// What [`Relay::BareLowat`] waits for on a bulk source, in bytes: half of its pipe.
const LOW_WATER: &str = "524288";

/// A process of a relay.
struct Node {
    /// Its configuration in bench/load/relay, or source, if it takes none. It says where it listens ...
    config: &'static str,
    /// ... and whether that is at the exit instead of the relay's node.
    at_exit: bool,
    port: u16,
}

impl Node {
    fn address(&self) -> SocketAddr {
        let address = if self.at_exit { Ipv4Addr::new(10, 78, 3, 2) } else { Ipv4Addr::new(10, 78, 1, 2) };
        SocketAddr::from((address, self.port))
    }

    fn log(&self) -> PathBuf {
        directory().join(format!("{}.log", self.config))
    }
}

/// How long a relay may take to start, and to end when asked to.
const START: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(3);

impl Relay {
    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Relay::Direct => "direct",
            Relay::Ekiden => "ekiden",
            Relay::Haproxy => "haproxy",
            Relay::Nginx => "nginx",
            Relay::Bare => "bare",
            Relay::BareLowat => "bare-lowat",
            Relay::Chain => "chain",
            Relay::HaproxyChain => "haproxy-chain",
            Relay::ChainTls => "chain-tls",
            Relay::HaproxyTls => "haproxy-tls",
        }
    }

    /// What it is called in tables.
    pub fn title(self) -> &'static str {
        match self {
            Relay::Bare => "bare relay",
            Relay::BareLowat => "bare relay, lowat",
            _ => self.name(),
        }
    }

    /// Whether there is one process at most between client and server.
    pub fn is_single(self) -> bool {
        self.nodes().len() <= 1
    }

    fn is_haproxy(self) -> bool {
        matches!(self, Relay::Haproxy | Relay::HaproxyChain | Relay::HaproxyTls)
    }

    /// Where it takes connections from the client.
    pub fn address(self) -> SocketAddr {
        self.nodes().last().map_or(SERVER, Node::address)
    }

    /// What it consists of, the farthest from the client first.
    fn nodes(self) -> &'static [Node] {
        match self {
            Relay::Direct => &[],
            Relay::Ekiden => &[Node { config: "ekiden.toml", at_exit: false, port: 7103 }],
            Relay::Haproxy => &[Node { config: "haproxy.cfg", at_exit: false, port: 7101 }],
            Relay::Nginx => &[Node { config: "nginx.conf", at_exit: false, port: 7102 }],
            Relay::Bare => &[Node { config: "bare.c", at_exit: false, port: 7112 }],
            Relay::BareLowat => &[Node { config: "bare.c", at_exit: false, port: 7113 }],
            Relay::Chain => &[
                Node { config: "ekiden-exit.toml", at_exit: true, port: 7105 },
                Node { config: "ekiden-entry.toml", at_exit: false, port: 7104 },
            ],
            Relay::HaproxyChain => &[
                Node { config: "haproxy-exit.cfg", at_exit: true, port: 7107 },
                Node { config: "haproxy-entry.cfg", at_exit: false, port: 7106 },
            ],
            Relay::ChainTls => &[
                Node { config: "ekiden-tls-exit.toml", at_exit: true, port: 7109 },
                Node { config: "ekiden-tls-entry.toml", at_exit: false, port: 7108 },
            ],
            Relay::HaproxyTls => &[
                Node { config: "haproxy-tls-exit.cfg", at_exit: true, port: 7111 },
                Node { config: "haproxy-tls-entry.cfg", at_exit: false, port: 7110 },
            ],
        }
    }

    fn binary(self, args: &Args) -> PathBuf {
        match self {
            _ if self.is_haproxy() => args.peers.join("usr/sbin/haproxy"),
            Relay::Nginx => args.peers.join("usr/sbin/nginx"),
            Relay::Bare | Relay::BareLowat => args.bare.clone(),
            _ => args.ekiden.clone(),
        }
    }

    fn command(self, config: &str, args: &Args) -> Command {
        let mut command = Command::new(self.binary(args));
        match self {
            // In the foreground, one process.
            _ if self.is_haproxy() => command.args(["-db", "-f", config]),
            Relay::Nginx => {
                command.arg("-p").arg(&args.peers).args(["-e", "stderr", "-c"]).arg(directory().join(config))
            }
            Relay::Bare | Relay::BareLowat => {
                let low_water: &[&str] = if self == Relay::BareLowat { &["-l", LOW_WATER] } else { &[] };
                command.args(low_water).args([self.address(), SERVER].into_iter().flat_map(|end| {
                    // As it wants them.
                    [end.ip().to_string(), end.port().to_string()]
                }))
            }
            _ => command.args(["proxy", "--config", config]),
        };
        if self.is_haproxy() || self == Relay::Nginx {
            command.env("LD_LIBRARY_PATH", libraries(&args.peers));
        }
        command
    }
}

/// The relays called `names`; without names all but [`Relay::BareLowat`].
pub fn named(names: &[String]) -> Result<Vec<Relay>> {
    let find = |name: &String| ALL.into_iter().find(|relay| relay.name() == name);
    if let Some(name) = names.iter().find(|name| find(name).is_none()) {
        let known = ALL.map(Relay::name).join(", ");
        bail!("there is no relay called '{name}' (there are {known})");
    }
    // In the order of the table, each once, whatever was typed.
    let wanted = |relay: &Relay| match names {
        [] => *relay != Relay::BareLowat,
        _ => names.iter().any(|name| name == relay.name()),
    };
    Ok(ALL.into_iter().filter(wanted).collect())
}

/// Refuses before anything is started if a relay cannot run.
pub fn check_files(relays: &[Relay], args: &Args) -> Result<()> {
    for relay in relays {
        let configs = relay.nodes().iter().map(|node| args.configs.join(node.config));
        for file in configs.chain((*relay != Relay::Direct).then(|| relay.binary(args))) {
            ensure!(file.is_file(), "{} needs {}, which is not there", relay.name(), file.display());
        }
    }
    Ok(())
}

/// Makes the directory that relays run in: their configurations, a key for ekiden's nodes, logs. It lies on a file
/// system of the sandbox's own, and goes with it.
pub fn prepare(relays: &[Relay], args: &Args) -> Result<()> {
    let none = None::<&str>;
    nix::mount::mount(Some("tmpfs"), "/run", Some("tmpfs"), nix::mount::MsFlags::empty(), none)
        .context("cannot mount a file system for the run")?;
    fs::create_dir(directory())?;
    // Known to anyone, and good for nothing: it never leaves the sandbox.
    let key = directory().join("ekiden.key");
    fs::write(&key, "5a".repeat(32))?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
    let tls = relays.contains(&Relay::ChainTls);
    let print = |node| if tls { keygen(node, args) } else { Ok(String::new()) };
    let (entry, exit) = (print("entry")?, print("exit")?);
    if relays.contains(&Relay::HaproxyTls) {
        certify("entry")?;
        certify("exit")?;
    }
    for node in relays.iter().flat_map(|relay| relay.nodes()) {
        let from = args.configs.join(node.config);
        let text = fs::read_to_string(&from).with_context(|| format!("cannot read {}", from.display()))?;
        let text = text.replace("FINGERPRINT-OF-ENTRY", &entry).replace("FINGERPRINT-OF-EXIT", &exit);
        fs::write(directory().join(node.config), text)?;
    }
    Ok(())
}

/// The configuration of the node that takes connections from the client, as it is read at its next start.
pub fn entry_file(relay: Relay) -> Option<PathBuf> {
    relay.nodes().last().map(|node| directory().join(node.config))
}

/// Makes an ekiden node's own key; returns its fingerprint.
fn keygen(node: &str, args: &Args) -> Result<String> {
    let mut command = Command::new(&args.ekiden);
    let said = done(command.arg("keygen").arg(directory().join(format!("{node}.key"))))?;
    Ok(said.trim().to_owned())
}

/// Makes a key and a certificate that signs itself, of the same kind as ekiden's keys, in one file for HAProxy.
fn certify(node: &str) -> Result<()> {
    let subject = format!("/CN={node}");
    let options = ["req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-keyout", "-", "-subj", &subject];
    let both = done(Command::new("openssl").args(options))?;
    fs::write(directory().join(format!("{node}.pem")), both)?;
    Ok(())
}

/// What a command prints that succeeds.
fn done(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed: {}", program.display(), said.trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// Only root gets here, so it is nobody else's.
fn directory() -> &'static Path {
    Path::new("/run/ekiden-bench")
}

/// Debian's library directories in the unpacked packages; the machine's own come after them.
fn libraries(peers: &Path) -> String {
    let triplet = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    peers.join(triplet).display().to_string()
}

/// A relay that takes connections. Dropping it ends its processes.
pub struct Running {
    relay: Relay,
    nodes: Vec<Child>,
}

impl Running {
    /// Starts it and waits until it takes connections.
    pub fn start(relay: Relay, network: &Network, args: &Args) -> Result<Self> {
        let mut running = Self { relay, nodes: Vec::new() };
        for node in relay.nodes() {
            let place = if node.at_exit { &network.exit } else { &network.relay };
            let log = File::create(node.log())?;
            let mut command = relay.command(node.config, args);
            command.current_dir(directory()).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            place.attach(&mut command);
            let child = command.spawn().with_context(|| format!("cannot run {}", relay.binary(args).display()))?;
            running.nodes.push(child);
            // Its neighbour on the client's side.
            let neighbour = if node.at_exit { &network.relay } else { &network.client };
            let ready = running.wait_until_ready(node.address(), neighbour);
            running.explain(ready)?;
        }
        Ok(running)
    }

    /// The CPU time it has used so far.
    pub fn cpu(&self) -> Result<Duration> {
        self.nodes.iter().map(|node| process::cpu_of_tree(node.id())).sum()
    }

    /// The memory of its processes, in bytes.
    pub fn memory(&self) -> Result<u64> {
        self.nodes.iter().map(|node| process::memory_of_tree(node.id())).sum()
    }

    /// Fails if one of its processes has ended.
    pub fn check(&mut self) -> Result<()> {
        for process in &mut self.nodes {
            if let Some(status) = process.try_wait()? {
                bail!("{} has ended: {status}", self.relay.name());
            }
        }
        Ok(())
    }

    /// Adds the last line that each of its processes wrote to an error.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        let last = |node: &Node| {
            let log = fs::read_to_string(node.log()).unwrap_or_default();
            let line = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
            format!("{}.log ends with '{line}'", node.config)
        };
        match self.relay.nodes() {
            [] => result,
            nodes => result.with_context(|| nodes.iter().map(last).collect::<Vec<_>>().join(", ")),
        }
    }

    fn wait_until_ready(&mut self, address: SocketAddr, from: &Namespace) -> Result<()> {
        let start = Instant::now();
        while from.run(|| TcpStream::connect_timeout(&address, START)).is_err() {
            self.check()?;
            ensure!(start.elapsed() < START, "{} does not take connections at {address}", self.relay.name());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for node in &self.nodes {
            let _ = kill(Pid::from_raw(node.id() as i32), Signal::SIGTERM);
        }
        let asked = Instant::now();
        for node in &mut self.nodes {
            while matches!(node.try_wait(), Ok(None)) && asked.elapsed() < END {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}
