//! The runs of a sweep: which there are, in which order, and what their records are called.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ekiden_record::{Error as RecordError, Record};
use ekiden_scenario::{Amount, Point, Scenario, Sweep};

use crate::error::Error;
use crate::index::Index;

/// Building the network, probing the idle paths, and taking it down.
const BESIDES_FLOWS: Duration = Duration::from_secs(1);

/// Every run of a sweep, or of a shard of it.
pub struct Plan {
    /// The description that the runs follow from.
    pub index: Index,
    /// The keys that vary, a column of the table each.
    pub keys: Vec<String>,
    /// The values at each point.
    pub points: Vec<Point>,
    /// The points' scenarios.
    pub scenarios: Vec<Scenario>,
    /// Repetition by repetition, so that a change on the machine meanwhile affects all points alike.
    pub runs: Vec<Run>,
}

/// One run of one point.
pub struct Run {
    /// The index of its point.
    pub point: usize,
    /// Its name for people.
    pub label: String,
    /// The values to set in the file.
    pub settings: Point,
    /// The scenario that the record must be of, as a file.
    pub scenario: String,
    /// Where the record is, or will be.
    pub record: PathBuf,
    /// Its expected duration.
    pub expected: Duration,
}

impl Plan {
    /// All runs of a sweep whose records are in `directory`. `file` names the scenario in errors.
    ///
    /// # Errors
    /// If the scenario or what varies is wrong, or two runs would have the same record.
    pub fn new(index: Index, file: &str, directory: &Path) -> Result<Self, Error> {
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
                    let first = runs[other].label.clone();
                    return Err(Error::SameRecord { first, other: run.label, record: run.record });
                }
                runs.push(run);
            }
        }
        Ok(Self { index, keys: sweep.keys(), points, scenarios, runs })
    }

    /// The sweep that the records in `directory` are of, as if they were in `place`.
    ///
    /// # Errors
    /// As [`Index::read`] and [`Plan::new`].
    pub fn read(directory: &Path, place: &Path) -> Result<Self, Error> {
        let index = Index::read(directory)?;
        Self::new(index, &format!("{}, the scenario in it", Index::place(directory).display()), place)
    }

    /// The numbers of the runs that have no record yet, or one whose series could not be written.
    ///
    /// # Errors
    /// If a record is of a newer format: it is not to be replaced.
    pub fn missing(&self) -> Result<Vec<usize>, Error> {
        let mut missing = Vec::new();
        for (at, run) in self.runs.iter().enumerate() {
            match Record::read(&run.record) {
                Err(error @ RecordError::TooNew { .. }) => return Err(error.into()),
                Ok(record) if run.has(&self.index, &record) && record.series.is_some() => {}
                _ => missing.push(at),
            }
        }
        Ok(missing)
    }

    /// The records of all runs, as [`Run::summary`] gives them.
    pub fn summaries(&self) -> Vec<Option<Record>> {
        self.runs.iter().map(|run| run.summary(&self.index)).collect()
    }
}

impl Run {
    fn new(at: usize, point: &Point, mut scenario: Scenario, repetition: u32, directory: &Path) -> Self {
        // Seeds are TOML integers, which have 63 bits.
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

    /// The record, if it exists and is of this run; without its long lists, which would fill the memory.
    pub fn summary(&self, index: &Index) -> Option<Record> {
        let record = Record::read(&self.record).ok()?;
        self.has(index, &record).then(|| Record { events: Vec::new(), congestion: None, ..record })
    }

    /// Whether a record is of this run.
    pub fn has(&self, index: &Index, record: &Record) -> bool {
        index.has(record) && record.manifest.scenario == self.scenario
    }
}

/// The expected duration of a run of this scenario, if its flows fill the slowest link.
pub fn expected(scenario: &Scenario) -> Duration {
    let slowest = scenario
        .links
        .values()
        .flat_map(|link| [&link.forth, &link.back])
        .map(|direction| direction.carried().0)
        .min()
        .unwrap_or(1)
        .max(1);
    let ends = scenario.flows.values().map(|flow| {
        let lasts = match flow.amount {
            Amount::Duration(time) => Duration::from_nanos(time.0),
            Amount::Bytes(bytes) => {
                let bits = bytes.0 as f64 * 8.0 * f64::from(flow.parallel);
                // A year is a safe upper limit: sums of it do not overflow.
                Duration::from_secs_f64((bits / slowest as f64).min(3e7))
            }
        };
        Duration::from_nanos(flow.start.0) + lasts
    });
    ends.max().unwrap_or_default() + BESIDES_FLOWS
}

/// Whether `place` names a record's file, or a stream such as `/dev/null`, rather than a directory for it.
pub fn is_file(place: &Path) -> bool {
    place.extension().is_some_and(|extension| extension == "json") || ekiden_files::is_stream(place)
}
