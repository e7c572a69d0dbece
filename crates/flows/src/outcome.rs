//! The results of a run.

use std::collections::BTreeMap;

use ekiden_overlay::choice::Why;
use ekiden_overlay::path::{Class, DataDirection};
use ekiden_units::{Time, quantile};
use serde::Serialize;

use crate::sites::Sites;

/// A pair gains if a stream gets at least this multiple of the rate of the direct path.
const GAINS: f64 = 1.1;
/// The span over which the relayed rate of each site is averaged.
pub const RELAYED_SPAN: Time = Time::secs(10);

/// Who chooses the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Nobody: all streams go over their direct paths.
    Direct,
    /// The shortest round trip over at most two nodes in between, of which all is known.
    ShortestRtt,
    /// Nodes that probe all legs, over at most one node in between.
    Ron,
    /// The nodes of this project, over at most two.
    Ekiden,
    /// Who knows what a stream would get on each leg now, over at most two.
    Oracle,
}

/// The results of a run, after its warm-up.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The policy that chose.
    pub policy: Policy,
    /// What a bulk stream would get alone on the legs as they are when it is opened, as a part of what it would get on the
    /// best path.
    pub of_best: Spread,
    /// The same for each pair of a site that opens and a site that is the exit: the median of its streams.
    pub of_best_by_pair: Spread,
    /// The same beside the streams that exist in that second; the best path is found with full knowledge of them too.
    pub of_best_beside: Spread,
    /// The latter for each pair.
    pub of_best_beside_by_pair: Spread,
    /// What bulk streams would get alone as a multiple of what the direct path gives, by pair, as CRONets counts it.
    pub gains: Gains,
    /// The round trip of the other streams' paths, as a multiple of the shortest.
    pub rtt_of_shortest: Spread,
    /// The mean rate of bulk streams that have ended, from the first byte to the last, in bit/s.
    pub got_bit_s: Spread,
    /// Streams that were opened; one that failed and was opened again counts twice.
    pub streams: usize,
    /// Of these, those that failed at a leg that was cut.
    pub failed: usize,
    /// Of these, those that tried a path to learn what it gives.
    pub tried: usize,
    /// Of these, those over relays.
    pub relayed: usize,
    /// Streams that were broken off.
    pub broken: usize,
    /// How often in an hour the path in use of a pair, class and direction has changed, on average.
    pub changes_an_hour: f64,
    /// What a node sends and receives to learn about legs, in bit/s: the mean of all nodes, and the maximum.
    pub control_bit_s: [f64; 2],
    /// Each time that a node took another path, from the start on.
    pub changes: Vec<Change>,
    /// Each leg as it is at the end.
    #[serde(skip)]
    pub legs: Vec<AtEnd>,
    /// Each stream in its order.
    #[serde(skip)]
    pub opened: Vec<Opened>,
    /// The relayed rate of each site, in bit/s: the mean of each [`RELAYED_SPAN`] from the start on.
    #[serde(skip)]
    pub relayed_bit_s: Vec<Vec<f64>>,
}

/// How values are spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// How many there are.
    pub count: usize,
    /// The least.
    pub least: f64,
    /// A hundredth of them are less.
    pub hundredth: f64,
    /// A tenth of them are less.
    pub tenth: f64,
    /// Half of them are less.
    pub median: f64,
    /// A tenth of them are more.
    pub ninth: f64,
    /// The greatest.
    pub most: f64,
    /// Their mean.
    pub mean: f64,
}

/// What pairs gain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gains {
    /// The part of the pairs that gain more than a tenth.
    pub part: f64,
    /// The median of what pairs get, as a multiple of the direct path.
    pub median: f64,
    /// The mean of these multiples.
    pub mean: f64,
}

/// Another path is in use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// When, in seconds.
    pub at_s: f64,
    /// The site that opens the streams.
    pub near: String,
    /// Their exit.
    pub far: String,
    /// What counts.
    pub class: Class,
    /// Which way their bytes go.
    pub direction: DataDirection,
    /// The path before, from the node behind `near` on; `None` if there was none.
    pub from: Option<Vec<String>>,
    /// The path now.
    pub to: Vec<String>,
    /// Why.
    pub why: Why,
}

/// A leg in one direction at the end of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AtEnd {
    /// Who sends.
    pub from: usize,
    /// Who receives.
    pub to: usize,
    /// What one stream would get by itself, in bit/s.
    pub rate_bit_s: f64,
    /// The part of the segments that is lost.
    pub loss: f64,
    /// Whether nothing passed over it at some time of the run.
    pub was_cut: bool,
    /// How many paths in use pass it in the direction of most bytes.
    pub paths: usize,
}

/// A stream that was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened {
    /// When.
    pub at: Time,
    /// The site that opened it.
    pub near: usize,
    /// Its exit.
    pub far: usize,
    /// What counts.
    pub class: Class,
    /// Which way its bytes go.
    pub direction: DataDirection,
    /// The nodes in between, from `near` on.
    pub relays: Vec<usize>,
    /// Why this path.
    pub why: Option<Why>,
    /// Whether a leg of it was cut.
    pub failed: bool,
    /// What it would get alone.
    pub alone: Rates,
    /// What it would get as one more stream beside the existing ones.
    pub beside: Rates,
    /// The sum of its round trips, in seconds.
    pub rtt_s: f64,
    /// The least sum of round trips of any path, in seconds.
    pub shortest_s: f64,
}

/// What a stream would get, in bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// On its path.
    pub own: f64,
    /// On the direct path.
    pub direct: f64,
    /// On the best path over at most two nodes in between.
    pub best: f64,
}

