//! How fast the streams of one client, or of one user, may move bytes together.
//!
//! A direction reads a piece when its slot has come: each piece takes its length's time of what all may move, and slots follow each other in
//! the order in which they are asked for. So streams that want more share evenly, what one does not use goes to the others, and a stream
//! whose slot has not come reads nothing: its sender waits. Nothing is dropped. It is the virtual scheduling of ITU-T I.371, as the limits
//! on new connections have it; but who comes early waits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Slots that passed unused within this time can be used later: timers are late. So much may also come at once after a pause.
const LATE_MOST: Duration = Duration::from_millis(100);

/// All streams together have a piece each in this time, as long as their pieces are not the least.
const ROUND: Duration = Duration::from_millis(20);

/// How many times as long the piece of a stream may be whose thread is late.
const LATENESS_MOST: f64 = 4.0;

/// The least and the longest piece, in bytes. The first piece of a stream is the least, each further one at most twice as long as the one
/// before: short streams take no slot that they do not need.
const LEAST: u64 = 2 << 10;
const LONGEST: u64 = 256 << 10;

/// What one client or user may move in each direction.
#[derive(Debug)]
pub struct Paces {
    /// From the client.
    pub up: Arc<Pace>,
    /// To the client.
    pub down: Arc<Pace>,
}

/// What the streams of one client or user may move together in one direction.
#[derive(Debug)]
pub struct Pace {
    bytes_s: AtomicU64,
    origin: Instant,
    /// When the next slot begins, in nanoseconds since the origin.
    next: AtomicU64,
    /// Gates that share it.
    gates: AtomicU32,
}

/// Lets one direction of a stream read when it may.
#[derive(Debug)]
pub struct Gate {
    paces: Vec<Arc<Pace>>,
    /// Bytes that it may read once the present slot has come.
    left: u64,
    /// The most that its next slot is for.
    piece: u64,
    /// Until the slot has come.
    waits: Option<Pin<Box<Sleep>>>,
    /// How long all had to wait for theirs, to the end of its last slot, and how late it then came.
    round: Duration,
    late: Duration,
}

impl Paces {
    /// This many bytes per second in each direction.
    pub fn new(bytes_s: u64) -> Self {
        Self { up: Arc::new(Pace::new(bytes_s)), down: Arc::new(Pace::new(bytes_s)) }
    }

    /// This many from now on.
    pub fn set(&self, bytes_s: u64) {
        for pace in [&self.up, &self.down] {
            pace.bytes_s.store(bytes_s.max(1), Ordering::Relaxed);
        }
    }

    /// Whether all slots that were given have passed.
    pub fn is_idle(&self) -> bool {
        [&self.up, &self.down].into_iter().all(|pace| pace.next.load(Ordering::Relaxed) <= pace.now())
    }
}

impl Pace {
    fn new(bytes_s: u64) -> Self {
        let (next, gates) = Default::default();
        Self { bytes_s: AtomicU64::new(bytes_s.max(1)), origin: Instant::now(), next, gates }
    }

    fn now(&self) -> u64 {
        nanos(self.origin.elapsed())
    }

    /// How long so many bytes take, in nanoseconds.
    fn cost(&self, bytes: u64) -> u64 {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_s.load(Ordering::Relaxed));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Gives a slot for so many bytes. Returns when it begins.
    fn slot(&self, bytes: u64) -> Instant {
        let (cost, earliest) = (self.cost(bytes), self.now().saturating_sub(nanos(LATE_MOST)));
        let after = |next: u64| Some(next.max(earliest).saturating_add(cost));
        let before = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).unwrap_or_default();
        self.origin + Duration::from_nanos(before.max(earliest))
    }

    /// Takes back what was given and not used.
    fn give_back(&self, bytes: u64) {
        let cost = self.cost(bytes);
        let after = |next: u64| Some(next.saturating_sub(cost));
        // It never refuses.
        let _ = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
    }

    /// The length of a piece, so that all have one in a round.
    fn piece(&self) -> u64 {
        let in_round = self.bytes_s.load(Ordering::Relaxed).saturating_mul(nanos(ROUND)) / 1_000_000_000;
        (in_round / u64::from(self.gates.load(Ordering::Relaxed).max(1))).clamp(LEAST, LONGEST)
    }
}

