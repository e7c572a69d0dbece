//! `ekiden tunnel`: IP packets between two nodes over TCP connections.

use std::path::PathBuf;

use ekiden_tunnel::Config;

use crate::{log, out};

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
/// (error, warn, info, debug, trace; default info).
///
/// SIGTERM and SIGINT end it. The device and its routes go with the process, however that ends.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub struct Args {
    /// The tunnel's configuration (TOML).
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Say whether the configuration can be used, and exit. Changes nothing.
    #[arg(long)]
    check: bool,
}

/// Runs the tunnel until it is told to stop.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let _log = log::start()?;
    let config = Config::load(&args.config)?;
    if args.check {
        return out::line(format_args!("{}: ok", args.config.display()));
    }
    Ok(ekiden_tunnel::run(config)?)
}
