//! Decides which of several listening sockets with the same address (SO_REUSEPORT) get new connections. So one can be closed
//! without resetting the connections in its queue. The kernel runs small programs (classic BPF) for it, which need no
//! privilege by socket(7); some kernels refuse them to a process without capabilities (EPERM).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// SO_ATTACH_REUSEPORT_CBPF of asm-generic/socket.h, which libc does not have.
const ATTACH_REUSEPORT: i32 = 51;

/// One instruction.
const fn op(code: u32, jump: (u8, u8), k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: jump.0, jf: jump.1, k }
}

/// From now on `listener` gets no new connections: SYNs are dropped as if they were lost. Connections whose handshake has begun
/// go on.
///
/// # Errors
/// The kernel's.
pub fn ignore_new(listener: &impl AsFd) -> io::Result<()> {
    /// The offset of the flags in TCP's header, and the bits of SYN and ACK.
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const SYN_AND_ACK: u32 = 0x12;
    attach(
        listener,
        libc::SO_ATTACH_FILTER,
        &mut [
            op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, (0, 0), FLAGS),
            op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, (0, 0), SYN_AND_ACK),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 1), SYN),
            op(libc::BPF_RET | libc::BPF_K, (0, 0), 0),
            op(libc::BPF_RET | libc::BPF_K, (0, 0), u32::MAX),
        ],
    )
}

/// From now on `listener` gets new connections again.
///
/// # Errors
/// ENOENT, if it did already.
pub fn hear_new(listener: &impl AsFd) -> io::Result<()> {
    crate::option::set_int(listener.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)
}

/// From now on, new connections to the address of `listener` go to the `count` sockets that began to listen after the first
/// `before` ones, to each with the same chance.
///
/// # Errors
/// The kernel's.
pub fn steer(listener: &impl AsFd, before: u32, count: u32) -> io::Result<()> {
    /// A random number (SKF_AD_OFF + SKF_AD_RANDOM of linux/filter.h).
    const RANDOM: u32 = (-0x1000_i32 + 56) as u32;
    attach(
        listener,
        ATTACH_REUSEPORT,
        &mut [
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), RANDOM),
            op(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, (0, 0), count.max(1)),
            op(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, (0, 0), before),
            op(libc::BPF_RET | libc::BPF_A, (0, 0), 0),
        ],
    )
}

/// From now on the kernel spreads new connections over all sockets again.
///
/// # Errors
/// ENOENT, if it did already.
pub fn stop_steering(listener: &impl AsFd) -> io::Result<()> {
    /// SO_DETACH_REUSEPORT_BPF of asm-generic/socket.h.
    const DETACH: i32 = 68;
    crate::option::set_int(listener.as_fd().as_raw_fd(), libc::SOL_SOCKET, DETACH, 0)
}

fn attach(listener: &impl AsFd, option: i32, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let fd = listener.as_fd().as_raw_fd();
    // SAFETY: the pointer and the size describe `program`, which points to instructions that outlive the call.
    match unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const program).cast(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::socket::{TcpOptions, listen};

    /// Long enough for a handshake on loopback, and too short for a second SYN.
    const MOMENT: Duration = Duration::from_millis(500);

    #[test]
    fn new_connections_are_dropped_and_those_in_the_queue_stay() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), true, &TcpOptions::default()).unwrap();
        let address = listener.local_addr().unwrap();
        let before = TcpStream::connect(address).unwrap();
        ignore_new(&listener).unwrap();
        assert_eq!(TcpStream::connect_timeout(&address, MOMENT).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(listener.accept().unwrap().1, before.local_addr().unwrap());
        hear_new(&listener).unwrap();
        let after = TcpStream::connect(address).unwrap();
        assert_eq!(listener.accept().unwrap().1, after.local_addr().unwrap());
    }

    #[test]
    fn new_connections_come_to_the_new_sockets_only() {
        let options = TcpOptions::default();
        let old = listen(SocketAddr::from(([127, 0, 0, 1], 0)), true, &options).unwrap();
        let address = old.local_addr().unwrap();
        let new = listen(address, true, &options).unwrap();
        steer(&new, 1, 1).unwrap();
        let clients: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert_eq!(old.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        clients.iter().for_each(|_| drop(new.accept().unwrap()));
        stop_steering(&new).unwrap();
        assert!(stop_steering(&new).is_err());
        let clients: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(old.accept().is_ok() && new.accept().is_ok());
        drop(clients);
    }
}
