//! From values to verdicts: every claim of a paper, in one engine.

use serde::{Serialize, Serializer};

use crate::catalogue::{Catalogue, Experiment};
use crate::description::{Claim, Comparison, Term};
use crate::engine::{Effort, Engine};
use crate::results::{Results, Values};
use crate::verdict::{self, Chances, Decision, Effect, Interval, decide, holm};

/// What an engine says of a claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The verdict in a word.
    pub verdict: Word,
    /// What is to be said with it; may be empty.
    pub why: String,
    /// What each comparison found.
    pub figures: Vec<Figure>,
    /// How probable such values are if the claim does not hold, corrected for the number of claims.
    pub supports: Option<f64>,
    /// The same if it holds.
    pub contradicts: Option<f64>,
    /// The runs were fewer or shorter than those of a full reproduction.
    pub is_quick: bool,
}

/// A verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// The values bear the claim out.
    Reproduced,
    /// They contradict it, or show no difference where it says one.
    Differs,
    /// The runs do not decide it.
    Open,
    /// The paper does not say what would be needed.
    NotDecidable,
    /// There are no runs.
    NotRun,
}

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The points of the effect that counts.
    pub points: Vec<Shown>,
    /// The effect: a value, a ratio, or a ratio of ratios.
    pub effect: Interval,
    /// It must be above this.
    pub above: Option<f64>,
    /// It must be below this.
    pub below: Option<f64>,
}

/// The values at a point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    /// The selector.
    pub point: String,
    /// The quantity.
    pub of: String,
    /// Its unit.
    pub unit: &'static str,
    /// The mean.
    pub mean: f64,
    /// The least value.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
    /// How many runs count.
    pub runs: usize,
    /// How many there should be.
    pub planned: usize,
    /// How many were left out because the machine disturbed them.
    pub disturbed: usize,
}

/// A claim with what each engine says of it.
#[derive(Debug, Clone, Serialize)]
pub struct Row<'a> {
    /// `S0-fig11`.
    pub experiment: &'a str,
    /// The figure of the paper, or its section.
    pub figure: String,
    /// The claim.
    pub says: &'a str,
    /// Where the paper says it.
    pub page: &'a str,
    /// What it prints.
    pub published: &'a str,
    /// By the simulator.
    pub simulator: Option<Judged>,
    /// By the kernel.
    pub kernel: Option<Judged>,
}

impl Word {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Differs => "differs",
            Self::Open => "open",
            Self::NotDecidable => "not decidable",
            Self::NotRun => "not run",
        }
    }
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

impl Judged {
    fn new(verdict: Word, why: impl Into<String>, effort: Effort) -> Self {
        let is_quick = effort == Effort::Quick;
        Self { verdict, why: why.into(), figures: Vec::new(), supports: None, contradicts: None, is_quick }
    }

    /// The verdict with what is to be said of it, in a line.
    pub fn line(&self) -> String {
        let quick =
            if self.is_quick && !matches!(self.verdict, Word::NotRun | Word::NotDecidable) { " (quick)" } else { "" };
        match &self.why[..] {
            "" => format!("{}{quick}", self.verdict.text()),
            why => format!("{}{quick}: {why}", self.verdict.text()),
        }
    }
}

/// What an engine says of every claim of a paper, experiment by experiment in the catalogue's order.
pub fn judge(
    catalogue: &Catalogue,
    paper: &str,
    engine: Engine,
    effort: Effort,
    results: &Results,
) -> Vec<Vec<Judged>> {
    let court = Court { catalogue, engine, effort, results };
    let of_paper: Vec<&Experiment> =
        catalogue.experiments.iter().filter(|experiment| experiment.paper == paper).collect();
    let mut heard: Vec<Vec<Heard>> =
        of_paper.iter().map(|experiment| experiment.claims.iter().map(|claim| court.hear(claim)).collect()).collect();
    let family = catalogue.family(paper, engine, effort);
    let chances: Vec<Chances> = heard.iter().flatten().filter_map(|heard| heard.chances).collect();
    let corrected = |of: fn(&Chances) -> f64| holm(&chances.iter().map(of).collect::<Vec<f64>>(), family);
    let both = corrected(|chances| chances.supports).into_iter().zip(corrected(|chances| chances.contradicts));
    let with_chances = heard.iter_mut().flatten().filter_map(|heard| heard.chances.as_mut());
    for (chances, (supports, contradicts)) in with_chances.zip(both) {
        (chances.supports, chances.contradicts) = (supports, contradicts);
    }
    let judged = of_paper.iter().zip(heard).map(|(experiment, heard)| {
        experiment.claims.iter().zip(heard).map(|(claim, heard)| court.say(claim, heard)).collect()
    });
    judged.collect()
}

