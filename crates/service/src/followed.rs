//! Files that others change while a program runs: read again when they have changed.
//!
//! A file that cannot be read, or is wrong, keeps its last contents. It is warned of once for each reason. One that changes from check to
//! check is still being written, and is not read yet.

use std::fs;
use std::io;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use ekiden_files::{ConfigError, ReadError};

/// How often files are checked for changes.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A file that has changed at so many checks in turn is warned of.
const CHANGES_MOST: u32 = 10;

/// What a file says.
pub struct Content<T> {
    version: Version,
    /// Why the file is not taken now. The value is the last one that was, if any was.
    failure: Option<String>,
    was_read: bool,
    /// What it says.
    pub value: Arc<T>,
}

/// Why what a file says is not taken.
#[derive(Debug)]
pub enum Refused {
    /// It cannot be read now. The reason does not name it.
    Unread(String),
    /// It is wrong until it changes.
    Wrong(ConfigError),
}

impl Refused {
    /// Of a file that gives no text: what is wrong with its content stays wrong until it changes.
    pub fn of(file: &Path, error: ReadError) -> Self {
        match error {
            ReadError::NotText { .. } | ReadError::Foreign { .. } | ReadError::TooLong { .. } => {
                Self::Wrong(ConfigError::whole(file, error))
            }
            other => Self::Unread(other.to_string()),
        }
    }
}

/// Changes with a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// It is there, or may be, and was not read.
    Unread,
    /// There is no such file.
    Absent,
    /// Modification and change time (seconds, nanoseconds), inode and length.
    Of([i64; 4], u64, u64),
}

/// A file whose value others use while it is read again.
pub struct Followed<T> {
    file: PathBuf,
    read: fn(&Path) -> Result<T, Refused>,
    /// Whether it says nothing.
    is_empty: fn(&T) -> bool,
    content: RwLock<Content<T>>,
    /// What the last check found.
    checked: Mutex<Checked>,
}

/// What a check found.
struct Checked {
    version: Version,
    /// How many checks in turn have found another file than the one before.
    changes: u32,
}

/// A followed file, whatever it says.
pub trait Follow: Send + Sync {
    /// Whether it has changed since it was read, and not since the last check: whoever wrote it has ended, most likely.
    fn has_changed(&self) -> bool;

    /// Reads it again. Whether what it says is new.
    fn refresh(&self) -> bool;
}

impl<T> Content<T> {
    /// The same as of a file that is not there.
    pub fn absent(value: T) -> Self {
        Self { version: Version::Absent, failure: None, was_read: true, value: Arc::new(value) }
    }

    /// Whether the file is as it was when it was read.
    pub fn is_current(&self, file: &Path) -> bool {
        self.version != Version::Unread && self.version == Version::of(file)
    }

    /// The same once more.
    pub fn same(&self) -> Self {
        Self { failure: self.failure.clone(), value: self.value.clone(), ..*self }
    }

    /// What `read` returns of the file. If that is not taken, what it has said `before`, with a warning.
    pub fn read(file: &Path, before: Option<&Self>, read: impl FnOnce() -> Result<T, Refused>) -> Self
    where
        T: Default,
    {
        // Taken before the file is read, so that a change in between is noticed at the next check.
        let version = Version::of(file);
        let before_failure = before.and_then(|before| before.failure.as_deref());
        let refused = match read() {
            Ok(value) => {
                if before_failure.is_some() {
                    tracing::info!("{}: can be used again", file.display());
                }
                return Self { version, failure: None, was_read: true, value: Arc::new(value) };
            }
            Err(refused) => refused,
        };
        let (version, failure) = match refused {
            Refused::Unread(reason) => (Version::Unread, format!("{}: {reason}", file.display())),
            Refused::Wrong(error) => (version, error.to_string()),
        };
        let was_read = before.is_some_and(|before| before.was_read);
        if before_failure != Some(&failure) {
            let then = if was_read { "what it said before counts" } else { "nothing of it counts" };
            tracing::warn!("{failure}: {then}");
        }
        let value = before.map(|before| before.value.clone()).unwrap_or_default();
        Self { version, failure: Some(failure), was_read, value }
    }
}

impl Version {
    fn of(file: &Path) -> Self {
        match fs::metadata(file) {
            Ok(file) => {
                let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
                Self::Of(times, file.ino(), file.len())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Absent,
            Err(_) => Self::Unread,
        }
    }
}

impl<T> Followed<T> {
    /// The file, which must be right at first. That it comes to say nothing is warned of.
    ///
    /// # Errors
    /// What it says is not taken.
    pub fn new(
        file: PathBuf,
        read: fn(&Path) -> Result<T, Refused>,
        is_empty: fn(&T) -> bool,
    ) -> Result<Self, Refused> {
        let version = Version::of(&file);
        let value = Arc::new(read(&file)?);
        let content = RwLock::new(Content { version, failure: None, was_read: true, value });
        Ok(Self { file, read, is_empty, content, checked: Mutex::new(Checked { version, changes: 0 }) })
    }

