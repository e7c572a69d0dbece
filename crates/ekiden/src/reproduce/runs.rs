//! Runs what has no record yet.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use ekiden_files::{TargetError, check_directory, make_directories, write};
use ekiden_lab::check_programs;
use ekiden_record::SAMPLES_MOST;
use ekiden_reproduce::{Catalogue, Engine, RunSet, Selected, expected};
use ekiden_scenario::Scenario;
use ekiden_sim::Options;
use ekiden_sweep::{Plan, Run, RunFailure, RunOutcome, Runner, run_missing};

use super::Args;
use super::progress::{OfPlan, Progress};
use crate::children::Children;
use crate::out;
use crate::sweep::{Labs, simulated};
use crate::usage::{command_line, now_unix_ms};

/// The scenario beside its records, for labs and readers.
const SCENARIO: &str = "scenario.toml";

/// Some runs left no record; each was told when it failed.
#[derive(Debug, thiserror::Error)]
#[error("{failed} of {runs} runs failed; the verdicts are of the others")]
pub struct RunsFailed {
    failed: usize,
    runs: usize,
    /// The exit code of the first that failed.
    pub code: u8,
}

/// What was run.
#[derive(Default)]
pub struct Done {
    /// By what.
    pub engines: Vec<Engine>,
    /// What the report has to say of it.
    pub notes: Vec<String>,
    /// If so.
    pub failed: Option<RunsFailed>,
}

/// Runs of one plan that have no record.
struct Task {
    name: String,
    folder: PathBuf,
    scenario: String,
    plan: Plan,
    missing: Vec<usize>,
    /// How many of its labs may run at once.
    at_once: Option<u32>,
}

/// Runs what has no record yet of the experiments, engine by engine.
pub fn missing(
    args: &Args,
    catalogue: &Catalogue,
    selected: &Selected,
    code_of: fn(&anyhow::Error) -> u8,
) -> anyhow::Result<Done> {
    let (asked, is_wanted) = args.engines();
    let mut done = Done::default();
    let mut tasks: Vec<(Engine, Vec<Task>)> = Vec::new();
    for engine in asked {
        let mut found = prepare(args, catalogue, selected, engine)?;
        if found.is_empty() {
            done.notes.push(format!("The descriptions have no runs for the {engine}."));
            continue;
        }
        if engine == Engine::Kernel {
            let notes = found.iter_mut().filter_map(without_program);
            done.notes.extend(notes.inspect(|note| out::note(format_args!("ekiden: {note}"))));
        }
        let is_idle = found.iter().all(|task| task.missing.is_empty());
        if engine == Engine::Kernel
            && !is_idle
            && let Err(reason) = lab_works(&found)
        {
            if is_wanted {
                return Err(reason.context("labs cannot be built here, so nothing runs on the kernel's TCP"));
            }
            let note = format!("Runs on the kernel's TCP are left out: {}.", out::message(&reason));
            out::note(format_args!("ekiden: {note}"));
            done.notes.push(note);
            continue;
        }
        done.engines.push(engine);
        tasks.push((engine, found));
    }
    let times: Vec<Duration> = tasks.iter().map(|(engine, tasks)| left(*engine, tasks)).collect();
    let mut failures: Vec<RunFailure> = Vec::new();
    for (number, (engine, tasks)) in tasks.iter().enumerate() {
        // What comes after an engine's runs are those of the kernel.
        let later = times[number + 1..].iter().sum::<Duration>() / args.jobs(Engine::Kernel);
        let work = Work { args, engine: *engine, later, code_of };
        failures.extend(work.all(tasks)?);
    }
    let runs = tasks.iter().flat_map(|(_, tasks)| tasks).map(|task| task.plan.runs.len()).sum();
    done.failed = failures.first().map(|first| RunsFailed { failed: failures.len(), runs, code: code(first) });
    Ok(done)
}

/// What is to be done, with its folders.
fn prepare(args: &Args, catalogue: &Catalogue, selected: &Selected, engine: Engine) -> anyhow::Result<Vec<Task>> {
    let records = args.records();
    let mut tasks = Vec::new();
    for set in selected.sets.iter().map(|at| &catalogue.sets[*at]) {
        let Some(plan) = set.plan(&records, engine, args.effort())? else { continue };
        let name = format!("{}/{}", set.experiment, set.name);
        check_supported(engine, set, &plan)?;
        let folder = set.place(&records, engine, args.effort());
        check_directory(&folder).with_context(|| folder.display().to_string())?;
        make_directories(&folder).with_context(|| folder.display().to_string())?;
        plan.index.write(&folder)?;
        let missing = plan.missing()?;
        let at_once = set.amount(engine, args.effort()).and_then(|amount| amount.at_once);
        tasks.push(Task { name, folder, scenario: set.scenario.clone(), plan, missing, at_once });
    }
    Ok(tasks)
}

/// Takes out the runs that need a program which is not on this machine, and says so.
fn without_program(task: &mut Task) -> Option<String> {
    let Task { name, plan, missing, .. } = task;
    let runs = missing.len();
    let mut reason = None;
    missing.retain(|at| match check_programs(&plan.scenarios[plan.runs[*at].point]) {
        Ok(()) => true,
        Err(error) => {
            reason.get_or_insert(error);
            false
        }
    });
    let left_out = runs - missing.len();
    reason.map(|reason| format!("{left_out} runs of {name} are left out: {reason}."))
}

