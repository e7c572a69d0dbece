//! Whole frames in and out of a network device (packet(7)), many per system call, with the kernel's receive times.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};

use crate::device;

/// Frames moved by one system call at most.
pub const BATCH: usize = 64;

/// Bytes before the IP packet in a frame.
pub const ETHERNET_HEADER: usize = 14;

/// The size of the receive queue: enough for 10 ms at 10 Gbit/s in full-sized frames, with the kernel's overhead.
const RECEIVE_BUFFER: usize = 64 << 20;

/// A packet socket on one device: takes what arrives there, and sends what is given.
#[derive(Debug)]
pub struct PacketSocket {
    socket: Socket,
}

/// Room for received frames; made once and used again.
pub struct Batch {
    frame_most: usize,
    frames: Vec<u8>,
    control: Vec<Control>,
    lengths: [usize; BATCH],
    count: usize,
}

/// Ancillary data of one frame: a timestamp and its header, aligned as the kernel writes it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

impl PacketSocket {
    /// Opens `device` of the calling thread's namespace. The socket receives no frames that arrived before, and none that this
    /// machine sends.
    ///
    /// # Errors
    /// If there is no such device, or without `CAP_NET_RAW`.
    pub fn open(device: &str) -> io::Result<Self> {
        // Protocol 0 until the socket is bound: otherwise it would receive frames of every device.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
        socket.set_nonblocking(true)?;
        let this = Self { socket };
        this.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        this.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        this.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        if this.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER as i32).is_err() {
            this.socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        }
        this.bind(device::index(device)?)?;
        Ok(this)
    }

    /// Takes up to [`BATCH`] waiting frames without blocking and returns how many.
    ///
    /// # Errors
    /// The kernel's; "would block" is 0 frames, not an error.
    pub fn receive(&self, batch: &mut Batch) -> io::Result<usize> {
        // SAFETY: all-zero is a valid value of these C structures.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let mut vectors: [libc::iovec; BATCH] = unsafe { zeroed() };
        for (i, frame) in batch.frames.chunks_exact_mut(batch.frame_most).enumerate() {
            vectors[i] = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
            headers[i].msg_hdr.msg_iov = &raw mut vectors[i];
            headers[i].msg_hdr.msg_iovlen = 1;
            headers[i].msg_hdr.msg_control = batch.control[i].0.as_mut_ptr().cast();
            headers[i].msg_hdr.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: every header points to memory of `batch` and `vectors` of the stated length, alive during the call.
        let count = unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
            libc::recvmmsg(self.socket.as_raw_fd(), headers.as_mut_ptr(), BATCH as u32, flags, std::ptr::null_mut())
        };
        batch.count = 0;
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        }
        batch.count = count as usize;
        for (length, header) in batch.lengths.iter_mut().zip(&headers[..batch.count]) {
            *length = header.msg_len as usize;
        }
        Ok(batch.count)
    }

    /// Sends frames in order and returns how many were taken; fewer than given if the device refused one.
    ///
    /// # Errors
    /// If not even the first was taken.
    pub fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        // SAFETY: all-zero is a valid value of these C structures.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let mut vectors: [libc::iovec; BATCH] = unsafe { zeroed() };
        let mut count = 0;
        for frame in frames.take(BATCH) {
            vectors[count] = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            headers[count].msg_hdr.msg_iov = &raw mut vectors[count];
            headers[count].msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: the headers point to frames borrowed for the whole call; the kernel only reads them.
        let sent =
            unsafe { libc::sendmmsg(self.socket.as_raw_fd(), headers.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// How many frames the receive queue had no room for since this was last asked.
    ///
    /// # Errors
    /// The kernel's.
    pub fn missed(&self) -> io::Result<u32> {
        let mut statistics = MaybeUninit::<libc::tpacket_stats>::zeroed();
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the pointer and length describe `statistics`, which is valid for any contents.
        let result = unsafe {
            let value = statistics.as_mut_ptr().cast();
            let fd = self.socket.as_raw_fd();
            libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, value, &raw mut length)
        };
        // SAFETY: zeroed at first, so initialised whatever the kernel wrote.
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { statistics.assume_init() }.tp_drops) }
    }

    fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        let length = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the pointer and length describe `value`.
        let result =
            unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, option, (&raw const value).cast(), length) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: all-zero is a valid sockaddr_ll; pointer and length describe it.
        let result = unsafe {
            let mut address: libc::sockaddr_ll = zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            address.sll_ifindex = index as i32;
            let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Batch {
    /// Room for frames that carry IP packets of up to `mtu` bytes.
    pub fn new(mtu: usize) -> Self {
        let frame_most = mtu + ETHERNET_HEADER;
        Self {
            frame_most,
            frames: vec![0; frame_most * BATCH],
            control: vec![Control([0; 64]); BATCH],
            lengths: [0; BATCH],
            count: 0,
        }
    }

    /// The frames of the last [`PacketSocket::receive`], in order, each with its arrival in nanoseconds of the
    /// realtime clock (`None` if the kernel gave none). A frame larger than the room is left out.
    pub fn frames(&self) -> impl Iterator<Item = (&[u8], Option<u64>)> {
        let frames = self.frames.chunks_exact(self.frame_most);
        frames
            .zip(&self.lengths[..self.count])
            .zip(&self.control)
            .filter(|((_, length), _)| **length <= self.frame_most)
            .map(|((frame, length), control)| (&frame[..*length], control.timestamp_ns()))
    }
}

impl Control {
    /// The first control message is the timestamp: no other is asked for.
    fn timestamp_ns(&self) -> Option<u64> {
        // SAFETY: the buffer is larger than both structures, aligned to 8, and every bit pattern is valid for them.
        let (header, time) = unsafe {
            let header: libc::cmsghdr = self.0.as_ptr().cast::<libc::cmsghdr>().read();
            let data = self.0.as_ptr().add(size_of::<libc::cmsghdr>());
            (header, data.cast::<libc::timespec>().read())
        };
        let stamped = header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_TIMESTAMPNS;
        stamped.then(|| (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
    }
}
