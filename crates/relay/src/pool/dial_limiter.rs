//! Limits how many connections to a peer are dialled at a time for streams that wait for one.
//!
//! Dialling a connection costs more than a short stream. Without a limit, under overload every stream would find all warm
//! connections in use and dial its own, and the node would serve fewer streams the more are asked of it. So a stream
//! needs a permit to dial, and one that waits for a permit takes a connection that comes back to the pool meanwhile.
//!
//! The right limit depends on the distance: over 200 ms, hundreds of handshakes can be under way while no processor is
//! busy. So it adapts, like a congestion window that reacts to delay: while streams wait, it grows by one with
//! each connection that is made about as fast as the fastest one. It is halved when one takes much longer.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The limit at first, and the least limit.
const FIRST: usize = 256;
const LEAST: usize = 4;

/// A connection that takes longer than twice the shortest time plus this was delayed by load.
const SLACK: Duration = Duration::from_millis(10);

/// The shortest time is forgotten after this, because the path may have become longer.
const SHORTEST_MAX_AGE: Duration = Duration::from_secs(600);

/// Limits how many connections to one peer are made at a time.
#[derive(Debug)]
pub struct DialLimiter {
    free: Arc<Semaphore>,
    limit: Mutex<DialLimit>,
    waiting: AtomicUsize,
    /// Notified when a connection has come back to the pool.
    returned: Notify,
}

/// The permission to dial one connection. It is given back when dropped.
#[derive(Debug)]
pub struct DialPermit {
    limiter: Arc<DialLimiter>,
    permit: Option<OwnedSemaphorePermit>,
    since: Instant,
    has_connected: bool,
}

/// How many permits there are.
#[derive(Debug)]
struct DialLimit {
    /// How many there should be: the limit.
    wanted: usize,
    /// How many there are, held or free.
    issued: usize,
    /// The shortest time that a connection took to make, and when that was.
    shortest: Option<(Duration, Instant)>,
}

/// A stream that waits for a connection or a permit. It is counted until it is dropped.
#[derive(Debug)]
pub struct DialWaiter(Arc<DialLimiter>);

impl DialLimiter {
    /// The limiter of a peer to which no connection was made yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(FIRST)),
            limit: Mutex::new(DialLimit { wanted: FIRST, issued: FIRST, shortest: None }),
            waiting: AtomicUsize::new(0),
            returned: Notify::new(),
        })
    }

    /// Whether streams wait.
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Wakes one stream that waits, because a connection has come back.
    pub fn returned(&self) {
        if self.is_waited_for() {
            self.returned.notify_one();
        }
    }

    /// Begins to wait: from now on a connection that comes back wakes the waiter.
    pub fn begin(self: &Arc<Self>) -> DialWaiter {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        DialWaiter(self.clone())
    }
}

impl DialWaiter {
    /// Waits, first come, first served: `Ok` with what `take` gives once a connection has come back, or `Err` with a permit
    /// to dial one.
    pub async fn end<T>(self, mut take: impl FnMut() -> Option<T>) -> Result<T, DialPermit> {
        let limiter = &self.0;
        let mut permit = pin!(limiter.free.clone().acquire_owned());
        loop {
            tokio::select! {
                biased;
                () = limiter.returned.notified() => if let Some(taken) = take() {
                    return Ok(taken);
                },
                // The semaphore is never closed.
                permit = &mut permit => return Err(DialPermit::new(limiter, permit.ok())),
            }
        }
    }
}

impl Drop for DialWaiter {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DialPermit {
    fn new(limiter: &Arc<DialLimiter>, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self { limiter: limiter.clone(), permit, since: Instant::now(), has_connected: false }
    }

    /// The connection has been made.
    pub fn connected(mut self) {
        self.has_connected = true;
    }
}

impl Drop for DialPermit {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut limit = self.limiter.limit.lock().unwrap_or_else(PoisonError::into_inner);
        limit.learn(now - self.since, self.has_connected, self.limiter.is_waited_for(), now);
        if limit.issued < limit.wanted {
            self.limiter.free.add_permits(limit.wanted - limit.issued);
            limit.issued = limit.wanted;
        }
        limit.issued -= self.limiter.free.forget_permits(limit.issued - limit.wanted);
        if limit.issued > limit.wanted
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
            limit.issued -= 1;
        }
    }
}

