//! The latency beside a load: what the answers to small messages say of it.

use ekiden_record::{Delays, Latency};

/// A message that was answered; times in nanoseconds by the clock of the end where they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// When it was sent.
    pub sent_ns: u64,
    /// When the server had it, by its own clock.
    pub there_ns: u64,
    /// When its answer came.
    pub back_ns: u64,
}

impl Answer {
    /// The round trip in microseconds.
    pub fn rtt_us(&self) -> f64 {
        self.back_ns.saturating_sub(self.sent_ns) as f64 / 1e3
    }

    /// What lies between the clocks, and the way to the server, in microseconds.
    fn forth_us(&self) -> f64 {
        (self.there_ns as i128 - self.sent_ns as i128) as f64 / 1e3
    }

    fn back_us(&self) -> f64 {
        (self.back_ns as i128 - self.there_ns as i128) as f64 / 1e3
    }
}

/// What the answers say of a load that lasted from `began_ns` to `ended_ns`, by the clock of this end.
pub fn latency(answers: &[Answer], began_ns: u64, ended_ns: u64) -> Latency {
    let idle: Vec<_> = answers.iter().filter(|answer| answer.back_ns <= began_ns).collect();
    let loaded: Vec<_> =
        answers.iter().filter(|answer| answer.sent_ns >= began_ns && answer.sent_ns <= ended_ns).collect();
    let least = |of: fn(&Answer) -> f64| idle.iter().map(|answer| of(answer)).min_by(f64::total_cmp);
    let added = |of: fn(&Answer) -> f64| match least(of) {
        // One way takes no longer than both.
        Some(least) => {
            Delays::of(loaded.iter().map(|answer| (of(answer) - least).clamp(0.0, answer.rtt_us())).collect())
        }
        None => Delays::default(),
    };
    Latency {
        idle: Delays::of(idle.iter().map(|answer| answer.rtt_us()).collect()),
        loaded: Delays::of(loaded.iter().map(|answer| answer.rtt_us()).collect()),
        added_forth: added(Answer::forth_us),
        added_back: added(Answer::back_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_load_adds_is_told_by_direction_whatever_the_clocks_are() {
        // The server's clock is an hour behind; the way forth takes 10 ms, and 30 ms more beside the load.
        let at = |sent_ms: u64, forth_ms: u64| {
            let sent_ns = 10_000_000_000_000 + sent_ms * 1_000_000;
            let there = sent_ns + forth_ms * 1_000_000;
            Answer { sent_ns, there_ns: there - 3_600_000_000_000, back_ns: there + 10_000_000 }
        };
        let answers = [at(0, 10), at(20, 11), at(100, 40), at(120, 40)];
        let found = latency(&answers, at(90, 0).sent_ns, at(130, 0).sent_ns);
        assert_eq!((found.idle.count, found.loaded.count), (2, 2));
        assert_eq!((found.idle.min_us, found.loaded.p50_us), (20_000.0, 50_000.0));
        assert_eq!((found.added_forth.p50_us, found.added_back.p50_us), (30_000.0, 0.0));
    }

    #[test]
    fn a_way_takes_no_longer_than_the_round_trip() {
        let at = |sent_ns, there_ns| Answer { sent_ns, there_ns, back_ns: sent_ns + 60_000 };
        let found = latency(&[at(0, 5), at(500_000_000, 5)], 400_000_000, 600_000_000);
        assert_eq!((found.added_forth.max_us, found.added_back.max_us), (0.0, 60.0));
    }
}
