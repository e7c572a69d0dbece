//! What SIGHUP does, and says: the file is read again, and a configuration that cannot be used changes nothing.

use std::fmt::Display;
use std::path::Path;

/// What was read of the file again, if it can be used and is another configuration than the one `before`. Else says why nothing changes.
pub fn another<C: PartialEq, E: Display>(file: &Path, read: Result<C, E>, before: &C) -> Option<C> {
    match read {
        Ok(config) if config == *before => same(file),
        Ok(config) => return Some(config),
        Err(error) => refused(error),
    }
    None
}

/// Says that a configuration is not taken, and why.
pub fn refused(why: impl Display) {
    tracing::error!("the configuration stays as it was: {why}");
}

/// Says that the configuration of a file is in force.
pub fn taken(file: &Path) {
    tracing::info!("the configuration was read again from {}", file.display());
}

/// Says that nothing in the file is new.
pub fn same(file: &Path) {
    tracing::info!("the configuration was read again from {}: nothing in it is new", file.display());
}

/// Says what of the file only a start can take: keys.
pub fn at_next_start(keys: impl Display) {
    tracing::warn!("{keys} is taken at the next start");
}
