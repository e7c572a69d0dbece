//! `ekiden simulate`: scenarios in virtual time.

use anyhow::Context;
use clap::Args as ClapArgs;
use ekiden_record::SeriesWriter;
use ekiden_scenario::{Point, Scenario, Sweep};
use ekiden_sim::{Capture, Options, Progress};
use ekiden_sweep::{Run, RunOutcome, Runner};
use ekiden_units::Time;
use indicatif::{ProgressBar, ProgressStyle};

use crate::usage::{command_line, now_unix_ms, whole_number};
use crate::whose::whose;
use crate::{exit, out, pcap, sweep};

/// Run a scenario in virtual time, packet by packet, and write the record of what came out.
///
/// The same file as for `ekiden lab run`, and the same record; no kernel, no privileges, and the same result on every
/// machine. What is simulated, and how far it agrees with the lab, stands in docs/guide/simulation.md.
///
/// With several values of a --set, or --repeat, every combination is run, and what came out is shown as one table. Runs
/// whose record is there already are not run again, so the same command continues a sweep that was interrupted.
#[derive(ClapArgs)]
pub struct Args {
    #[command(flatten)]
    sweep: sweep::Args,
    /// Runs at once; as many as there are processors unless said otherwise.
    #[arg(long, value_name = "J", value_parser = whole_number(1_u32, 1000))]
    jobs: Option<u32>,
    /// How often the state of senders and queues is noted, in virtual time.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = resolution)]
    resolution: Time,
    #[command(flatten)]
    pcap: pcap::Args,
}

/// Does one run, or a sweep.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let points = Sweep::parse(&args.sweep.set)?.points();
    if let Some(point) = sweep::single(&args.sweep, &points) {
        let scenario = load(args, point)?;
        sweep::warn(&scenario);
        return single(args, &scenario);
    }
    args.pcap.refuse_sweep();
    let plan = sweep::plan(&args.sweep, "simulate", Some(args.resolution))?;
    plan.scenarios.iter().try_for_each(|scenario| check_supported(args, scenario))?;
    plan.scenarios.first().into_iter().for_each(sweep::warn);
    let work = |run: &Run| Ok(of_sweep(args, run).unwrap_or_else(|error| failed(&error)));
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32));
    sweep::run(&args.sweep, plan, &Runner { jobs, work: &work, stopped_by: &|| None }, exit::number)
}

fn single(args: &Args, scenario: &Scenario) -> anyhow::Result<()> {
    args.pcap.check(scenario);
    let capture = args.pcap.capture(|open| Capture::new(scenario, open))?;
    sweep::check_record(&args.sweep)?;
    let options = options(args);
    let place = sweep::place(&args.sweep, scenario, options.started_unix_ms);
    let mut series = SeriesWriter::new(&place, args.sweep.samples);
    let bar = bar(scenario);
    let mut progress = |progress| show(&bar, progress);
    let Some(mut capture) = capture else {
        let record = ekiden_sim::simulate(scenario, &options, &mut series, &mut progress)?;
        bar.finish_and_clear();
        return sweep::show_one(&args.sweep, record, series, &place);
    };
    let record = ekiden_sim::simulate_captured(scenario, &options, &mut series, &mut capture, &mut progress)?;
    let finished = capture.finish();
    bar.finish_and_clear();
    // The record is there whatever became of the packets.
    let shown = sweep::show_one(&args.sweep, record, series, &place);
    args.pcap.tell(finished.map(|()| 0), args.sweep.json)?;
    shown
}

fn load(args: &Args, point: &Point) -> anyhow::Result<Scenario> {
    let scenario =
        Scenario::load_with(&args.sweep.file, point).map_err(|error| whose(&args.sweep.file, "simulate", error))?;
    check_supported(args, &scenario)?;
    Ok(scenario)
}

fn check_supported(args: &Args, scenario: &Scenario) -> anyhow::Result<()> {
    ekiden_sim::check_supported(scenario).with_context(|| args.sweep.file.display().to_string())
}

/// A run of a sweep, which leaves its record.
fn of_sweep(args: &Args, run: &Run) -> anyhow::Result<RunOutcome> {
    sweep::simulated(&load(args, &run.settings)?, &options(args), args.sweep.samples, &run.record)
}

fn failed(error: &anyhow::Error) -> RunOutcome {
    RunOutcome::Failed { code: exit::number(error), reason: out::message(error) }
}

fn options(args: &Args) -> Options {
    Options { resolution: args.resolution, command: command_line(), started_unix_ms: now_unix_ms() }
}

/// Progress in virtual time on standard error, if that is a terminal.
fn bar(scenario: &Scenario) -> ProgressBar {
    let bar = ProgressBar::new(ekiden_sweep::expected(scenario).as_millis() as u64);
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {msg} ({eta} left)");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(scenario.name.clone());
    bar
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_position(progress.now.0 / 1_000_000);
    bar.set_message(format!("{:.1} s, {} million events", progress.now.as_secs(), progress.events / 1_000_000));
}

fn resolution(text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error: ekiden_units::ParseError| error.to_string())?;
    if time < Time::ms(1) { Err("at least 1ms".into()) } else { Ok(time) }
}
