//! Pictures of an engine's results, in the axes of the paper's figures.

use std::ops::RangeInclusive;

use ekiden_record::Record;
use ekiden_report::{BarChart, LineChart, Series, Table, timeline};
use ekiden_units::Time;

use crate::axis::{across, number};
use crate::catalogue::Experiment;
use crate::description::{Plot, PlotKind, PointId};
use crate::engine::Engine;
use crate::quantity::Quantity;
use crate::results::{Results, Values, short};

/// A picture as an SVG document.
#[derive(Debug, Clone)]
pub struct Picture {
    /// The name of its file, without its ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The document.
    pub svg: String,
}

/// A picture of an experiment in each engine that has results for it, with all its figures.
pub(crate) struct Drawn {
    /// What is drawn.
    pub title: String,
    /// A picture for each engine.
    pub pictures: Vec<Picture>,
    /// A row for each engine and line or colour; of pictures over time there is none.
    pub table: Option<Table>,
}

/// The pictures of an experiment of which there are results.
pub(crate) fn drawn(experiment: &Experiment, engines: &[(Engine, &Results)]) -> Vec<Drawn> {
    let drawn = experiment.plots.iter().enumerate().map(|(number, plot)| {
        let pictures =
            engines.iter().filter_map(|(engine, results)| picture(experiment, number, plot, *engine, results));
        Drawn { title: plot.title.clone(), pictures: pictures.collect(), table: table(experiment, plot, engines) }
    });
    drawn.filter(|drawn| !drawn.pictures.is_empty()).collect()
}

fn picture(experiment: &Experiment, number: usize, plot: &Plot, engine: Engine, results: &Results) -> Option<Picture> {
    let title = format!("{}, {}", plot.title, in_words(engine));
    let svg = match &plot.kind {
        PlotKind::Over { .. } => over_key(experiment, plot, &title, results),
        PlotKind::Time { of, points, part } => over_time(experiment, plot, &title, *of, points, part, results),
    };
    Some(Picture { name: format!("{}-{}-{engine}", experiment.id, number + 1), title, svg: svg? })
}

/// The values of a picture: means, with the least and the greatest in brackets; in parentheses those of runs that the machine disturbed.
fn table(experiment: &Experiment, plot: &Plot, engines: &[(Engine, &Results)]) -> Option<Table> {
    let PlotKind::Over { of, x, values, series, .. } = &plot.kind else { return None };
    let heads = values.iter().map(|value| word(experiment, x, value));
    let mut table = Table::new(std::iter::once(format!("{of}, {}", of.unit())).chain(heads));
    for (engine, results) in engines {
        for (keys, points) in series {
            let found: Vec<_> = points.iter().map(|at| results.values((*at)?, of)).collect();
            if found.iter().any(Option::is_some) {
                let name = [words(experiment, keys), in_words(*engine).into()].join(", ");
                let cells = found.into_iter().map(|values| values.map_or("–".into(), cell));
                table.row(std::iter::once(name.trim_start_matches(", ").to_owned()).chain(cells));
            }
        }
    }
    Some(table)
}

fn cell(values: &Values) -> String {
    let of = |pick: fn(f64, f64) -> f64| values.values.iter().copied().reduce(pick).unwrap_or(f64::NAN);
    let [mean, least, greatest] = [values.mean(), of(f64::min), of(f64::max)].map(short);
    let text = if least == greatest { mean } else { format!("{mean} [{least}–{greatest}]") };
    if values.none_calm { format!("({text})") } else { text }
}

/// A value in its experiment's words.
fn word(experiment: &Experiment, key: &str, value: &str) -> String {
    let whole = format!("{key}={value}");
    let word = experiment.name_of(&whole);
    if word == whole { value.to_owned() } else { word.to_owned() }
}

/// Values of keys in their experiment's words.
fn words(experiment: &Experiment, keys: &[String]) -> String {
    let words: Vec<&str> = keys.iter().map(|key| experiment.name_of(key)).filter(|word| !word.is_empty()).collect();
    words.join(", ")
}

/// How results of an engine are named.
pub(crate) fn in_words(engine: Engine) -> &'static str {
    match engine {
        Engine::Simulator => "simulated",
        Engine::Kernel => "on the kernel's TCP",
    }
}

fn over_key(experiment: &Experiment, plot: &Plot, title: &str, results: &Results) -> Option<String> {
    let PlotKind::Over { of, x, values, series, is_bars } = &plot.kind else { return None };
    let mean = |at: &Option<PointId>| Some(results.values((*at)?, of)?.mean());
    let name = |keys: &[String]| match words(experiment, keys) {
        nothing if nothing.is_empty() => of.to_string(),
        words => words,
    };
    let lines: Vec<(String, Vec<Option<f64>>)> =
        series.iter().map(|(keys, points)| (name(keys), points.iter().map(mean).collect())).collect();
    if lines.iter().all(|(_, means)| means.iter().all(Option::is_none)) {
        return None;
    }
    let numbers: Option<Vec<f64>> = values.iter().map(|value| number(value)).collect();
    match numbers.filter(|_| !is_bars) {
        Some(numbers) => Some(line_chart(plot, title, of, &across(x, values), &numbers, lines).to_svg()),
        None => {
            let categories = values.iter().map(|value| word(experiment, x, value));
            let marks = plot.levels.iter().map(|(name, level)| (name.clone(), vec![Some(*level); values.len()]));
            let chart = BarChart {
                title: title.into(),
                quantity: of.unit().into(),
                categories: categories.collect(),
                bars: lines,
                marks: marks.collect(),
                ..BarChart::default()
            };
            Some(chart.to_svg())
        }
    }
}

fn line_chart(
    plot: &Plot,
    title: &str,
    of: &Quantity,
    across: &str,
    x: &[f64],
    lines: Vec<(String, Vec<Option<f64>>)>,
) -> LineChart {
    let points = |means: Vec<Option<f64>>| x.iter().zip(means).filter_map(|(x, mean)| Some((*x, mean?))).collect();
    LineChart {
        title: title.into(),
        across: across.into(),
        quantity: of.unit().into(),
        series: lines.into_iter().map(|(name, means)| Series { name, points: points(means) }).collect(),
        levels: plot.levels.clone(),
        ..LineChart::default()
    }
}

fn over_time(
    experiment: &Experiment,
    plot: &Plot,
    title: &str,
    of: ekiden_report::Quantity,
    points: &[(String, PointId)],
    part: &RangeInclusive<Time>,
    results: &Results,
) -> Option<String> {
    let mut chart = LineChart {
        title: title.into(),
        across: "seconds".into(),
        quantity: of.label().into(),
        levels: plot.levels.clone(),
        from: part.start().as_secs(),
        ..LineChart::default()
    };
    for (written, at) in points {
        let Some(file) = results.first(*at) else { continue };
        let Ok(record) = Record::read(file) else { continue };
        let Ok(samples) = record.samples(file) else { continue };
        let Ok(drawn) = timeline(&record, samples, of) else { continue };
        let several = drawn.series.len() > 1;
        let words = experiment.words_of(written);
        chart.series.extend(drawn.series.into_iter().map(|series| {
            let name = if several { format!("{words}: {}", series.name) } else { words.clone() };
            let drawn = |(seconds, _): &(f64, f64)| (part.start().as_secs()..=part.end().as_secs()).contains(seconds);
            Series { name, points: series.points.into_iter().filter(drawn).collect() }
        }));
    }
    chart.series.retain(|series| !series.points.is_empty());
    (!chart.series.is_empty()).then(|| chart.to_svg())
}
