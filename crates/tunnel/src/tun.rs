//! Reading and writing the TUN device, with offloads and without.

use std::io::{self, IoSlice};

use tun_rs::{AsyncDevice, SyncDevice};

use crate::frame::HEAD_BYTES;
use crate::vnet::{VNET_BYTES, VnetHeader};

/// Where the device's header and the packet begin in a buffer: there is room for a frame's head before them.
const VNET_AT: usize = HEAD_BYTES;
pub const PACKET_AT: usize = HEAD_BYTES + VNET_BYTES;

/// The device, in an event loop.
pub struct Tun {
    device: AsyncDevice,
    /// A header of the kernel stands before each packet.
    has_offload: bool,
}

impl Tun {
    /// To be called within the event loop.
    pub fn new(device: SyncDevice) -> io::Result<Self> {
        let has_offload = device.tcp_gso();
        Ok(Self { device: AsyncDevice::new(device)?, has_offload })
    }

    /// Whether it takes, and gives, super-packets and packets that lack a checksum.
    pub fn has_offload(&self) -> bool {
        self.has_offload
    }

    /// Reads a packet to [`PACKET_AT`]. Returns what the kernel says about it, and where it ends.
    pub async fn receive(&self, room: &mut [u8]) -> io::Result<(VnetHeader, usize)> {
        if !self.has_offload {
            let bytes = self.device.recv(&mut room[PACKET_AT..]).await?;
            return Ok((VnetHeader::default(), PACKET_AT + bytes));
        }
        let bytes = self.device.recv(&mut room[VNET_AT..]).await?;
        let vnet = room[VNET_AT..VNET_AT + bytes].first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((VnetHeader::from_device(*vnet), VNET_AT + bytes))
    }

    /// Writes a packet that has all its checksums.
    pub async fn send(&self, packet: &[u8]) -> io::Result<()> {
        if !self.has_offload {
            return self.device.send(packet).await.map(|_| ());
        }
        let none = [0; VNET_BYTES];
        self.device.send_vectored(&[IoSlice::new(&none), IoSlice::new(packet)]).await.map(|_| ())
    }

    /// Writes a packet that stands behind room for `vnet`, to a device with offloads.
    pub async fn send_offloaded(&self, vnet: VnetHeader, bytes: &mut [u8]) -> io::Result<()> {
        if let Some(room) = bytes.first_chunk_mut() {
            *room = vnet.to_device();
        }
        self.device.send(bytes).await.map(|_| ())
    }
}
