//! A node with a tunnel: its device, its connections to the peers, and the life of the process.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ekiden_bpf::Registration;
use ekiden_bpf::named::{self, Reason};
use ekiden_keys::random_secret;
use ekiden_net::patience;
use ekiden_net::privileges::{Capability, has, keep_only};
use ekiden_net::socket::{self, SocketError, TcpOptions, overlap};
use ekiden_queue::Siblings;
use ekiden_relay_proto::leg::About;
use ekiden_service::status_socket::{self, Holder};
use ekiden_service::{Asked, Signals, Throttle, announce, reload};
use ekiden_transport::{Bounds, Strangers};
use ekiden_units::Time;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{LocalSet, spawn_local};

use crate::carry::CarryError;
use crate::config::{Config, Listen, Peer};
use crate::device;
use crate::error::StartError;
use crate::frame::{FrameError, Hello};
use crate::host;
use crate::queue::Outgoing;
use crate::status::socket_name;
use crate::tun::Tun;

mod admit;
mod answer;
mod dial;
mod http_proxy;
mod probe;
mod progress;
mod race;
mod serve;
mod slot;
mod traffic;

pub use probe::{Probed, probe};
use slot::{PeerState, Slot};

/// How long a node has to prove who it is and to greet.
const GREETING: Duration = Duration::from_secs(10);

/// What all tasks share. They run on one thread.
struct Node {
    /// When the program has started; other nodes may have been before this one.
    began: Instant,
    config: Config,
    tun: Rc<Tun>,
    peers: Vec<PeerState>,
    strangers: Strangers,
    most_strangers: Bounds,
    /// Packets to addresses that no peer has.
    unroutable: Cell<u64>,
    /// Packets of the host that are not what the kernel says about them.
    unreadable: Cell<u64>,
    /// Packets that the device did not take, or only cut into segments.
    device_refused: Cell<u64>,
    /// Lines of the log that others can cause.
    lines: Throttle,
}

/// Runs the tunnel that `config`, read from `file`, describes until a signal ends it, or somebody removes its device or takes it down. The
/// device and its routes end with it.
///
/// Once the device is there and the listener listens, it gives up the capabilities that it does not need any more.
///
/// Writes `device NAME`, `listening tunnel ADDRESS` if it listens, and `ready` to standard output. SIGHUP reads `file` again: what it says
/// of connections is taken, and they are made anew.
///
/// # Errors
/// If it cannot start, or its device is gone.
pub fn run(config: Config, file: &Path) -> Result<(), StartError> {
    let began = Instant::now();
    // If the limit stays what it was, there are fewer places for strangers.
    let _ = socket::raise_open_files();
    // Kept for as long as the process lives, for the connections to come.
    let mut held = bring_control(&config)?;
    socket::check(&config.tcp).map_err(StartError::Tcp)?;
    let until = patience::deadline();
    await_free(&config, until)?;
    let mut listener = listen(&config, socket::listen_alone)?;
    let tun = device::create(&config)?;
    let asked = listen_for_status(&config.device.name, until);
    keep_only(needed(&config)).map_err(StartError::Privileges)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut node = Rc::new(Node::new(began, config, Rc::new(Tun::new(tun)?))?);
        host::warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        node.say_key();
        let mut signals = Signals::new()?;
        announce(node.announced(listener.as_ref())?);
        if let Err(error) = &asked {
            tracing::warn!("`ekiden tunnel status` will find nothing: {error}");
        }
        loop {
            // With it all tasks of this node end, and their connections.
            let tasks = LocalSet::new();
            let listener_of_node = listener.as_ref().map(StdTcpListener::try_clone).transpose()?;
            let asked = asked.as_ref().ok().map(StdListener::try_clone).transpose()?;
            let ended = tasks.run_until(node.carry(listener_of_node, asked, &mut signals, file)).await;
            node.say_totals();
            let (config, fresh, control) = match ended? {
                Ended::Told => return Ok(()),
                Ended::Changed(changed) => *changed,
            };
            drop(tasks);
            listener = fresh;
            held.extend(control);
            node = Rc::new(Node::new(began, config, Rc::clone(&node.tun))?);
            node.say_key();
        }
    });
    // A look-up of a name may take long, and no task waits for it any more.
    runtime.shutdown_background();
    ended
}

