//! Why a scenario is refused.

use ekiden_config::ConfigError;
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
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    /// A value that a `--set` gives cannot be used.
    #[error("--set {set}: {reason}")]
    Set {
        /// What was set, `KEY=VALUE`.
        set: String,
        /// What is wrong with it.
        reason: String,
    },
}
