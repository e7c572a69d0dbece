//! Many runs of a scenario, in the lab or simulated: their flags, and how what comes out is shown.

mod flows;
mod gateways;
mod one;
mod paths;
mod progress;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args as ClapArgs;
use ekiden_files::{check_directory, check_target};
use ekiden_lab::verdict;
use ekiden_record::{Record, SAMPLES_MOST, SeriesWriter};
use ekiden_scenario::{Point, Scenario};
use ekiden_sweep::{Index, Plan, RunFailure, Runner, Shard, is_file, point_summaries, run_missing, table};
use ekiden_units::Time;

use crate::out::{self, Width};
use crate::usage::{misused, whole_number};
use progress::Progress;

pub use flows::flows;
pub use one::{ENDS_WITH, Labs, simulated};

/// What to run, and where to put what comes out.
#[derive(ClapArgs)]
#[group(skip)]
pub struct Args {
    /// The scenario file (TOML).
    pub file: PathBuf,
    /// Give a key of the file other values: a dotted path such as link.sea.delay, or several joined by '+' that take
    /// the same value. Several --set are combined, each value with each.
    #[arg(long, value_name = "KEY=V1,V2,...")]
    pub set: Vec<String>,
    /// Run each combination so often; the seed of the first is the scenario's, and grows by 1.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number(1_u32, 1000))]
    pub repeat: u32,
    /// Do only part I of N of these runs, counted from 1, so that N machines can share them. `ekiden record merge` brings
    /// their records together.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Where the record goes: a file if it ends in .json (a single run only), else a directory.
    #[arg(long, value_name = "FILE|DIR", default_value = "record")]
    pub record: PathBuf,
    /// How many samples of the state of senders and queues a run keeps, about; if there are more, every second is given up, and
    /// so again.
    #[arg(long, value_name = "N", default_value_t = SAMPLES_MOST, value_parser = whole_number(1_000, u64::MAX))]
    pub samples: u64,
    /// Replace the FILE of --record if it is there already.
    #[arg(long)]
    pub force: bool,
    /// Print the record, or what the table would hold, as JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub width: Width,
}

/// Some runs of a sweep failed; each was told when it did.
#[derive(Debug, thiserror::Error)]
#[error("{failed} of {runs} runs failed")]
pub struct SweepFailed {
    failed: usize,
    runs: usize,
    /// The exit code of the first that failed.
    pub code: u8,
}

/// The point of a single run; `None` if there are several. Ends the program if a shard of a single one is wanted.
pub fn single<'a>(args: &Args, points: &'a [Point]) -> Option<&'a Point> {
    match points {
        [point] if args.repeat == 1 => {
            if args.shard.is_some() {
                misused("--shard is for several runs, and this is a single one");
            }
            Some(point)
        }
        _ => None,
    }
}

/// All runs that the arguments describe. Ends the program if their records are to be one file.
pub fn plan(args: &Args, producer: &str, resolution: Option<Time>) -> anyhow::Result<Plan> {
    if is_file(&args.record) {
        misused("--record must name a directory when there is more than one run");
    }
    let file = args.file.display().to_string();
    let text = Scenario::read_text(&args.file)?;
    let index = Index::new(producer, &args.set, args.repeat, resolution, text);
    Ok(Plan::new(index, &file, &args.record)?)
}

/// Runs what has no record yet of the plan, or of a shard of it, and shows the records of all that. `code_of` tells the exit
/// code of an error.
pub fn run(args: &Args, mut plan: Plan, runner: &Runner<'_>, code_of: fn(&anyhow::Error) -> u8) -> anyhow::Result<()> {
    check_directory(&args.record).with_context(|| args.record.display().to_string())?;
    plan.index.write(&args.record)?;
    let all = plan.runs.len();
    if let Some(shard) = args.shard {
        plan.runs = shard.part(plan.runs);
    }
    let missing = plan.missing()?;
    let progress = Progress::new(&plan, &missing, runner.jobs);
    let failures = run_missing(&plan, &missing, runner, &progress);
    progress.clear();
    let mut failed: BTreeMap<usize, u8> = failures?.into_iter().map(|(at, failure)| (at, code(&failure))).collect();
    let records = plan.summaries();
    note_incomplete(&plan, &records, &mut failed, code_of);
    tell_thinned(records.iter().flatten());
    show(&plan, &records, args.json, args.width)?;
    if !args.json {
        let place = args.record.display();
        match args.shard {
            None => out::line(format_args!("records: {place}"))?,
            Some(shard) => {
                out::line(format_args!("records: {place} (shard {shard}, {} of {all} runs)", plan.runs.len()))?
            }
        }
    }
    match failed.first_key_value() {
        None => Ok(()),
        Some((_, &code)) => Err(SweepFailed { failed: failed.len(), runs: plan.runs.len(), code }.into()),
    }
}

