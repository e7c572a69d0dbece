//! `ekiden record`: what runs have left.

mod merge;

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand};
use ekiden_record::Record;

use crate::out;
use crate::sweep::{self, Index, Plan};

pub use merge::Error as MergeError;

/// Show records again, and bring those of a sweep's shards together.
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
    Merge(merge::Args),
    Show(Show),
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
}

/// Does what the command line says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.action {
        Action::Merge(args) => merge::run(args),
        Action::Show(Show { place, json }) if place.is_dir() => show_sweep(place, *json),
        Action::Show(Show { place, json }) => show_record(&Record::read(place)?, *json),
    }
}

fn show_sweep(directory: &Path, as_json: bool) -> anyhow::Result<()> {
    let plan = planned(directory, directory)?;
    let records: Vec<_> = plan.runs.iter().map(|run| run.summary(&plan.index)).collect();
    sweep::show(&plan, &records, as_json)
}

fn show_record(record: &Record, as_json: bool) -> anyhow::Result<()> {
    match as_json {
        true => out::text(record.to_json()),
        false => out::text(sweep::flows(record)),
    }
}

/// The sweep that `directory` is of, with records in `place`.
fn planned(directory: &Path, place: &Path) -> anyhow::Result<Plan> {
    let index = Index::read(directory)?;
    Plan::new(index, &format!("{}, the scenario in it", Index::place(directory).display()), place)
}
