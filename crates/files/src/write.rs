//! Writing a file that someone has named: what is there stays unless it may go, and nobody ever sees half of it.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::partial::{self, Partial, directory};
use crate::read::what;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
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
    /// Of the regular file that is there.
    before: Option<Metadata>,
}

/// Whether a pipe, a terminal or the like has this name, such as `/dev/null`: nothing of it can be replaced, and nothing can be
/// beside it. What is written goes into it.
pub fn is_stream(path: &Path) -> bool {
    let is_one = |there: Metadata| there.file_type().is_fifo() || there.file_type().is_char_device();
    fs::metadata(path).is_ok_and(is_one)
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
    if target.before.is_some() && !replace {
        return Err(TargetError::Exists);
    }
    make_directory(&target.path)?;
    Ok(Partial::new(&target.path, OWNERS_ALONE)?.close()?)
}

/// Writes a file, whole or not at all: beside `path` first, then renamed. Makes missing directories, and replaces the file that was
/// there; the new one has its permissions, and its owner if this process is root. A symbolic link stays, and what it leads to is
/// written. What killed writers of the same file have left is removed. A stream ([`is_stream`]) is written into.
///
/// # Errors
/// If a directory or the file cannot be made, something else than a file or a stream is there, or nobody reads the pipe that is.
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
    /// The file, and its place; `None` of a stream, which has everything already.
    place: Option<(Partial, PathBuf)>,
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
            return Ok(Self { place: None });
        }
        Self::beside(path, create_like, fill)
    }

    fn beside(
        path: &Path,
        create: impl FnOnce(&Target) -> io::Result<Partial>,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<Self> {
        let target = Target::find(path).map_err(|error| match error {
            TargetError::Failed(error) => error,
            TargetError::NotRegular(what) => {
                io::Error::other(format!("it is {what}, which is neither replaced nor written into"))
            }
            TargetError::Directory | TargetError::Exists => io::ErrorKind::IsADirectory.into(),
        })?;
        make_directory(&target.path)?;
        // First: the file system may be full of them.
        target.remove_ended();
        let partial = create(&target)?;
        fill(partial.as_file())?;
        Ok(Self { place: Some((partial, target.path)) })
    }

    /// Gives the file its name, in place of what had it.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn publish(mut self) -> io::Result<()> {
        let Some((partial, place)) = self.place.take() else { return Ok(()) };
        partial.persist(&place)
    }
}

/// Opens a stream without waiting for whoever reads it, and then lets writes wait for that.
fn open_stream(path: &Path) -> io::Result<File> {
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
    let create = |target: &Target| Partial::new(&target.path, OWNERS_ALONE);
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
fn create_like(target: &Target) -> io::Result<Partial> {
    let Some(before) = &target.before else { return Partial::new(&target.path, ANYBODYS) };
    // Closed to others until it has its owner.
    let partial = Partial::new(&target.path, OWNERS_ALONE)?;
    let file = partial.as_file();
    if geteuid().is_root() {
        // Not on each file system, and not in each container.
        let _ = fchown(file, Some(before.uid()), Some(before.gid()));
    }
    // What one group might do, another may not.
    let allowed = if file.metadata()?.gid() == before.gid() { 0o7777 } else { 0o7707 };
    file.set_permissions(Permissions::from_mode(before.mode() & allowed))?;
    Ok(partial)
}

impl Target {
    /// Removes the files of writers that were killed.
    fn remove_ended(&self) {
        let owner = self.before.as_ref().map(MetadataExt::uid);
        partial::remove_ended(&self.path, owner);
    }

    fn find(path: &Path) -> Result<Self, TargetError> {
        let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => Err(TargetError::Directory),
            Ok(there) if !there.is_file() => Err(TargetError::NotRegular(what(there.file_type()))),
            Ok(there) => Ok(Self { path: fs::canonicalize(path)?, before: Some(there) }),
            Err(error) if missing.contains(&error.kind()) => Ok(Self { path: led_to(path), before: None }),
            Err(error) => Err(error.into()),
        }
    }
}

/// Where a name leads whose last link has nothing behind it.
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

fn make_directory(path: &Path) -> io::Result<()> {
    let directory = directory(path);
    fs::create_dir_all(directory).map_err(|error| match error.kind() {
        // What the system says of a file where a directory is wanted.
        io::ErrorKind::AlreadyExists => {
            io::Error::new(error.kind(), format!("{} is no directory", directory.display()))
        }
        _ => error,
    })
}

