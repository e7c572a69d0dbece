//! Pacing: segments leave at a rate, in bursts of a millisecond (Linux: the internal pacing of TCP, `tcp_update_skb_after_send`).

use ekiden_units::Time;

/// The number of data segments that leave unpaced at first, as in Linux.
const UNPACED: u64 = 10;
/// The least burst, in segments.
const BURST_LEAST: f64 = 2.0;
/// The greatest burst, in segments: 64 KiB of full segments, as the kernel gives a device at once (`sk_gso_max_size`).
const BURST_MOST: f64 = 45.0;
/// The time whose segments leave as one burst: 1 / 1024 s (`sk_pacing_shift`).
const BURSTS_PER_SECOND: f64 = 1024.0;

#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When the next burst may leave.
    next: Time,
    /// What is left of this burst.
    burst: u32,
    /// By how much this burst left late, in nanoseconds: at most half of its time is made up for.
    credit: u64,
    sent: u64,
    waits: bool,
}

impl Pacer {
    /// Forgets that something waits.
    pub fn look_anew(&mut self) {
        self.waits = false;
    }

    /// Whether a segment must wait, at `rate` segments per second.
    pub fn holds(&mut self, now: Time, rate: Option<f64>) -> bool {
        let Some(rate) = rate.filter(|rate| self.sent >= UNPACED && *rate > 0.0) else { return false };
        if self.burst > 0 {
            return false;
        }
        self.waits = now < self.next;
        if !self.waits {
            self.burst = (rate / BURSTS_PER_SECOND).clamp(BURST_LEAST, BURST_MOST) as u32;
            self.credit = now.since(self.next).0;
            self.next = now;
        }
        self.waits
    }

    /// A segment is sent. `part`: its size as a part of a full segment.
    pub fn on_sent(&mut self, now: Time, rate: Option<f64>, part: f64) {
        self.sent += 1;
        let Some(rate) = rate.filter(|rate| self.sent > UNPACED && *rate > 0.0) else {
            self.next = now;
            return;
        };
        let takes = (part / rate * 1e9) as u64;
        let made_up = self.credit.min(takes / 2);
        self.credit -= made_up;
        self.next = self.next + Time(takes - made_up);
        self.burst = self.burst.saturating_sub(1);
    }

    /// Something else than pacing stopped the sender: the burst is over.
    pub fn end_burst(&mut self) {
        self.burst = 0;
    }

    /// When the waiting segment may be sent.
    pub fn at(&self) -> Option<Time> {
        self.waits.then_some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The departure times of `segments` segments.
    fn departures(rate: f64, segments: usize) -> Vec<Time> {
        let (mut pacer, mut now, mut departures) = (Pacer::default(), Time(0), Vec::new());
        while departures.len() < segments {
            pacer.look_anew();
            if pacer.holds(now, Some(rate)) {
                now = pacer.at().unwrap();
                continue;
            }
            pacer.on_sent(now, Some(rate), 1.0);
            departures.push(now);
        }
        departures
    }

    #[test]
    fn the_first_ten_leave_at_once_and_the_others_two_by_two_at_the_rate() {
        let departures = departures(100.0, 1010);
        assert_eq!(departures[9], Time(0));
        let spaces: Vec<u64> = departures[10..].windows(2).map(|pair| pair[1].since(pair[0]).0).collect();
        assert!(spaces.chunks_exact(2).all(|pair| pair == [0, 20_000_000]), "{spaces:?}");
        assert_eq!(departures[1009].since(departures[9]), Time::ms(9_980));
    }

    #[test]
    fn a_millisecond_of_a_fast_line_is_a_burst_but_no_more_than_a_device_takes() {
        for (rate, burst) in [(20_000.0, 19), (100_000.0, 45)] {
            let departures = departures(rate, 10 + 100 * burst);
            assert_eq!(departures[10 + burst - 1], Time(0));
            assert!(departures[10 + burst] > Time(0));
            let all = (99.0 * burst as f64 / rate * 1e9) as u64;
            assert!(departures[10 + 100 * burst - 1].0.abs_diff(all) < 1_000_000, "{:?}", departures.last());
        }
    }

    #[test]
    fn what_left_late_is_made_up_for_by_half_of_the_time_of_each_segment() {
        let mut pacer = Pacer::default();
        (0..10).for_each(|_| pacer.on_sent(Time(0), Some(1000.0), 1.0));
        assert!(!pacer.holds(Time::ms(3), Some(1000.0)), "it could have left at 0");
        let next: Vec<Time> = (0..8)
            .map(|_| {
                pacer.on_sent(Time::ms(3), Some(1000.0), 1.0);
                pacer.next
            })
            .collect();
        let half = |halves: u64| Time(3_000_000 + halves * 500_000);
        assert_eq!(next, [1, 2, 3, 4, 5, 6, 8, 10].map(half));
    }

    #[test]
    fn a_segment_that_is_not_full_takes_its_part_of_the_time() {
        let mut pacer = Pacer::default();
        (0..10).for_each(|_| pacer.on_sent(Time(0), Some(1000.0), 1.0));
        assert!(!pacer.holds(Time(0), Some(1000.0)));
        pacer.on_sent(Time(0), Some(1000.0), 0.25);
        assert_eq!(pacer.next, Time(250_000));
    }

    #[test]
    fn a_burst_that_the_window_ends_does_not_go_on_later() {
        let mut pacer = Pacer::default();
        let rate = Some(100_000.0);
        (0..10).for_each(|_| pacer.on_sent(Time(0), rate, 1.0));
        assert!(!pacer.holds(Time(0), rate));
        pacer.on_sent(Time(0), rate, 1.0);
        assert!(!pacer.holds(Time(0), rate), "45 leave together");
        pacer.end_burst();
        assert!(pacer.holds(Time(0), rate));
    }
}
