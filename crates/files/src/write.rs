//! Writing a file that someone has named: what is there stays unless it may go, and nobody ever sees half of it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why a file cannot be written. The message does not name the file.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Something has the name, and may not be replaced.
    #[error("is there already; name another file, or say --force to replace it")]
    Exists,
    /// A directory has the name.
    #[error("cannot be written: it is a directory")]
    Directory,
    /// The system refuses.
    #[error("cannot be written: {0}")]
    Failed(#[from] io::Error),
}

/// Finds out, before any work is done, whether [`write()`] can make `path`. Makes missing directories, and leaves nothing else.
///
/// # Errors
/// If there is something already and `replace` is not said, or its directory takes no new file.
pub fn check_target(path: &Path, replace: bool) -> Result<(), TargetError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(TargetError::Directory),
        Ok(_) if !replace => return Err(TargetError::Exists),
        _ => make_directory(path)?,
    }
    // Not the name under which another process may be writing just now.
    let check = beside(path, ".check");
    File::create(&check)?;
    match fs::remove_file(check) {
        // Another process has checked the same.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => Ok(removed?),
    }
}

/// Writes a file, whole or not at all: beside `path` first, then renamed. Makes missing directories, and replaces what was
/// there.
///
/// # Errors
/// If a directory or the file cannot be made.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    write_with(path, |out| out.write_all(content))
}

/// As [`write()`], for what is too long to be held in memory: `fill` writes it piece by piece.
///
/// # Errors
/// If a directory or the file cannot be made, and those of `fill`.
pub fn write_with(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    replace(
        path,
        |partial| File::create(partial),
        |file| {
            let mut out = BufWriter::new(file);
            fill(&mut out)?;
            out.flush()
        },
    )
}

/// As [`write()`], for what its owner alone may read. When this returns, the content is on the disk.
///
/// # Errors
/// If a directory or the file cannot be made.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    // What a killed process has left may have other permissions.
    remove_partial(path);
    let create = |partial: &Path| File::options().write(true).create_new(true).mode(0o600).open(partial);
    replace(path, create, |mut file| {
        file.write_all(content)?;
        file.sync_all()
    })
}

fn replace(
    path: &Path,
    create: impl FnOnce(&Path) -> io::Result<File>,
    fill: impl FnOnce(File) -> io::Result<()>,
) -> io::Result<()> {
    make_directory(path)?;
    let partial = partial(path);
    let written = create(&partial).and_then(fill);
    let written = written.and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(partial);
    }
    written
}

fn make_directory(path: &Path) -> io::Result<()> {
    match path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => fs::create_dir_all(directory).map_err(|error| match error.kind() {
            // What the system says of a file where a directory is wanted.
            io::ErrorKind::AlreadyExists => {
                io::Error::new(error.kind(), format!("{} is no directory", directory.display()))
            }
            _ => error,
        }),
        None => Ok(()),
    }
}

/// Takes away what a process has left that was killed while it wrote `path`.
pub fn remove_partial(path: &Path) {
    let _ = fs::remove_file(partial(path));
}

/// Where a file is while it is being written.
fn partial(path: &Path) -> PathBuf {
    beside(path, ".partial")
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name: OsString = path.into();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
        for open in [path.clone(), partial(&path)] {
            fs::write(&open, b"x").unwrap();
            fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
        }
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
}
