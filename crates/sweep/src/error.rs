//! Errors of sweeps, and their kinds.

use std::io;
use std::path::PathBuf;

use ekiden_files::ReadError;

use crate::FORMAT;

/// Why a sweep cannot be read, run or merged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The description of a directory's sweep cannot be read.
    #[error("{}: {source}; so it is not known which sweep {} is of", file.display(), directory.display())]
    Unreadable {
        /// The description.
        file: PathBuf,
        /// The directory of records.
        directory: PathBuf,
        /// Why not.
        source: ReadError,
    },
    /// A file is not the description of a sweep.
    #[error("{}: not the description of a sweep: {reason}", file.display())]
    NoSweep {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A sweep's description was written by a newer ekiden.
    #[error("{}: format {found}, but this ekiden reads up to {FORMAT}; use a newer one", file.display())]
    TooNew {
        /// The description.
        file: PathBuf,
        /// Its format.
        found: u32,
    },
    /// A sweep's description cannot be written.
    #[error("{}: cannot be written: {source}", file.display())]
    Unwritable {
        /// The description.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The scenario, or what varies of it, is wrong.
    #[error(transparent)]
    Scenario(#[from] ekiden_scenario::Error),
    /// Two runs would have the same record's name.
    #[error("'{first}' and '{other}' would have the same record, {}", record.display())]
    SameRecord {
        /// A run.
        first: String,
        /// The other.
        other: String,
        /// The place of both records.
        record: PathBuf,
    },
    /// A run cannot be started, and so no other.
    #[error("cannot start a run: {0}")]
    Start(#[source] io::Error),
    /// A signal has ended the sweep.
    #[error("interrupted with {done} of {runs} runs done; the same command does the others")]
    Interrupted {
        /// How many runs have left their record.
        done: usize,
        /// How many there are.
        runs: usize,
        /// The signal's number.
        signal: i32,
    },
    /// The directory for the merged records exists and is not empty.
    #[error("{}: is there already; name a new directory", out.display())]
    Exists {
        /// The place.
        out: PathBuf,
    },
    /// The temporary directory of a merge exists.
    #[error("{}: is there already: another merge is at work, or was killed; if so, remove it", partial.display())]
    AtWork {
        /// The place.
        partial: PathBuf,
    },
    /// Two directories are not of the same sweep.
    #[error("{} and {} are not of the same sweep: {reason}", first.display(), other.display())]
    OtherSweep {
        /// A directory.
        first: PathBuf,
        /// The other.
        other: PathBuf,
        /// Where they differ.
        reason: String,
    },
    /// A record in a sweep's directory belongs to none of its runs.
    #[error("{}: not the record of a run of {}", file.display(), index.display())]
    Stranger {
        /// The record.
        file: PathBuf,
        /// The sweep's description.
        index: PathBuf,
    },
    /// A record has the name of a run, but is of another scenario.
    #[error("{}: a record of another scenario than the sweep's run '{run}'", file.display())]
    OtherRun {
        /// The record.
        file: PathBuf,
        /// The run.
        run: String,
    },
    /// Two records of the same run are not alike.
    #[error("{} and {} are records of the same run, and differ", first.display(), other.display())]
    Differ {
        /// A record.
        first: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// A record cannot be read or written.
    #[error(transparent)]
    Record(#[from] ekiden_record::Error),
}

/// The kind of an [`Error`]: who can correct it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The owner of the files: one is wrong, unreadable, unwritable or in the way.
    File,
    /// Anything else.
    Other,
}

impl Error {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::SameRecord { .. } | Self::Start(_) | Self::Interrupted { .. } => ErrorKind::Other,
            Self::Exists { .. }
            | Self::AtWork { .. }
            | Self::Unreadable { .. }
            | Self::NoSweep { .. }
            | Self::TooNew { .. }
            | Self::Unwritable { .. }
            | Self::Scenario(_)
            | Self::OtherSweep { .. }
            | Self::Stranger { .. }
            | Self::OtherRun { .. }
            | Self::Differ { .. }
            | Self::Record(_) => ErrorKind::File,
        }
    }
}
