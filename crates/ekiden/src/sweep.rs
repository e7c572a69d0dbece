//! Many runs of a scenario, in the lab or simulated: every point of a sweep several times, with what is already there left
//! out, and one table at the end.

mod progress;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use clap::error::ErrorKind;
use ekiden_lab::verdict;
use ekiden_record::{Outcome, Record};
use ekiden_report::{FlowSummary, LATENESS_P99_MOST_US, Spread, Summary, Table, summarize};
use ekiden_scenario::{Point, Scenario, Sweep};
use nix::sys::signal::Signal;
use serde::Serialize;

use crate::{exit, out};
use progress::Progress;

pub use progress::expected;

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
    /// Where the record goes: a file if it ends in .json (a single run only), else a directory.
    #[arg(long, value_name = "FILE|DIR", default_value = "record")]
    pub record: PathBuf,
    /// Print the record, or what the table would hold, as JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Who runs.
pub struct Runner<'a> {
    /// What its records say: `lab`, `simulate`.
    pub producer: &'static str,
    /// How many runs at once.
    pub jobs: u32,
    /// Does a run, which leaves its record in its place.
    pub work: &'a (dyn Fn(&Run) -> io::Result<Done> + Sync),
    /// The signal that has ended the sweep, if one has.
    pub stopped_by: &'a dyn Fn() -> Option<Signal>,
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

/// One run of one point.
pub struct Run {
    /// Which of the points.
    point: usize,
    /// What to call it.
    label: String,
    /// What is to be set in the file.
    pub settings: Point,
    /// The scenario that the record must be of, as a file.
    scenario: String,
    /// Where the record is, or will be.
    pub record: PathBuf,
    expected: Duration,
}

/// Runs what has no record yet, and shows the records of all. The scenarios are the points'.
pub fn run(
    args: &Args,
    sweep: &Sweep,
    points: &[Point],
    scenarios: &[Scenario],
    runner: &Runner<'_>,
) -> anyhow::Result<()> {
    if is_file(&args.record) {
        let reason = "--record must name a directory when there is more than one run\n";
        clap::Error::raw(ErrorKind::ValueValidation, reason).exit();
    }
    let runs = plan(args, points, scenarios)?;
    std::fs::create_dir_all(&args.record)
        .map_err(|source| ekiden_record::Error::Unwritable { file: args.record.display().to_string(), source })?;
    let mut failed = carry_out(runner, &runs)?;
    let records = read(runner.producer, &runs, &mut failed);
    let shown: Vec<_> = (0..points.len())
        .map(|at| {
            let of_point = || runs.iter().zip(&records).filter(|(run, _)| run.point == at);
            let there: Vec<_> = of_point().filter_map(|(_, record)| record.clone()).collect();
            Shown {
                set: points[at].settings().iter().map(|s| (s.keys.join("+"), s.value.clone())).collect(),
                planned: of_point().count(),
                summary: summarize(&there),
                records: of_point().filter(|(_, record)| record.is_some()).map(|(run, _)| run.record.clone()).collect(),
            }
        })
        .collect();
    match args.json {
        true => out::line(serde_json::to_string_pretty(&shown)?)?,
        false => {
            out::line(table(sweep, points, scenarios, &shown).to_text())?;
            out::line(format_args!("records: {}", args.record.display()))?;
        }
    }
    match failed.first_key_value() {
        None => Ok(()),
        Some((_, &code)) => Err(SweepFailed { failed: failed.len(), runs: runs.len(), code }.into()),
    }
}

/// Every run, repetition by repetition, so that what changes on the machine meanwhile meets all points alike.
fn plan(args: &Args, points: &[Point], scenarios: &[Scenario]) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    let mut names: HashMap<PathBuf, String> = HashMap::new();
    for repetition in 0..args.repeat {
        for (at, (point, scenario)) in points.iter().zip(scenarios).enumerate() {
            let mut scenario = scenario.clone();
            // Seeds are numbers of TOML, which has 63 bits for them.
            scenario.seed = (scenario.seed + u64::from(repetition)) & i64::MAX as u64;
            let parts = [scenario.name.clone(), point.file_stem(), format!("r{repetition}.json")];
            let name = parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join(",");
            let record = args.record.join(name);
            let label = format!("{point} r{repetition}").trim_start().to_owned();
            if let Some(other) = names.insert(record.clone(), label.clone()) {
                bail!("'{other}' and '{label}' would have the same record, {}", record.display());
            }
            runs.push(Run {
                point: at,
                label,
                settings: point.with_seed(scenario.seed),
                expected: expected(&scenario),
                scenario: scenario.to_toml(),
                record,
            });
        }
    }
    Ok(runs)
}

