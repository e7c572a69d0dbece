//! `ekiden measure`: what a path gives, and what limits it.

mod client;
mod monitor;
mod path;
mod server;
mod target;
pub mod watch;

pub use server::{Misconfigured, code as server_code};
pub use target::{NoPeer, PlainPeer};

use std::fmt::Display;
use std::str::FromStr;

use clap::Subcommand;
use ekiden_units::Bytes;

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

/// Reads an option that has a least and a greatest value, as users write them.
fn within<T>(least: &'static str, most: &'static str) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr<Err: Display> + PartialOrd,
{
    move |text| {
        let read = |text: &str| text.parse::<T>().map_err(|error| error.to_string());
        let value = read(text)?;
        match read(least)? <= value && value <= read(most)? {
            true => Ok(value),
            false => Err(format!("{text} is not in {least} to {most}")),
        }
    }
}

/// Reads how much is moved.
fn amount(text: &str) -> Result<Bytes, String> {
    within("1B", "1024TiB")(text)
}
