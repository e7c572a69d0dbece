//! A node with a tunnel: its device, its connections to the peers, and the life of the process.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use ekiden_keys::random_secret;
use ekiden_net::privileges::{Capability, keep_only};
use ekiden_net::socket::{self, TcpOptions, canonical};
use ekiden_transport::{Admission, Connection, accept, dial};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};
use tun_rs::SyncDevice;

use crate::carry::{CarryError, Sender, receive, receive_hello, send_hello};
use crate::config::{Config, Peer};
use crate::decoder::Frame;
use crate::device;
use crate::error::StartError;
use crate::frame::{FrameError, Hello};
use crate::queue::Outgoing;
use crate::tun::Tun;

mod traffic;

/// How long a node has to prove who it is and to greet.
const GREETING: Duration = Duration::from_secs(10);
/// How long a connection attempt may take.
const CONNECTING: Duration = Duration::from_secs(10);
/// The pause before a peer is dialled again, the first and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(15)];
/// Connections that have not proven yet who they are: in all, and from one address.
const UNPROVEN: usize = 64;
const UNPROVEN_FROM_ONE: usize = 8;

/// What all tasks share. They run on one thread.
struct Node {
    config: Config,
    tun: Tun,
    peers: Vec<PeerState>,
    unproven: RefCell<BTreeMap<IpAddr, usize>>,
    /// Packets to addresses that no peer has, or whose peer is not connected; from addresses that the peer may not use.
    unroutable: Cell<u64>,
    foreign: Cell<u64>,
    /// Packets of the host that are not what the kernel says about them; packets that the kernel took only in pieces.
    unreadable: Cell<u64>,
    device_refused: Cell<u64>,
}

struct PeerState {
    slots: Vec<Slot>,
}

/// One of the connections to a peer, whether it is there or not.
struct Slot {
    queue: Outgoing,
    current: RefCell<Option<Current>>,
    ended: Notify,
}

/// The connection that a slot has.
struct Current {
    stop: Rc<Notify>,
    /// This node has dialled it.
    is_ours: bool,
}

