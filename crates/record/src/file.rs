//! Records as files, and the files of their series beside them.

use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use ekiden_files::{FileKind, ReadError, open, read, write};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::sample::{QueueSample, Row, Sample};
use crate::series::{SeriesFile, SeriesFiles};
use crate::table::TableReader;
use crate::{Disturbance, FORMAT, MEASUREMENT_FORMAT, Measurement, Record};

/// From this length on, in bytes, a record is looked through before it is taken into memory.
const LONG: u64 = 16 << 20;

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
    #[error("{file}: record format {found}, but this ekiden reads up to {reads}; use a newer one")]
    TooNew {
        /// The file.
        file: String,
        /// Its format.
        found: u32,
        /// The newest that this program reads.
        reads: u32,
    },
    /// The record was written without series.
    #[error("{file}: it has no series of its run's samples")]
    NoSeries {
        /// The record.
        file: String,
    },
    /// A file of a series is not as it was when its record was written.
    #[error("{file}: not the {series} that {record} goes with: {reason}")]
    OtherSeries {
        /// The file.
        file: String,
        /// Which series it should be.
        series: &'static str,
        /// The record.
        record: String,
        /// What is wrong.
        reason: String,
    },
    /// A sample cannot be passed on.
    #[error("cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// Where the series `R` of the record `record` is: beside it, and with its name.
pub fn series_of<R: Row>(record: &Path) -> PathBuf {
    record.with_extension(format!("{}.parquet", R::SERIES))
}

/// Where all series of the record `record` are, if it has them.
pub fn series_files(record: &Path) -> [PathBuf; 2] {
    [series_of::<Sample>(record), series_of::<QueueSample>(record)]
}

/// Takes away what a process has left that was killed during a run whose record would be `record`.
pub fn remove_partial(record: &Path) {
    ekiden_files::remove_partial(record);
    for series in series_files(record) {
        ekiden_files::remove_partial(&series);
    }
}

/// The samples of a series, in their order. The first error is the last item.
pub struct Rows<R> {
    table: Option<TableReader<R>>,
    damaged: Damaged,
}

/// What to say of a file that is not as it should be.
struct Damaged {
    file: PathBuf,
    series: &'static str,
    record: String,
}

impl Damaged {
    fn error(&self, reason: impl ToString) -> Error {
        let file = self.file.display().to_string();
        Error::OtherSeries { file, series: self.series, record: self.record.clone(), reason: reason.to_string() }
    }
}

impl<R: Row> Rows<R> {
    /// `record` is the path of the record.
    fn open(expected: Option<&SeriesFile>, record: &Path) -> Result<Self, Error> {
        let (file, shown) = (series_of::<R>(record), record.display().to_string());
        let damaged = Damaged { file, series: R::SERIES, record: shown };
        let table = match expected {
            Some(expected) => Some(verified(expected, &damaged)?),
            None => None,
        };
        Ok(Self { table, damaged })
    }
}

/// Opens a table whose file has the very bytes that were written, so that whatever it says can be believed.
fn verified<R: Row>(expected: &SeriesFile, damaged: &Damaged) -> Result<TableReader<R>, Error> {
    let refused = |source: ReadError| match source {
        ReadError::Failed(error) if error.kind() == io::ErrorKind::NotFound => {
            damaged.error("it is missing; it belongs beside the record")
        }
        source => Error::Unreadable { file: damaged.file.display().to_string(), source },
    };
    let unreadable = |source: io::Error| refused(source.into());
    let opened = open(&damaged.file, FileKind::Record).map_err(refused)?;
    let bytes = opened.metadata().len();
    let mut file = opened.into_file();
    if bytes != expected.bytes {
        return Err(damaged.error(format!("it has {bytes} bytes of {}", expected.bytes)));
    }
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece).map_err(unreadable)? {
            0 => break,
            count => hash.update(&piece[..count]),
        }
    }
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if digits != expected.sha256 {
        return Err(damaged.error("its content is another"));
    }
    file.rewind().map_err(unreadable)?;
    TableReader::open(file).map_err(|error| damaged.error(error))
}

impl<R: Row> Iterator for Rows<R> {
    type Item = Result<R, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.table.as_mut()?.next() {
            Ok(row) => row.map(Ok),
            Err(error) => {
                self.table = None;
                Some(Err(self.damaged.error(error)))
            }
        }
    }
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// If the file cannot be read, is no record, or has a newer format.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(&Self::read_text(path)?, &path.display().to_string())
    }

    /// The text of a record's file, whatever it says. A long one is held in memory only if it is JSON.
    ///
    /// # Errors
    /// [`Error::Unreadable`], and [`Error::NotARecord`].
    pub fn read_text(path: &Path) -> Result<String, Error> {
        let unreadable = |source| Error::Unreadable { file: path.display().to_string(), source };
        let opened = open(path, FileKind::Record).map_err(unreadable)?;
        if (LONG..=FileKind::Record.bytes_most()).contains(&opened.metadata().len()) {
            let json = BufReader::new(opened.into_file().take(FileKind::Record.bytes_most()));
            serde_json::from_reader::<_, IgnoredAny>(json)
                .map_err(|source| Error::NotARecord { file: path.display().to_string(), source })?;
        }
        read(path, FileKind::Record).map_err(unreadable)
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
            return Err(Error::TooNew { file: file.into(), found, reads: FORMAT });
        }
        serde_json::from_str(text).map_err(not_a_record)
    }

    /// The samples of the senders, ordered by time. `path` is the record's file.
    ///
    /// # Errors
    /// If the record has no series, or the file beside it is missing, cannot be read, or is not the one that was written.
    pub fn samples(&self, path: &Path) -> Result<Rows<Sample>, Error> {
        Rows::open(self.series(path)?.samples.as_ref(), path)
    }

    /// The samples of the queues, ordered by time. `path` is the record's file.
    ///
    /// # Errors
    /// As [`Record::samples`].
    pub fn queues(&self, path: &Path) -> Result<Rows<QueueSample>, Error> {
        Rows::open(self.series(path)?.queues.as_ref(), path)
    }

    fn series(&self, path: &Path) -> Result<&SeriesFiles, Error> {
        self.series.as_ref().ok_or_else(|| Error::NoSeries { file: path.display().to_string() })
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

impl Measurement {
    /// Reads the text of a measurement's record; `file` is the name used in errors. `None` if it is another file: without
    /// `measurement_format`.
    ///
    /// # Errors
    /// If it is damaged, or has a newer format.
    pub fn parse(text: &str, file: &str) -> Option<Result<Self, Error>> {
        #[derive(Deserialize)]
        struct Version {
            measurement_format: u32,
        }
        let Version { measurement_format: found } = serde_json::from_str(text).ok()?;
        if found > MEASUREMENT_FORMAT {
            return Some(Err(Error::TooNew { file: file.into(), found, reads: MEASUREMENT_FORMAT }));
        }
        Some(serde_json::from_str(text).map_err(|source| Error::NotARecord { file: file.into(), source }))
    }

    /// The samples of the senders, ordered by time. `path` is the record's file.
    ///
    /// # Errors
    /// As [`Record::samples`].
    pub fn samples(&self, path: &Path) -> Result<Rows<Sample>, Error> {
        let series = self.series.as_ref().ok_or_else(|| Error::NoSeries { file: path.display().to_string() })?;
        Rows::open(series.samples.as_ref(), path)
    }
}
