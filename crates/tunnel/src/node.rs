//! A node with a tunnel: its device, its connections to the peers, and the life of the process.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::net::UnixListener as StdListener;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ekiden_controls::{Reason, Registration};
use ekiden_keys::random_secret;
use ekiden_link::{Siblings, Signals};
use ekiden_net::patience;
use ekiden_net::privileges::{Capability, keep_only};
use ekiden_net::socket::{self, TcpOptions};
use ekiden_net::status_socket::{self, Holder};
use ekiden_transport::{Bounds, Strangers, Throttle};
use ekiden_units::Time;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{LocalSet, spawn_local};
use tun_rs::SyncDevice;

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
    config: Config,
    tun: Tun,
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

/// Runs the tunnel that `config` describes until a signal ends it, or somebody removes its device or takes it down. The device and its routes end with it.
///
/// Once the device is there and the listener listens, it gives up the capabilities that it does not need any more.
///
/// Writes `device NAME`, `listening tunnel ADDRESS` if it listens, and `ready` to standard output.
///
/// # Errors
/// If it cannot start, or its device is gone.
pub fn run(config: Config) -> Result<(), StartError> {
    // If the limit stays what it was, there are fewer places for strangers.
    let _ = socket::raise_open_files();
    // Kept for as long as the process lives, for the connections to come.
    let _held = bring_control(&config)?;
    socket::check(&config.tcp).map_err(StartError::Tcp)?;
    let until = patience::deadline();
    await_free(&config, until)?;
    let listen = |Listen { address, .. }: &Listen| socket::listen(*address, false, &config.tcp);
    let listener = config.listen.as_ref().map(listen).transpose().map_err(StartError::Listen)?;
    let tun = device::create(&config)?;
    let asked = listen_for_status(&config.device.name, until);
    keep_only(needed(&config)).map_err(StartError::Privileges)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = LocalSet::new().block_on(&runtime, async {
        let node = Rc::new(Node::new(config, tun)?);
        let mut announced = format!("device {}\n", node.config.device.name);
        if let Some(listener) = listener {
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            announced.push_str(&format!("listening tunnel {}\n", listener.local_addr()?));
            if let Some(Listen { security, .. }) = &node.config.listen {
                spawn_local(Rc::clone(&node).accept_all(listener, Rc::new(security.clone())));
            }
        }
        for (peer, settings) in node.config.peers.values().enumerate().filter(|(_, peer)| peer.address.is_some()) {
            for number in 0..settings.classes.connections() {
                spawn_local(Rc::clone(&node).keep_dialling(peer, number));
            }
        }
        spawn_local(Rc::clone(&node).count_lines());
        let reading = spawn_local(Rc::clone(&node).read_device());
        match asked.and_then(UnixListener::from_std) {
            Ok(listener) => {
                let node = Rc::clone(&node);
                let status = move || serde_json::to_vec(&node.status()).unwrap_or_default();
                spawn_local(status_socket::answer_all(listener, status, |why| tracing::debug!("{why}")));
            }
            Err(error) => tracing::warn!("`ekiden tunnel status` will find nothing: {error}"),
        }
        host::warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        if let Some(identity) = &node.config.identity {
            tracing::info!("this node's key is {}", identity.fingerprint());
        }
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        announced.push_str("ready\n");
        announce(announced);
        let name = node.config.device.name.clone();
        let taken_down = async {
            match device::taken_down(&node.config).await {
                Ok(()) => StartError::DeviceGone(name.clone()),
                Err(error) => {
                    tracing::warn!("whether somebody takes the device down will not be seen: {error}");
                    std::future::pending().await
                }
            }
        };
        let ended = tokio::select! {
            down = taken_down => Err(down),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            read = reading => Err(match read {
                Ok(source) => {
                    tracing::debug!("{name}: {source}");
                    StartError::DeviceGone(name.clone())
                }
                // A fault of this program, which has been told. Without its device it would be there for nothing.
                Err(error) => io::Error::other(error).into(),
            }),
        };
        node.say_totals();
        ended
    });
    // A name that is being looked up may take long, and nobody waits for it any more.
    runtime.shutdown_background();
    ended
}

/// Whether the congestion control and the buffers that `config` names are there. Ekiden's own controls, which are brought into the
/// kernel at the start, are not tried.
///
/// # Errors
/// [`StartError::Congestion`] and [`StartError::Tcp`].
pub fn check(config: &Config) -> Result<(), StartError> {
    none_of(ekiden_controls::unavailable(config.tcp.congestion.as_slice()))?;
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
    let (held, unavailable) =
        ekiden_controls::register(config.tcp.congestion.as_slice(), config.congestion.as_deref(), &[]);
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

/// Whoever reads standard output may have gone, or not read: the tunnel does not wait for it.
fn announce(text: String) {
    let say = move || {
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            tracing::warn!("nobody could be told on standard output that this tunnel is ready: {error}");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("announce".into()).spawn(say) {
        tracing::warn!("nobody could be told on standard output that this tunnel is ready: {error}");
    }
}

impl Node {
    fn new(config: Config, device: SyncDevice) -> Result<Self, StartError> {
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
            }
        };
        let peers = config.peers.values().map(state).collect();
        let (unroutable, unreadable, device_refused) = Default::default();
        let most_strangers = Strangers::bounds(socket::open_files()?);
        let tun = Tun::new(device)?;
        Ok(Self {
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

    fn hello(&self, peer: usize, connection: u8) -> Hello {
        let keepalive_s = u16::try_from(self.config.keepalive.0.div_ceil(Time::secs(1).0)).unwrap_or(u16::MAX);
        Hello {
            connection,
            mtu: self.config.device.mtu,
            takes_super: self.tun.has_offload(),
            keepalive_s,
            has_dropped: self.peers[peer].foreign.get().0 > 0,
        }
    }

    fn check(&self, theirs: Hello, connections: u8) -> Result<(), FrameError> {
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
        }
    }

    fn say_totals(&self) {
        for (number, peer) in self.peers.iter().enumerate() {
            let mut all = Signals::default();
            peer.slots.iter().for_each(|slot| all += slot.queue.signals());
            let Signals { drops, marks } = all;
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
