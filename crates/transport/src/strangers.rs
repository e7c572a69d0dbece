//! Connections whose other end has not proven its identity yet, and their limits where no configuration sets them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ekiden_net::socket::client_of;

use crate::eviction::{Bounds, Evictable, EvictionTable};

/// The default limits of strangers' connections: in all, and of one address. A node may connect with all of its connections
/// at once.
const MOST: usize = 512;
const MOST_OF_ADDRESS: usize = 64;

/// Strangers have at most this fraction of the process's limit of open files: one in `FILES`.
const FILES: u64 = 2;

/// Connections whose other end has not proven its identity yet, by the client that their address stands for ([`client_of`]).
#[derive(Debug, Default)]
pub struct Strangers(Arc<EvictionTable<IpAddr>>);

/// One of them, until it is dropped. It is to be closed once it is [evicted](Evictable::evicted).
pub type Stranger = Evictable<IpAddr>;

impl Strangers {
    /// The bounds for a process with this limit of open files.
    pub fn bounds(files: u64) -> Bounds {
        let all = usize::try_from(files / FILES).unwrap_or(usize::MAX).min(MOST);
        Bounds { all, of_owner: MOST_OF_ADDRESS.min(all) }
    }

    /// Counts a connection from this address. If there are then more than `bounds`, the oldest goes: of the same address, or
    /// of the address that has most.
    pub fn add(&self, from: IpAddr, bounds: Bounds) -> Stranger {
        self.0.add(client_of(from), bounds)
    }

    /// Evicts one: the oldest of the address that has most, if it is at least this old. False if there is none.
    pub fn evict_one(&self, older_than: Duration) -> bool {
        self.0.evict_one(older_than)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_addresses_is_one_stranger() {
        let strangers = Strangers::default();
        let bounds = Bounds { all: 100, of_owner: 8 };
        let add = |address: &str| strangers.add(address.parse().unwrap(), bounds);
        let network: Vec<_> = (0..20).map(|host| add(&format!("2001:db8:1:2::{host:x}"))).collect();
        assert_eq!(strangers.count(), 8);
        let v4: Vec<_> = ["::ffff:192.0.2.1", "192.0.2.1"].repeat(10).into_iter().map(add).collect();
        assert_eq!(strangers.count(), 16);
        let others = [add("192.0.2.2"), add("2001:db8:1:3::1")];
        assert_eq!(strangers.count(), 18);
        drop((network, v4, others));
        assert_eq!(strangers.count(), 0);
    }

    #[test]
    fn strangers_leave_files_for_others() {
        assert_eq!(Strangers::bounds(64), Bounds { all: 32, of_owner: 32 });
        assert_eq!(Strangers::bounds(1 << 20), Bounds { all: 512, of_owner: 64 });
        let strangers = Strangers::default();
        let held: Vec<_> =
            (0..100).map(|host| strangers.add([192, 0, 2, host].into(), Strangers::bounds(64))).collect();
        assert_eq!((held.len(), strangers.count()), (100, 32));
    }
}
