//! Records as files.

use std::io;
use std::path::Path;

use ekiden_files::{FileKind, ReadError, read, write};
use serde::{Deserialize, Serialize};

use crate::{Disturbance, FORMAT, Record};

/// Why a record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why not.
        source: ReadError,
    },
    /// The file cannot be written.
    #[error("{file}: cannot be written: {source}")]
    Unwritable {
        /// The file.
        file: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is not a record.
    #[error("{file}: not a record: {source}")]
    NotARecord {
        /// The file.
        file: String,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// The file was written by a newer ekiden.
    #[error("{file}: record format {found}, but this ekiden reads up to {FORMAT}; use a newer one")]
    TooNew {
        /// The file.
        file: String,
        /// Its format.
        found: u32,
    },
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// If the file cannot be read, is no record, or has a newer format.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(&Self::read_text(path)?, &path.display().to_string())
    }

    /// The text of a record's file, whatever it says.
    ///
    /// # Errors
    /// [`Error::Unreadable`].
    pub fn read_text(path: &Path) -> Result<String, Error> {
        read(path, FileKind::Record).map_err(|source| Error::Unreadable { file: path.display().to_string(), source })
    }

    /// Reads a record's text; `file` is the name used in errors.
    ///
    /// # Errors
    /// As [`Record::read`], but for reading the file.
    pub fn parse(text: &str, file: &str) -> Result<Self, Error> {
        /// The format is read first: a newer record may differ in everything else.
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let not_a_record = |source| Error::NotARecord { file: file.into(), source };
        let Version { format: found } = serde_json::from_str(text).map_err(not_a_record)?;
        if found > FORMAT {
            return Err(Error::TooNew { file: file.into(), found });
        }
        serde_json::from_str(text).map_err(not_a_record)
    }

    /// Writes the record, whole or not at all: beside `path` first, then renamed. Makes missing directories.
    ///
    /// # Errors
    /// If a directory or the file cannot be made.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let unwritable = |source| Error::Unwritable { file: path.display().to_string(), source };
        write(path, self.to_json().as_bytes()).map_err(unwritable)
    }

    /// The record as JSON text. Its last field, `disturbed`, is [`Record::disturbance`]: readers in other languages
    /// need no rule of their own. It is not read back: a record that is read and written again is judged by today's
    /// rule.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Shown<'a> {
            #[serde(flatten)]
            record: &'a Record,
            disturbed: Option<Disturbance>,
        }
        let shown = Shown { record: self, disturbed: self.disturbance() };
        // Only maps with non-text keys and failing `Serialize` implementations can fail, and there are none here.
        serde_json::to_string_pretty(&shown).unwrap_or_default() + "\n"
    }
}
