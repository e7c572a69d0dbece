//! Which command a configuration is for.

use std::path::{Path, PathBuf};

/// A configuration was given to the command that it is not for.
#[derive(Debug, thiserror::Error)]
#[error("{}: this is a configuration of `ekiden {for_command}`, not of `ekiden {given_to}`", file.display())]
pub struct OthersFile {
    file: PathBuf,
    for_command: &'static str,
    given_to: &'static str,
}

/// Why the configuration `file`, given to the command `given_to`, cannot be used: `error`, unless it is another command's.
pub fn whose(file: &Path, given_to: &'static str, error: impl Into<anyhow::Error>) -> anyhow::Error {
    let is_of = |command: &str| match command {
        "proxy" => ekiden_relay::Config::load(file).is_ok(),
        "tunnel" => ekiden_tunnel::Config::is_in(file),
        _ => ekiden_gateway::Config::is_in(file),
    };
    match ["proxy", "tunnel", "gateway"].into_iter().find(|command| *command != given_to && is_of(command)) {
        Some(for_command) => OthersFile { file: file.into(), for_command, given_to }.into(),
        None => error.into(),
    }
}
