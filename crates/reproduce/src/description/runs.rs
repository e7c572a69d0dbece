//! Runs of one scenario: which values vary, and how often each point is run in which engine.

use std::path::{Path, PathBuf};

use ekiden_config::{ConfigError, Source};
use ekiden_scenario::{Scenario, Sweep};
use ekiden_sweep::{Index, Plan};
use ekiden_units::Time;
use indexmap::IndexMap;

use super::raw::{RawAmount, RawExperiment, RawRuns, Text};
use super::selector::Point;
use crate::engine::{Effort, Engine};
use crate::files::{Files, plain};

/// How often the simulator notes the state of senders and queues, unless said otherwise.
const RESOLUTION: Time = Time::ms(100);
const REPEATS: std::ops::RangeInclusive<u32> = 1..=1000;
const AT_ONCE: std::ops::RangeInclusive<u32> = 1..=100;
/// What a quick reproduction repeats at most, where its description does not say it.
const QUICK_REPEAT: u32 = 3;

/// Runs of one scenario, over all values of what varies.
#[derive(Debug, Clone)]
pub struct RunSet {
    /// The experiment that it stands in.
    pub experiment: String,
    /// Its name there.
    pub name: String,
    /// The scenario's file, as errors name it.
    pub file: PathBuf,
    /// The scenario's text.
    pub scenario: String,
    /// The points, in the order of a sweep.
    pub(crate) points: Vec<Point>,
    /// The short names by which points are selected.
    pub(crate) aliases: Vec<String>,
    /// Its flows, links and so on.
    pub(crate) base: Scenario,
    resolution: Time,
    /// Full and quick, of the simulator and the kernel.
    amounts: [[Option<Amount>; 2]; 2],
}

/// How an engine does the runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amount {
    /// Runs of each point, with a seed each.
    pub repeat: u32,
    /// What is set and what varies, as `--set` takes it.
    pub set: Vec<String>,
    /// How many variants of a point count as its repetitions, beside those by seeds.
    pub variants: usize,
    /// How many labs leave a machine of two processors calm at once, of runs so slow that it is more than one.
    pub at_once: Option<u32>,
}

impl RunSet {
    /// How an engine does them; `None` if it does not.
    pub fn amount(&self, engine: Engine, effort: Effort) -> Option<&Amount> {
        self.amounts[engine as usize][effort as usize].as_ref()
    }

    /// Where their records are.
    pub fn place(&self, records: &Path, engine: Engine, effort: Effort) -> PathBuf {
        records.join(engine.folder(effort)).join(&self.experiment).join(&self.name)
    }

    /// The runs of an engine, with records below `records`; `None` if it does none.
    ///
    /// # Errors
    /// If a value cannot be set.
    pub fn plan(&self, records: &Path, engine: Engine, effort: Effort) -> Result<Option<Plan>, ekiden_sweep::Error> {
        let Some(amount) = self.amount(engine, effort) else { return Ok(None) };
        let resolution = (engine == Engine::Simulator).then_some(self.resolution);
        let index = Index::new(engine.producer(), &amount.set, amount.repeat, resolution, self.scenario.clone());
        Plan::new(index, &self.file.display().to_string(), &self.place(records, engine, effort)).map(Some)
    }

    /// The interval between the simulator's samples.
    pub fn resolution(&self) -> Time {
        self.resolution
    }
}

/// The runs of a description.
///
/// # Errors
/// With file, line and key.
pub(crate) fn read(
    raw: &RawExperiment,
    source: Source<'_>,
    files: &Files,
    experiment: &str,
) -> Result<Vec<RunSet>, ConfigError> {
    let mut all: Vec<RunSet> = Vec::new();
    for runs in &raw.runs {
        let name = runs.name.get_ref();
        let error = |reason: String| Err(source.error(Some(runs.name.span()), reason));
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            return error(format!("runs.name = \"{name}\" may have letters, digits, '-' and '_'"));
        }
        if all.iter().any(|other| other.name == *name) {
            return error(format!("runs.name = \"{name}\" is the name of other runs, too; give each its own"));
        }
        all.push(Reader { runs, keys: &raw.keys, source }.read(files, experiment)?);
    }
    Ok(all)
}

/// A short name or key, the keys that it stands for, and the values.
type Axis = (String, String, Vec<String>);

struct Reader<'a> {
    runs: &'a RawRuns,
    keys: &'a IndexMap<Text, Text>,
    source: Source<'a>,
}

