//! All of it for readers: an index of the claims, and a section for each experiment.

mod markdown;
mod words;

use std::collections::BTreeMap;

use ekiden_report::{Page, Section, Table};

use crate::catalogue::{Catalogue, Experiment, Selected};
use crate::engine::{Effort, Engine};
use crate::judge::{Judged, Row, Word, judge};
use crate::plot::{Drawn, Picture, drawn, in_words};
use crate::results::Results;

/// What stands over all that was made in one go.
#[derive(Debug, Clone, Default)]
pub struct Manifest {
    /// The command that makes it again.
    pub command: String,
    /// What is to be said before the claims: a paragraph each.
    pub notes: Vec<String>,
}

/// What came out of experiments.
pub struct Report<'a> {
    catalogue: &'a Catalogue,
    selected: &'a Selected,
    effort: Effort,
    manifest: Manifest,
    engines: Vec<OfEngine>,
    /// The pictures of each experiment that was asked for.
    drawn: BTreeMap<usize, Vec<Drawn>>,
}

/// What an engine says.
struct OfEngine {
    engine: Engine,
    results: Results,
    /// By experiment, claim by claim.
    judged: BTreeMap<usize, Vec<Judged>>,
}

impl<'a> Report<'a> {
    /// Judges what engines have found.
    pub fn new(
        catalogue: &'a Catalogue,
        selected: &'a Selected,
        effort: Effort,
        results: Vec<(Engine, Results)>,
        manifest: Manifest,
    ) -> Self {
        let of_engines: Vec<(Engine, &Results)> = results.iter().map(|(engine, results)| (*engine, results)).collect();
        let drawn = selected.experiments.iter().map(|at| (*at, drawn(&catalogue.experiments[*at], &of_engines)));
        let drawn = drawn.collect();
        let engines = results.into_iter().map(|(engine, results)| {
            let mut judged = BTreeMap::new();
            for paper in catalogue.papers() {
                let of_paper = (0..catalogue.experiments.len()).filter(|at| catalogue.experiments[*at].paper == paper);
                judged.extend(of_paper.zip(judge(catalogue, paper, engine, effort, &results)));
            }
            OfEngine { engine, results, judged }
        });
        Self { catalogue, selected, effort, manifest, engines: engines.collect(), drawn }
    }

