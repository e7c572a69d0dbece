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
    sent: f64,
    delivered: f64,
    now: f64,
    pacing: Pacing,
}

impl Path {
    fn new(rate: f64, rtt_min: f64) -> Self {
        Self::with(rate, rtt_min, Siblings::new(1))
    }

    fn with(rate: f64, rtt_min: f64, siblings: Arc<Siblings>) -> Self {
        let cwnd = 3.0 * rate * rtt_min + 30_000.0;
        let (others, queued, sent, delivered, now) = Default::default();
        Self { rate, rtt_min, cwnd, others, queued, sent, delivered, now, pacing: Pacing::new(siblings) }
    }

    /// Ten milliseconds pass. Returns the sending rate.
    fn step(&mut self) -> f64 {
        let gone = self.step_beside(self.queued, true);
        (self.queued, self.delivered) = (self.queued - gone, self.delivered + gone);
        self.sent
    }

    /// The same for one of several connections, which together have `queued` bytes queued; it sends from now on if `is_begun`.
    /// Returns how much has gone of all.
    fn step_beside(&mut self, queued: f64, is_begun: bool) -> f64 {
        let rtt = self.rtt_min + queued / self.rate + self.others;
        let seen = PathSeen {
            rtt: Time((rtt * 1e9) as u64),
            acked: self.delivered as u64,
            arrived: self.delivered as u64,
            retransmits: 0,
            in_flight: (self.queued + self.sent.min(self.rate) * (self.rtt_min + self.others)) as u64,
        };
        self.now += 0.01;
        if is_begun {
            let now = Time((self.now * 1e9) as u64);
            self.pacing.waiting(now, true);
            let allowed = self.pacing.look(now, seen).map_or(f64::MAX, |rate| rate as f64);
            self.sent = allowed.min(self.cwnd / rtt);
            self.queued += self.sent * 0.01;
        }
        (queued + self.sent * 0.01).min(self.rate * 0.01)
    }

    /// `seconds` pass. Returns the mean sending rate, and the longest delay of the queue.
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
            assert!(longest < 1.5 * 0.02_f64.max(slow) + 0.05, "{rate} B/s, {rtt} s: {longest}");
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
fn a_path_that_has_become_much_slower_is_not_flooded_and_no_others_are_blamed() {
    for (rtt, part) in [(0.03, 10.0), (0.06, 20.0), (0.1, 10.0), (0.3, 10.0)] {
        let mut path = Path::new(2.5e6, rtt);
        path.run(20);
        path.rate /= part;
        let mut is_unlimited = false;
        for _ in 0..30 * 100 {
            path.step();
            is_unlimited |= path.pacing.window.is_none();
        }
        let (sent, longest) = path.run(10);
        assert!(!is_unlimited && sent > 0.9 * path.rate && longest < 0.4, "{rtt} s, 1/{part}: {sent}, {longest}");
    }
}

/// The longest mean delay of the queue in any of the last six of ten minutes, of connections that begin one after another with so
/// many steps between.
fn delay_of_several(number: usize, rate: f64, rtt: f64, first: usize, gap: usize) -> f64 {
    let siblings = Siblings::new(number);
    let mut paths: Vec<_> = (0..number).map(|_| Path::with(rate, rtt, Arc::clone(&siblings))).collect();
    let mut minutes = [0.0_f64; 10];
    for step in 0..60_000 {
        let queued: f64 = paths.iter().map(|path| path.queued).sum();
        minutes[step / 6_000] += queued / rate / 6_000.0;
        for (at, path) in paths.iter_mut().enumerate() {
            path.step_beside(queued, step >= first + at * gap);
        }
        let all: f64 = paths.iter().map(|path| path.queued).sum();
        let gone = all.min(rate * 0.01);
        for path in &mut paths {
            let part = if all > 0.0 { path.queued / all * gone } else { 0.0 };
            (path.queued, path.delivered) = (path.queued - part, path.delivered + part);
        }
    }
    minutes[4..].iter().copied().fold(0.0, f64::max)
}

#[test]
fn the_queue_of_several_connections_does_not_grow() {
    let mut failed = Vec::new();
    let fast = [(2, 0.02), (4, 0.05), (8, 0.05), (8, 0.12)].map(|(number, rtt)| (number, 1.25e6, rtt, 0.1));
    let many = [(16, 1.25e6, 0.12, 0.2)];
    let short = [(8, 6.25e6, 0.022, 0.1), (16, 6.25e6, 0.014, 0.1)];
    // Their smallest windows alone are longer than that.
    let slow = [(8, 125e3, 0.05, 0.6), (16, 125e3, 0.05, 1.2), (32, 250e3, 0.05, 1.2)];
    for (number, rate, rtt, most) in fast.into_iter().chain(many).chain(short).chain(slow) {
        for first in [0, 700, 1_300, 1_900] {
            for gap in [10, 130, 260, 470] {
                let longest = delay_of_several(number, rate, rtt, first, gap);
                if longest > most {
                    failed.push((number, rate, rtt, first, gap, longest));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
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
fn a_longer_route_and_late_packets_are_no_queue() {
    for rate in [1.25e6, 6.25e6] {
        for more in [0.01, 0.022, 0.03, 0.038, 0.05, 0.1] {
            let mut path = Path::new(rate, 0.05);
            path.cwnd *= 4.0;
            path.run(20);
            path.others = more;
            path.run(60);
            let (sent, longest) = path.run(60);
            assert!(sent > 0.9 * rate, "{rate} B/s, {more} s: {sent}");
            assert!(longest < 0.1, "{rate} B/s, {more} s: {longest}");
        }
    }
}

#[test]
fn the_least_round_trip_time_has_no_queue_in_it_after_an_hour() {
    let mut path = Path::new(1.25e6, 0.05);
    path.run(3_600);
    let (sent, longest) = path.run(20);
    assert!(sent > 0.95 * path.rate && longest < 0.05, "{sent}, {longest}");
}

#[test]
fn a_connection_for_which_nothing_waits_keeps_its_window() {
    // Bursts of 32 ms with pauses: of nothing, and of a trickle.
    for trickle in [0.0, 1e3] {
        let mut path = Path::new(6.25e6, 0.05);
        path.run(10);
        for _ in 0..60 {
            for _ in 0..3 {
                path.step();
            }
            let now = Time((path.now * 1e9) as u64);
            path.pacing.waiting(now, false);
            path.now += 0.45;
            (path.queued, path.delivered) = (0.0, path.delivered + path.queued + trickle);
        }
        let after = path.pacing.window.unwrap();
        assert!(after > 0.8 * path.rate * path.rtt_min, "{after}");
    }
}

#[test]
fn a_loss_of_a_connection_with_little_to_send_sets_no_window() {
    let mut pacing = Pacing::new(Siblings::new(1));
    for at in 0..100 {
        let now = Time::ms(at * 50);
        pacing.waiting(now, false);
        let (sent, retransmits) = (100 * at, u64::from(at > 50));
        let seen = PathSeen { rtt: Time::ms(100), acked: sent, arrived: sent, retransmits, in_flight: 100 };
        assert_eq!(pacing.look(now, seen), None);
    }
}
