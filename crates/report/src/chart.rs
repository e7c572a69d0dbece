//! Charts as SVG documents.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

const INK: RGBColor = RGBColor(29, 35, 48);
const FAINT: RGBColor = RGBColor(213, 217, 226);
/// Told apart also without colour vision (after Okabe and Ito).
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];
const SIZE: (u32, u32) = (860, 400);
/// Charts with more lines have no legend.
const SERIES_NAMED: usize = 10;
/// Points of a line are at least so many pixels apart.
const THINNEST: i32 = 2;
const FONT: &str = "sans-serif";

/// Groups of bars, one group per category, one bar in it per series.
#[derive(Debug, Clone, Default)]
pub struct BarChart {
    /// Over the chart.
    pub title: String,
    /// The quantity on the vertical axis with its unit.
    pub quantity: String,
    /// Under the groups.
    pub categories: Vec<String>,
    /// Name and one value per category; `None` leaves a gap.
    pub bars: Vec<(String, Vec<Option<f64>>)>,
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
        svg(|area| self.draw(area))
    }

    fn draw<'a>(&self, area: &Drawing<'a>) -> Result<(), DrawError<'a>> {
        let values = self.bars.iter().chain(&self.marks).flat_map(|(_, values)| values).flatten();
        let top = values.copied().fold(0.0, f64::max).max(1e-9) * headroom(self.bars.len() + self.marks.len());
        let groups = self.categories.len() as f64;
        let mut chart = builder(area, &self.title).build_cartesian_2d(0.0..groups, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(FAINT)
            .x_labels(0)
            .y_desc(&self.quantity)
            .y_label_formatter(&move |y| tick(*y, top))
            .label_style((FONT, 13, &INK))
            .draw()?;
        let below = area.get_pixel_range().1.end - 24;
        for (group, category) in self.categories.iter().enumerate() {
            let middle = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            let style = (FONT, 14, &INK).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
            area.draw(&Text::new(category.clone(), (middle.0, below - 6), style))?;
        }
        let width = 0.8 / self.bars.len().max(1) as f64;
        for (i, (name, values)) in self.bars.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let left = |group: usize| group as f64 + 0.1 + i as f64 * width;
            let present = values.iter().enumerate().filter_map(|(group, value)| Some((group, (*value)?)));
            let bars: Vec<(usize, f64)> = present.collect();
            chart
                .draw_series(bars.iter().map(|&(group, value)| {
                    Rectangle::new([(left(group), 0.0), (left(group) + width * 0.94, value)], colour.filled())
                }))?
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
            // Inside the bar, so that marks just above it stay readable; above only where the bar is too low.
            let inside = |value: f64| value > top * 0.08;
            let style = |value| {
                let (colour, below) = if inside(value) { (&WHITE, VPos::Top) } else { (&INK, VPos::Bottom) };
                (FONT, 12, colour).into_text_style(area).pos(Pos::new(HPos::Center, below))
            };
            chart.draw_series(bars.iter().map(|&(group, value)| {
                let y = if inside(value) { value - top * 0.012 } else { value + top * 0.012 };
                Text::new(short(value), (left(group) + width * 0.47, y), style(value))
            }))?;
        }
        for (i, (name, values)) in self.marks.iter().enumerate() {
            let style = level_style(i);
            let present = values.iter().enumerate().filter_map(|(group, value)| Some((group as f64, (*value)?)));
            chart
                .draw_series(present.map(|(x, y)| PathElement::new([(x + 0.06, y), (x + 0.94, y)], style)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
        }
        legend(&mut chart)
    }
}

impl LineChart {
    /// The picture.
    pub fn to_svg(&self) -> String {
        svg(|area| self.draw(area))
    }

    fn draw<'a>(&self, area: &Drawing<'a>) -> Result<(), DrawError<'a>> {
        let from = self.from;
        let points = || self.series.iter().flat_map(|series| &series.points).filter(move |point| point.0 >= from);
        // With more the legend would cover the chart, and colours come again.
        let is_crowd = self.series.len() > SERIES_NAMED;
        let named = if is_crowd { 0 } else { self.series.len() };
        let right = points().map(|point| point.0).fold(1e-9, f64::max);
        let levels = self.levels.iter().map(|level| level.1);
        let top =
            points().map(|point| point.1).chain(levels).fold(1e-9, f64::max) * headroom(named + self.levels.len());
        let right = right.max(from + 1e-9);
        let mut chart = builder(area, &self.title).build_cartesian_2d(from..right, 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(FAINT)
            .x_desc(&self.across)
            .x_label_formatter(&move |x| tick(*x, right - from))
            .y_desc(&self.quantity)
            .y_label_formatter(&move |y| tick(*y, top))
            .label_style((FONT, 13, &INK))
            .draw()?;
        for (i, series) in self.series.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let shown = series.points.iter().copied().filter(|point| point.0 >= from);
            let line = thinned(shown, |point| chart.backend_coord(point));
            let drawn = chart.draw_series(LineSeries::new(line, colour.stroke_width(if is_crowd { 1 } else { 2 })))?;
            if !is_crowd {
                drawn
                    .label(&series.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
            }
        }
        for (i, (name, value)) in self.levels.iter().enumerate() {
            let style = level_style(i);
            chart
                .draw_series([PathElement::new([(from, *value), (right, *value)], style)])?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
        }
        if named + self.levels.len() == 0 {
            return Ok(());
        }
        legend(&mut chart)
    }
}

/// The points without those that lie where the one before lies, to the eye. Keeps the last.
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

/// Runs `draw` on an SVG of the usual size. Writing into a string cannot fail, and no chart here has an empty range.
fn svg(draw: impl for<'a> FnOnce(&Drawing<'a>) -> Result<(), DrawError<'a>>) -> String {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).and_then(|()| draw(&area)).and_then(|()| area.present()).expect("drawing into memory");
    }
    text
}

fn builder<'a, 'b>(area: &'a Drawing<'b>, title: &str) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder
        .caption(title, (FONT, 17, &INK))
        .margin(12)
        .set_label_area_size(LabelAreaPosition::Left, 62)
        .set_label_area_size(LabelAreaPosition::Bottom, 38);
    builder
}

fn legend<'a, X, Y>(chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>) -> Result<(), DrawError<'a>>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .label_font((FONT, 13, &INK))
        .draw()
}

/// How much higher than its highest value an axis goes, for the legend to cover nothing.
fn headroom(legend_entries: usize) -> f64 {
    1.12 + 0.085 * legend_entries as f64
}

fn level_style(i: usize) -> ShapeStyle {
    let colour = [INK, RGBColor(213, 94, 0), RGBColor(120, 120, 120)][i % 3];
    colour.stroke_width(2)
}

/// Three significant digits.
fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// A label on an axis that ends at `top`.
fn tick(value: f64, top: f64) -> String {
    match top {
        t if t >= 10.0 => format!("{value:.0}"),
        t if t >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
