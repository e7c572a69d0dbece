//! A socket file on which programs of any user ask a running program, one line each way.
//!
//! Every user who can reach the file can ask: the rights of its folder decide that. Users who ask delay themselves before
//! they delay others that ask, and no one else.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, open, renameat2};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::askers::Askers;
use ekiden_net::privileges::peer_user;

/// The longest question in bytes, with the end of its line.
pub const QUESTION_MOST: usize = 1024;
/// How much behind the question is read and dropped, in bytes.
const UNREAD_MOST: u64 = 64 << 10;
/// How long one that asks may take for its question and for reading the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The rights of the file: every user may connect.
const RIGHTS: u32 = 0o666;
/// How many may wait to be accepted: as many as the system lets.
const WAITING: i32 = i32::MAX;
/// The pause after each answer: questions in a loop take little of a processor.
const PACE: Duration = Duration::from_millis(1);
/// The pause when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket file that this process listens on. It goes when this is dropped.
#[derive(Debug)]
pub struct AskSocket {
    path: PathBuf,
    /// Tells the file from one that another process has made since: that may have its number, and has another time.
    file: (u64, u64, i64, i64),
}

/// Listens on a new socket file that every user may connect to. One that a killed process has left is replaced.
///
/// # Errors
/// Something else has the name, another process answers there, or the file cannot be made.
pub fn listen(path: &Path) -> io::Result<(AskSocket, StdListener)> {
    if let Ok(metadata) = fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is there already, and is no socket"));
        }
        match connects(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            // The program that listens there has many to answer, or hangs.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers there")),
        }
    }
    let listener = bind(path)?;
    let socket = AskSocket { path: path.into(), file: identity(&fs::symlink_metadata(path)?) };
    Ok((socket, listener))
}

/// Makes the file with its rights at once, in a folder that no other user may write, and moves it to its name. Under its
/// name the rights could not be set safely: another user who may write in the folder could meanwhile replace it by a link to
/// a file of ours.
fn bind(path: &Path) -> io::Result<StdListener> {
    // Clients connect to this one, which must not be too long.
    SockAddr::unix(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = tempfile::Builder::new().prefix(".ekiden-").tempdir_in(folder)?.keep();
    let bound = bind_inside(&made, path);
    // Only what is empty goes, whatever has the name by now.
    let _ = fs::remove_dir(&made);
    bound
}

/// By the opened folder and not by its name, which others may have given to another one.
fn bind_inside(folder: &Path, path: &Path) -> io::Result<StdListener> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = open(folder, flags, Mode::empty())?;
    let FileStat { st_uid, st_mode, .. } = fstat(&folder)?;
    if st_uid != geteuid().as_raw() || st_mode & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user changes its folder"));
    }
    let inside = PathBuf::from(format!("/proc/self/fd/{}/ask", folder.as_raw_fd()));
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(&inside)?)?;
    // A process that finds the name without a listener takes it for a dead process' and removes it.
    socket.listen(WAITING)?;
    let moved = fs::set_permissions(&inside, fs::Permissions::from_mode(RIGHTS))
        .and_then(|()| Ok(renameat2(&folder, "ask", AT_FDCWD, path, RenameFlags::RENAME_NOREPLACE)?));
    if let Err(error) = moved {
        let _ = fs::remove_file(&inside);
        return Err(error);
    }
    Ok(socket.into())
}

/// Whether somebody listens there, without waiting.
fn connects(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

fn identity(file: &fs::Metadata) -> (u64, u64, i64, i64) {
    (file.dev(), file.ino(), file.ctime(), file.ctime_nsec())
}

impl AskSocket {
    /// Whether the file is still this one's.
    pub fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|now| identity(&now) == self.file)
    }
}

