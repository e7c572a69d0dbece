//! Both ways between the ends: links of crate `link`, and a shaper behind one.

use ekiden_link::{Direction, Discipline, Fate, Line, Policer};
use ekiden_queue::Queue;
use ekiden_units::random::derive;
use ekiden_units::{BitRate, Bytes, Fraction, Time};

use super::{Bucket, Path};

/// Rate of the way back: fast enough that no queue forms there.
const FAST: BitRate = BitRate(1_000_000_000_000);

/// One direction that carries a load, and the way back of its acknowledgements.
pub struct Ways {
    forth: Line,
    shaper: Option<Shaper>,
    back: Line,
    /// Whether the policer dropped the first packet that was lost.
    pub is_policed_first: Option<bool>,
}

fn us(us: f64) -> Time {
    Time((us * 1e3) as u64)
}

fn part(part: f64) -> Fraction {
    Fraction((part * Fraction::ONE.0 as f64) as u64)
}

impl Ways {
    pub fn new(path: &Path) -> Self {
        let policer = |bucket: Bucket| Policer {
            rate: BitRate(bucket.rate_bit_s as u64),
            burst: Bytes(bucket.depth_bytes as u64),
        };
        let back = Direction {
            rate: FAST,
            delay: us(path.rtt_us / 2.0),
            jitter: us(path.jitter_us),
            queue: Queue::Bytes(Bytes(u64::MAX / 2)),
            discipline: Discipline::DropTail,
            policer: None,
            loss: Fraction(0),
            loss_burst: Direction::DEFAULT_LOSS_BURST,
            reorder: Fraction(0),
            reorder_by: None,
            changes: Vec::new(),
            outages: Vec::new(),
            mtu: super::MTU,
        };
        let forth = Direction {
            rate: BitRate(path.rate_bit_s as u64),
            queue: Queue::Bytes(Bytes(path.buffer_bytes as u64)),
            policer: path.policer.map(policer),
            loss: part(path.lost),
            loss_burst: path.loss_run,
            reorder: part(path.late),
            reorder_by: Some(us(path.late_us)),
            ..back.clone()
        };
        Self {
            forth: Line::new(&forth, derive(path.seed, "forth", 0)),
            shaper: path.shaper.map(|bucket| Shaper::new(bucket, path.shaper_queue_bytes)),
            back: Line::new(&back, derive(path.seed, "back", 0)),
            is_policed_first: None,
        }
    }

    /// When a packet that is sent now arrives; `None` if it is lost.
    pub fn carry(&mut self, now: Time, bytes: u32) -> Option<Time> {
        let fate = self.forth.offer(now.0, bytes);
        let due = match (fate, &mut self.shaper) {
            (Fate::Arrives { due_ns }, Some(shaper)) => shaper.pass(Time(due_ns), bytes),
            (Fate::Arrives { due_ns }, None) => Some(Time(due_ns)),
            _ => None,
        };
        if due.is_none() {
            self.is_policed_first.get_or_insert(fate == Fate::Policed);
        }
        due
    }

    /// When what is sent back now arrives.
    pub fn back(&mut self, now: Time, bytes: u32) -> Time {
        match self.back.offer(now.0, bytes) {
            Fate::Arrives { due_ns } => Time(due_ns),
            fate => unreachable!("{fate:?} on the way back"),
        }
    }
}

/// A token bucket that delays: what finds too few tokens waits for them, behind what waits already.
struct Shaper {
    bucket: Bucket,
    queue_bytes: f64,
    /// Less than nothing while some wait.
    tokens: f64,
    at: Time,
}

impl Shaper {
    fn new(bucket: Bucket, queue_bytes: f64) -> Self {
        Self { bucket, queue_bytes, tokens: bucket.depth_bytes, at: Time(0) }
    }

    fn pass(&mut self, at: Time, bytes: u32) -> Option<Time> {
        let more = at.since(self.at).0 as f64 * self.bucket.rate_bit_s / 8e9;
        self.tokens = (self.tokens + more).min(self.bucket.depth_bytes);
        self.at = self.at.max(at);
        if -self.tokens > self.queue_bytes {
            return None;
        }
        self.tokens -= f64::from(bytes);
        Some(at + Time(((-self.tokens).max(0.0) * 8e9 / self.bucket.rate_bit_s) as u64))
    }
}
