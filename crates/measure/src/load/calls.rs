//! How often the kernel may be called for little: a call costs the processor about the same whether it moves a byte or
//! kilobytes, so a limit on bytes does not bound what a load costs.

use super::Most;

/// Threshold in bytes: a call that moves at least this much is not limited, because the limit on bytes already bounds such calls.
const MUCH: u64 = 16 << 10;
/// The burst of calls, as the time in which they would be due: a stream that was late may catch up this much.
const AT_ONCE_NS: u64 = 10_000_000;

/// The calls of one stream.
#[derive(Debug)]
pub(super) struct Calls {
    pause_ns: u64,
    /// When the next one is due.
    due_ns: u64,
}

/// The interval between two calls of one stream, in nanoseconds, if `streams` of them share the limit; 0 without a limit.
pub(super) fn pause_ns(most: Most, streams: u64) -> u64 {
    most.calls_s.map_or(0, |calls| streams * 1_000_000_000 / u64::from(calls.max(1)))
}

impl Calls {
    pub fn new(pause_ns: u64) -> Self {
        Self { pause_ns, due_ns: 0 }
    }

    /// Accounts for `bytes` that a call has moved. Returns how many nanoseconds the next call has to wait.
    pub fn made(&mut self, bytes: u64, now_ns: u64) -> u64 {
        if self.pause_ns == 0 || bytes >= MUCH {
            return 0;
        }
        self.due_ns = self.due_ns.max(now_ns.saturating_sub(AT_ONCE_NS)) + self.pause_ns;
        self.due_ns.saturating_sub(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls in a second of a stream that calls whenever it may, and needs a microsecond for each.
    fn in_a_second(calls_s: Option<u32>, streams: u64, bytes: u64) -> u64 {
        let mut calls = Calls::new(pause_ns(Most { bytes: None, calls_s }, streams));
        let (begin_ns, mut now_ns, mut count) = (1 << 40, 1 << 40, 0);
        while now_ns < begin_ns + 1_000_000_000 {
            now_ns += 1_000 + calls.made(bytes, now_ns);
            count += 1;
        }
        count
    }

    #[test]
    fn small_pieces_are_few_and_large_ones_are_not_counted() {
        for streams in [1, 10, 64] {
            let all = streams * in_a_second(Some(25_000), streams, 1);
            assert!((24_500..26_000).contains(&all), "{streams}: {all}");
        }
        assert_eq!(in_a_second(Some(25_000), 64, MUCH), 1_000_000);
        assert_eq!(in_a_second(None, 64, 1), 1_000_000);
    }
}
