//! A running program tells its status to programs on this host that ask, as root or as the program's own user.
//!
//! It listens on an abstract Unix socket. Such names belong to a network namespace, as devices do, and nothing is left of
//! them when the process ends.

use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::thread::sleep as sleep_now;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};

use crate::askers::Askers;
use ekiden_net::kernel_text;
use ekiden_net::privileges::peer_user;

/// The timeout of a client that waits for more of the answer.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The time-out of a client that waits for others that wait already. Of a program that runs, all that fit into the queue are through in about 0.1 s;
/// nothing tells whose the name is until there is a connection.
pub const QUEUE: Duration = Duration::from_secs(3);
/// More than anything answers.
const ANSWER_MOST: u64 = 64 << 20;
/// How long one that asks may take to read the answer.
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
    /// It has accepted none of the connections before this one for [`QUEUE`].
    Full,
    /// The connection failed.
    Failed(io::Error),
}

/// Who has a name that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A program of root, or of this process's user.
    Own,
    /// A program of the user of this number.
    Stranger(u32),
    /// One that does not answer there, and so tells nothing of itself.
    Unknown,
}

/// Who listens on the name.
pub fn holder(name: &str) -> Holder {
    // A moment after a process takes the name, it listens.
    for _ in 0..10 {
        match connect(name).and_then(|socket| peer_user(&socket)) {
            Ok(user) => return user.map_or(Holder::Own, Holder::Stranger),
            Err(_) => sleep_now(Duration::from_millis(10)),
        }
    }
    Holder::Unknown
}

/// Connects to whatever listens on the name. The socket does not block: where no connection is accepted, one would wait for ever.
///
/// # Errors
/// If nothing listens; `WouldBlock` if others wait already.
pub fn connect(name: &str) -> io::Result<StdStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(format!("\0{name}"))?)?;
    Ok(socket.into())
}

/// The same, after those that wait already: the kernel lets them in by turns. `WouldBlock` after [`QUEUE`].
fn connect_in_turn(name: &str) -> io::Result<StdStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A time-out of connect(2), too.
    socket.set_write_timeout(Some(QUEUE))?;
    socket.connect(&SockAddr::unix(format!("\0{name}"))?)?;
    Ok(socket.into())
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

/// The names with this beginning on which programs of this network namespace listen, without the beginning.
///
/// # Errors
/// If the kernel does not say.
pub fn names(beginning: &str) -> io::Result<Vec<String>> {
    let text = kernel_text("/proc/net/unix")?;
    let names = text.lines().filter_map(|line| line.split_once(" @")?.1.strip_prefix(beginning));
    let mut names: Vec<String> = names.map(String::from).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// Answers for ever, and only root and this process's own user. Nothing is read: whatever was sent, the answer is the same.
/// `refused` gets the reason why a client gets none.
pub async fn answer_all(listener: UnixListener, status: impl Fn() -> Vec<u8>, refused: impl Fn(String)) {
    let mut askers = Askers::default();
    loop {
        match listener.accept().await {
            Ok((mut socket, _)) => match peer_user(&socket) {
                Ok(None) => {
                    let text = status();
                    // A client that has gone, or does not read, gets no answer.
                    askers.hear(0, async move { drop(timeout(READING, socket.write_all(&text)).await) });
                }
                Ok(Some(user)) => refused(format!("user {user} may not ask for the status")),
                Err(error) => refused(format!("somebody unknown asks for the status: {error}")),
            },
            Err(error) => {
                refused(format!("cannot be asked for the status: {error}"));
                sleep(PAUSE).await;
            }
        }
        askers.pace().await;
    }
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
    let socket = connect_in_turn(name).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => AskError::Full,
        // Also where the name is too long for one.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::InvalidInput => AskError::Nobody,
        _ => failed(error),
    })?;
    match peer_user(&socket).map_err(failed)? {
        Some(user) => return Err(AskError::Stranger(user)),
        None => socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?,
    }
    let mut text = Vec::new();
    socket.take(ANSWER_MOST).read_to_end(&mut text).map_err(failed)?;
    if text.is_empty() { Err(AskError::Refused) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_name_of_another_programs_socket_may_be_any_bytes() {
        let name = format!("ekiden/bytes/{}", std::process::id());
        let other = [b"ekiden/bytes/\xe9\xff".as_slice(), name.as_bytes()].concat();
        let _other = StdListener::bind_addr(&SocketAddr::from_abstract_name(&other).unwrap()).unwrap();
        let _listener = listen(&name).unwrap();
        assert!(names("ekiden/bytes/").unwrap().contains(&std::process::id().to_string()));
    }

    #[test]
    fn the_holder_of_a_name_is_told() {
        let name = format!("ekiden/test/{}", std::process::id());
        assert_eq!(holder(&name), Holder::Unknown);
        let listener = listen(&name).unwrap();
        assert!(names("ekiden/test/").unwrap().contains(&std::process::id().to_string()));
        assert_eq!(listen(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(holder(&name), Holder::Own);
        drop(listener);
        let silent = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        silent.bind(&SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
        assert_eq!(holder(&name), Holder::Unknown);
    }

    #[test]
    fn a_name_whose_queue_is_full_is_asked_for_a_while_only() {
        let name = format!("ekiden/full/{}", std::process::id());
        let squatter = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        squatter.bind(&SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
        squatter.listen(0).unwrap();
        let _waits = StdStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let begun = Instant::now();
        assert!(matches!(ask(&name), Err(AskError::Full)));
        assert!((QUEUE..PATIENCE).contains(&begun.elapsed()));
    }
}
