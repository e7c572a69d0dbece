//! The TCP sockets of all programs of this network namespace, as the kernel's inet_diag lists them (sock_diag(7)).
//!
//! What is asked and answered stands in linux/inet_diag.h. Every user may ask.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use ekiden_tcp_info::TcpInfo;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recvfrom, sendto, socket,
};
use rtnetlink::packet_core::{NetlinkBuffer, NlasIterator};

use crate::tcp_info::{MEMORY_NUMBERS, of_bytes, with_memory};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const REQUEST_OF_ALL: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
/// `INET_DIAG_INFO`, `INET_DIAG_CONG` and `INET_DIAG_SKMEMINFO`: numbers of attributes, and as bits of a request one less.
const INFO: u16 = 2;
const CONGESTION: u16 = 4;
const MEMORY: u16 = 7;
/// As numbered in linux/tcp_states.h: ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING.
const CONNECTED: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// `struct nlmsghdr`, `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
/// More than the longest answer of the kernel, which is 32 KiB.
const ANSWER_MOST: usize = 1 << 16;

/// Asks the kernel about TCP sockets.
#[derive(Debug)]
pub struct SockDiag {
    socket: OwnedFd,
    answer: Vec<u8>,
    sequence: u32,
}

/// A TCP socket that is connected, or was and has not ended yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSocket {
    /// This side. An IPv4 address also where the socket is one for IPv6.
    pub local: SocketAddr,
    /// The other side.
    pub remote: SocketAddr,
    /// The user that it belongs to.
    pub uid: u32,
    /// The number of its file, as in `/proc/PID/fd`; 0 if no program has it any more.
    pub inode: u32,
    /// The kernel's identifier of it, which no other socket has until the next boot.
    pub cookie: u64,
    /// Its congestion control.
    pub congestion: String,
    /// Its state.
    pub info: TcpInfo,
}

/// Why TCP sockets cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no inet_diag.
    #[error("this kernel cannot list TCP sockets: load its module tcp_diag (CONFIG_INET_TCP_DIAG)")]
    Missing,
    /// The kernel refuses.
    #[error("cannot list TCP sockets: {0}")]
    Refused(#[from] io::Error),
    /// The kernel's answer contradicts itself.
    #[error("cannot list TCP sockets: the kernel's answer is not understood: {0}")]
    Malformed(&'static str),
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The sockets of the process cannot be seen.
    #[error("cannot see the sockets of process {pid}: {source}")]
    Process {
        /// Its id.
        pid: u32,
        /// Why.
        source: io::Error,
    },
}

impl SockDiag {
    /// For the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::Refused`].
    pub fn open() -> Result<Self, Error> {
        let protocol = SockProtocol::NetlinkSockDiag;
        let socket =
            socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol).map_err(of)?;
        Ok(Self { socket, answer: vec![0; ANSWER_MOST], sequence: 0 })
    }

    /// All TCP sockets that are connected, of IPv4 and IPv6. With a port that is not 0, only those with it on this side, or on the
    /// other.
    ///
    /// # Errors
    /// The kernel's.
    pub fn connections(&mut self, local_port: u16, remote_port: u16) -> Result<Vec<TcpSocket>, Error> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.sequence = self.sequence.wrapping_add(1);
            let request = request(family as u8, self.sequence, local_port, remote_port);
            sendto(self.socket.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty()).map_err(of)?;
            while self.receive(&mut found)? {}
        }
        Ok(found)
    }

    /// Takes an answer, and returns whether more will come.
    fn receive(&mut self, found: &mut Vec<TcpSocket>) -> Result<bool, Error> {
        let (length, from) = match recvfrom::<NetlinkAddr>(self.socket.as_raw_fd(), &mut self.answer) {
            Err(Errno::EINTR) => return Ok(true),
            received => received.map_err(of)?,
        };
        // Other programs may send here too.
        if from.is_none_or(|from| from.pid() != 0) {
            return Ok(true);
        }
        if length == self.answer.len() {
            return Err(Error::Malformed("it is longer than any"));
        }
        read(&self.answer[..length], self.sequence, found)
    }
}

/// The numbers of the files that are sockets of a process.
///
/// # Errors
/// [`Error::NoProcess`], or [`Error::Process`] if it is another user's.
pub fn sockets_of(pid: u32) -> Result<BTreeSet<u32>, Error> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::NoProcess(pid),
        _ => Error::Process { pid, source },
    })?;
    let targets = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    let inodes = targets.filter_map(|target| {
        let number: u64 = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        // inet_diag reports its lower half.
        Some(number as u32)
    });
    Ok(inodes.collect())
}

fn of(errno: Errno) -> Error {
    match errno {
        Errno::EPROTONOSUPPORT | Errno::ENOENT | Errno::EAFNOSUPPORT => Error::Missing,
        errno => Error::Refused(errno.into()),
    }
}

fn request(family: u8, sequence: u32, local_port: u16, remote_port: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + REQUEST);
    bytes.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST_OF_ALL.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    let attributes = 1 << (INFO - 1) | 1 << (CONGESTION - 1) | 1 << (MEMORY - 1);
    bytes.extend([family, libc::IPPROTO_TCP as u8, attributes, 0]);
    bytes.extend(CONNECTED.to_ne_bytes());
    bytes.extend(local_port.to_be_bytes());
    bytes.extend(remote_port.to_be_bytes());
    bytes.resize(HEADER + REQUEST, 0);
    bytes
}

