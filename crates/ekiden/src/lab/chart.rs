//! `ekiden lab chart`: what connections did over time, as a picture.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum};
use ekiden_record::Record;
use ekiden_report::{LineChart, Quantity, timeline};
use ekiden_units::Time;

use crate::out;

/// Draw a record's connections over time, as SVG.
///
/// There is a line for every connection with one of ekiden's congestion controls, between proxies too, and for every
/// flow's sender. Several records share one picture.
#[derive(ClapArgs)]
pub struct Args {
    /// Records that `ekiden lab run` has written.
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
    #[arg(long, short, value_name = "FILE.svg", default_value = "chart.svg")]
    output: PathBuf,
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
    let from = args.from.as_secs();
    let mut chart =
        LineChart { across: "seconds".into(), quantity: quantity.label().into(), from, ..LineChart::default() };
    for path in &args.records {
        let record = Record::read(path)?;
        chart.title = record.manifest.scenario_name.clone();
        chart.series.extend(timeline(&record, quantity));
    }
    if let Some(to) = args.to {
        chart.series.iter_mut().for_each(|series| series.points.retain(|point| point.0 <= to.as_secs()));
    }
    if chart.series.is_empty() {
        anyhow::bail!("{}: no connection lasted long enough to be drawn", args.records[0].display());
    }
    fs::write(&args.output, chart.to_svg()).with_context(|| format!("{} cannot be written", args.output.display()))?;
    out::line(format_args!("{} lines: {}", chart.series.len(), args.output.display()))
}