/// Why a node no longer carries packets.
enum Ended {
    /// A signal asks for the end.
    Told,
    /// Another configuration is to be in force.
    Changed(Box<Changed>),
}

/// A configuration that was read again, its listener, and the congestion control that it wants held.
type Changed = (Config, Option<StdTcpListener>, Vec<Registration>);

/// Whether this host has devices, addresses, the congestion control and the buffers as `config` names them. Ekiden's own controls, which
/// are brought into the kernel at the start, are not tried.
///
/// # Errors
/// [`StartError::NoTun`], [`StartError::Address`], [`StartError::Congestion`] and [`StartError::Tcp`].
pub fn check(config: &Config) -> Result<(), StartError> {
    match device::check(config) {
        // It may be this tunnel's own, which runs.
        Err(StartError::DeviceInUse(_)) => {}
        other => other?,
    }
    device::check_addresses(config)?;
    none_of(named::unavailable(config.tcp.congestion.as_slice()))?;
    let others = TcpOptions { congestion: None, ..config.tcp.clone() };
    socket::check(&others).map_err(StartError::Tcp)
}

/// Waits for what a process before this one gives up, or the host will have: the device's name, the address to listen on. Two tunnels
/// with one port would each get some of the connections.
fn await_free(config: &Config, until: Instant) -> Result<(), StartError> {
    let is_taken = |error: &StartError| matches!(error, StartError::DeviceInUse(_));
    patience::patiently(until, || device::check(config), is_taken, |error| waits("the device", error))?;
    let Some(Listen { address, .. }) = &config.listen else { return Ok(()) };
    socket::await_free(*address, false, until, |error| waits("the address", error)).map_err(StartError::Listen)
}

/// Takes the name on which this tunnel is asked. A process that has just given up the device may keep it for a moment longer; what
/// another user has is not waited for.
fn listen_for_status(device: &str, until: Instant) -> io::Result<StdListener> {
    let name = socket_name(device);
    let passes = |error: &io::Error| {
        error.kind() == io::ErrorKind::AddrInUse && !matches!(status_socket::holder(&name), Holder::Stranger(_))
    };
    let listen = || status_socket::listen(&name);
    patience::patiently(until, listen, passes, |error| waits("the name of its status", error))
}

fn waits(what: &str, why: &dyn fmt::Display) {
    tracing::warn!("{what} is waited for, {:?} at most: {why}", patience::LONGEST);
}

/// Brings the congestion control that the configuration names into the kernel, if it is one of ekiden's own.
fn bring_control(config: &Config) -> Result<Vec<Registration>, StartError> {
    let (held, unavailable) = named::register(config.tcp.congestion.as_slice(), config.congestion.as_deref(), &[]);
    none_of(unavailable).map(|()| held)
}

fn none_of(unavailable: Vec<(String, Reason)>) -> Result<(), StartError> {
    match unavailable.into_iter().next() {
        Some((name, reason)) => Err(StartError::Congestion { name, reason }),
        None => Ok(()),
    }
}

/// The capabilities that new connections need: CAP_NET_ADMIN allows restricted congestion controls, and buffers beyond the system's
/// limit.
fn needed(config: &Config) -> &'static [Capability] {
    let TcpOptions { congestion, send_buffer, receive_buffer, .. } = &config.tcp;
    let is_special = congestion.is_some() || send_buffer.is_some() || receive_buffer.is_some();
    if is_special { &[Capability::CAP_NET_ADMIN] } else { &[] }
}

/// The socket at which peers connect.
fn listen(
    config: &Config,
    listen: impl Fn(SocketAddr, bool, &TcpOptions) -> Result<StdTcpListener, SocketError>,
) -> Result<Option<StdTcpListener>, StartError> {
    let at = |Listen { address, .. }: &Listen| listen(*address, false, &config.tcp);
    config.listen.as_ref().map(at).transpose().map_err(StartError::Listen)
}

