//! TCP sockets with a relay's options. Each option is set at the one moment at which it works.
//!
//! Buffer sizes decide the window scale, which is fixed by the SYN (RFC 7323 §2.2): they are set before
//! `listen` and before `connect`. Accepted sockets inherit every option of their listener, so a listener is
//! set up once and an accepted connection costs no system call for its options.
//! `client_of` says which addresses are one client.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use ekiden_units::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

use crate::option::set_int;
use crate::transparent;

mod connecting;
mod control;
mod counted;
mod files;
mod free;
mod queued;
mod silence;
mod turn;

pub use connecting::{begin_connect, disconnect};
pub use control::{await_bytes, clamp_window, congestion, default_congestion, limit_rate, rate_limit, set_congestion};
pub use counted::{has_received_end, receive_and_look};
pub use files::{open_files, raise_open_files};
pub use free::{await_free, ensure_free, overlap};
pub use queued::{has_unsent, unacknowledged, unread, unsent};
pub use silence::{KeepaliveTimeouts, limit_unacknowledged, watch_closely};
pub use turn::{Turn, listen_alone};

/// The TCP settings of a connection. An omitted one is left to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TcpOptions {
    /// Congestion control by the kernel's name for it, such as `reno`.
    pub congestion: Option<String>,
    /// Send buffer. The kernel doubles it for its own bookkeeping, and stops tuning it by itself.
    pub send_buffer: Option<Bytes>,
    /// Receive buffer: as for the send buffer.
    pub receive_buffer: Option<Bytes>,
    /// The window that the connection begins with, at least: the kernel's default is 64 KiB. The kernel goes on tuning the buffer, and caps
    /// this at half of the most that it may become (`net.ipv4.tcp_rmem`). Without effect beside `receive_buffer`.
    pub first_window: Option<Bytes>,
    /// How long the other end may be silent before it is probed. Further probes follow at intervals of a sixth of this time, in
    /// whole seconds, 1 s to 120 s. That interval also bounds the pauses between retransmissions, where the kernel can (Linux
    /// 6.15). So a line that is cut while data is sent is noticed about as soon as one that is cut while nothing is.
    pub keepalive: Option<Duration>,
    /// How long sent data or a probe may stay unacknowledged before the connection counts as broken (the user timeout of RFC
    /// 9293 §3.9.1). The kernel also counts the time during which a receiver's window is closed, even if the receiver answers.
    pub user_timeout: Option<Duration>,
    /// The longest segments that both ends send, in bytes, 88 to 32,767 (TCP_MAXSEG), TCP's options among them: the SYN says so. The
    /// path's MTU may make them shorter.
    pub max_segment: Option<u16>,
}

/// Why a socket could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The kernel does not have this congestion control.
    #[error("congestion control '{name}' is not in this kernel; available: {available}")]
    UnknownCongestion {
        /// What was asked for.
        name: String,
        /// What the kernel has, separated by spaces.
        available: String,
    },
    /// The kernel has it but does not let this process use it here.
    #[error("congestion control '{name}' needs CAP_NET_ADMIN here; allowed: {allowed}")]
    ForbiddenCongestion {
        /// What was asked for.
        name: String,
        /// What is allowed, separated by spaces.
        allowed: String,
    },
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}{}", listen_hint(address, source))]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel gives this process no buffer of this size.
    #[error(
        "{key} = {size} needs CAP_NET_ADMIN here, or net.core.{sysctl} of at least {} (it is {most}): sysctl net.core.{sysctl}={}",
        size.0, size.0
    )]
    Buffer {
        /// The setting.
        key: &'static str,
        /// What was asked for.
        size: Bytes,
        /// The largest size that the process may set, in bytes.
        most: u64,
        /// The kernel's setting that says so.
        sysctl: &'static str,
    },
    /// The process may not use addresses that this machine does not have.
    #[error("a transparent socket needs CAP_NET_ADMIN: {source}")]
    Transparent {
        /// The kernel's reason.
        source: io::Error,
    },
    /// Any other system call.
    #[error("cannot set up a socket: {0}")]
    Io(#[from] io::Error),
}

impl SocketError {
    /// Whether another process has the address.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Bind { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }

