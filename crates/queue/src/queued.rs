//! What a queue must know of a packet.

/// Something that can wait in a queue.
pub trait Queued {
    /// Bytes of the IP packet, with its headers; below 2³¹.
    fn bytes(&self) -> u32;

    /// A number that all packets of a flow in one direction have.
    fn flow(&self) -> u64;

    /// Marks it as having met congestion (CE of RFC 3168), if its sender understands that. Returns whether it is marked now.
    fn mark(&mut self) -> bool {
        false
    }
}
