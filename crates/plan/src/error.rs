//! Why a path cannot be planned.

use ekiden_config::ConfigError;
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
    /// It is no description of a path.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It is no path record.
    #[error(transparent)]
    Record(#[from] ekiden_record::Error),
    /// Something is missing, unknown, or cannot be.
    #[error("{place}: {reason}")]
    Wrong {
        /// `FILE:LINE`, `FILE` or a flag.
        place: String,
        /// The key, what is wrong with it, and what would be right.
        reason: String,
    },
}

/// The place of what is missing on it.
pub(crate) const COMMAND_LINE: &str = "the command line";

impl Error {
    /// Whether the command line is wrong, and no file.
    pub fn is_of_flags(&self) -> bool {
        matches!(self, Self::Wrong { place, .. } if place.starts_with("--") || place == COMMAND_LINE)
    }

    /// [`Error::Wrong`].
    pub(crate) fn wrong(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Wrong { place: place.into(), reason: reason.into() }
    }
}
