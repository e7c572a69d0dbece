//! Why a scenario is refused.

use std::ops::Range;

use ekiden_files::ReadError;

/// Why a scenario file was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// The file's name.
        file: String,
        /// Why not.
        source: ReadError,
    },
    /// The file was read, but is not a scenario that can be run.
    #[error("{file}:{line}: {reason}")]
    Invalid {
        /// The file's name.
        file: String,
        /// The line at fault, counted from 1.
        line: usize,
        /// What is wrong there and what would be right.
        reason: String,
    },
    /// A value that a `--set` gives cannot be used.
    #[error("--set {set}: {reason}")]
    Set {
        /// What was set, `KEY=VALUE`.
        set: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// The text of a scenario, to tell lines from byte offsets.
pub(crate) struct Source<'a> {
    pub text: &'a str,
    pub file: &'a str,
}

impl Source<'_> {
    /// An error at the line where `span` starts.
    pub fn error(&self, span: &Range<usize>, reason: impl Into<String>) -> Error {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        Error::Invalid { file: self.file.into(), line, reason: reason.into() }
    }
}
