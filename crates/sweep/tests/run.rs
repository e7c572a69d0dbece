//! A sweep whose runs only leave their records: what is done, what is done again, and what is said of the others.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use ekiden_record::{FORMAT, Manifest, Record, SeriesFiles};
use ekiden_sweep::{Error, ErrorKind, Index, Plan, Run, RunFailure, RunOutcome, Runner, SweepObserver, run_missing};

const SCENARIO: &str = "name = \"pair\"\n[node.a]\n[node.b]\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"10ms\"\n\
                        [flow.f]\nfrom = \"a\"\nto = \"b\"\nbytes = \"300KB\"\n";

/// Six runs of three points, with their records in `directory`.
fn plan(directory: &Path) -> Plan {
    let index = Index::new("simulate", &["link.line.delay=1ms,2ms,4ms".to_owned()], 2, None, SCENARIO.into());
    Plan::new(index, "pair.toml", directory).unwrap()
}

/// Leaves a record of `scenario`.
fn leave(run: &Run, scenario: &str) {
    leave_with(run, scenario, Some(SeriesFiles { one_of: 1, samples: None, queues: None }));
}

fn leave_with(run: &Run, scenario: &str, series: Option<SeriesFiles>) {
    let record = Record {
        format: FORMAT,
        manifest: Manifest {
            producer: "simulate".into(),
            version: "0".into(),
            command: Vec::new(),
            kernel: None,
            seed: 0,
            scenario_name: "pair".into(),
            scenario: scenario.into(),
            started_unix_ms: 0,
            resolution_us: None,
        },
        flows: Vec::new(),
        paths: Vec::new(),
        pings: Vec::new(),
        links: Vec::new(),
        tunnels: Vec::new(),
        stolen_percent: None,
        waited_percent: None,
        series,
        events: Vec::new(),
        congestion: None,
        overlay: Vec::new(),
    };
    record.write(&run.record).unwrap();
}

/// What was told, as lines.
#[derive(Default)]
struct Told(Mutex<BTreeSet<String>>);

impl SweepObserver for Told {
    fn ended(&self, run: &Run) {
        self.0.lock().unwrap().insert(run.label.clone());
    }

    fn failed(&self, run: &Run, failure: &RunFailure) {
        self.0.lock().unwrap().insert(format!("{}: {failure}", run.label));
    }
}

impl Told {
    fn lines(self) -> Vec<String> {
        self.0.into_inner().unwrap().into_iter().collect()
    }
}

#[test]
fn what_has_a_record_is_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path());
    assert_eq!(plan.missing().unwrap(), [0, 1, 2, 3, 4, 5]);
    leave(&plan.runs[1], &plan.runs[1].scenario);
    // A record of another scenario is none of this run.
    leave(&plan.runs[2], &plan.runs[1].scenario);
    let missing = plan.missing().unwrap();
    assert_eq!(missing, [0, 2, 3, 4, 5]);
    let told = Told::default();
    let work = |run: &Run| {
        leave(run, &run.scenario);
        Ok(RunOutcome::Finished)
    };
    let failed = run_missing(&plan, &missing, &Runner { jobs: 3, work: &work, stopped_by: &|| None }, &told).unwrap();
    assert!(failed.is_empty());
    assert_eq!(told.lines().len(), 5);
    assert!(plan.missing().unwrap().is_empty());
    assert!(plan.summaries().iter().all(Option::is_some));
}

#[test]
fn a_record_of_a_newer_format_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path());
    leave(&plan.runs[3], &plan.runs[3].scenario);
    let text = std::fs::read_to_string(&plan.runs[3].record).unwrap();
    let format = format!("\"format\": {}", FORMAT);
    assert!(text.contains(&format), "{text}");
    std::fs::write(&plan.runs[3].record, text.replace(&format, "\"format\": 4000")).unwrap();
    let error = plan.missing().unwrap_err().to_string();
    assert!(error.contains("record format 4000"), "{error}");
}

#[test]
fn what_has_a_record_without_its_series_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path());
    plan.runs.iter().for_each(|run| leave(run, &run.scenario));
    leave_with(&plan.runs[4], &plan.runs[4].scenario, None);
    assert_eq!(plan.missing().unwrap(), [4]);
    // What it has shown counts nevertheless.
    assert!(plan.summaries().iter().all(Option::is_some));
}

#[test]
fn what_fails_is_told_and_the_others_are_done() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path());
    let told = Told::default();
    let work = |run: &Run| match run.label.as_str() {
        "link.line.delay=1ms r1" => Ok(RunOutcome::Failed { code: 5, reason: "no line".into() }),
        "link.line.delay=4ms r0" => {
            leave(run, "name = \"other\"\n");
            Ok(RunOutcome::Finished)
        }
        _ => {
            leave(run, &run.scenario);
            Ok(RunOutcome::Finished)
        }
    };
    let runner = Runner { jobs: 2, work: &work, stopped_by: &|| None };
    let failed = run_missing(&plan, &plan.missing().unwrap(), &runner, &told).unwrap();
    let expected = [(2, RunFailure::Changed), (3, RunFailure::Run { code: 5, reason: "no line".into() })];
    assert_eq!(failed, expected.into());
    let lines = told.lines();
    assert_eq!(lines.len(), 8, "{lines:?}");
    assert!(lines.contains(&"link.line.delay=1ms r1: no line".into()), "{lines:?}");
    assert!(
        lines.contains(&"link.line.delay=4ms r0: the scenario file has changed since the sweep began".into()),
        "{lines:?}"
    );
    assert_eq!(plan.missing().unwrap(), [2, 3]);
}

#[test]
fn a_signal_ends_a_sweep_and_an_error_does() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path());
    let work = |run: &Run| match run.point {
        0 => {
            leave(run, &run.scenario);
            Ok(RunOutcome::Finished)
        }
        _ => Ok(RunOutcome::Stopped),
    };
    let runner = Runner { jobs: 1, work: &work, stopped_by: &|| Some(15) };
    let error = run_missing(&plan, &plan.missing().unwrap(), &runner, &Told::default()).unwrap_err();
    assert!(matches!(error, Error::Interrupted { done: 1, runs: 6, signal: 15 }), "{error}");

    let work = |_: &Run| Err(io::ErrorKind::NotFound.into());
    let runner = Runner { jobs: 4, work: &work, stopped_by: &|| None };
    let error = run_missing(&plan, &plan.missing().unwrap(), &runner, &Told::default()).unwrap_err();
    assert!(error.to_string().starts_with("cannot start a run: ") && error.kind() == ErrorKind::Other, "{error}");
}

#[test]
fn runs_that_would_share_a_record_are_refused() {
    // A file's name shows neither the blank nor the tab.
    let set = ["link.line.delay=1 ms,1\tms".to_owned()];
    let index = Index::new("simulate", &set, 1, None, SCENARIO.into());
    let error = Plan::new(index, "pair.toml", Path::new("all")).err().unwrap();
    assert!(matches!(&error, Error::SameRecord { .. }), "{error}");
}
