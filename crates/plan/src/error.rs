//! Why a path cannot be planned.

use ekiden_files::ReadError;

/// Why a path cannot be planned: one line, with the place.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// Its name.
        file: String,
        /// Why not.
        source: ReadError,
    },
    /// It is no path record.
    #[error(transparent)]
    Record(#[from] ekiden_record::Error),
    /// Something is missing, unknown, or cannot be.
    #[error("{place}: {reason}")]
    Wrong {
        /// `FILE:LINE` or `FILE`.
        place: String,
        /// The key, what is wrong with it, and what would be right.
        reason: String,
    },
    /// The same, of the command line.
    #[error("{place}: {reason}")]
    Usage {
        /// The flag, or [`COMMAND_LINE`].
        place: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
}

/// Where something is missing that no file was given for.
pub(crate) const COMMAND_LINE: &str = "the command line";

impl Error {
    /// [`Error::Wrong`], or [`Error::Usage`] if the place is one of the command line.
    pub(crate) fn wrong(place: impl Into<String>, reason: impl Into<String>) -> Self {
        let (place, reason) = (place.into(), reason.into());
        // A file whose name begins so is given as `./--name`.
        match place.starts_with("--") || place == COMMAND_LINE {
            true => Self::Usage { place, reason },
            false => Self::Wrong { place, reason },
        }
    }
}
