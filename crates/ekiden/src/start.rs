//! What programs that stay do before they start.

use ekiden_files::ConfigError;
use ekiden_net::patience;

/// Reads a configuration. One that `runs` waits for what this host may have yet, such as the interface of an address's zone.
pub fn loaded<T>(runs: bool, load: impl FnMut() -> Result<T, ConfigError>) -> Result<T, ConfigError> {
    let waits = |error: &ConfigError| {
        tracing::warn!("{error}: it is waited for, {:?} at most", patience::LONGEST);
    };
    patience::patiently_every(patience::LOOK_ANEW, patience::deadline(), load, |error| runs && error.is_lack, waits)
}
