//! The programs on the device: loaded anew, or those that an earlier process has left there to be taken over.

use std::io;

use ekiden_service::status_socket;
use ekiden_units::Time;

use crate::config::Config;
use crate::error::{RemoveError, StartError, taken};
use crate::kernel::{Gateway, GatewayError, HookKind};
use crate::pins::{self, pin_name};
use crate::status::socket_name;

/// Puts the programs on the device. With `restart_within` they outlive this process, and those of an earlier one go on, with all that
/// they know of streams, if they were loaded by the same build with the same settings.
pub(crate) fn start(config: &Config, ifindex: u32) -> Result<(Gateway, HookKind), StartError> {
    let name = pin_name(&config.device)?;
    let settings = config.settings();
    let outlives = config.restart_within > Time::ms(0);
    Gateway::unpin_stale();
    match Gateway::open_pinned(&name) {
        Err(GatewayError::NotPinned(_)) => {}
        Ok(gateway) if outlives && gateway.is_on(ifindex) && gateway.is_of(&settings)? => {
            tracing::info!("takes over the programs that an earlier process has left on {}", config.device);
            return Ok((gateway, HookKind::Tcx));
        }
        Ok(_) | Err(GatewayError::OtherVersion(_)) => {
            tracing::info!(
                "replaces the programs that an earlier process has left on {}: they are of another build, or of other settings",
                config.device
            );
            Gateway::unpin(&name)?;
        }
        Err(error) => return Err(error.into()),
    }
    let mut gateway = Gateway::load(&settings)?;
    let hook = gateway.attach(i32::try_from(ifindex).unwrap_or_default())?;
    if outlives {
        gateway.pin(&name)?;
        if pins::are_hidden() {
            tracing::warn!(
                "the programs are pinned in a file system of this process's own mount namespace, as `ip netns exec` makes one, and go \
                 with it: `restart_within` has no effect; `nsenter --net=/run/netns/NAME` keeps the host's"
            );
        }
    }
    Ok((gateway, hook))
}

/// Removes the programs that a process with `restart_within` has left on a device.
///
/// # Errors
/// If a process is there, nothing was left, or this process may not.
pub fn remove(device: &str) -> Result<(), RemoveError> {
    // While this has the name, no gateway starts.
    let _name = match status_socket::listen(&socket_name(device)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            return Err(match taken(device.into()) {
                StartError::NameTaken { device, user } => RemoveError::NameTaken { device, user },
                _ => RemoveError::Runs(device.into()),
            });
        }
        listening => listening?,
    };
    match Gateway::unpin(&pin_name(device)?)? {
        true => Ok(()),
        false => Err(RemoveError::Nothing(device.into())),
    }
}

/// Takes away what [`start`] has pinned: the device is gone.
pub(crate) fn forget(device: &str) {
    if let Ok(name) = pin_name(device) {
        let _ = Gateway::unpin(&name);
    }
}