impl Node {
    fn new(began: Instant, config: Config, tun: Rc<Tun>) -> Result<Self, StartError> {
        let secret = random_secret()?;
        let salt = u64::from_ne_bytes(secret[..8].try_into().unwrap_or_default());
        let slot = || Slot::new(Outgoing::new(&config.queue, config.device.mtu, salt));
        let state = |peer: &Peer| {
            let number = peer.classes.connections();
            PeerState {
                slots: (0..number).map(|_| slot()).collect(),
                siblings: Siblings::new(number.into()),
                foreign: Cell::default(),
                told: RefCell::default(),
                build: RefCell::default(),
                has_told_missing: Cell::default(),
            }
        };
        let peers = config.peers.values().map(state).collect();
        let (unroutable, unreadable, device_refused) = Default::default();
        let most_strangers = Strangers::bounds(socket::open_files()?);
        Ok(Self {
            began,
            config,
            tun,
            peers,
            strangers: Strangers::default(),
            most_strangers,
            unroutable,
            unreadable,
            device_refused,
            lines: Throttle::default(),
        })
    }

    /// What it has, for the program that started it.
    fn announced(&self, listener: Option<&StdTcpListener>) -> io::Result<String> {
        let listening = match listener {
            Some(listener) => format!("listening tunnel {}\n", listener.local_addr()?),
            None => String::new(),
        };
        Ok(format!("device {}\n{listening}ready\n", self.config.device.name))
    }

    fn say_key(&self) {
        if let Some(identity) = &self.config.identity {
            tracing::info!("this node's key is {}", identity.fingerprint());
        }
    }

    /// Carries packets until a signal asks for something else, or the device is gone.
    async fn carry(
        self: &Rc<Self>,
        listener: Option<StdTcpListener>,
        asked: Option<StdListener>,
        signals: &mut Signals,
        file: &Path,
    ) -> Result<Ended, StartError> {
        if let (Some(listener), Some(Listen { security, .. })) = (listener, &self.config.listen) {
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            spawn_local(Rc::clone(self).accept_all(listener, Rc::new(security.clone())));
        }
        for (peer, settings) in self.config.peers.values().enumerate().filter(|(_, peer)| peer.address.is_some()) {
            for number in 0..settings.classes.connections() {
                spawn_local(Rc::clone(self).keep_dialling(peer, number));
            }
        }
        spawn_local(Rc::clone(self).count_lines());
        let reading = spawn_local(Rc::clone(self).read_device());
        if let Some(listener) = asked {
            let (node, listener) = (Rc::clone(self), UnixListener::from_std(listener)?);
            let status = move || serde_json::to_vec(&node.status()).unwrap_or_default();
            spawn_local(status_socket::answer_all(listener, status, |why| tracing::debug!("{why}")));
        }
        let name = &self.config.device.name;
        let taken_down = async {
            match device::taken_down(&self.config).await {
                Ok(()) => StartError::DeviceGone(name.clone()),
                Err(error) => {
                    tracing::warn!("whether somebody takes the device down will not be seen: {error}");
                    std::future::pending().await
                }
            }
        };
        let heed = async {
            loop {
                match signals.next().await {
                    Asked::End => return Ended::Told,
                    Asked::Reload => {
                        if let Some(changed) = self.read_again(file) {
                            return Ended::Changed(Box::new(changed));
                        }
                    }
                }
            }
        };
        tokio::select! {
            down = taken_down => Err(down),
            ended = heed => Ok(ended),
            read = reading => Err(match read {
                Ok(source) => {
                    tracing::debug!("{name}: {source}");
                    StartError::DeviceGone(name.clone())
                }
                // A fault of this program, which has been told. Without its device it would be there for nothing.
                Err(error) => io::Error::other(error).into(),
            }),
        }
    }

    /// The configuration of the file, if it is another one and can be used by a tunnel that runs. Says what is done.
    fn read_again(&self, file: &Path) -> Option<Changed> {
        let config = reload::another(file, Config::load(file), &self.config)?;
        match self.prepare(&config) {
            Ok((listener, control)) => {
                reload::taken(file);
                tracing::info!("all connections are made anew");
                Some((config, listener, control))
            }
            Err(error) => {
                let place = error.place_in(file).map_or(String::new(), |place| format!("{place}: "));
                reload::refused(format_args!("{place}{error}"));
                None
            }
        }
    }

