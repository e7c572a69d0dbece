//! `ekiden peer`: whom a node knows.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use ekiden_keys::Fingerprint;
use ekiden_relay::edit::{self, Known};

use crate::out;

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLES: &str = "Examples:
    # island connects to city: writes [peer.city]
    ekiden peer add -c island.toml city \\
        192.0.2.1:7000 sha256:...
    # city lets island in: writes [listen.NAME.nodes]
    ekiden peer allow -c city.toml island sha256:...
    # city no longer lets island in
    ekiden peer remove -c city.toml island";

/// Write other nodes into a node's configuration: those it connects to, and those that may connect to it.
///
/// The fingerprint is what `ekiden keygen` has printed on the other node. Comments and order stay. What is there already is
/// refused unless --replace is said, and so is what would make the configuration wrong. A node that runs takes it at SIGHUP.
#[derive(ClapArgs)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// A node that this one connects to.
    Add {
        /// The configuration to write into (TOML).
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// What routes call it.
        name: String,
        /// Where its segment listener is: HOST:PORT.
        address: String,
        /// Of its key: sha256:…
        fingerprint: Fingerprint,
        /// Change the address and the fingerprint of a node that is there already.
        #[arg(long)]
        replace: bool,
    },
    /// A node that may connect to this one.
    Allow {
        /// The configuration to write into (TOML).
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// The segment listener; not needed if there is only one.
        #[arg(short, long, value_name = "NAME")]
        listener: Option<String>,
        /// What this node's log calls it.
        name: String,
        /// Of its key: sha256:…
        fingerprint: Fingerprint,
        /// Change the fingerprint of a node that is there already.
        #[arg(long)]
        replace: bool,
    },
    /// Take a node out: it is not connected to, and may not connect.
    Remove {
        /// The configuration to write into (TOML).
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// What it is called there, as a peer or as a node of a segment listener.
        name: String,
    },
}

/// A node reads its file when it starts.
const TAKEN: &str = "; a node that runs takes it at SIGHUP";

/// Writes the node.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Add { config, name, address, fingerprint, replace } => {
            let was_there = edit::add_peer(&config, &name, &address, fingerprint, known(replace))?;
            let done = if was_there { "changed" } else { "added" };
            out::line(format_args!("{}: [peer.{name}] {done}{TAKEN}", config.display()))
        }
        Action::Allow { config, listener, name, fingerprint, replace } => {
            let listener = listener.as_deref();
            let (listener, was_there) = edit::allow_node(&config, listener, &name, fingerprint, known(replace))?;
            let done = if was_there { "changed in" } else { "added to" };
            out::line(format_args!("{}: '{name}' {done} the nodes of [listen.{listener}]{TAKEN}", config.display()))
        }
        Action::Remove { config, name } => {
            let removed = edit::remove_node(&config, &name)?;
            out::line(format_args!("{}: removed {}{TAKEN}", config.display(), removed.join(" and ")))
        }
    }
}

fn known(replace: bool) -> Known {
    if replace { Known::Changes } else { Known::Stays }
}
