//! What a link must know of a packet: its length.

/// Something that is sent over a link.
pub trait PacketLength {
    /// Bytes of the IP packet, with its headers; below 2³¹.
    fn bytes(&self) -> u32;
}
