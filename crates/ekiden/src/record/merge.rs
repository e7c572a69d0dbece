//! `ekiden record merge`: the records of a sweep's shards in one directory, as if it had not been split.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use ekiden_files::ReadError;
use ekiden_record::{Error as RecordError, Record};

use super::planned;
use crate::out;
use crate::sweep::{Index, Plan, Run, is_file};

/// How many missing runs are named.
const NAMED_MOST: usize = 5;

/// Bring the records of a sweep's shards together in one directory, as if the sweep had not been split.
///
/// All that is there is checked first: whether the directories are of the same sweep, every record whole and of its run,
/// and alike where several have one. Then OUT appears at once, or not at all. If runs are missing in all of them, this is
/// said, with exit code 1, but what is there is merged: the sweep's command with --record OUT does the others.
#[derive(ClapArgs)]
pub struct Args {
    /// The directory to make. It may be there if it is empty.
    out: PathBuf,
    /// Directories of records: one per shard, or merged before.
    #[arg(value_name = "IN", required = true)]
    inputs: Vec<PathBuf>,
}

/// Why records cannot be merged, or are not complete.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: is there already; name a new directory", out.display())]
    Exists { out: PathBuf },
    #[error("{}: is there already: another merge is at work, or was killed; if so, remove it", partial.display())]
    AtWork { partial: PathBuf },
    #[error("{} and {} are not of the same sweep: {reason}", first.display(), other.display())]
    OtherSweep { first: PathBuf, other: PathBuf, reason: String },
    #[error("{}: not the record of a run of {}", file.display(), index.display())]
    Stranger { file: PathBuf, index: PathBuf },
    #[error("{}: a record of another scenario than the sweep's run '{run}'", file.display())]
    OtherRun { file: PathBuf, run: String },
    #[error("{} and {} are records of the same run, and differ", first.display(), other.display())]
    Differ { first: PathBuf, other: PathBuf },
    #[error("{} has {there} of {all} runs; missing: {missing}", out.display())]
    Incomplete { out: PathBuf, there: usize, all: usize, missing: String },
}

impl Error {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Incomplete { .. } => 1,
            Self::Exists { .. } | Self::AtWork { .. } => 2,
            Self::OtherSweep { .. } | Self::Stranger { .. } | Self::OtherRun { .. } | Self::Differ { .. } => 3,
        }
    }
}

/// Does what the command line says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let Args { out, inputs } = args;
    if fs::exists(out)? && !fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_none()) {
        return Err(Error::Exists { out: out.clone() }.into());
    }
    let [first, others @ ..] = &inputs[..] else { return Ok(()) };
    let plan = planned(first, out)?;
    for other in others {
        same_sweep(first, &plan, other, &planned(other, out)?)?;
    }
    for input in inputs {
        no_strangers(input, &plan)?;
    }
    let partial = Partial::new(out)?;
    plan.index.write(&partial.directory, None)?;
    let mut missing = Vec::new();
    for run in &plan.runs {
        match find(inputs, run, &plan.index)? {
            Some(text) => partial.write(run.name(), &text)?,
            None => missing.push(run.label.as_str()),
        }
    }
    partial.become_whole(out)?;
    let (there, all) = (plan.runs.len() - missing.len(), plan.runs.len());
    if missing.is_empty() {
        return out::line(format_args!("{all} runs: {}", out.display()));
    }
    let more = missing.len().saturating_sub(NAMED_MOST);
    let mut named = missing[..missing.len() - more].join(", ");
    if more > 0 {
        named += &format!(" and {more} more");
    }
    Err(Error::Incomplete { out: out.clone(), there, all, missing: named }.into())
}

