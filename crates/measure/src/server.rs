//! A measuring server: who may measure, one at a time, and what a measurement may cost.

mod session;
pub mod status;

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream as StdStream};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ekiden_keys::{Fingerprint, random_secret};
use ekiden_net::patience;
use ekiden_net::socket::{TcpOptions, await_free, canonical, client_of, listen_alone, open_files};
use ekiden_record::EndSettings;
use ekiden_service::{Asked, Signals};
use ekiden_transport::{Admission, Bounds, Connection, EvictionTable, Security, Stranger, Strangers, accept};
use indexmap::IndexMap;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::control;
use ekiden_measure_proto::message::{DATA, PLAIN, Preamble, Purpose, Reply, TLS};
use ekiden_measure_proto::settings::DURATION_MOST_US;
use session::Begun;

/// Where a measuring server listens unless told otherwise.
pub const ADDRESS: &str = "127.0.0.1:7100";
/// Timeout for a connection to say what it is, and for each message of a client.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections of nodes that are known and have not begun to measure: in all, and of one node.
const KNOWN_MOST: Bounds = Bounds { all: 64, of_owner: 8 };
/// A TLS alert, fatal, access_denied (RFC 8446, section 6): what an open server answers to a client that speaks TLS.
const TLS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// What a server is to do.
#[derive(Debug)]
pub struct Settings {
    /// Where it listens.
    pub address: SocketAddr,
    /// Who may measure, at the start.
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
    /// For data that is still under way when the client has said that it is done. 5 s without any data: the kernel
    /// retransmits more often than that.
    pub stopped: Duration,
    /// For the client to take the results, beyond the time that the load took. 30 s.
    pub results: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let [gathering, stalled, stopped, results] = [10, 40, 5, 30].map(Duration::from_secs);
        Self { gathering, stalled, stopped, results }
    }
}

/// Nodes, by the fingerprints of their keys.
pub type Known = IndexMap<String, Fingerprint>;

/// Who may measure.
#[derive(Debug)]
pub enum Admits {
    /// Nodes whose keys it knows.
    Nodes(Arc<Security<Known>>),
    /// Everyone.
    Everyone,
}

/// What happens at a server, for its log.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// The address cannot be bound yet; the server keeps trying for up to [`patience::LONGEST`].
    Waits {
        /// Why.
        why: String,
    },
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
    /// Who may measure, where that was read again.
    admits: RwLock<Option<Arc<Security<Known>>>>,
    /// The measurement that is under way takes its connections here.
    current: Mutex<Option<Current>>,
    strangers: Strangers,
    most_strangers: Bounds,
    /// Connections of nodes that have proven their keys and have not begun to measure, by the nodes' names.
    known: Arc<EvictionTable<String>>,
    log: Box<dyn Fn(Happened) + Send + Sync>,
    began: Instant,
    /// Measurements that have ended.
    measured: AtomicU64,
}

/// Who measures.
struct Client {
    /// By [`client_of`].
    from: IpAddr,
    /// Its name if it has one, and its address.
    name: String,
}

/// The connections of a measurement, as they come.
type Links = mpsc::Receiver<(Purpose, StdStream)>;

/// The measurement that is under way.
struct Current {
    /// The client: its name if it has one, and its address.
    client: String,
    began: Instant,
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

/// Serves until SIGTERM or SIGINT. At SIGHUP `known_again` reads whose keys count from then on, or says why that stays as it was. `log` must
/// not wait.
///
/// # Errors
/// [`StartError`].
pub fn run(
    settings: Settings,
    known_again: impl Fn() -> Option<Security<Known>>,
    log: impl Fn(Happened) + Send + Sync + 'static,
) -> Result<(), StartError> {
    let began = Instant::now();
    // Before the signals have another meaning than to end the process.
    await_free(settings.address, false, patience::deadline(), |error| log(Happened::Waits { why: error.to_string() }))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let server = Arc::new(Server {
            settings,
            admits: RwLock::default(),
            current: Mutex::default(),
            strangers: Strangers::default(),
            most_strangers: Strangers::bounds(open_files()?),
            known: Arc::default(),
            log: Box::new(log),
            began,
            measured: AtomicU64::default(),
        });
        let heed = async {
            while signals.next().await == Asked::Reload {
                if let Some(known) = known_again() {
                    *server.admits.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(known));
                }
            }
        };
        tokio::select! {
            ended = serve(server.clone()) => ended,
            () = heed => Ok(()),
        }
    })
}

