//! What `ekiden measure` fails with.

use crate::measure;
use crate::measure::watch::NameNotFound;

pub fn known(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if error.is::<ekiden_record::Error>() {
        return Some(3);
    }
    if let Some(error) = error.downcast_ref::<ekiden_measure::Error>() {
        use ekiden_measure::Error;
        return Some(match error {
            Error::Settings(_) => 2,
            Error::Here(_) => 4,
            _ => 5,
        });
    }
    if let Some(error) = error.downcast_ref::<ekiden_iperf3::Error>() {
        use ekiden_iperf3::Error;
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
    if error.is::<NameNotFound>() {
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
    None
}

/// A service with code 3 is not started again.
fn of_history(error: &ekiden_monitor::HistoryError) -> u8 {
    if error.is_lack() { 4 } else { 3 }
}
