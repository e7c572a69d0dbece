//! Measures round-trip times by ICMP echo (RFC 792). The far kernel answers, and the near kernel stamps the answer's arrival.

use std::io::{self, IoSliceMut};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt};
use nix::sys::time::TimeVal;
use socket2::{Domain, Protocol, Socket, Type};

use crate::clock::realtime_ns;

/// Bytes of the IP packet of one probe: header, ICMP header, and the payload that names the probe.
pub const PACKET_BYTES: u64 = 20 + 8;

/// Sends echo requests to one address and measures how long the answers take.
#[derive(Debug)]
pub struct Pinger {
    socket: Socket,
    identifier: u16,
    sequence: u16,
    timeout: Duration,
}

impl Pinger {
    /// Opens a probe from the calling thread's namespace to `to`. `identifier` tells this probe's answers from those
    /// of others on the same host; an answer later than `timeout` is a lost one.
    ///
    /// # Errors
    /// Without `CAP_NET_RAW`, or if there is no route to `to`.
    pub fn new(to: Ipv4Addr, identifier: u16, timeout: Duration) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
        socket.connect(&std::net::SocketAddrV4::new(to, 0).into())?;
        socket.set_read_timeout(Some(timeout))?;
        setsockopt(&socket, ReceiveTimestampns, &true)?;
        Ok(Self { socket, identifier, sequence: 0, timeout })
    }

    /// Sends one echo request and waits for its answer: the time between in nanoseconds, or `None` if it was lost.
    ///
    /// # Errors
    /// The kernel's, when the request could not be sent.
    pub fn probe(&mut self) -> io::Result<Option<u64>> {
        let sent_ns = realtime_ns();
        let sequence = self.send()?;
        while realtime_ns().saturating_sub(sent_ns) < self.timeout.as_nanos() as u64 {
            if let Some((_, arrival_ns)) = self.receive()?.filter(|(answered, _)| *answered == sequence) {
                return Ok(Some(arrival_ns.saturating_sub(sent_ns)));
            }
        }
        Ok(None)
    }

    /// Sends one echo request and returns its number.
    ///
    /// # Errors
    /// The kernel's, when the request could not be sent.
    pub fn send(&mut self) -> io::Result<u16> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&echo_request(self.identifier, self.sequence))?;
        Ok(self.sequence)
    }

    /// Takes one packet, for which it waits as long as the timeout: if it is an answer, the request's number and when it arrived,
    /// in nanoseconds since 1970.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(&self) -> io::Result<Option<(u16, u64)>> {
        let mut packet = [0; 128];
        let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec, TimeVal);
        let mut vectors = [IoSliceMut::new(&mut packet)];
        let received =
            recvmsg::<SockaddrIn>(self.socket.as_raw_fd(), &mut vectors, Some(&mut control), MsgFlags::empty());
        let message = match received {
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            received => received?,
        };
        let stamp = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => {
                Some((time.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec() as u64))
            }
            _ => None,
        });
        let length = message.bytes;
        let arrival_ns = stamp.unwrap_or_else(realtime_ns);
        Ok(self.answered(&packet[..length]).map(|sequence| (sequence, arrival_ns)))
    }

    /// The number of the request to which an IPv4 packet is the reply.
    fn answered(&self, packet: &[u8]) -> Option<u16> {
        let header = packet.first().map(|first| usize::from(first & 0xf) * 4)?;
        let icmp = packet.get(header..header + 8)?;
        let [i0, i1] = self.identifier.to_be_bytes();
        (icmp[0] == 0 && icmp[4..6] == [i0, i1]).then(|| u16::from_be_bytes([icmp[6], icmp[7]]))
    }
}

fn echo_request(identifier: u16, sequence: u16) -> [u8; 8] {
    const ECHO_REQUEST: u16 = 8 << 8;
    // RFC 1071: the one's complement sum of all words, complemented; the checksum's own word counts as zero.
    let mut sum = u32::from(ECHO_REQUEST) + u32::from(identifier) + u32::from(sequence);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let words = [ECHO_REQUEST, !(sum as u16), identifier, sequence];
    let mut packet = [0; 8];
    for (bytes, word) in packet.chunks_exact_mut(2).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    packet
}
