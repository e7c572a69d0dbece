//! The ekiden command line: one file per subcommand, nothing else.

#![deny(clippy::print_stderr)]
// Without all features, some functions that all commands share are not called.
#![cfg_attr(not(all(feature = "lab", feature = "measure")), allow(dead_code))]

mod about;
#[cfg(feature = "lab")]
mod children;
mod congestion;
#[cfg(feature = "lab")]
mod demo;
mod doctor;
mod exit;
mod gateway;
mod keygen;
#[cfg(feature = "lab")]
mod lab;
mod log;
#[cfg(feature = "measure")]
mod measure;
mod out;
mod overlay;
mod password;
#[cfg(feature = "lab")]
mod pcap;
mod peer;
#[cfg(feature = "lab")]
mod plan;
mod proxy;
#[cfg(feature = "lab")]
mod record;
#[cfg(feature = "lab")]
mod reproduce;
#[cfg(feature = "lab")]
mod scenario;
#[cfg(feature = "lab")]
mod simulate;
mod start;
mod status;
#[cfg(feature = "lab")]
mod sweep;
mod tunnel;
mod usage;
mod whose;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// A TCP overlay that makes long distances fast without touching the end hosts.
#[derive(Parser)]
#[command(version, about, propagate_version = true, max_term_width = out::WIDEST, after_help = exit::help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Congestion(congestion::Args),
    #[cfg(feature = "lab")]
    Demo(demo::Args),
    Doctor(doctor::Args),
    Gateway(gateway::Args),
    Keygen(keygen::Args),
    #[cfg(feature = "lab")]
    Lab(lab::Args),
    #[cfg(feature = "measure")]
    Measure(measure::Args),
    Overlay(overlay::Args),
    Password(password::Args),
    Peer(peer::Args),
    #[cfg(feature = "lab")]
    Plan(plan::Args),
    Proxy(proxy::Args),
    #[cfg(feature = "lab")]
    Record(record::Args),
    #[cfg(feature = "lab")]
    Reproduce(reproduce::Args),
    #[cfg(feature = "lab")]
    Scenario(scenario::Args),
    #[cfg(feature = "lab")]
    Simulate(simulate::Args),
    Status(status::Args),
    Tunnel(tunnel::Args),
}

fn main() -> ExitCode {
    let result = match command_line() {
        Ok(cli) => run(cli.command),
        Err(said) => match out::said(&said) {
            Ok(()) => return ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(2)),
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, the exit code still reports it.
            out::note(format_args!("ekiden: {}", out::message(&error)));
            exit::code(&error)
        }
    }
}

fn command_line() -> Result<Cli, clap::Error> {
    let mut command = usage::with_negative_quantities(Cli::command());
    let mut matches =
        command.try_get_matches_from_mut(std::env::args_os()).map_err(|error| usage::hinted(error, &command))?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Congestion(args) => congestion::run(args),
        #[cfg(feature = "lab")]
        Command::Demo(args) => demo::run(args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Gateway(args) => gateway::run(&args),
        Command::Keygen(args) => keygen::run(args),
        #[cfg(feature = "lab")]
        Command::Lab(args) => lab::run(args),
        #[cfg(feature = "measure")]
        Command::Measure(args) => measure::run(args),
        Command::Overlay(args) => overlay::run(&args),
        Command::Password(args) => password::run(&args),
        Command::Peer(args) => peer::run(args),
        #[cfg(feature = "lab")]
        Command::Plan(args) => plan::run(&args),
        Command::Proxy(args) => proxy::run(args),
        #[cfg(feature = "lab")]
        Command::Record(args) => record::run(&args),
        #[cfg(feature = "lab")]
        Command::Reproduce(args) => reproduce::run(&args, exit::number),
        #[cfg(feature = "lab")]
        Command::Scenario(args) => scenario::run(args),
        #[cfg(feature = "lab")]
        Command::Simulate(args) => simulate::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Tunnel(args) => tunnel::run(&args),
    }
}
