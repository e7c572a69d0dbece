//! Connections that have not proven yet who they are: how many there may be, and which goes when there are too many.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use tokio::sync::Notify;

/// In all, and from one address. A peer may connect with all of its connections at once.
const MOST: usize = 512;
const MOST_FROM_ONE: usize = 64;
/// Of the files that this process may have open, strangers have one in so many at most.
const FILES: usize = 2;

/// The places of strangers, by address. Of IPv6 the first 64 bits count: one host may have all that begin with them.
///
/// A newcomer always gets one: when all are taken, the oldest of the address that has most of them has to go, and among equals
/// the oldest of all. So a peer that must connect again can, whoever holds places for as long as they may.
pub struct Strangers {
    most: usize,
    places: RefCell<BTreeMap<IpAddr, Held>>,
    /// Counts those who have come.
    entered: Cell<u64>,
}

/// The places of one address, the oldest first, and which newcomer each was.
type Held = VecDeque<(u64, Rc<Notify>)>;

/// The place of one stranger, until it is dropped.
pub struct Place<'a> {
    strangers: &'a Strangers,
    from: IpAddr,
    /// Told when another one needs it.
    taken: Rc<Notify>,
}

impl Strangers {
    /// For a process that may have so many files open.
    pub fn new(files: u64) -> Self {
        let most = usize::try_from(files).unwrap_or(usize::MAX) / FILES;
        Self { most: most.clamp(1, MOST), places: RefCell::default(), entered: Cell::default() }
    }

    /// A place for a connection from this address.
    pub fn enter(&self, from: IpAddr) -> Place<'_> {
        let from = site(from);
        let mut places = self.places.borrow_mut();
        let here = places.get(&from).map_or(0, VecDeque::len);
        let all: usize = places.values().map(VecDeque::len).sum();
        let full = match () {
            () if here >= MOST_FROM_ONE.min(self.most) => Some(from),
            () if all >= self.most => places
                .iter()
                .max_by_key(|(_, here)| (here.len(), Reverse(here.front().map(|(number, _)| *number))))
                .map(|(from, _)| *from),
            () => None,
        };
        if let Some((_, oldest)) = full.and_then(|full| places.get_mut(&full)?.pop_front()) {
            oldest.notify_one();
        }
        let taken = Rc::new(Notify::new());
        let number = self.entered.get();
        self.entered.set(number + 1);
        places.entry(from).or_default().push_back((number, Rc::clone(&taken)));
        Place { strangers: self, from, taken }
    }
}

impl Place<'_> {
    /// Returns when another one needs the place.
    pub async fn taken(&self) {
        self.taken.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut places = self.strangers.places.borrow_mut();
        if let Some(here) = places.get_mut(&self.from) {
            here.retain(|(_, place)| !Rc::ptr_eq(place, &self.taken));
            if here.is_empty() {
                places.remove(&self.from);
            }
        }
    }
}

fn site(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_taken(place: &Place<'_>) -> bool {
        pin!(place.taken()).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    fn count(strangers: &Strangers) -> usize {
        strangers.places.borrow().values().map(VecDeque::len).sum()
    }

    #[test]
    fn a_newcomer_takes_the_oldest_place_of_whoever_has_most() {
        let strangers = Strangers::new(1 << 20);
        let from = |text: &str| strangers.enter(text.parse().unwrap());
        let many: Vec<_> = (0..MOST_FROM_ONE + 3).map(|_| from("192.0.2.1")).collect();
        assert_eq!(count(&strangers), MOST_FROM_ONE);
        assert_eq!(many.iter().filter(|place| is_taken(place)).count(), 3);
        drop(many);
        assert_eq!((count(&strangers), strangers.places.borrow().len()), (0, 0));
        // Nine hosts take all; one host of IPv6 is one, whatever address it takes.
        let hosts: Vec<Vec<_>> =
            (0..9).map(|host| (0..60).map(|one| from(&format!("2001:db8:0:{host}::{one}"))).collect()).collect();
        assert_eq!(count(&strangers), MOST);
        let peer = from("198.51.100.7");
        for host in 0..9 {
            (0..200).for_each(|one| drop(from(&format!("2001:db8:0:{host}::{one}"))));
        }
        let again = from("192.0.2.1");
        assert!(!is_taken(&peer) && !is_taken(&again) && count(&strangers) <= MOST);
        assert!(hosts.iter().all(|host| is_taken(&host[0])));
    }

    #[test]
    fn among_equals_the_oldest_goes() {
        let strangers = Strangers::new(8);
        let from = |last: u8| strangers.enter(IpAddr::from([192, 0, 2, last]));
        let held = [from(9), from(1), from(2), from(3)];
        let newcomer = from(200);
        assert_eq!(held.each_ref().map(is_taken), [true, false, false, false]);
        let _next = from(4);
        assert!(!is_taken(&newcomer) && is_taken(&held[1]));
    }

    #[test]
    fn strangers_leave_files_for_others() {
        let strangers = Strangers::new(64);
        let held: Vec<_> = (0..100).map(|one| strangers.enter(IpAddr::from([192, 0, 2, one]))).collect();
        assert_eq!((held.len(), count(&strangers)), (100, 32));
    }
}
