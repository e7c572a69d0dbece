//! `ekiden tunnel`: IP packets between two nodes over TCP connections.

mod status;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use ekiden_tunnel::{Config, StartError, sections};

use crate::about::About;
use crate::out;
use crate::start::{loaded, start};
use crate::whose::whose;

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLE: &str = r#"Example of a configuration (TOML):
    name = "island"
    key_file = "node.key"  # ekiden keygen node.key

    [device]
    name = "ekiden0"
    addresses = ["10.77.0.2/24"]

    # The node at the other end: where it listens, what
    # ekiden keygen printed there, and what is behind it.
    [peer.city]
    address = "192.0.2.1:7100"
    fingerprint = "sha256:..."
    allowed = ["10.77.0.1/32", "10.0.0.0/16"]

A node that listens has
    [listen]
    address = "0.0.0.0:7100"
and peers that need no address."#;

/// Carry IP packets between this node and others over TCP connections.
///
/// Makes a network device (TUN) with its addresses, and routes to what the peers have. What goes there waits in a queue per
/// flow and leaves it when TCP is about to send it, so that a full tunnel delays little. Connections are encrypted (TLS 1.3).
/// docs/guide/tunnel.md describes every key.
///
/// Needs CAP_NET_ADMIN to start, and gives it up then, unless settings of the section `tcp` need it for each connection. Prints
/// `device NAME`, `listening tunnel ADDRESS` if it listens, then `ready`. Logs to standard error; EKIDEN_LOG sets the level
/// (error, warn, info, debug, trace; default info). SIGUSR1 makes the log more detailed, SIGUSR2 as it was.
///
/// A device or an address that is in use, or an address that is not this host's yet, is waited for up to 5 s. SIGHUP reads the
/// file again: a wrong one changes nothing, another one has all connections made anew, and what of it only a start can take is said. SIGTERM and SIGINT
/// end it. The device and its routes go with the process, however that ends.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLE, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// The tunnel's configuration (TOML).
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["keys", "schema"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    about: About,
    /// Say whether the configuration can be used, and exit. Changes nothing.
    #[arg(long)]
    check: bool,
    /// Print the configuration with every default in place, without passwords, and exit.
    #[arg(long, conflicts_with = "check")]
    show_config: bool,
}

#[derive(Subcommand)]
enum Action {
    Status(status::Args),
}

/// Runs the tunnel until it is told to stop, or does what else the command line says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match (&args.action, &args.config) {
        (Some(Action::Status(args)), _) => status::run(args),
        (None, Some(file)) => carry(file, args),
        (None, None) => args.about.told("ekiden tunnel", &sections()).map(drop),
    }
}

fn carry(file: &Path, args: &Args) -> anyhow::Result<()> {
    let runs = !(args.show_config || args.check);
    let _log = start(runs)?;
    let config = loaded(runs, || Config::load(file));
    let config = config.map_err(|error| whose(file, "tunnel", error))?;
    if args.show_config {
        return out::toml(config);
    }
    let placed = |error: StartError| match error.place_in(file) {
        Some(place) => anyhow::Error::from(error).context(place),
        None => error.into(),
    };
    if args.check {
        ekiden_tunnel::check(&config).map_err(placed)?;
        ekiden_tunnel::warnings().iter().for_each(|warning| out::note(format_args!("ekiden: {warning}")));
        return out::line(format_args!("{}: ok", file.display()));
    }
    ekiden_tunnel::run(config, file).map_err(placed)
}
