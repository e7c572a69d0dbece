//! The process tree that a lab lives in, and the directory that outlives it if it is killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use ekiden_net::sandbox;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};

pub use ekiden_net::sandbox::Interrupt;

use crate::Error;
use crate::error::building;

/// Names of run directories begin like this, in the directory for temporary files.
const PREFIX: &str = "ekiden-lab-";
/// Held locked by every process of a run, so that a free lock means that none is left.
const LOCK: &str = "lock";
/// Where `ip netns` looks for names.
pub(crate) const NAMES: &str = "/run/netns";
const HOSTS: &str = "hosts";

static RUN_DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// Moves this process into a sandbox of its own, in which labs can be built. To be called first thing, before any thread.
///
/// Returns in a new process that is root over its own mounts, processes and network; the calling process never
/// returns: it waits, cleans up, and exits with the new one's exit code. Whatever ends either of them ends everything
/// inside. Removes what killed runs have left before.
///
/// # Errors
/// [`Error::Sandbox`] without root and without unprivileged user namespaces; [`Error::Build`] if the run's directory
/// cannot be made.
pub fn isolate(interrupt: Interrupt) -> Result<(), Error> {
    clean()?;
    let (directory, lock) = make_run_directory().map_err(building("make a directory for the run"))?;
    let at_end = {
        let directory = directory.clone();
        move || drop(fs::remove_dir_all(directory))
    };
    if let Err(error) = sandbox::enter(interrupt, at_end) {
        let _ = fs::remove_dir_all(directory);
        return Err(error.into());
    }
    // The lock must live as long as the process does.
    std::mem::forget(lock);
    private_names(&directory).map_err(building("give the lab names of its own"))?;
    let _ = RUN_DIRECTORY.set(directory);
    Ok(())
}

/// Removes the directories of runs that were killed, and returns how many there were. Touches no directory of
/// another user, or of a run of which any process lives.
///
/// # Errors
/// [`Error::Build`] if the directory for temporary files cannot be read.
pub fn clean() -> Result<usize, Error> {
    let place = std::env::temp_dir();
    let entries = fs::read_dir(&place).map_err(building(format!("look for old runs in {}", place.display())))?;
    let mine = nix::unistd::getuid().as_raw();
    let is_leftover = |path: &Path| -> bool {
        let named = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
        named
            && fs::symlink_metadata(path).is_ok_and(|about| about.is_dir() && about.uid() == mine)
            && is_abandoned(path).unwrap_or(false)
    };
    let leftovers = entries.flatten().map(|entry| entry.path()).filter(|path| is_leftover(path));
    Ok(leftovers.filter(|path| fs::remove_dir_all(path).is_ok()).count())
}

/// The directory of this run, for files of its own: private to the user, gone at the end. `None` outside of a sandbox.
pub fn run_directory() -> Option<&'static Path> {
    RUN_DIRECTORY.get().map(PathBuf::as_path)
}

/// Replaces the names that programs in the lab know beside those of the machine.
pub(crate) fn write_hosts(lines: &str) -> io::Result<()> {
    let Some(directory) = run_directory() else { return Ok(()) };
    // Written in place: the file is mounted over /etc/hosts, and a new one would not be.
    fs::write(directory.join(HOSTS), format!("127.0.0.1 localhost\n{lines}"))
}

/// Whether no process of the run lives. A directory without a lock is one that is just being made, or its maker was
/// killed between two system calls.
fn is_abandoned(directory: &Path) -> io::Result<bool> {
    const BEING_MADE: Duration = Duration::from_secs(60);
    match File::open(directory.join(LOCK)) {
        Ok(lock) => match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
            Ok(_) => Ok(true),
            Err((_, Errno::EWOULDBLOCK)) => Ok(false),
            Err((_, errno)) => Err(errno.into()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let age = SystemTime::now().duration_since(fs::metadata(directory)?.modified()?).unwrap_or_default();
            Ok(age > BEING_MADE)
        }
        Err(error) => Err(error),
    }
}

fn make_run_directory() -> io::Result<(PathBuf, Flock<File>)> {
    let name = format!("{PREFIX}{}-", std::process::id());
    let directory = tempfile::Builder::new().prefix(&name).tempdir()?;
    // Locked before it gets its name: a directory with such a name that is not locked counts as a leftover.
    let unnamed = directory.path().join("making");
    let lock = Flock::lock(File::create_new(&unnamed)?, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
    fs::rename(unnamed, directory.path().join(LOCK))?;
    Ok((directory.keep(), lock))
}

/// Mounts an empty /run/netns and a hosts file of the run's own, seen inside only.
fn private_names(directory: &Path) -> io::Result<()> {
    let none = None::<&str>;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    // If /run/netns does not exist yet, an empty /run takes its place, so that nothing is left on the machine.
    let over = if Path::new(NAMES).is_dir() { NAMES } else { "/run" };
    mount(Some("tmpfs"), over, Some("tmpfs"), flags, Some("mode=755"))?;
    fs::create_dir_all(NAMES)?;
    let hosts = directory.join(HOSTS);
    fs::write(&hosts, "127.0.0.1 localhost\n")?;
    if Path::new("/etc/hosts").exists() {
        mount(Some(&hosts), "/etc/hosts", none, MsFlags::MS_BIND, none)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_run_that_begins_is_no_leftover() {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    clean().unwrap();
                }
            });
            let all_stay = (0..2000).all(|_| {
                let (directory, lock) = make_run_directory().unwrap();
                let stays = directory.is_dir() && !is_abandoned(&directory).unwrap();
                drop(lock);
                // The other may have been faster.
                let _ = fs::remove_dir_all(directory);
                stays
            });
            done.store(true, Ordering::Relaxed);
            assert!(all_stay);
        });
    }
}