/// A claim's values before the verdict.
struct Heard {
    judged: Judged,
    chances: Option<Chances>,
}

struct Court<'a> {
    catalogue: &'a Catalogue,
    engine: Engine,
    effort: Effort,
    results: &'a Results,
}

impl Court<'_> {
    fn hear(&self, claim: &Claim) -> Heard {
        let without = |word, why: String| Heard { judged: Judged::new(word, why, self.effort), chances: None };
        if let Some(missing) = &claim.missing {
            return without(Word::NotDecidable, format!("the paper does not say {missing}"));
        }
        if !self.catalogue.decides(claim, self.engine, self.effort) {
            return without(Word::NotRun, String::new());
        }
        if claim.terms().any(|term| self.results.values(term.at, &term.of).is_none()) {
            return without(Word::NotRun, String::new());
        }
        let compared: Vec<verdict::Comparison> = claim.compare.iter().map(|compare| self.compared(compare)).collect();
        let figures =
            claim.compare.iter().zip(&compared).map(|(compare, compared)| self.figure(compare, compared)).collect();
        let none_calm =
            claim.terms().find(|term| self.results.values(term.at, &term.of).is_some_and(|values| values.none_calm));
        let (why, chances) = match none_calm {
            Some(term) => (format!("the machine disturbed every run of '{}'", term.written), None),
            None => ("too few runs".into(), verdict::chances(&compared)),
        };
        Heard { judged: Judged { figures, ..Judged::new(Word::Open, why, self.effort) }, chances }
    }

    fn say(&self, claim: &Claim, heard: Heard) -> Judged {
        let Some(chances) = heard.chances else { return heard.judged };
        let margin = (self.effort == Effort::Full).then_some(claim.margin);
        let because = claim.because.of(self.engine).unwrap_or("not explained yet").trim();
        let (verdict, why) = match decide(&chances, margin) {
            Decision::Reproduced => (Word::Reproduced, String::new()),
            Decision::Differs => (Word::Differs, because.to_owned()),
            Decision::NoDifference => {
                let because =
                    claim.because.of(self.engine).map_or(String::new(), |because| format!("; {}", because.trim()));
                (Word::Differs, format!("no difference of more than {} % is seen{because}", claim.margin * 100.0))
            }
            Decision::Open if self.effort == Effort::Quick => (Word::Open, heard.judged.why.clone()),
            Decision::Open => (Word::Open, "the runs do not decide it".into()),
        };
        Judged {
            verdict,
            why,
            supports: Some(chances.supports),
            contradicts: Some(chances.contradicts),
            ..heard.judged
        }
    }

    fn of(&self, term: &Term) -> Values {
        self.results.values(term.at, &term.of).cloned().unwrap_or_default()
    }

    fn compared(&self, compare: &Comparison) -> verdict::Comparison {
        let effects = compare.effects.iter().map(|terms| self.effect(terms)).collect();
        verdict::Comparison { effects, above: compare.above, below: compare.below }
    }

    fn effect(&self, terms: &[Term]) -> Effect {
        let values = |term: &Term| self.of(term).values;
        match terms {
            [a, b] => {
                let (over, under) = (values(a), values(b));
                // What the same runs say is compared run by run.
                let is_paired = a.at == b.at && over.len() == under.len();
                Effect::Ratio { over, under, is_paired }
            }
            [a, b, c, d] => Effect::Ratios([values(a), values(b), values(c), values(d)]),
            [a, ..] => Effect::Mean(values(a)),
            [] => Effect::Mean(Vec::new()),
        }
    }

    fn figure(&self, compare: &Comparison, compared: &verdict::Comparison) -> Figure {
        let effect = compared.effect();
        let number = compared.effects.iter().position(|other| Some(other) == effect).unwrap_or_default();
        let points = compare.effects.get(number).into_iter().flatten().map(|term| self.shown(term)).collect();
        let nothing = Interval { value: f64::NAN, low: f64::NEG_INFINITY, high: f64::INFINITY };
        Figure { points, effect: effect.map_or(nothing, Effect::interval), above: compare.above, below: compare.below }
    }

    fn shown(&self, term: &Term) -> Shown {
        let found = self.of(term);
        let mean = found.mean();
        let Values { values, planned, disturbed, .. } = found;
        Shown {
            point: term.written.clone(),
            of: term.of.to_string(),
            unit: term.of.unit(),
            mean,
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            runs: values.len(),
            planned,
            disturbed,
        }
    }
}
