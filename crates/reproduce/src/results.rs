//! What records say: the values of each quantity at each point, and how the runs came about.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ekiden_record::{Outcome, Record};
use ekiden_scenario::Scenario;
use ekiden_sweep::{Plan, Run};

use crate::catalogue::Catalogue;
use crate::description::{Claim, PlotKind, PointId};
use crate::engine::{Effort, Engine};
use crate::quantity::Quantity;

/// All that the records of an engine say.
#[derive(Debug, Clone, Default)]
pub struct Results {
    values: BTreeMap<(PointId, Quantity), Values>,
    firsts: BTreeMap<PointId, PathBuf>,
    origins: BTreeMap<usize, Origin>,
    /// Records that could not be used: a line each.
    pub notes: Vec<String>,
}

/// The values of a quantity at a point.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values {
    /// Of the runs that count, in their order.
    pub values: Vec<f64>,
    /// How many runs there should be.
    pub planned: usize,
    /// How many were left out because the machine disturbed them and others were calm.
    pub disturbed: usize,
    /// No run was calm.
    pub none_calm: bool,
}

impl Values {
    /// Not a number without values.
    pub fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }
}

/// How the records of some runs came about.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// Runs that there should be.
    pub planned: usize,
    /// Runs that have a record.
    pub there: usize,
    /// Of these, those in which a flow failed.
    pub failed: usize,
    /// Those that the machine disturbed.
    pub disturbed: usize,
    /// Versions of ekiden.
    pub versions: BTreeSet<String>,
    /// Releases of the kernel.
    pub kernels: BTreeSet<String>,
    /// The least and the greatest seed.
    pub seeds: Option<(u64, u64)>,
    /// The first and the last start, in milliseconds since 1970.
    pub started: Option<(u64, u64)>,
    /// The longest flow of any run, in seconds.
    pub longest: f64,
}

/// The runs of a set.
struct Planned {
    set: usize,
    /// How many points of the plan are repetitions of one of the set's.
    variants: usize,
    plan: Plan,
}

impl Planned {
    /// The point that a run is of.
    fn point(&self, run: &Run) -> PointId {
        PointId { set: self.set, point: run.point / self.variants.max(1) }
    }
}

/// Of one run what counts.
struct OfRun {
    at: PointId,
    file: PathBuf,
    values: Vec<Option<f64>>,
    is_disturbed: bool,
    has_failed: bool,
    manifest: ekiden_record::Manifest,
    longest: f64,
}

/// The quantities that are wanted at each point.
type Wanted = BTreeMap<PointId, BTreeSet<Quantity>>;

impl Results {
    /// Reads the records of these runs, which are below `records`.
    ///
    /// # Errors
    /// If the runs cannot be planned.
    pub fn read(
        catalogue: &Catalogue,
        sets: &[usize],
        engine: Engine,
        effort: Effort,
        records: &Path,
    ) -> Result<Self, ekiden_sweep::Error> {
        let wanted = wanted(catalogue);
        let mut plans: Vec<Planned> = Vec::new();
        for &set in sets {
            let variants = catalogue.sets[set].amount(engine, effort).map_or(1, |amount| amount.variants);
            let plan = catalogue.sets[set].plan(records, engine, effort)?;
            plans.extend(plan.map(|plan| Planned { set, variants, plan }));
        }
        let mut results = Self::default();
        for planned in &plans {
            let runs = &planned.plan.runs;
            results.origins.insert(planned.set, Origin { planned: runs.len(), ..Origin::default() });
            for run in runs {
                let at = planned.point(run);
                for quantity in wanted.get(&at).into_iter().flatten() {
                    results.values.entry((at, quantity.clone())).or_default().planned += 1;
                }
            }
        }
        let mut by_point: BTreeMap<PointId, Vec<OfRun>> = BTreeMap::new();
        for run in read_all(&plans, &wanted) {
            match run {
                Ok(Some(run)) => {
                    results.origins.entry(run.at.set).or_default().note(&run);
                    by_point.entry(run.at).or_default().push(run);
                }
                Ok(None) => {}
                Err(reason) => results.notes.push(reason),
            }
        }
        for (at, runs) in by_point {
            results.take(at, &runs, wanted.get(&at).unwrap_or(&BTreeSet::new()));
        }
        Ok(results)
    }

    /// Results with these values, as if runs had given them.
    pub fn made_up(values: impl IntoIterator<Item = ((PointId, Quantity), Vec<f64>)>) -> Self {
        let values = values.into_iter().map(|(at, values)| {
            let planned = values.len();
            (at, Values { values, planned, ..Values::default() })
        });
        Self { values: values.collect(), ..Self::default() }
    }

    /// The values of a quantity at a point.
    pub fn values(&self, at: PointId, of: &Quantity) -> Option<&Values> {
        self.values.get(&(at, of.clone())).filter(|values| !values.values.is_empty())
    }

