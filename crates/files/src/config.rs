use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use crate::{FileKind, line_at, read};

/// Why a configuration cannot be used: `FILE:LINE: reason`, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {reason}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct ConfigError {
    /// The file at fault.
    pub file: PathBuf,
    /// The line in it, counted from 1, if there is one to name.
    pub line: Option<usize>,
    /// What is wrong and what would be right.
    pub reason: String,
    /// Whether nothing is wrong with it: this host lacks something that may come yet.
    pub is_lack: bool,
}

impl ConfigError {
    /// About a file as a whole.
    pub fn whole(file: &Path, reason: impl ToString) -> Self {
        Self { file: file.into(), line: None, reason: reason.to_string(), is_lack: false }
    }

    /// The same, where this host lacks something that may come yet.
    pub fn of_lack(self, is_lack: bool) -> Self {
        Self { is_lack, ..self }
    }

    /// About what stands at `span` of the file's text, if that is known.
    pub fn at(file: &Path, text: &str, span: Option<Range<usize>>, reason: String) -> Self {
        let line = span.filter(|span| span.start <= text.len()).map(|span| line_at(text, span.start));
        Self { file: file.into(), line, reason, is_lack: false }
    }
}

/// The text of a configuration.
///
/// # Errors
/// As [`read`].
pub fn read_config(file: &Path) -> Result<String, ConfigError> {
    read(file, FileKind::Config).map_err(|error| ConfigError::whole(file, error))
}

/// A key's value if it is in its range, or what is wrong with it. `written` gives numbers as people write them.
///
/// # Errors
/// If it is out of range: with the range.
pub fn in_range<T: Copy + PartialOrd>(
    key: &str,
    value: &T,
    range: &RangeInclusive<T>,
    written: impl Fn(&T) -> String,
) -> Result<T, String> {
    if range.contains(value) {
        return Ok(*value);
    }
    let [value, least, most] = [value, range.start(), range.end()].map(written);
    Err(format!("{key} = {value} is out of range: {least} to {most}"))
}
