//! A plan for people, and for programs.

use ekiden_plan::{Forecast, Limit, Path, Plan, Remedy};
use ekiden_report::Table;
use ekiden_units::Bytes;
use serde::Serialize;

use super::check::Checked;
use super::nodes::Written;
use crate::out;

/// All that `--json` prints.
#[derive(Serialize)]
pub struct Shown<'a> {
    /// The plan.
    #[serde(flatten)]
    pub plan: &'a Plan,
    /// What `--verify` found.
    #[serde(rename = "verified", skip_serializing_if = "Option::is_none")]
    pub checked: Option<&'a [Checked]>,
    /// What `--write` wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: &'a Option<Written>,
}

/// Verdict, remedies, legs, advice, notes. Tables have at most `columns` columns.
pub fn text(plan: &Plan, path: &Path, columns: Option<usize>) -> String {
    let mut text = out::wrapped(&plan.verdict).trim_end().to_owned() + "\n\n";
    text += &remedies(plan, path, columns);
    if let Some(remedy) = plan.chosen() {
        text += &format!("\n{}:\n{}", remedy.name, legs(remedy, columns));
    }
    text += "\n";
    if let Some(larger) = &plan.larger_windows {
        let rate = mbit(larger.forecast.goodput_bit_s.value);
        text += &item(&format!(
            "If both hosts can be changed: windows of {} give {rate} Mbit/s without any node (`ekiden doctor` on each).",
            Bytes(larger.window_bytes)
        ));
    }
    for advice in [&plan.tunnel, &plan.gateway] {
        let mut reason = advice.reason.clone();
        reason.replace_range(..1, &reason[..1].to_uppercase());
        text += &item(&format!("{reason}."));
    }
    plan.notes.iter().for_each(|note| text += &item(note));
    text += &item(&format!("Goodputs are of transfers that last {:.0} s, from the first SYN on.", plan.seconds));
    text
}

fn item(sentence: &str) -> String {
    out::wrapped(&format!("- {sentence}")).trim_end().to_owned() + "\n"
}

fn remedies(plan: &Plan, path: &Path, columns: Option<usize>) -> String {
    let mut header = vec!["", "Mbit/s", "range", "gain", "bounded by"];
    let size = path.size.map(|size| format!("{size} takes"));
    header.extend(size.as_deref());
    let mut table = Table::new(header);
    let cells = |name: String, forecast: &Forecast, gain: Option<f64>| {
        let range = forecast.goodput_bit_s;
        let mut cells = vec![
            name,
            mbit(range.value),
            format!("{} – {}", mbit(range.low), mbit(range.high)),
            gain.map_or(String::new(), |gain| format!("× {gain:.2}")),
            limit(forecast.limit).into(),
        ];
        cells.extend(forecast.short_s.map(|seconds| format!("{seconds:.2} s")));
        cells
    };
    table.row(cells("direct".into(), &plan.direct, None));
    for (number, remedy) in plan.remedies.iter().enumerate() {
        let mark = if plan.chosen == Some(number) { " ←" } else { "" };
        table.row(cells(format!("{}{mark}", remedy.name), &remedy.forecast, Some(remedy.gain.value)));
    }
    table.to_text_within(columns) + "\n"
}

fn legs(remedy: &Remedy, columns: Option<usize>) -> String {
    let mut table = Table::new(["leg", "RTT, ms", "congestion control", "buffers", "alone, Mbit/s", "bounded by"]);
    for leg in &remedy.legs {
        let control = if leg.host_sends { "the host's".to_owned() } else { leg.congestion.name().to_owned() };
        table.row([
            format!("{} – {}", leg.from, leg.to),
            format!("{:.1}", leg.rtt_s * 1e3),
            control,
            Bytes(leg.buffer_bytes).to_string(),
            mbit(leg.alone_bit_s),
            limit(leg.limit).to_owned(),
        ]);
    }
    table.to_text_within(columns) + "\n"
}

/// The expected, simulated and measured figures, side by side.
pub fn comparison(checked: &[Checked], columns: Option<usize>) -> String {
    let mut table = Table::new(["Mbit/s", "expected", "simulated", "error", "lab", "error"]);
    for run in checked {
        let shown = |measured: Option<f64>| measured.map_or("–".into(), mbit);
        let error =
            |measured: Option<f64>| run.error_percent(measured).map_or(String::new(), |error| format!("{error:+.1} %"));
        let mark = if run.lab_is_disturbed { " (disturbed)" } else { "" };
        table.row([
            run.name.clone(),
            mbit(run.expected_bit_s),
            shown(run.simulated_bit_s),
            error(run.simulated_bit_s),
            shown(run.lab_bit_s) + mark,
            error(run.lab_bit_s),
        ]);
    }
    format!("\n{}\n", table.to_text_within(columns))
}

fn limit(limit: Limit) -> &'static str {
    match limit {
        Limit::Window => "window",
        Limit::Line => "line",
        Limit::Loss => "loss",
        Limit::Policer => "policer",
    }
}

/// In Mbit/s, with three digits.
fn mbit(bit_s: f64) -> String {
    let mbit = bit_s / 1e6;
    match mbit {
        mbit if mbit >= 100.0 => format!("{mbit:.0}"),
        mbit if mbit >= 10.0 => format!("{mbit:.1}"),
        mbit if mbit >= 1.0 => format!("{mbit:.2}"),
        mbit => format!("{mbit:.3}"),
    }
}
