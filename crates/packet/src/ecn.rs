//! Explicit congestion notification in IP headers (RFC 3168, section 5).

/// The ECN field of an IP header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not understand it.
    #[default]
    NotEct = 0b00,
    /// The sender understands it: ECT(1).
    Ect1 = 0b01,
    /// The sender understands it: ECT(0), which is what TCP sends.
    Ect0 = 0b10,
    /// A queue on the way marked the packet: congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// From the two lowest bits.
    pub(crate) fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}