    /// Every claim of what was asked for.
    pub fn rows(&self) -> Vec<Row<'a>> {
        self.selected.experiments.iter().flat_map(|at| self.rows_of(*at)).collect()
    }

    /// The page, whole in one file.
    pub fn to_html(&self) -> String {
        let experiments = self.selected.experiments.iter().flat_map(|at| {
            let pictures = self.drawn(*at).iter().map(|drawn| Section {
                heading: drawn.title.clone(),
                charts: drawn.pictures.iter().map(|picture| picture.svg.clone()).collect(),
                table: drawn.table.clone(),
                ..Section::default()
            });
            std::iter::once(self.section(*at)).chain(pictures)
        });
        let page = Page {
            title: self.title(),
            message: self.message(),
            introduction: self.introduction(),
            sections: std::iter::once(self.index()).chain(experiments).collect(),
            ..Page::default()
        };
        page.to_html()
    }

    /// The same in Markdown, with the pictures in a folder beside it.
    pub fn to_markdown(&self, folder: &str) -> String {
        markdown::page(self, folder)
    }

    /// All pictures.
    pub fn pictures(&self) -> impl Iterator<Item = &Picture> {
        self.drawn.values().flatten().flat_map(|drawn| &drawn.pictures)
    }

    /// Records that could not be used.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.engines.iter().flat_map(|of| &of.results.notes).map(String::as_str)
    }

    /// How many verdicts of each kind each engine has, in a line each.
    pub fn counts(&self) -> Vec<String> {
        let rows = self.rows();
        self.engines.iter().map(|of| words::counts(of.engine, self.effort, &rows)).collect()
    }

    fn rows_of(&self, at: usize) -> Vec<Row<'a>> {
        let experiment = &self.catalogue.experiments[at];
        let judged = |engine: Engine, number: usize| {
            let of = self.engines.iter().find(|of| of.engine == engine)?;
            of.judged.get(&at)?.get(number).cloned()
        };
        let row = |(number, claim): (usize, &'a crate::description::Claim)| Row {
            experiment: &experiment.id,
            figure: words::place(experiment),
            says: &claim.says,
            page: &claim.page,
            published: &claim.published,
            simulator: judged(Engine::Simulator, number),
            kernel: judged(Engine::Kernel, number),
        };
        experiment.claims.iter().enumerate().map(row).collect()
    }

    fn drawn(&self, at: usize) -> &[Drawn] {
        self.drawn.get(&at).map_or(&[], Vec::as_slice)
    }

    fn title(&self) -> String {
        let mut papers: Vec<&str> =
            self.selected.experiments.iter().map(|at| self.catalogue.experiments[*at].paper.as_str()).collect();
        papers.dedup();
        let quick = if self.effort == Effort::Quick { ", quick" } else { "" };
        format!("{}: claims and what comes out here{quick}", papers.join(", "))
    }

    fn message(&self) -> Vec<String> {
        let quick = (self.effort == Effort::Quick).then(|| {
            "Quick: fewer and shorter runs than the papers'. It shows that everything works; a full reproduction decides.".to_owned()
        });
        self.counts().into_iter().chain(quick).chain(self.manifest.notes.iter().cloned()).collect()
    }

    fn introduction(&self) -> String {
        format!(
            "Made by `{}`. A verdict follows from the values by one rule (docs/guide/reproduce.md): brackets hold the least and the greatest \
             run, and parentheses the 95 % interval.",
            self.manifest.command
        )
    }

    fn index(&self) -> Section {
        Section { heading: "All claims".into(), table: Some(table(&self.rows(), &self.asked())), ..Section::default() }
    }

    fn asked(&self) -> Vec<Engine> {
        self.engines.iter().map(|of| of.engine).collect()
    }

    fn section(&self, at: usize) -> Section {
        let experiment = &self.catalogue.experiments[at];
        let mut table = Table::new(words::columns(&self.asked())).of_text();
        for row in self.rows_of(at) {
            table.row(words::cells(experiment, &row, &self.asked()));
        }
        Section {
            heading: words::heading(experiment),
            text: self.said(at),
            table: (!experiment.claims.is_empty()).then_some(table),
            ..Section::default()
        }
    }

    /// Paragraphs about an experiment.
    fn said(&self, at: usize) -> Vec<String> {
        let experiment = &self.catalogue.experiments[at];
        let mut said = vec![format!("The paper: {}", experiment.did)];
        if !experiment.ours.is_empty() {
            said.push(format!("Here: {}", experiment.ours));
        }
        said.extend(self.engines.iter().map(|of| self.origin(of, experiment)));
        let quick = if self.effort == Effort::Quick { " --quick" } else { "" };
        said.push(format!("Again: ekiden reproduce {}{quick}", experiment.id));
        said
    }

    /// Where an engine's figures of an experiment come from.
    fn origin(&self, of: &OfEngine, experiment: &Experiment) -> String {
        let parts: Vec<String> = experiment
            .sees()
            .filter_map(|set| {
                let origin = of.results.origin(set)?;
                let runs = &self.catalogue.sets[set];
                let name = if runs.experiment == experiment.id {
                    runs.name.clone()
                } else {
                    format!("{}/{}", runs.experiment, runs.name)
                };
                Some(words::origin(&name, origin))
            })
            .collect();
        let parts = if parts.is_empty() { "none".to_owned() } else { parts.join("; ") };
        format!("Runs, {}: {parts}.", in_words(of.engine))
    }
}

/// Every claim with its verdicts by these engines.
pub fn table(rows: &[Row<'_>], engines: &[Engine]) -> Table {
    let heads = ["figure", "claim", "published"].map(String::from).into_iter();
    let mut table = Table::new(heads.chain(engines.iter().map(|engine| in_words(*engine).to_owned()))).of_text();
    for row in rows {
        let verdict = |engine: &Engine| {
            words::of(row, *engine).map_or("–".into(), |judged| words::verdict(judged, Word::text(judged.verdict)))
        };
        let said = [row.figure.clone(), row.says.into(), row.published.into()];
        table.row(said.into_iter().chain(engines.iter().map(verdict)));
    }
    table
}
