//! What programs that stay do before they start.

use std::io;

use ekiden_files::ConfigError;
use ekiden_net::patience;
use ekiden_service::Signals;

use crate::log::{self, Log};

/// The log, of a program that `runs` or only looks at its file. While one that runs starts, a SIGHUP waits. To be called first: no other
/// thread may be there.
pub fn start(runs: bool) -> io::Result<Log> {
    if runs {
        Signals::hold_hangup()?;
    }
    log::start()
}

/// Reads a configuration. One that `runs` waits for what this host may have yet, such as the interface of an address's zone.
pub fn loaded<T>(runs: bool, load: impl FnMut() -> Result<T, ConfigError>) -> Result<T, ConfigError> {
    let waits = |error: &ConfigError| {
        tracing::warn!("{error}: it is waited for, {:?} at most", patience::LONGEST);
    };
    patience::patiently_every(patience::LOOK_ANEW, patience::deadline(), load, |error| runs && error.is_lack, waits)
}