/// Removes what processes have left that were killed while they wrote `path`. Every later write of `path` does this too.
pub fn remove_partial(path: &Path) {
    if let Ok(target) = Target::find(path) {
        target.remove_ended();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::{chown, symlink};
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn what_is_no_regular_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let _socket = UnixListener::bind(place("socket")).unwrap();
        symlink("socket", place("link")).unwrap();
        for name in ["socket", "link"] {
            for replace in [false, true] {
                assert!(matches!(check_target(&place(name), replace), Err(TargetError::NotRegular("a socket"))));
            }
            assert!(write(&place(name), b"x").unwrap_err().to_string().contains("it is a socket"));
        }
        mkfifo(&place("pipe"), Mode::S_IRWXU).unwrap();
        for name in ["socket", "pipe", "link"] {
            assert!(write_private(&place(name), b"x").unwrap_err().to_string().contains("it is a "));
        }
        assert_eq!(what(fs::symlink_metadata(place("pipe")).unwrap().file_type()), "a pipe");
        symlink("circle", place("circle")).unwrap();
        assert!(matches!(check_target(&place("circle"), true), Err(TargetError::Failed(_))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn what_goes_into_a_stream_is_written_into_it_and_waits_for_no_reader() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        for stream in [&pipe, Path::new("/dev/null")] {
            assert!(is_stream(stream));
            check_target(stream, false).unwrap();
        }
        write(Path::new("/dev/null"), b"x").unwrap();
        assert!(write(&pipe, b"x").unwrap_err().to_string().contains("nobody reads this pipe"));
        let mut reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        write(&pipe, b"text").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert!(!is_stream(folder.path()) && !is_stream(&folder.path().join("none")));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        write(&place("there/file"), b"1").unwrap();
        symlink("there", place("folder")).unwrap();
        symlink("folder/file", place("link")).unwrap();
        symlink("there/new", place("dangling")).unwrap();
        for (link, file) in [("link", "there/file"), ("dangling", "there/new")] {
            check_target(&place(link), true).unwrap();
            write(&place(link), b"2").unwrap();
            assert!(fs::symlink_metadata(place(link)).unwrap().is_symlink());
            assert_eq!(fs::read(place(file)).unwrap(), b"2");
        }
        assert!(matches!(check_target(&place("dangling"), false), Err(TargetError::Exists)));
        overwrite(&place("link"), b"3").unwrap_err();
        overwrite(&place("there/file"), b"3").unwrap();
        assert_eq!(
            (fs::read(place("there/file")).unwrap(), fs::read(place("there/new")).unwrap()),
            (b"3".into(), b"2".into())
        );
        assert_eq!(fs::read_dir(place("there")).unwrap().count(), 2);
    }

    #[test]
    fn a_file_keeps_its_permissions_and_for_root_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let of = || fs::metadata(&path).map(|there| (there.mode() & 0o777, there.uid())).unwrap();
        write(&path, b"1").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        if geteuid().is_root() {
            chown(&path, Some(65534), Some(65534)).unwrap();
        }
        let before = of();
        write(&path, b"2").unwrap();
        assert_eq!((of(), fs::read(&path).unwrap()), (before, b"2".to_vec()));
    }

    #[test]
    fn a_check_leaves_a_file_alone_that_is_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.prom");
        write_with(&path, |out| {
            out.write_all(b"half")?;
            check_target(&path, true).unwrap();
            out.write_all(b" and half")
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"half and half");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_others_have_put_beside_a_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("precious"), b"1").unwrap();
        for ending in [".check", ".partial"] {
            symlink("precious", place(&format!("a.json{ending}"))).unwrap();
            symlink("precious", place(&format!(".a.json{ending}"))).unwrap();
        }
        check_target(&place("a.json"), false).unwrap();
        for _ in 0..2 {
            write(&place("a.json"), b"2").unwrap();
            write_private(&place("a.json"), b"2").unwrap();
        }
        assert_eq!(fs::read(place("precious")).unwrap(), b"1");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6);
    }

    #[test]
    fn a_target_is_checked_without_a_trace() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        check_target(&place("new/a.json"), false).unwrap();
        assert_eq!(fs::read_dir(place("new")).unwrap().count(), 0);

        write(&place("old"), b"1").unwrap();
        assert!(matches!(check_target(&place("old"), false), Err(TargetError::Exists)));
        check_target(&place("old"), true).unwrap();
        assert_eq!(fs::read(place("old")).unwrap(), b"1");
        for replace in [false, true] {
            assert!(matches!(check_target(&place("new"), replace), Err(TargetError::Directory)));
            assert!(matches!(check_target(&place("old/a"), replace), Err(TargetError::Failed(_))));
            assert!(matches!(check_target(Path::new("/proc/a"), replace), Err(TargetError::Failed(_))));
        }
    }

    #[test]
    fn a_private_file_is_its_owners_whatever_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/a.json");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write_private(&path, b"first").unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        write_private(&path, b"2").unwrap();
        assert_eq!((mode(), fs::read(&path).unwrap()), (0o600, b"2".to_vec()));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for text in ["first", "2"] {
            write(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::create_dir(folder.path().join("directory")).unwrap();
        assert!(write(&folder.path().join("directory"), b"x").is_err());
        assert!(write_with(&folder.path().join("b"), |_| Err(io::ErrorKind::StorageFull.into())).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_pending_file_is_there_when_it_is_published_and_leaves_nothing_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "before").unwrap();
        drop(Pending::write(&file, b"never").unwrap());
        let pending = Pending::write(&file, b"after").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "before");
        pending.publish().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
