//! `ekiden gateway`: parallel TCP streams that pass are kept in balance.

mod status;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use ekiden_gateway::{Config, sections};

use crate::about::About;
use crate::out;
use crate::start::start;
use crate::whose::whose;

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLE: &str = r#"Example of a configuration (TOML):
    # Where the wide area network begins.
    device = "wan0"

    # All streams from these hosts to those are one group.
    [group.tokyo]
    sources = ["10.1.0.0/16"]
    destinations = ["192.0.2.0/24"]"#;

/// Keep parallel TCP streams in balance that pass through this host into a long path.
///
/// Only data that leaves through the device is balanced: uploads, as this host sees them. When the slow start of one stream of a group
/// has overshot, the receive windows in the ACKs of all that take part in it are lowered to what the path delivers, so that they do
/// not lose what they send again. No packet is dropped, delayed or marked, and no host is changed. eBPF programs on the device do it,
/// in the kernel. docs/guide/gateway.md describes every key.
///
/// Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON to start, and gives up what it does not need afterwards. Prints `device NAME`, then
/// `ready`. Logs to standard error; EKIDEN_LOG sets the level (error, warn, info, debug, trace; default info). SIGUSR1 makes the log
/// more detailed, SIGUSR2 as it was.
///
/// A gateway that has the device already is waited for up to 5 s. SIGTERM and SIGINT end it; SIGHUP reads the configuration again and says whether it
/// is right, and that the next start takes what is new. The programs go with the process, however that ends, and packets pass as before;
/// with `restart_within` they go on for that time, and the next process takes them over.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLE, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// The gateway's configuration (TOML).
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["keys", "schema"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    about: About,
    /// Say whether the configuration can be used, and exit. Changes nothing, and does not look at the device.
    #[arg(long)]
    check: bool,
    /// Print the configuration with every default in place, and exit.
    #[arg(long, conflicts_with = "check")]
    show_config: bool,
}

#[derive(Subcommand)]
enum Action {
    Status(status::Args),
    Remove(Remove),
}

/// Take the programs from a device that a gateway with `restart_within` has left there.
///
/// Its process must have ended. Streams go on; their windows are what receivers say again.
#[derive(clap::Args)]
struct Remove {
    /// The network device.
    #[arg(value_name = "DEVICE")]
    device: String,
}

/// Runs the gateway until it is told to stop, or does what else the command line says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match (&args.action, &args.config) {
        (Some(Action::Status(args)), _) => status::run(args),
        (Some(Action::Remove(args)), _) => {
            ekiden_gateway::remove(&args.device)?;
            out::line(format_args!("removed from {}", args.device))
        }
        (None, Some(file)) => keep(file, args),
        (None, None) => args.about.told("ekiden gateway", &sections()).map(drop),
    }
}

fn keep(file: &Path, args: &Args) -> anyhow::Result<()> {
    let _log = start(!(args.show_config || args.check))?;
    let config = Config::load(file).map_err(|error| whose(file, "gateway", error))?;
    if args.show_config {
        return out::toml(config);
    }
    if args.check {
        return out::line(format_args!("{}: ok", file.display()));
    }
    ekiden_gateway::run(config, file).map_err(|error| match error.place_in(file) {
        Some(place) => anyhow::Error::from(error).context(place),
        None => error.into(),
    })
}
