//! Blocks of selective acknowledgments (RFC 2018, section 3).

use std::fmt;

use crate::Seq;

/// Bytes that have arrived: from `start` up to, but without, `end`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SackBlock {
    /// The first sequence number of the block.
    pub start: Seq,
    /// The sequence number after the block's last.
    pub end: Seq,
}

/// Up to [`SackBlocks::MAX`] blocks, in the order in which they are sent.
// Entries from `len` on are zero, so that comparing all of them compares those in use.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SackBlocks {
    blocks: [SackBlock; Self::MAX],
    len: u8,
}

impl SackBlocks {
    /// As many as 40 bytes of options hold.
    pub const MAX: usize = 4;

    /// Appends a block; `false` if there was no room for it.
    pub fn push(&mut self, block: SackBlock) -> bool {
        let free = self.blocks.get_mut(usize::from(self.len));
        let has_room = free.is_some();
        if let Some(free) = free {
            *free = block;
            self.len += 1;
        }
        has_room
    }

    /// The blocks, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = SackBlock> + '_ {
        self.blocks[..usize::from(self.len)].iter().copied()
    }

    /// How many blocks there are, at most [`SackBlocks::MAX`].
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl FromIterator<SackBlock> for SackBlocks {
    /// Takes the first [`SackBlocks::MAX`].
    fn from_iter<I: IntoIterator<Item = SackBlock>>(blocks: I) -> Self {
        let mut taken = Self::default();
        for block in blocks.into_iter().take(Self::MAX) {
            taken.push(block);
        }
        taken
    }
}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
