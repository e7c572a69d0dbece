//! What lab, simulator, and what prepares and reads their runs, fail with.

use ekiden_lab::ErrorKind;

use crate::plan::VerifyFailed;
use crate::reproduce::{LabFails, RunsFailed};
use crate::sweep::SweepFailed;

pub fn known(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if error.is::<ekiden_scenario::Error>() || error.is::<ekiden_record::Error>() {
        return Some(3);
    }
    if let Some(error) = error.downcast_ref::<ekiden_plan::Error>() {
        return Some(if error.is_of_flags() { 2 } else { 3 });
    }
    if error.is::<ekiden_sim::Error>() {
        return Some(3);
    }
    if error.is::<ekiden_demo::Missing>() || error.is::<LabFails>() {
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
    if let Some(failed) = error.downcast_ref::<RunsFailed>() {
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

fn of_sweep(error: &ekiden_sweep::Error) -> u8 {
    use ekiden_sweep::{Error, ErrorKind};
    match (error, error.kind()) {
        // As if the signal had not been waited for.
        (Error::Interrupted { signal, .. }, _) => 128_u8.saturating_add(u8::try_from(*signal).unwrap_or_default()),
        (_, ErrorKind::File) => 3,
        (_, ErrorKind::Other) => 1,
    }
}
