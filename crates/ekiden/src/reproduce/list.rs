//! What experiments there are.

use std::time::Duration;

use ekiden_report::Table;
use ekiden_reproduce::{Catalogue, Effort, Engine, Experiment, expected};
use serde::Serialize;

use crate::out::{self, Width};

#[derive(Serialize)]
struct Listed<'a> {
    experiment: &'a str,
    paper: &'a str,
    section: &'a str,
    figure: &'a str,
    #[serde(skip)]
    place: String,
    title: &'a str,
    claims: usize,
    simulator: Work,
    kernel: Work,
}

/// What an engine has to do.
#[derive(Clone, Copy, Default, Serialize)]
struct Work {
    runs: usize,
    /// One run after another.
    seconds: f64,
}

/// Prints all experiments.
pub fn show(catalogue: &Catalogue, effort: Effort, as_json: bool, width: Width) -> anyhow::Result<()> {
    out::note("counting the runs of all experiments");
    let listed = catalogue
        .experiments
        .iter()
        .map(|experiment| listed(catalogue, experiment, effort))
        .collect::<Result<Vec<_>, _>>()?;
    if as_json {
        return out::line(serde_json::to_string_pretty(&listed)?);
    }
    let heads = ["experiment", "figure", "title", "claims", "simulated: runs", "takes", "kernel: runs", "takes"];
    let mut table = Table::new(heads).spare(["figure", "claims"]);
    for row in &listed {
        let mut cells = vec![row.experiment.to_owned(), row.place.clone(), row.title.into(), row.claims.to_string()];
        cells.extend([row.simulator, row.kernel].into_iter().flat_map(|work| [work.runs.to_string(), work.takes()]));
        table.row(cells);
    }
    let all = |of: fn(&Listed<'_>) -> Work| {
        let seconds = listed.iter().map(|row| of(row).seconds).sum();
        Work { runs: listed.iter().map(|row| of(row).runs).sum(), seconds }
    };
    let (simulator, kernel) = (all(|row| row.simulator), all(|row| row.kernel));
    out::line(table.to_text_within(width.columns()))?;
    out::line(width.wrapped(&format!(
        "All: {} simulated runs, {} of processor time; {} runs on the kernel's TCP, {} one after another. Runs that experiments share count once.",
        simulator.runs,
        simulator.takes(),
        kernel.runs,
        kernel.takes(),
    )))
}

fn listed<'a>(catalogue: &Catalogue, experiment: &'a Experiment, effort: Effort) -> anyhow::Result<Listed<'a>> {
    let work = |engine: Engine| {
        let mut work = Work::default();
        for set in &catalogue.sets[experiment.own.clone()] {
            let Some(plan) = set.plan("".as_ref(), engine, effort)? else { continue };
            work.runs += plan.runs.len();
            work.seconds += plan.runs.iter().map(|run| expected(engine, &plan, run)).sum::<Duration>().as_secs_f64();
        }
        anyhow::Ok(work)
    };
    Ok(Listed {
        experiment: &experiment.id,
        paper: &experiment.paper,
        section: &experiment.section,
        figure: &experiment.figure,
        place: match &experiment.figure[..] {
            "" => experiment.section_in_words(),
            figure => format!("Fig. {figure}"),
        },
        title: &experiment.title,
        claims: experiment.claims.len(),
        simulator: work(Engine::Simulator)?,
        kernel: work(Engine::Kernel)?,
    })
}

impl Work {
    fn takes(self) -> String {
        if self.runs == 0 { "–".into() } else { out::ago(self.seconds) }
    }
}
