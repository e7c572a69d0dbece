//! A running program tells its status to whoever asks on this host, as root or as the program's own user.
//!
//! It listens on an abstract Unix socket. Such names belong to a network namespace, as devices do, and nothing is left of them when
//! the process ends.

use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use crate::privileges::peer_user;

/// How long whoever asks waits for the answer to go on.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// More than anything answers.
const ANSWER_MOST: u64 = 64 << 20;
/// How long one that asks may take to read the answer. The next one waits meanwhile.
const READING: Duration = Duration::from_secs(2);
/// The pause when nobody can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Why there is no answer.
#[derive(Debug)]
pub enum AskError {
    /// Nobody listens.
    Nobody,
    /// It does not answer this user.
    Refused,
    /// Another user's program has taken the name: the number of the user.
    Stranger(u32),
    /// It has not answered for [`PATIENCE`].
    Late,
    /// The connection failed.
    Failed(io::Error),
}

/// Listens on the name.
///
/// # Errors
/// If it is taken, or too long.
pub fn listen(name: &str) -> io::Result<StdListener> {
    let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers for ever, one at a time, and nobody but root and this process's own user. Nothing is read: whatever was sent, the answer
/// is the same. `refused` is told why somebody gets none.
pub async fn answer_all(listener: UnixListener, status: impl Fn() -> Vec<u8>, refused: impl Fn(String)) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => match peer_user(&socket) {
                Ok(None) => answer(socket, &status()).await,
                Ok(Some(user)) => refused(format!("user {user} may not ask for the status")),
                Err(error) => refused(format!("somebody unknown asks for the status: {error}")),
            },
            Err(error) => {
                refused(format!("cannot be asked for the status: {error}"));
                sleep(PAUSE).await;
            }
        }
    }
}

/// Whoever has gone, or does not read, gets no answer.
async fn answer(mut socket: UnixStream, text: &[u8]) {
    let _ = timeout(READING, socket.write_all(text)).await;
}

/// Asks whatever listens on the name in this network namespace.
///
/// # Errors
/// If nothing does, or it does not answer.
pub fn ask(name: &str) -> Result<Vec<u8>, AskError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Late,
        _ => AskError::Failed(error),
    };
    let address = SocketAddr::from_abstract_name(name).map_err(|_| AskError::Nobody)?;
    let socket = match StdStream::connect_addr(&address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(AskError::Nobody),
        socket => socket.map_err(failed)?,
    };
    match peer_user(&socket).map_err(failed)? {
        Some(user) => return Err(AskError::Stranger(user)),
        None => socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?,
    }
    let mut text = Vec::new();
    socket.take(ANSWER_MOST).read_to_end(&mut text).map_err(failed)?;
    if text.is_empty() { Err(AskError::Refused) } else { Ok(text) }
}