impl DialLimit {
    /// Adapts the limit to a permit that was given back at `now` after `time`, with or without a connection.
    fn learn(&mut self, time: Duration, has_connected: bool, is_waited_for: bool, now: Instant) {
        let counts = self.shortest.filter(|(_, when)| now - *when < SHORTEST_MAX_AGE).map(|(shortest, _)| shortest);
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

    fn limit() -> DialLimit {
        DialLimit { wanted: FIRST, issued: FIRST, shortest: None }
    }

    #[test]
    fn the_limit_grows_while_dialling_is_fast_and_waited_for() {
        let (mut limit, now) = (limit(), Instant::now());
        for _ in 0..100 {
            limit.learn(400 * MS, true, true, now);
        }
        assert_eq!(limit.wanted, FIRST + 100);
        // A little lateness is no sign of work; no stream waits; no connection came of it.
        limit.learn(800 * MS, true, true, now);
        limit.learn(400 * MS, true, false, now);
        limit.learn(400 * MS, false, true, now);
        assert_eq!(limit.wanted, FIRST + 101);
    }

    #[test]
    fn dialling_that_takes_much_longer_halves_the_limit_down_to_a_few() {
        let (mut limit, now) = (limit(), Instant::now());
        // Far below a millisecond, twice as long means nothing.
        limit.learn(MS / 5, true, true, now);
        limit.learn(MS * 9, true, true, now);
        assert_eq!(limit.wanted, FIRST + 2);
        limit.learn(MS * 11, true, true, now);
        assert_eq!(limit.wanted, FIRST / 2 + 1);
        for _ in 0..20 {
            limit.learn(MS * 11, false, true, now);
        }
        assert_eq!(limit.wanted, LEAST);
        // The path has become longer.
        let later = now + SHORTEST_MAX_AGE;
        limit.learn(MS * 100, true, true, later);
        limit.learn(MS * 100, true, true, later);
        assert_eq!(limit.wanted, LEAST + 2);
    }

    #[tokio::test]
    async fn there_are_as_many_permits_as_are_wanted() {
        let limiter = DialLimiter::new();
        let mut taken = Vec::new();
        for _ in 0..FIRST {
            taken.push(limiter.begin().end(|| None::<()>).await.unwrap_err());
        }
        assert_eq!(limiter.free.available_permits(), 0);
        taken.pop().unwrap().connected();
        // What is held is not taken away; what comes back is.
        limiter.limit.lock().unwrap().wanted = LEAST;
        while taken.len() > LEAST {
            taken.pop();
            assert_eq!(limiter.free.available_permits(), 0, "{} held", taken.len());
        }
        taken.clear();
        assert_eq!(limiter.free.available_permits(), LEAST);
        assert!(!limiter.is_waited_for());
    }

    #[tokio::test]
    async fn those_that_wait_get_what_comes_back_in_the_order_of_asking() {
        let limiter = DialLimiter::new();
        let mut held = Vec::new();
        for _ in 0..FIRST {
            held.push(limiter.begin().end(|| None::<()>).await.unwrap_err());
        }
        let back = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (limiter, back) = (limiter.clone(), back.clone());
                tokio::spawn(async move { limiter.begin().end(|| back.lock().unwrap().pop()).await.ok() })
            })
            .collect();
        while limiter.waiting.load(Ordering::Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
        // One that was told and goes away passes it on.
        back.lock().unwrap().push(7);
        limiter.returned();
        let mut waiters = waiters.into_iter();
        waiters.next().unwrap().abort();
        assert_eq!(waiters.next().unwrap().await.unwrap(), Some(7));
        held.pop();
        assert_eq!(waiters.next().unwrap().await.unwrap(), None);
    }
}