impl Drop for AskSocket {
    fn drop(&mut self) {
        if self.is_there() {
            // It may have been removed a moment ago.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Answers for ever: one line, without its end, to each line of each connection. `failed` gets the reason why asking is
/// impossible.
pub async fn answer_all(
    listener: UnixListener,
    answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    failed: impl Fn(io::Error),
) {
    let (answer, mut askers) = (Arc::new(Mutex::new(answer)), Askers::default());
    loop {
        let accepted = listener.accept().await.and_then(|(socket, _)| Ok((peer_user(&socket)?, socket)));
        match accepted {
            Ok((user, socket)) => {
                let answer = answer.clone();
                askers.hear(user.unwrap_or(0), async move {
                    // A client that is slow, or has gone, gets no answer.
                    let _ = timeout(PATIENCE, converse(socket, &answer)).await;
                });
                askers.pace().await;
            }
            Err(error) => {
                failed(error);
                sleep(PAUSE).await;
            }
        }
    }
}

async fn converse(mut socket: UnixStream, answer: &Mutex<impl Fn(&[u8]) -> Vec<u8>>) -> io::Result<()> {
    let question = line(&mut socket).await?;
    // One after the other, in the order of their questions.
    let answering = answer.lock().await;
    let mut text = answering(&question);
    sleep(PACE).await;
    drop(answering);
    text.push(b'\n');
    socket.write_all(&text).await?;
    socket.shutdown().await?;
    // A client that has sent more than a line, or a longer one, gets the answer and no error: unread data would make one.
    tokio::io::copy(&mut socket.take(UNREAD_MOST), &mut tokio::io::sink()).await.map(drop)
}

/// The first line that comes, without its end; or as much as one may have, or all there is.
async fn line(socket: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(QUESTION_MOST);
    loop {
        let from = line.len();
        let read = (&mut *socket).take((QUESTION_MOST - from) as u64).read_buf(&mut line).await?;
        if let Some(end) = line[from..].iter().position(|&byte| byte == b'\n') {
            line.truncate(from + end);
            return Ok(line);
        }
        if read == 0 || line.len() == QUESTION_MOST {
            return Ok(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_leftover_is_replaced_and_what_is_in_use_or_no_socket_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ask");
        let (socket, listener) = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(listen(&path).unwrap_err().to_string().contains("another process answers"));
        // As when a process is killed: the file stays, and nobody listens.
        std::mem::forget(socket);
        drop(listener);
        let (socket, listener) = listen(&path).unwrap();
        drop((socket, listener));
        assert!(!path.exists());
        // What another one has made since stays.
        let (socket, listener) = listen(&path).unwrap();
        fs::remove_file(&path).unwrap();
        drop(listener);
        // Times of files have steps of some milliseconds.
        thread::sleep(Duration::from_millis(50));
        let (other, _listener) = listen(&path).unwrap();
        drop(socket);
        assert!(path.exists());
        drop(other);
        fs::write(&path, b"text").unwrap();
        assert!(listen(&path).unwrap_err().to_string().contains("no socket"));
        assert_eq!(fs::read(&path).unwrap(), b"text");
    }

    #[test]
    fn a_link_in_the_place_of_the_file_gives_nobody_any_rights() {
        let folder = tempfile::tempdir().unwrap();
        let (path, key) = (folder.path().join("ask"), folder.path().join("key"));
        fs::write(&key, b"private").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // Whoever may write in the folder: as soon as the file is there, its name stands for the key.
            scope.spawn(|| {
                let link = folder.path().join("link");
                while !over.load(Ordering::Relaxed) {
                    let is_new = fs::symlink_metadata(&path).is_ok_and(|file| file.file_type().is_socket());
                    if is_new && symlink(&key, &link).is_ok() {
                        fs::rename(&link, &path).unwrap();
                    }
                }
            });
            for _ in 0..300 {
                drop(listen(&path));
                let _ = fs::remove_file(&path);
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn whoever_finds_the_name_is_heard() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ask");
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // As another process that starts, which removes what nobody listens on.
            let others = scope.spawn(|| {
                let is_refused =
                    || connects(&path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
                std::iter::from_fn(|| (!over.load(Ordering::Relaxed)).then(is_refused))
                    .filter(|refused| *refused)
                    .count()
            });
            // Nothing that was found stops listening meanwhile.
            let _kept: Vec<StdListener> = (0..300).map(|_| listen(&path).unwrap().1).collect();
            over.store(true, Ordering::Relaxed);
            assert_eq!(others.join().unwrap(), 0);
        });
    }

    #[test]
    fn a_socket_whose_queue_is_full_is_left_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ask");
        let hanging = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        hanging.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        hanging.listen(0).unwrap();
        let mut waiting = Vec::new();
        // The queue has room for one or two.
        while waiting.len() < 100 {
            let one = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            one.set_nonblocking(true).unwrap();
            if one.connect(&SockAddr::unix(&path).unwrap()).is_err() {
                break;
            }
            waiting.push(one);
        }
        assert!((1..100).contains(&waiting.len()));
        assert!(listen(&path).unwrap_err().to_string().contains("another process answers"));
        assert!(path.exists());
    }

    #[test]
    fn one_line_is_answered_by_one_and_the_slow_hold_up_nobody_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ask");
        let (_socket, listener) = listen(&path).unwrap();
        let answer = |question: &[u8]| format!("{} bytes", question.len()).into_bytes();
        // It ends with the test's process.
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = UnixListener::from_std(listener).unwrap();
                answer_all(listener, answer, |error| panic!("{error}")).await;
            });
        });
        let ask = |question: &[u8]| {
            let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
            socket.write_all(question).unwrap();
            if !question.ends_with(b"\n") {
                socket.shutdown(std::net::Shutdown::Write).unwrap();
            }
            let mut all = String::new();
            BufReader::new(socket).read_line(&mut all).unwrap();
            all
        };
        assert_eq!(ask(b"abc\n"), "3 bytes\n");
        assert_eq!(ask(b"abc"), "3 bytes\n");
        assert_eq!(ask(b"abc\nmore\n"), "3 bytes\n");
        assert_eq!(ask(b""), "0 bytes\n");
        for length in [QUESTION_MOST, 3 * QUESTION_MOST] {
            assert_eq!(ask(&vec![b'x'; length]), format!("{QUESTION_MOST} bytes\n"));
        }
        // Many more than are heard at a time, and all of them say nothing: in a row they would take a minute of patience.
        let silent: Vec<_> = (0..500).map(|_| std::os::unix::net::UnixStream::connect(&path).unwrap()).collect();
        let begun = std::time::Instant::now();
        assert_eq!(ask(b"abc\n"), "3 bytes\n");
        assert!(begun.elapsed() < 5 * PATIENCE, "{:?}", begun.elapsed());
        drop(silent);
    }
}
