//! Many runs of a scenario, in the lab or simulated: every point of a sweep several times, with what is already there left
//! out, and one table at the end.

mod index;
mod plan;
mod progress;
mod shard;
mod table;

use std::collections::BTreeMap;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

use anyhow::Context;
use clap::Args as ClapArgs;
use clap::error::ErrorKind;
use ekiden_files::check_target;
use ekiden_lab::verdict;
use ekiden_record::Record;
use ekiden_scenario::{Point, Scenario};
use ekiden_units::Time;
use nix::sys::signal::Signal;

use crate::out;
use progress::Progress;
use shard::Shard;
use table::{shown, table};

pub use index::{Error as IndexError, Index};
pub use plan::{Plan, Run};
pub use progress::expected;
pub use table::flows;

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

/// Who runs.
pub struct Runner<'a> {
    /// How many runs at once.
    pub jobs: u32,
    /// Does a run, which leaves its record in its place.
    pub work: &'a (dyn Fn(&Run) -> io::Result<Done> + Sync),
    /// The signal that has ended the sweep, if one has.
    pub stopped_by: &'a dyn Fn() -> Option<Signal>,
    /// The exit code that stands for an error.
    pub code_of: fn(&anyhow::Error) -> u8,
}

/// How a run went.
pub enum Done {
    /// To its end; the record tells how.
    Finished,
    /// It failed: exit code and reason.
    Failed(u8, String),
    /// The sweep is over before it.
    Stopped,
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

/// A signal has ended a sweep.
#[derive(Debug, thiserror::Error)]
#[error("interrupted with {done} of {runs} runs done; the same command does the others")]
pub struct Interrupted {
    done: usize,
    runs: usize,
    signal: Signal,
}

impl Interrupted {
    /// The exit code, as if the signal had not been waited for.
    pub fn code(&self) -> u8 {
        128 + self.signal as u8
    }
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
    Plan::new(index, &file, &args.record)
}

/// Runs what has no record yet of the plan, or of a shard of it, and shows the records of all that.
pub fn run(args: &Args, mut plan: Plan, runner: &Runner<'_>) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.record)
        .map_err(|source| ekiden_record::Error::Unwritable { file: args.record.display().to_string(), source })?;
    plan.index.write(&args.record, args.shard)?;
    let all = plan.runs.len();
    if let Some(shard) = args.shard {
        plan.runs = shard.part(plan.runs);
    }
    let mut failed = carry_out(runner, &plan)?;
    let records = read(&plan, &mut failed, runner.code_of);
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
    let shown = shown(plan, records);
    match as_json {
        true => out::line(serde_json::to_string_pretty(&shown)?),
        false => out::line(table(plan, &shown).to_text()),
    }
}

/// Runs what has no record yet. Returns the exit codes of runs that left none, by their place among `runs`.
fn carry_out(runner: &Runner<'_>, plan: &Plan) -> anyhow::Result<BTreeMap<usize, u8>> {
    let (runs, index) = (&plan.runs, &plan.index);
    let missing: Vec<_> = runs.iter().enumerate().filter(|(_, run)| run.summary(index).is_none()).collect();
    let left = missing.iter().map(|(_, run)| run.expected).sum();
    let progress = Progress::new(runs.len() - missing.len(), runs.len(), left, runner.jobs);
    if missing.len() < runs.len() {
        progress.say(format_args!("{} of {} runs are there already", runs.len() - missing.len(), runs.len()));
    }
    let failed = Mutex::new(BTreeMap::new());
    let jobs = missing.len().min(runner.jobs as usize);
    let waiting = Mutex::new(missing.into_iter());
    let worker = || -> io::Result<()> {
        loop {
            let next = lock(&waiting).next();
            let Some((at, run)) = next else { return Ok(()) };
            let failure = match (runner.work)(run)? {
                Done::Stopped => return Ok(()),
                Done::Failed(code, reason) => Some((code, reason)),
                Done::Finished if run.summary(index).is_some() => None,
                Done::Finished => Some((3, "the scenario file has changed since the sweep began".into())),
            };
            progress.done(&run.label, run.expected);
            if let Some((code, reason)) = failure {
                progress.say(format_args!("ekiden: {}: {reason}", run.label));
                lock(&failed).insert(at, code);
            }
        }
    };
    let result = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        let joined = |worker: ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|payload| resume_unwind(payload));
        workers.into_iter().try_for_each(joined)
    });
    progress.clear();
    if let Some(signal) = (runner.stopped_by)() {
        // By their records: a run may have left its record and not its end.
        let done = runs.iter().filter(|run| run.summary(index).is_some()).count();
        return Err(Interrupted { done, runs: runs.len(), signal }.into());
    }
    result.context("cannot start a run")?;
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The records of all runs, without their samples. Those with a failed flow are noted in `failed`.
fn read(plan: &Plan, failed: &mut BTreeMap<usize, u8>, code_of: fn(&anyhow::Error) -> u8) -> Vec<Option<Record>> {
    let one = |(at, run): (usize, &Run)| {
        let record = run.summary(&plan.index)?;
        if let Err(error) = verdict(&record)
            && !failed.contains_key(&at)
        {
            eprintln!("ekiden: {}: {error} (in {})", run.label, run.record.display());
            failed.insert(at, code_of(&error.into()));
        }
        Some(record)
    };
    plan.runs.iter().enumerate().map(one).collect()
}

/// Whether `place` names a record's file rather than a directory for it.
pub fn is_file(place: &Path) -> bool {
    place.extension().is_some_and(|extension| extension == "json")
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

/// No worker leaves a value half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
