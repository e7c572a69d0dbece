//! `ekiden peer`: whom a node knows.

mod listing;

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand};
use ekiden_keys::Fingerprint;
use ekiden_relay::edit::{self, IfPresent};
use ekiden_relay::{Config, ConfigError, Listener, ListenerKind, Way};
use ekiden_transport::Security;
use listing::Listing;

use crate::out::{self, Width};
use crate::whose::whose;

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLES: &str = "Examples:
    # island connects to city: writes [peer.city]
    ekiden peer add -c island.toml city \\
        192.0.2.1:7000 sha256:...
    # city lets island in: writes [listen.NAME.nodes]
    ekiden peer allow -c city.toml island sha256:...
    # who is there
    ekiden peer list -c city.toml
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
        /// Where its leg listener is: HOST:PORT.
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
        /// The leg listener; not needed if there is only one.
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
    /// Show the nodes that this one connects to, and those that each leg listener lets in.
    List {
        /// The configuration to look into (TOML).
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        width: Width,
    },
    /// Take a node out: it is not connected to, and may not connect.
    Remove {
        /// The configuration to write into (TOML).
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// What it is called there, as a peer or as a node of a leg listener.
        name: String,
    },
}

/// A node reads its file when it starts.
const TAKEN: &str = "; a node that runs takes it at SIGHUP";

/// Writes the node, or shows those that are there.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Add { config, name, address, fingerprint, replace } => {
            let was_there = edit::add_peer(&config, &name, &address, fingerprint, if_present(replace))
                .map_err(|error| whose(&config, "peer", error))?;
            let done = if was_there { "changed" } else { "added" };
            out::line(format_args!("{}: [peer.{name}] {done}{TAKEN}", config.display()))
        }
        Action::Allow { config, listener, name, fingerprint, replace } => {
            let listener = listener.as_deref();
            let (listener, was_there) = edit::allow_node(&config, listener, &name, fingerprint, if_present(replace))
                .map_err(|error| whose(&config, "peer", error))?;
            let done = if was_there { "changed in" } else { "added to" };
            out::line(format_args!("{}: '{name}' {done} the nodes of [listen.{listener}]{TAKEN}", config.display()))
        }
        Action::List { config, json, width } => {
            let known = Listing::of(&read(&config).map_err(|error| whose(&config, "peer", error))?);
            match json {
                true => out::line(serde_json::to_string_pretty(&known)?),
                false => out::text(known.text(width.columns())),
            }
        }
        Action::Remove { config, name } => {
            // A node may be taken out because the configuration is wrong with it.
            let before = read(&config).ok();
            let removed = edit::remove_node(&config, &name).map_err(|error| whose(&config, "peer", error))?;
            let after = read(&config)?;
            for warning in before.iter().flat_map(|before| left_by(&name, before, &after)) {
                out::note(format_args!("ekiden: warning: {}: {warning}", config.display()));
            }
            out::line(format_args!("{}: removed {}{TAKEN}", config.display(), removed.join(" and ")))
        }
    }
}

fn if_present(replace: bool) -> IfPresent {
    if replace { IfPresent::Replace } else { IfPresent::Refuse }
}

/// Reads a configuration, which need not have a listener.
fn read(file: &Path) -> Result<Config, ConfigError> {
    Config::parse(&ekiden_files::read_config(file)?, file)
}

/// What may surprise an operator who has removed `name`: a listener that admits no node any more, and a chain that still has
/// the node.
fn left_by(name: &str, before: &Config, after: &Config) -> Vec<String> {
    let mut said = Vec::new();
    for (listener, now) in &after.listeners {
        if is_closed(now) && before.listeners.get(listener).is_some_and(|then| !is_closed(then)) {
            said.push(format!("[listen.{listener}] lets no node in any more"));
        }
    }
    if after.peers.contains_key(name) || !before.peers.contains_key(name) {
        return said;
    }
    // Not the first of its chain, or the configuration would be wrong: it is a peer of the node before it.
    let passes = |chain: &[String]| chain.iter().any(|node| node == name);
    for route in after.routes.iter() {
        if let Way::Via(chain) = &route.way
            && passes(chain)
        {
            let to: Vec<String> = route.to.written().map(|one| format!("\"{one}\"")).collect();
            said.push(format!("the route to = [{}] still leads over '{name}': via = {chain:?}", to.join(", ")));
        }
    }
    for (listener, now) in &after.listeners {
        if let ListenerKind::Forward { via: Some(chain), .. } = &now.kind
            && passes(chain)
        {
            said.push(format!("[listen.{listener}] still leads over '{name}': via = {chain:?}"));
        }
    }
    said
}

/// Whether it is a leg listener that knows no node.
fn is_closed(listener: &Listener) -> bool {
    matches!(&listener.kind, ListenerKind::Leg(Security::Tls { known, .. }) if known.is_empty())
}
