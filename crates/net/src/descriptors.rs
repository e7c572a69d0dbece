//! Passes descriptors to another process over a Unix socket (SCM_RIGHTS, unix(7)).

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};

/// How many the kernel passes at once (SCM_MAX_FD).
pub const MOST: usize = 253;

const TOO_MANY: &str = "another process passes more descriptors than this one may open (RLIMIT_NOFILE)";

/// Sends a text, which must not be empty, with at most [`MOST`] descriptors. They stay open here.
///
/// # Errors
/// The kernel's; `EINVAL` for more descriptors.
pub fn send(socket: &impl AsFd, text: &[u8], descriptors: &[impl AsFd]) -> io::Result<()> {
    let raw: Vec<RawFd> = descriptors.iter().map(|descriptor| descriptor.as_fd().as_raw_fd()).collect();
    let with = [ControlMessage::ScmRights(&raw)];
    let with = if raw.is_empty() { &[][..] } else { &with[..] };
    let (fd, text) = (socket.as_fd().as_raw_fd(), [IoSlice::new(text)]);
    uninterrupted(|| Ok(sendmsg::<UnixAddr>(fd, &text, with, MsgFlags::MSG_NOSIGNAL, None)?))?;
    Ok(())
}

/// Receives what [`send`] has sent: as much of the text as there is room for, and the descriptors. Programs that this one starts do not
/// inherit them.
///
/// # Errors
/// The kernel's. [`ErrorKind::QuotaExceeded`] if this process may not open as many; some may be open then, until it ends.
pub fn receive(socket: &impl AsFd, room: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    uninterrupted(|| receive_once(socket, room))
}

/// Calls again where a signal came first.
fn uninterrupted<T>(call: impl Fn() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn receive_once(socket: &impl AsFd, room: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; room];
    let mut space = cmsg_space!([RawFd; MOST]);
    let mut parts = [IoSliceMut::new(&mut text)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<UnixAddr>(socket.as_fd().as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let length = message.bytes;
    let mut descriptors = Vec::new();
    // The kernel has cut them off.
    let messages = message.cmsgs().map_err(|_| io::Error::new(ErrorKind::QuotaExceeded, TOO_MANY))?;
    for with in messages {
        if let ControlMessageOwned::ScmRights(raw) = with {
            // SAFETY: the kernel has just made these for this process, and nothing else knows of them.
            descriptors.extend(raw.into_iter().map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }));
        }
    }
    text.truncate(length);
    Ok((text, descriptors))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_listener_that_is_passed_listens_on() {
        let (here, there) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        send(&here, b"two", &[&listener, &listener]).unwrap();
        drop(listener);
        let (text, descriptors) = receive(&there, 10).unwrap();
        assert_eq!((&text[..], descriptors.len()), (&b"two"[..], 2));
        let listeners: Vec<TcpListener> = descriptors.into_iter().map(TcpListener::from).collect();
        let client = std::net::TcpStream::connect(address).unwrap();
        assert_eq!(listeners[1].accept().unwrap().1, client.local_addr().unwrap());
    }

    #[test]
    fn a_text_may_come_alone() {
        let (here, there) = UnixStream::pair().unwrap();
        send(&here, b"none", &[] as &[UnixStream]).unwrap();
        let (text, descriptors) = receive(&there, 2).unwrap();
        assert_eq!((&text[..], descriptors.len()), (&b"no"[..], 0));
    }
}
