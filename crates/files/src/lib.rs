//! The files that people name on the command line and in configurations.
//!
//! [`read`] takes regular files only, up to a size that follows from what they hold. [`read_secret`] takes passwords that others
//! cannot read. [`check_target`] and [`write()`] make files that are whole or not there. [`explain`] says which key of a TOML file its reader refuses, and
//! [`line_of`] where a key stands.

mod config;
mod explain;
mod nearest;
mod partial;
mod place;
mod read;
mod secret;
mod write;

pub use config::{ConfigError, in_range, read_config};
pub use explain::explain;
pub use nearest::{nearest, suggestion};
pub use place::{line_at, line_of};
pub use read::{FileKind, Opened, ReadError, as_user, open, read, without_mark};
pub use secret::{Exposed, SecretError, one_line, read_secret};
pub use write::{
    Pending, TargetError, check_directory, check_target, is_stream, make_directories, overwrite, remove_partial, write,
    write_private, write_synced, write_with,
};
