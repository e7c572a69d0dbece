//! `ekiden lab run` of many runs: every point of a sweep several times, each in a process of its own, with what is
//! already there left out, and one table at the end.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::error::ErrorKind;
use ekiden_lab::verdict;
use ekiden_record::Record;
use ekiden_report::{FlowSummary, LATENESS_P99_MOST_US, Spread, Summary, Table, summarize};
use ekiden_scenario::{Point, Scenario, Sweep};
use nix::sys::signal::Signal;
use serde::Serialize;

use super::children::{Children, Ended};
use super::progress::{Progress, expected};
use super::run::{Args, ENDS_WITH, is_file};
use crate::{exit, out};

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
struct Run {
    /// Which of the points.
    point: usize,
    /// What to call it.
    label: String,
    /// What the child is told to set.
    settings: Point,
    /// The scenario that the record must be of.
    scenario: String,
    /// Where the record is, or will be.
    record: PathBuf,
    expected: Duration,
}

/// Runs what has no record yet, and shows the records of all.
pub fn run(args: &Args, sweep: &Sweep, points: &[Point]) -> anyhow::Result<()> {
    if is_file(&args.record) {
        let reason = "--record must name a directory when there is more than one run\n";
        clap::Error::raw(ErrorKind::ValueValidation, reason).exit();
    }
    let scenarios: Vec<Scenario> =
        points.iter().map(|point| Scenario::load_with(&args.file, point)).collect::<Result<_, _>>()?;
    let runs = plan(args, points, &scenarios)?;
    std::fs::create_dir_all(&args.record)
        .map_err(|source| ekiden_record::Error::Unwritable { file: args.record.display().to_string(), source })?;
    let children = Children::new().context("cannot wait for signals")?;
    let mut failed = carry_out(args, &children, &runs)?;
    let records = read(&runs, &mut failed);
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
            out::line(table(sweep, points, &scenarios, &shown).to_text())?;
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
fn carry_out(args: &Args, children: &Children, runs: &[Run]) -> anyhow::Result<BTreeMap<usize, u8>> {
    let missing: Vec<_> = runs.iter().enumerate().filter(|(_, run)| run.read().is_none()).collect();
    let left = missing.iter().map(|(_, run)| run.expected).sum();
    let progress = Progress::new(runs.len() - missing.len(), runs.len(), left, args.jobs);
    if missing.len() < runs.len() {
        progress.say(format_args!("{} of {} runs are there already", runs.len() - missing.len(), runs.len()));
    }
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let done = Mutex::new(runs.len() - missing.len());
    let failed = Mutex::new(BTreeMap::new());
    let jobs = missing.len().min(args.jobs as usize);
    let waiting = Mutex::new(missing.into_iter());
    let worker = || -> std::io::Result<()> {
        loop {
            let next = lock(&waiting).next();
            let Some((at, run)) = next else { return Ok(()) };
            let Some(ended) = children.run(&mut run.command(&program, args))? else {
                // Whatever the run was about to write; a whole record has another name.
                let _ = std::fs::remove_file(run.record.with_extension("partial"));
                return Ok(());
            };
            progress.done(&run.label, run.expected);
            if let Some((code, reason)) = run.failure(&ended) {
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
    children.over();
    result.context("cannot start ekiden again for a run")?;
    let done = *lock(&done);
    match children.stopped_by() {
        Some(signal) => Err(Interrupted { done, runs: runs.len(), signal }.into()),
        None => Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// The records of all runs, without their samples. Those with a failed flow are noted in `failed`.
fn read(runs: &[Run], failed: &mut BTreeMap<usize, u8>) -> Vec<Option<Record>> {
    let one = |(at, run): (usize, &Run)| {
        let record = run.read()?;
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
    fn read(&self) -> Option<Record> {
        let record = Record::read(&self.record).ok()?;
        let is_it = record.manifest.producer == "lab" && record.manifest.scenario == self.scenario;
        is_it.then(|| Record { samples: Vec::new(), events: Vec::new(), congestion: None, ..record })
    }

    fn command(&self, program: &Path, args: &Args) -> Command {
        let mut command = Command::new(program);
        command.args(["lab", "run"]).arg(format!("{ENDS_WITH}{}", std::process::id()));
        command.args(self.settings.settings().iter().map(|setting| format!("--set={setting}")));
        let mut record = OsString::from("--record=");
        record.push(&self.record);
        command.arg(record).arg("--").arg(&args.file);
        command
    }

    /// Exit code and reason, if the child failed or its record is not of this scenario.
    fn failure(&self, ended: &Ended) -> Option<(u8, String)> {
        match ended.code {
            0 if self.read().is_some() => None,
            0 => Some((3, "the scenario file has changed since the sweep began".into())),
            code => Some((code, ended.said.clone())),
        }
    }
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
