//! Limits in bit/s: what all streams of a client, or of a user, may take of the line in each direction.
//!
//! The kernel paces each connection (SO_MAX_PACING_RATE): that to the client, and that to the destination or the next node. Nothing is held
//! back in this process. A few times a second a limit is shared among the connections of its holder, by what each has used: one
//! that uses less than an equal part leaves the rest to the others (max-min fairness). What was sent beyond the limit meanwhile, as by many
//! short streams, is made up for.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_net::socket::{limit_rate, rate_limit};
use ekiden_net::tcp_info::tcp_info;
use ekiden_net::watched::{Attached, WatchedSockets};
use ekiden_transport::{Connection, Pace};
use ekiden_units::BitRate;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::access::quota::ClientKey;

/// How often the limits are shared anew.
pub const TICK: Duration = Duration::from_millis(250);
/// The least pace of a connection, in bytes per second. Slower ones would look as if their receiver took nothing.
const PACE_LEAST: f64 = 4096.0;
/// A connection that uses a smaller part of its pace wants no more than it uses ...
const WANTS_MORE: f64 = 0.75;
/// ... and this many times as much may be left to it.
const HEADROOM: f64 = 1.25;
/// What was sent beyond a limit is made up for in this time, in seconds ...
const MADE_UP_S: f64 = 1.0;
/// ... at this part of the limit at least ...
const PART_LEAST: f64 = 0.25;
/// ... and forgotten if it is more than the limit allows in this time, in seconds.
const BEYOND_MOST_S: f64 = 2.0;
/// A pace that differs by less is left as it is.
const SAME: f64 = 0.02;
/// Streams begin at once while less than the limit allows in this time, in seconds, is not made up for. Else they begin one by one: the
/// kernel does not pace the first ten segments of a connection, and these are to be the part that running ones leave.
const AT_ONCE_S: f64 = 0.25;
const FIRST_BYTES: f64 = 10.0 * 1448.0;
/// The longest that a stream waits.
const WAIT_MOST: Duration = Duration::from_secs(10);

/// What each client and each user may send, and receive.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub client: Option<BitRate>,
    pub user: Option<BitRate>,
}

impl Limits {
    /// Whether there is one.
    pub fn has_any(self) -> bool {
        self.client.is_some() || self.user.is_some()
    }
}

/// Whom a limit holds for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    Client(ClientKey),
    User(String),
}

/// The direction of what a connection sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    /// To the client.
    Down,
    /// From the client: to the destination, or to the next node.
    Up,
}

/// The connections that are paced, and the shares of the limits.
#[derive(Debug, Default)]
pub struct Bandwidth {
    paced: Arc<WatchedSockets<Paced>>,
    shares: Mutex<Shares>,
    begun: Notify,
}

type Shares = HashMap<(Holder, Way), Share>;

/// A connection that is paced.
#[derive(Debug)]
struct Paced {
    holders: Vec<Holder>,
    way: Way,
    /// Bytes that the socket had sent at the last look.
    sent: u64,
    is_new: bool,
    /// Whether it wanted more at the last look. A new one does.
    wants_more: bool,
    /// What it used at the last look, in bytes per second.
    used: f64,
    /// What its socket was limited to by this.
    pace: u64,
    /// What its socket was limited to by others: the classes of a leg.
    others: u64,
}

/// A limit, in one direction.
#[derive(Debug)]
struct Share {
    /// Connections, and those that want more.
    all: usize,
    wanting: usize,
    /// The limit, in bytes per second.
    limit: f64,
    /// Bytes since the last look, of connections that have ended.
    ended: u64,
    /// What was used at the last look, in bytes per second.
    used: f64,
    /// Bytes beyond the limit that were not made up for by then.
    beyond: f64,
    then: Instant,
    /// When the last stream begins that has to wait.
    last_begins: Instant,
}

/// Paces a connection until it is dropped.
#[derive(Debug)]
struct Guard {
    bandwidth: Arc<Bandwidth>,
    attached: Attached<Paced>,
}

