//! `ekiden overlay`: nodes that choose paths by what their own TCP sees.

mod etcd;
mod join;
#[cfg(feature = "lab")]
mod map;
mod nodes;
#[cfg(feature = "lab")]
mod scenario;
#[cfg(feature = "lab")]
mod simulate;
mod status;
mod why;

use clap::Subcommand;
use ekiden_relay::{OverlayStatus, ask_overlay};
use ekiden_service::status::StatusError;

use crate::out::{Width, ago};

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLES: &str = "Examples:
    # write this node into the file of all nodes
    ekiden overlay join members.toml -c node.toml \\
        --address 192.0.2.1:7000 --near .example.jp
    # the paths in use from the node that runs here
    ekiden overlay status
    # which path streams to a destination take, and why
    ekiden overlay why www.example.jp";

/// Show what the nodes of an overlay know of their legs, and which paths streams take.
///
/// Nodes with a section `overlay` in their configuration know each other by a members file (join), or by etcd (init, admit, expel). A route with via = "auto" takes the path
/// to the node near the destination, directly or over at most two nodes, that is best by what their own TCP connections have shown.
/// docs/guide/overlay.md says how.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Admit(etcd::Admit),
    Admitted(etcd::Admitted),
    Expel(etcd::Expel),
    Init(etcd::Init),
    Join(join::Args),
    #[cfg(feature = "lab")]
    Map(map::Args),
    Nodes(nodes::Args),
    #[cfg(feature = "lab")]
    Scenario(scenario::Args),
    #[cfg(feature = "lab")]
    Simulate(simulate::Args),
    Status(status::Args),
    Why(why::Args),
}

/// The running node that is asked.
#[derive(clap::Args)]
struct Asked {
    /// The node to ask, if more than one runs in this network namespace.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    width: Width,
}

/// Does what the command line says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.action {
        Action::Admit(args) => etcd::admit(args),
        Action::Admitted(args) => etcd::admitted(args),
        Action::Expel(args) => etcd::expel(args),
        Action::Init(args) => etcd::init(args),
        Action::Join(args) => join::run(args),
        #[cfg(feature = "lab")]
        Action::Map(args) => map::run(args),
        Action::Nodes(args) => nodes::run(args),
        #[cfg(feature = "lab")]
        Action::Scenario(args) => scenario::run(args),
        #[cfg(feature = "lab")]
        Action::Simulate(args) => simulate::run(args),
        Action::Status(args) => status::run(args),
        Action::Why(args) => why::run(args),
    }
}

impl Asked {
    fn ask(&self) -> Result<OverlayStatus, StatusError> {
        ask_overlay(self.node.as_deref())
    }
}

/// A rate for a table.
fn mbit(bit_s: u64) -> String {
    match bit_s {
        0 => "-".into(),
        bits => format!("{:.1}", bits as f64 / 1e6),
    }
}

/// A line for each leg that has failed: either a short while ago, or longer ago without any success on it since.
fn failed(status: &OverlayStatus) -> String {
    let line = |[from, to]: &[String; 2]| format!("the leg from {from} to {to} has failed: streams avoid it for now\n");
    let since = still_failed(status).map(|(to, seconds)| {
        format!(
            "the leg from {} to {to} has failed {} ago, and nothing has come about on it since\n",
            status.node,
            ago(seconds)
        )
    });
    status.failed.iter().map(line).chain(since).collect()
}

/// The nodes to which the answering node's leg has failed, after the time in which streams avoid it, and since when nothing
/// has succeeded on it.
fn still_failed(status: &OverlayStatus) -> impl Iterator<Item = (&str, f64)> {
    let is_avoided = |to: &str| status.failed.iter().any(|[from, other]| *from == status.node && other == to);
    let since = status.nodes.iter().filter_map(|node| Some((node.name.as_str(), node.failed_s?)));
    since.filter(move |(to, _)| !is_avoided(to))
}

/// The nodes of a path, this one first.
fn arrows(node: &str, path: &[String]) -> String {
    let all: Vec<&str> = std::iter::once(node).chain(path.iter().map(String::as_str)).collect();
    all.join(" → ")
}
