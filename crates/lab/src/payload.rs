//! The data of a flow's connection: a sequence that looks random and can be computed at any offset. So every byte that arrives
//! can be compared.

use ekiden_units::random::{derive, word};

/// The payload of one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload {
    seed: u64,
}

impl Payload {
    /// The payload of connection `connection` of the flow called `flow`.
    pub fn new(seed: u64, flow: &str, connection: u32) -> Self {
        Self { seed: derive(seed, flow, u64::from(connection)) }
    }

    /// Fills `buffer` with the bytes from `offset` on.
    pub fn fill(&self, offset: u64, buffer: &mut [u8]) {
        let head = (offset % 8) as usize;
        let first = self.word(offset / 8);
        let lead = buffer.len().min((8 - head) % 8);
        let (start, rest) = buffer.split_at_mut(lead);
        start.copy_from_slice(&first[head..][..lead]);
        for (number, piece) in (offset.div_ceil(8)..).zip(rest.chunks_mut(8)) {
            piece.copy_from_slice(&self.word(number)[..piece.len()]);
        }
    }

    fn word(&self, number: u64) -> [u8; 8] {
        word(self.seed, number).to_le_bytes()
    }
}

/// Compares what arrives on a connection with what was sent on it, whichever of the flow's connections it is.
pub(crate) struct Comparison {
    /// The connections whose payload fits what has arrived. From eight bytes on it is one.
    candidates: Vec<(u32, Payload)>,
    expected: Vec<u8>,
    received_bytes: u64,
}

impl Comparison {
    /// A comparison for one of the flow's connections with these numbers.
    pub fn new(seed: u64, flow: &str, numbers: impl IntoIterator<Item = u32>) -> Self {
        let candidates = numbers.into_iter().map(|n| (n, Payload::new(seed, flow, n))).collect();
        Self { candidates, expected: Vec::new(), received_bytes: 0 }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The offset of the first byte that fits no connection.
    pub fn take(&mut self, data: &[u8]) -> Result<(), u64> {
        let mut furthest = 0;
        let (offset, expected) = (self.received_bytes, &mut self.expected);
        expected.resize(data.len(), 0);
        self.candidates.retain(|(_, payload)| {
            payload.fill(offset, expected);
            if *expected == data {
                return true;
            }
            let same = expected.iter().zip(data).take_while(|(a, b)| a == b).count();
            furthest = furthest.max(same);
            false
        });
        if self.candidates.is_empty() {
            return Err(offset + furthest as u64);
        }
        self.received_bytes += data.len() as u64;
        Ok(())
    }

    /// Bytes taken so far.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// The connection it turned out to be; the first of several if too little has arrived to tell.
    pub fn connection(&self) -> Option<u32> {
        self.candidates.first().map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Comparison, Payload};

    proptest! {
        #[test]
        fn any_part_is_the_same_as_in_the_whole(offset in 0usize..5000, length in 0usize..3000) {
            let payload = Payload::new(7, "flow", 3);
            let mut whole = vec![0; 8000];
            payload.fill(0, &mut whole);
            let mut part = vec![0; length];
            payload.fill(offset as u64, &mut part);
            prop_assert_eq!(&part[..], &whole[offset..offset + length]);
        }

        #[test]
        fn recognises_the_connection_and_the_first_wrong_byte(wrong in 9usize..5000, piece in 1usize..700, n in 0u32..5) {
            let mut data = vec![0; 5000];
            Payload::new(7, "flow", n).fill(0, &mut data);
            data[wrong] ^= 1;
            let mut comparison = Comparison::new(7, "flow", 0..5);
            let found = data.chunks(piece).find_map(|piece| comparison.take(piece).err());
            prop_assert_eq!(found, Some(wrong as u64));
        }
    }

    #[test]
    fn tells_connections_apart() {
        let mut data = vec![0; 64];
        Payload::new(7, "flow", 2).fill(0, &mut data);
        let mut comparison = Comparison::new(7, "flow", 0..4);
        comparison.take(&data[..3]).unwrap();
        comparison.take(&data[3..]).unwrap();
        assert_eq!((comparison.connection(), comparison.received_bytes()), (Some(2), 64));
    }
}