/// Takes the sockets of an answer, and returns whether more will come.
fn read(answer: &[u8], sequence: u32, found: &mut Vec<TcpSocket>) -> Result<bool, Error> {
    let mut rest = answer;
    while !rest.is_empty() {
        let message = NetlinkBuffer::new_checked(rest).map_err(|_| Error::Malformed("a message's length is wrong"))?;
        let (kind, payload) = (message.message_type(), message.payload());
        let aligned = (message.length() as usize).next_multiple_of(4);
        rest = rest.get(aligned..).unwrap_or_default();
        // The rest of an answer to a request that was given up.
        if message.sequence_number() != sequence {
            continue;
        }
        match i32::from(kind) {
            libc::NLMSG_DONE => return Ok(false),
            libc::NLMSG_ERROR => {
                let code = payload.first_chunk().map(|code| i32::from_ne_bytes(*code));
                let code = code.ok_or(Error::Malformed("an error without a number"))?;
                return if code == 0 { Ok(false) } else { Err(of(Errno::from_raw(code.saturating_neg()))) };
            }
            _ if kind == BY_FAMILY => found.extend(socket_of(payload)?),
            _ => {}
        }
    }
    Ok(true)
}

/// The socket in a message; `None` if its state is unknown, as of a socket that is nearly closed.
fn socket_of(message: &[u8]) -> Result<Option<TcpSocket>, Error> {
    let (head, attributes) =
        message.split_first_chunk::<MESSAGE>().ok_or(Error::Malformed("a socket's message is too short"))?;
    let number = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let address = |at: usize| -> IpAddr {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&head[at..at + 16]);
        match i32::from(head[0]) {
            libc::AF_INET => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
            _ => Ipv6Addr::from(bytes).to_canonical(),
        }
    };
    let (mut info, mut congestion, mut memory) = (None, String::new(), [0; MEMORY_NUMBERS]);
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute.map_err(|_| Error::Malformed("an attribute's length is wrong"))?;
        match attribute.kind() {
            INFO => info = of_bytes(attribute.value()),
            MEMORY => {
                for (number, bytes) in memory.iter_mut().zip(attribute.value().chunks_exact(4)) {
                    *number = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                }
            }
            CONGESTION => {
                let name = attribute.value().split(|byte| *byte == 0).next().unwrap_or_default();
                congestion = String::from_utf8_lossy(name).into_owned();
            }
            _ => {}
        }
    }
    Ok(info.map(|info| TcpSocket {
        local: SocketAddr::new(address(8), port(4)),
        remote: SocketAddr::new(address(24), port(6)),
        uid: number(64),
        inode: number(68),
        cookie: u64::from(number(44)) | u64::from(number(48)) << 32,
        congestion,
        info: with_memory(info, memory),
    }))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A message about a socket, with a state of `info` bytes.
    fn message(sequence: u32, info: usize) -> Vec<u8> {
        let length = HEADER + MESSAGE + 4 + info;
        let mut bytes = Vec::new();
        bytes.extend((length as u32).to_ne_bytes());
        bytes.extend(BY_FAMILY.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.push(libc::AF_INET as u8);
        bytes.resize(HEADER + MESSAGE, 1);
        bytes.extend((4 + info as u16).to_ne_bytes());
        bytes.extend(INFO.to_ne_bytes());
        bytes.resize(length, 2);
        bytes
    }

    #[test]
    fn both_ends_of_a_connection_are_found_with_their_states() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine without IPv6 has no such address.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let there = listener.local_addr().unwrap();
            let mut client = TcpStream::connect(there).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(&[1; 1000]).unwrap();
            server.read_exact(&mut [0; 1000]).unwrap();
            let here = client.local_addr().unwrap();
            let mut diag = SockDiag::open().unwrap();
            let all = diag.connections(0, 0).unwrap();
            let find = |local| all.iter().find(|socket| socket.local == local && socket.remote.port() > 0).unwrap();
            let (mine, theirs) = (find(here), find(there));
            assert_eq!((mine.remote, theirs.remote), (there, here));
            assert_ne!(mine.cookie, theirs.cookie);
            assert_eq!(mine.uid, nix::unistd::getuid().as_raw());
            assert!(!mine.congestion.is_empty());
            assert_eq!(theirs.info.received_bytes, 1000);
            assert!(mine.info.cwnd_segments > 0 && mine.info.mss_bytes > 0);
            // The same as of the socket itself: memory is asked for in another way there.
            let own = crate::tcp_info::tcp_info_with_memory(&client).unwrap();
            assert_eq!(mine.info.send_memory_most_bytes, own.send_memory_most_bytes);
            assert!(own.send_memory_most_bytes > 0 && !own.is_send_buffer_full());
            assert!(sockets_of(std::process::id()).unwrap().contains(&mine.inode));
            let sorted = |local, remote| SockDiag::open().unwrap().connections(local, remote).unwrap();
            assert!(sorted(here.port(), 0).iter().all(|socket| socket.local.port() == here.port()));
            assert!(sorted(0, there.port()).iter().any(|socket| socket.cookie == mine.cookie));
        }
    }

    #[test]
    fn answers_cut_anywhere_are_refused_or_give_less() {
        let mut whole = message(7, 232);
        whole.extend(message(6, 232));
        let mut found = Vec::new();
        assert!(read(&whole, 7, &mut found).unwrap());
        assert_eq!(found.len(), 1, "the other is the answer to another request");
        for length in 0..whole.len() {
            let _ = read(&whole[..length], 7, &mut Vec::new());
        }
        for place in 0..whole.len() {
            for value in [0, 1, 255] {
                let mut changed = whole.clone();
                changed[place] = value;
                let _ = read(&changed, 7, &mut Vec::new());
            }
        }
        let mut found = Vec::new();
        read(&message(7, 8), 7, &mut found).unwrap();
        assert!(found.is_empty(), "a state that is too short is none");
    }

    #[test]
    fn a_process_that_is_not_there_is_told() {
        let said = sockets_of(u32::MAX).unwrap_err().to_string();
        assert_eq!(said, "there is no process 4294967295");
    }
}