    /// The record of the first run of a point that counts.
    pub fn first(&self, at: PointId) -> Option<&Path> {
        self.firsts.get(&at).map(PathBuf::as_path)
    }

    /// How some runs came about; `None` if the engine does not do them.
    pub fn origin(&self, set: usize) -> Option<&Origin> {
        self.origins.get(&set)
    }

    fn take(&mut self, at: PointId, runs: &[OfRun], wanted: &BTreeSet<Quantity>) {
        let whole: Vec<&OfRun> = runs.iter().filter(|run| !run.has_failed).collect();
        let calm: Vec<&OfRun> = whole.iter().copied().filter(|run| !run.is_disturbed).collect();
        let none_calm = calm.is_empty();
        let disturbed = if none_calm { 0 } else { whole.len() - calm.len() };
        let counted = if none_calm { whole } else { calm };
        if let Some(run) = counted.first() {
            self.firsts.insert(at, run.file.clone());
        }
        for (number, quantity) in wanted.iter().enumerate() {
            let values = self.values.entry((at, quantity.clone())).or_default();
            values.values = counted.iter().filter_map(|run| run.values[number]).collect();
            (values.disturbed, values.none_calm) = (disturbed, none_calm);
        }
    }
}

impl Origin {
    fn note(&mut self, run: &OfRun) {
        self.there += 1;
        self.failed += usize::from(run.has_failed);
        self.disturbed += usize::from(run.is_disturbed);
        self.versions.insert(run.manifest.version.clone());
        self.kernels.extend(run.manifest.kernel.clone());
        let wider = |range: Option<(u64, u64)>, value: u64| {
            Some(range.map_or((value, value), |(least, most)| (least.min(value), most.max(value))))
        };
        self.seeds = wider(self.seeds, run.manifest.seed);
        self.started = wider(self.started, run.manifest.started_unix_ms);
        self.longest = self.longest.max(run.longest);
    }
}

fn wanted(catalogue: &Catalogue) -> Wanted {
    let mut wanted = Wanted::new();
    for experiment in &catalogue.experiments {
        for term in experiment.claims.iter().flat_map(Claim::terms) {
            wanted.entry(term.at).or_default().insert(term.of.clone());
        }
        for plot in &experiment.plots {
            if let PlotKind::Over { of, series, .. } = &plot.kind {
                for at in series.iter().flat_map(|(_, points)| points).flatten() {
                    wanted.entry(*at).or_default().insert(of.clone());
                }
            }
        }
    }
    wanted
}

/// What all runs have left, in their order, read by as many threads as there are processors.
fn read_all(plans: &[Planned], wanted: &Wanted) -> Vec<Result<Option<OfRun>, String>> {
    let tasks: Vec<(&Planned, &Run)> =
        plans.iter().flat_map(|planned| planned.plan.runs.iter().map(move |run| (planned, run))).collect();
    let next = AtomicUsize::new(0);
    let read = Mutex::new(Vec::new());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((planned, run)) = tasks.get(number) else { return };
            let found = of_run(planned, run, wanted);
            read.lock().unwrap_or_else(PoisonError::into_inner).push((number, found));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut read = read.into_inner().unwrap_or_else(PoisonError::into_inner);
    read.sort_by_key(|(number, _)| *number);
    read.into_iter().map(|(_, found)| found).collect()
}

/// `None` without a record of this run.
fn of_run(planned: &Planned, run: &Run, wanted: &Wanted) -> Result<Option<OfRun>, String> {
    if !run.record.exists() {
        return Ok(None);
    }
    let left_out = |error: &dyn std::fmt::Display| format!("{error}; it is left out");
    let record = Record::read(&run.record).map_err(|error| left_out(&error))?;
    let plan = &planned.plan;
    if !run.has(&plan.index, &record) {
        return Ok(None);
    }
    let at = planned.point(run);
    let quantities: Vec<&Quantity> = wanted.get(&at).into_iter().flatten().collect();
    let scenario: &Scenario = &plan.scenarios[run.point];
    let has_failed = record.flows.iter().any(|flow| flow.outcome != Outcome::Complete);
    let values = Quantity::of_run(&quantities, &record, scenario, &run.record).map_err(|error| left_out(&error))?;
    let longest = record.flows.iter().map(|flow| flow.duration_us as f64 / 1e6).fold(0.0, f64::max);
    let is_disturbed = record.disturbance().is_some();
    Ok(Some(OfRun {
        at,
        file: run.record.clone(),
        values,
        is_disturbed,
        has_failed,
        manifest: record.manifest,
        longest,
    }))
}

/// Three digits, for people.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v.is_nan() => "none".into(),
        v if v.is_infinite() => (if value > 0.0 { "∞" } else { "-∞" }).into(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
