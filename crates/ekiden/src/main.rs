//! The ekiden command line: one file per subcommand, nothing else.

mod proxy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A TCP overlay that makes long distances fast without touching the end hosts.
#[derive(Parser)]
#[command(version, about, long_about = None, propagate_version = true, disable_help_subcommand = false)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Proxy(proxy::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Proxy(args) => proxy::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ekiden: {error:#}");
            ExitCode::FAILURE
        }
    }
}
