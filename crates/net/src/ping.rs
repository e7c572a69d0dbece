//! Measures round-trip times by ICMP echo (RFC 792). The far kernel answers, and the near kernel stamps the answer's arrival.

use std::io::{self, IoSliceMut};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::time::Duration;

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
        self.sequence = self.sequence.wrapping_add(1);
        let sent_ns = realtime_ns();
        self.socket.send(&echo_request(self.identifier, self.sequence))?;
        while realtime_ns().saturating_sub(sent_ns) < self.timeout.as_nanos() as u64 {
            match self.receive() {
                Ok(Some(arrival_ns)) => return Ok(Some(arrival_ns.saturating_sub(sent_ns))),
                Ok(None) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Takes one packet: the time of its arrival if it is the awaited answer.
    fn receive(&self) -> io::Result<Option<u64>> {
        let mut packet = [0; 128];
        let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec, TimeVal);
        let mut vectors = [IoSliceMut::new(&mut packet)];
        let message =
            recvmsg::<SockaddrIn>(self.socket.as_raw_fd(), &mut vectors, Some(&mut control), MsgFlags::empty())?;
        let stamp = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => {
                Some((time.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec() as u64))
            }
            _ => None,
        });
        let length = message.bytes;
        let arrival_ns = stamp.unwrap_or_else(realtime_ns);
        Ok(self.is_answer(&packet[..length]).then_some(arrival_ns))
    }

    /// Whether an IPv4 packet is the echo reply to the last request.
    fn is_answer(&self, packet: &[u8]) -> bool {
        let Some(header) = packet.first().map(|first| usize::from(first & 0xf) * 4) else { return false };
        let Some(icmp) = packet.get(header..header + 8) else { return false };
        let [i0, i1] = self.identifier.to_be_bytes();
        let [s0, s1] = self.sequence.to_be_bytes();
        icmp[0] == 0 && icmp[4..8] == [i0, i1, s0, s1]
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
