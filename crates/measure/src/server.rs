//! A measuring server: who may measure, one at a time, and what a measurement may cost.

mod session;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream as StdStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ekiden_keys::{Fingerprint, random_secret};
use ekiden_net::socket::{TcpOptions, canonical, client_of, ensure_free, listen};
use ekiden_record::EndSettings;
use ekiden_transport::{Admission, Connection, Security, accept};
use indexmap::IndexMap;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::control;
use crate::message::{DATA, PLAIN, Preamble, Purpose, Reply, TLS};
use crate::settings::DURATION_MOST_US;

/// Where a measuring server listens unless told otherwise.
pub const ADDRESS: &str = "127.0.0.1:7100";
/// How long a connection may take to say what it is, and a client for each message.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections that have not proven anything yet: in all, and of one address, or of one IPv6 /64 network.
const STRANGERS_MOST: usize = 64;
const STRANGERS_OF_ADDRESS_MOST: usize = 8;
/// A TLS alert, fatal, access_denied (RFC 8446, section 6): what an open server answers to who speaks TLS.
const TLS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// What a server is to do.
#[derive(Debug)]
pub struct Settings {
    /// Where it listens.
    pub address: SocketAddr,
    /// Who may measure.
    pub admits: Admits,
    /// The most bytes of a measurement in each direction; without a limit for `None`.
    pub bytes_most: Option<u64>,
    /// The longest load.
    pub duration_most: Duration,
    /// How long it waits for a client that lets it wait.
    pub patience: Patience,
}

/// How long a server waits for its client. The default is what `ekiden measure server` has.
#[derive(Debug, Clone)]
pub struct Patience {
    /// For all connections of a load to come, beyond a second for each: the client opens one after the other. 10 s.
    pub gathering: Duration,
    /// For a load on which nothing moves. 40 s: a client gives up after 30 s by itself, if it runs.
    pub stalled: Duration,
    /// For the client to take the results, beyond the time that the load took. 30 s.
    pub results: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let [gathering, stalled, results] = [10, 40, 30].map(Duration::from_secs);
        Self { gathering, stalled, results }
    }
}

/// Who may measure.
#[derive(Debug)]
pub enum Admits {
    /// Nodes whose keys it knows.
    Nodes(Security<IndexMap<String, Fingerprint>>),
    /// Everyone.
    Everyone,
}

/// What happens at a server, for its log.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// It listens.
    Ready(SocketAddr),
    /// A measurement begins.
    Begins {
        /// Whom it comes from, by [`client_of`].
        from: IpAddr,
        /// The client: its name if it has one, and its address.
        client: String,
        /// What is measured, for people.
        what: String,
    },
    /// A measurement has ended.
    Ended {
        /// Whom it comes from, by [`client_of`].
        from: IpAddr,
        /// The client.
        client: String,
        /// What came out, for people.
        what: String,
    },
    /// A connection could not be accepted.
    NotAccepted {
        /// Why.
        why: String,
    },
    /// Somebody was refused, or a measurement failed.
    Failed {
        /// Whom it comes from, by [`client_of`].
        from: IpAddr,
        /// The client.
        client: String,
        /// Why.
        why: String,
    },
}

/// What all connections of a server share.
pub(crate) struct Server {
    settings: Settings,
    /// The measurement that is under way takes its connections here.
    current: Mutex<Option<Current>>,
    strangers: Mutex<HashMap<IpAddr, usize>>,
    log: Box<dyn Fn(Happened) + Send + Sync>,
}

/// The connections of a measurement, as they come.
type Links = mpsc::Receiver<(Purpose, StdStream)>;

/// The measurement that is under way.
struct Current {
    token: [u8; 16],
    links: mpsc::Sender<(Purpose, StdStream)>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ekiden_net::socket::SocketError),
    /// The system has no more of something.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Serves until SIGTERM or SIGINT. `log` must not wait.
///
/// # Errors
/// [`StartError`].
pub fn run(settings: Settings, log: impl Fn(Happened) + Send + Sync + 'static) -> Result<(), StartError> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            ended = serve(settings, log) => ended,
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    })
}