    /// Whether an address may be had later: another process has it, which may be about to end, or it is not this host's. It may
    /// be about to come then, as at boot, or be checked for duplicates (RFC 4862 §5.4).
    pub fn may_pass(&self) -> bool {
        let Self::Bind { source, .. } = self else { return false };
        matches!(source.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
    }
}

/// What to do when an address cannot be listened on.
fn listen_hint(address: &SocketAddr, error: &io::Error) -> String {
    let (any, port) = (if address.is_ipv4() { "0.0.0.0" } else { "[::]" }, address.port());
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => format!(
            "; it is not an address of this host. Where a router or a cloud translates a public address (NAT), listen on \
             {any}:{port} or on the private address that `ip address` shows; peers go on to use the public one"
        ),
        io::ErrorKind::AddrInUse => format!("; `ss -ltnp 'sport = :{port}'` shows which program has it"),
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need root or CAP_NET_BIND_SERVICE: use a higher port, or give it that".into()
        }
        _ => String::new(),
    }
}

/// Connections that may wait to be accepted; the kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// Listens on `address` with SO_REUSEPORT, so that every worker thread can have a socket of its own. On `[::]` it takes IPv4
/// too, unless `only_v6`. The addresses of its IPv4 clients are then plain IPv4 addresses.
/// Accepted connections inherit no-delay, keep-alive, linger-zero (see [`end_on_close`]) and `options`.
pub fn listen(address: SocketAddr, only_v6: bool, options: &TcpOptions) -> Result<TcpListener, SocketError> {
    listen_on(new_socket(address, options)?, address, only_v6)
}

/// Listens on `address` as [`listen`] does, with as many connections that may wait, and leaves every option as the kernel has it.
///
/// # Errors
/// The kernel's: the address is taken, or not this host's.
pub fn listen_plainly(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// As [`listen`], but also for connections to other addresses that the packet filter brings to this socket. The local address
/// of such a connection is the one that the client wanted to reach. Needs CAP_NET_ADMIN.
pub fn listen_transparent(address: SocketAddr, options: &TcpOptions) -> Result<TcpListener, SocketError> {
    let socket = new_socket(address, options)?;
    transparent::allow_foreign(&socket, address).map_err(|source| SocketError::Transparent { source })?;
    listen_on(socket, address, true)
}

fn listen_on(socket: Socket, address: SocketAddr, only_v6: bool) -> Result<TcpListener, SocketError> {
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    let bound = socket.bind(&address.into()).and_then(|()| socket.listen(BACKLOG));
    bound.map_err(|source| SocketError::Bind { address, source })?;
    Ok(socket.into())
}

/// Sets up a socket again that another process has made by [`listen`]: what the kernel or another build of this program fixed then, such as
/// how many connections may wait, is as for a new one. The default of its receive buffer stays.
///
/// # Errors
/// As of [`listen`].
pub fn listen_again(listener: &TcpListener, options: &TcpOptions) -> Result<(), SocketError> {
    let socket = SockRef::from(listener);
    set_up(&socket, options)?;
    Ok(socket.listen(BACKLOG)?)
}

/// A non-blocking socket ready to connect to `address`.
pub fn outgoing(address: SocketAddr, options: &TcpOptions) -> Result<OwnedFd, SocketError> {
    Ok(new_socket(address, options)?.into())
}

/// Finds out whether this process can use `options`, by trying them on a socket.
pub fn check(options: &TcpOptions) -> Result<(), SocketError> {
    apply(&Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?, options)
}

/// Gives a socket options that it has not had from its beginning: congestion control, buffers, keep-alive, user timeout.
///
/// # Errors
/// As of [`outgoing`].
pub fn set_options(socket: &impl AsFd, options: &TcpOptions) -> Result<(), SocketError> {
    apply(&SockRef::from(socket), options)
}

/// A listener that the current tokio runtime watches. The connections that it accepts are not watched, because they may go to
/// another runtime.
#[derive(Debug)]
pub struct Listening(AsyncFd<Arc<TcpListener>>);

/// A listener that was ready.
pub struct Ready<'a>(AsyncFdReadyGuard<'a, Arc<TcpListener>>);

impl Listening {
    /// Must be called within a runtime with I/O enabled.
    pub fn new(listener: Arc<TcpListener>) -> io::Result<Self> {
        // SAFETY: a TcpListener owns its one descriptor and keeps it until it is dropped.
        Ok(Self(unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) }?))
    }

    /// Waits until there may be a connection.
    pub async fn ready(&self) -> io::Result<Ready<'_>> {
        self.0.readable().await.map(Ready)
    }

    /// As [`Ready::accept`], but without waiting for readiness before.
    pub fn accept(&self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        match accept(self.0.get_ref()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            other => Some(other),
        }
    }

    /// The listener.
    pub fn socket(&self) -> &TcpListener {
        self.0.get_ref()
    }
}