impl Reader<'_> {
    fn read(&self, files: &Files, experiment: &str) -> Result<RunSet, ConfigError> {
        let runs = self.runs;
        let path = plain(&self.source.beside(&runs.scenario));
        let at_scenario = |reason: String| self.source.error(Some(runs.scenario.span()), reason);
        let scenario = files.text(&path).map_err(|error| at_scenario(format!("runs.scenario: {error}")))?;
        let base = Scenario::parse(&scenario, &path.display().to_string())
            .map_err(|error| at_scenario(format!("runs.scenario: {error}")))?;
        let fixed: Vec<Axis> = runs.set.iter().map(|(key, value)| self.axis(key, &[value.get_ref().clone()])).collect();
        let varied: Vec<Axis> = runs
            .vary
            .iter()
            .map(|(key, values)| {
                let values: Vec<String> = values.iter().map(|value| value.get_ref().clone()).collect();
                self.axis(key, &values)
            })
            .collect();
        if let Some((key, _)) = runs.vary.iter().find(|(_, values)| values.is_empty()) {
            return Err(self.source.error(Some(key.span()), format!("runs.vary.{} has no value", key.get_ref())));
        }
        let amounts = [
            self.amounts(runs.simulator.as_ref(), runs.quick.simulator.as_ref(), &fixed, &varied)?,
            self.amounts(runs.kernel.as_ref(), runs.quick.kernel.as_ref(), &fixed, &varied)?,
        ];
        if amounts.iter().all(|of| of[0].is_none()) {
            let reason = "no engine does these runs: give them simulator = { repeat = … } or kernel = { repeat = … }";
            return Err(self.source.error(Some(runs.name.span()), reason.into()));
        }
        let aliases = fixed.iter().chain(&varied).map(|(alias, ..)| alias.clone()).collect();
        let set = RunSet {
            experiment: experiment.into(),
            name: runs.name.get_ref().clone(),
            file: path,
            scenario,
            points: points(&fixed, &varied),
            aliases,
            base,
            resolution: runs.resolution.as_ref().map_or(RESOLUTION, |time| *time.get_ref()),
            amounts,
        };
        Ok(set)
    }

    fn axis(&self, alias: &Text, values: &[String]) -> Axis {
        let keys = self.keys.get(alias.get_ref().as_str()).map_or(alias.get_ref(), |keys| keys.get_ref());
        (alias.get_ref().clone(), keys.clone(), values.into())
    }

    /// Full and quick.
    fn amounts(
        &self,
        full: Option<&RawAmount>,
        quick: Option<&RawAmount>,
        fixed: &[Axis],
        varied: &[Axis],
    ) -> Result<[Option<Amount>; 2], ConfigError> {
        let Some(full) = full else {
            return match quick {
                None => Ok([None, None]),
                Some(_) => {
                    let reason = "runs.quick names an engine that does not do these runs".to_owned();
                    Err(self.source.error(Some(self.runs.name.span()), reason))
                }
            };
        };
        let Some(repeat) = &full.repeat else {
            let reason = "runs.simulator and runs.kernel need repeat = …".to_owned();
            return Err(self.source.error(Some(self.runs.name.span()), reason));
        };
        let often = self.source.in_range("repeat", repeat, &REPEATS)?;
        let rarely = match quick.and_then(|quick| quick.repeat.as_ref()) {
            Some(repeat) => self.source.in_range("repeat", repeat, &REPEATS)?,
            None => often.min(QUICK_REPEAT),
        };
        let whole = self.with(Settings { fixed: fixed.to_vec(), over: Vec::new(), at_once: None }, full, varied)?;
        let part = quick.map_or(Ok(whole.clone()), |quick| self.with(whole.clone(), quick, varied))?;
        Ok([Some(self.amount(often, &whole, varied)?), Some(self.amount(rarely, &part, varied)?)])
    }

    fn amount(&self, repeat: u32, settings: &Settings, varied: &[Axis]) -> Result<Amount, ConfigError> {
        // What varies first, so that a table of the sweep begins with it; of what is repeated over, the last is the fastest.
        let axes = varied.iter().chain(&settings.over).chain(&settings.fixed);
        let set: Vec<String> = axes.map(|(_, keys, values)| format!("{keys}={}", values.join(","))).collect();
        Sweep::parse(&set).map_err(|error| self.source.error(Some(self.runs.name.span()), error.to_string()))?;
        let variants = settings.over.iter().map(|(_, _, values)| values.len()).product();
        Ok(Amount { repeat, set, variants, at_once: settings.at_once })
    }

    /// The settings, with others in place of some, and further ones.
    fn with(&self, mut settings: Settings, more: &RawAmount, varied: &[Axis]) -> Result<Settings, ConfigError> {
        if let Some(at_once) = &more.at_once {
            settings.at_once = Some(self.source.in_range("at_once", at_once, &AT_ONCE)?);
        }
        for (alias, value) in &more.set {
            let axis = self.of_engine(alias, &[value.get_ref().clone()], varied)?;
            settings.forget(&axis.1);
            settings.fixed.push(axis);
        }
        for (alias, values) in &more.over {
            let values: Vec<String> = values.iter().map(|value| value.get_ref().clone()).collect();
            if values.is_empty() {
                return Err(self.source.error(Some(alias.span()), format!("over.{} has no value", alias.get_ref())));
            }
            let axis = self.of_engine(alias, &values, varied)?;
            settings.forget(&axis.1);
            settings.over.push(axis);
        }
        Ok(settings)
    }

    fn of_engine(&self, alias: &Text, values: &[String], varied: &[Axis]) -> Result<Axis, ConfigError> {
        let axis = self.axis(alias, values);
        if varied.iter().any(|(_, keys, _)| *keys == axis.1) {
            let reason = format!("{} varies in these runs, and cannot be set for an engine", alias.get_ref());
            return Err(self.source.error(Some(alias.span()), reason));
        }
        Ok(axis)
    }
}

/// What is set beside what varies.
#[derive(Clone)]
struct Settings {
    fixed: Vec<Axis>,
    /// What a point is repeated over.
    over: Vec<Axis>,
    at_once: Option<u32>,
}

impl Settings {
    fn forget(&mut self, keys: &str) {
        for axes in [&mut self.fixed, &mut self.over] {
            axes.retain(|(_, own, _)| own != keys);
        }
    }
}

/// Every combination, the last axis varying fastest.
fn points(fixed: &[Axis], varied: &[Axis]) -> Vec<Point> {
    let always: Point = fixed.iter().map(|(alias, _, values)| (alias.clone(), values[0].clone())).collect();
    let mut points = vec![Point::new()];
    for (alias, _, values) in varied {
        let with = |point: &Point, value: &String| {
            let mut point = point.clone();
            point.insert(alias.clone(), value.clone());
            point
        };
        points = points.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect();
    }
    points.iter_mut().for_each(|point| point.extend(always.clone()));
    points
}
