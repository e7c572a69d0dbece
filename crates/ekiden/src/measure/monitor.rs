//! `ekiden measure monitor`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use ekiden_files::check_target;
use ekiden_keys::Identity;
use ekiden_monitor::{
    Config, Event, Failure, History, HistoryError, Measured, Server, Service, Target, Zone, by_iperf3, by_server,
    picture, sections, since, status, to_csv, to_json, to_prometheus, to_text,
};
use ekiden_net::patience;
use ekiden_service::{Asked, Signals, announce, reload};
use ekiden_units::Time;

use crate::about::About;
use crate::out::{self, Width};
use crate::start::start;
use crate::usage::{distinct, svg};
use crate::whose::whose;

/// Measure the same paths through the day, and see at which hours they are slow.
///
/// In each interval every target is measured once, one after another: directly, and through a node's SOCKS5 listener. What comes out is kept in a
/// file (SQLite), failures too. docs/guide/monitor.md describes the configuration, the file and the metrics.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Run(Run),
    Show(Show),
    Check(Check),
}

/// Measure until told to stop.
///
/// Says how much data a day's rounds move at most, then `ready`. Logs each measurement to standard error; EKIDEN_LOG sets the level (error,
/// warn, info, debug, trace; default info); SIGUSR1 makes the log more detailed, SIGUSR2 as it was. SIGHUP reads the file again, for the rounds to come: a wrong one changes nothing. SIGTERM and SIGINT end it, also within a measurement, which is then not kept.
///
/// While the disk is full, measurements wait in memory and are written when there is room; what could not be written at the end is told by exit
/// code 4.
#[derive(clap::Args)]
struct Run {
    /// The monitor's configuration (TOML).
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["keys", "schema"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    about: About,
    /// Say whether the configuration can be used, and exit. Measures nothing.
    #[arg(long, conflicts_with = "once")]
    check: bool,
    /// Print the configuration with every default in place, and exit.
    #[arg(long, conflicts_with_all = ["check", "once"])]
    show_config: bool,
    /// Measure every target once, at once, and end: for cron. Exit code 5 if none could be measured. Deletes nothing.
    #[arg(long)]
    once: bool,
}

/// Say whether a configuration can be used, and how much data a day's rounds move at most.
///
/// Measures nothing and writes nothing. Looks at the key and the history that the configuration names.
#[derive(clap::Args)]
struct Check {
    /// The monitor's configuration (TOML).
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

/// Show what a monitor has measured: tables, or files for other programs.
///
/// A monitor may run meanwhile. Prints each target's median throughput, and the median and quartiles of each hour of the day. Hours are those
/// of this machine's time zone (TZ, /etc/localtime). Where files are named, it writes these instead.
#[derive(clap::Args)]
struct Show {
    /// The history, as the configuration names it.
    #[arg(value_name = "HISTORY")]
    history: PathBuf,
    /// Only what began within this time before now, such as 720h.
    #[arg(long, value_name = "TIME")]
    since: Option<Time>,
    /// Hours of day in UTC.
    #[arg(long)]
    utc: bool,
    /// Draw throughput by hour of day, as SVG.
    #[arg(long, value_name = "FILE", value_parser = svg())]
    picture: Option<PathBuf>,
    /// Write a line per measurement, as CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write an object per measurement, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the last values of each target and the counts, for node_exporter's textfile collector.
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// Replace files that are there already.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    width: Width,
}

/// Does what the command line says.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Run(args) => keep(&args),
        Action::Show(args) => show(&args),
        Action::Check(args) => check(&args.config),
    }
}

fn check(file: &Path) -> anyhow::Result<()> {
    let config = load(file)?;
    config.key_file.as_deref().map(Identity::load).transpose()?;
    History::check(&config.history)?;
    out::text(out::wrapped(&config.announcement()))?;
    out::line(format_args!("{}: ok", file.display()))
}

fn load(file: &Path) -> anyhow::Result<Config> {
    Config::load(file).map_err(|error| whose(file, "measure monitor", error))
}