impl Ready<'_> {
    /// Accepts one connection, non-blocking. `None` if there is none after all.
    pub fn accept(&mut self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        self.0.try_io(|listener| accept(listener.get_ref())).ok()
    }
}

/// Whether a connection waits to be accepted.
pub fn has_waiting(listener: &TcpListener) -> bool {
    let mut asked = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the pointer and the count describe `asked`, which outlives the call.
    unsafe { libc::poll(&raw mut asked, 1, 0) > 0 }
}

/// The address, with an IPv4-mapped IPv6 address turned into the IPv4 address.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        v4 @ IpAddr::V4(_) => SocketAddr::new(v4, address.port()),
        // As it is, with its scope.
        IpAddr::V6(_) => address,
    }
}

/// The client that an address stands for. An IPv6 host chooses its addresses from a whole /64 network (RFC 4291 §2.5.1), so all
/// addresses of such a network are one client. An IPv4-mapped address is the IPv4 address.
pub fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// From now on, closing the socket sends the queued data and then a clean end. Before this call, closing it discards the queued
/// data and resets the connection, also when the process is killed.
pub fn end_on_close(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_linger(None)
}

/// Raises the bound of the pauses between retransmissions to 120 s, Linux's default, for a socket that is about to be closed
/// with queued data. If the receiver has no room, the kernel gives up such a socket silently when the pauses reach their bound.
/// That is after 24 s with a bound of 10 s, which a keep-alive of 60 s sets, and after 340 s with 120 s (measured, Linux 6.18).
/// Pauses that have grown before count: after a minute without room, the kernel gives up within seconds either way.
pub fn pause_longest(socket: &impl AsFd) -> io::Result<()> {
    set_longest_pause(&SockRef::from(socket), LONGEST_PAUSE)
}

/// Whether a connection that should be silent is silent and alive: nothing to read, no end, no error.
pub fn is_quiet(socket: &impl AsFd) -> bool {
    let mut byte = [0u8; 1];
    matches!(peek(socket, &mut byte), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
}

/// Receives without waiting. 0 is the end of the stream.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    receive_with(socket.as_fd().as_raw_fd(), buffer, libc::MSG_DONTWAIT)
}

/// As [`receive`], leaving the bytes in the socket.
pub fn peek(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    receive_with(socket.as_fd().as_raw_fd(), buffer, libc::MSG_DONTWAIT | libc::MSG_PEEK)
}

/// Sends without waiting. With `more`, the kernel may hold the bytes back until the next send, which must follow.
pub fn send(socket: &impl AsFd, bytes: &[u8], more: bool) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    SockRef::from(socket).send_with_flags(bytes, flags)
}

/// As [`send`], of several pieces.
pub fn send_pieces(socket: &impl AsFd, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    SockRef::from(socket).send_vectored_with_flags(pieces, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
}

/// The socket is writable while it has fewer bytes than this that it has not sent yet (TCP_NOTSENT_LOWAT). The kernel says so again
/// when half of them are left. [`send`] itself may take up to 64 KiB more: look with [`is_writable`] and [`unsent`] before.
pub fn limit_unsent(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(bytes)
}

/// Whether the socket is writable now. If it is not, the kernel tells the event loop when it is.
pub fn is_writable(socket: &impl AsFd) -> io::Result<bool> {
    let mut asked = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    Ok(poll(&mut asked, PollTimeout::ZERO)? > 0)
}

pub(crate) fn new_socket(address: SocketAddr, options: &TcpOptions) -> Result<Socket, SocketError> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    set_up(&socket, options)?;
    Ok(socket)
}

fn set_up(socket: &Socket, options: &TcpOptions) -> Result<(), SocketError> {
    socket.set_tcp_nodelay(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    count_what_is_left(socket)?;
    apply(socket, options)
}

/// Makes [`receive_and_look`] exact, where the kernel can (Linux 4.18).
fn count_what_is_left(socket: &Socket) -> io::Result<()> {
    match set_int(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INQ, 1) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        other => other,
    }
}

