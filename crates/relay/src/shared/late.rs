//! Places for streams whose client has its answer and end, while the client's data is still to be delivered. They do not
//! count as the client's connections.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::quota::{Allowance, ClientKey, QuotaGuard, Quotas};

/// The maximum number of such streams at the same time.
const MOST: usize = 64;

/// The share of one client.
const SHARE: Allowance = Allowance { open: MOST as u32 / 4, rate: u32::MAX };

/// The places, and whose they are.
#[derive(Debug)]
pub struct LateStreams {
    /// Over legs. HTTP origins that are still reading or sending have some, too.
    pub over_legs: Arc<Semaphore>,
    /// To hosts that are connected directly. They hold none of the others' places.
    pub direct: Arc<Semaphore>,
    shares: Arc<Quotas<ClientKey>>,
}

/// A place, until it is dropped.
pub struct LatePlace {
    _of_all: OwnedSemaphorePermit,
    _of_client: QuotaGuard<ClientKey>,
}

impl Default for LateStreams {
    fn default() -> Self {
        let places = || Arc::new(Semaphore::new(MOST));
        Self { over_legs: places(), direct: places(), shares: Arc::default() }
    }
}

impl LateStreams {
    /// A place for a stream of this client; `None` where there is none, or the client has its share.
    pub fn take(&self, client: ClientKey, over_leg: bool) -> Option<LatePlace> {
        let of_client = self.shares.acquire(client, SHARE).ok()?;
        let places = if over_leg { &self.over_legs } else { &self.direct };
        Some(LatePlace { _of_all: places.clone().try_acquire_owned().ok()?, _of_client: of_client })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{LateStreams, MOST, SHARE};

    #[test]
    fn a_client_has_its_share_and_all_have_what_there_is() {
        let places = LateStreams::default();
        let take = |client: [u8; 4]| places.take(IpAddr::from(client).into(), false);
        let mut taken: Vec<_> = (0..SHARE.open).map(|_| take([192, 0, 2, 1]).unwrap()).collect();
        assert!(take([192, 0, 2, 1]).is_none());
        assert!(places.take(IpAddr::from([192, 0, 2, 1]).into(), true).is_none(), "a share is of both kinds");
        taken.extend((SHARE.open..MOST as u32).map(|host| take([192, 0, 2, host as u8]).unwrap()));
        assert!(take([198, 51, 100, 1]).is_none());
        taken.clear();
        assert!(take([192, 0, 2, 1]).is_some());
    }
}
