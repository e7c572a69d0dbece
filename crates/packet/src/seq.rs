//! Sequence numbers.

use std::ops::{Add, Sub};

/// A sequence number, modulo 2^32 (RFC 9293, section 3.4).
///
/// Not ordered: "before" has a meaning only within 2^31 of each other, see [`Seq::since`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// `self - earlier`, from -2^31 to 2^31 - 1: negative if `self` comes before `earlier`.
    pub fn since(self, earlier: Seq) -> i32 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }
}

impl Add<u32> for Seq {
    type Output = Seq;

    fn add(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_add(bytes))
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;

    fn sub(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_sub(bytes))
    }
}
