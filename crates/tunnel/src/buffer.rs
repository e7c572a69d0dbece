//! Memory of packets: large buffers are used again, and small packets have no more than they need.

use std::cell::RefCell;
use std::rc::Rc;

/// A free buffer holds the largest packet with what stands before it.
pub const ROOM: usize = (1 << 16) + 64;
/// Free buffers that are kept: what waits between two turns of a fast connection.
const FREE_MOST: usize = 64;

/// Buffers that are free.
#[derive(Debug, Default)]
pub struct Pool {
    free: RefCell<Vec<Vec<u8>>>,
}

impl Pool {
    /// A buffer of [`ROOM`] bytes with any content: the one that was used last, which the processor's cache may still hold.
    pub fn take(&self) -> Vec<u8> {
        self.free.borrow_mut().pop().unwrap_or_else(|| vec![0; ROOM])
    }

    fn give_back(&self, bytes: Vec<u8>) {
        let mut free = self.free.borrow_mut();
        if bytes.len() == ROOM && free.len() < FREE_MOST {
            free.push(bytes);
        }
    }
}

/// Bytes in a buffer, which goes back to its pool when they are dropped.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    pool: Option<Rc<Pool>>,
}

impl Buffer {
    /// The bytes from `start` to `end` of `room`. Few of them are copied, so that small packets do not hold large buffers, and
    /// `room` stays as it is.
    pub fn of(room: &mut Vec<u8>, start: usize, end: usize, pool: &Rc<Pool>) -> Self {
        if (end - start) * 2 < room.len() {
            return Self::from(room[start..end].to_vec());
        }
        Self { bytes: std::mem::replace(room, pool.take()), start, end, pool: Some(Rc::clone(pool)) }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { start: 0, end: bytes.len(), bytes, pool: None }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.give_back(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_packet_keeps_its_buffer_and_a_small_one_has_no_more_than_it_needs() {
        let pool = Rc::new(Pool::default());
        let mut room = pool.take();
        room[10..13].copy_from_slice(b"abc");
        let small = Buffer::of(&mut room, 10, 13, &pool);
        assert_eq!((small.bytes(), small.bytes.capacity()), (&b"abc"[..], 3));
        let place = room.as_ptr();
        let large = Buffer::of(&mut room, 10, 60_000, &pool);
        assert_eq!((large.bytes().as_ptr(), large.bytes().len()), (place.wrapping_add(10), 59_990));
        assert!(room.len() == ROOM && room.as_ptr() != place);
        drop(large);
        let again = pool.take();
        assert_eq!(again.as_ptr(), place);
        drop(small);
        assert!(pool.free.borrow().is_empty());
    }
}
