//! Charts as SVG documents.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::frame::{CHARACTER, CHART, DrawError, Drawing, Frame, LINE, Sample, TEXT, builder, font, style};
use super::palette::{COLOURS, FAINT, INK, MARKS, PAPER, text_on};

/// The maximum number of lines of a chart with a legend.
pub(crate) const SERIES_NAMED: usize = 10;
/// The minimum distance between points of a line, in pixels.
const THINNEST: i32 = 2;
/// The end of an axis, as a multiple of the highest value.
const HEADROOM: f64 = 1.08;
/// The maximum number of numbers along an axis.
const NUMBERS_MOST: usize = 11;

/// Groups of bars, one group per category, one bar in it per series.
#[derive(Debug, Clone, Default)]
pub struct BarChart {
    /// Over the chart.
    pub title: String,
    /// The quantity on the vertical axis with its unit.
    pub quantity: String,
    /// Under the groups; may have several lines.
    pub categories: Vec<String>,
    /// Name and one value per category; `None` leaves a gap.
    pub bars: Vec<(String, Vec<Option<f64>>)>,
    /// Bars whose figure has a star, by series and category, counted from 0.
    pub starred: Vec<[usize; 2]>,
    /// Name and one value per category, drawn as a short line across the group: limits, models, published values.
    pub marks: Vec<(String, Vec<Option<f64>>)>,
}

/// Lines over time.
#[derive(Debug, Clone, Default)]
pub struct LineChart {
    /// Over the chart.
    pub title: String,
    /// The quantity on the horizontal axis with its unit.
    pub across: String,
    /// The quantity on the vertical axis with its unit.
    pub quantity: String,
    /// The lines.
    pub series: Vec<Series>,
    /// Named horizontal lines.
    pub levels: Vec<(String, f64)>,
    /// Where the horizontal axis begins; what lies before it is not drawn.
    pub from: f64,
    /// The least end of the horizontal axis: charts of the same time end at the same place.
    pub to: f64,
    /// Which colour the first line has, counted from 0: that of the bars of the same name in a chart beside it.
    pub first_colour: usize,
}

/// One line of a [`LineChart`].
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points in the order of the horizontal axis.
    pub points: Vec<(f64, f64)>,
}

impl BarChart {
    /// The picture.
    pub fn to_svg(&self) -> String {
        let bars = self.bars.iter().enumerate().map(|(i, (name, _))| (name.as_str(), Sample::Bar(colour(i))));
        let marks = self.marks.iter().enumerate().map(|(i, (name, _))| (name.as_str(), Sample::Line(mark_colour(i))));
        let lines_below = self.categories.iter().map(|category| category.lines().count()).max().unwrap_or_default();
        let frame = Frame { title: &self.title, legend: bars.chain(marks).collect(), lines_below, size: CHART };
        frame.to_svg(|area| self.draw(area, lines_below))
    }

    fn draw<'a>(&self, area: &Drawing<'a>, lines_below: usize) -> Result<(), DrawError<'a>> {
        let values = self.bars.iter().chain(&self.marks).flat_map(|(_, values)| values).flatten();
        let top = top_of(values.copied());
        let groups = self.categories.len() as f64;
        let mut chart = builder(area, lines_below, &tick(top, top)).build_cartesian_2d(0.0..groups, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(FAINT)
            .x_labels(0)
            .y_desc(&self.quantity)
            .y_label_formatter(&move |y| tick(*y, top))
            .label_style(font(TEXT).color(&INK))
            .draw()?;
        for (group, category) in self.categories.iter().enumerate() {
            let (x, axis) = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            for (number, line) in category.lines().enumerate() {
                // The area's own coordinates begin at its top.
                let y = axis - area.get_base_pixel().1 + 8 + LINE * number as i32;
                area.draw(&Text::new(line.to_owned(), (x, y), style(TEXT, INK, HPos::Center, VPos::Top)))?;
            }
        }
        let width = 0.86 / self.bars.len().max(1) as f64;
        for (i, (_, values)) in self.bars.iter().enumerate() {
            let colour = colour(i);
            let left = |group: usize| group as f64 + 0.07 + i as f64 * width;
            let present = values.iter().enumerate().filter_map(|(group, value)| Some((group, (*value)?)));
            let bars: Vec<(usize, f64)> = present.collect();
            chart.draw_series(bars.iter().map(|&(group, value)| {
                Rectangle::new([(left(group), 0.0), (left(group) + width * 0.95, value)], colour.filled())
            }))?;
            // At the foot of the bar, where no mark crosses it; above the bar only where that is too low.
            chart.draw_series(bars.iter().map(|&(group, value)| {
                let is_inside = value > top * 0.09;
                let ink = if is_inside { text_on(colour) } else { INK };
                let y = if is_inside { 0.0 } else { value } + top * 0.015;
                let middle = left(group) + width * 0.475;
                let star = if self.starred.contains(&[i, group]) { "*" } else { "" };
                Text::new(short(value) + star, (middle, y), style(TEXT, ink, HPos::Center, VPos::Bottom))
            }))?;
        }
        for (i, (_, values)) in self.marks.iter().enumerate() {
            let present = values.iter().enumerate().filter_map(|(group, value)| Some((group as f64, (*value)?)));
            for (x, y) in present {
                let line = [(x + 0.03, y), (x + 0.97, y)];
                // With a rim of paper, to stand out from bars of any colour.
                chart.draw_series([PathElement::new(line, PAPER.stroke_width(5))])?;
                chart.draw_series([PathElement::new(line, mark_colour(i).stroke_width(2))])?;
            }
        }
        Ok(())
    }
}

