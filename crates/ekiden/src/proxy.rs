//! `ekiden proxy`: a node of the overlay.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use ekiden_relay::{Config, Relay, Rules, StartError, sections};
use ekiden_transport::Security;

use crate::about::About;
use crate::out;
use crate::start::{loaded, start};
use crate::whose::whose;

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLE: &str = r#"Example of a configuration (TOML):
    name = "island"
    key_file = "node.key"  # ekiden keygen node.key

    # Kinds: socks5, http, mixed (both on one port),
    # forward (with to = "host:port"), leg (other nodes),
    # transparent.
    [listen.socks]
    kind = "socks5"
    address = "127.0.0.1:1080"

    # The leg listener of the node city, and what
    # ekiden keygen printed there.
    [peer.city]
    address = "192.0.2.1:7000"
    fingerprint = "sha256:..."

    # The first that matches counts; without one, direct.
    [[route]]
    to = ["10.0.0.0/8", ".example.jp", "*:443"]
    via = ["city"]  # or action = "direct" / "refuse""#;

/// Run a node of the overlay: take connections and relay each to its destination, directly or over other nodes.
///
/// The configuration is a TOML file, such as the one below. `ekiden proxy --keys` lists every key.
///
/// A leg listener takes the nodes that it knows: nodes = { island = "sha256:…" }. Legs are encrypted (TLS 1.3) unless peer
/// and listener have a plain_key_file (ekiden keygen --shared).
///
/// Prints `listening KIND ADDRESS` for every listener, then `ready`. Logs to standard error; EKIDEN_LOG sets the level
/// (error, warn, info, debug, trace; default info). SIGUSR1 makes the log more detailed, SIGUSR2 as it was.
///
/// An address that is in use, or not this host's yet, is waited for up to 5 s. SIGHUP reads the file again and keeps the old
/// configuration if the new one is wrong. After SIGTERM or SIGINT it accepts for one more second, and waits up to limits.drain
/// for what is running; a second one ends at once.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub struct Args {
    /// The node's configuration (TOML).
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["keys", "schema"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    about: About,
    /// Say whether the configuration can be used, and exit. Brings nothing into the kernel.
    #[arg(long)]
    check: bool,
    /// Print the configuration with every default in place and passwords masked, and exit.
    #[arg(long, conflicts_with = "check")]
    show_config: bool,
    /// Print what transparent listeners and exits need of the packet filter, for `nft -f`, with the routes as comments, and
    /// exit. Changes nothing.
    #[arg(long, conflicts_with_all = ["check", "show_config"])]
    print_rules: bool,
}

/// Runs the node until it is told to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    let runs = args.config.is_some() && !(args.show_config || args.print_rules || args.check);
    let _log = start(runs)?;
    let Some(file) = args.config else {
        return args.about.told("ekiden proxy", &sections()).map(drop);
    };
    let config = loaded(runs, || Config::load(&file)).map_err(|error| whose(&file, "proxy", error))?;
    if args.show_config {
        return out::toml(&config);
    }
    if args.print_rules {
        match Rules::of(&config) {
            Some(rules) => out::text(&rules)?,
            None => out::line("# no rules are needed: there is no transparent listener or exit")?,
        }
        return Ok(());
    }
    if args.check {
        Relay::keep_what_it_needs(&config)?;
        // At SIGHUP the running node reads its files with the rights that are left now.
        Config::load(&file)
            .context("the node could not read its files again at SIGHUP, with the rights that it keeps")?;
        Relay::check(&config).map_err(|error| placed(error, &file))?;
        config.refuse_own_as_peer(&file)?;
        if let Some(warning) = config.membership_warning() {
            out::note(format_args!("ekiden: {warning}"));
        }
        for (name, peer) in &config.peers {
            if matches!(peer.security, Security::Tls { known: None, .. }) {
                out::note(format_args!("ekiden: [peer.{name}] has no fingerprint, so no stream can go over it"));
            }
        }
        Relay::missing_addresses(&config).iter().for_each(|line| out::note(format_args!("ekiden: {line}")));
        config.routes.hidden().iter().for_each(|line| out::note(format_args!("ekiden: {line}")));
        config.unwritable().iter().for_each(|line| out::note(format_args!("ekiden: {line}")));
        config.untimely(SystemTime::now()).iter().for_each(|line| out::note(format_args!("ekiden: {line}")));
        config.near_refused().iter().for_each(|line| out::note(format_args!("ekiden: {line}")));
        out::line(format_args!("{}: ok", file.display()))?;
        return Ok(());
    }
    ekiden_relay::run(config, &file).map_err(|error| placed(error, &file))
}

/// With the place in the configuration, where there is one.
fn placed(error: StartError, file: &Path) -> anyhow::Error {
    match error.place_in(file) {
        Some(place) => anyhow::Error::from(error).context(place),
        None => error.into(),
    }
}