fn apply(socket: &Socket, options: &TcpOptions) -> Result<(), SocketError> {
    if let Some(name) = &options.congestion {
        socket.set_tcp_congestion(name.as_bytes()).map_err(|error| congestion_error(name, error))?;
    }
    if let Some(size) = options.send_buffer {
        set_buffer(socket, &SEND, size)?;
    }
    if let Some(size) = options.receive_buffer {
        set_buffer(socket, &RECEIVE, size)?;
    }
    if let Some(window) = options.first_window {
        control::begin_with_window(socket, window)?;
    }
    match options.keepalive {
        Some(silence) => set_keepalive(socket, silence)?,
        None => socket.set_keepalive(true)?,
    }
    if options.user_timeout.is_some() {
        socket.set_tcp_user_timeout(options.user_timeout)?;
    }
    if let Some(bytes) = options.max_segment {
        socket.set_tcp_mss(bytes.into())?;
    }
    Ok(())
}

/// The largest bound of the pauses between retransmissions that can be set, which is also the default (TCP_RTO_MAX).
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

fn set_keepalive(socket: &Socket, silence: Duration) -> io::Result<()> {
    let pause = (silence / 6).clamp(Duration::from_secs(1), LONGEST_PAUSE);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(silence).with_interval(pause))?;
    set_longest_pause(socket, pause)
}

/// Bounds the pauses between retransmissions, where the kernel can (Linux 6.15).
fn set_longest_pause(socket: &Socket, pause: Duration) -> io::Result<()> {
    /// TCP_RTO_MAX_MS of linux/tcp.h, which libc does not have yet.
    const RTO_MAX_MS: i32 = 44;
    match set_int(socket.as_raw_fd(), libc::IPPROTO_TCP, RTO_MAX_MS, pause.as_millis() as i32) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        other => other,
    }
}

fn congestion_error(name: &str, error: io::Error) -> SocketError {
    let list = |file| std::fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    let name = name.to_owned();
    match error.raw_os_error() {
        Some(libc::ENOENT) => SocketError::UnknownCongestion {
            name,
            available: list("/proc/sys/net/ipv4/tcp_available_congestion_control"),
        },
        Some(libc::EPERM) => SocketError::ForbiddenCongestion {
            name,
            allowed: list("/proc/sys/net/ipv4/tcp_allowed_congestion_control"),
        },
        _ => SocketError::Io(error),
    }
}

/// One of a socket's two buffers.
struct Buffer {
    key: &'static str,
    /// The option that may exceed the system's limit. It needs CAP_NET_ADMIN.
    force: i32,
    plain: i32,
    sysctl: &'static str,
}

const SEND: Buffer =
    Buffer { key: "tcp.send_buffer", force: libc::SO_SNDBUFFORCE, plain: libc::SO_SNDBUF, sysctl: "wmem_max" };
const RECEIVE: Buffer =
    Buffer { key: "tcp.receive_buffer", force: libc::SO_RCVBUFFORCE, plain: libc::SO_RCVBUF, sysctl: "rmem_max" };

/// Sets a buffer, and fails if the kernel makes it smaller than was asked for. A smaller one would be worse than none that is
/// set, because the kernel no longer enlarges it.
fn set_buffer(socket: &Socket, buffer: &Buffer, size: Bytes) -> Result<(), SocketError> {
    let &Buffer { key, force, plain, sysctl } = buffer;
    // The kernel doubles the value in a signed int.
    let value = i32::try_from(size.0).unwrap_or(i32::MAX).min(i32::MAX / 2);
    let set = |option| set_int(socket.as_raw_fd(), libc::SOL_SOCKET, option, value);
    match set(force) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => set(plain)?,
        other => return Ok(other?),
    }
    let got = if plain == libc::SO_SNDBUF { socket.send_buffer_size() } else { socket.recv_buffer_size() }? / 2;
    if got < value as usize {
        return Err(SocketError::Buffer { key, size, most: got as u64, sysctl });
    }
    Ok(())
}

fn receive_with(fd: RawFd, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
    // SAFETY: the pointer and the length describe `buffer`, which is valid for writes.
    let n = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// accept4 in one call; the standard library's accept needs a second one to make the socket non-blocking.
fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let mut storage = socket2::SockAddrStorage::zeroed();
    let mut len = storage.size_of();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the storage is large enough for any address and `len` says how large.
    let fd = unsafe { libc::accept4(listener.as_raw_fd(), (&raw mut storage).cast(), &mut len, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is a fresh descriptor that nothing else owns.
    let stream = unsafe { TcpStream::from_raw_fd(fd) };
    // SAFETY: the kernel filled `storage` with `len` bytes of address.
    let address = unsafe { socket2::SockAddr::new(storage, len) };
    let address = address.as_socket().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((stream, canonical(address)))
}

#[cfg(test)]
mod tests;