/// A stream that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finished {
    pub opened: Time,
    pub class: Class,
    pub broken: bool,
    pub bytes: f64,
    pub took_s: f64,
}

/// What a run records.
pub(crate) struct Log {
    pub opened: Vec<Opened>,
    pub finished: Vec<Finished>,
    pub changes: Vec<Change>,
    /// By the legs' numbers.
    pub was_cut: Vec<bool>,
    relayed: Vec<Vec<f64>>,
    /// At the end of the warm-up: control traffic of each node in bytes, and changes.
    warm: Option<(Vec<f64>, u64)>,
}

impl Log {
    pub fn new(sites: usize) -> Self {
        let was_cut = vec![false; sites * sites];
        let (opened, finished, changes) = (Vec::new(), Vec::new(), Vec::new());
        Self { opened, finished, changes, was_cut, relayed: vec![Vec::new(); sites], warm: None }
    }

    pub fn warm(&mut self, control_bytes: Vec<f64>, changes: u64) {
        self.warm = Some((control_bytes, changes));
    }

    /// What each site relays in a second.
    pub fn relay(&mut self, now: Time, rates: &[f64]) {
        let span = (now.0 / RELAYED_SPAN.0) as usize;
        for (of, rate) in self.relayed.iter_mut().zip(rates) {
            of.resize(span + 1, 0.0);
            of[span] += rate / RELAYED_SPAN.as_secs();
        }
    }
}

impl Rates {
    /// The rate of the own path as a part of the best one's; 1 if no path carries anything.
    pub fn of_best(&self) -> f64 {
        if self.best > 0.0 { self.own / self.best } else { 1.0 }
    }

    /// The rate of the own path as a multiple of the direct one's; 1 if the direct one is cut, for then there is no
    /// reference.
    pub fn gain(&self) -> f64 {
        if self.direct > 0.0 { self.own / self.direct } else { 1.0 }
    }
}

impl Spread {
    /// Of these; all 0 if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |percent| quantile::above(&values, percent).unwrap_or(0.0);
        Self {
            count: values.len(),
            least: at(0),
            hundredth: at(1),
            tenth: at(10),
            median: at(50),
            ninth: at(90),
            most: at(100),
            mean: values.iter().sum::<f64>() / (values.len() as f64).max(1.0),
        }
    }
}

impl Outcome {
    pub(crate) fn of(
        sites: &Sites,
        policy: Policy,
        log: Log,
        legs: Vec<AtEnd>,
        control: &[f64],
        changes: (u64, usize),
    ) -> Self {
        let after: Vec<&Opened> = log.opened.iter().filter(|of| of.at >= sites.warm_up).collect();
        let is_open = |of: &&&Opened| !of.failed && of.alone.best > 0.0;
        let bulk: Vec<&Opened> = after.iter().filter(is_open).filter(|of| of.class == Class::Bulk).copied().collect();
        let answers = after.iter().filter(is_open).filter(|of| of.class == Class::Interactive);
        let mut pairs: BTreeMap<(usize, usize), Vec<&Opened>> = BTreeMap::new();
        bulk.iter().for_each(|of| pairs.entry((of.near, of.far)).or_default().push(of));
        let by_pair = |value: &dyn Fn(&Opened) -> f64| -> Vec<f64> {
            pairs.values().map(|all| Spread::of(all.iter().map(|of| value(of))).median).collect()
        };
        let gains = by_pair(&|of| of.alone.gain());
        let finished = || log.finished.iter().filter(|of| of.opened >= sites.warm_up);
        let whole = finished().filter(|of| of.class == Class::Bulk && !of.broken);
        let (warm_bytes, warm_changes) = log.warm.unwrap_or((vec![0.0; control.len()], 0));
        let span_s = sites.duration.since(sites.warm_up).as_secs();
        let control = Spread::of(control.iter().zip(&warm_bytes).map(|(all, warm)| (all - warm) * 8.0 / span_s));
        let count = |is: &dyn Fn(&Opened) -> bool| after.iter().filter(|of| is(of)).count();
        Self {
            policy,
            of_best: Spread::of(bulk.iter().map(|of| of.alone.of_best())),
            of_best_by_pair: Spread::of(by_pair(&|of| of.alone.of_best())),
            of_best_beside: Spread::of(bulk.iter().map(|of| of.beside.of_best())),
            of_best_beside_by_pair: Spread::of(by_pair(&|of| of.beside.of_best())),
            gains: Gains {
                part: gains.iter().filter(|gain| **gain > GAINS).count() as f64 / gains.len().max(1) as f64,
                median: Spread::of(gains.iter().copied()).median,
                mean: Spread::of(gains.iter().copied()).mean,
            },
            rtt_of_shortest: Spread::of(answers.map(|of| of.rtt_s / of.shortest_s)),
            got_bit_s: Spread::of(whole.map(|of| of.bytes * 8.0 / of.took_s)),
            streams: after.len(),
            failed: count(&|of| of.failed),
            tried: count(&|of| of.why == Some(Why::Tried)),
            relayed: count(&|of| !of.relays.is_empty()),
            broken: finished().filter(|of| of.broken).count(),
            changes_an_hour: (changes.0 - warm_changes) as f64 * 3_600.0 / span_s / (changes.1 as f64).max(1.0),
            control_bit_s: [control.mean, control.most],
            changes: log.changes,
            legs,
            opened: log.opened,
            relayed_bit_s: log.relayed,
        }
    }
}