fn keep(args: &Run) -> anyhow::Result<()> {
    let Some(file) = &args.config else {
        return args.about.told("ekiden measure monitor", &sections()).map(drop);
    };
    if args.check {
        return check(file);
    }
    let _log = start(!args.show_config)?;
    let config = load(file)?;
    if args.show_config {
        return out::toml(&config);
    }
    if let Some(file) = &config.prometheus {
        check_target(file, true).with_context(|| file.display().to_string())?;
    }
    let identity = config.key_file.as_deref().map(Identity::load).transpose()?;
    let open = || History::open(&config.history);
    let history = patience::patiently(patience::deadline(), open, HistoryError::is_held, |error| {
        tracing::warn!("the history is waited for, {:?} at most: {error}", patience::LONGEST);
    })?;
    let announcement = out::wrapped(&config.announcement());
    let mut before = config.clone();
    let mut service =
        Service::new(config, history, Arc::new(move |target: &Target| measure(target, identity.as_ref())));
    let (events, seen, file) = (service.events(), service.seen(), file.clone());
    Signals::tell(
        || status::answer(seen),
        move |asked| {
            let event = match asked {
                Asked::Reload => read_again(&file, &mut before).map(|changed| Event::Changed(Box::new(changed))),
                Asked::End => Some(Event::Stop),
            };
            let _ = event.map(|event| events.send(event));
        },
    )?;
    announce(format!("{announcement}ready\n"));
    Ok(service.run(args.once)?)
}

/// The configuration of the file, where it is another than the one `before`. The files that are open stay.
fn read_again(file: &Path, before: &mut Config) -> Option<Config> {
    let config = reload::another(file, Config::load(file), before)?;
    for (key, new, old) in [
        ("history", Some(&config.history), Some(&before.history)),
        ("key_file", config.key_file.as_ref(), before.key_file.as_ref()),
    ] {
        if new != old {
            reload::refused(format_args!("{}: {key}: another one only a start can take; restart it", file.display()));
            return None;
        }
    }
    reload::taken(file);
    *before = config.clone();
    Some(config)
}

/// Measures a target, whatever is at its other end. `identity` is this monitor's key, where it has one.
fn measure(target: &Target, identity: Option<&Identity>) -> Result<Measured, Failure> {
    match &target.server {
        Server::Iperf3(address) => by_iperf3(target, address),
        Server::Ekiden { address, fingerprint } => match identity {
            Some(identity) => by_server(target, address, *fingerprint, identity),
            None => Err(Failure("a measuring server asks for a key: give key_file".into())),
        },
    }
}

fn show(args: &Show) -> anyhow::Result<()> {
    let from = args.since.map_or(0, |span| since(ekiden_monitor::now_unix_ms(), span));
    let zone = if args.utc { Zone::utc() } else { Zone::local() };
    let files = [&args.picture, &args.csv, &args.json, &args.prometheus];
    let named = ["--picture", "--csv", "--json", "--prometheus"].into_iter().zip(files.map(|file| file.as_deref()));
    distinct(&named.chain([("the history", Some(args.history.as_path()))]).collect::<Vec<_>>());
    let history = History::read(&args.history)?;
    for file in files.into_iter().flatten() {
        check_target(file, args.force).with_context(|| file.display().to_string())?;
    }
    let measurements = history.measurements(from)?;
    let write = |file: &Option<PathBuf>, text: &dyn Fn() -> anyhow::Result<String>| match file {
        Some(file) => ekiden_files::write(file, text()?.as_bytes())
            .map_err(ekiden_files::TargetError::Failed)
            .with_context(|| file.display().to_string()),
        None => Ok(()),
    };
    write(&args.picture, &|| Ok(picture(&measurements, &zone)))?;
    write(&args.csv, &|| Ok(to_csv(&measurements)))?;
    write(&args.json, &|| Ok(to_json(&measurements)))?;
    write(&args.prometheus, &|| Ok(to_prometheus(&history.latest()?, &history.tallies()?)))?;
    match files.into_iter().all(Option::is_none) {
        true => out::text(args.width.fitted(&to_text(&measurements, &zone, args.width.columns()))),
        false => Ok(()),
    }
}