impl Gate {
    /// A gate for a direction that `paces` limit; `None` if none does.
    pub fn of<'a>(paces: impl IntoIterator<Item = &'a Arc<Pace>>) -> Option<Self> {
        let paces: Vec<Arc<Pace>> = paces.into_iter().cloned().collect();
        for pace in &paces {
            pace.gates.fetch_add(1, Ordering::Relaxed);
        }
        let [round, late] = [Duration::ZERO; 2];
        (!paces.is_empty()).then_some(Self { paces, left: 0, piece: LEAST, waits: None, round, late })
    }

    /// Ready when something may be read: how many bytes at most.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        if self.left == 0 {
            self.ask();
        }
        if let Some(waits) = &mut self.waits {
            ready!(waits.as_mut().poll(cx));
            self.late = waits.deadline().elapsed();
            self.waits = None;
        }
        Poll::Ready(usize::try_from(self.left).unwrap_or(usize::MAX))
    }

    /// So many bytes were read. More than were allowed are made up for.
    pub fn took(&mut self, bytes: usize) {
        let more = (bytes as u64).saturating_sub(self.left);
        self.left = self.left.saturating_sub(bytes as u64);
        if more > 0 {
            for pace in &self.paces {
                pace.slot(more);
            }
        }
    }

    /// Whether it waits for its slot.
    pub fn is_closed(&self) -> bool {
        self.waits.is_some()
    }

    /// How many times as long as a round its last turn took. Whoever comes late, because its thread has much to do, asks late for its next
    /// slot, and has a longer piece instead.
    fn lateness(&self) -> f64 {
        let late = self.late.as_secs_f64() / self.round.as_secs_f64().max(f64::MIN_POSITIVE);
        (1.0 + late).min(LATENESS_MOST)
    }

    /// Asks each pace for a slot. Both must have come.
    fn ask(&mut self) {
        let usual = self.paces.iter().map(|pace| pace.piece()).min().unwrap_or(LEAST);
        let bytes = self.piece.min((usual as f64 * self.lateness()) as u64);
        let (now, begins) = (Instant::now(), self.paces.iter().map(|pace| pace.slot(bytes)).max());
        let waits = begins.filter(|begins| *begins > now);
        let lasts = self.paces.iter().map(|pace| pace.cost(bytes)).max().unwrap_or_default();
        self.round = waits.map_or(Duration::ZERO, |begins| begins - now) + Duration::from_nanos(lasts);
        self.waits = waits.map(|begins| Box::pin(sleep_until(begins)));
        (self.left, self.piece, self.late) = (bytes, (2 * bytes).min(LONGEST), Duration::ZERO);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        for pace in &self.paces {
            pace.give_back(self.left);
            pace.gates.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::timeout;

    use super::*;

    /// Reads all that it may, or up to `most` at a time, for so long. Returns how many bytes.
    async fn reads(pace: Arc<Pace>, most: usize, time: Duration) -> u64 {
        let mut gate = Gate::of([&pace]).unwrap();
        let mut read = 0;
        let reading = async {
            loop {
                let n = poll_fn(|cx| gate.poll(cx)).await.min(most);
                gate.took(n);
                read += n as u64;
                // Others run between two pieces.
                tokio::task::yield_now().await;
            }
        };
        let _ = timeout(time, reading).await;
        read
    }

    async fn all_read(pace: &Arc<Pace>, mosts: &[usize], time: Duration) -> Vec<u64> {
        let reading: Vec<_> = mosts.iter().map(|most| tokio::spawn(reads(pace.clone(), *most, time))).collect();
        let mut all = Vec::new();
        for one in reading {
            all.push(one.await.unwrap());
        }
        all
    }

    const TIME: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn all_together_read_what_they_may() {
        for bytes_s in [2_000u64, 125_000, 1_250_000, 125_000_000] {
            for streams in [1, 3, 50] {
                let pace = Arc::new(Pace::new(bytes_s));
                let read: u64 = all_read(&pace, &vec![usize::MAX; streams], TIME).await.iter().sum();
                let (due, slack) = (bytes_s * TIME.as_secs(), bytes_s / 10 + LEAST + bytes_s * 20 / 1_000);
                // A millisecond is the timers' precision; a piece may be under way at the end.
                assert!(read <= due + slack, "{bytes_s} B/s, {streams}: {read} of {due}");
                assert!(read + due / 50 + LEAST * streams as u64 >= due, "{bytes_s} B/s, {streams}: {read} of {due}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_wants_more_shares_evenly_also_beside_small_pieces() {
        let pace = Arc::new(Pace::new(1_000_000));
        let read = all_read(&pace, &[usize::MAX, usize::MAX, 1_000, usize::MAX], TIME).await;
        let (least, most) = (read.iter().min().unwrap(), read.iter().max().unwrap());
        assert!(most - least < most / 20, "{read:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_late_has_its_share_all_the_same() {
        let pace = Arc::new(Pace::new(1_000_000));
        let late = async |pace: Arc<Pace>| {
            let mut gate = Gate::of([&pace]).unwrap();
            let (begun, mut read) = (Instant::now(), 0);
            while begun.elapsed() < TIME {
                // Its thread comes back every 13 ms.
                tokio::time::sleep(Duration::from_millis(13)).await;
                while let Poll::Ready(n) = poll_fn(|cx| Poll::Ready(gate.poll(cx))).await {
                    gate.took(n);
                    read += n as u64;
                }
            }
            read
        };
        let (of_late, of_others) = tokio::join!(late(pace.clone()), all_read(&pace, &[usize::MAX; 3], TIME));
        let other = of_others[0];
        assert!(of_late * 10 > other * 8 && of_late * 8 < other * 10, "{of_late} and {of_others:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_does_not_use_goes_to_the_others() {
        let pace = Arc::new(Pace::new(1_000_000));
        let idle: Vec<Gate> = (0..20).map(|_| Gate::of([&pace]).unwrap()).collect();
        let read = all_read(&pace, &[usize::MAX], TIME).await[0];
        assert!((4_900_000..5_250_000).contains(&read), "{read}");
        drop(idle);
        assert_eq!(pace.gates.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn short_streams_one_after_another_have_no_more() {
        let pace = Arc::new(Pace::new(1_000_000));
        let begun = Instant::now();
        let mut read = 0;
        while begun.elapsed() < TIME {
            let mut gate = Gate::of([&pace]).unwrap();
            let n = poll_fn(|cx| gate.poll(cx)).await.min(700);
            gate.took(n);
            read += n;
        }
        assert!((4_900_000..5_250_000).contains(&read), "{read}");
    }

    #[tokio::test(start_paused = true)]
    async fn two_limits_hold_both() {
        let (narrow, wide) = (Arc::new(Pace::new(100_000)), Arc::new(Pace::new(1_000_000)));
        let mut gate = Gate::of([&wide, &narrow]).unwrap();
        let mut read = 0;
        let reading = async {
            loop {
                let n = poll_fn(|cx| gate.poll(cx)).await;
                gate.took(n);
                read += n;
            }
        };
        let _ = timeout(TIME, reading).await;
        assert!((490_000..525_000).contains(&read), "{read}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_unasked_is_made_up_for() {
        let pace = Arc::new(Pace::new(100_000));
        let mut gate = Gate::of([&pace]).unwrap();
        gate.took(100_000);
        let begun = Instant::now();
        poll_fn(|cx| gate.poll(cx)).await;
        assert!((800..1_100).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
        assert!(Gate::of([]).is_none());
    }
}
