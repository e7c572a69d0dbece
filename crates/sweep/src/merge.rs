//! Merging: the records of a sweep's shards in one directory, as if it had not been split.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use ekiden_files::{ReadError, TargetError, check_target};
use ekiden_record::{Error as RecordError, Record, series_files};

use crate::error::Error;
use crate::index::Index;
use crate::plan::{Plan, Run, is_file};

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// How many runs the sweep has.
    pub runs: usize,
    /// The names of the runs that have no record in any directory.
    pub missing: Vec<String>,
}

/// Merges the records of the directories `inputs` into `out`, which must be missing or empty, as if their sweep had not been
/// split. It first checks that the directories are of the same sweep, that every record is whole and of its run, and that
/// records of the same run are alike. `out` is created atomically.
///
/// # Errors
/// If `out` is in the way or cannot be written, or what is there does not belong together.
pub fn merge(out: &Path, inputs: &[PathBuf]) -> Result<Merged, Error> {
    let is_there = fs::exists(out).map_err(|source| unreadable(out, source))?;
    if is_there && !fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_none()) {
        return Err(Error::Exists { out: out.into() });
    }
    if !is_there {
        check_target(out, false).map_err(|error| match error {
            TargetError::Failed(source) => unwritable(out, source),
            error => unwritable(out, io::Error::other(error)),
        })?;
    }
    let [first, others @ ..] = inputs else { return Ok(Merged { runs: 0, missing: Vec::new() }) };
    let plan = Plan::read(first, out)?;
    for other in others {
        same_sweep(first, &plan, other, &Plan::read(other, out)?)?;
    }
    for input in inputs {
        no_strangers(input, &plan)?;
    }
    let partial = Partial::new(out)?;
    plan.index.write(&partial.directory)?;
    let mut missing = Vec::new();
    for run in &plan.runs {
        match find(inputs, run, &plan.index)? {
            Some((text, record, file)) => {
                partial.write(run.name(), &text)?;
                partial.copy_series(run, &record, &file)?;
            }
            None => missing.push(run.label.clone()),
        }
    }
    partial.become_whole(out)?;
    Ok(Merged { runs: plan.runs.len(), missing })
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
fn no_strangers(directory: &Path, plan: &Plan) -> Result<(), Error> {
    let unreadable = |source| unreadable(directory, source);
    let known: HashSet<_> = plan.runs.iter().map(Run::name).collect();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if is_file(&file) && file.file_name().is_some_and(|name| !known.contains(name)) {
            return Err(Error::Stranger { file, index: Index::place(directory) });
        }
    }
    Ok(())
}

/// A run's record, its text and its file, from any of the directories. All copies must be whole, of the run, and alike apart from
/// where and when they were made; that their series are, their records say.
fn find(inputs: &[PathBuf], run: &Run, index: &Index) -> Result<Option<(String, Record, PathBuf)>, Error> {
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
            return Err(Error::OtherRun { file, run: run.label.clone() });
        }
        match &found {
            None => found = Some((file, text, record)),
            Some((first, _, one)) => {
                record.manifest.command.clone_from(&one.manifest.command);
                record.manifest.started_unix_ms = one.manifest.started_unix_ms;
                if record != *one {
                    return Err(Error::Differ { first: first.clone(), other: file });
                }
            }
        }
    }
    Ok(found.map(|(file, text, record)| (text, record, file)))
}

/// A temporary directory beside `out`, removed unless it is renamed to it.
struct Partial {
    directory: PathBuf,
}

impl Partial {
    fn new(out: &Path) -> Result<Self, Error> {
        // Without what a name such as `all/` ends with.
        let mut name: OsString = out.components().collect::<PathBuf>().into();
        name.push(".partial");
        let directory = PathBuf::from(name);
        match fs::create_dir(&directory) {
            Ok(()) => Ok(Self { directory }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Error::AtWork { partial: directory }),
            Err(source) => Err(unwritable(&directory, source).into()),
        }
    }

    fn write(&self, name: &std::ffi::OsStr, text: &str) -> Result<(), RecordError> {
        let file = self.directory.join(name);
        fs::write(&file, text).map_err(|source| unwritable(&file, source))
    }

    /// Copies the series beside a run's record, which must be as the record says.
    fn copy_series(&self, run: &Run, record: &Record, from: &Path) -> Result<(), RecordError> {
        if record.series.is_none() {
            return Ok(());
        }
        record.samples(from)?;
        record.queues(from)?;
        let to = self.directory.join(run.name());
        for (from, to) in series_files(from).into_iter().zip(series_files(&to)) {
            match fs::copy(&from, &to) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                copied => {
                    copied.map_err(|source| unwritable(&to, source))?;
                }
            }
        }
        Ok(())
    }

    /// Renames it to `out`, which is empty or missing.
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

fn unreadable(file: &Path, source: io::Error) -> RecordError {
    RecordError::Unreadable { file: file.display().to_string(), source: source.into() }
}
