use super::*;

/// A line with a queue that never drops, and a sender whose congestion window would fill it, for which packets always wait.
struct Path {
    rate: f64,
    rtt_min: f64,
    /// The congestion window.
    cwnd: f64,
    /// What others keep in the queue, in seconds.
    others: f64,
    queued: f64,
    delivered: f64,
    now: f64,
    pacing: Pacing,
}

impl Path {
    fn new(rate: f64, rtt_min: f64) -> Self {
        let cwnd = 3.0 * rate * rtt_min + 30_000.0;
        Self { rate, rtt_min, cwnd, others: 0.0, queued: 0.0, delivered: 0.0, now: 0.0, pacing: Pacing::new() }
    }

    /// Ten milliseconds pass. Returns the sending rate.
    fn step(&mut self) -> f64 {
        let rtt = self.rtt_min + self.queued / self.rate + self.others;
        let seen = Seen {
            rtt: Time((rtt * 1e9) as u64),
            rtt_min: Time((self.rtt_min * 1e9) as u64),
            delivered: self.delivered as u64,
            retransmits: 0,
            is_awaited: true,
        };
        let allowed = self.pacing.look(Time((self.now * 1e9) as u64), seen).map_or(f64::MAX, |rate| rate as f64);
        let sent = allowed.min(self.cwnd / rtt);
        self.now += 0.01;
        let all = self.queued + sent * 0.01;
        let gone = all.min(self.rate * 0.01);
        (self.queued, self.delivered) = (all - gone, self.delivered + gone);
        sent
    }

    /// So many seconds pass. Returns the mean sending rate, and the longest delay of the queue.
    fn run(&mut self, seconds: u32) -> (f64, f64) {
        let steps = seconds * 100;
        let (mut sent, mut longest) = (0.0, 0.0_f64);
        for _ in 0..steps {
            sent += self.step() / f64::from(steps);
            longest = longest.max(self.queued / self.rate);
        }
        (sent, longest)
    }
}

#[test]
fn the_path_is_full_and_its_queue_short_at_any_rate_and_distance() {
    for rate in [125e3, 1.25e6, 12.5e6, 125e6] {
        for rtt in [0.002, 0.02, 0.2, 0.6] {
            let mut path = Path::new(rate, rtt);
            path.run(40);
            let (sent, longest) = path.run(20);
            let slow = (SLOW_BYTES / rate).min(0.2).max(WINDOW_LEAST / rate);
            assert!(sent > 0.95 * rate, "{rate} B/s, {rtt} s: {sent}");
            assert!(longest < 0.02_f64.max(slow) + 0.03, "{rate} B/s, {rtt} s: {longest}");
        }
    }
}

#[test]
fn a_path_that_delivers_more_is_used_and_one_that_delivers_less_is_not_flooded() {
    let mut path = Path::new(1.25e6, 0.1);
    path.cwnd *= 4.0;
    path.run(20);
    path.rate = 5e6;
    path.run(10);
    let (faster, _) = path.run(5);
    assert!((4.75e6..5.5e6).contains(&faster), "{faster}");
    path.rate = 2.5e6;
    path.run(10);
    let (slower, longest) = path.run(5);
    assert!((2.4e6..2.8e6).contains(&slower) && longest < 0.05, "{slower}, {longest}");
}

#[test]
fn where_others_fill_the_queue_it_is_not_limited() {
    let mut path = Path::new(1.25e6, 0.1);
    path.run(10);
    assert!(path.pacing.window.is_some());
    path.others = 0.1;
    path.run(4);
    assert_eq!(path.pacing.window, None);
    // It looks again later.
    path.others = 0.0;
    path.run(12);
    assert!(path.pacing.window.is_some());
}

#[test]
fn a_connection_for_which_nothing_waits_keeps_its_window() {
    let mut pacing = Pacing::new();
    let seen = |rtt_ms: u64, delivered: u64, is_awaited: bool| Seen {
        rtt: Time::ms(rtt_ms),
        rtt_min: Time::ms(100),
        delivered,
        retransmits: 0,
        is_awaited,
    };
    let mut delivered = 0;
    for at in 0..100 {
        delivered += 12_500;
        pacing.look(Time::ms(at * 10), seen(150, delivered, true));
    }
    let before = pacing.window.unwrap();
    for at in 100..1_000 {
        delivered += 10;
        pacing.look(Time::ms(at * 10), seen(100, delivered, false));
    }
    let after = pacing.window.unwrap();
    assert!((after - before).abs() < before / 50.0, "{before}, {after}");
}