    /// What another configuration needs, made while this one is in force.
    fn prepare(&self, config: &Config) -> Result<(Option<StdTcpListener>, Vec<Registration>), StartError> {
        if config.device != self.config.device {
            return Err(StartError::OnlyAtStart("[device]"));
        }
        if !device::has_same_routes(config, &self.config) {
            return Err(StartError::OnlyAtStart("which networks of `allowed` need routes"));
        }
        if needed(config).iter().any(|capability| !has(*capability)) {
            return Err(StartError::OnlyAtStart("[tcp] with a congestion control or buffers"));
        }
        let control = bring_control(config)?;
        socket::check(&config.tcp).map_err(StartError::Tcp)?;
        // The present listener may be in the way of its successor, and nothing else may.
        let own = self.config.listen.as_ref().map(|own| own.address);
        let fresh = listen(config, |address, only_v6, options| match own.is_some_and(|own| overlap(own, address)) {
            true => socket::listen(address, only_v6, options),
            false => socket::listen_alone(address, only_v6, options),
        });
        Ok((fresh?, control))
    }

    fn hello(&self, peer: usize, connection: u8) -> Hello {
        let keepalive_s = u16::try_from(self.config.keepalive.0.div_ceil(Time::secs(1).0)).unwrap_or(u16::MAX);
        Hello {
            connection,
            mtu: self.config.device.mtu,
            takes_super: self.tun.has_offload(),
            keepalive_s,
            has_dropped: self.peers[peer].foreign.get().0 > 0,
            build: About::own().build,
        }
    }

    fn check(&self, theirs: &Hello, connections: u8) -> Result<(), FrameError> {
        let (ours, number) = (self.config.device.mtu, theirs.connection);
        match theirs.mtu {
            _ if number >= connections => Err(FrameError::Number { number, connections }),
            _ if theirs.is_question() => Ok(()),
            mtu if mtu != ours => Err(FrameError::Mtu { theirs: mtu, ours }),
            _ => Ok(()),
        }
    }

    /// Packets from addresses that a peer may not use.
    fn foreign(&self) -> u64 {
        self.peers.iter().map(|peer| peer.foreign.get().0).sum()
    }

    fn name(&self, peer: usize) -> &str {
        self.config.peers.get_index(peer).map_or("", |(name, _)| name)
    }

    /// Logs how many lines were left out, for as long as the node lives.
    async fn count_lines(self: Rc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.lines.flush();
            self.tell_missing();
        }
    }

    /// A peer that connects to this node, and keeps fewer connections than this end has for it, has other numbers in its file: it does not
    /// know of the others.
    fn tell_missing(&self) {
        let dialling = self.config.peers.values().zip(&self.peers).enumerate();
        for (number, (_, state)) in dialling.filter(|(_, (peer, _))| peer.address.is_none()) {
            let is_missing = state.lasts() && state.slots.iter().any(|slot| slot.current.borrow().is_none());
            if is_missing && !state.has_told_missing.replace(true) {
                let (name, all) = (self.name(number), state.slots.len());
                let there = state.slots.iter().filter(|slot| slot.current.borrow().is_some()).count();
                let line = format_args!(
                    "{name} keeps {there} of the {all} connections that its [peer] has here, with those of its classes: set the same \
                     connections at both ends"
                );
                self.lines.warn("missing", name, line);
            } else if !is_missing {
                state.has_told_missing.set(false);
            }
        }
    }

    fn say_totals(&self) {
        for (number, peer) in self.peers.iter().enumerate() {
            let mut all = ekiden_queue::Signals::default();
            peer.slots.iter().for_each(|slot| all += slot.queue.signals());
            let ekiden_queue::Signals { drops, marks } = all;
            tracing::info!("{}: {drops} packets were dropped in the queue, {marks} marked", self.name(number));
        }
        let (unroutable, foreign) = (self.unroutable.get(), self.foreign());
        tracing::info!("{unroutable} packets had no peer, {foreign} came from addresses that are not allowed");
        let (unreadable, refused) = (self.unreadable.get(), self.device_refused.get());
        tracing::info!("{unreadable} packets could not be read, the device refused {refused}");
    }
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

fn late() -> CarryError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}