impl Bandwidth {
    /// Paces what the connections of a stream send, to its client and beyond, if the client or the user has a limit. Completes when the
    /// stream may begin.
    pub async fn pace(
        self: &Arc<Self>,
        [down, up]: [&mut Connection; 2],
        holder: (ClientKey, Option<&str>),
        limits: Limits,
    ) {
        let waits = [self.pace_one(down, Way::Down, holder, limits), self.pace_one(up, Way::Up, holder, limits)];
        if let Some(wait) = waits.into_iter().max().filter(|wait| !wait.is_zero()) {
            sleep(wait).await;
        }
    }

    /// Paces what `connection` sends. Returns how long its stream has to wait before it begins.
    fn pace_one(
        self: &Arc<Self>,
        connection: &mut Connection,
        way: Way,
        (client, user): (ClientKey, Option<&str>),
        limits: Limits,
    ) -> Duration {
        connection.pace_by(None);
        let client = limits.client.map(|limit| (Holder::Client(client), limit));
        let user = user.zip(limits.user).map(|(user, limit)| (Holder::User(user.into()), limit));
        let limited: Vec<(Holder, BitRate)> = [client, user].into_iter().flatten().collect();
        if limited.is_empty() {
            return Duration::ZERO;
        }
        // Those that were there have their paces until the next look.
        let (mut first, mut wait, now) = (f64::INFINITY, Duration::ZERO, Instant::now());
        let mut shares = self.shares();
        for (holder, limit) in &limited {
            let (share, limit) =
                (shares.entry((holder.clone(), way)).or_insert_with(|| Share::new(now)), bytes_s(*limit));
            share.make_up(limit, now);
            (share.all, share.wanting) = (share.all + 1, share.wanting + 1);
            first = first.min(share.room(limit) / share.wanting as f64);
            wait = wait.max(share.begins(now));
        }
        drop(shares);
        let holders = limited.into_iter().map(|(holder, _)| holder).collect();
        let mut paced = Paced {
            holders,
            way,
            sent: 0,
            is_new: true,
            wants_more: true,
            used: 0.0,
            pace: u64::MAX,
            others: u64::MAX,
        };
        let socket = connection.socket();
        // What waits in it was counted when it was paced before, or is of no stream.
        let (sent, unsent) = sent(socket);
        paced.sent = sent + unsent;
        paced.set(socket, first);
        let attached = self.paced.attach(socket, paced);
        connection.pace_by(Some(Box::new(Guard { bandwidth: self.clone(), attached })));
        self.begun.notify_one();
        wait
    }

    /// Waits until there is something to share.
    pub async fn begun(&self) {
        while self.shares().is_empty() {
            self.begun.notified().await;
        }
    }

    /// Shares the limits in force, `elapsed` after the last time.
    pub fn share(&self, limits: Limits, elapsed: Duration) {
        let (elapsed, now) = (elapsed.as_secs_f64().max(1e-3), Instant::now());
        let mut demands: HashMap<(Holder, Way), Vec<f64>> = HashMap::new();
        let mut sent: HashMap<(Holder, Way), u64> = HashMap::new();
        self.paced.each(|_, paced, socket| {
            let bytes = paced.look(&socket, elapsed);
            for holder in &paced.holders {
                let key = (holder.clone(), paced.way);
                *sent.entry(key.clone()).or_default() += bytes;
                demands.entry(key).or_default().push(paced.demand());
            }
        });
        let mut levels: HashMap<(Holder, Way), f64> = HashMap::new();
        self.shares().retain(|key, share| {
            let limit = match key.0 {
                Holder::Client(_) => limits.client,
                Holder::User(_) => limits.user,
            };
            let limit = limit.map_or(f64::INFINITY, bytes_s);
            let sent = sent.get(key).copied().unwrap_or(0);
            share.used = (sent + std::mem::take(&mut share.ended)) as f64 / elapsed;
            share.beyond += sent as f64;
            share.make_up(limit, now);
            let mut demands = demands.remove(key).unwrap_or_default();
            share.wanting = demands.iter().filter(|demand| demand.is_infinite()).count();
            levels.insert(key.clone(), level(share.room(limit), &mut demands));
            share.all > 0 || share.beyond > 0.0
        });
        self.paced.each(|_, paced, socket| {
            let of = |holder: &Holder| levels.get(&(holder.clone(), paced.way)).copied().unwrap_or(f64::INFINITY);
            let pace = paced.holders.iter().map(of).fold(f64::INFINITY, f64::min);
            paced.set(&socket, pace);
        });
    }