fn check_supported(engine: Engine, set: &RunSet, plan: &Plan) -> anyhow::Result<()> {
    let file = || set.file.display().to_string();
    for scenario in &plan.scenarios {
        match engine {
            Engine::Simulator => ekiden_sim::check_supported(scenario).with_context(file)?,
            Engine::Kernel => ekiden_lab::check_supported(scenario).with_context(file)?,
        }
    }
    Ok(())
}

fn left(engine: Engine, tasks: &[Task]) -> Duration {
    let of_task = |task: &Task| {
        task.missing.iter().map(|at| expected(engine, &task.plan, &task.plan.runs[*at])).sum::<Duration>()
    };
    tasks.iter().map(of_task).sum()
}

/// What an engine has to do.
struct Work<'a> {
    args: &'a Args,
    engine: Engine,
    /// What the other engine will take after it.
    later: Duration,
    code_of: fn(&anyhow::Error) -> u8,
}

impl Work<'_> {
    /// Does all runs, plan by plan.
    fn all(&self, tasks: &[Task]) -> anyhow::Result<Vec<RunFailure>> {
        let runs = tasks.iter().map(|task| task.missing.len()).sum();
        if runs == 0 {
            return Ok(Vec::new());
        }
        let program = std::env::current_exe().context("cannot find this program to start it again")?;
        // Before any thread is started: the bar has one.
        let children = match self.engine {
            Engine::Kernel => Some(Children::new().context("cannot wait for signals")?),
            Engine::Simulator => None,
        };
        let labs = children.as_ref().map(|children| Labs { program: &program, children, samples: SAMPLES_MOST });
        let progress =
            Progress::new(self.engine, runs, left(self.engine, tasks), self.args.jobs(self.engine), self.later);
        let result = tasks.iter().try_fold(Vec::new(), |mut failures, task| {
            failures.extend(self.of_task(task, labs.as_ref(), &progress)?);
            Ok(failures)
        });
        progress.clear();
        // None is left to end.
        children.iter().for_each(Children::over);
        result
    }

    fn of_task(&self, task: &Task, labs: Option<&Labs<'_>>, progress: &Progress) -> anyhow::Result<Vec<RunFailure>> {
        let Task { name, plan, missing, .. } = task;
        let runs = plan.runs.len();
        progress.begin(name, runs, runs - missing.len());
        let file = save_scenario(task)?;
        let failed =
            |error: anyhow::Error| RunOutcome::Failed { code: (self.code_of)(&error), reason: out::message(&error) };
        let work = |run: &Run| match labs {
            Some(labs) => labs.run(run, &file),
            None => Ok(simulate(plan, run, &file).unwrap_or_else(failed)),
        };
        let stopped_by = || labs.and_then(Labs::signal);
        let jobs = match self.engine {
            Engine::Kernel => self.args.lab_jobs.or(task.at_once),
            Engine::Simulator => None,
        };
        let jobs = jobs.unwrap_or_else(|| self.args.jobs(self.engine));
        let runner = Runner { jobs, work: &work, stopped_by: &stopped_by };
        let failures = run_missing(plan, missing, &runner, &OfPlan { all: progress, name, plan })?;
        Ok(failures.into_values().collect())
    }
}

fn simulate(plan: &Plan, run: &Run, file: &Path) -> anyhow::Result<RunOutcome> {
    let scenario = Scenario::parse(&run.scenario, &file.display().to_string())?;
    let options = Options {
        resolution: plan.index.resolution.unwrap_or(Options::default().resolution),
        command: command_line(),
        started_unix_ms: now_unix_ms(),
    };
    simulated(&scenario, &options, SAMPLES_MOST, &run.record)
}

/// The scenario's file, which labs read.
fn save_scenario(task: &Task) -> anyhow::Result<PathBuf> {
    let file = task.folder.join(SCENARIO);
    let written = write(&file, task.scenario.as_bytes()).map_err(TargetError::from);
    written.with_context(|| file.display().to_string())?;
    Ok(file)
}

/// Whether a lab can be built here: whether that of the first run is, whose scenario has the kernel's values.
fn lab_works(tasks: &[Task]) -> anyhow::Result<()> {
    let Some(task) = tasks.first() else { return Ok(()) };
    let node = task.plan.scenarios.first().and_then(|scenario| scenario.nodes.keys().next());
    let Some((node, run)) = node.zip(task.plan.runs.first()) else { return Ok(()) };
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let folder = tempfile::tempdir().context("cannot make a folder for a lab's scenario")?;
    let file = folder.path().join(SCENARIO);
    std::fs::write(&file, &run.scenario).with_context(|| file.display().to_string())?;
    let mut command = Command::new(program);
    let output =
        command.args(["lab", "shell"]).arg(&file).args([node, "--", "true"]).output().context("cannot start a lab")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or("it said nothing").trim_start_matches("ekiden: ");
    Err(LabFails(last.to_owned()).into())
}

/// Why no lab can be built here.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LabFails(String);

/// The exit code of a run that failed.
fn code(failure: &RunFailure) -> u8 {
    match failure {
        RunFailure::Run { code, .. } => *code,
        RunFailure::Changed => 3,
    }
}
