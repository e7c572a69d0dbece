//! Receive buffer autotuning: a window that grows with what the application takes in a round trip, as in Linux
//! (`tcp_rcv_rtt_update`, `tcp_rcv_space_adjust`, `tcp_rcvbuf_grow`).

use ekiden_packet::Segment;
use ekiden_units::Time;

use crate::rtt::timestamp;

/// The window before the first measurement.
pub(crate) const FIRST_WINDOW: u64 = 65_535;
/// What counts as taken before the first measurement: Linux's initial window, in segments, but no more than half of the first
/// window, since whatever the segments' size what it lets through must be more.
const FIRST_SEGMENTS: u64 = 10;

/// What is measured of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Tuning {
    /// The most that the window may grow to.
    most: u64,
    /// When the current measurement began, and how far the application had read then.
    since: Time,
    read: u64,
    /// The most that the application has taken in a round trip.
    taken: u64,
    /// The round trip as the receiver knows it; none before it was measured.
    rtt: Option<u64>,
    /// The timestamp that came back last.
    echo: u32,
    /// Where the window ends that is timed, and since when.
    timed: Option<(u64, Time)>,
}

/// Where the receiver stands when a segment arrives, before it takes the segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// RCV.NXT.
    pub next: u64,
    /// The window that was advertised last, in bytes.
    pub window: u64,
    /// Up to here the application has read.
    pub read: u64,
    /// It has read all that has arrived in order.
    pub has_read_all: bool,
    /// The largest payload of a segment so far.
    pub largest: u64,
}

impl Tuning {
    /// `mss` is the most payload in a segment.
    pub fn new(most: u64, mss: u32) -> Self {
        let taken = (FIRST_SEGMENTS * u64::from(mss.max(1))).min(FIRST_WINDOW / 2);
        Self { most, since: Time(0), read: 1, taken, rtt: None, echo: 0, timed: None }
    }

    /// A segment arrives. Returns the window that the receiver should have at least, if that is due: once per round trip, twice
    /// what the application took in the last one, and more, so that a sender in slow start has room to double again.
    /// Data behind a gap cannot be taken, so the window does not grow meanwhile.
    pub fn on_segment(&mut self, now: Time, segment: &Segment, standing: &Standing) -> Option<u64> {
        self.measure(now, segment, standing);
        let passed = now.since(self.since).0;
        self.rtt.filter(|rtt| passed >= *rtt)?;
        let (before, taken) = (self.taken, standing.read - self.read);
        (self.since, self.read) = (now, standing.read);
        if taken <= before {
            return None;
        }
        self.taken = taken;
        let growth = u128::from(taken) * u128::from(taken - before) / u128::from(before);
        let window = 2 * u128::from(taken) + 4 * growth;
        Some(window.min(self.most.into()) as u64)
    }

    /// Measures the round trip from an acknowledgement to the first segment that was sent after it.
    fn measure(&mut self, now: Time, segment: &Segment, standing: &Standing) {
        if let Some(rtt) = self.echoed(now, segment, standing.largest) {
            self.sample(rtt, standing.has_read_all);
        }
        // What lies beyond a window cannot be sent before the window is known: that takes a round trip at least. Where round
        // trips are shorter than the timestamps' clock can tell, it is all there is.
        let is_over = self.timed.is_none_or(|(end, _)| standing.next >= end);
        if is_over && let Some((_, since)) = self.timed.replace((standing.next + standing.window, now)) {
            self.sample(now.since(since).0, false);
        }
    }

    /// The round trip that a timestamp tells which comes back for the first time, in a full segment.
    fn echoed(&mut self, now: Time, segment: &Segment, largest: u64) -> Option<u64> {
        let echo = segment.options.timestamps.map(|timestamps| timestamps.echo).filter(|echo| *echo != 0)?;
        let is_first = std::mem::replace(&mut self.echo, echo) != echo;
        let passed = timestamp(now).wrapping_sub(echo);
        // 0 says nothing. A larger difference means a timestamp that this end never sent.
        let counts = is_first && u64::from(segment.payload) >= largest && (1..i32::MAX as u32).contains(&passed);
        counts.then(|| Time::ms(passed.into()).0)
    }

