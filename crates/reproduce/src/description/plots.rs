//! Pictures: which points are drawn, over what.

use std::ops::RangeInclusive;

use ekiden_config::{ConfigError, Source};
use ekiden_units::Time;

use super::Seen;
use super::raw::{RawPlot, RawPlotKind, Text};
use super::selector::{PointId, Selector};
use crate::axis::number;
use crate::quantity::Quantity;

/// The key that is not a scenario's: the runs' name.
const RUNS: &str = "runs";

/// A picture.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Over it.
    pub title: String,
    /// What is drawn.
    pub kind: PlotKind,
    /// Named horizontal lines.
    pub levels: Vec<(String, f64)>,
}

/// What a picture shows.
#[derive(Debug, Clone)]
pub enum PlotKind {
    /// A quantity over values of a key.
    Over {
        /// The quantity.
        of: Quantity,
        /// The key on the horizontal axis.
        x: String,
        /// The values of it: of lines ordered as numbers, if they are some.
        values: Vec<String>,
        /// Lines or groups of bars: the values of the other keys, and a point for each value of `x`.
        series: Vec<(Vec<String>, Vec<Option<PointId>>)>,
        /// Bars instead of lines.
        is_bars: bool,
    },
    /// What connections do over the time of a run.
    Time {
        /// What is drawn.
        of: ekiden_report::Quantity,
        /// The points, whose first run is drawn, with their selectors.
        points: Vec<(String, PointId)>,
        /// The part of the run that is drawn.
        part: RangeInclusive<Time>,
    },
}

/// A picture, with all that it names looked up.
///
/// # Errors
/// With file, line and key.
pub(crate) fn read(raw: &RawPlot, source: Source<'_>, seen: &Seen<'_>) -> Result<Plot, ConfigError> {
    let error = |at: &Text, reason: String| source.error(Some(at.span()), format!("plots: {reason}"));
    let kind = match raw.kind {
        RawPlotKind::Time => over_time(raw, seen, &error)?,
        kind => over_key(raw, seen, kind == RawPlotKind::Bars, &error)?,
    };
    let levels = raw.levels.iter().map(|(name, value)| (name.clone(), *value)).collect();
    Ok(Plot { title: raw.title.get_ref().clone(), kind, levels })
}

type Refuse<'a> = dyn Fn(&Text, String) -> ConfigError + 'a;

fn over_time(raw: &RawPlot, seen: &Seen<'_>, error: &Refuse<'_>) -> Result<PlotKind, ConfigError> {
    let of = match raw.of.get_ref().as_str() {
        "cwnd" => ekiden_report::Quantity::Cwnd,
        "ssthresh" => ekiden_report::Quantity::Ssthresh,
        "acked" => ekiden_report::Quantity::Acked,
        "rtt" => ekiden_report::Quantity::Rtt,
        other => {
            return Err(error(
                &raw.of,
                format!("of = \"{other}\" is nothing that is drawn over time: cwnd, ssthresh, acked or rtt"),
            ));
        }
    };
    if raw.points.is_empty() {
        return Err(error(&raw.title, "a picture over time needs points = [\"…\"]".into()));
    }
    let point = |written: &Text| {
        let found = Selector::parse(written.get_ref()).and_then(|selector| selector.one(seen));
        let point = found.map_err(|reason| error(written, format!("'{}': {reason}", written.get_ref())))?;
        Ok((written.get_ref().clone(), point))
    };
    let points = raw.points.iter().map(point).collect::<Result<_, ConfigError>>()?;
    let [from, to] = [&raw.from, &raw.to].map(|time| time.as_ref().map(|time| *time.get_ref()));
    let part = from.unwrap_or_default()..=to.unwrap_or(Time(u64::MAX));
    if part.is_empty() {
        return Err(error(&raw.title, "from = … must be before to = …".into()));
    }
    Ok(PlotKind::Time { of, points, part })
}

fn over_key(raw: &RawPlot, seen: &Seen<'_>, is_bars: bool, error: &Refuse<'_>) -> Result<PlotKind, ConfigError> {
    if raw.from.is_some() || raw.to.is_some() {
        return Err(error(&raw.title, "from = … and to = … are for a picture over time".into()));
    }
    let Some(x) = &raw.x else { return Err(error(&raw.title, "a picture of lines or bars needs x = \"KEY\"".into())) };
    let of: Quantity = raw.of.get_ref().parse().map_err(|reason| error(&raw.of, format!("of: {reason}")))?;
    let only = raw.only.as_ref().map_or("", |only| only.get_ref());
    let selected = Selector::parse(only).and_then(|selector| selector.all(seen));
    let selected =
        selected.map_err(|reason| error(raw.only.as_ref().unwrap_or(&raw.title), format!("where: {reason}")))?;
    for name in &raw.runs {
        if !seen.iter().any(|(_, runs)| runs.name == *name.get_ref()) {
            return Err(error(name, format!("there are no runs '{}'", name.get_ref())));
        }
    }
    let mut values: Vec<String> = Vec::new();
    let mut series: Vec<(Vec<String>, Vec<Option<PointId>>)> = Vec::new();
    for at in selected {
        let Some((_, runs)) = seen.iter().find(|(set, _)| *set == at.set) else { continue };
        let is_named = raw.runs.is_empty() || raw.runs.iter().any(|name| *name.get_ref() == runs.name);
        let point = &runs.points[at.point];
        let value = |key: &str| if key == RUNS { Some(&runs.name) } else { point.get(key) };
        let named = |key: &Text| value(key.get_ref()).map(|value| format!("{}={value}", key.get_ref()));
        let keys: Option<Vec<String>> = raw.series.iter().map(named).collect();
        let (Some(value), Some(keys), true) = (value(x.get_ref()), keys, is_named) else { continue };
        of.check(&runs.base).map_err(|reason| error(&raw.of, format!("of: {reason}")))?;
        let place = values.iter().position(|known| known == value).unwrap_or_else(|| {
            values.push(value.clone());
            values.len() - 1
        });
        let line = series.iter().position(|(known, _)| *known == keys).unwrap_or_else(|| {
            series.push((keys, Vec::new()));
            series.len() - 1
        });
        let points = &mut series[line].1;
        points.resize(points.len().max(place + 1), None);
        if points[place].replace(at).is_some() {
            return Err(error(
                &raw.title,
                format!("two points are drawn at the same place ({value}); name more keys in series or where"),
            ));
        }
    }
    if values.is_empty() {
        return Err(error(x, format!("no points have the key '{}' and those of series", x.get_ref())));
    }
    series.iter_mut().for_each(|(_, points)| points.resize(values.len(), None));
    if let Some(numbers) = values.iter().map(|value| number(value)).collect::<Option<Vec<f64>>>()
        && !is_bars
    {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
        values = order.iter().map(|at| values[*at].clone()).collect();
        series.iter_mut().for_each(|(_, points)| *points = order.iter().map(|at| points[*at]).collect());
    }
    Ok(PlotKind::Over { of, x: x.get_ref().clone(), values, series, is_bars })
}
