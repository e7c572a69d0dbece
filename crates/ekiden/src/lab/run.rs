//! `ekiden lab run` of a single run; several are a sweep.

use std::process::exit;

use anyhow::Context;
use clap::Args as ClapArgs;
use ekiden_lab::{Capture, Capturing, Interrupt, Lab, Origin, Progress, isolate};
use ekiden_record::SeriesWriter;
use ekiden_scenario::{Amount, Point, Scenario, Sweep};
use ekiden_sweep::{Run, Runner};
use ekiden_units::Time;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use super::{check_supported, load};
use crate::children::Children;
use crate::sweep::{ENDS_WITH, Labs};
use crate::usage::{command_line, now_unix_ms, whole_number};
use crate::{exit, pcap, sweep};

/// Run the scenario's flows, and write the record of what came out.
///
/// Every byte is compared with what was sent. Exits with 6 if any differs, with 5 if a flow failed.
///
/// With several values of a --set, or --repeat, every combination is run, each run in a process and a network of its
/// own, and what came out is shown as one table. Runs whose record is there already are not run again, so the same
/// command continues a sweep that was interrupted.
#[derive(ClapArgs)]
pub struct Args {
    #[command(flatten)]
    sweep: sweep::Args,
    /// Runs at once. More than one costs accuracy; the records' lateness tells.
    #[arg(long, value_name = "J", default_value_t = 1, value_parser = whole_number(1_u32, 1000))]
    jobs: u32,
    #[command(flatten)]
    pcap: pcap::Args,
    /// The sweep that this run is part of, by its process id: the run ends when it does.
    #[arg(long, hide = true)]
    ends_with: Option<i32>,
}

/// Does one run, or a sweep.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let points = Sweep::parse(&args.sweep.set)?.points();
    match sweep::single(&args.sweep, &points) {
        Some(point) => single(args, point),
        None => {
            args.pcap.refuse_sweep();
            several(args)
        }
    }
}

fn single(args: &Args, point: &Point) -> anyhow::Result<()> {
    let scenario = load(&args.sweep.file, point)?;
    args.pcap.check(&scenario);
    sweep::check_record(&args.sweep)?;
    if let Some(parent) = args.ends_with {
        end_with(parent);
    }
    if args.ends_with.is_none() {
        sweep::warn(&scenario);
    }
    isolate(Interrupt::Ends)?;
    let capture = args.pcap.capture(|open| Capture::new(&scenario, open))?;
    let (mut lab, capturing) = match capture {
        Some(capture) => Lab::build_captured(&scenario, capture).map(|(lab, capturing)| (lab, Some(capturing)))?,
        None => (Lab::build(&scenario)?, None),
    };
    lab.publish_names()?;
    lab.start_nodes()?;
    let bars = Bars::new(&scenario);
    let command = command_line().into_iter().filter(|argument| !argument.starts_with(ENDS_WITH)).collect();
    let origin = Origin { command, started_unix_ms: now_unix_ms() };
    let place = sweep::place(&args.sweep, &scenario, origin.started_unix_ms);
    let mut series = SeriesWriter::new(&place, args.sweep.samples);
    let record = lab.run(origin, &mut series, &mut |progress| bars.show(&progress))?;
    drop(lab);
    let finished = capturing.map_or(Ok(0), Capturing::finish);
    bars.clear();
    // The record is there whatever became of the packets.
    let shown = sweep::show_one(&args.sweep, record, series, &place);
    args.pcap.tell(finished, args.sweep.json)?;
    shown
}

/// Every run in a process of its own.
fn several(args: &Args) -> anyhow::Result<()> {
    let plan = sweep::plan(&args.sweep, "lab", None)?;
    plan.scenarios.iter().try_for_each(|scenario| check_supported(&args.sweep.file, scenario))?;
    plan.scenarios.first().into_iter().for_each(sweep::warn);
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let children = Children::new().context("cannot wait for signals")?;
    let labs = Labs { program: &program, children: &children, samples: args.sweep.samples };
    let work = |run: &Run| labs.run(run, &args.sweep.file);
    let stopped_by = || {
        children.over();
        labs.signal()
    };
    let runner = Runner { jobs: args.jobs, work: &work, stopped_by: &stopped_by };
    sweep::run(&args.sweep, plan, &runner, exit::number)
}

/// Ends this process when `parent` ends, even if that was killed a moment ago.
fn end_with(parent: i32) {
    let _ = set_pdeathsig(Signal::SIGTERM);
    if getppid().as_raw() != parent {
        exit(1);
    }
}

/// What a flow has carried so far, as the table at the end counts it: without the time before its start.
fn goodput(progress: &Progress<'_>) -> Option<String> {
    let rate = progress.received_bytes as f64 * 8.0 / progress.moving.as_secs_f64();
    rate.is_finite().then(|| format!("{:.2} Mbit/s", rate / 1e6))
}

/// A bar per flow on standard error, if that is a terminal.
struct Bars {
    all: MultiProgress,
    flows: Vec<(String, ProgressBar)>,
}

impl Bars {
    fn new(scenario: &Scenario) -> Self {
        let all = MultiProgress::new();
        let flows = scenario.flows.iter().map(|(name, flow)| {
            let bar = match flow.amount {
                Amount::Bytes(bytes) => ProgressBar::new(bytes.0.saturating_mul(flow.parallel.into())),
                Amount::Duration(_) => ProgressBar::no_length(),
            };
            let template = "{prefix} {wide_bar} {bytes} {msg}";
            bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(name.clone());
            bar.set_message(match flow.start {
                Time(0) => String::new(),
                start => format!("starts at {start}"),
            });
            (name.clone(), all.add(bar))
        });
        let flows = flows.collect();
        Self { all, flows }
    }

    fn show(&self, progress: &Progress<'_>) {
        if let Some((_, bar)) = self.flows.iter().find(|(name, _)| name == progress.flow) {
            bar.set_position(progress.received_bytes);
            if let Some(rate) = goodput(progress) {
                bar.set_message(rate);
            }
        }
    }

    fn clear(self) {
        let _ = self.all.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn progress_is_in_the_units_of_the_table_and_without_the_time_before_the_start() {
        let at =
            |received_bytes, moving| Progress { flow: "late", received_bytes, moving: Duration::from_secs(moving) };
        assert_eq!(goodput(&at(5_000_000, 4)).as_deref(), Some("10.00 Mbit/s"));
        assert_eq!(goodput(&at(0, 0)), None);
    }
}
