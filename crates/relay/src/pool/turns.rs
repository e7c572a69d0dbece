//! How many connections to a peer are made at a time for streams that wait for one.
//!
//! When more streams begin than nodes can open, each would find all warm connections in use and make its own, which costs
//! more than the stream: the node would do less the more is asked of it. So streams take turns, and those that wait get
//! what comes back to the pool. How many turns there are depends on the distance: over 200 ms, hundreds of connections can
//! be on their way without anybody being busy. Like a congestion window that heeds delay, the number grows while
//! connections are made about as fast as ever, and is halved when one takes much longer.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How many turns there are at first, and at least.
const FIRST: usize = 256;
const LEAST: usize = 4;

/// A connection that took longer than twice the shortest time, and this, was held up by work.
const SLACK: Duration = Duration::from_millis(10);

/// How long the shortest time counts: the path may have become longer.
const MEMORY: Duration = Duration::from_secs(600);

/// The turns to one peer.
#[derive(Debug)]
pub struct Turns {
    free: Arc<Semaphore>,
    pace: Mutex<Pace>,
    waiting: AtomicUsize,
    /// Told when a connection has come back.
    returned: Notify,
}

/// The right to make one connection; given back when dropped.
#[derive(Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    permit: Option<OwnedSemaphorePermit>,
    since: Instant,
    has_connected: bool,
}

/// How many turns there are.
#[derive(Debug)]
struct Pace {
    /// How many there are to be.
    wanted: usize,
    /// How many there are, given or free.
    issued: usize,
    /// The shortest time that a connection took to make, and when that was.
    shortest: Option<(Duration, Instant)>,
}

/// One that waits; counted until it is dropped.
#[derive(Debug)]
pub struct Waiting(Arc<Turns>);

impl Turns {
    /// Turns for a peer to which no connection was made yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(FIRST)),
            pace: Mutex::new(Pace { wanted: FIRST, issued: FIRST, shortest: None }),
            waiting: AtomicUsize::new(0),
            returned: Notify::new(),
        })
    }

    /// Whether streams wait.
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Tells one that waits that a connection is there.
    pub fn returned(&self) {
        if self.is_waited_for() {
            self.returned.notify_one();
        }
    }

    /// From now on what comes back is told.
    pub fn begin(self: &Arc<Self>) -> Waiting {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self.clone())
    }
}

impl Waiting {
    /// In the order of asking, what `take` gives when a connection has come back, or else a turn to make one.
    pub async fn end<T>(self, mut take: impl FnMut() -> Option<T>) -> Result<T, Turn> {
        let turns = &self.0;
        let mut permit = pin!(turns.free.clone().acquire_owned());
        loop {
            tokio::select! {
                biased;
                () = turns.returned.notified() => if let Some(taken) = take() {
                    return Ok(taken);
                },
                // The semaphore is never closed.
                permit = &mut permit => return Err(Turn::new(turns, permit.ok())),
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turn {
    fn new(turns: &Arc<Turns>, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self { turns: turns.clone(), permit, since: Instant::now(), has_connected: false }
    }

    /// The connection is there.
    pub fn connected(mut self) {
        self.has_connected = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut pace = self.turns.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.learn(now - self.since, self.has_connected, self.turns.is_waited_for(), now);
        if pace.issued < pace.wanted {
            self.turns.free.add_permits(pace.wanted - pace.issued);
            pace.issued = pace.wanted;
        }
        pace.issued -= self.turns.free.forget_permits(pace.issued - pace.wanted);
        if pace.issued > pace.wanted
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
            pace.issued -= 1;
        }
    }
}

impl Pace {
    /// A turn has ended at `now` after `time`, with or without a connection, while others waited or did not.
    fn learn(&mut self, time: Duration, has_connected: bool, is_waited_for: bool, now: Instant) {
        let counts = self.shortest.filter(|(_, when)| now - *when < MEMORY).map(|(shortest, _)| shortest);
        if counts.is_some_and(|shortest| time > shortest * 2 + SLACK) {
            self.wanted = (self.wanted / 2).max(LEAST);
        } else if has_connected && is_waited_for {
            self.wanted += 1;
        }
        if has_connected && counts.is_none_or(|shortest| time <= shortest) {
            self.shortest = Some((time, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pace() -> Pace {
        Pace { wanted: FIRST, issued: FIRST, shortest: None }
    }

    #[test]
    fn turns_grow_while_they_are_short_and_waited_for() {
        let (mut pace, now) = (pace(), Instant::now());
        for _ in 0..100 {
            pace.learn(400 * MS, true, true, now);
        }
        assert_eq!(pace.wanted, FIRST + 100);
        // A little late is no sign of work; nobody waits; no connection came of it.
        pace.learn(800 * MS, true, true, now);
        pace.learn(400 * MS, true, false, now);
        pace.learn(400 * MS, false, true, now);
        assert_eq!(pace.wanted, FIRST + 101);
    }

    #[test]
    fn turns_that_take_much_longer_halve_them_down_to_a_few() {
        let (mut pace, now) = (pace(), Instant::now());
        // Far below a millisecond, twice as long means nothing.
        pace.learn(MS / 5, true, true, now);
        pace.learn(MS * 9, true, true, now);
        assert_eq!(pace.wanted, FIRST + 2);
        pace.learn(MS * 11, true, true, now);
        assert_eq!(pace.wanted, FIRST / 2 + 1);
        for _ in 0..20 {
            pace.learn(MS * 11, false, true, now);
        }
        assert_eq!(pace.wanted, LEAST);
        // The path has become longer.
        let later = now + MEMORY;
        pace.learn(MS * 100, true, true, later);
        pace.learn(MS * 100, true, true, later);
        assert_eq!(pace.wanted, LEAST + 2);
    }

    #[tokio::test]
    async fn there_are_as_many_turns_as_are_wanted() {
        let turns = Turns::new();
        let mut taken = Vec::new();
        for _ in 0..FIRST {
            taken.push(turns.begin().end(|| None::<()>).await.unwrap_err());
        }
        assert_eq!(turns.free.available_permits(), 0);
        taken.pop().unwrap().connected();
        // What is held is not taken away; what comes back is.
        turns.pace.lock().unwrap().wanted = LEAST;
        while taken.len() > LEAST {
            taken.pop();
            assert_eq!(turns.free.available_permits(), 0, "{} held", taken.len());
        }
        taken.clear();
        assert_eq!(turns.free.available_permits(), LEAST);
        assert!(!turns.is_waited_for());
    }

    #[tokio::test]
    async fn those_that_wait_get_what_comes_back_in_the_order_of_asking() {
        let turns = Turns::new();
        let mut held = Vec::new();
        for _ in 0..FIRST {
            held.push(turns.begin().end(|| None::<()>).await.unwrap_err());
        }
        let back = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (turns, back) = (turns.clone(), back.clone());
                tokio::spawn(async move { turns.begin().end(|| back.lock().unwrap().pop()).await.ok() })
            })
            .collect();
        while turns.waiting.load(Ordering::Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
        // One that was told and goes away passes it on.
        back.lock().unwrap().push(7);
        turns.returned();
        let mut waiters = waiters.into_iter();
        waiters.next().unwrap().abort();
        assert_eq!(waiters.next().unwrap().await.unwrap(), Some(7));
        held.pop();
        assert_eq!(waiters.next().unwrap().await.unwrap(), None);
    }
}