async fn serve(server: Arc<Server>) -> Result<(), StartError> {
    let listener = listen_alone(server.settings.address, false, &TcpOptions::default())?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    status::answer(server.clone(), address);
    (server.log)(Happened::Ready(address));
    loop {
        match listener.accept().await {
            Ok((socket, from)) => {
                let from = canonical(from);
                let stranger = server.strangers.add(from.ip(), server.most_strangers);
                tokio::spawn(take(server.clone(), socket, from, stranger));
            }
            // Out of descriptors, mostly: they come back when something ends.
            Err(error) => {
                (server.log)(Happened::NotAccepted { why: error.to_string() });
                server.strangers.evict_one(Duration::ZERO);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// What a connection is.
enum Came {
    /// A node's, which has proven its key.
    Node { name: String, connection: Connection },
    /// A client's of an open server, whose measurement begins.
    Measurement(Box<Begun>),
    /// One of a load's, and the measurement that it belongs to.
    Link(Purpose, StdStream, mpsc::Sender<(Purpose, StdStream)>),
}

/// Serves a connection to its end. It counts as a stranger's until it has proven something.
async fn take(server: Arc<Server>, socket: TcpStream, from: SocketAddr, stranger: Stranger) {
    let came = tokio::select! {
        came = meet(&server, socket, from) => came,
        () = stranger.evicted() => {
            return server.failed(from, "closed for a newer one: too many connections have proven nothing yet".into());
        }
    };
    drop(stranger);
    let begun = match came {
        Some(Came::Link(purpose, socket, links)) => {
            // The measurement may be over by now; then the connection is reset.
            let _ = links.send((purpose, socket)).await;
            None
        }
        Some(Came::Measurement(begun)) => Some(*begun),
        Some(Came::Node { name, connection }) => {
            let client = Client { from: client_of(from.ip()), name: format!("{name} ({from})") };
            let known = server.known.add(name, KNOWN_MOST);
            tokio::select! {
                begun = session::begin(&server, connection, client) => begun,
                () = known.evicted() => {
                    return server.failed(from, "closed for a newer one: too many have not asked for anything yet".into());
                }
            }
        }
        None => None,
    };
    if let Some(begun) = begun {
        session::run(&server, begun).await;
    }
}

/// Finds out what a connection is. `None` if it is nothing that is served, or was refused.
async fn meet(server: &Arc<Server>, socket: TcpStream, from: SocketAddr) -> Option<Came> {
    let mut first = [0; 4];
    match timeout(PATIENCE, peek(&socket, &mut first)).await {
        Ok(Ok(())) if first == DATA => take_link(server, socket).await,
        Ok(Ok(())) if first[0] == TLS => meet_node(server, socket, from).await,
        Ok(Ok(())) if first == PLAIN => meet_client(server, socket, from).await,
        // Scanners and mistakes: not worth a line each.
        _ => None,
    }
}

/// A client that wants to prove a key.
async fn meet_node(server: &Server, socket: TcpStream, from: SocketAddr) -> Option<Came> {
    let Some(security) = server.knows() else {
        let connection = Connection::from(socket);
        let _ = timeout(PATIENCE, connection.send_all(&TLS_DENIED)).await;
        connection.end_cleanly();
        server.failed(from, "it speaks TLS, and this server has no key: run the client with --open".into());
        return None;
    };
    let why = match timeout(PATIENCE, accept(socket, &security, "measuring server")).await {
        Ok(Ok(Admission::Admitted { name, connection, .. })) => return Some(Came::Node { name, connection }),
        Ok(Ok(Admission::Refused(refused))) => refused.why,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it does not finish its handshake".into(),
    };
    server.failed(from, why);
    None
}

/// A client without a key.
async fn meet_client(server: &Arc<Server>, socket: TcpStream, from: SocketAddr) -> Option<Came> {
    let connection = Connection::from(socket);
    connection.receive_exact(&mut [0; PLAIN.len()]).await.ok()?;
    match &server.settings.admits {
        Admits::Everyone => {
            let client = Client { from: client_of(from.ip()), name: from.to_string() };
            Some(Came::Measurement(Box::new(session::begin(server, connection, client).await?)))
        }
        Admits::Nodes(_) => {
            let why = "it serves nodes whose keys it knows: give the client a key, with --config or --key".into();
            let _ = control::send(&connection, &Reply::Refused { why, busy: false }, PATIENCE).await;
            connection.end_cleanly();
            None
        }
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

/// Finds the measurement that a connection of a load belongs to, if there is one.
async fn take_link(server: &Server, mut socket: TcpStream) -> Option<Came> {
    let mut bytes = [0; Preamble::BYTES];
    timeout(PATIENCE, socket.read_exact(&mut bytes)).await.ok()?.ok()?;
    let preamble = Preamble::decode(&bytes)?;
    let links = match &*server.current() {
        Some(current) if is_same(&current.token, &preamble.token) => current.links.clone(),
        _ => return None,
    };
    Some(Came::Link(preamble.purpose, socket.into_std().ok()?, links))
}

/// Compares in a time that does not depend on where they differ.
fn is_same(token: &[u8; 16], other: &[u8; 16]) -> bool {
    token.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

impl Server {
    /// Whose keys count; `None`: it serves everyone.
    fn knows(&self) -> Option<Arc<Security<Known>>> {
        match &self.settings.admits {
            Admits::Everyone => None,
            Admits::Nodes(at_start) => {
                let again = self.admits.read().unwrap_or_else(PoisonError::into_inner).clone();
                Some(again.unwrap_or_else(|| at_start.clone()))
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A measurement begins, unless there is one.
    fn begin(&self, client: &Client) -> Result<([u8; 16], Links), String> {
        let secret = random_secret().map_err(|error| error.to_string())?;
        let mut token = [0; 16];
        token.copy_from_slice(&secret[..16]);
        let (links, taken) = mpsc::channel(8);
        let mut current = self.current();
        if current.is_some() {
            // Whose it is, is not a stranger's business.
            return Err("another measurement is under way; try again later".into());
        }
        *current = Some(Current { client: client.name.clone(), began: Instant::now(), token, links });
        Ok((token, taken))
    }

    fn end(&self) {
        *self.current() = None;
    }

    fn failed(&self, from: SocketAddr, why: String) {
        (self.log)(Happened::Failed { from: client_of(from.ip()), client: from.to_string(), why });
    }

    fn duration_most_us(&self) -> u64 {
        DURATION_MOST_US.min(self.settings.duration_most.as_micros() as u64)
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
