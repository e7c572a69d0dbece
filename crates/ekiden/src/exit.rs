//! How a failure is told: one line, and an exit code per kind of failure, so that scripts can tell them apart.
//!
//! Errors stay typed up to here: the first known type in an error's chain decides the code.

#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "measure")]
mod measure;

use std::process::ExitCode;

use crate::congestion;
use crate::doctor::{HostFailed, PathFailed};

/// Printed by `ekiden --help`. Code 2 is clap's own.
pub fn help() -> String {
    let file = match (cfg!(feature = "lab"), cfg!(feature = "measure")) {
        (true, _) => "scenario, configuration, key, record or other",
        (false, true) => "configuration, key, record or other",
        (false, false) => "configuration, key or other",
    };
    let changed = match cfg!(feature = "lab") {
        true => "\n  6  data arrived changed, or a measurement missed its tolerance",
        false => "",
    };
    format!(
        "Exit codes:
  0  done
  1  failed for a reason not listed here
  2  wrong usage of the command line, or nothing runs here that it could ask
  3  a {file} file is wrong, unreadable, unwritable (on a full disk, too) or in the way
  4  this machine lacks something: a privilege, a kernel feature, a program, a file that another process holds
  5  the network failed: an address cannot be bound, a peer cannot be reached or has another key, a flow broke{changed}
  130  interrupted by Ctrl-C"
    )
}

/// The code for `error`, by the first known type in its chain.
pub fn code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(number(error))
}

/// As [`code`], as a number.
pub fn number(error: &anyhow::Error) -> u8 {
    error.chain().find_map(known).unwrap_or(1)
}

fn known(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    #[cfg(feature = "lab")]
    if let Some(code) = lab::known(error) {
        return Some(code);
    }
    #[cfg(feature = "measure")]
    if let Some(code) = measure::known(error) {
        return Some(code);
    }
    if let Some(error) = error.downcast_ref::<ekiden_net::sock_diag::Error>() {
        return Some(if matches!(error, ekiden_net::sock_diag::Error::NoProcess(_)) { 2 } else { 4 });
    }
    if error.is::<crate::out::Unwritten>() {
        return Some(3);
    }
    if let Some(error) = error.downcast_ref::<ekiden_files::ConfigError>() {
        // As an address that cannot be had yet.
        return Some(if error.is_lack { 5 } else { 3 });
    }
    if let Some(error) = error.downcast_ref::<ekiden_net::lookup::ListeningError>() {
        return Some(if error.is_lack() { 5 } else { 2 });
    }
    if error.is::<ekiden_files::TargetError>() || error.is::<ekiden_keys::KeyFileError>() {
        return Some(3);
    }
    if let Some(error) = error.downcast_ref::<ekiden_relay::StartError>() {
        if matches!(error, ekiden_relay::StartError::Registry(_)) {
            return Some(3);
        }
        return Some(if error.is_lack() { 4 } else { 5 });
    }
    if error.is::<crate::whose::OthersFile>() {
        return Some(3);
    }
    if let Some(error) = error.downcast_ref::<ekiden_tunnel::StartError>() {
        return Some(if error.is_lack() { 4 } else { 5 });
    }
    if let Some(error) = error.downcast_ref::<ekiden_service::status::StatusError>() {
        use ekiden_service::status::StatusError;
        return Some(match error {
            StatusError::Nobody(_) => 2,
            StatusError::Refused(_) | StatusError::Stranger { .. } => 4,
            StatusError::Late(_) | StatusError::Full { .. } | StatusError::Unusable { .. } => 1,
        });
    }
    if error.is::<ekiden_relay::DestinationError>() {
        return Some(2);
    }
    if let Some(error) = error.downcast_ref::<ekiden_registry::RegistryError>() {
        use ekiden_registry::RegistryError;
        return Some(match error {
            RegistryError::Setting { .. }
            | RegistryError::NoOverlay { .. }
            | RegistryError::NeverAdmitted { .. }
            | RegistryError::HasOtherKey { .. }
            | RegistryError::Unreadable { .. }
            | RegistryError::KeyTaken { .. } => 2,
            RegistryError::File { .. } => 3,
            RegistryError::NoUser { .. }
            | RegistryError::UsersOff { .. }
            | RegistryError::Login { .. }
            | RegistryError::Denied { .. }
            | RegistryError::NoOperator { .. } => 4,
            _ => 5,
        });
    }
    if let Some(error) = error.downcast_ref::<ekiden_gateway::RemoveError>() {
        return Some(if matches!(error, ekiden_gateway::RemoveError::Nothing(_)) { 2 } else { 4 });
    }
    if error.is::<ekiden_gateway::StartError>() {
        return Some(4);
    }
    if let Some(error) = error.downcast_ref::<ekiden_bpf::Error>() {
        return Some(congestion::code(error));
    }
    if error.is::<ekiden_congestion::ParameterError>()
        || error.is::<congestion::NothingThere>()
        || error.is::<congestion::NobodyReads>()
    {
        return Some(2);
    }
    if error.is::<HostFailed>() {
        return Some(4);
    }
    if error.is::<PathFailed>() {
        return Some(5);
    }
    None
}
