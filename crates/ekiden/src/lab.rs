//! `ekiden lab`: scenarios on this machine, with the real kernel and real programs.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, exit};

use clap::{Args as ClapArgs, Subcommand};
use ekiden_lab::{Error, Interrupt, Lab, clean, isolate};
use ekiden_scenario::Scenario;

/// Build a scenario's network on this machine, and run things in it.
///
/// Nodes are network namespaces with the real kernel's TCP; links are emulated with their rate, delay, queue and loss;
/// proxies are this same program. Everything is private to the command and vanishes with it. Needs root, or a kernel
/// that lets users make namespaces. docs/lab.md says how exact it is.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Shell(Shell),
    /// Remove what labs that were killed have left behind, and nothing else.
    Clean,
}

/// Open a shell in a node, with the proxies running.
///
/// Other nodes are reached by their names (`ping server`), and entered with `ip netns exec NODE PROGRAM`. Proxies
/// listen on port 1080 (SOCKS5) and 3128 (HTTP).
#[derive(ClapArgs)]
struct Shell {
    /// The scenario file (TOML).
    file: PathBuf,
    /// The node to be in.
    node: String,
    /// Run this instead of $SHELL, and exit with its exit code.
    #[arg(last = true, value_name = "PROGRAM AND ARGUMENTS")]
    program: Vec<String>,
}

/// Does what the command line says.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Shell(args) => shell(&args),
        Action::Clean => {
            match clean()? {
                0 => println!("nothing to remove"),
                1 => println!("removed what 1 killed lab had left"),
                count => println!("removed what {count} killed labs had left"),
            }
            Ok(())
        }
    }
}

fn shell(args: &Shell) -> anyhow::Result<()> {
    let scenario = Scenario::load(&args.file)?;
    isolate(Interrupt::IsForProgram)?;
    let mut lab = Lab::build(&scenario)?;
    lab.publish_names()?;
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into());
    let (program, arguments) = match args.program.split_first() {
        Some((program, arguments)) => (program, arguments),
        None => (&shell, &[][..]),
    };
    let mut command: Command = lab.command(&args.node, program)?;
    command.args(arguments).env("EKIDEN_NODE", &args.node);
    let status = command.status().map_err(|source| Error::Program {
        node: args.node.clone(),
        program: program.clone(),
        source,
    })?;
    drop(lab);
    exit(exit_code(status))
}

/// A program's end as a shell reports it: its exit code, or 128 + the signal.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}
