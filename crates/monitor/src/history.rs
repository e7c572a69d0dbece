//! The history: measurements in one SQLite file.
//!
//! A monitor holds a lock of its own (flock) on the file as long as it runs; a reader needs none. Between two writes the
//! file is complete, and no other file stands beside it; if a writer is killed and leaves one, the next writer undoes its
//! work.
//!
//! A file of another program, or of a version that this program does not know, is refused.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{AccessFlags, eaccess};
use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use crate::measurement::Measurement;

mod row;

/// "ekdM" (PRAGMA application_id).
const APPLICATION: i32 = 0x656b_644d;
/// The version of the tables (PRAGMA user_version).
const VERSION: i32 = 1;
/// The timeout of a writer that waits for readers, and of a reader that waits for the writer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first bytes of every SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

const TABLES: &str = "
CREATE TABLE measurement (
    id INTEGER PRIMARY KEY,
    round_unix_ms INTEGER NOT NULL,
    started_unix_ms INTEGER NOT NULL,
    target TEXT NOT NULL,
    server TEXT NOT NULL,
    via TEXT,
    direction TEXT NOT NULL,
    failure TEXT,
    received_bit_s INTEGER,
    received_bytes INTEGER,
    duration_us INTEGER,
    rtt_base_us INTEGER,
    rtt_loaded_us INTEGER,
    retransmits INTEGER,
    limited_application REAL,
    limited_receive_window REAL,
    limited_send_buffer REAL,
    limited_path REAL
) STRICT;
CREATE INDEX measurement_started ON measurement (started_unix_ms);
CREATE TABLE tally (
    target TEXT PRIMARY KEY,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// A history, open.
#[derive(Debug)]
pub struct History {
    /// Before the lock: closing any descriptor of the file would take SQLite's own locks.
    connection: Connection,
    lock: Option<Flock<File>>,
    file: PathBuf,
}

/// How often a target was measured since the history began, including deleted measurements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The target's name.
    pub target: String,
    /// Measurements that gave a result.
    pub succeeded: u64,
    /// Measurements that failed.
    pub failed: u64,
}

/// Why a history cannot be used. The message names the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", file.display())]
pub struct HistoryError {
    file: PathBuf,
    kind: HistoryErrorKind,
}

/// What is wrong with a history.
#[derive(Debug, thiserror::Error)]
enum HistoryErrorKind {
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    #[error("is no history of a monitor: it is not a SQLite file")]
    NotSqlite,
    #[error("is no history of a monitor: it is another program's SQLite file")]
    Others,
    #[error("is empty: no monitor has written it yet")]
    Empty,
    #[error(
        "is a history of version {0}, and this program knows version {VERSION}; name another file, or use the program that wrote it"
    )]
    Version(i32),
    #[error("another monitor writes this history; end it first, or name another file")]
    Held,
    #[error("has been removed or replaced while the monitor ran")]
    Gone,
    #[error("the disk is full")]
    Full,
    #[error("another program holds this file locked")]
    Busy,
    #[error("its monitor was killed while it wrote; the next monitor that runs with this history repairs it")]
    Unfinished,
    #[error("a row of it is unusable: {0}")]
    Row(String),
    #[error("{0}")]
    Sqlite(String),
}

