//! What a link has to know of a packet.

/// Something that is sent over a link.
pub trait Length {
    /// Bytes of the IP packet, with its headers; below 2³¹.
    fn bytes(&self) -> u32;
}
