//! `ekiden record`: what runs have left.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use ekiden_files::ConfigError;
use ekiden_record::{Measurement, Record, Row, Rows, write_csv, write_csv_head, write_csv_rows};
use ekiden_sweep::{Index, Plan, is_file};

use crate::out::{self, Width};
use crate::sweep;
use crate::whose::{OthersFile, whose};

/// How many missing runs are named.
const NAMED_MOST: usize = 5;

/// Show records again, and merge those of a sweep's shards.
///
/// `ekiden lab run` and `ekiden simulate` write a record of each run, and of a sweep a directory of them. Their format is
/// described in docs/guide/record.md.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Export(Export),
    Merge(Merge),
    Show(Show),
}

/// Merge the records of a sweep's shards into one directory, as if the sweep had not been split.
///
/// All that is there is checked first: whether the directories are of the same sweep, every record whole and of its run,
/// and alike where several have one. Then OUT appears at once, or not at all. If runs are missing in all of them, this is
/// said, with exit code 1, but what is there is merged: the sweep's command with --record OUT does the others.
#[derive(ClapArgs)]
struct Merge {
    /// The directory to make. It may be there if it is empty.
    out: PathBuf,
    /// Directories of records: one per shard, or merged before.
    #[arg(value_name = "IN", required = true)]
    inputs: Vec<PathBuf>,
}

/// Print what a run has sampled.
///
/// The samples are beside the record in Parquet files, which pandas, polars, DuckDB and R read; this is for what does not.
#[derive(ClapArgs)]
struct Export {
    /// A record, also one of `ekiden measure client`, or the directory of a sweep's records.
    #[arg(value_name = "FILE|DIR")]
    place: PathBuf,
    /// As comma-separated values, with a line of names first.
    #[arg(long, value_enum, value_name = "SERIES", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "samples", required = true)]
    csv: What,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// The state of the senders.
    Samples,
    /// The queues of links and tunnels.
    Queues,
}

/// Show what came out of a run or of a sweep, as the table that was there at its end.
#[derive(ClapArgs)]
struct Show {
    /// A record, or the directory of a sweep's records.
    #[arg(value_name = "FILE|DIR")]
    place: PathBuf,
    /// Print the record, or what the table would hold, as JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    width: Width,
}

/// Does what the command line says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.action {
        Action::Export(args) if args.place.is_dir() => export_sweep(&args.place, args.csv),
        Action::Export(args) => export(&args.place, args.csv),
        Action::Merge(args) => merge(args),
        Action::Show(Show { place, json, width }) if place.is_dir() => show_sweep(place, *json, *width),
        Action::Show(Show { place, json, .. }) => {
            show_record(&Record::read(place).map_err(|error| whose(place, "record show", error))?, *json)
        }
    }
}

fn export(file: &Path, what: What) -> anyhow::Result<()> {
    let (text, name) = (Record::read_text(file)?, file.display().to_string());
    if let (What::Samples, Some(measurement)) = (what, Measurement::parse(&text, &name)) {
        let rows = measurement?.samples(file)?;
        return out::csv(|out| write_csv(rows, out));
    }
    let record = Record::parse(&text, &name).map_err(|error| whose(file, "record export", error))?;
    match what {
        What::Samples => {
            let rows = record.samples(file)?;
            out::csv(|out| write_csv(rows, out))
        }
        What::Queues => {
            let rows = record.queues(file)?;
            out::csv(|out| write_csv(rows, out))
        }
    }
}

/// The series of all runs that have a record, one below the other: each line behind its run's values and its record's name.
fn export_sweep(directory: &Path, what: What) -> anyhow::Result<()> {
    let plan = read_sweep(directory, "record export")?;
    match what {
        What::Samples => out::csv(|out| of_runs(&plan, Record::samples, out)),
        What::Queues => out::csv(|out| of_runs(&plan, Record::queues, out)),
    }
}

fn of_runs<R: Row>(
    plan: &Plan,
    series: impl Fn(&Record, &Path) -> Result<Rows<R>, ekiden_record::Error>,
    out: &mut impl Write,
) -> Result<(), ekiden_record::Error> {
    let mut columns = plan.keys.clone();
    columns.push("record".into());
    write_csv_head::<R>(&columns, out)?;
    for (run, record) in plan.runs.iter().zip(summaries(plan)) {
        let Some(record) = record else { continue };
        let mut before: Vec<_> =
            plan.points[run.point].settings().iter().map(|setting| setting.value.clone()).collect();
        before.push(run.name().to_string_lossy().into_owned());
        write_csv_rows(&before, series(&record, &run.record)?, out)?;
    }
    Ok(())
}

/// The records of a sweep's runs. A file that is no record of its run is left out, with a word.
fn summaries(plan: &Plan) -> Vec<Option<Record>> {
    let all = plan.summaries();
    let missing = plan.runs.iter().zip(&all).filter(|(run, record)| record.is_none() && run.record.exists());
    for (run, _) in missing {
        match Record::read(&run.record) {
            Err(error) => out::note(format_args!("ekiden: warning: {error}; it is left out")),
            Ok(_) => {
                let at = run.record.display();
                out::note(format_args!("ekiden: warning: {at} is a record of another scenario; it is left out"));
            }
        }
    }
    all
}

fn merge(args: &Merge) -> anyhow::Result<()> {
    let out = args.out.display();
    args.inputs.iter().try_for_each(|directory| of_sweep(directory))?;
    let merged = ekiden_sweep::merge(&args.out, &args.inputs)?;
    let (all, missing) = (merged.runs, merged.missing);
    if missing.is_empty() {
        return out::line(format_args!("{all} runs: {out}"));
    }
    let more = missing.len().saturating_sub(NAMED_MOST);
    let mut named = missing[..missing.len() - more].join(", ");
    if more > 0 {
        named += &format!(" and {more} more");
    }
    bail!("{out} has {} of {all} runs; missing: {named}", all - missing.len())
}

/// A sweep for `command`. A directory with something else is named as that.
fn read_sweep(directory: &Path, command: &'static str) -> anyhow::Result<Plan> {
    Plan::read(directory, directory).map_err(|error| match whose(directory, command, error) {
        others if others.is::<OthersFile>() => others,
        error => of_sweep(directory).err().map_or(error, anyhow::Error::from),
    })
}

/// Refuses a directory in which there are records of single runs, and no sweep.
fn of_sweep(directory: &Path) -> Result<(), ConfigError> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    let files = entries.flatten().map(|entry| entry.path());
    let mut records: Vec<PathBuf> = files.filter(|file| is_file(file)).collect();
    records.sort();
    match &records[..] {
        [first, ..] if !Index::place(directory).exists() => {
            let number = if records.len() == 1 { "1 record".into() } else { format!("{} records", records.len()) };
            let first = first.display();
            let reason = format!("it has {number} and no sweep; `ekiden record show {first}` shows one record");
            Err(ConfigError::whole(directory, reason))
        }
        _ => Ok(()),
    }
}

fn show_sweep(directory: &Path, as_json: bool, width: Width) -> anyhow::Result<()> {
    let plan = read_sweep(directory, "record show")?;
    sweep::show(&plan, &summaries(&plan), as_json, width)
}

fn show_record(record: &Record, as_json: bool) -> anyhow::Result<()> {
    match as_json {
        true => out::text(record.to_json()),
        false => out::text(sweep::flows(record)),
    }
}
