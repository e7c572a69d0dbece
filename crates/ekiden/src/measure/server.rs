//! `ekiden measure server`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use ekiden_keys::Identity;
use ekiden_measure::server::{ADDRESS, Admits, Happened, Known, Patience, Settings, StartError, run as serve};
use ekiden_net::lookup::{self, ListeningError};
use ekiden_net::patience;
use ekiden_net::privileges::{Capability, keep_only};
use ekiden_relay::{Config, ListenerKind};
use ekiden_service::{Throttle, announce, reload};
use ekiden_transport::{Prepared, Security};
use ekiden_units::{AddressError, Bytes, HostPort, Time};

use crate::out;
use crate::start::{loaded, start};
use crate::usage::misused;
use crate::whose::whose;

/// The longest load of a client that no key admits.
const OPEN_LONGEST: Duration = Duration::from_secs(60);
/// The longest load of others, unless told otherwise.
const LONGEST: Duration = Duration::from_secs(3_600);

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLES: &str = "Examples:
    # for the nodes that this node's leg listeners know
    ekiden measure server -c city.toml \\
        --listen 0.0.0.0:7100
    # for everyone, at most 1 GB a measurement
    ekiden measure server --open 1GB --listen 0.0.0.0:7100";

/// Answer measurements of other nodes.
///
/// It serves nodes whose keys it knows: those of the leg listeners of a node's configuration (--config), or those that --node names.
/// One measures at a time. It connects to nobody: it sends to those who have connected to it and asked. Prints `listening on ADDRESS` and `ready`;
/// logs to standard error (EKIDEN_LOG sets the level; SIGUSR1 makes it more detailed, SIGUSR2 as it was). An address that is in use, or
/// not this host's yet, is waited for up to 5 s. SIGHUP reads the file of --config again, for whom it serves. SIGTERM and SIGINT end it.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// A node's configuration: its key, and the nodes that its leg listeners know.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// This server's key, as `ekiden keygen` makes it.
    #[arg(long, value_name = "FILE", conflicts_with = "config", requires = "node")]
    key: Option<PathBuf>,
    /// A node that may measure, by its name and the fingerprint of its key. Can be given several times.
    #[arg(long, value_name = "NAME=FINGERPRINT", requires = "key")]
    node: Vec<String>,
    /// Serve everyone, at most so many bytes in each direction of a measurement, and for at most a minute.
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["config", "key"], value_parser = super::amount)]
    open: Option<Bytes>,
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = ADDRESS, value_parser = place)]
    listen: String,
    /// The most bytes of a measurement in each direction.
    #[arg(long, value_name = "BYTES", conflicts_with = "open", value_parser = super::amount)]
    limit: Option<Bytes>,
    /// The longest load.
    #[arg(long, value_name = "TIME", value_parser = super::within::<Time>("1s", "1h"))]
    longest: Option<Time>,
}

/// Where to listen, whose interface need not be there yet.
fn place(text: &str) -> Result<String, AddressError> {
    HostPort::listening(text).map(|_| text.to_owned())
}

/// Serves until it is told to stop.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let _log = start(true)?;
    let (admits, bytes_most, longest) = match args.open {
        Some(most) => (Admits::Everyone, Some(most.0), OPEN_LONGEST),
        None => (Admits::Nodes(Arc::new(known(args)?)), args.limit.map(|most| most.0), LONGEST),
    };
    let duration_most = args.longest.map_or(longest, Duration::from);
    let waits = |why: &ListeningError| tell_of_waiting(&why.to_string());
    let listen = || lookup::listening(&args.listen);
    let address =
        patience::patiently_every(patience::LOOK_ANEW, patience::deadline(), listen, ListeningError::is_lack, waits)?;
    let settings = Settings { address, admits, bytes_most, duration_most, patience: Patience::default() };
    // Buffers and congestion controls of the measured connections are as known nodes ask for; strangers get what every program gets.
    let keep: &[_] = match settings.admits {
        Admits::Nodes(_) => &[Capability::CAP_NET_ADMIN, Capability::CAP_NET_BIND_SERVICE],
        Admits::Everyone => &[Capability::CAP_NET_BIND_SERVICE],
    };
    keep_only(keep).context("cannot give up privileges")?;
    let lines = Arc::new(Throttle::default());
    let counted = Arc::downgrade(&lines);
    thread::Builder::new().name("log counts".into()).spawn(move || {
        while let Some(lines) = counted.upgrade() {
            lines.flush();
            drop(lines);
            thread::sleep(Duration::from_secs(1));
        }
    })?;
    Ok(serve(settings, || known_again(args), move |happened| tell(&lines, happened))?)
}