    /// Its path.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What it says.
    pub fn value(&self) -> Arc<T> {
        self.with(Arc::clone)
    }

    /// What `look` finds in what it says.
    pub fn with<R>(&self, look: impl FnOnce(&Arc<T>) -> R) -> R {
        look(&self.content.read().unwrap_or_else(PoisonError::into_inner).value)
    }
}

impl<T: Default + Send + Sync> Follow for Followed<T> {
    fn has_changed(&self) -> bool {
        let version = Version::of(&self.file);
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if mem::replace(&mut checked.version, version) == version {
            checked.changes = 0;
            return !self.content.read().unwrap_or_else(PoisonError::into_inner).is_current(&self.file);
        }
        checked.changes = checked.changes.saturating_add(1);
        if checked.changes == CHANGES_MOST {
            let checks = CHECK_INTERVAL * CHANGES_MOST;
            tracing::warn!(
                "{}: has changed at each look for {checks:?}, and is read once it stays as it is for {CHECK_INTERVAL:?}: what it said before counts",
                self.file.display()
            );
        }
        false
    }

    fn refresh(&self) -> bool {
        let version = Version::of(&self.file);
        let before = self.content.read().unwrap_or_else(PoisonError::into_inner).same();
        let fresh = Content::read(&self.file, Some(&before), || (self.read)(&self.file));
        if Version::of(&self.file) != version {
            // Half of it may have been read.
            return false;
        }
        let is_new = !Arc::ptr_eq(&before.value, &fresh.value);
        if (self.is_empty)(&fresh.value) && !(self.is_empty)(&before.value) {
            tracing::warn!("{}: is empty now", self.file.display());
        }
        *self.content.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        // What it said is freed here, and not while others wait.
        drop(before);
        is_new
    }
}

/// Two are equal if they are one: of another, nothing that is read again reaches whoever has the first.
impl<T> PartialEq for Followed<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl<T> Eq for Followed<T> {}

impl<T> std::fmt::Debug for Followed<T> {
    /// Without what it says.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number in a file.
    fn number(file: &Path) -> Result<u32, Refused> {
        let text = fs::read_to_string(file).map_err(|error| Refused::Unread(error.to_string()))?;
        text.trim().parse().map_err(|error| Refused::Wrong(ConfigError::whole(file, error)))
    }

    fn is_zero(number: &u32) -> bool {
        *number == 0
    }

    fn followed(file: &Path) -> Followed<u32> {
        fs::write(file, "1").unwrap();
        Followed::new(file.into(), number, is_zero).unwrap()
    }

    #[test]
    fn a_file_that_changes_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        let followed = followed(&file);
        assert!(!followed.has_changed() && *followed.value() == 1);
        fs::write(&file, "22").unwrap();
        assert!(!followed.has_changed(), "it may still be written");
        assert!(followed.has_changed());
        assert_eq!(*followed.value(), 1);
        assert!(followed.refresh() && !followed.has_changed());
        assert_eq!(*followed.value(), 22);
    }

    #[test]
    fn a_file_that_is_written_is_read_once_it_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        let followed = followed(&file);
        for text in ["", "2", "22", "222"] {
            fs::write(&file, text).unwrap();
            assert!(!followed.has_changed(), "{text}");
        }
        assert!(followed.has_changed() && followed.refresh());
        assert_eq!(*followed.value(), 222);
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_counts_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        fs::write(&file, "1").unwrap();
        let grows = |file: &Path| {
            let read = number(file);
            fs::write(file, fs::read_to_string(file).unwrap() + "1").unwrap();
            read
        };
        let followed = Followed::new(file.clone(), grows, is_zero).unwrap();
        assert!(!followed.has_changed() && followed.has_changed());
        assert!(!followed.refresh());
        assert_eq!(*followed.value(), 1);
    }

    #[test]
    fn a_file_that_becomes_wrong_or_goes_keeps_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        let followed = followed(&file);
        fs::write(&file, "one").unwrap();
        assert!(!followed.refresh());
        assert_eq!(*followed.value(), 1);
        assert!(!followed.has_changed() && !followed.has_changed(), "it is read again once it changes");
        fs::remove_file(&file).unwrap();
        assert!(!followed.has_changed() && followed.has_changed() && !followed.refresh());
        assert!(followed.has_changed(), "it may be there the next time");
        assert_eq!(*followed.value(), 1);
        fs::write(&file, "3").unwrap();
        assert!(followed.refresh());
        assert_eq!(*followed.value(), 3);
    }

    #[test]
    fn a_file_must_be_right_at_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        assert!(matches!(Followed::new(file.clone(), number, is_zero), Err(Refused::Unread(_))));
        fs::write(&file, "one").unwrap();
        assert!(matches!(Followed::new(file, number, is_zero), Err(Refused::Wrong(_))));
    }
}
