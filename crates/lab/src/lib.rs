//! A scenario in real time: nodes are network namespaces with the real kernel's TCP, links are emulated, and real
//! programs run in the nodes.
//!
//! Call [`isolate`] first, before any thread starts; then [`Lab::build`]. Several labs may live at once.
//! `docs/guide/lab.md` describes the accuracy and how it is achieved.

mod background;
mod capture;
mod check;
mod chosen;
mod congestion;
mod emulator;
mod error;
mod flow;
mod gateways;
mod network;
mod node_file;
mod payload;
mod peers;
mod pings;
mod ports;
mod probe;
mod programs;
mod proxies;
mod run;
mod sandbox;
mod supported;
mod tcp;
mod tunnels;
mod waits;

use std::ffi::OsStr;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command};

use ekiden_bpf::Registration;
use ekiden_net::namespace::Namespace;
use ekiden_record::LinkDirection;
use ekiden_scenario::Scenario;
use tempfile::TempDir;

pub use capture::{Capture, Capturing};
pub use check::{Check, all_passed, check};
pub use congestion::register as register_congestion;
pub use error::{Error, ErrorKind};
pub use flow::Progress;
pub use node_file::NodeFile;
pub use peers::check_programs;
pub use pings::{Pinged, Pings};
pub use ports::{HTTP_PORT, LEG_PORT, SOCKS_PORT};
pub use programs::{node_files, write_keys};
pub use run::{Origin, verdict};
pub use sandbox::{Interrupt, clean, isolate, run_directory};
pub use supported::{check_congestion_controls, check_supported};
pub use waits::process_waited_percent;

use capture::Tap;
use emulator::{EmulatedLink, Emulator};
use error::building;
use network::Network;
use waits::Waits;

/// A running network. Dropping it ends everything in it.
pub struct Lab {
    scenario: Scenario,
    /// Programs started through [`Lab::start`], ended first.
    programs: Vec<Child>,
    /// Names of namespaces, to be taken away.
    names: Vec<PathBuf>,
    /// The programs' files.
    directories: Vec<TempDir>,
    emulator: Emulator,
    network: Network,
    /// Ekiden's congestion controls that the scenario uses.
    congestion: Vec<Registration>,
    /// How long the programs had waited for processors when the run began.
    waits: Waits,
}

impl Lab {
    /// Builds the nodes and links of `scenario`. Nothing runs in them yet.
    ///
    /// # Errors
    /// As [`check_supported`]; if the kernel refuses a step, or has no congestion control of a name that the scenario
    /// uses. Ekiden's own are brought into the kernel for as long as the lab lives.
    pub fn build(scenario: &Scenario) -> Result<Self, Error> {
        Self::build_with(scenario, Tap::default())
    }

    /// As [`Lab::build`], with a capture of its packets that was made for this scenario. It goes on until the lab is dropped;
    /// then call [`Capturing::finish`].
    ///
    /// # Errors
    /// As [`Lab::build`].
    pub fn build_captured(scenario: &Scenario, capture: Capture) -> Result<(Self, Capturing), Error> {
        let (tap, capturing) = capture.start().map_err(building("start writing packets"))?;
        Ok((Self::build_with(scenario, tap)?, capturing))
    }

    fn build_with(scenario: &Scenario, tap: Tap) -> Result<Self, Error> {
        check_supported(scenario)?;
        let congestion = congestion::register(scenario)?;
        let network = network::build(scenario)?;
        let links: Vec<_> = scenario
            .links
            .iter()
            .enumerate()
            .map(|(number, (name, link))| EmulatedLink {
                name,
                link,
                devices: [0, 1].map(|end| network::emulator_device(number, end)),
            })
            .collect();
        let emulator =
            Emulator::start(&network.emulator, &links, scenario.seed, tap).map_err(building("emulate the links"))?;
        Ok(Self {
            scenario: scenario.clone(),
            programs: Vec::new(),
            names: Vec::new(),
            directories: Vec::new(),
            emulator,
            network,
            congestion,
            waits: Waits::default(),
        })
    }

    /// The scenario it was built from.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The address of a node, the same on all its links.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`].
    pub fn address(&self, node: &str) -> Result<Ipv4Addr, Error> {
        self.index(node).map(|index| ekiden_scenario::address(index).unwrap_or(Ipv4Addr::UNSPECIFIED))
    }

    /// A command that runs `program` in a node. The caller starts it and waits for it; see [`Lab::start`] for one that
    /// ends with the lab.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`].
    pub fn command(&self, node: &str, program: impl AsRef<OsStr>) -> Result<Command, Error> {
        let mut command = Command::new(program);
        self.namespace(node)?.attach(&mut command);
        Ok(command)
    }

    /// Starts a command made by [`Lab::command`], to be killed when the lab is dropped. Returns its process id.
    ///
    /// # Errors
    /// [`Error::Program`].
    pub fn start(&mut self, node: &str, command: &mut Command) -> Result<u32, Error> {
        let child = command.spawn().map_err(|source| Error::Program {
            node: node.into(),
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })?;
        let id = child.id();
        self.programs.push(child);
        Ok(id)
    }

    /// The namespace of a node, for work that a thread of this process does in it.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`].
    pub fn namespace(&self, node: &str) -> Result<&Namespace, Error> {
        self.index(node).map(|index| &self.network.nodes[index])
    }

    /// Makes the nodes known by name to programs in the sandbox: as hosts, and to `ip netns`. Only one lab of a
    /// sandbox can have the names.
    ///
    /// # Errors
    /// [`Error::Build`], also if a lab with a node of the same name has them.
    pub fn publish_names(&mut self) -> Result<(), Error> {
        let mut hosts = String::new();
        for (index, (name, namespace)) in self.scenario.nodes.keys().zip(&self.network.nodes).enumerate() {
            let path = PathBuf::from(sandbox::NAMES).join(name);
            namespace.bind_to(&path).map_err(building(format!("name the namespace of node '{name}'")))?;
            self.names.push(path);
            if let Some(address) = ekiden_scenario::address(index) {
                let _ = writeln!(hosts, "{address} {name}");
            }
        }
        sandbox::write_hosts(&hosts).map_err(building("write the nodes' names for /etc/hosts"))
    }

    /// What each direction of each link has done since the lab was built or [`Lab::begin`] called.
    pub fn link_counters(&self) -> Vec<LinkDirection> {
        self.emulator.counters()
    }

    /// The run begins: all links count anew, and their changes and outages come from now on.
    pub fn begin(&self) {
        self.begin_ns();
    }

    /// The same. Returns when that is, by the monotonic clock.
    fn begin_ns(&self) -> u64 {
        self.waits.begin(&self.programs);
        self.emulator.begin()
    }

    /// The greatest part of the time since [`Lab::begin`], in percent, that one of the programs waited for a processor while it had
    /// something to do; `None` if there are none, or the kernel does not say.
    pub fn waited_percent(&self) -> Option<f64> {
        self.waits.percent(&self.programs)
    }

    fn index(&self, node: &str) -> Result<usize, Error> {
        self.scenario.nodes.get_index_of(node).ok_or_else(|| Error::NoSuchNode {
            name: node.into(),
            known: self.scenario.nodes.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
        for name in &self.names {
            let _ = Namespace::unbind(name);
        }
        if !self.names.is_empty() {
            let _ = sandbox::write_hosts("");
        }
    }
}
