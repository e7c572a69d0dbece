//! The way of a packet: from the device into the queue of a connection, and from a connection to the device.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use ekiden_net::device::is_gone;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::{Node, count};
use crate::buffer::{Buffer, Pool};
use crate::carry::CarryError;
use crate::decoder::Frame;
use crate::frame::{FrameError, HEAD_BYTES, PLAIN, SUPER, head};
use crate::packet::{Header, accepting_port, clamp_mss};
use crate::queue::{Outgoing, Packet};
use crate::segments::{complete_checksum, split};
use crate::tun::PACKET_AT;
use crate::vnet::{VNET_BYTES, VnetHeader};

/// Bytes that are read from the device before others have their turn.
const TURN: usize = 256 << 10;
/// The pause after a packet that could not be read: shorter than the device's own queue takes to fill.
const UNREAD: Duration = Duration::from_millis(10);

impl Node {
    /// Takes the host's packets out of the device. Returns why when the device is gone.
    pub(super) async fn read_device(self: Rc<Self>) -> io::Error {
        let pool = Rc::new(Pool::default());
        let (mut room, mut taken) = (pool.take(), 0);
        loop {
            match self.tun.receive(&mut room).await {
                Ok((vnet, end)) => {
                    self.enter(vnet, &mut room, end, &pool);
                    taken += end;
                }
                Err(error) if is_gone(&error) => return error,
                // A packet that the kernel does not give, such as one of a kind that the device does not know.
                Err(error) => {
                    self.lines.warn("read", "", format_args!("cannot read the device: {error}"));
                    sleep(UNREAD).await;
                }
            }
            if taken >= TURN {
                taken = 0;
                yield_now().await;
            }
        }
    }

    /// A packet of the host, which ends at `end` in `room`, enters the tunnel.
    fn enter(&self, vnet: VnetHeader, room: &mut Vec<u8>, end: usize, pool: &Rc<Pool>) {
        let packet = &mut room[PACKET_AT..end];
        let header = Header::read(packet);
        let peer = header.and_then(|header| self.config.allowed.peer(header.destination));
        let (Some(header), Some(peer)) = (header, peer) else {
            // The host sends multicast to every device, and it is for no peer.
            if !header.is_some_and(|header| header.destination.is_multicast()) {
                count(&self.unroutable);
            }
            return;
        };
        clamp_mss(packet, &header, self.config.device.mtu, vnet.needs_checksum());
        let flow = header.flow(packet);
        let own = self.config.peers[peer].classes.of(&header, packet);
        let queue = match self.peers[peer].slot_for(own, flow) {
            Ok(slot) => &slot.queue,
            Err(slot) => {
                self.tell_loop(peer, packet, &header);
                return slot.into_iter().for_each(|slot| slot.queue.lose());
            }
        };
        let vnet = vnet.with_real_headers(packet);
        let (bytes, mtu) = (packet.len(), self.config.device.mtu);
        let is_whole = vnet.needs_checksum() && queue.takes(vnet, bytes) && vnet.check(packet, &header, mtu).is_ok();
        if is_whole {
            room[..HEAD_BYTES].copy_from_slice(&head(SUPER, VNET_BYTES + bytes));
            room[HEAD_BYTES..PACKET_AT].copy_from_slice(&vnet.to_frame());
            return queue.push(Packet { frame: Buffer::of(room, 0, end, pool), flow, bytes });
        }
        if vnet.is_super() {
            return self.enter_as_segments(vnet, packet, flow, queue);
        }
        if bytes > usize::from(mtu) || vnet.needs_checksum() && !complete_checksum(vnet, packet) {
            return count(&self.unreadable);
        }
        let start = PACKET_AT - HEAD_BYTES;
        room[start..PACKET_AT].copy_from_slice(&head(PLAIN, bytes));
        queue.push(Packet { frame: Buffer::of(room, start, end, pool), flow, bytes });
    }

