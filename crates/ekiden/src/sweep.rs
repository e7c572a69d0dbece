//! Many runs of a scenario, in the lab or simulated: their flags, and how what comes out is shown.

mod flows;
mod progress;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args as ClapArgs;
use clap::error::ErrorKind;
use ekiden_files::check_target;
use ekiden_lab::verdict;
use ekiden_record::Record;
use ekiden_scenario::{Point, Scenario};
use ekiden_sweep::{Index, Plan, RunFailure, Runner, Shard, is_file, point_summaries, run_missing, table};
use ekiden_units::Time;

use crate::out;
use progress::Progress;

pub use flows::flows;

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
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Do only part I of N of these runs, counted from 1, so that N machines can share them. `ekiden record merge` brings
    /// their records together.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Where the record goes: a file if it ends in .json (a single run only), else a directory.
    #[arg(long, value_name = "FILE|DIR", default_value = "record")]
    pub record: PathBuf,
    /// Replace the FILE of --record if it is there already.
    #[arg(long)]
    pub force: bool,
    /// Print the record, or what the table would hold, as JSON instead of a table.
    #[arg(long)]
    pub json: bool,
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

/// Ends the program for wrong usage that the command line's definition cannot tell.
pub fn misused(reason: &str) -> ! {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{reason}\n")).exit()
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
    std::fs::create_dir_all(&args.record)
        .map_err(|source| ekiden_record::Error::Unwritable { file: args.record.display().to_string(), source })?;
    plan.index.write(&args.record, args.shard)?;
    let all = plan.runs.len();
    if let Some(shard) = args.shard {
        plan.runs = shard.part(plan.runs);
    }
    let missing = plan.missing();
    let progress = Progress::new(&plan, &missing, runner.jobs);
    let failures = run_missing(&plan, &missing, runner, &progress);
    progress.clear();
    let mut failed: BTreeMap<usize, u8> = failures?.into_iter().map(|(at, failure)| (at, code(&failure))).collect();
    let records = plan.summaries();
    note_incomplete(&plan, &records, &mut failed, code_of);
    show(&plan, &records, args.json)?;
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
pub fn show(plan: &Plan, records: &[Option<Record>], as_json: bool) -> anyhow::Result<()> {
    let shown = point_summaries(plan, records);
    match as_json {
        true => out::line(serde_json::to_string_pretty(&shown)?),
        false => out::line(table(plan, &shown).to_text()),
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
            eprintln!("ekiden: {}: {error} (in {})", run.label, run.record.display());
            failed.insert(at, code_of(&error.into()));
        }
    }
}

/// Finds out, before a single run begins, whether its record can be written.
pub fn check_record(args: &Args) -> anyhow::Result<()> {
    let checked = match is_file(&args.record) {
        true => check_target(&args.record, args.force),
        // Records in a directory have the times of their runs in their names: none is there already.
        false => check_target(&args.record.join("record.json"), true),
    };
    checked.with_context(|| args.record.display().to_string())
}

/// Says on standard error what of a scenario may be meant otherwise.
pub fn warn(scenario: &Scenario) {
    for warning in scenario.warnings() {
        eprintln!("ekiden: warning: {warning}");
    }
}

/// Writes the record of a single run, and shows it.
pub fn show_one(args: &Args, record: &Record) -> anyhow::Result<()> {
    let path = match is_file(&args.record) {
        true => args.record.clone(),
        false => {
            let name = format!("{}-{}.json", record.manifest.scenario_name, record.manifest.started_unix_ms);
            args.record.join(name)
        }
    };
    record.write(&path)?;
    match args.json {
        true => out::text(record.to_json())?,
        false => {
            out::text(flows(record))?;
            out::line(format_args!("record: {}", path.display()))?;
        }
    }
    Ok(verdict(record)?)
}