    /// The client and the user that used most of their limits at the last look, in either direction.
    pub fn most_used(&self) -> [Option<(String, BitRate)>; 2] {
        let mut most: [Option<(String, f64)>; 2] = [None, None];
        for ((holder, _), share) in self.shares().iter() {
            let (most, name) = match holder {
                Holder::Client(client) => (&mut most[0], client.to_string()),
                Holder::User(user) => (&mut most[1], user.clone()),
            };
            let one = (name, share.used);
            if most.as_ref().is_none_or(|(name, used)| (share.used, &one.0) > (*used, name)) {
                *most = Some(one);
            }
        }
        most.map(|one| one.map(|(name, used)| (name, BitRate((8.0 * used) as u64))))
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection is paced no more, and has sent so many bytes since the last look.
    fn ended(&self, paced: &Paced, bytes: u64) {
        let mut shares = self.shares();
        for holder in &paced.holders {
            if let Some(share) = shares.get_mut(&(holder.clone(), paced.way)) {
                (share.all, share.beyond) = (share.all - 1, share.beyond + bytes as f64);
                share.ended += bytes;
                share.wanting = share.wanting.saturating_sub(usize::from(paced.wants_more));
            }
        }
    }
}

impl Paced {
    /// Looks at the socket after `elapsed` seconds. Returns the bytes since the last look.
    fn look(&mut self, socket: &BorrowedFd<'_>, elapsed: f64) -> u64 {
        let sent = sent(socket).0.max(self.sent);
        let bytes = sent - std::mem::replace(&mut self.sent, sent);
        self.used = bytes as f64 / elapsed;
        let is_new = std::mem::take(&mut self.is_new);
        self.wants_more = is_new || self.used >= WANTS_MORE * self.pace.min(self.others) as f64;
        bytes
    }

    fn demand(&self) -> f64 {
        if self.wants_more { f64::INFINITY } else { HEADROOM * self.used }
    }

    fn set(&mut self, socket: &impl AsFd, pace: f64) {
        let pace = if pace.is_finite() { pace.max(PACE_LEAST) as u64 } else { u64::MAX };
        // Whoever else limits the socket has done so since.
        let now = rate_limit(socket).unwrap_or(u64::MAX);
        let is_own = now.abs_diff(self.pace.min(self.others)) <= 1;
        if !is_own {
            self.others = now;
        }
        let is_same = pace.abs_diff(self.pace) as f64 <= SAME * self.pace as f64;
        if is_own && is_same {
            return;
        }
        self.pace = pace;
        // A connection that has just broken needs no pacing.
        let _ = limit_rate(socket, pace.min(self.others));
    }
}

impl Share {
    fn new(now: Instant) -> Self {
        let limit = f64::INFINITY;
        Self { all: 0, wanting: 0, limit, ended: 0, used: 0.0, beyond: 0.0, then: now, last_begins: now }
    }

    /// The time until `now` has made up for what the limit allows in it. What came under another limit is let be.
    fn make_up(&mut self, limit: f64, now: Instant) {
        let elapsed = now.saturating_duration_since(std::mem::replace(&mut self.then, now));
        let is_same = std::mem::replace(&mut self.limit, limit) == limit;
        let left = self.beyond - limit * elapsed.as_secs_f64();
        self.beyond = if is_same { left.clamp(0.0, BEYOND_MOST_S * limit) } else { 0.0 };
    }

    /// How long a stream has to wait that would begin now.
    fn begins(&mut self, now: Instant) -> Duration {
        if self.beyond <= AT_ONCE_S * self.limit {
            self.last_begins = now;
            return Duration::ZERO;
        }
        let pause = Duration::from_secs_f64(FIRST_BYTES / ((1.0 - PART_LEAST) * self.limit));
        let earliest = now + Duration::from_secs_f64(self.beyond / self.limit - AT_ONCE_S);
        self.last_begins = (self.last_begins + pause).clamp(earliest, now + WAIT_MOST);
        self.last_begins - now
    }

