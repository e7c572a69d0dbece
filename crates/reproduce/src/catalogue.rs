//! All descriptions, and which of them are asked for.

use std::ops::Range;

use ekiden_config::ConfigError;
use ekiden_files::suggestion;

use crate::description::{Claim, Description, Plot, RunSet, Seen};
use crate::engine::{Effort, Engine};
use crate::files::Files;

/// All experiments, ordered by paper and number.
#[derive(Debug, Clone)]
pub struct Catalogue {
    /// The experiments.
    pub experiments: Vec<Experiment>,
    /// The runs of all of them.
    pub sets: Vec<RunSet>,
}

/// What is said of an experiment, with its claims and pictures.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// `S0-fig11`.
    pub id: String,
    /// The paper's short name.
    pub paper: String,
    /// What it is about.
    pub title: String,
    /// The section of the paper.
    pub section: String,
    /// The figure; may be empty.
    pub figure: String,
    /// What the paper did.
    pub did: String,
    /// What differs in ours; may be empty.
    pub ours: String,
    /// Words for values, such as `HSTCP` for `control=ekiden_hstcp`.
    pub names: Vec<(String, String)>,
    /// Its claims.
    pub claims: Vec<Claim>,
    /// Its pictures.
    pub plots: Vec<Plot>,
    /// Its runs, as numbers among those of all.
    pub own: Range<usize>,
    /// Those of others that it uses.
    pub used: Vec<usize>,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// The experiments, as numbers in the catalogue.
    pub experiments: Vec<usize>,
    /// The runs that they need.
    pub sets: Vec<usize>,
}

impl Catalogue {
    /// Reads and checks all descriptions.
    ///
    /// # Errors
    /// If one is wrong: with file, line and key.
    pub fn read(files: &Files) -> Result<Self, ConfigError> {
        let all = files.descriptions()?;
        let mut descriptions = all.iter().map(|file| Description::read(files, file)).collect::<Result<Vec<_>, _>>()?;
        descriptions.sort_by_key(|description| (description.paper().to_owned(), numbered(&description.folder)));
        if let Some(pair) = descriptions.windows(2).find(|pair| pair[0].id() == pair[1].id()) {
            let reason = format!(
                "{} is the same experiment, {}; give its folder another name",
                pair[0].file.display(),
                pair[1].id()
            );
            return Err(ConfigError::whole(&pair[1].file, reason));
        }
        let mut sets: Vec<RunSet> = Vec::new();
        let mut owned: Vec<Range<usize>> = Vec::new();
        for description in &descriptions {
            owned.push(sets.len()..sets.len() + description.runs.len());
            sets.extend(description.runs.iter().cloned());
        }
        let linked =
            descriptions.iter().zip(&owned).map(|(description, own)| experiment(description, own.clone(), &sets));
        let experiments = linked.collect::<Result<_, _>>()?;
        Ok(Self { experiments, sets })
    }

    /// The experiments that are named, by paper or one by one; all for `all`.
    ///
    /// # Errors
    /// If there is none of a name.
    pub fn select<S: AsRef<str>>(&self, names: &[S]) -> Result<Selected, String> {
        let mut experiments: Vec<usize> = Vec::new();
        for name in names.iter().map(AsRef::as_ref) {
            let is_meant = |experiment: &Experiment| {
                name == "all"
                    || name.eq_ignore_ascii_case(&experiment.paper)
                    || name.eq_ignore_ascii_case(&experiment.id)
            };
            let found: Vec<usize> = (0..self.experiments.len()).filter(|at| is_meant(&self.experiments[*at])).collect();
            if found.is_empty() {
                let known = self.experiments.iter().flat_map(|experiment| [experiment.id.as_str(), &experiment.paper]);
                return Err(format!(
                    "there is no experiment '{name}'{}; `ekiden reproduce list` shows all",
                    suggestion(name, known)
                ));
            }
            experiments.extend(found);
        }
        experiments.sort_unstable();
        experiments.dedup();
        let mut sets: Vec<usize> = experiments.iter().flat_map(|at| self.experiments[*at].sees()).collect();
        sets.sort_unstable();
        sets.dedup();
        Ok(Selected { experiments, sets })
    }

    /// The papers, in their order.
    pub fn papers(&self) -> Vec<&str> {
        let mut papers: Vec<&str> = self.experiments.iter().map(|experiment| experiment.paper.as_str()).collect();
        papers.dedup();
        papers
    }

    /// How many claims of a paper an engine can decide: those whose points it runs.
    pub fn family(&self, paper: &str, engine: Engine, effort: Effort) -> usize {
        let of_paper = self.experiments.iter().filter(|experiment| experiment.paper == paper);
        of_paper.flat_map(|experiment| &experiment.claims).filter(|claim| self.decides(claim, engine, effort)).count()
    }

    /// Whether an engine runs all that a claim needs.
    pub fn decides(&self, claim: &Claim, engine: Engine, effort: Effort) -> bool {
        let mut terms = claim.terms().peekable();
        terms.peek().is_some() && terms.all(|term| self.sets[term.at.set].amount(engine, effort).is_some())
    }
}

impl Experiment {
    /// All runs that its claims and pictures may name.
    pub fn sees(&self) -> impl Iterator<Item = usize> {
        self.own.clone().chain(self.used.iter().copied())
    }

    /// `section 5`, or the name of a section without a number.
    pub fn section_in_words(&self) -> String {
        match self.section.starts_with(|c: char| c.is_ascii_digit()) {
            true => format!("section {}", self.section),
            false => self.section.clone(),
        }
    }

    /// A word for a value, or `KEY=VALUE` itself.
    pub fn name_of<'a>(&'a self, value: &'a str) -> &'a str {
        self.names.iter().find(|(known, _)| known == value).map_or(value, |(_, name)| name)
    }

    /// A selector in its words.
    pub fn words_of(&self, selector: &str) -> String {
        let words: Vec<&str> =
            selector.split_whitespace().map(|word| self.name_of(word)).filter(|word| !word.is_empty()).collect();
        words.join(" ")
    }
}

fn experiment(description: &Description, own: Range<usize>, sets: &[RunSet]) -> Result<Experiment, ConfigError> {
    let mut used = Vec::new();
    for wanted in description.uses() {
        let place = wanted.get_ref().split_once('/');
        let found = place.and_then(|(folder, name)| {
            let experiment = format!("{}-{folder}", description.paper());
            sets.iter().position(|set| set.experiment == experiment && set.name == name)
        });
        let Some(at) = found else {
            let reason = format!(
                "uses = [\"{}\"] names no runs of {}; it is \"EXPERIMENT/RUNS\"",
                wanted.get_ref(),
                description.paper()
            );
            return Err(description.error(wanted, reason));
        };
        used.push(at);
    }
    let seen: Seen<'_> = own.clone().chain(used.iter().copied()).map(|at| (at, &sets[at])).collect();
    let [title, section, figure, did, ours] = description.said().map(str::to_owned);
    Ok(Experiment {
        id: description.id(),
        paper: description.paper().into(),
        title,
        section,
        figure,
        did,
        ours,
        names: description.names(),
        claims: description.claims(&seen)?,
        plots: description.plots(&seen)?,
        own,
        used,
    })
}

/// A name so that `fig9` comes before `fig10`.
fn numbered(name: &str) -> (String, u64, String) {
    let digits = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let (word, rest) = name.split_at(digits);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (word.into(), rest[..end].parse().unwrap_or_default(), rest[end..].into())
}
