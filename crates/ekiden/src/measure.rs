//! `ekiden measure`: what a path gives, and what limits it.

mod client;
mod monitor;
mod path;
mod server;
mod target;
pub mod watch;

pub use server::{Misconfigured, code as server_code};
pub use target::{NoPeer, PlainPeer};

use clap::Subcommand;
use clap::error::ErrorKind;

/// Measure what a path gives, and what limits it.
///
/// A server runs at one end of the path, a client at the other. docs/guide/measure.md describes both.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Client(Box<client::Args>),
    Monitor(monitor::Args),
    Path(path::Args),
    Server(server::Args),
    Watch(watch::Args),
}

/// Does what the command line says.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Client(args) => client::run(&args),
        Action::Monitor(args) => monitor::run(args),
        Action::Path(args) => path::run(&args),
        Action::Server(args) => server::run(&args),
        Action::Watch(args) => watch::run(&args),
    }
}

/// Ends the program for wrong usage that the command line's definition cannot tell.
fn misused(reason: &str) -> ! {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{reason}\n")).exit()
}