/// Runs what has no record yet. Returns the exit codes of runs that left none, by their place among `runs`.
fn carry_out(runner: &Runner<'_>, runs: &[Run]) -> anyhow::Result<BTreeMap<usize, u8>> {
    let missing: Vec<_> = runs.iter().enumerate().filter(|(_, run)| run.read(runner.producer).is_none()).collect();
    let left = missing.iter().map(|(_, run)| run.expected).sum();
    let progress = Progress::new(runs.len() - missing.len(), runs.len(), left, runner.jobs);
    if missing.len() < runs.len() {
        progress.say(format_args!("{} of {} runs are there already", runs.len() - missing.len(), runs.len()));
    }
    let done = Mutex::new(runs.len() - missing.len());
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
                Done::Finished if run.read(runner.producer).is_some() => None,
                Done::Finished => Some((3, "the scenario file has changed since the sweep began".into())),
            };
            progress.done(&run.label, run.expected);
            if let Some((code, reason)) = failure {
                progress.say(format_args!("ekiden: {}: {reason}", run.label));
                lock(&failed).insert(at, code);
            }
            *lock(&done) += 1;
        }
    };
    let result = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        let joined = |worker: ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|payload| resume_unwind(payload));
        workers.into_iter().try_for_each(joined)
    });
    progress.clear();
    let done = *lock(&done);
    if let Some(signal) = (runner.stopped_by)() {
        return Err(Interrupted { done, runs: runs.len(), signal }.into());
    }
    result.context("cannot start a run")?;
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The records of all runs, without their samples. Those with a failed flow are noted in `failed`.
fn read(producer: &str, runs: &[Run], failed: &mut BTreeMap<usize, u8>) -> Vec<Option<Record>> {
    let one = |(at, run): (usize, &Run)| {
        let record = run.read(producer)?;
        if let Err(error) = verdict(&record)
            && !failed.contains_key(&at)
        {
            eprintln!("ekiden: {}: {error} (in {})", run.label, run.record.display());
            failed.insert(at, exit::number(&error.into()));
        }
        Some(record)
    };
    runs.iter().enumerate().map(one).collect()
}

impl Run {
    /// The record, if it is there and of this scenario. Without samples and events, which would fill the memory.
    fn read(&self, producer: &str) -> Option<Record> {
        let record = Record::read(&self.record).ok()?;
        let is_it = record.manifest.producer == producer && record.manifest.scenario == self.scenario;
        is_it.then(|| Record {
            samples: Vec::new(),
            queues: Vec::new(),
            events: Vec::new(),
            congestion: None,
            ..record
        })
    }
}

/// Whether `place` names a record's file rather than a directory for it.
pub fn is_file(place: &Path) -> bool {
    place.extension().is_some_and(|extension| extension == "json")
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

/// One line per flow, with a head.
fn flows(record: &Record) -> String {
    let ms = |us: Option<u64>| us.map_or("-".into(), |us| format!("{:.1}", us as f64 / 1e3));
    let head = ["flow", "Mbit/s", "seconds", "bytes", "sent again", "RTT min ms", "RTT max ms", "outcome"];
    let mut rows = vec![head.map(String::from)];
    for flow in &record.flows {
        rows.push([
            flow.name.clone(),
            format!("{:.2}", flow.goodput_bit_s as f64 / 1e6),
            format!("{:.2}", flow.duration_us as f64 / 1e6),
            flow.received_bytes.to_string(),
            flow.retransmits.to_string(),
            ms(flow.rtt_min_us),
            ms(flow.rtt_max_us),
            match flow.outcome {
                Outcome::Complete => "complete".into(),
                Outcome::Differs { .. } => "DIFFERS".into(),
                Outcome::Failed { .. } => "failed".into(),
            },
        ]);
    }
    out::aligned(&rows)
}

/// What came out at a point.
#[derive(Serialize)]
struct Shown {
    /// Values by key; keys that were set together are joined by `+`.
    set: BTreeMap<String, String>,
    /// How many runs there should be.
    planned: usize,
    #[serde(flatten)]
    summary: Summary,
    records: Vec<PathBuf>,
}

/// A row per point and flow.
fn table(sweep: &Sweep, points: &[Point], scenarios: &[Scenario], shown: &[Shown]) -> Table {
    let figures = ["flow", "Mbit/s", "least", "most", "sent again", "queue drops", "runs", "invalid"].map(String::from);
    let mut table = Table::new(sweep.keys().into_iter().chain(figures));
    for ((point, scenario), shown) in points.iter().zip(scenarios).zip(shown) {
        for name in scenario.flows.keys() {
            let values = point.settings().iter().map(|setting| setting.value.clone());
            let flow = shown.summary.flows.iter().find(|flow| flow.name == *name);
            table.row(values.chain([name.clone()]).chain(cells(shown, flow)));
        }
    }
    table
}

fn cells(shown: &Shown, flow: Option<&FlowSummary>) -> [String; 7] {
    let number = |value: Option<f64>, scale: f64, decimals: usize| {
        value.map_or("-".into(), |value| format!("{:.decimals$}", value / scale))
    };
    let goodput = flow.and_then(|flow| flow.goodput_bit_s);
    let mbit = |pick: fn(Spread) -> f64| number(goodput.map(pick), 1e6, 2);
    // The median of an even number of runs may lie half way between two.
    let count = |spread: Option<Spread>| {
        let median = spread.map(|spread| spread.median);
        number(median, 1.0, usize::from(median.is_some_and(|median| median.fract() != 0.0)))
    };
    let complete = flow.map_or(0, |flow| flow.complete);
    [
        mbit(|spread| spread.median),
        mbit(|spread| spread.least),
        mbit(|spread| spread.greatest),
        count(flow.and_then(|flow| flow.retransmits)),
        count(shown.summary.queue_drops),
        if complete == shown.planned { complete.to_string() } else { format!("{complete} of {}", shown.planned) },
        invalid(&shown.summary),
    ]
}

/// How many runs are invalid, and why; empty if none is.
fn invalid(summary: &Summary) -> String {
    if summary.invalid == 0 {
        return String::new();
    }
    let mut text = format!("{} of {}:", summary.invalid, summary.runs);
    if summary.overruns > 0 {
        text += &format!(" {} overruns", summary.overruns);
    }
    if let Some(p99_us) = summary.lateness_p99_us.filter(|p99_us| *p99_us > LATENESS_P99_MOST_US) {
        text += &format!(" {:.1} ms late", p99_us / 1e3);
    }
    text
}

/// No worker leaves a value half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
