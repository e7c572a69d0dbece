//! Figures and verdicts in words.

use jiff::Timestamp;

use crate::catalogue::Experiment;
use crate::engine::{Effort, Engine};
use crate::judge::{Figure, Judged, Row, Shown, Word};
use crate::plot::in_words;
use crate::results::{Origin, short};

/// Where in the paper an experiment is.
pub(crate) fn place(experiment: &Experiment) -> String {
    match &experiment.figure[..] {
        "" => format!("{}, {}", experiment.paper, experiment.section_in_words()),
        figure => format!("{}, Fig. {figure}", experiment.paper),
    }
}

pub(crate) fn heading(experiment: &Experiment) -> String {
    format!("{}: {}", experiment.id, experiment.title)
}

/// What an engine says of a claim.
pub(crate) fn of<'a>(row: &'a Row<'_>, engine: Engine) -> Option<&'a Judged> {
    match engine {
        Engine::Simulator => row.simulator.as_ref(),
        Engine::Kernel => row.kernel.as_ref(),
    }
}

/// How many verdicts of each kind an engine has.
pub(crate) fn counts(engine: Engine, effort: Effort, rows: &[Row<'_>]) -> String {
    let count =
        |word: Word| rows.iter().filter_map(|row| of(row, engine)).filter(|judged| judged.verdict == word).count();
    let unexplained = rows
        .iter()
        .filter_map(|row| of(row, engine))
        .filter(|judged| judged.verdict == Word::Differs && judged.why.contains("not explained yet"));
    let differ = match unexplained.count() {
        0 => format!("{} differ", count(Word::Differs)),
        some => format!("{} differ ({some} not explained yet)", count(Word::Differs)),
    };
    let quick = if effort == Effort::Quick { ", quick" } else { "" };
    format!(
        "{}{quick}: of {} claims {} reproduced, {differ}, {} open, {} not decidable, {} not run.",
        capital(in_words(engine)),
        rows.len(),
        count(Word::Reproduced),
        count(Word::Open),
        count(Word::NotDecidable),
        count(Word::NotRun),
    )
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// A verdict with the effect of its first comparison.
pub(crate) fn verdict(judged: &Judged, word: &str) -> String {
    let quick = if judged.is_quick && !judged.figures.is_empty() { ", quick" } else { "" };
    match &judged.figures[..] {
        [] => word.into(),
        [only] => format!("{word}{quick}: {}", effect(only)),
        [first, rest @ ..] => format!("{word}{quick}: {}, and {} more", effect(first), rest.len()),
    }
}

pub(crate) fn columns(engines: &[Engine]) -> Vec<String> {
    let of_engine = engines.iter().flat_map(|engine| [in_words(*engine).to_owned(), "verdict".into()]);
    ["claim", "published"].map(String::from).into_iter().chain(of_engine).collect()
}

/// The cells of a claim.
pub(crate) fn cells(experiment: &Experiment, row: &Row<'_>, engines: &[Engine]) -> Vec<String> {
    let page = if row.page.is_empty() { String::new() } else { format!(" ({})", row.page) };
    let mut cells = vec![format!("{}{page}", row.says), row.published.to_owned()];
    for engine in engines {
        let judged = of(row, *engine);
        cells.push(judged.map_or(String::new(), |judged| found(experiment, judged)));
        cells.push(judged.map_or("–".into(), Judged::line));
    }
    cells
}

/// What the comparisons of a claim found, with all that they rest on.
fn found(experiment: &Experiment, judged: &Judged) -> String {
    let mut quantities: Vec<&str> = points(judged).map(|shown| shown.of.as_str()).collect();
    quantities.dedup();
    let is_mixed = quantities.len() > 1;
    let point = |shown: &Shown| {
        let words = experiment.words_of(&shown.point);
        if is_mixed { format!("{}, {words}", shown.of) } else { words }
    };
    let figure = |figure: &Figure| {
        let unit = figure.points.first().map_or("", |shown| shown.unit);
        match &figure.points[..] {
            [only] => format!("{} {} {unit}: {}", point(only), spread(only, false), effect(figure)),
            several => {
                let several: Vec<String> =
                    several.iter().map(|shown| format!("{} {}", point(shown), spread(shown, true))).collect();
                format!("{} {unit}: {}", several.join(" / "), effect(figure))
            }
        }
    };
    let figures: Vec<String> = judged.figures.iter().map(figure).collect();
    match &quantities[..] {
        [only] => format!("{only}: {}", figures.join("; ")),
        _ => figures.join("; "),
    }
}

fn points(judged: &Judged) -> impl Iterator<Item = &Shown> {
    judged.figures.iter().flat_map(|figure| &figure.points)
}

/// The mean if it is not said elsewhere, the least and the greatest, and how many there are.
fn spread(shown: &Shown, with_mean: bool) -> String {
    let runs = if shown.runs == shown.planned {
        shown.runs.to_string()
    } else {
        format!("{} of {}", shown.runs, shown.planned)
    };
    let calm = if shown.disturbed > 0 { format!(", {} disturbed", shown.disturbed) } else { String::new() };
    let [mean, least, greatest] = [shown.mean, shown.least, shown.greatest].map(short);
    let range = if least == greatest { String::new() } else { format!(" [{least}–{greatest}]") };
    let text = format!("{}{range} (n {runs}{calm})", if with_mean { &mean } else { "" });
    text.trim_start().to_owned()
}

/// The effect with its interval, and what it is to be.
fn effect(figure: &Figure) -> String {
    let narrow = (figure.effect.high - figure.effect.low).abs();
    let text = |value: f64| if narrow < 0.1 && value.abs() < 10.0 { format!("{value:.3}") } else { short(value) };
    let [value, low, high] = [figure.effect.value, figure.effect.low, figure.effect.high].map(text);
    let interval = match (figure.effect.low.is_finite(), figure.effect.high.is_finite()) {
        (false, false) => " (no interval)".to_owned(),
        _ if low == high => String::new(),
        _ => format!(" ({low} to {high})"),
    };
    let bounds = match (figure.above, figure.below) {
        (Some(above), Some(below)) => format!("to be {above} to {below}"),
        (Some(above), None) => format!("to be above {above}"),
        (None, Some(below)) => format!("to be below {below}"),
        (None, None) => String::new(),
    };
    format!("{value}{interval}, {bounds}")
}

/// A time in milliseconds since 1970.
fn minute(unix_ms: u64) -> impl std::fmt::Display {
    Timestamp::from_millisecond(unix_ms.cast_signed()).unwrap_or_default().strftime("%F %R")
}

/// How some runs came about.
pub(crate) fn origin(name: &str, origin: &Origin) -> String {
    let mut parts = vec![format!("{} of {}", origin.there, origin.planned)];
    if origin.there > 0 {
        parts.push(format!("flows of up to {} s", short(origin.longest)));
    }
    if let Some((least, most)) = origin.seeds {
        parts.push(if least == most { format!("seed {least}") } else { format!("seeds {least} to {most}") });
    }
    if let Some((first, last)) = origin.started {
        parts.push(format!("from {} to {} UTC", minute(first), minute(last)));
    }
    if !origin.versions.is_empty() {
        parts.push(format!("ekiden {}", origin.versions.iter().cloned().collect::<Vec<_>>().join(", ")));
    }
    if !origin.kernels.is_empty() {
        parts.push(format!("Linux {}", origin.kernels.iter().cloned().collect::<Vec<_>>().join(", ")));
    }
    for (count, what) in [(origin.disturbed, "disturbed by the machine"), (origin.failed, "in which a flow failed")] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    format!("{name} ({})", parts.join(", "))
}