    /// What may be used now of a limit, in bytes per second.
    fn room(&self, limit: f64) -> f64 {
        (limit - self.beyond / MADE_UP_S).max(limit * PART_LEAST)
    }
}

impl Pace for Guard {
    fn lift(&self) {
        self.attached.end(|paced, socket| self.ends(&paced, &socket, true));
    }
}

impl Guard {
    fn ends(&self, paced: &Paced, socket: &BorrowedFd<'_>, is_lifted: bool) {
        let (sent, unsent) = sent(socket);
        self.bandwidth.ended(paced, (sent + unsent).saturating_sub(paced.sent));
        if is_lifted {
            let _ = limit_rate(socket, paced.others);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.attached.end(|paced, socket| self.ends(&paced, &socket, false));
    }
}

/// The bytes that a socket has sent, each once, and those that it has yet to send.
fn sent(socket: &impl AsFd) -> (u64, u64) {
    tcp_info(socket)
        .map_or((0, 0), |info| (info.sent_bytes.saturating_sub(info.resent_bytes), info.unsent_bytes.into()))
}

fn bytes_s(limit: BitRate) -> f64 {
    limit.0 as f64 / 8.0
}

/// The part that each may have, so that all have what they want or an equal part, and together `room`.
fn level(room: f64, demands: &mut [f64]) -> f64 {
    demands.sort_by(f64::total_cmp);
    let (mut left, mut highest) = (room, 0.0_f64);
    for (at, &demand) in demands.iter().enumerate() {
        let equal = left / (demands.len() - at) as f64;
        if demand >= equal {
            return equal;
        }
        (left, highest) = (left - demand, demand);
    }
    // Nobody wants more: any of them may have what is left.
    highest + left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_uses_little_leaves_the_rest_to_others() {
        let wants_all = f64::INFINITY;
        assert_eq!(level(100.0, &mut [wants_all]), 100.0);
        assert_eq!(level(100.0, &mut [wants_all, wants_all]), 50.0);
        assert_eq!(level(100.0, &mut [wants_all, 10.0, wants_all]), 45.0);
        assert_eq!(level(100.0, &mut [wants_all, 60.0, 20.0]), 40.0);
        assert_eq!(level(100.0, &mut [10.0, 20.0]), 90.0);
        assert_eq!(level(100.0, &mut []), 100.0);
    }

    #[test]
    fn what_was_sent_beyond_the_limit_is_made_up_for() {
        let now = Instant::now();
        let share = |beyond| Share { beyond, ..Share::new(now) };
        assert_eq!(share(0.0).room(1000.0), 1000.0);
        assert_eq!(share(400.0).room(1000.0), 600.0);
        assert_eq!(share(1e9).room(1600.0), 400.0);
        let mut later = Share { limit: 1000.0, ..share(400.0) };
        later.make_up(1000.0, now + Duration::from_millis(100));
        assert_eq!((later.beyond * 10.0).round(), 3000.0);
        later.make_up(100.0, now + Duration::from_millis(101));
        assert_eq!(later.beyond, 0.0, "it came under another limit");
        later.beyond = 1e9;
        later.make_up(100.0, now + Duration::from_millis(101));
        assert_eq!(later.beyond, 200.0, "more is forgotten");
    }

    #[test]
    fn streams_begin_one_by_one_while_there_is_something_to_make_up_for() {
        let now = Instant::now();
        // A first burst takes 14,480 bytes, for which there are three quarters of the limit.
        let mut share = Share { limit: 14_480.0 / 0.75, beyond: 4_000.0, ..Share::new(now) };
        assert!((0..100).all(|_| share.begins(now).is_zero()));
        share.beyond = 0.75 * share.limit;
        let waits: Vec<u128> =
            (0..12).map(|_| (share.begins(now) + Duration::from_millis(1)).as_secs().into()).collect();
        assert_eq!(waits, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10]);
        assert!(share.begins(now + Duration::from_secs(9)) < Duration::from_secs(3));
    }
}
