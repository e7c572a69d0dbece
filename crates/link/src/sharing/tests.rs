use super::*;

const WEIGHT: Service = Service { weight: 1, ceiling: None, floor: None };

/// A line with a long queue, and streams whose congestion windows would fill it.
struct Line {
    rate: f64,
    rtt_min: f64,
    services: Vec<Service>,
    streams: Vec<Sender>,
    now: f64,
    sharing: Sharing,
}

struct Sender {
    class: usize,
    /// Its congestion window, in bytes.
    cwnd: f64,
    /// What its program has to send at most, in bytes per second.
    most: f64,
    queued: f64,
    acked: f64,
    rate: f64,
    /// What it has got in the time that is looked at.
    got: f64,
}

impl Line {
    fn new(mbit: f64, rtt_ms: f64, services: &[Service]) -> Self {
        let (rate, rtt_min) = (mbit * 1e6 / 8.0, rtt_ms / 1e3);
        let services = services.to_vec();
        Self { rate, rtt_min, services, streams: Vec::new(), now: 0.0, sharing: Sharing::default() }
    }

    /// Streams of a class, together with this part of three times the line's bandwidth-delay product as windows.
    fn begin(&mut self, class: usize, number: usize, part: f64) {
        for _ in 0..number {
            let cwnd = part * 3.0 * self.rate * self.rtt_min / number as f64;
            let [most, rate] = [f64::INFINITY; 2];
            self.sharing.begins(class, &self.services, Time((self.now * 1e9) as u64));
            self.streams.push(Sender { class, cwnd, most, rate, queued: 0.0, acked: 0.0, got: 0.0 });
        }
    }

    /// So many seconds pass. Returns what each class gets, as parts of the line, and the mean delay of the queue in milliseconds.
    fn run(&mut self, seconds: u32) -> (Vec<f64>, f64) {
        self.streams.iter_mut().for_each(|of| of.got = 0.0);
        let mut waits = 0.0;
        for step in 0..seconds * 100 {
            let queue: f64 = self.streams.iter().map(|of| of.queued).sum();
            let rtt = self.rtt_min + queue / self.rate;
            waits += queue / self.rate;
            for of in &mut self.streams {
                of.queued += of.rate.min(of.cwnd / rtt).min(of.most) * 0.01;
            }
            let queue: f64 = self.streams.iter().map(|of| of.queued).sum();
            let part = (self.rate * 0.01 / queue.max(1.0)).min(1.0);
            for of in &mut self.streams {
                let gone = of.queued * part;
                (of.queued, of.acked, of.got) = (of.queued - gone, of.acked + gone, of.got + gone);
            }
            self.now += 0.01;
            if step % 2 == 0 {
                self.look(rtt);
            }
        }
        let got = |class| self.streams.iter().filter(move |of| of.class == class).map(|of| of.got).sum::<f64>();
        let all = self.rate * f64::from(seconds);
        ((0..self.services.len()).map(|class| got(class) / all).collect(), waits * 10.0 / f64::from(seconds))
    }

    fn look(&mut self, rtt: f64) {
        let time = |seconds: f64| Time((seconds * 1e9) as u64);
        let shown = |(stream, of): (usize, &Sender)| {
            let [acked, arrived] = [of.acked as u64; 2];
            let seen = Seen { rtt: time(rtt), acked, arrived, retransmits: 0, in_flight: of.queued as u64 };
            let is_waiting = of.rate.min(of.cwnd / rtt) < of.most;
            StreamSeen { stream: stream as u64, class: of.class, seen, rtt_least: time(self.rtt_min), is_waiting }
        };
        let shown: Vec<StreamSeen> = self.streams.iter().enumerate().map(shown).collect();
        let rates = self.sharing.look(time(self.now), &self.services, &shown);
        for (of, rate) in self.streams.iter_mut().zip(rates) {
            of.rate = rate.map_or(f64::INFINITY, |rate| rate as f64);
        }
    }
}

fn is_near(value: f64, wanted: f64) -> bool {
    (value - wanted).abs() <= 0.05 * wanted
}

#[test]
fn classes_share_a_full_leg_by_weight_however_many_streams_each_has() {
    let mut line = Line::new(20.0, 40.0, &[WEIGHT, Service { weight: 3, ..WEIGHT }]);
    line.begin(0, 8, 1.0);
    line.begin(1, 1, 1.0);
    line.run(10);
    let (parts, waits) = line.run(20);
    assert!(is_near(parts[1] / parts[0], 3.0) && parts[0] + parts[1] > 0.9, "{parts:?}");
    assert!(waits < 25.0, "{waits} ms");
}

#[test]
fn what_one_class_does_not_use_goes_to_the_other() {
    let mut line = Line::new(20.0, 40.0, &[WEIGHT, Service { weight: 9, ..WEIGHT }]);
    line.begin(0, 2, 1.0);
    line.begin(1, 1, 1.0);
    line.streams[2].most = 0.1 * line.rate;
    line.run(10);
    let (parts, _) = line.run(20);
    assert!(is_near(parts[1], 0.1) && parts[0] > 0.78, "{parts:?}");
    // It may have its part as soon as it wants to.
    line.streams[2].most = f64::INFINITY;
    line.run(5);
    let (parts, _) = line.run(20);
    assert!(is_near(parts[1] / parts[0], 9.0), "{parts:?}");
}