async fn serve(settings: Settings, log: impl Fn(Happened) + Send + Sync + 'static) -> Result<(), StartError> {
    ensure_free(settings.address, false)?;
    let listener = listen(settings.address, false, &TcpOptions::default())?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    log(Happened::Ready(listener.local_addr()?));
    let server = Server { settings, current: Mutex::default(), strangers: Mutex::default(), log: Box::new(log) };
    let server = Arc::new(server);
    loop {
        match listener.accept().await {
            Ok((socket, from)) => {
                let from = canonical(from);
                match Place::take(&server, from.ip()) {
                    Some(place) => drop(tokio::spawn(take(server.clone(), socket, from, place))),
                    None => {
                        let why = "closed at once: there are too many connections that prove nothing".into();
                        let client = from.to_string();
                        (server.log)(Happened::Failed { from: client_of(from.ip()), client, why });
                    }
                }
            }
            // Out of descriptors, mostly: they come back when something ends.
            Err(error) => {
                (server.log)(Happened::NotAccepted { why: error.to_string() });
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Finds out what a connection is.
async fn take(server: Arc<Server>, socket: TcpStream, from: SocketAddr, place: Place) {
    let client = from.to_string();
    let failed =
        |why: String| (server.log)(Happened::Failed { from: client_of(from.ip()), client: client.clone(), why });
    let mut first = [0; 4];
    let peeked = timeout(PATIENCE, peek(&socket, &mut first)).await;
    match peeked {
        Ok(Ok(())) if first == DATA => take_link(&server, socket).await,
        Ok(Ok(())) if first[0] == TLS => match &server.settings.admits {
            Admits::Everyone => {
                let connection = Connection::from(socket);
                let _ = timeout(PATIENCE, connection.send_all(&TLS_DENIED)).await;
                connection.end_cleanly();
                failed("it speaks TLS, and this server has no key: run the client with --open".into());
            }
            Admits::Nodes(security) => {
                let admitted = timeout(PATIENCE, accept(socket, security, "measuring server")).await;
                match admitted {
                    Ok(Ok(Admission::Admitted { name, connection, .. })) => {
                        session::run(&server, connection, format!("{name} ({client})"), place).await;
                    }
                    Ok(Ok(Admission::Refused(refused))) => failed(refused.why),
                    Ok(Err(error)) => failed(error.to_string()),
                    Err(_) => failed("it does not finish its handshake".into()),
                }
            }
        },
        Ok(Ok(())) if first == PLAIN => {
            let connection = Connection::from(socket);
            let mut magic = [0; 4];
            if connection.receive_exact(&mut magic).await.is_err() {
                return;
            }
            match &server.settings.admits {
                Admits::Everyone => {
                    session::run(&server, connection, client.clone(), place).await;
                }
                Admits::Nodes(_) => {
                    let why =
                        "it serves nodes whose keys it knows: give the client a key, with --config or --key".into();
                    let _ = control::send(&connection, &Reply::Refused { why, busy: false }, PATIENCE).await;
                    connection.end_cleanly();
                }
            }
        }
        // Scanners and mistakes: not worth a line each.
        _ => {}
    }
}

async fn peek(socket: &TcpStream, first: &mut [u8; 4]) -> io::Result<()> {
    loop {
        match socket.peek(first).await? {
            4 => return Ok(()),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            // The rest is under way; a peek would say again what is there.
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Gives a connection of a load to its measurement, if there is one.
async fn take_link(server: &Server, mut socket: TcpStream) {
    let mut bytes = [0; Preamble::BYTES];
    if !matches!(timeout(PATIENCE, socket.read_exact(&mut bytes)).await, Ok(Ok(_))) {
        return;
    }
    let Some(preamble) = Preamble::decode(&bytes) else { return };
    let links = match &*server.current() {
        Some(current) if is_same(&current.token, &preamble.token) => current.links.clone(),
        _ => return,
    };
    let Ok(socket) = socket.into_std() else { return };
    // The measurement may be over by now; then the connection is reset.
    let _ = links.send((preamble.purpose, socket)).await;
}

/// Compares in a time that does not depend on where they differ.
fn is_same(token: &[u8; 16], other: &[u8; 16]) -> bool {
    token.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

impl Server {
    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A measurement begins, unless there is one.
    fn begin(&self) -> Result<([u8; 16], Links), String> {
        let secret = random_secret().map_err(|error| error.to_string())?;
        let mut token = [0; 16];
        token.copy_from_slice(&secret[..16]);
        let (links, taken) = mpsc::channel(8);
        let mut current = self.current();
        if current.is_some() {
            // Whose it is, is not a stranger's business.
            return Err("another measurement is under way; try again later".into());
        }
        *current = Some(Current { token, links });
        Ok((token, taken))
    }

    fn end(&self) {
        *self.current() = None;
    }

    fn duration_most_us(&self) -> u64 {
        DURATION_MOST_US.min(self.settings.duration_most.as_micros() as u64)
    }
}

/// A place among those that have not proven anything yet.
struct Place {
    server: Arc<Server>,
    /// By [`client_of`].
    address: IpAddr,
}

impl Place {
    fn take(server: &Arc<Server>, address: IpAddr) -> Option<Self> {
        let address = client_of(address);
        let mut strangers = server.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = strangers.values().sum();
        let of_address = strangers.get(&address).copied().unwrap_or(0);
        // Whoever is refused leaves nothing here.
        if all >= STRANGERS_MOST || of_address >= STRANGERS_OF_ADDRESS_MOST {
            return None;
        }
        strangers.insert(address, of_address + 1);
        Some(Self { server: server.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut strangers = self.server.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = strangers.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&self.address);
            }
        }
    }
}

/// What this end's kernel is like.
pub fn end_settings() -> EndSettings {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    let spaced = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    EndSettings {
        version: env!("CARGO_PKG_VERSION").into(),
        kernel: spaced(read("kernel/osrelease")),
        congestion: spaced(read("net/ipv4/tcp_congestion_control")),
        tcp_rmem: spaced(read("net/ipv4/tcp_rmem")),
        tcp_wmem: spaced(read("net/ipv4/tcp_wmem")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Arc<Server> {
        let settings = Settings {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            admits: Admits::Everyone,
            bytes_most: None,
            duration_most: Duration::from_secs(1),
            patience: Patience::default(),
        };
        let (current, strangers) = (Mutex::default(), Mutex::default());
        Arc::new(Server { settings, current, strangers, log: Box::new(|_| {}) })
    }

    #[test]
    fn who_is_refused_is_not_remembered() {
        let server = server();
        let take = |host: u32| Place::take(&server, IpAddr::V4((0x0a00_0000 + host).into()));
        let places: Vec<_> = (0..10_000).filter_map(take).collect();
        assert_eq!(places.len(), STRANGERS_MOST);
        assert_eq!(server.strangers.lock().unwrap().len(), STRANGERS_MOST);
        drop(places);
        assert!(server.strangers.lock().unwrap().is_empty());
    }

    #[test]
    fn a_network_of_addresses_is_one_stranger() {
        let server = server();
        let take = |address: &str| Place::take(&server, address.parse().unwrap());
        let of_network: Vec<_> = (0..20).filter_map(|host| take(&format!("2001:db8:1:2::{host:x}"))).collect();
        assert_eq!(of_network.len(), STRANGERS_OF_ADDRESS_MOST);
        let of_v4: Vec<_> = (0..20).filter_map(|_| take("::ffff:192.0.2.1")).collect();
        assert_eq!(of_v4.len(), STRANGERS_OF_ADDRESS_MOST);
        assert!(take("192.0.2.1").is_none() && take("192.0.2.2").is_some());
        drop((of_network, of_v4));
        assert!(take("2001:db8:1:2::77").is_some() && take("192.0.2.1").is_some());
    }
}
