//! `ekiden measure`: what a path gives, and what limits it.

pub mod watch;

use clap::Subcommand;

/// Measure what a path gives, and what limits it.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Watch(watch::Args),
}

/// Does what the command line says.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Watch(args) => watch::run(&args),
    }
}
