//! Writing a file that a user has named: the existing file stays unless it may be replaced, and no reader ever sees half of
//! the new one.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::partial::{Partial, Place, directory};
use crate::read::what;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::FileStat;
use nix::unistd::geteuid;

/// The most links that are followed from a name to what it stands for, as many as the kernel follows.
const LINKS_MOST: usize = 40;
/// The permissions of a file for its owner alone, and of one from which the umask takes.
const OWNERS_ALONE: u32 = 0o600;
const ANYBODYS: u32 = 0o666;

/// Why a file cannot be written. The message does not name the file.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Something has the name, and may not be replaced.
    #[error("is there already; name another file, or say --force to replace it")]
    Exists,
    /// A directory has the name.
    #[error("cannot be written: it is a directory")]
    Directory,
    /// Something has the name that is no file with a content of its own.
    #[error("cannot be written: it is {0}, which is neither replaced nor written into; name another file")]
    NotRegular(&'static str),
    /// The system refuses.
    #[error("cannot be written: {0}")]
    Failed(#[from] io::Error),
}

/// What a name stands for, once symbolic links are followed.
struct Target {
    path: PathBuf,
    /// Whether a regular file is there.
    is_there: bool,
}

/// Whether a pipe, a terminal or the like has this name, such as `/dev/null`: nothing of it can be replaced, and nothing can be
/// beside it. What is written goes into it. So it is with what this process prints into, such as `/dev/stdout`, whatever that is: who has
/// redirected it to a file has opened that.
pub fn is_stream(path: &Path) -> bool {
    let is_one = |there: Metadata| there.file_type().is_fifo() || there.file_type().is_char_device();
    fs::metadata(path).is_ok_and(is_one) || printed(path).is_some()
}

/// Finds out, before any work is done, whether [`write()`] can make `path`. Makes missing directories, and leaves nothing else.
///
/// # Errors
/// If there is a file already and `replace` is not said, there is something that is neither a file nor a stream, or its directory
/// takes no new file.
pub fn check_target(path: &Path, replace: bool) -> Result<(), TargetError> {
    if is_stream(path) {
        return Ok(());
    }
    let target = Target::find(path)?;
    if target.is_there && !replace {
        return Err(TargetError::Exists);
    }
    make_directories(directory(&target.path))?;
    takes_files(directory(&target.path))
}

/// Finds out, before any work is done, whether files can be made in this directory. Makes it where it is not there.
///
/// # Errors
/// If something else is there, or it cannot be made, or takes no new file.
pub fn check_directory(path: &Path) -> Result<(), TargetError> {
    make_directories(path)?;
    takes_files(path)
}

fn takes_files(directory: &Path) -> Result<(), TargetError> {
    let place = Place::open(&directory.join("file"))?;
    Ok(Partial::new(place, OWNERS_ALONE)?.close()?)
}

/// Writes a file, whole or not at all: beside `path` first, then renamed. Makes missing directories, and replaces the
/// existing file; the new one has its permissions, and its owner if this process is root. A symbolic link stays, and its
/// target is written. Files that killed writers of the same file have left are removed. A stream ([`is_stream`]) is written
/// into.
///
/// # Errors
/// If a directory or the file cannot be made, something other than a file or a stream is there, or it is a pipe without a
/// reader.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    write_with(path, |out| out.write_all(content))
}

/// As [`write()`], for what is too long to be held in memory: `fill` writes it piece by piece.
///
/// # Errors
/// As [`write()`], and those of `fill`.
pub fn write_with(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    Pending::write_with(path, fill)?.publish()
}

/// A file that is written and not yet there: it is beside its place until it is published. Several files that belong together are written
/// first, and published when nothing can fail for want of room. Dropped, it leaves nothing.
#[must_use]
#[derive(Debug)]
pub struct Pending {
    /// The file; `None` of a stream, which has everything already.
    file: Option<Partial>,
}

impl Pending {
    /// As [`write()`].
    ///
    /// # Errors
    /// As [`write()`].
    pub fn write(path: &Path, content: &[u8]) -> io::Result<Self> {
        Self::write_with(path, |out| out.write_all(content))
    }

    /// As [`write_with`].
    ///
    /// # Errors
    /// As [`write_with`].
    pub fn write_with(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Self> {
        let fill = |file: &File| {
            let mut out = BufWriter::new(file);
            fill(&mut out)?;
            out.flush()
        };
        if is_stream(path) {
            fill(&open_stream(path)?)?;
            return Ok(Self { file: None });
        }
        Self::beside(path, create_like, fill)
    }

    fn beside(
        path: &Path,
        create: impl FnOnce(Place, Option<FileStat>) -> io::Result<Partial>,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<Self> {
        let target = Target::find(path).map_err(|error| match error {
            TargetError::Failed(error) => error,
            TargetError::NotRegular(what) => {
                io::Error::other(format!("it is {what}, which is neither replaced nor written into"))
            }
            TargetError::Directory | TargetError::Exists => io::ErrorKind::IsADirectory.into(),
        })?;
        make_directories(directory(&target.path))?;
        let place = Place::open(&target.path)?;
        let before = place.there()?;
        // Its owner and permissions are given on: so it is what is replaced, and nothing that it leads to.
        if before.is_some_and(|there| there.st_mode & libc::S_IFMT != libc::S_IFREG) {
            return Err(io::Error::other("another process changes what is there"));
        }
        // First: the file system may be full of them.
        place.remove_ended(before.map(|there| there.st_uid));
        let partial = create(place, before)?;
        fill(partial.as_file())?;
        Ok(Self { file: Some(partial) })
    }

    /// Gives the file its name, in place of what had it.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn publish(mut self) -> io::Result<()> {
        self.file.take().map_or(Ok(()), Partial::persist)
    }
}

/// What this process prints into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Printed {
    Output,
    Errors,
}

