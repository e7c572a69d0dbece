//! How much a receiver waits for: on a fast path it would else wake up for every few packets, which costs more than taking them.

use ekiden_record::LoadSettings;

/// Interval between two decisions, in nanoseconds.
const PERIOD_NS: u64 = 20_000_000;
/// A receiver takes about what comes in this time at once.
const BATCH_NS: u64 = 1_000_000;
/// Least number of bytes: batches of fewer save nothing.
const LEAST: u64 = 32 << 10;
/// More at once would leave the receive buffer.
const MOST: u64 = 128 << 10;

/// What a receiver waits for (SO_RCVLOWAT).
#[derive(Debug, Default)]
pub(super) struct Batch {
    since_ns: u64,
    bytes: u64,
    /// Bytes that it waits for now; 0 is any.
    now: u64,
}

impl Batch {
    /// Whether receivers of such loads may wait: what a small window or buffer holds must be taken at once.
    pub fn is_allowed(settings: &LoadSettings) -> bool {
        settings.window_bytes.is_none() && settings.receive_buffer_bytes.is_none() && settings.data_bytes.is_none()
    }

    /// Accounts for `bytes` that were received. Returns how many bytes to wait for from now on, if that changes.
    pub fn taken(&mut self, now_ns: u64, bytes: u64) -> Option<u32> {
        if self.since_ns == 0 {
            self.since_ns = now_ns;
            return None;
        }
        self.bytes += bytes;
        let time_ns = now_ns.saturating_sub(self.since_ns);
        if time_ns < PERIOD_NS {
            return None;
        }
        let comes = u128::from(self.bytes) * u128::from(BATCH_NS) / u128::from(time_ns);
        let comes = u64::try_from(comes).unwrap_or(u64::MAX);
        (self.since_ns, self.bytes) = (now_ns, 0);
        let wanted = if comes < LEAST { 0 } else { comes.min(MOST) };
        // Small changes are not worth a call.
        let changes = wanted == 0 && self.now != 0 || wanted.abs_diff(self.now) > self.now / 4;
        changes.then(|| {
            self.now = wanted;
            wanted.max(1) as u32
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `count` reads of `bytes` every `every_ns`, and returns what is waited for at last.
    fn feed(batch: &mut Batch, now_ns: &mut u64, every_ns: u64, bytes: u64, count: u64) -> Option<u32> {
        let mut last = None;
        for _ in 0..count {
            *now_ns += every_ns;
            last = batch.taken(*now_ns, bytes).or(last);
        }
        last
    }

    #[test]
    fn waits_for_a_millisecond_of_a_fast_path_only() {
        let (mut batch, mut now_ns) = (Batch::default(), 1);
        // 100 Mbit/s: nothing is waited for, and nothing is set.
        assert_eq!(feed(&mut batch, &mut now_ns, 1_000_000, 12_500, 100), None);
        // 800 Mbit/s.
        assert_eq!(feed(&mut batch, &mut now_ns, 100_000, 10_000, 1_000), Some(100_000));
        // The same again changes nothing.
        assert_eq!(feed(&mut batch, &mut now_ns, 1_000_000, 100_000, 100), None);
        // 20 Gbit/s.
        assert_eq!(feed(&mut batch, &mut now_ns, 100_000, 250_000, 1_000), Some(128 << 10));
        // It becomes slow: any byte counts again.
        assert_eq!(feed(&mut batch, &mut now_ns, 50_000_000, 2_000, 3), Some(1));
    }
}
