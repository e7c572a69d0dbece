//! `ekiden peer`: whom a node knows.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use ekiden_relay::edit;
use ekiden_relay::identity::Fingerprint;

use crate::out;

/// Write other nodes into a node's configuration: those it connects to, and those that may connect to it.
///
///     ekiden peer add -c island.toml city 192.0.2.1:7000 sha256:...    # [peer.city]: island connects to city
///     ekiden peer allow -c city.toml island sha256:...                 # city lets island in
///
/// The fingerprint is what `ekiden keygen` has printed on the other node. Comments and order stay. What is there already is
/// refused, and so is what would make the configuration wrong. A node that runs takes it at SIGHUP.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
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
    },
}

/// Writes the node.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Add { config, name, address, fingerprint } => {
            edit::add_peer(&config, &name, &address, fingerprint)?;
            out::line(format_args!("{}: [peer.{name}] added", config.display()))
        }
        Action::Allow { config, listener, name, fingerprint } => {
            let listener = edit::allow_node(&config, listener.as_deref(), &name, fingerprint)?;
            out::line(format_args!("{}: '{name}' added to the nodes of [listen.{listener}]", config.display()))
        }
    }
}
