//! The runs of a sweep, which follow from a scenario file and what of it varies.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use ekiden_record::Record;
use ekiden_scenario::{Point, Scenario, Sweep};

use super::index::Index;
use super::progress::expected;

/// Every run of a sweep, or of a shard of it.
pub struct Plan {
    /// What the runs follow from.
    pub index: Index,
    /// What varies, a column each.
    pub keys: Vec<String>,
    pub points: Vec<Point>,
    /// The points' scenarios.
    pub scenarios: Vec<Scenario>,
    /// Repetition by repetition, so that what changes on the machine meanwhile meets all points alike.
    pub runs: Vec<Run>,
}

/// One run of one point.
pub struct Run {
    /// Which of the points.
    pub point: usize,
    /// What to call it.
    pub label: String,
    /// What is to be set in the file.
    pub settings: Point,
    /// The scenario that the record must be of, as a file.
    pub scenario: String,
    /// Where the record is, or will be.
    pub record: PathBuf,
    pub expected: Duration,
}

impl Plan {
    /// All runs of a sweep whose records are in `directory`. `file` names the scenario in errors.
    pub fn new(index: Index, file: &str, directory: &Path) -> anyhow::Result<Self> {
        let sweep = Sweep::parse(&index.set)?;
        let points = sweep.points();
        let scenarios = points.iter().map(|point| Scenario::parse_with(&index.scenario, file, point));
        let scenarios = scenarios.collect::<Result<Vec<_>, _>>()?;
        let mut runs: Vec<Run> = Vec::new();
        let mut names: HashMap<PathBuf, usize> = HashMap::new();
        for repetition in 0..index.repeat {
            for (at, (point, scenario)) in points.iter().zip(&scenarios).enumerate() {
                let run = Run::new(at, point, scenario.clone(), repetition, directory);
                if let Some(other) = names.insert(run.record.clone(), runs.len()) {
                    let other = &runs[other].label;
                    bail!("'{other}' and '{}' would have the same record, {}", run.label, run.record.display());
                }
                runs.push(run);
            }
        }
        Ok(Self { index, keys: sweep.keys(), points, scenarios, runs })
    }
}

impl Run {
    fn new(at: usize, point: &Point, mut scenario: Scenario, repetition: u32, directory: &Path) -> Self {
        // Seeds are numbers of TOML, which has 63 bits for them.
        scenario.seed = (scenario.seed + u64::from(repetition)) & i64::MAX as u64;
        let parts = [scenario.name.clone(), point.file_stem(), format!("r{repetition}.json")];
        let name = parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join(",");
        Self {
            point: at,
            label: format!("{point} r{repetition}").trim_start().to_owned(),
            settings: point.with_seed(scenario.seed),
            expected: expected(&scenario),
            scenario: scenario.to_toml(),
            record: directory.join(name),
        }
    }

    /// What its record is called in the directory of the sweep.
    pub fn name(&self) -> &OsStr {
        self.record.file_name().unwrap_or_default()
    }

    /// The record, if it is there and of this run. Without what is many values, which would fill the memory.
    pub fn summary(&self, index: &Index) -> Option<Record> {
        let record = Record::read(&self.record).ok()?;
        self.has(index, &record).then(|| Record {
            samples: Vec::new(),
            queues: Vec::new(),
            events: Vec::new(),
            congestion: None,
            ..record
        })
    }

    /// Whether a record is of this run.
    pub fn has(&self, index: &Index, record: &Record) -> bool {
        index.has(record) && record.manifest.scenario == self.scenario
    }
}
