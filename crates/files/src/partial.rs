//! The file that a writer fills: beside its place, and hidden, until it gets its name.
//!
//! A writer holds a lock (flock) on its file, which the kernel releases however the process ends. A later writer of the same
//! name removes each file without a lock.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

/// How the names of these files end.
const ENDING: &str = ".partial";
/// The number of random characters before that.
const DRAWN: usize = 6;

/// The longest name of a file on Linux, in bytes.
const NAME_MOST: usize = 255;

/// A name in an opened folder. Others may give the folder's own name to another one meanwhile, and whoever may write it can put anything
/// under names in it: so all is done by the descriptor, and no link is followed.
#[derive(Debug)]
pub struct Place {
    folder: OwnedFd,
    name: OsString,
}

/// A file that is being written. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct Partial {
    place: Place,
    /// Its name meanwhile; `None` once it has the one it was written for.
    name: Option<OsString>,
    file: File,
    /// `None` where the file system has no locks: then no writer gets one, and none removes the file. Dropped last.
    _lock: Option<Flock<File>>,
}

impl Place {
    /// The place of `path`, whose folder is there.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = open(directory(path), flags, Mode::empty())?;
        Ok(Self { folder, name: path.file_name().unwrap_or_default().into() })
    }

    /// What has the name.
    pub fn there(&self) -> io::Result<Option<FileStat>> {
        match self.stat(&self.name) {
            Ok(there) => Ok(Some(there)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn stat(&self, name: &OsStr) -> nix::Result<FileStat> {
        fstatat(&self.folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    fn remove(&self, name: &OsStr) -> nix::Result<()> {
        unlinkat(&self.folder, name, UnlinkatFlags::NoRemoveDir)
    }

    fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.folder, name, flags, Mode::from_bits_truncate(mode))?.into())
    }

    /// How the names of files begin that are written for it.
    fn beginning(&self) -> OsString {
        let name = self.name.as_bytes();
        // A name of its own may be too long for what is added.
        let name = &name[..name.len().min(NAME_MOST - DRAWN - ENDING.len() - 2)];
        OsString::from_vec([b".", name, b"."].concat())
    }

    /// Removes the files of writers of this place that have ended. `owner` has the file that is there: the writers of root give it theirs.
    /// Where something cannot be removed, it stays.
    pub fn remove_ended(&self, owner: Option<u32>) {
        let begins = self.beginning();
        let user = geteuid();
        let is_ours = |uid: u32| uid == user.as_raw() || (user.is_root() && Some(uid) == owner);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let Ok(mut folder) = Dir::openat(&self.folder, ".", flags, Mode::empty()) else { return };
        let names = folder.iter().flatten().map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
        for name in names.filter(|name| is_partial(name, &begins)) {
            let _ = self.remove_if_ended(&name, is_ours);
        }
    }

    fn remove_if_ended(&self, name: &OsStr, is_ours: impl FnOnce(u32) -> bool) -> io::Result<()> {
        // Others may have put anything there, such as a link or a pipe.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.folder, name, flags, Mode::empty())?);
        let there = file.metadata()?;
        if !there.is_file() || !is_ours(there.uid()) {
            return Ok(());
        }
        // Held until the file is gone.
        let _lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
        Ok(self.remove(name)?)
    }
}

impl Partial {
    /// A new file beside what it is for, with an unpredictable name: another user who may write the folder could put a link there.
    pub fn new(place: Place, mode: u32) -> io::Result<Self> {
        let begins = place.beginning();
        let mut builder = tempfile::Builder::new();
        builder.prefix(&begins).suffix(ENDING).rand_bytes(DRAWN);
        loop {
            // Only the name is drawn there, which an error would show.
            let refused = Cell::new(None);
            let create = |drawn: &Path| {
                place
                    .create(drawn.file_name().unwrap_or_default(), mode)
                    .inspect_err(|error| refused.set(error.raw_os_error()))
            };
            let drawn = builder
                .make_in("/", create)
                .map_err(|error| refused.get().map_or(error, io::Error::from_raw_os_error))?;
            let (file, drawn) = drawn.keep().map_err(|kept| kept.error)?;
            let name = drawn.file_name().unwrap_or_default().to_owned();
            let lock = match Flock::lock(file.try_clone()?, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => Some(lock),
                // Another writer is about to remove it.
                Err((_, Errno::EWOULDBLOCK)) => continue,
                Err(_) => None,
            };
            // Another writer may have removed it before it was locked.
            if place.stat(&name).is_ok() {
                return Ok(Self { place, name: Some(name), file, _lock: lock });
            }
        }
    }

    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name, in place of what had it.
    pub fn persist(mut self) -> io::Result<()> {
        let Some(name) = &self.name else { return Ok(()) };
        renameat(&self.place.folder, name.as_os_str(), &self.place.folder, self.place.name.as_os_str())?;
        self.name = None;
        Ok(())
    }

    /// Removes it.
    pub fn close(mut self) -> io::Result<()> {
        self.remove()
    }

    fn remove(&mut self) -> io::Result<()> {
        self.name.take().map_or(Ok(()), |name| Ok(self.place.remove(&name)?))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Whether it is the name of such a file, for the place whose files' names begin like this.
fn is_partial(name: &OsStr, begins: &OsStr) -> bool {
    let rest = name.as_bytes().strip_prefix(begins.as_bytes());
    rest.and_then(|rest| rest.strip_suffix(ENDING.as_bytes())).is_some_and(|drawn| drawn.len() == DRAWN)
}

pub(crate) fn directory(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::fs::{chown, symlink};
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};

    use nix::unistd::mkfifo;

    use super::*;
    use crate::{remove_partial, write, write_private, write_with};

    const OWNERS_ALONE: u32 = 0o600;
    /// The file that a process of this test program writes.
    const WRITTEN: &str = "EKIDEN_FILES_TEST_WRITES";

    /// A process that writes the file `WRITTEN`, and does not come to an end.
    #[test]
    #[ignore = "the others start it"]
    fn writer() {
        let Some(path) = std::env::var_os(WRITTEN) else { return };
        let stays = |out: &mut dyn Write| {
            out.write_all(b"half")?;
            out.flush()?;
            println!("\nhalf written");
            std::thread::sleep(std::time::Duration::from_secs(30));
            Ok(())
        };
        write_with(Path::new(&path), stays).unwrap();
    }

    #[test]
    fn the_longest_name_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["n".repeat(NAME_MOST), "é".repeat(NAME_MOST / 2)] {
            let path = folder.path().join(name);
            for text in ["one", "two"] {
                write(&path, text.as_bytes()).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
            }
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    /// Such a process, in the middle of its writing.
    fn writing(path: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "partial::tests::writer", "--ignored", "--nocapture"]).env(WRITTEN, path);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "half written"));
        child
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn names(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn a_later_write_removes_what_killed_writers_have_left_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let [killed @ .., alive] = [(); 4].map(|()| writing(&path));
        let all = names(folder.path());
        killed.into_iter().for_each(end);
        let other = folder.path().join("a.json.old");
        end(writing(&other));
        assert_eq!((all.len(), names(folder.path()).len()), (4, 5));

        write(&path, b"whole").unwrap();
        write_private(&path, b"whole").unwrap();
        let after = names(folder.path());
        assert_eq!(after.len(), 3, "{after:?}");
        // The file of the writer that goes on is one of them.
        assert_eq!(after.iter().filter(|file| all.contains(file)).count(), 1);

        end(alive);
        write(&path, b"whole").unwrap();
        write(&other, b"whole").unwrap();
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn one_process_writes_a_file_several_times_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| write(&path, b"whole").unwrap()));
            }
        });
        assert_eq!((fs::read(&path).unwrap(), names(folder.path()).len()), (b"whole".to_vec(), 1));
    }

    #[test]
    fn what_others_have_put_there_under_such_a_name_stays() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("precious"), b"1").unwrap();
        symlink("precious", place(".a.json.AAAAAA.partial")).unwrap();
        mkfifo(&place(".a.json.BBBBBB.partial"), Mode::S_IRWXU).unwrap();
        fs::create_dir(place(".a.json.CCCCCC.partial")).unwrap();
        for name in [".a.json.DDDDDDD.partial", ".a.json.EEEEEE.partial~", "a.json.FFFFFF.partial"] {
            fs::write(place(name), b"1").unwrap();
        }
        write(&place("a.json"), b"2").unwrap();
        assert_eq!(names(folder.path()).len(), 8);
        assert_eq!(fs::read(place("precious")).unwrap(), b"1");
    }

    #[test]
    fn of_other_users_only_the_owner_of_the_file_loses_anything_to_root() {
        if !geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        for (name, uid) in [("a.json", 65534), (".a.json.AAAAAA.partial", 65534), (".a.json.BBBBBB.partial", 65533)] {
            fs::write(place(name), b"1").unwrap();
            chown(place(name), Some(uid), None).unwrap();
        }
        write(&place("a.json"), b"2").unwrap();
        assert!(!place(".a.json.AAAAAA.partial").exists() && place(".a.json.BBBBBB.partial").exists());
    }

    #[test]
    fn a_write_succeeds_where_nothing_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let left = Partial::new(Place::open(&path).unwrap(), OWNERS_ALONE).unwrap();
        write(&path, b"2").unwrap();
        remove_partial(&path);
        assert!(folder.path().join(left.name.as_ref().unwrap()).exists());
        left.close().unwrap();
        assert_eq!(names(folder.path()), [path]);
    }
}
