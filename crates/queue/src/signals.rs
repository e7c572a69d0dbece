//! What queues tell senders.

/// What a queue has done to packets so that their senders slow down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signals {
    /// Packets dropped.
    pub drops: u64,
    /// Packets marked (ECN, RFC 3168), which are sent on.
    pub marks: u64,
}

impl Signals {
    /// What came on top of `before`.
    pub fn since(self, before: Self) -> Self {
        Self { drops: self.drops - before.drops, marks: self.marks - before.marks }
    }
}

impl std::ops::AddAssign for Signals {
    fn add_assign(&mut self, other: Self) {
        self.drops += other.drops;
        self.marks += other.marks;
    }
}
