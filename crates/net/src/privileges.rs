//! The capabilities of a process (capabilities(7)).

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use caps::{CapSet, CapsHashSet, errors::CapsError};
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::prctl::set_no_new_privs;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{AccessFlags, faccessat, geteuid};

use crate::kernel_text;

pub use caps::Capability;

/// Gives up every capability but those in `keep`, for ever. Neither the calling thread nor the threads and programs that it
/// starts from then on can get them back. A capability in `keep` that the process does not have is not gained.
///
/// # Errors
/// The kernel's. Some capabilities may be gone then.
pub fn keep_only(keep: &[Capability]) -> io::Result<()> {
    let keep: CapsHashSet = keep.iter().copied().collect();
    set_no_new_privs()?;
    let failed = |error: CapsError| io::Error::other(error.to_string());
    // Changing the bounding set needs CAP_SETPCAP. Without it the change is not needed: by the line above, programs that are
    // started get no more than this thread has.
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

/// Whether this thread may use a capability now.
pub fn has(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

/// Runs `start`, which starts programs. If this thread has `capability`, these programs have it too, even those of a user other
/// than root. For that time the thread has it as an ambient capability.
pub fn lend<T>(capability: Capability, start: impl FnOnce() -> T) -> T {
    // A set that has the capability already keeps it afterwards.
    let has = |set| caps::has_cap(None, set, capability).unwrap_or(false);
    let lent = [CapSet::Inheritable, CapSet::Ambient].map(|set| {
        let lent = !has(set) && has(CapSet::Permitted) && caps::raise(None, set, capability).is_ok();
        lent.then_some(set)
    });
    let done = start();
    // The inheritable set comes first: the kernel then removes the ambient capability too.
    for set in lent.into_iter().flatten() {
        if let Err(error) = caps::drop(None, set, capability) {
            debug_assert!(false, "a thread may always give up what it has: {error}");
        }
    }
    done
}

/// The user of the process at the other end of a Unix socket, if it is neither root nor this process's own.
///
/// # Errors
/// If it is no Unix socket.
pub fn peer_user(socket: &impl AsFd) -> io::Result<Option<u32>> {
    let peer = getsockopt(socket, PeerCredentials)?;
    let is_own = peer.uid() == 0 || peer.uid() == geteuid().as_raw();
    let is_known = peer.uid() != user_of_unmapped() || shares_users(peer.pid());
    Ok(Some(peer.uid()).filter(|_| !is_own || !is_known))
}

/// The number that a user namespace gives to all users that it does not have (user_namespaces(7)): they may be anybody.
fn user_of_unmapped() -> u32 {
    const USUAL: u32 = 65534;
    kernel_text("/proc/sys/kernel/overflowuid").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL)
}

/// Whether the users of that process are certainly those of this one.
fn shares_users(process: i32) -> bool {
    let map = kernel_text("/proc/self/uid_map").unwrap_or_default();
    let has_all = map.split_whitespace().eq(["0", "0", "4294967295"]);
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
    has_all || namespace("self").is_some_and(|own| namespace(&process.to_string()) == Some(own))
}

/// Whether this process may make files in a folder, with the rights that it has now.
///
/// # Errors
/// Why not.
pub fn may_write_into(folder: &Path) -> io::Result<()> {
    Ok(faccessat(AT_FDCWD, folder, AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS)?)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream as StdStream};
    use std::process::Command;

    use super::*;

    #[test]
    fn a_capability_is_lent_and_taken_back() {
        let sets = || [CapSet::Inheritable, CapSet::Ambient].map(|set| caps::read(None, set).unwrap());
        let before = sets();
        let has = caps::has_cap(None, CapSet::Permitted, Capability::CAP_NET_ADMIN).unwrap();
        let meanwhile = lend(Capability::CAP_NET_ADMIN, sets);
        assert!(meanwhile.iter().all(|set| set.contains(&Capability::CAP_NET_ADMIN) == has));
        assert_eq!(sets(), before);
    }

    /// Says which user this process finds at the other end, if it is told a socket's name.
    #[test]
    fn other_end() {
        if let Some(name) = std::env::var_os("EKIDEN_TEST_OTHER_END") {
            let socket = StdStream::connect_addr(&SocketAddr::from_abstract_name(name.as_encoded_bytes()).unwrap());
            println!("found {:?}", peer_user(&socket.unwrap()).unwrap());
        }
    }

    #[test]
    fn users_whom_a_user_namespace_does_not_have_are_strangers_there() {
        if !geteuid().is_root() {
            return; // Another user's process is wanted.
        }
        let name = format!("ekiden-test-other-end/{}", std::process::id());
        let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        // Another user may read this program there.
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        let program = folder.path().join("test");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let found = |inside: &[&str]| {
            let user = ["--reuid", "1234", "--clear-groups"];
            let mut command = Command::new("setpriv");
            command.args(user).args(inside).arg(&program).args(["privileges::tests::other_end", "--nocapture"]);
            let output = command.env("EKIDEN_TEST_OTHER_END", &name).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            said.lines().find_map(|line| Some(line.split_once("found ")?.1.to_owned())).unwrap_or(said)
        };
        // Root is root, and in the namespace nobody knows who it is.
        assert_eq!(found(&[]), "None");
        assert_eq!(found(&["unshare", "--user", "--map-user=65534"]), "Some(65534)");
    }
}
