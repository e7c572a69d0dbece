//! Medians and quartiles over equal steps, such as the hours of a day.

use plotters::prelude::*;

use super::chart::{SERIES_NAMED, colour, tick, top_of};
use super::frame::{CHART, DrawError, Drawing, Frame, Sample, TEXT, builder, font};
use super::palette::{FAINT, INK, PAPER};

/// A value with the range in which the half of all are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Middle {
    /// A quarter is below.
    pub lower: f64,
    /// Half is below.
    pub middle: f64,
    /// A quarter is above.
    pub upper: f64,
}

/// For each series and step a median with its quartiles, and lines from step to step.
#[derive(Debug, Clone, Default)]
pub struct SpreadChart {
    /// Over the chart.
    pub title: String,
    /// What the steps are, which are numbered from 0.
    pub across: String,
    /// The quantity on the vertical axis with its unit.
    pub quantity: String,
    /// Name and one value per step; `None` leaves a gap.
    pub series: Vec<(String, Vec<Option<Middle>>)>,
}

impl SpreadChart {
    /// The picture.
    pub fn to_svg(&self) -> String {
        let named = if self.series.len() > SERIES_NAMED { &[] } else { self.series.as_slice() };
        let legend = named.iter().enumerate().map(|(i, (name, _))| (name.as_str(), Sample::Line(colour(i))));
        let frame = Frame { title: &self.title, legend: legend.collect(), lines_below: 2, size: CHART };
        frame.to_svg(|area| self.draw(area))
    }

    fn draw<'a>(&self, area: &Drawing<'a>) -> Result<(), DrawError<'a>> {
        let steps = self.series.iter().map(|(_, values)| values.len()).max().unwrap_or_default().max(1);
        let values = self.series.iter().flat_map(|(_, values)| values).flatten();
        let top = top_of(values.map(|value| value.upper));
        let mut chart = builder(area, 2, &tick(top, top)).build_cartesian_2d(0.0..steps as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(FAINT)
            .x_labels(steps.min(12) + 1)
            .x_desc(&self.across)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_desc(&self.quantity)
            .y_label_formatter(&move |y| tick(*y, top))
            .label_style(font(TEXT).color(&INK))
            .draw()?;
        for (i, (_, values)) in self.series.iter().enumerate() {
            let colour = colour(i);
            // Beside each other within the step.
            let x = |step: usize| step as f64 + (i as f64 + 1.0) / (self.series.len() as f64 + 1.0);
            for line in runs(values) {
                chart.draw_series(LineSeries::new(
                    line.iter().map(|(step, value)| (x(*step), value.middle)),
                    colour.stroke_width(1),
                ))?;
            }
            let present = || values.iter().enumerate().filter_map(|(step, value)| Some((x(step), (*value)?)));
            chart
                .draw_series(present().map(|(x, value)| {
                    PathElement::new([(x, value.lower), (x, value.upper)], colour.stroke_width(3))
                }))?;
            chart.draw_series(present().map(|(x, value)| Circle::new((x, value.middle), 4, PAPER.filled())))?;
            chart.draw_series(present().map(|(x, value)| Circle::new((x, value.middle), 3, colour.filled())))?;
        }
        Ok(())
    }
}

/// The values without a gap between them.
fn runs(values: &[Option<Middle>]) -> Vec<Vec<(usize, Middle)>> {
    let mut runs = vec![Vec::new()];
    for (step, value) in values.iter().enumerate() {
        match (value, runs.last_mut()) {
            (Some(value), Some(run)) => run.push((step, *value)),
            (None, Some(run)) if !run.is_empty() => runs.push(Vec::new()),
            _ => {}
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_ends_a_line_and_nothing_is_a_picture_too() {
        let value = |middle: f64| Some(Middle { lower: middle - 1.0, middle, upper: middle + 1.0 });
        let values = vec![None, value(3.0), value(4.0), None, None, value(5.0)];
        let lengths: Vec<usize> = runs(&values).iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 1]);
        let chart = SpreadChart { series: vec![("a".into(), values)], ..SpreadChart::default() };
        assert!(chart.to_svg().contains("<circle"));
        assert!(SpreadChart::default().to_svg().starts_with("<svg"));
    }
}
