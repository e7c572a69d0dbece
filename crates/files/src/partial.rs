//! The file that a writer fills: beside its place, and hidden, until it gets its name.
//!
//! A writer holds a lock (flock) on its file, which the kernel releases however the process ends. A later writer of the same
//! name removes each file without a lock.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use tempfile::NamedTempFile;

/// How the names of these files end.
const ENDING: &str = ".partial";
/// The number of random characters before that.
const DRAWN: usize = 6;

/// The longest name of a file on Linux, in bytes.
const NAME_MOST: usize = 255;

/// A file that is being written. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct Partial {
    file: NamedTempFile,
    /// `None` where the file system has no locks: then no writer gets one, and none removes the file. Dropped last.
    _lock: Option<Flock<File>>,
}

impl Partial {
    /// A new file beside `path`, with an unpredictable name: another user who may write the directory could put a link
    /// there.
    pub fn new(path: &Path, mode: u32) -> io::Result<Self> {
        let begins = beginning(path);
        let mut builder = tempfile::Builder::new();
        builder.prefix(&begins).suffix(ENDING).rand_bytes(DRAWN).permissions(Permissions::from_mode(mode));
        loop {
            let file = builder.tempfile_in(directory(path))?;
            let lock = match Flock::lock(file.as_file().try_clone()?, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => Some(lock),
                // Another writer is about to remove it.
                Err((_, Errno::EWOULDBLOCK)) => continue,
                Err(_) => None,
            };
            // Another writer may have removed it before it was locked.
            if file.path().symlink_metadata().is_ok() {
                return Ok(Self { file, _lock: lock });
            }
        }
    }

    pub fn as_file(&self) -> &File {
        self.file.as_file()
    }

    pub fn close(self) -> io::Result<()> {
        self.file.close()
    }

    /// Gives the file its name, in place of what had it.
    pub fn persist(self, place: &Path) -> io::Result<()> {
        // By the same path to the directory as the file has: that is absolute, and where the process is in another mount namespace than its
        // working directory, a relative one leads elsewhere.
        let place = self.file.path().with_file_name(place.file_name().unwrap_or_default());
        self.file.persist(place).map(drop).map_err(|refused| refused.error)
    }
}

/// Removes the files of writers of `path` that have ended. `owner` has the file that is there: the writers of root give it theirs. Where
/// something cannot be removed, it stays.
pub fn remove_ended(path: &Path, owner: Option<u32>) {
    let begins = beginning(path);
    let user = geteuid();
    let is_ours = |uid: u32| uid == user.as_raw() || (user.is_root() && Some(uid) == owner);
    let there = fs::read_dir(directory(path)).into_iter().flatten().flatten();
    for file in there.filter(|file| is_partial(&file.file_name(), &begins)) {
        let _ = remove_if_ended(&file.path(), is_ours);
    }
}

/// Whether it is the name of such a file, for the place whose files' names begin like this.
fn is_partial(name: &OsStr, begins: &OsStr) -> bool {
    let rest = name.as_bytes().strip_prefix(begins.as_bytes());
    rest.and_then(|rest| rest.strip_suffix(ENDING.as_bytes())).is_some_and(|drawn| drawn.len() == DRAWN)
}

fn remove_if_ended(path: &Path, is_ours: impl FnOnce(u32) -> bool) -> io::Result<()> {
    // Others may have put anything there, such as a link or a pipe.
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let there = file.metadata()?;
    if !there.is_file() || !is_ours(there.uid()) {
        return Ok(());
    }
    // Held until the file is gone.
    let _lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
    fs::remove_file(path)
}

/// How the names of files begin that are written for `path`.
fn beginning(path: &Path) -> OsString {
    let name = path.file_name().unwrap_or_default().as_bytes();
    // A name of its own may be too long for what is added.
    let name = &name[..name.len().min(NAME_MOST - DRAWN - ENDING.len() - 2)];
    OsString::from_vec([b".", name, b"."].concat())
}

pub(crate) fn directory(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::fs::{chown, symlink};
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};

    use nix::sys::stat::Mode;
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
        let left = Partial::new(&path, OWNERS_ALONE).unwrap();
        write(&path, b"2").unwrap();
        remove_partial(&path);
        assert!(left.file.path().exists());
        left.close().unwrap();
        assert_eq!(names(folder.path()), [path]);
    }
}