impl LineChart {
    /// The picture.
    pub fn to_svg(&self) -> String {
        // With more lines the legend would be larger than the plot, and colours would repeat.
        let named = if self.is_crowd() { &[] } else { self.series.as_slice() };
        let series = named.iter().enumerate().map(|(i, series)| (series.name.as_str(), Sample::Line(self.colour(i))));
        let levels = self.levels.iter().enumerate();
        let levels = levels.map(|(i, (name, _))| (name.as_str(), Sample::Line(mark_colour(i))));
        // The numbers, and what they are.
        let frame = Frame { title: &self.title, legend: series.chain(levels).collect(), lines_below: 2, size: CHART };
        frame.to_svg(|area| self.draw(area))
    }

    fn colour(&self, i: usize) -> RGBColor {
        colour(self.first_colour + i)
    }

    fn is_crowd(&self) -> bool {
        self.series.len() > SERIES_NAMED
    }

    fn draw<'a>(&self, area: &Drawing<'a>) -> Result<(), DrawError<'a>> {
        let from = self.from;
        let points = || self.series.iter().flat_map(|series| &series.points).filter(move |point| point.0 >= from);
        let most = points().map(|point| point.0).fold(self.to, f64::max);
        let right = if most > from { most } else { from + 1.0 };
        let levels = self.levels.iter().map(|level| level.1);
        let top = top_of(points().map(|point| point.1).chain(levels));
        let longest = tick(right, right - from).chars().count() + 2;
        let across = f64::from(area.dim_in_pixel().0) / (longest as f64 * CHARACTER * TEXT);
        let mut chart = builder(area, 2, &tick(top, top)).build_cartesian_2d(from..right, 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(FAINT)
            .x_desc(&self.across)
            .x_labels((across as usize).clamp(2, NUMBERS_MOST))
            .x_label_formatter(&move |x| tick(*x, right - from))
            .y_desc(&self.quantity)
            .y_label_formatter(&move |y| tick(*y, top))
            .label_style(font(TEXT).color(&INK))
            .draw()?;
        let thickness = if self.is_crowd() { 1 } else { 2 };
        for (i, series) in self.series.iter().enumerate() {
            let shown = series.points.iter().copied().filter(|point| point.0 >= from);
            let line = thinned(shown, |point| chart.backend_coord(point));
            chart.draw_series(LineSeries::new(line, self.colour(i).stroke_width(thickness)))?;
        }
        for (i, (_, value)) in self.levels.iter().enumerate() {
            chart.draw_series([PathElement::new([(from, *value), (right, *value)], mark_colour(i).stroke_width(2))])?;
        }
        Ok(())
    }
}

pub(crate) fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

fn mark_colour(i: usize) -> RGBColor {
    MARKS[i % MARKS.len()]
}

/// The points without those too close to the one before to be told apart. Keeps the last.
fn thinned(points: impl Iterator<Item = (f64, f64)>, at: impl Fn(&(f64, f64)) -> (i32, i32)) -> Vec<(f64, f64)> {
    let mut kept: Vec<((f64, f64), (i32, i32))> = Vec::new();
    let mut last = None;
    for point in points {
        let place = at(&point);
        if kept.last().is_none_or(|(_, (x, y))| (place.0 - x).abs().max((place.1 - y).abs()) >= THINNEST) {
            kept.push((point, place));
            last = None;
        } else {
            last = Some((point, place));
        }
    }
    kept.into_iter().chain(last).map(|(point, _)| point).collect()
}

/// Three significant digits.
fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Where an axis for these values ends; at 1 if all are 0, or there are none.
pub(crate) fn top_of(values: impl Iterator<Item = f64>) -> f64 {
    match values.fold(0.0, f64::max) {
        most if most > 0.0 => most * HEADROOM,
        _ => 1.0,
    }
}

/// A label on an axis that ends at `top`.
pub(crate) fn tick(value: f64, top: f64) -> String {
    match top {
        t if t >= 10.0 => format!("{value:.0}"),
        t if t >= 1.0 => format!("{value:.1}"),
        t if t >= 0.01 => format!("{value:.3}"),
        // A tenth of the top is to be told from the next one.
        t => format!("{value:.0$}", (1.0 - t.log10().floor()).clamp(3.0, 12.0) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_small_figures_differ() {
        for top in [0.0029, 0.000_41, 0.05, 0.9] {
            let labels: Vec<_> = (0..=10).map(|tenth| tick(f64::from(tenth) * top / 10.0, top)).collect();
            assert!(labels.windows(2).all(|pair| pair[0] != pair[1]), "{labels:?}");
        }
        assert_eq!((tick(0.25, 0.9), tick(3.0, 50.0)), ("0.250".into(), "3".into()));
    }
}
