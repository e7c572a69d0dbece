//! `ekiden lab`: scenarios on this machine, with the real kernel and real programs.

mod chart;
mod run;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, exit};

use anyhow::Context;
use clap::{Args as ClapArgs, Subcommand};
use ekiden_lab::{Error, Interrupt, Lab, all_passed, check_congestion_controls, clean, isolate, run_directory};
use ekiden_scenario::{Point, Scenario};

use crate::out;
use crate::scenario::place;
use crate::whose::whose;

/// Build a scenario's network on this machine, and run things in it.
///
/// Nodes are network namespaces with the real kernel's TCP; links are emulated with their rate, delay, queue and loss;
/// proxies are this same program. Everything is private to the command and vanishes with it. Needs root, or a kernel
/// that lets users make namespaces. docs/guide/lab.md says how exact it is.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Run(run::Args),
    Shell(Shell),
    Check(Check),
    Chart(chart::Args),
    /// Remove what labs that were killed have left behind, and nothing else.
    Clean,
}

/// Open a shell in a node, with the proxies running.
///
/// Other nodes are reached by their names (`ping server`), and entered with `ip netns exec NODE PROGRAM`. Proxies
/// listen on port 1080 (SOCKS5) and 3128 (HTTP). The prompt of bash and sh names the scenario and the node.
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

/// Measure how exact the lab is on this machine.
///
/// Probes the idle paths of the scenario's flows, then runs each direct flow that lasts for a time alone, and compares
/// round-trip time, throughput and the queue's delay with what follows from the scenario. Exits with 6 if any is out of
/// tolerance: RTT 0.2 ms at the median and 1 ms at the 99th percentile, throughput 2 %, queue 5 %.
#[derive(ClapArgs)]
struct Check {
    /// The scenario file (TOML).
    file: PathBuf,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Does what the command line says.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Run(args) => run::run(&args),
        Action::Shell(args) => shell(&args),
        Action::Check(args) => check(&args),
        Action::Chart(args) => chart::run(&args),
        Action::Clean => {
            match clean()? {
                0 => out::line("nothing to remove")?,
                1 => out::line("removed what 1 killed lab had left")?,
                count => out::line(format_args!("removed what {count} killed labs had left"))?,
            }
            Ok(())
        }
    }
}

/// A scenario that the lab can build, as far as the file and the kernel tell.
fn load(file: &Path, point: &Point) -> anyhow::Result<Scenario> {
    let scenario = Scenario::load_with(file, point).map_err(|error| whose(file, "lab run", error))?;
    check_supported(file, &scenario)?;
    check_congestion_controls(&scenario).map_err(|error| {
        let file = file.display().to_string();
        // What --set gives stands in no line.
        let place = if point.settings().is_empty() { place(&file, &error) } else { file };
        anyhow::Error::from(error).context(place)
    })?;
    Ok(scenario)
}

fn check_supported(file: &Path, scenario: &Scenario) -> anyhow::Result<()> {
    ekiden_lab::check_supported(scenario).with_context(|| file.display().to_string())
}

fn check(args: &Check) -> anyhow::Result<()> {
    let scenario = load(&args.file, &Point::default())?;
    isolate(Interrupt::Ends)?;
    let checks = ekiden_lab::check(&scenario, &mut |step| out::note(format_args!("{}: {step}", scenario.name)))?;
    if args.json {
        out::line(serde_json::to_string_pretty(&checks)?)?;
        return Ok(all_passed(&checks)?);
    }
    let mut rows = vec![["check", "expected", "measured", "least", "most", "unit", ""].map(String::from)];
    for check in &checks {
        let [expected, measured] = [check.expected, check.measured].map(|value| format!("{value:.3}"));
        let [least, most] = check.tolerance.map(|value| format!("{value:.3}"));
        let verdict = if check.passed { "ok" } else { "MISSED" };
        rows.push([check.what.clone(), expected, measured, least, most, check.unit.into(), verdict.into()]);
    }
    out::text(out::aligned(&rows, ekiden_report::columns()))?;
    Ok(all_passed(&checks)?)
}

fn shell(args: &Shell) -> anyhow::Result<()> {
    let scenario = load(&args.file, &Point::default())?;
    isolate(Interrupt::IsForProgram)?;
    let mut lab = Lab::build(&scenario)?;
    lab.publish_names()?;
    lab.start_nodes()?;
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into());
    let (program, arguments) = match args.program.split_first() {
        Some((program, arguments)) => (program, arguments),
        None => (&shell, &[][..]),
    };
    let mut command: Command = lab.command(&args.node, program)?;
    command.args(arguments).env("EKIDEN_NODE", &args.node);
    if args.program.is_empty() {
        set_prompt(&mut command, &shell, &format!("[{}:{}]", scenario.name, args.node));
    }
    // Changes and outages of links come from now on.
    lab.begin();
    let status = command.status().map_err(|source| Error::Program {
        node: args.node.clone(),
        program: program.clone(),
        source,
    })?;
    drop(lab);
    exit(exit_code(status))
}

/// Gives a shell a prompt that tells it from those of the host.
fn set_prompt(command: &mut Command, shell: &str, place: &str) {
    command.env("PS1", format!("{place} $ "));
    let is_bash = Path::new(shell).file_name().is_some_and(|name| name == "bash");
    // bash reads a file of the user's, which mostly has a prompt of its own: ours comes behind it.
    if let Some(directory) = run_directory().filter(|_| is_bash) {
        let file = directory.join("bashrc");
        let text = format!("[ -r ~/.bashrc ] && . ~/.bashrc\nPROMPT_COMMAND=\nPS1='{place} \\w\\$ '\n");
        if fs::write(&file, text).is_ok() {
            command.arg("--rcfile").arg(file);
        }
    }
}

/// A program's end as a shell reports it: its exit code, or 128 + the signal.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}
