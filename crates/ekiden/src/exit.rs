//! How a failure is told: one line, and an exit code per kind of failure, so that scripts can tell them apart.
//!
//! Errors stay typed up to here: the first known type in an error's chain decides the code.

use std::process::ExitCode;

use ekiden_lab::ErrorKind;

use crate::congestion;
use crate::doctor::{HostFailed, PathFailed};
use crate::measure;
use crate::measure::watch::NameNotFound;
use crate::plan::VerifyFailed;
use crate::sweep::SweepFailed;

/// Printed by `ekiden --help`. Code 2 is clap's own.
pub const HELP: &str = "Exit codes:
  0  done
  1  failed for a reason not listed here
  2  wrong usage of the command line, or nothing runs here that it could ask
  3  a scenario, configuration, key, record or other file is wrong, unreadable, unwritable (on a full disk, too) or in the way
  4  this machine lacks something: a privilege, a kernel feature, a program, a file that another process holds
  5  the network failed: an address cannot be bound, a peer cannot be reached or has another key, a flow broke
  6  data arrived changed, or a measurement missed its tolerance
  130  interrupted by Ctrl-C";

/// The code for `error`, by the first known type in its chain.
pub fn code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(number(error))
}

/// As [`code`], as a number.
pub fn number(error: &anyhow::Error) -> u8 {
    error.chain().find_map(known).unwrap_or(1)
}

fn known(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if let Some(error) = error.downcast_ref::<ekiden_net::sock_diag::Error>() {
        return Some(if matches!(error, ekiden_net::sock_diag::Error::NoProcess(_)) { 2 } else { 4 });
    }
    if error.is::<ekiden_scenario::Error>() || error.is::<ekiden_record::Error>() {
        return Some(3);
    }
    if error.is::<ekiden_plan::Error>() || error.is::<crate::out::Unwritten>() {
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
    if error.is::<ekiden_sim::Error>() {
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
            StatusError::Late(_) | StatusError::Unusable { .. } => 1,
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
    if let Some(error) = error.downcast_ref::<ekiden_measure::Error>() {
        use ekiden_measure::Error;
        return Some(match error {
            Error::Settings(_) => 2,
            Error::Here(_) => 4,
            _ => 5,
        });
    }
    if let Some(error) = error.downcast_ref::<ekiden_measure::iperf3::Error>() {
        use ekiden_measure::iperf3::Error;
        return Some(match error {
            Error::Settings(_) => 2,
            Error::Socket(_) | Error::Local { .. } => 4,
            _ => 5,
        });
    }
    if let Some(error) = error.downcast_ref::<ekiden_measure::server::StartError>() {
        return Some(measure::server_code(error));
    }
    if error.is::<measure::Misconfigured>() || error.is::<measure::NoPeer>() || error.is::<measure::PlainPeer>() {
        return Some(3);
    }
    if error.is::<HostFailed>() {
        return Some(4);
    }
    if error.is::<PathFailed>() || error.is::<NameNotFound>() {
        return Some(5);
    }
    if let Some(error) = error.downcast_ref::<ekiden_monitor::HistoryError>() {
        return Some(of_history(error));
    }
    if let Some(error) = error.downcast_ref::<ekiden_monitor::EndError>() {
        use ekiden_monitor::EndError;
        return Some(match error {
            EndError::History { source, .. } => of_history(source),
            EndError::System(_) => 4,
            EndError::AllFailed { .. } => 5,
            EndError::Prometheus(_) => 3,
        });
    }
    if error.is::<ekiden_demo::Missing>() {
        return Some(4);
    }
    if error.is::<ekiden_demo::Mismatch>() {
        return Some(6);
    }
    if let Some(failed) = error.downcast_ref::<ekiden_demo::Failed>() {
        return Some(failed.code);
    }
    if let Some(failed) = error.downcast_ref::<SweepFailed>() {
        return Some(failed.code);
    }
    if let Some(failed) = error.downcast_ref::<VerifyFailed>() {
        return Some(failed.code);
    }
    if let Some(error) = error.downcast_ref::<ekiden_sweep::Error>() {
        return Some(of_sweep(error));
    }
    if let Some(error) = error.downcast_ref::<ekiden_lab::Error>() {
        return Some(match error.kind() {
            ErrorKind::Usage => 2,
            ErrorKind::Scenario => 3,
            ErrorKind::Missing => 4,
            ErrorKind::Network => 5,
            ErrorKind::Mismatch => 6,
        });
    }
    None
}

/// A service with code 3 is not started again.
fn of_history(error: &ekiden_monitor::HistoryError) -> u8 {
    if error.is_lack() { 4 } else { 3 }
}

fn of_sweep(error: &ekiden_sweep::Error) -> u8 {
    use ekiden_sweep::{Error, ErrorKind};
    match (error, error.kind()) {
        // As if the signal had not been waited for.
        (Error::Interrupted { signal, .. }, _) => 128_u8.saturating_add(u8::try_from(*signal).unwrap_or_default()),
        (_, ErrorKind::File) => 3,
        (_, ErrorKind::Other) => 1,
    }
}
