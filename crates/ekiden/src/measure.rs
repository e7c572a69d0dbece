//! `ekiden measure`: what a path gives, and what limits it.

mod monitor;

use clap::Subcommand;

/// Measure what a path gives, and what limits it.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Monitor(monitor::Args),
}

/// Does what the command line says.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Monitor(args) => monitor::run(args),
    }
}