/// Whether two directories are of the same sweep: the same runs of the same scenarios, by the same means.
fn same_sweep(first: &Path, a: &Plan, other: &Path, b: &Plan) -> Result<(), Error> {
    let differs = |reason| Err(Error::OtherSweep { first: first.into(), other: other.into(), reason });
    if a.index.producer != b.index.producer {
        return differs(format!("one is of the producer '{}', the other of '{}'", a.index.producer, b.index.producer));
    }
    if a.index.resolution != b.index.resolution {
        let said =
            |index: &Index| index.resolution.map_or("no resolution".into(), |time| format!("a resolution of {time}"));
        return differs(format!("one has {}, the other {}", said(&a.index), said(&b.index)));
    }
    if let Some((one, two)) = a.runs.iter().zip(&b.runs).find(|(one, two)| one.name() != two.name()) {
        return differs(format!("one has a run '{}' where the other has '{}'", one.label, two.label));
    }
    if a.runs.len() != b.runs.len() {
        return differs(format!("one has {} runs, the other {}", a.runs.len(), b.runs.len()));
    }
    match a.runs.iter().zip(&b.runs).find(|(one, two)| one.scenario != two.scenario) {
        None => Ok(()),
        Some((one, two)) => {
            let mut lines = one.scenario.lines().zip(two.scenario.lines()).filter(|(one, two)| one != two);
            let (one, two) = lines.next().unwrap_or(("more", "less"));
            differs(format!("one's scenario says '{one}' where the other's says '{two}'"))
        }
    }
}

/// Whether all records in a directory are of the sweep, as far as their names tell.
fn no_strangers(directory: &Path, plan: &Plan) -> anyhow::Result<()> {
    let unreadable =
        |source: io::Error| RecordError::Unreadable { file: directory.display().to_string(), source: source.into() };
    let known: HashSet<_> = plan.runs.iter().map(Run::name).collect();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if is_file(&file) && file.file_name().is_some_and(|name| !known.contains(name)) {
            return Err(Error::Stranger { file, index: Index::place(directory) }.into());
        }
    }
    Ok(())
}

/// The text of a run's record, wherever it is. All that there are must be whole, of the run, and alike but for where and
/// when they were made.
fn find(inputs: &[PathBuf], run: &Run, index: &Index) -> anyhow::Result<Option<String>> {
    let mut found: Option<(PathBuf, String, Record)> = None;
    for input in inputs {
        let file = input.join(run.name());
        let text = match Record::read_text(&file) {
            Ok(text) => text,
            Err(RecordError::Unreadable { source: ReadError::Failed(error), .. })
                if error.kind() == ErrorKind::NotFound =>
            {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let mut record = Record::parse(&text, &file.display().to_string())?;
        if !run.has(index, &record) {
            return Err(Error::OtherRun { file, run: run.label.clone() }.into());
        }
        match &found {
            None => found = Some((file, text, record)),
            Some((first, _, one)) => {
                record.manifest.command.clone_from(&one.manifest.command);
                record.manifest.started_unix_ms = one.manifest.started_unix_ms;
                if record != *one {
                    return Err(Error::Differ { first: first.clone(), other: file }.into());
                }
            }
        }
    }
    Ok(found.map(|(_, text, _)| text))
}

/// A directory in the making, beside the one that it becomes. It goes away unless it does.
struct Partial {
    directory: PathBuf,
}

impl Partial {
    fn new(out: &Path) -> anyhow::Result<Self> {
        if let Some(parent) = out.parent() {
            fs::create_dir_all(parent).map_err(|source| unwritable(parent, source))?;
        }
        // Without what a name such as `all/` ends with.
        let mut name: OsString = out.components().collect::<PathBuf>().into();
        name.push(".partial");
        let directory = PathBuf::from(name);
        match fs::create_dir(&directory) {
            Ok(()) => Ok(Self { directory }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Error::AtWork { partial: directory }.into()),
            Err(source) => Err(unwritable(&directory, source).into()),
        }
    }

    fn write(&self, name: &std::ffi::OsStr, text: &str) -> Result<(), RecordError> {
        let file = self.directory.join(name);
        fs::write(&file, text).map_err(|source| unwritable(&file, source))
    }

    /// Takes the place of `out`, which is empty or not there.
    fn become_whole(self, out: &Path) -> Result<(), RecordError> {
        fs::rename(&self.directory, out).map_err(|source| unwritable(out, source))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn unwritable(file: &Path, source: io::Error) -> RecordError {
    RecordError::Unwritable { file: file.display().to_string(), source }
}
