//! `ekiden lab run` of a single run; several are a sweep.

use std::path::{Path, PathBuf};
use std::process::exit;

use clap::Args as ClapArgs;
use ekiden_lab::{Interrupt, Lab, Progress, isolate, verdict};
use ekiden_record::{Outcome, Record};
use ekiden_scenario::{Amount, Point, Scenario, Sweep};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use super::{aligned, sweep};
use crate::out;

/// Prefix of the argument that a sweep gives to its children; see [`Args::ends_with`].
pub const ENDS_WITH: &str = "--ends-with=";

/// Run the scenario's flows, and write the record of what came out.
///
/// Every byte is compared with what was sent. Exits with 6 if any differs, with 5 if a flow failed.
///
/// With several values of a --set, or --repeat, every combination is run, each run in a process and a network of its
/// own, and what came out is shown as one table. Runs whose record is there already are not run again, so the same
/// command continues a sweep that was interrupted.
#[derive(ClapArgs)]
pub struct Args {
    /// The scenario file (TOML).
    pub file: PathBuf,
    /// Give a key of the file other values: a dotted path such as link.sea.delay, or several joined by '+' that take
    /// the same value. Several --set are combined, each value with each.
    #[arg(long, value_name = "KEY=V1,V2,...")]
    pub set: Vec<String>,
    /// Run each combination so often; the seed of the first is the scenario's, and grows by 1.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Runs at once. More than one costs accuracy; the records' lateness tells.
    #[arg(long, value_name = "J", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub jobs: u32,
    /// Where the record goes: a file if it ends in .json (a single run only), else a directory.
    #[arg(long, value_name = "FILE|DIR", default_value = "record")]
    pub record: PathBuf,
    /// Print the record, or what the table would hold, as JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// The sweep that this run is part of, by its process id: the run ends when it does.
    #[arg(long, hide = true)]
    ends_with: Option<i32>,
}

/// Does one run, or a sweep.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let sweep = Sweep::parse(&args.set)?;
    match sweep.points().as_slice() {
        [point] if args.repeat == 1 => single(args, point),
        points => sweep::run(args, &sweep, points),
    }
}

/// Whether `place` names a record's file rather than a directory for it.
pub fn is_file(place: &Path) -> bool {
    place.extension().is_some_and(|extension| extension == "json")
}

fn single(args: &Args, point: &Point) -> anyhow::Result<()> {
    let scenario = Scenario::load_with(&args.file, point)?;
    if let Some(parent) = args.ends_with {
        end_with(parent);
    }
    isolate(Interrupt::Ends)?;
    let mut lab = Lab::build(&scenario)?;
    lab.publish_names()?;
    lab.start_proxies()?;
    let bars = Bars::new(&scenario);
    let command = std::env::args().filter(|argument| !argument.starts_with(ENDS_WITH)).collect();
    let record = lab.run(command, &mut |progress| bars.show(&progress))?;
    drop(lab);
    bars.clear();
    let path = record_path(&args.record, &record);
    record.write(&path)?;
    match args.json {
        true => out::text(record.to_json())?,
        false => {
            out::text(table(&record))?;
            out::line(format_args!("record: {}", path.display()))?;
        }
    }
    Ok(verdict(&record)?)
}

/// Ends this process when `parent` ends, even if that was killed a moment ago.
fn end_with(parent: i32) {
    let _ = set_pdeathsig(Signal::SIGTERM);
    if getppid().as_raw() != parent {
        exit(1);
    }
}

fn record_path(place: &Path, record: &Record) -> PathBuf {
    if is_file(place) {
        return place.into();
    }
    place.join(format!("{}-{}.json", record.manifest.scenario_name, record.manifest.started_unix_ms))
}

/// One line per flow, with a head.
fn table(record: &Record) -> String {
    let ms = |us: Option<u64>| us.map_or("-".into(), |us| format!("{:.1}", us as f64 / 1e3));
    let head = ["flow", "Mbit/s", "seconds", "bytes", "sent again", "RTT min ms", "RTT max ms", "outcome"];
    let mut rows = vec![head.map(String::from)];
    for flow in &record.flows {
        rows.push([
            flow.name.clone(),
            format!("{:.2}", flow.goodput_bit_s as f64 / 1e6),
            format!("{:.2}", flow.duration_us as f64 / 1e6),
            flow.received_bytes.to_string(),
            flow.retransmits.to_string(),
            ms(flow.rtt_min_us),
            ms(flow.rtt_max_us),
            match flow.outcome {
                Outcome::Complete => "complete".into(),
                Outcome::Differs { .. } => "DIFFERS".into(),
                Outcome::Failed { .. } => "failed".into(),
            },
        ]);
    }
    aligned(&rows)
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
            let template = "{prefix} {wide_bar} {bytes} {bytes_per_sec}";
            bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(name.clone());
            (name.clone(), all.add(bar))
        });
        let flows = flows.collect();
        Self { all, flows }
    }

    fn show(&self, progress: &Progress<'_>) {
        if let Some((_, bar)) = self.flows.iter().find(|(name, _)| name == progress.flow) {
            bar.set_position(progress.received_bytes);
        }
    }

    fn clear(self) {
        let _ = self.all.clear();
    }
}