/// The keys that it knows from now on, where a file says them. Those of the command line stay, and so does the key itself: connections were
/// made by it.
fn known_again(args: &Args) -> Option<Security<Known>> {
    let Some(file) = &args.config else {
        reload::refused("this server was started without a file that says who may measure");
        return None;
    };
    match of_file(file, || Config::load(file).map_err(|error| whose(file, "measure server", error))) {
        Ok(known) => {
            reload::taken(file);
            Some(known)
        }
        Err(error) => {
            reload::refused(out::message(&error));
            None
        }
    }
}

/// The keys that the leg listeners of a node's configuration know.
fn of_file(file: &Path, load: impl FnOnce() -> anyhow::Result<Config>) -> anyhow::Result<Security<Known>> {
    let config = load()?;
    let legs = config.listeners.values().filter_map(|listener| match &listener.kind {
        ListenerKind::Leg(Security::Tls { known, .. }) => Some(known),
        _ => None,
    });
    let known: Known = legs.flat_map(|known| known.iter().map(|(name, key)| (name.clone(), *key))).collect();
    let identity = config.identity.filter(|_| !known.is_empty());
    let identity = identity.ok_or_else(|| Misconfigured(file.to_owned()))?;
    Ok(Security::Tls { identity, known, prepared: Prepared::default() })
}

/// The keys that a server knows.
fn known(args: &Args) -> anyhow::Result<Security<Known>> {
    if let Some(file) = &args.config {
        return of_file(file, || {
            loaded(true, || Config::load(file)).map_err(|error| whose(file, "measure server", error))
        });
    }
    let Some(key) = &args.key else {
        misused("whom does it serve? Give --config, --key with --node, or --open");
    };
    let identity = Identity::load(key)?;
    let mut known = Known::new();
    for node in &args.node {
        let Some((name, fingerprint)) = node.split_once('=') else {
            misused(&format!("--node {node} is not NAME=FINGERPRINT"));
        };
        let fingerprint = match fingerprint.parse() {
            Ok(fingerprint) => fingerprint,
            Err(error) => misused(&format!("--node {name}: {error}")),
        };
        if known.insert(name.to_owned(), fingerprint).is_some() {
            misused(&format!("--node {name} is given twice: each node has a name of its own"));
        }
    }
    Ok(Security::Tls { identity, known, prepared: Prepared::default() })
}

/// A configuration with which no node could measure.
#[derive(Debug, thiserror::Error)]
#[error("{}: it has no leg listener that knows nodes by their keys; add one, or give --key and --node", .0.display())]
pub struct Misconfigured(PathBuf);

/// The exit code of a server that does not start.
pub fn code(error: &StartError) -> u8 {
    match error {
        StartError::Listen(_) => 5,
        StartError::System(_) => 4,
    }
}

fn tell_of_waiting(why: &str) {
    tracing::warn!("the address is waited for, {:?} at most: {why}", patience::LONGEST);
}

fn tell(lines: &Throttle, happened: Happened) {
    match happened {
        Happened::Waits { why } => tell_of_waiting(&why),
        Happened::Ready(address) => {
            announce(format!("listening on {address}\nready\n"));
        }
        Happened::Begins { from, client, what } => {
            lines.info("begins", from, format_args!("{client} measures: {what}"))
        }
        Happened::Ended { from, client, what } => {
            lines.info("ended", from, format_args!("{client} has measured: {what}"))
        }
        Happened::NotAccepted { why } => lines.warn("accepting", "", format_args!("cannot accept a connection: {why}")),
        Happened::Failed { from, client, why } => lines.warn("measuring", from, format_args!("{client}: {why}")),
    }
}