impl HistoryErrorKind {
    fn of(error: &rusqlite::Error) -> Self {
        let code = error.sqlite_error_code();
        match code {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::NotADatabase) => Self::NotSqlite,
            // To read the file, the journal beside it would first have to be written into it.
            Some(ErrorCode::ReadOnly) => Self::Unfinished,
            _ => match error {
                rusqlite::Error::SqliteFailure(_, Some(message)) => Self::Sqlite(one_line(message)),
                rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::IntegralValueOutOfRange(..) => Self::Row(one_line(&error.to_string())),
                other => Self::Sqlite(one_line(&other.to_string())),
            },
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

impl HistoryError {
    /// Whether it may work later: the disk is full, or another program holds the file for a while.
    pub fn may_pass(&self) -> bool {
        !matches!(self.kind, HistoryErrorKind::Gone)
    }

    /// Whether the file or its disk is unavailable now. A later start may succeed with the same configuration.
    pub fn is_lack(&self) -> bool {
        matches!(
            self.kind,
            HistoryErrorKind::Held | HistoryErrorKind::Gone | HistoryErrorKind::Full | HistoryErrorKind::Busy
        )
    }

    /// Whether another monitor writes it, which may be about to end.
    pub fn is_held(&self) -> bool {
        matches!(self.kind, HistoryErrorKind::Held)
    }
}

impl History {
    /// Opens a history to write it, and makes it if there is none.
    ///
    /// # Errors
    /// If it is something else or of another version, or another monitor writes it.
    pub fn open(file: &Path) -> Result<Self, HistoryError> {
        let failed = |kind| HistoryError { file: file.into(), kind };
        let options = OpenOptions::new().read(true).write(true).create(true).custom_flags(libc_nonblock()).clone();
        let was_there = file.symlink_metadata().is_ok();
        let opened = options.open(file).map_err(|error| failed(HistoryErrorKind::Open(error)))?;
        let mut lock = match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => return Err(failed(HistoryErrorKind::Held)),
            Err((_, error)) => return Err(failed(HistoryErrorKind::Open(error.into()))),
        };
        let is_new = looks_empty(&mut lock).map_err(failed)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = connect(file, flags).map_err(failed)?;
        if is_new {
            let made = make_tables(&mut connection);
            if made.is_err() && !was_there {
                // As on a full disk: an empty file is no history.
                let _ = std::fs::remove_file(file);
            }
            made.map_err(|error| failed(HistoryErrorKind::of(&error)))?;
        }
        check_version(&connection).map_err(failed)?;
        Ok(Self { connection, lock: Some(lock), file: file.into() })
    }

    /// Whether a monitor could write this history, as far as that can be told without writing: another one may do so now.
    ///
    /// # Errors
    /// If it is something else, of another version, or not to be written by this user, or if it could not be made.
    pub fn check(file: &Path) -> Result<(), HistoryError> {
        let failed = |kind| HistoryError { file: file.into(), kind };
        let may =
            |path: &Path, access| eaccess(path, access).map_err(|error| failed(HistoryErrorKind::Open(error.into())));
        if file.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            return may(folder, AccessFlags::W_OK | AccessFlags::X_OK);
        }
        match Self::read(file) {
            // It is begun, or repaired.
            Err(HistoryError { kind: HistoryErrorKind::Empty | HistoryErrorKind::Unfinished, .. }) => {}
            other => drop(other?),
        }
        may(file, AccessFlags::W_OK)
    }

    /// Opens a history to read it; a monitor may write it meanwhile.
    ///
    /// # Errors
    /// If it is not there, is something else, or of another version.
    pub fn read(file: &Path) -> Result<Self, HistoryError> {
        let failed = |kind| HistoryError { file: file.into(), kind };
        let options = OpenOptions::new().read(true).custom_flags(libc_nonblock()).clone();
        let mut opened = options.open(file).map_err(|error| failed(HistoryErrorKind::Open(error)))?;
        if looks_empty(&mut opened).map_err(failed)? {
            return Err(failed(HistoryErrorKind::Empty));
        }
        drop(opened);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = connect(file, flags).map_err(failed)?;
        check_version(&connection).map_err(failed)?;
        Ok(Self { connection, lock: None, file: file.into() })
    }