#[test]
fn a_stream_that_the_path_holds_back_leaves_the_rest_to_others_of_its_class() {
    let mut line = Line::new(20.0, 40.0, &[WEIGHT, WEIGHT]);
    line.begin(0, 1, 1.0);
    line.begin(1, 1, 1.0);
    line.begin(1, 1, 0.02);
    line.run(10);
    let (parts, _) = line.run(20);
    assert!(is_near(parts[1] / parts[0], 1.0), "{parts:?}");
    assert!(line.streams[1].got > 5.0 * line.streams[2].got);
}

#[test]
fn a_ceiling_holds_without_others_and_a_floor_against_them() {
    let ceiling = |mbit| Some(BitRate::mbit(mbit));
    let mut line = Line::new(20.0, 40.0, &[Service { ceiling: ceiling(5), ..WEIGHT }]);
    line.begin(0, 3, 1.0);
    line.run(2);
    assert!(is_near(line.run(10).0[0], 0.25));
    let floor = Service { floor: ceiling(8), ..WEIGHT };
    let mut line = Line::new(20.0, 40.0, &[Service { weight: 9, ..WEIGHT }, floor]);
    line.begin(0, 1, 1.0);
    line.begin(1, 1, 1.0);
    line.run(10);
    let (parts, _) = line.run(20);
    assert!(is_near(parts[1], 0.4), "{parts:?}");
}

#[test]
fn a_class_that_is_alone_is_not_held_back_and_one_that_has_gone_holds_nobody_back_for_long() {
    let mut line = Line::new(20.0, 40.0, &[WEIGHT, WEIGHT]);
    line.begin(0, 4, 1.0);
    let (parts, _) = line.run(5);
    assert!(parts[0] > 0.95 && line.streams.iter().all(|of| of.rate.is_infinite()));
    line.begin(1, 1, 1.0);
    line.run(10);
    assert!(line.streams.iter().all(|of| of.rate.is_finite()));
    line.streams.pop();
    line.sharing.ends(1, Time((line.now * 1e9) as u64));
    line.run(11);
    assert!(line.streams.iter().all(|of| of.rate.is_infinite()));
    assert!(!line.sharing.is_needed(&line.services, Time((line.now * 1e9) as u64)));
}

#[test]
fn pacing_that_gets_much_less_than_before_is_given_up_for_longer_each_time() {
    let (mut others, mut now) = (Others::default(), Time::secs(10));
    // Seconds until streams that get so many bytes in a tenth of a second are, or are not, left alone.
    let mut until = |is_left: bool, bytes: u64, is_paced: bool| {
        for tenths in 0..1_000 {
            now = now + Time::ms(100);
            if others.fill(now, bytes, true, is_paced) == is_left {
                return tenths / 10;
            }
        }
        1_000
    };
    for seconds in [30, 60] {
        assert_eq!(until(true, 1_000, false), 1_000, "they are not paced");
        assert!(until(true, 300, true) <= 4);
        assert!((seconds - 1..=seconds).contains(&until(false, 1_000, false)));
    }
    // Less than before, but not so little.
    assert_eq!(until(true, 1_000, false), 1_000);
    assert_eq!(until(true, 600, true), 1_000);
}

#[test]
fn a_class_counts_for_as_long_as_it_has_streams() {
    let services = [WEIGHT, WEIGHT];
    let mut sharing = Sharing::default();
    assert!(!sharing.begins(0, &services, Time::secs(0)));
    assert!(sharing.begins(1, &services, Time::secs(100)));
    sharing.ends(0, Time::secs(100));
    assert!(sharing.is_needed(&services, Time::secs(109)) && !sharing.is_needed(&services, Time::secs(111)));
    // One that ends although it never began changes nothing.
    sharing.ends(0, Time::secs(111));
    assert!(sharing.begins(0, &services, Time::secs(111)));
    // Classes that are gone from the list are passed over.
    assert_eq!(sharing.look(Time::secs(112), &services[..1], &[]), []);
}

#[test]
fn parts_are_by_weight_within_floors_and_wishes() {
    let wish = |weight: f64, floor: f64, most: f64| Wish { weight, floor, most };
    let divided = |total: f64, wishes: &[Wish]| -> Vec<f64> {
        divide(total, wishes).into_iter().map(|part| (part * 1e3).round() / 1e3).collect()
    };
    let all = f64::INFINITY;
    assert_eq!(divided(12.0, &[wish(1.0, 0.0, all), wish(3.0, 0.0, all)]), [3.0, 9.0]);
    assert_eq!(divided(12.0, &[wish(1.0, 0.0, all), wish(3.0, 0.0, 2.0)]), [10.0, 2.0]);
    assert_eq!(divided(12.0, &[wish(1.0, 6.0, all), wish(3.0, 0.0, all)]), [6.0, 6.0]);
    // Floors that cannot be met are lowered alike; nobody's floor is more than it wants.
    assert_eq!(divided(6.0, &[wish(1.0, 4.0, all), wish(1.0, 8.0, all)]), [2.0, 4.0]);
    assert_eq!(divided(6.0, &[wish(1.0, 4.0, 1.0), wish(1.0, 0.0, all)]), [1.0, 5.0]);
    assert_eq!(divided(all, &[wish(1.0, 0.0, 7.0)]), [7.0]);
    assert_eq!(divided(5.0, &[]), [0.0; 0]);
}