/// Which of both a name such as `/dev/stdout` means, whatever is behind it.
fn printed(path: &Path) -> Option<Printed> {
    let open = fs::canonicalize("/proc/self/fd").ok()?;
    let mut at = path.to_owned();
    for _ in 0..LINKS_MOST {
        if fs::canonicalize(directory(&at)).is_ok_and(|directory| directory == open) {
            return match at.file_name()?.to_str()? {
                "1" => Some(Printed::Output),
                "2" => Some(Printed::Errors),
                _ => None,
            };
        }
        at = directory(&at).join(fs::read_link(&at).ok()?);
    }
    None
}

/// Opens a stream without waiting for its reader, and then lets writes wait for the reader.
fn open_stream(path: &Path) -> io::Result<File> {
    // What is opened anew has a place of its own in a file, and what is printed would go over it.
    match printed(path) {
        Some(Printed::Output) => return Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        Some(Printed::Errors) => return Ok(io::stderr().as_fd().try_clone_to_owned()?.into()),
        None => {}
    }
    let opened = File::options().write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => io::Error::new(error.kind(), "nobody reads this pipe"),
        _ => error,
    })?;
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(file)
}

/// As [`write()`]. When this returns, the content is on the disk.
///
/// # Errors
/// As [`write()`].
pub fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    Pending::beside(path, create_like, |file| fill_synced(file, content))?.publish()
}

/// As [`write_synced`], for what its owner alone may read, whatever was there.
///
/// # Errors
/// As [`write()`].
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let create = |place, _| Partial::new(place, OWNERS_ALONE);
    Pending::beside(path, create, |file| fill_synced(file, content))?.publish()
}

fn fill_synced(mut file: &File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)?;
    file.sync_all()
}

/// Writes into the file that is there, where its directory takes no new one. Follows no link. A crash in between leaves a part of it.
///
/// # Errors
/// If there is no regular file, or it cannot be written.
pub fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    // Who may write the directory can put a link there to any other file, or a pipe.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = File::options().write(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    file.set_len(0)?;
    file.write_all(content)?;
    file.sync_all()
}

/// A new file with the permissions of the one that it replaces, and with its owner if this process may say so.
fn create_like(place: Place, before: Option<FileStat>) -> io::Result<Partial> {
    let Some(before) = before else { return Partial::new(place, ANYBODYS) };
    // Closed to others until it has its owner.
    let partial = Partial::new(place, OWNERS_ALONE)?;
    let file = partial.as_file();
    if geteuid().is_root() {
        // Not on each file system, and not in each container.
        let _ = fchown(file, Some(before.st_uid), Some(before.st_gid));
    }
    // What one group might do, another may not.
    let allowed = if file.metadata()?.gid() == before.st_gid { 0o777 } else { 0o707 };
    file.set_permissions(Permissions::from_mode(before.st_mode & allowed))?;
    Ok(partial)
}

impl Target {
    fn find(path: &Path) -> Result<Self, TargetError> {
        let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => Err(TargetError::Directory),
            Ok(there) if !there.is_file() => Err(TargetError::NotRegular(what(there.file_type()))),
            Ok(_) => Ok(Self { path: fs::canonicalize(path)?, is_there: true }),
            Err(error) if missing.contains(&error.kind()) => Ok(Self { path: led_to(path), is_there: false }),
            Err(error) => Err(error.into()),
        }
    }
}

/// The target of a name whose last link leads to nothing.
fn led_to(path: &Path) -> PathBuf {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MOST {
        match fs::read_link(&at) {
            Ok(next) => at = at.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => break,
        }
    }
    at
}

/// Makes a directory, and those that it is in.
///
/// # Errors
/// If something else is there, or it cannot be made.
pub fn make_directories(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory).map_err(|error| match error.kind() {
        // What the system says of a file where a directory is wanted.
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            let kind = io::ErrorKind::NotADirectory;
            io::Error::new(kind, format!("{} is no directory", directory.display()))
        }
        _ => error,
    })
}

/// Removes what processes have left that were killed while they wrote `path`. Every later write of `path` does this too.
pub fn remove_partial(path: &Path) {
    let place = Target::find(path).map(|target| Place::open(&target.path));
    if let Ok(Ok(place)) = place {
        let owner = place.there().ok().flatten().map(|there| there.st_uid);
        place.remove_ended(owner);
    }
}

#[cfg(test)]
mod tests;
