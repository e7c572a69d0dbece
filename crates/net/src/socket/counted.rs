//! What is left to be received, as the kernel counts it (TCP_INQ).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;

use super::count_what_is_left;
use super::queued::queued;

/// As [`super::receive`], and says whether the socket may hold more: data, or the end. A receive that does not fill the buffer does
/// not mean that the socket is empty: the kernel stops at urgent data (RFC 9293 §3.8.5), and there may be more after it.
pub fn receive_and_look(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
    let (n, left) = receive_counted(socket, buffer, libc::MSG_DONTWAIT)?;
    // Kernels before 4.18 give no count. Then only a full buffer means that there may be more.
    Ok((n, left.map_or(n == buffer.len(), |left| left > 0)))
}

/// Receives, and says how much is left, a FIN among it, where the kernel counts that.
fn receive_counted(socket: &impl AsFd, buffer: &mut [u8], flags: i32) -> io::Result<(usize, Option<i32>)> {
    /// For one control message that holds an int.
    #[repr(C, align(8))]
    struct Control([u8; 32]);
    let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control([0; 32]);
    // SAFETY: a msghdr of zeros is an empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the message points at `buffer` and `control` with their lengths, and both outlive the call.
    let n = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled in the message; the first control message lies in `control`, aligned for it.
    let left = unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const message);
        let is_count =
            !first.is_null() && (*first).cmsg_level == libc::SOL_TCP && (*first).cmsg_type == libc::TCP_CM_INQ;
        is_count.then(|| libc::CMSG_DATA(first).cast::<libc::c_int>().read_unaligned())
    };
    Ok((n, left))
}

/// Whether the other side's FIN has arrived, also if the connection has broken since, and whatever of it was read. For a
/// connection that breaks without a FIN the kernel, too, says end-of-file, once its error was reported. Needs the kernel's count of what is
/// left (Linux 4.18); without it the answer is no. So it is while urgent data waits: one of the two counts stops there.
pub fn has_received_end(socket: &impl AsFd) -> bool {
    if count_what_is_left(&SockRef::from(socket)).is_err() || has_urgent(socket) {
        return false;
    }
    // The one count takes a FIN for a byte more that can be read (`tcp_inq_hint` of net/ipv4/tcp.c), the other does not.
    let counted = receive_counted(socket, &mut [0], libc::MSG_DONTWAIT | libc::MSG_PEEK);
    let payload = queued(socket, libc::FIONREAD as _);
    matches!((counted, payload), (Ok((_, Some(left))), Some(payload)) if u64::try_from(left).is_ok_and(|left| left > payload))
}

/// Whether urgent data has come that has not been passed in reading (RFC 9293 §3.8.5), or may have.
fn has_urgent(socket: &impl AsFd) -> bool {
    let mut waited = [PollFd::new(socket.as_fd(), PollFlags::POLLPRI)];
    let polled = poll(&mut waited, PollTimeout::ZERO);
    polled.is_err() || waited[0].revents().is_none_or(|events| events.contains(PollFlags::POLLPRI))
}
