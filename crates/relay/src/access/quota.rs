//! How many connections one client, or one user, may have at a time, and how many new ones per second.
//!
//! The table is used twice for every accepted connection. So it has parts, each with its own lock, which is held for one
//! look-up only. Its memory is bounded. It has at most twice as many entries as there were clients, at any one time, with an
//! open connection or a connection made within the last second.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_net::socket::client_of;
use ekiden_transport::budget::Payer;

/// Parts of a table, each with a lock of its own.
const PARTS: usize = 16;

/// A part with fewer entries is swept only when `SWEEP` has passed.
const SMALL: usize = 64;

/// A part is swept at least this often when it is used.
const SWEEP: Duration = Duration::from_secs(10);

/// The token bucket's burst: as many new connections as the rate allows in this time may come at once.
const BURST: Duration = Duration::from_secs(1);

/// How many connections one client or user may have. Both numbers are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// At one time.
    pub open: u32,
    /// New connections per second. A second's worth of them may come at once.
    pub rate: u32,
}

/// The client that an address stands for, by [`client_of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(IpAddr);

/// The open connections and the connection rates of all clients, or of all users.
#[derive(Debug)]
pub struct Quotas<K> {
    parts: [Mutex<Part<K>>; PARTS],
    hasher: RandomState,
    started: Instant,
}

#[derive(Debug)]
struct Part<K> {
    entries: HashMap<K, Entry>,
    /// At this number of entries, or at this time, entries that are no longer needed are dropped.
    sweep_at: usize,
    sweep_by: Duration,
}

/// A token bucket, as the time when it will be full (the generic cell rate algorithm of ITU-T I.371), and the number of open
/// connections.
#[derive(Debug, Default)]
struct Entry {
    full_at: Duration,
    open: u32,
    payer: Option<Arc<Payer>>,
}

/// Counts one open connection until it is dropped.
#[derive(Debug)]
pub struct QuotaGuard<K: Hash + Eq> {
    quotas: Arc<Quotas<K>>,
    key: K,
    /// The rate that applied when it was counted.
    rate: u32,
}

/// Why a connection is refused: one of the two limits, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Connections at one time.
    Open(u32),
    /// New connections per second.
    Rate(u32),
}

impl From<IpAddr> for ClientKey {
    fn from(address: IpAddr) -> Self {
        Self(client_of(address))
    }
}

impl ClientKey {
    /// Whether it is this machine, and so all of its programs and users.
    pub fn is_own(self) -> bool {
        // ::1 is kept as the first of its 64 bits.
        self.0.is_loopback() || self.0.is_unspecified()
    }

    /// The network that it is in, of the size that a site is given at most (RFC 6177 §2): the first 48 bits of an IPv6 address. Of
    /// IPv4 it is the address.
    pub fn site(self) -> Self {
        Self(match self.0 {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 80 << 80).into(),
            v4 => v4,
        })
    }
}

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(ip) => ip.fmt(f),
            IpAddr::V6(ip) => write!(f, "{ip}/64"),
        }
    }
}

impl Limit {
    /// Its key in the configuration, for a `who` of `client` or `user`.
    pub fn key(self, who: &str) -> String {
        match self {
            Self::Open(_) => format!("limits.{who}_connections"),
            Self::Rate(_) => format!("limits.{who}_rate"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(most) => write!(f, "{most} connections are open"),
            Self::Rate(most) => write!(f, "more than {most} new connections per second"),
        }
    }
}

impl<K> Default for Quotas<K> {
    fn default() -> Self {
        let part = |_| Mutex::new(Part { entries: HashMap::new(), sweep_at: SMALL, sweep_by: SWEEP });
        Self { parts: std::array::from_fn(part), hasher: RandomState::new(), started: Instant::now() }
    }
}

impl<K: Hash + Eq + Clone> Quotas<K> {
    /// Counts one more connection of `key`.
    ///
    /// # Errors
    /// `key` has reached one of its limits.
    pub fn acquire(self: &Arc<Self>, key: K, allowance: Allowance) -> Result<QuotaGuard<K>, Limit> {
        self.count(&key, allowance, self.started.elapsed())?;
        Ok(QuotaGuard { quotas: self.clone(), key, rate: allowance.rate })
    }

    fn count(&self, key: &K, allowance: Allowance, now: Duration) -> Result<(), Limit> {
        let mut part = self.part(key);
        if !part.entries.contains_key(key) {
            part.sweep(now);
            part.entries.insert(key.clone(), Entry::default());
        }
        part.entries.get_mut(key).map_or(Ok(()), |entry| entry.acquire(allowance, now))
    }
}

impl<K: Hash + Eq + Clone> Quotas<K> {
    /// All that have open connections, and how many.
    pub fn open(&self) -> Vec<(K, u32)> {
        let open = |part: &Mutex<Part<K>>| {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            let open = part.entries.iter().filter(|(_, entry)| entry.open > 0);
            open.map(|(key, entry)| (key.clone(), entry.open)).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(open).collect()
    }
}

impl<K: Hash + Eq> Quotas<K> {
    fn release(&self, key: &K, now: Duration) {
        let mut part = self.part(key);
        let Some(entry) = part.entries.get_mut(key) else { return };
        entry.open -= 1;
        if entry.is_needless(now) {
            part.entries.remove(key);
        }
    }

