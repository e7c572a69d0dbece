//! What a process may do that others may not (capabilities(7)).

use std::io;

use caps::{CapSet, CapsHashSet, errors::CapsError};
use nix::sys::prctl::set_no_new_privs;

pub use caps::Capability;

/// Gives up every capability but those in `keep`, for ever: the calling thread, the threads and the programs that it starts
/// from then on cannot get them back. Those that it does not have it does not get.
///
/// # Errors
/// The kernel's. Some capabilities may be gone then.
pub fn keep_only(keep: &[Capability]) -> io::Result<()> {
    let keep: CapsHashSet = keep.iter().copied().collect();
    set_no_new_privs()?;
    let failed = |error: CapsError| io::Error::other(error.to_string());
    // Only while there is the right to: without it, whatever is started gets no more than this thread has, by the line above.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).map_err(failed)? {
        for other in caps::read(None, CapSet::Bounding).map_err(failed)?.difference(&keep) {
            caps::drop(None, CapSet::Bounding, *other).map_err(failed)?;
        }
    }
    let left = caps::read(None, CapSet::Permitted).map_err(failed)?.intersection(&keep).copied().collect();
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new()).map_err(failed)?;
    caps::set(None, CapSet::Effective, &left).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &left).map_err(failed)
}
