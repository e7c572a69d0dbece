//! What the thread that keeps a node's membership is told.

use crate::gateway::{Failure, Watched};

/// How many messages may wait. A watch that is read more slowly than etcd tells waits at its socket.
pub const WAITING_MOST: usize = 64;

/// One message.
pub enum Input {
    /// From the watch with this number.
    Watch(u64, Said),
    /// End.
    Stop,
}

/// What came on a watch.
pub enum Said {
    /// A line.
    Changes(Watched),
    /// etcd ends it.
    Failed(Failure),
    /// It has ended, or is no watch.
    Ended(String),
}