    /// A round trip was measured. A shorter one counts at once. A longer one counts an eighth, and only if it can be smoothed:
    /// if it is exact, and no data waited for the application.
    fn sample(&mut self, rtt: u64, is_smoothed: bool) {
        self.rtt = Some(match self.rtt {
            Some(known) if rtt >= known && is_smoothed => known + (rtt - known) / 8,
            Some(known) => known.min(rtt),
            None => rtt,
        });
    }
}

#[cfg(test)]
mod tests {
    use ekiden_packet::{Options, Timestamps};

    use super::*;

    const SEGMENT: u32 = 1000;

    /// A stream that the application takes as it arrives, a segment every 10 ms, and the window that this gives it.
    struct Stream {
        tuning: Tuning,
        now: Time,
        next: u64,
        window: u64,
    }

    impl Stream {
        fn new() -> Self {
            Self { tuning: Tuning::new(1 << 30, SEGMENT), now: Time::secs(1), next: 1, window: FIRST_WINDOW }
        }

        /// The next segment, sent when what this end had sent `rtt_ms` ago arrived; without, it has no timestamps.
        fn arrives(&mut self, rtt_ms: Option<u64>) {
            self.now = self.now + Time::ms(10);
            let echo = |ms| Timestamps { value: 1, echo: timestamp(Time(self.now.0 - Time::ms(ms).0)) };
            let options = Options { timestamps: rtt_ms.map(echo), ..Options::default() };
            let segment = Segment { payload: SEGMENT, options, ..Segment::default() };
            let standing = Standing {
                next: self.next,
                window: self.window,
                read: self.next,
                has_read_all: true,
                largest: SEGMENT.into(),
            };
            let window = self.tuning.on_segment(self.now, &segment, &standing);
            self.window = self.window.max(window.unwrap_or(0));
            self.next += u64::from(SEGMENT);
        }
    }

    #[test]
    fn the_window_has_room_for_what_waits_in_the_queue_too() {
        // 100 kB/s. Without a queue 100 ms: the ten segments that count before the first measurement. With a queue that makes it
        // 400 ms, 40,000 bytes are under way.
        let mut stream = Stream::new();
        (0..100).for_each(|_| stream.arrives(Some(100)));
        assert_eq!(stream.window, FIRST_WINDOW);
        (0..100).for_each(|_| stream.arrives(Some(400)));
        assert!((38_000..=40_000).contains(&stream.tuning.taken), "{}", stream.tuning.taken);
        assert!(stream.window >= 2 * stream.tuning.taken, "{}", stream.window);
    }

    #[test]
    fn a_longer_round_trip_counts_an_eighth_and_a_shorter_one_at_once() {
        let mut stream = Stream::new();
        let mut rtt_after = |ms| {
            stream.arrives(Some(ms));
            stream.tuning.rtt.map(|rtt| rtt / 1000)
        };
        assert_eq!([80, 160, 90, 40].map(&mut rtt_after), [80_000, 90_000, 90_000, 40_000].map(Some));
    }

    #[test]
    fn only_the_first_full_segment_that_an_acknowledgement_has_released_is_timed() {
        let mut stream = Stream::new();
        stream.arrives(Some(80));
        // The same acknowledgement released these: they came later because the line is slow.
        (9..20).for_each(|tens| stream.arrives(Some(10 * tens)));
        assert_eq!(stream.tuning.rtt, Some(80_000_000));
    }

    #[test]
    fn the_round_trip_is_at_most_the_time_in_which_a_window_arrives() {
        let mut stream = Stream::new();
        stream.window = 20_000;
        (0..100).for_each(|_| stream.arrives(None));
        assert_eq!(stream.tuning.rtt, Some(200_000_000));
        // It is the least that counts.
        stream.window = 40_000;
        (0..100).for_each(|_| stream.arrives(None));
        assert_eq!(stream.tuning.rtt, Some(200_000_000));
    }
}