    /// While no connection to the peer is there, what this node's listener answers to one of its addresses can only be for the connection
    /// that it tries to make: that goes into the tunnel which it is to carry.
    fn tell_loop(&self, peer: usize, packet: &[u8], header: &Header) {
        let port = self.config.listen.as_ref().map(|listen| listen.address.port());
        if port.is_none() || accepting_port(packet, header) != port {
            return;
        }
        let (name, from) = (self.name(peer), header.destination);
        let line = format_args!(
            "{from} connects to this listener, and what it is answered goes into the tunnel itself, since {from} is among the \
             allowed addresses of {name}: it can never connect. Leave it out of `allowed`; where that is a larger network, \
             `ip route add {from} via GATEWAY` leads past the device too"
        );
        self.lines.warn("loop", from, line);
    }

    /// A super-packet waits as the packets that it stands for.
    fn enter_as_segments(&self, vnet: VnetHeader, packet: &mut [u8], flow: u64, queue: &Outgoing) {
        let fits = usize::from(vnet.hdr_len) + usize::from(vnet.gso_size) <= usize::from(self.config.device.mtu);
        let Some(segments) = split(vnet, packet, HEAD_BYTES).ok().filter(|_| fits) else {
            return count(&self.unreadable);
        };
        for mut segment in segments {
            let bytes = segment.len() - HEAD_BYTES;
            segment[..HEAD_BYTES].copy_from_slice(&head(PLAIN, bytes));
            queue.push(Packet { frame: segment.into(), flow, bytes });
        }
    }

    /// A packet comes from an address that the peer may not use.
    fn drop_foreign(&self, peer: usize, source: IpAddr) {
        let foreign = &self.peers[peer].foreign;
        foreign.set((foreign.get().0 + 1, Some(source)));
        let name = self.name(peer);
        let line =
            format_args!("{name} sends packets from {source}, which is not among its allowed addresses: dropped");
        self.lines.warn("foreign", name, line);
    }

    /// A packet comes out of the tunnel.
    pub(super) async fn leave(&self, peer: usize, frame: Frame<'_>) -> Result<(), CarryError> {
        let mtu = self.config.device.mtu;
        let (vnet, bytes, at) = match frame {
            Frame::Plain(packet) => (None, packet, 0),
            Frame::Offloaded { .. } if !self.tun.has_offload() => return Err(FrameError::Unwanted.into()),
            Frame::Offloaded { vnet, bytes } => (Some(vnet), bytes, VNET_BYTES),
        };
        let packet = &mut bytes[at..];
        let header = Header::read(packet).ok_or(CarryError::NoPacket)?;
        if let Some(vnet) = vnet {
            vnet.check(packet, &header, mtu).map_err(FrameError::Vnet)?;
        }
        if self.config.allowed.peer(header.source) != Some(peer) {
            self.drop_foreign(peer, header.source);
            return Ok(());
        }
        clamp_mss(packet, &header, mtu, vnet.is_some());
        let sent = match vnet {
            None => self.tun.send(packet).await,
            Some(vnet) => match self.tun.send_offloaded(vnet, bytes).await {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.send_as_segments(vnet, &mut bytes[VNET_BYTES..], &error).await
                }
                other => other,
            },
        };
        if let Err(error) = sent {
            count(&self.device_refused);
            tracing::debug!("the device refuses a packet: {error}");
        }
        Ok(())
    }

    /// The kernel does not take a packet as it is, but does take the packets that it stands for.
    async fn send_as_segments(&self, vnet: VnetHeader, packet: &mut [u8], error: &io::Error) -> io::Result<()> {
        if self.device_refused.get() == 0 {
            tracing::info!("the kernel does not take a super-packet: {error}; such are cut into segments first");
        }
        count(&self.device_refused);
        if !vnet.is_super() {
            complete_checksum(vnet, packet);
            return self.tun.send(packet).await;
        }
        for segment in split(vnet, packet, 0)? {
            self.tun.send(&segment).await?;
        }
        Ok(())
    }
}
