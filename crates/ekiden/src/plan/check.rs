//! A test of a plan: the same path and remedies, simulated and in the lab. Each run is a process of its own, as in a sweep.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path as File;
use std::process::{Command, exit};

use anyhow::Context;
use ekiden_diagnosis::spread::Spread;
use ekiden_plan::{Path, Plan, Remedy, network};
use ekiden_record::{Outcome, Record};
use serde::Serialize;

use crate::children::Children;
use crate::out;

/// Where a plan is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// In virtual time.
    Simulator,
    /// On the kernel's TCP.
    Lab,
}

/// The expected and the measured goodput of the direct path or a remedy.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// `direct`, or the remedy's name.
    pub name: String,
    /// Whether it is the remedy to take.
    pub chosen: bool,
    /// What the plan expects, in bit/s.
    pub expected_bit_s: f64,
    /// In the simulator: the median of the runs.
    pub simulated_bit_s: Option<f64>,
    /// The error of the expectation, in percent of what was simulated.
    pub simulated_error_percent: Option<f64>,
    /// On the kernel's TCP: the median of the runs that the machine did not disturb, or of all if it disturbed all.
    pub lab_bit_s: Option<f64>,
    /// As [`Checked::simulated_error_percent`].
    pub lab_error_percent: Option<f64>,
    /// Whether the machine disturbed all of the lab's runs; then their figure does not follow from the path alone.
    pub lab_is_disturbed: bool,
    /// Why there is no figure, with the exit code of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<(u8, String)>,
}

/// Runs of `--verify` failed; the first of them.
#[derive(Debug, thiserror::Error)]
#[error("{run}: {reason}")]
pub struct VerifyFailed {
    run: String,
    reason: String,
    /// The run's exit code.
    pub code: u8,
}

impl Checked {
    /// The error of the expectation, in percent of the measured rate.
    pub fn error_percent(&self, measured_bit_s: Option<f64>) -> Option<f64> {
        measured_bit_s.filter(|rate| *rate > 0.0).map(|rate| 100.0 * (self.expected_bit_s / rate - 1.0))
    }
}

/// Simulates and runs the direct path and the chosen remedy, or all of them, `runs` times each, each time with another seed.
pub fn run(path: &Path, plan: &Plan, all: bool, places: &[Engine], runs: u64) -> anyhow::Result<Vec<Checked>> {
    let children = Children::new().context("cannot wait for signals")?;
    let mut folder = tempfile::Builder::new();
    let folder = folder.prefix("ekiden-plan-").permissions(fs::Permissions::from_mode(0o700));
    let folder = folder.tempdir().context("cannot make a folder for the runs to verify")?;
    let mut ways: Vec<(String, Option<&Remedy>, bool)> = vec![("direct".into(), None, false)];
    for (number, remedy) in plan.remedies.iter().enumerate() {
        let chosen = plan.chosen == Some(number);
        if all || chosen {
            ways.push((remedy.name.clone(), Some(remedy), chosen));
        }
    }
    let count = ways.len();
    let mut checked = Vec::new();
    for (number, (name, remedy, chosen)) in ways.into_iter().enumerate() {
        let said = format!("{} of {count}, {name}", number + 1);
        let expected = remedy.map_or(&plan.direct, |remedy| &remedy.forecast).goodput_bit_s.value;
        let mut result = Checked {
            name,
            chosen,
            expected_bit_s: expected,
            simulated_bit_s: None,
            simulated_error_percent: None,
            lab_bit_s: None,
            lab_error_percent: None,
            lab_is_disturbed: false,
            failed: None,
        };
        for &place in places {
            let mut found = Vec::new();
            for seed in 1..=runs {
                let shown = match place {
                    Engine::Simulator => "simulator".to_owned(),
                    Engine::Lab => format!("lab, {:.0} s", plan.seconds),
                };
                let run = if runs > 1 { format!(", run {seed} of {runs}") } else { String::new() };
                out::note(format_args!("{said}: {shown}{run}"));
                let scenario = folder.path().join(format!("way-{number}-{seed}.toml"));
                fs::write(&scenario, network::scenario(path, plan, remedy, &format!("way-{number}"), seed))
                    .context("the scenario to verify")?;
                match one(&children, &scenario, place)? {
                    Ok(run) => found.push(run),
                    Err(failed) => result.failed = result.failed.or(Some(failed)),
                }
            }
            match place {
                Engine::Simulator => result.simulated_bit_s = median(&found),
                Engine::Lab => {
                    let calm: Vec<_> = found.iter().copied().filter(|(_, is_disturbed)| !is_disturbed).collect();
                    result.lab_is_disturbed = calm.is_empty() && !found.is_empty();
                    result.lab_bit_s = median(&calm).or(median(&found));
                }
            }
        }
        result.simulated_error_percent = result.error_percent(result.simulated_bit_s);
        result.lab_error_percent = result.error_percent(result.lab_bit_s);
        checked.push(result);
    }
    children.over();
    Ok(checked)
}

/// The median of the runs' goodputs.
fn median(runs: &[(f64, bool)]) -> Option<f64> {
    Spread::of(runs.iter().map(|(rate, _)| *rate as u64).collect()).map(|spread| spread.median as f64)
}

/// The first failure among the runs, whose exit code is that of the command.
pub fn failure(checked: &[Checked]) -> anyhow::Result<()> {
    let failed = checked.iter().find_map(|run| run.failed.as_ref().map(|failed| (run, failed)));
    match failed {
        Some((run, (code, reason))) => {
            Err(VerifyFailed { run: run.name.clone(), reason: reason.clone(), code: *code }.into())
        }
        None => Ok(()),
    }
}

/// The goodput of a run, and whether the machine disturbed it; or the exit code and what the run said.
fn one(children: &Children, scenario: &File, place: Engine) -> anyhow::Result<Result<(f64, bool), (u8, String)>> {
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let record = scenario.with_extension(if place == Engine::Lab { "lab.json" } else { "simulated.json" });
    let mut command = Command::new(program);
    match place {
        Engine::Lab => command.args(["lab", "run"]).arg(format!("--ends-with={}", std::process::id())),
        Engine::Simulator => command.arg("simulate"),
    };
    command.arg("--record").arg(&record).arg("--").arg(scenario);
    let Some(ended) = children.run(&mut command)? else {
        children.over();
        let _ = scenario.parent().map(fs::remove_dir_all);
        exit(children.stopped_by().map_or(1, |signal| 128 + signal as i32));
    };
    if ended.code != 0 && !record.exists() {
        return Ok(Err((ended.code, ended.said)));
    }
    let record = Record::read(&record)?;
    let goodput = record.flows.iter().map(|flow| flow.goodput_bit_s as f64).sum();
    match record.flows.iter().all(|flow| matches!(flow.outcome, Outcome::Complete)) {
        true => Ok(Ok((goodput, record.disturbance().is_some()))),
        false => Ok(Err((ended.code, ended.said))),
    }
}
