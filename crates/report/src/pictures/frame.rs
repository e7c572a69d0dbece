//! What all charts have: the paper, a title, and a legend between title and plot.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::palette::{INK, PAPER, dark_style};
use crate::escape::escape;

pub(crate) type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// A chart's width, and the height of its plot with its axes; title, legend and further lines under the axis come on top. Narrow, so that
/// the text stays legible where the whole is scaled down to a phone's width.
pub(crate) const CHART: (u32, u32) = (640, 340);
const MARGIN: i32 = 12;
const TITLE_LINE: i32 = 23;
pub(crate) const LINE: i32 = 21;
/// In the legend: a sample of the line or bar, and what stands apart from what.
const SAMPLE: i32 = 20;
const GAP: i32 = 7;
/// Sizes of text in pixels.
pub(crate) const TEXT: f64 = 15.0;
const TITLE: f64 = 17.0;
/// Of a character beside its size, in the widest of the usual fonts.
pub(crate) const CHARACTER: f64 = 0.6;

/// What a legend shows beside a name.
#[derive(Clone, Copy)]
pub(crate) enum Sample {
    Bar(RGBColor),
    Line(RGBColor),
    /// A line of this width in pixels, and this opacity.
    Wide(RGBColor, u32, f64),
    Dashes(RGBColor),
    Dot(RGBColor),
    /// Words alone.
    None,
}

/// A chart before it is drawn.
pub(crate) struct Frame<'a> {
    pub(crate) title: &'a str,
    pub(crate) legend: Vec<(&'a str, Sample)>,
    /// Lines of text under the horizontal axis.
    pub(crate) lines_below: usize,
    /// The width, and the height of the plot.
    pub(crate) size: (u32, u32),
}

/// A font of this many pixels; plotters writes its sizes divided by 1.24.
pub(crate) fn font(pixels: f64) -> FontDesc<'static> {
    ("sans-serif", pixels * 1.24).into_font()
}

/// Text whose `anchor` is at the place where it is drawn.
pub(crate) fn style(pixels: f64, colour: RGBColor, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    font(pixels).color(&colour).pos(Pos::new(horizontal, vertical))
}

impl Frame<'_> {
    /// Draws paper, title and legend, and then `plot` into what is left. Writing into a string cannot fail, and no chart here has
    /// an empty range.
    pub(crate) fn to_svg(&self, plot: impl for<'a> FnOnce(&Drawing<'a>) -> Result<(), DrawError<'a>>) -> String {
        let title = lines(self.title, self.size.0);
        let rows = self.rows();
        let legend_top = MARGIN + 7 + TITLE_LINE * title.len() as i32;
        let above = legend_top + LINE * rows.len() as i32;
        let below = LINE * self.lines_below.saturating_sub(1) as i32;
        let mut text = String::new();
        {
            let size = (self.size.0, self.size.1 + (above + below) as u32);
            let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
            let drawn = area.fill(&PAPER).and_then(|()| head(&area, &title, &rows, legend_top));
            let (_, rest) = area.split_vertically(above);
            drawn.and_then(|()| plot(&rest)).and_then(|()| area.present()).expect("drawing into memory");
        }
        let described = format!("<svg role=\"img\" aria-label=\"{}\" ", escape(self.title));
        let text = text.replacen("<svg ", &described, 1);
        text.replacen('\n', &format!("\n{}\n", dark_style()), 1)
    }

    /// The legend's entries with the place of each in its row.
    fn rows(&self) -> Vec<Vec<Entry<'_>>> {
        let mut rows: Vec<Vec<_>> = Vec::new();
        let mut x = MARGIN;
        for &(name, sample) in &self.legend {
            let width = SAMPLE + 3 * GAP + (name.chars().count() as f64 * TEXT * CHARACTER) as i32;
            let has_room = x + width <= self.size.0 as i32 - MARGIN;
            match rows.last_mut().filter(|_| has_room) {
                Some(row) => row.push((x, name, sample)),
                None => {
                    x = MARGIN;
                    rows.push(vec![(x, name, sample)]);
                }
            }
            x += width;
        }
        rows
    }
}

/// A legend's entry: where it begins in its row, and what it is.
type Entry<'a> = (i32, &'a str, Sample);

fn head<'a>(area: &Drawing<'a>, title: &[String], rows: &[Vec<Entry>], top: i32) -> Result<(), DrawError<'a>> {
    for (number, line) in title.iter().enumerate() {
        let y = MARGIN + TITLE_LINE * number as i32;
        area.draw(&Text::new(line.clone(), (MARGIN, y), style(TITLE, INK, HPos::Left, VPos::Top)))?;
    }
    for (number, row) in rows.iter().enumerate() {
        let y = top + LINE * number as i32 + LINE / 2;
        for &(x, name, sample) in row {
            match sample {
                Sample::Bar(colour) => {
                    area.draw(&Rectangle::new([(x, y - 6), (x + SAMPLE, y + 6)], colour.filled()))?;
                }
                Sample::Line(colour) => {
                    area.draw(&PathElement::new([(x, y), (x + SAMPLE, y)], colour.stroke_width(3)))?;
                }
                Sample::Wide(colour, width, opacity) => {
                    let style = colour.mix(opacity).stroke_width(width);
                    area.draw(&PathElement::new([(x, y), (x + SAMPLE, y)], style))?;
                }
                Sample::Dashes(colour) => {
                    for from in (x..x + SAMPLE).step_by(8) {
                        area.draw(&PathElement::new([(from, y), (from + 4, y)], colour.stroke_width(3)))?;
                    }
                }
                Sample::Dot(colour) => {
                    area.draw(&Circle::new((x + SAMPLE / 2, y), 5, colour.filled()))?;
                }
                Sample::None => {}
            }
            let text = style(TEXT, INK, HPos::Left, VPos::Center);
            area.draw(&Text::new(name.to_owned(), (x + SAMPLE + GAP, y), text))?;
        }
    }
    Ok(())
}

/// A title in lines as wide as the picture; none ends within a word.
fn lines(title: &str, width: u32) -> Vec<String> {
    let most = (f64::from(width as i32 - 2 * MARGIN) / (TITLE * CHARACTER)) as usize;
    let mut lines = vec![String::new()];
    for word in title.split_whitespace() {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= most {
            line.extend([" ", word]);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The width of a tick, of what the numbers of an axis are, and of the gaps between.
const BESIDE_NUMBERS: i32 = 38;

/// Room for axes: on the left for numbers as long as `widest` and for what they are.
pub(crate) fn builder<'a, 'b>(
    area: &'a Drawing<'b>,
    lines_below: usize,
    widest: &str,
) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let left = BESIDE_NUMBERS + (widest.chars().count() as f64 * CHARACTER * TEXT) as i32;
    let mut builder = ChartBuilder::on(area);
    builder
        .margin(MARGIN)
        // Half of the last number under the axis.
        .margin_right(2 * MARGIN)
        .set_label_area_size(LabelAreaPosition::Left, left.max(66))
        .set_label_area_size(LabelAreaPosition::Bottom, 14 + LINE * lines_below as i32);
    builder
}