/// Runs the tunnel that `config` describes until a signal ends it. The device and its routes end with it.
///
/// Once the device is there and the listener listens, it gives up the capabilities that it does not need any more.
///
/// Writes `device NAME`, `listening tunnel ADDRESS` if it listens, and `ready` to standard output.
///
/// # Errors
/// If it cannot start.
pub fn run(config: Config) -> Result<(), StartError> {
    socket::check(&config.tcp).map_err(StartError::Tcp)?;
    let listen = |address| socket::listen(address, false, &config.tcp).map_err(StartError::Listen);
    let listener = config.listen.map(listen).transpose()?;
    let tun = device::create(&config)?;
    keep_only(needed(&config)).map_err(StartError::Privileges)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let node = Rc::new(Node::new(config, tun)?);
        let mut announced = format!("device {}\n", node.config.device.name);
        if let Some(listener) = listener {
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            announced.push_str(&format!("listening tunnel {}\n", listener.local_addr()?));
            spawn_local(Rc::clone(&node).accept_all(listener));
        }
        for (peer, settings) in node.config.peers.values().enumerate().filter(|(_, peer)| peer.address.is_some()) {
            for number in 0..settings.connections {
                spawn_local(Rc::clone(&node).keep_dialling(peer, number));
            }
        }
        spawn_local(Rc::clone(&node).read_device());
        tracing::info!("this node's key is {}", node.config.identity.fingerprint());
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        announced.push_str("ready\n");
        announce(announced);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        node.say_totals();
        Ok(())
    })
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
        let slot = || Slot {
            queue: Outgoing::new(&config.queue, config.device.mtu, salt),
            current: RefCell::new(None),
            ended: Notify::new(),
        };
        let state = |peer: &Peer| PeerState { slots: (0..peer.connections).map(|_| slot()).collect() };
        let peers = config.peers.values().map(state).collect();
        let (unproven, unroutable, foreign, unreadable, device_refused) = Default::default();
        let tun = Tun::new(device)?;
        Ok(Self { config, tun, peers, unproven, unroutable, foreign, unreadable, device_refused })
    }

    /// Keeps one connection to a peer that has an address.
    async fn keep_dialling(self: Rc<Self>, peer: usize, number: u8) {
        let (name, slot) = (self.name(peer), &self.peers[peer].slots[usize::from(number)]);
        let (mut pause, mut told) = (PAUSES[0], String::new());
        loop {
            // The peer may have connected itself.
            while slot.current.borrow().is_some() {
                slot.ended.notified().await;
            }
            match self.dial(peer, number).await {
                Ok((connection, theirs)) => {
                    (pause, told) = (PAUSES[0], String::new());
                    self.serve(peer, theirs, connection, true).await;
                }
                Err(error) => {
                    let error = error.to_string();
                    // Each reason is told once.
                    if error == told {
                        tracing::debug!("cannot connect to {name}: {error}");
                    } else {
                        tracing::warn!("cannot connect to {name}: {error}");
                    }
                    told = error;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    async fn dial(&self, peer: usize, number: u8) -> Result<(Connection, Hello), CarryError> {
        let settings = &self.config.peers[peer];
        let Some((host, port)) = &settings.address else { return Err(CarryError::Closed) };
        let socket = timeout(CONNECTING, self.connect(host, *port)).await.map_err(|_| late())??;
        let greet = async {
            let (connection, prelude) = dial(socket, &settings.security, &self.config.name).await?;
            connection.send_all(&prelude).await?;
            send_hello(&connection, self.hello(number)).await?;
            let theirs = receive_hello(&connection).await?;
            self.check(theirs, settings.connections)?;
            Ok((connection, Hello { connection: number, ..theirs }))
        };
        timeout(GREETING, greet).await.map_err(|_| late())?
    }

    /// Connects to the first of a host's addresses that answers.
    async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
        for address in lookup_host((host, port)).await? {
            if self.config.allowed.peer(address.ip()).is_some() {
                let message = format!("{host} is {}, which is reached through the tunnel itself", address.ip());
                last = io::Error::other(message);
                continue;
            }
            let socket = socket::outgoing(address, &self.config.tcp).map_err(io::Error::other)?;
            match TcpSocket::from_std_stream(socket.into()).connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
            }
        }
        Err(last)
    }

    async fn accept_all(self: Rc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((socket, from)) => {
                    let from = canonical(from);
                    if self.may_prove(from.ip()) {
                        spawn_local(Rc::clone(&self).admit(socket, from));
                    }
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Whether there is a place for one more connection that has proven nothing. It then has it.
    fn may_prove(&self, from: IpAddr) -> bool {
        let mut unproven = self.unproven.borrow_mut();
        let all: usize = unproven.values().sum();
        let here = unproven.entry(from).or_default();
        let may = all < UNPROVEN && *here < UNPROVEN_FROM_ONE;
        if may {
            *here += 1;
        } else if *here == 0 {
            unproven.remove(&from);
        }
        may
    }

    fn has_proven(&self, from: IpAddr) {
        let mut unproven = self.unproven.borrow_mut();
        if let Some(here) = unproven.get_mut(&from) {
            *here -= 1;
            if *here == 0 {
                unproven.remove(&from);
            }
        }
    }

    /// Finds out who has connected, and carries packets if it is a peer.
    async fn admit(self: Rc<Self>, socket: TcpStream, from: SocketAddr) {
        let greeted = timeout(GREETING, self.greet(socket)).await;
        self.has_proven(from.ip());
        match greeted.map_err(|_| late()).and_then(|greeted| greeted) {
            Ok((peer, theirs, connection)) => self.serve(peer, theirs, connection, false).await,
            Err(error) => tracing::warn!("a connection from {from} was refused: {error}"),
        }
    }

    async fn greet(&self, socket: TcpStream) -> Result<(usize, Hello, Connection), CarryError> {
        let (name, connection) = match accept(socket, &self.config.accepts, &self.config.name).await? {
            Admission::Admitted { name, connection, .. } => (name, connection),
            Admission::Refused(refused) => return Err(io::Error::other(refused.why).into()),
        };
        let theirs = receive_hello(&connection).await?;
        // Said in any case, so that the other side finds the same.
        send_hello(&connection, self.hello(theirs.connection)).await?;
        let Some((peer, _, settings)) = self.config.peers.get_full(&name) else { return Err(CarryError::Closed) };
        self.check(theirs, settings.connections)?;
        Ok((peer, theirs, connection))
    }

    fn hello(&self, connection: u8) -> Hello {
        Hello { connection, mtu: self.config.device.mtu, takes_super: self.tun.has_offload() }
    }

    fn check(&self, theirs: Hello, connections: u8) -> Result<(), FrameError> {
        let (ours, number) = (self.config.device.mtu, theirs.connection);
        match theirs.mtu {
            _ if number >= connections => Err(FrameError::Number { number, connections }),
            mtu if mtu != ours => Err(FrameError::Mtu { theirs: mtu, ours }),
            _ => Ok(()),
        }
    }

    /// Carries packets over a connection until it ends, or another one takes its place.
    async fn serve(&self, peer: usize, theirs: Hello, mut connection: Connection, is_ours: bool) {
        let number = theirs.connection;
        let (name, slot) = (self.name(peer), &self.peers[peer].slots[usize::from(number)]);
        let stop = Rc::new(Notify::new());
        if let Some(other) = slot.current.borrow().as_ref() {
            // Both ends may have dialled. The node of the smaller key then has the say, so that both keep the same one.
            let smaller = self.config.identity.fingerprint().to_string() < self.fingerprint(peer);
            if other.is_ours != is_ours && other.is_ours == smaller {
                tracing::debug!("{name}: a second connection of number {number} is not needed");
                return;
            }
            other.stop.notify_one();
        }
        slot.queue.open(theirs.takes_super);
        *slot.current.borrow_mut() = Some(Current { stop: Rc::clone(&stop), is_ours });
        let far = connection.socket().peer_addr().map_or(String::new(), |address| format!(", {}", canonical(address)));
        tracing::info!("{name}: connection {number} carries packets{far}");
        let why = match Sender::new(&mut connection, self.config.queue.pull.map(|pull| pull.unsent.0)) {
            Ok(sender) => {
                let keepalive = self.config.keepalive.into();
                let take = async |frame: Frame<'_>| self.leave(peer, frame).await;
                tokio::select! {
                    ended = sender.run(&connection, &slot.queue, keepalive) => ended.err(),
                    ended = receive(&connection, self.config.device.mtu, keepalive, take) => ended.err(),
                    () = stop.notified() => None,
                }
            }
            Err(error) => Some(error.into()),
        };
        match why {
            Some(why) => tracing::warn!("{name}: connection {number} ended: {why}"),
            None => return tracing::info!("{name}: connection {number} was replaced by a new one"),
        }
        *slot.current.borrow_mut() = None;
        slot.queue.clear();
        slot.ended.notify_waiters();
        slot.ended.notify_one();
    }

    fn name(&self, peer: usize) -> &str {
        self.config.peers.get_index(peer).map_or("", |(name, _)| name)
    }

    /// A peer's key as text.
    fn fingerprint(&self, peer: usize) -> String {
        match &self.config.peers[peer].security {
            ekiden_transport::Security::Tls { known: Some(key), .. } => key.to_string(),
            _ => String::new(),
        }
    }

    fn say_totals(&self) {
        for (number, peer) in self.peers.iter().enumerate() {
            let dropped: u64 = peer.slots.iter().map(|slot| slot.queue.dropped()).sum();
            tracing::info!("{}: {dropped} packets were dropped in the queue", self.name(number));
        }
        let (unroutable, foreign) = (self.unroutable.get(), self.foreign.get());
        tracing::info!("{unroutable} packets had no way, {foreign} came from addresses that are not allowed");
        let (unreadable, refused) = (self.unreadable.get(), self.device_refused.get());
        tracing::info!("{unreadable} packets could not be read, {refused} super-packets were refused by the kernel");
    }
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

fn late() -> CarryError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}
