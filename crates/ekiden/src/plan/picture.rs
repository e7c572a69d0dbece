//! What every remedy should give, as a picture.

use std::path::Path as File;

use anyhow::Context;
use ekiden_files::{TargetError, write as write_file};
use ekiden_plan::{Forecast, Path, Plan, Remedy};
use ekiden_report::BarChart;
use ekiden_units::{BitRate, Time};

/// More remedies have no room beside each other.
const REMEDIES_MOST: usize = 6;
/// Characters that a name has room for under its bars, per line.
const LINE: usize = 10;

/// Draws direct and remedies with their ranges.
pub fn write(file: &File, plan: &Plan, path: &Path) -> anyhow::Result<()> {
    let svg = chart(plan, path).to_svg();
    write_file(file, svg.as_bytes()).map_err(TargetError::from).with_context(|| file.display().to_string())
}

fn chart(plan: &Plan, path: &Path) -> BarChart {
    let mut shown: Vec<(usize, &Remedy)> = plan.remedies.iter().enumerate().collect();
    if shown.len() > REMEDIES_MOST {
        let rate = |remedy: &Remedy| remedy.forecast.goodput_bit_s.value;
        shown.sort_by(|one, other| {
            let is_chosen = |number| plan.chosen == Some(number);
            is_chosen(other.0).cmp(&is_chosen(one.0)).then(rate(other.1).total_cmp(&rate(one.1)))
        });
        shown.truncate(REMEDIES_MOST);
        shown.sort_by_key(|(number, _)| *number);
    }
    let mut names = vec!["direct".to_owned()];
    let mut forecasts: Vec<&Forecast> = vec![&plan.direct];
    for (number, remedy) in shown {
        let mark = if plan.chosen == Some(number) { "\n(to take)" } else { "" };
        names.push(folded(&remedy.name) + mark);
        forecasts.push(&remedy.forecast);
    }
    let mbit = |of: fn(&Forecast) -> f64| forecasts.iter().map(|forecast| Some(of(forecast) / 1e6)).collect::<Vec<_>>();
    let rate = BitRate((path.rate_bit_s.value / 1e3).round() as u64 * 1_000);
    let rtt = Time((path.rtt_s.value * 1e5).round() as u64 * 10_000);
    BarChart {
        title: format!("{}: {rate}, round trip {rtt}, windows of {}", plan.path, path.window()),
        quantity: "Mbit/s of user data".into(),
        categories: names,
        bars: vec![("expected".into(), mbit(|forecast| forecast.goodput_bit_s.value))],
        marks: vec![
            ("hardly less".into(), mbit(|forecast| forecast.goodput_bit_s.low)),
            ("hardly more".into(), mbit(|forecast| forecast.goodput_bit_s.high)),
        ],
        ..BarChart::default()
    }
}

/// In lines that fit under a bar.
fn folded(name: &str) -> String {
    let mut lines = vec![String::new()];
    for word in name.split_whitespace() {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= LINE {
            line.extend([" ", word]);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}