/// Prints what came out of a sweep. `records` are of the plan's runs.
pub fn show(plan: &Plan, records: &[Option<Record>], as_json: bool, width: Width) -> anyhow::Result<()> {
    let shown = point_summaries(plan, records);
    match as_json {
        true => out::line(serde_json::to_string_pretty(&shown)?),
        false => out::line(table(plan, &shown).to_text_within(width.columns())),
    }
}

/// The exit code of a run that failed.
fn code(failure: &RunFailure) -> u8 {
    match failure {
        RunFailure::Run { code, .. } => *code,
        RunFailure::Changed => 3,
    }
}

/// Says which records have a flow that failed, and notes their runs in `failed`.
fn note_incomplete(
    plan: &Plan,
    records: &[Option<Record>],
    failed: &mut BTreeMap<usize, u8>,
    code_of: fn(&anyhow::Error) -> u8,
) {
    for (at, (run, record)) in plan.runs.iter().zip(records).enumerate() {
        let error = record.as_ref().and_then(|record| verdict(record).err());
        if let Some(error) = error.filter(|_| !failed.contains_key(&at)) {
            out::note(format_args!("ekiden: {}: {error} (in {})", run.label, run.record.display()));
            failed.insert(at, code_of(&error.into()));
        }
    }
}

/// Finds out, before a single run begins, whether its record can be written.
pub fn check_record(args: &Args) -> anyhow::Result<()> {
    let checked = match is_file(&args.record) {
        true => check_target(&args.record, args.force),
        // Records in a directory have the times of their runs in their names: none is there already.
        false => check_directory(&args.record),
    };
    checked.with_context(|| args.record.display().to_string())
}

/// Says on standard error what of a scenario may be meant otherwise.
pub fn warn(scenario: &Scenario) {
    for warning in scenario.warnings() {
        out::note(format_args!("ekiden: warning: {warning}"));
    }
}

/// Where the record of a single run goes that starts at this time.
pub fn place(args: &Args, scenario: &Scenario, started_unix_ms: u64) -> PathBuf {
    match is_file(&args.record) {
        true => args.record.clone(),
        false => args.record.join(format!("{}-{started_unix_ms}.json", scenario.name)),
    }
}

/// Writes what a run has left. The record is there whatever becomes of the series.
pub fn write(mut record: Record, series: SeriesWriter, place: &Path) -> anyhow::Result<Record> {
    let mut failed = None;
    let record = series.finish_with(|files| {
        record.series = files.map_err(|error| failed = Some(error)).ok();
        record.write(place)?;
        anyhow::Ok(record)
    })?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(record),
    }
}

/// Says on standard error if samples were given up.
fn tell_thinned<'a>(records: impl Iterator<Item = &'a Record>) {
    let one_of = |record: &Record| record.series.as_ref().map(|files| files.one_of).filter(|one_of| *one_of > 1);
    let thinned: Vec<u64> = records.filter_map(one_of).collect();
    let Some(most) = thinned.iter().max() else { return };
    let runs = if thinned.len() == 1 { "a run" } else { &format!("{} runs", thinned.len()) };
    out::note(format_args!("ekiden: {runs} had more samples than --samples allows: one look in {most} is kept"));
}

/// Writes what a single run has left, and shows it, also where it cannot be written.
pub fn show_one(args: &Args, record: Record, series: SeriesWriter, place: &Path) -> anyhow::Result<()> {
    let written = write(record.clone(), series, place);
    let record = written.as_ref().unwrap_or(&record);
    tell_thinned([record].into_iter());
    match args.json {
        true => out::text(record.to_json())?,
        false => out::text(flows(record))?,
    }
    let record = written?;
    if !args.json {
        out::line(format_args!("record: {}", place.display()))?;
    }
    Ok(verdict(&record)?)
}