    /// Adds measurements: all of them, or none.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add(&mut self, measurements: &[Measurement]) -> Result<(), HistoryError> {
        self.check_place()?;
        let added = self.insert(measurements);
        added.map_err(|error| self.failed(&error))
    }

    fn insert(&mut self, measurements: &[Measurement]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for measurement in measurements {
            row::insert(&transaction, measurement)?;
            let succeeded = i64::from(measurement.result.is_ok());
            transaction.execute(
                "INSERT INTO tally VALUES (?1, ?2, ?3) ON CONFLICT (target)
                 DO UPDATE SET succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed",
                params![measurement.target, succeeded, 1 - succeeded],
            )?;
        }
        transaction.commit()
    }

    /// Deletes measurements that began before this time, in milliseconds since 1970, and returns how many they were.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn forget(&mut self, before_unix_ms: u64) -> Result<usize, HistoryError> {
        self.check_place()?;
        let deleted = self
            .connection
            .execute("DELETE FROM measurement WHERE started_unix_ms < ?1", [row::signed(before_unix_ms)]);
        deleted.map_err(|error| self.failed(&error))
    }

    /// The measurements that began at this time or later, in milliseconds since 1970, in the order of time.
    ///
    /// # Errors
    /// If they cannot be read, or are not what a monitor writes.
    pub fn measurements(&self, since_unix_ms: u64) -> Result<Vec<Measurement>, HistoryError> {
        row::select(&self.connection, since_unix_ms).map_err(|error| self.failed(&error))
    }

    /// The last measurement of each target, and the last one that gave a result, in the order of time.
    ///
    /// # Errors
    /// As [`History::measurements`].
    pub fn latest(&self) -> Result<Vec<Measurement>, HistoryError> {
        row::select_latest(&self.connection).map_err(|error| self.failed(&error))
    }

    /// How often each target was measured, in the order of their names.
    ///
    /// # Errors
    /// As [`History::measurements`].
    pub fn tallies(&self) -> Result<Vec<Tally>, HistoryError> {
        let read = || {
            let mut statement =
                self.connection.prepare("SELECT target, succeeded, failed FROM tally ORDER BY target")?;
            let tallies = statement.query_map([], |row| {
                Ok(Tally { target: row.get(0)?, succeeded: row::count(row, 1)?, failed: row::count(row, 2)? })
            })?;
            tallies.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|error| self.failed(&error))
    }

    /// Fails if the open file no longer has its name: nobody would find what is written there.
    fn check_place(&self) -> Result<(), HistoryError> {
        let Some(lock) = &self.lock else { return Ok(()) };
        let place = |data: std::fs::Metadata| (data.dev(), data.ino());
        let own = lock.metadata().map(place).ok();
        let named = std::fs::metadata(&self.file).map(place).ok();
        match own.is_some() && own == named {
            true => Ok(()),
            false => Err(HistoryError { file: self.file.clone(), kind: HistoryErrorKind::Gone }),
        }
    }

    fn failed(&self, error: &rusqlite::Error) -> HistoryError {
        HistoryError { file: self.file.clone(), kind: HistoryErrorKind::of(error) }
    }

    /// Limits the file to `pages` pages of 4096 bytes, like a full disk.
    #[cfg(test)]
    pub(crate) fn limit_pages(&self, pages: u32) {
        let set = self.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
        set.expect("the limit is set");
    }
}

/// Opening a pipe must not wait.
fn libc_nonblock() -> i32 {
    nix::fcntl::OFlag::O_NONBLOCK.bits()
}

/// Whether a regular file has nothing in it. Fails if it has something that is no SQLite file.
fn looks_empty(file: &mut File) -> Result<bool, HistoryErrorKind> {
    let metadata = file.metadata().map_err(HistoryErrorKind::Open)?;
    if !metadata.is_file() {
        let error = io::Error::new(ErrorKind::InvalidInput, "it is not a regular file");
        return Err(HistoryErrorKind::Open(error));
    }
    if metadata.len() == 0 {
        return Ok(true);
    }
    let mut head = [0; MAGIC.len()];
    match file.read_exact(&mut head) {
        Ok(()) if head == *MAGIC => Ok(false),
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(HistoryErrorKind::Open(error)),
        Ok(()) | Err(_) => Err(HistoryErrorKind::NotSqlite),
    }
}

fn connect(file: &Path, flags: OpenFlags) -> Result<Connection, HistoryErrorKind> {
    let set_up = || {
        let connection = Connection::open_with_flags(file, flags)?;
        connection.busy_timeout(PATIENCE)?;
        // A file made by others may contain more than data.
        connection.pragma_update(None, "trusted_schema", false)?;
        Ok(connection)
    };
    set_up().map_err(|error| HistoryErrorKind::of(&error))
}

fn make_tables(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

fn check_version(connection: &Connection) -> Result<(), HistoryErrorKind> {
    let number = |pragma: &str| -> Result<i32, HistoryErrorKind> {
        connection.pragma_query_value(None, pragma, |row| row.get(0)).map_err(|error| HistoryErrorKind::of(&error))
    };
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION, VERSION) => Ok(()),
        (APPLICATION, other) => Err(HistoryErrorKind::Version(other)),
        _ => Err(HistoryErrorKind::Others),
    }
}

#[cfg(test)]
mod tests;