    fn part(&self, key: &K) -> MutexGuard<'_, Part<K>> {
        let part = self.hasher.hash_one(key) as usize % PARTS;
        self.parts[part].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq> Part<K> {
    /// Looks at all entries only when at most half of them may be needed, so that the amortised cost of an entry is small.
    fn sweep(&mut self, now: Duration) {
        if self.entries.len() >= self.sweep_at || now >= self.sweep_by {
            self.entries.retain(|_, entry| !entry.is_needless(now));
            (self.sweep_at, self.sweep_by) = ((2 * self.entries.len()).max(SMALL), now + SWEEP);
            self.entries.shrink_to(self.sweep_at);
        }
    }
}

impl Entry {
    fn acquire(&mut self, allowance: Allowance, now: Duration) -> Result<(), Limit> {
        let full_at = self.full_at.max(now) + BURST / allowance.rate;
        let limit = if self.open >= allowance.open {
            Limit::Open(allowance.open)
        } else if full_at > now + BURST {
            Limit::Rate(allowance.rate)
        } else {
            (self.full_at, self.open) = (full_at, self.open + 1);
            return Ok(());
        };
        Err(limit)
    }

    /// Whether a new entry would be the same: nothing is open, and the bucket is full.
    fn is_needless(&self, now: Duration) -> bool {
        self.open == 0 && self.full_at <= now
    }
}

impl<K: Hash + Eq> QuotaGuard<K> {
    /// Ends the count and puts the token back, so that this connection does not count for the rate either.
    pub fn give_back(self) {
        let mut part = self.quotas.part(&self.key);
        if let Some(entry) = part.entries.get_mut(&self.key) {
            entry.full_at = entry.full_at.saturating_sub(BURST / self.rate);
        }
    }

    /// The payer for the memory that its connections hold.
    pub fn payer(&self) -> Arc<Payer> {
        let mut part = self.quotas.part(&self.key);
        part.entries.get_mut(&self.key).map(|entry| entry.payer.get_or_insert_default().clone()).unwrap_or_default()
    }

    /// The client or user that it counts for.
    pub fn key(&self) -> &K {
        &self.key
    }
}

impl<K: Hash + Eq> Drop for QuotaGuard<K> {
    fn drop(&mut self) {
        self.quotas.release(&self.key, self.quotas.started.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Allowance = Allowance { open: 4, rate: 10 };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn as_many_are_open_as_are_allowed() {
        let quotas = Quotas::<u8>::default();
        for _ in 0..4 {
            quotas.count(&1, ALLOWED, ms(0)).unwrap();
        }
        let refused = quotas.count(&1, ALLOWED, ms(0)).unwrap_err();
        assert_eq!(refused, Limit::Open(4));
        quotas.count(&2, ALLOWED, ms(0)).expect("another one is not concerned");
        quotas.release(&1, ms(0));
        quotas.count(&1, ALLOWED, ms(0)).unwrap();
        quotas.count(&1, ALLOWED, ms(0)).unwrap_err();
    }

    #[test]
    fn a_second_s_worth_may_come_at_once_and_then_as_many_as_the_rate_lets() {
        let quotas = Quotas::<u8>::default();
        let comes = |at| {
            let come = quotas.count(&1, ALLOWED, ms(at));
            come.inspect(|()| quotas.release(&1, ms(at)))
        };
        for at in 0..10 {
            comes(at).unwrap();
        }
        assert_eq!(comes(10), Err(Limit::Rate(10)));
        assert_eq!(comes(99), Err(Limit::Rate(10)));
        comes(100).unwrap();
        comes(101).unwrap_err();
        // However long it waits, no more than a second's worth may come at once.
        let after = (0..30).filter(|_| comes(60_000).is_ok()).count();
        assert_eq!(after, 10);
    }

    #[test]
    fn what_is_given_back_was_never_taken() {
        let quotas = Arc::new(Quotas::<u8>::default());
        let allowance = Allowance { open: 1, rate: 1 };
        for _ in 0..100 {
            quotas.acquire(1, allowance).unwrap().give_back();
        }
        quotas.acquire(1, allowance).unwrap();
        assert_eq!(quotas.acquire(1, allowance).unwrap_err(), Limit::Rate(1), "this one was only dropped");
    }

    #[test]
    fn those_who_have_gone_are_forgotten() {
        let quotas = Quotas::<u64>::default();
        let size = || quotas.parts.iter().map(|part| part.lock().unwrap().entries.len()).sum::<usize>();
        let mut most = 0;
        for key in 0..1_000_000 {
            // A hundred in a millisecond, each gone at once: a hundred thousand in any second have not refilled.
            let now = Duration::from_micros(key * 10);
            quotas.count(&key, Allowance { open: 4, rate: 1 }, now).unwrap();
            quotas.release(&key, now);
            most = most.max(if key % 1000 == 0 { size() } else { 0 });
        }
        assert!((100_000..=210_000).contains(&most), "{most}");
        // Long after, nobody of them is remembered any more.
        let later = Duration::from_secs(100);
        for key in 0..1000 {
            quotas.count(&key, Allowance { open: 4, rate: 1000 }, later).unwrap();
            quotas.release(&key, later + ms(1));
        }
        assert_eq!(size(), 0);
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let key = |address: &str| ClientKey::from(address.parse::<IpAddr>().unwrap());
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::9"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_ne!(key("192.0.2.2"), key("192.0.2.1"));
        assert_eq!(key("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
        assert_eq!(key("::ffff:192.0.2.1").to_string(), "192.0.2.1");
        assert_eq!(key("2001:db8:1:2::1").site(), key("2001:db8:1:ffff::1").site());
        assert_ne!(key("2001:db8:1:2::1").site(), key("2001:db8:2:2::1").site());
        assert_eq!(key("192.0.2.1").site(), key("192.0.2.1"));
    }
}
