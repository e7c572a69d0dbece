//! `ekiden lab chart`: what connections did over time, as a picture.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum};
use ekiden_files::{TargetError, check_target, write};
use ekiden_record::Record;
use ekiden_report::{LEAST_POINTS, LineChart, Quantity, Series, timeline};
use ekiden_units::Time;

use crate::out;
use crate::usage::{misused, svg};

/// What to do about a flow with too few points.
const MORE_POINTS: &str = "a flow's sender gives one every 100 ms (`ekiden simulate` by --resolution): run the scenario with more \
                           'bytes', or a longer 'duration', of its flows";

/// Draw a record's connections over time, as SVG.
///
/// There is a line for every connection with one of ekiden's congestion controls, between proxies too, and for every
/// flow's sender. Several records share one picture, where each line begins with the name of its record's file.
#[derive(ClapArgs)]
pub struct Args {
    /// Records that `ekiden lab run` or `ekiden simulate` has written.
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// What to draw.
    #[arg(long, value_enum, default_value_t = What::Cwnd)]
    quantity: What,
    /// Draw only what comes after this time.
    #[arg(long, value_name = "TIME", default_value = "0")]
    from: Time,
    /// Draw only what comes before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<Time>,
    /// Where the picture goes.
    #[arg(long, short, value_name = "FILE.svg", default_value = "chart.svg", value_parser = svg())]
    output: PathBuf,
    /// Replace a picture that is there already.
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Congestion window, in segments.
    Cwnd,
    /// Slow start threshold, in segments.
    Ssthresh,
    /// What the peer has acknowledged, in megabytes; of the flows' senders.
    Acked,
    /// Smoothed round-trip time, in milliseconds.
    Rtt,
}

/// Does what the command line says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let quantity = match args.quantity {
        What::Cwnd => Quantity::Cwnd,
        What::Ssthresh => Quantity::Ssthresh,
        What::Acked => Quantity::Acked,
        What::Rtt => Quantity::Rtt,
    };
    if args.to.is_some_and(|to| to <= args.from) {
        misused("--to must be later than --from");
    }
    let records: Vec<Record> = args.records.iter().map(|path| Record::read(path)).collect::<Result<_, _>>()?;
    let output = || args.output.display().to_string();
    check_target(&args.output, args.force).with_context(output)?;
    let from = args.from.as_secs();
    let labels = labels(&args.records);
    let mut chart =
        LineChart { across: "seconds".into(), quantity: quantity.label().into(), from, ..LineChart::default() };
    let mut titles: Vec<String> = Vec::new();
    let mut short: Vec<String> = Vec::new();
    for ((record, path), label) in records.into_iter().zip(&args.records).zip(labels) {
        let name = |series: Series| Series { name: format!("{label}{}", series.name), ..series };
        let drawn = timeline(&record, record.samples(path)?, quantity)?;
        chart.series.extend(drawn.series.into_iter().map(name));
        short.extend(drawn.short.into_iter().map(|(name, points)| format!("{label}{name} ({points})")));
        if !titles.contains(&record.manifest.scenario_name) {
            titles.push(record.manifest.scenario_name);
        }
    }
    if chart.series.is_empty() {
        anyhow::bail!(
            "{}: no connection has the {LEAST_POINTS} points that a line needs; {MORE_POINTS}",
            args.records[0].display()
        );
    }
    chart.title = titles.join(", ");
    if let Some(to) = args.to {
        chart.series.iter_mut().for_each(|series| series.points.retain(|point| point.0 <= to.as_secs()));
    }
    chart.series.retain(|series| series.points.iter().any(|point| point.0 >= from));
    if chart.series.is_empty() {
        anyhow::bail!(
            "{}: no connection has anything to draw in this time: say another --from or --to",
            args.records[0].display()
        );
    }
    write(&args.output, chart.to_svg().as_bytes()).map_err(TargetError::from).with_context(output)?;
    if !short.is_empty() {
        out::note(format_args!(
            "ekiden: left out, with fewer than the {LEAST_POINTS} points that a line needs: {}; {MORE_POINTS}",
            short.join(", ")
        ));
    }
    let lines = match chart.series.len() {
        1 => "1 line".to_owned(),
        count => format!("{count} lines"),
    };
    out::line(format_args!("{lines}: {}", args.output.display()))
}

/// What tells the lines of several records apart: their files' names, as far as these are different.
fn labels(records: &[PathBuf]) -> Vec<String> {
    let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let stems: HashSet<String> = records.iter().map(stem).collect();
    let label = |path: &PathBuf| match records {
        [_] => String::new(),
        _ if stems.len() == records.len() => format!("{}: ", stem(path)),
        _ => format!("{}: ", path.display()),
    };
    records.iter().map(label).collect()
}
