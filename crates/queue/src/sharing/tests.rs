use super::*;

const WEIGHT: Service = Service { weight: 1, ceiling: None, floor: None, order: Order::Even };

/// A line with a queue, and streams whose congestion windows would fill it.
struct Line {
    rate: f64,
    rtt_min: f64,
    /// What connections remember of it.
    remembered: f64,
    /// The most that the queue holds, in bytes.
    queue_most: f64,
    services: Vec<Service>,
    streams: Vec<Sender>,
    now: f64,
    sharing: Sharing,
    lengths: Vec<Lengths>,
}

struct Sender {
    class: usize,
    /// Its congestion window, in bytes.
    cwnd: f64,
    /// What its program has to send at most, in bytes per second.
    most: f64,
    queued: f64,
    acked: f64,
    lost: f64,
    /// Its smoothed round-trip time, in seconds (RFC 6298: each sample counts an eighth).
    srtt: f64,
    rate: f64,
    /// What it has got in the time that is looked at.
    got: f64,
    /// It is not of the leg, but shares its line.
    is_foreign: bool,
}

impl Line {
    fn new(mbit: f64, rtt_ms: f64, services: &[Service]) -> Self {
        let (rate, rtt_min) = (mbit * 1e6 / 8.0, rtt_ms / 1e3);
        let services = services.to_vec();
        Self {
            rate,
            rtt_min,
            remembered: rtt_min,
            queue_most: f64::INFINITY,
            lengths: vec![Lengths::default(); services.len()],
            services,
            streams: Vec::new(),
            now: 0.0,
            sharing: Sharing::default(),
        }
    }

    /// Streams of a class, together with this part of three times the line's bandwidth-delay product as windows.
    fn begin(&mut self, class: usize, number: usize, part: f64) {
        for _ in 0..number {
            let cwnd = part * 3.0 * self.rate * self.rtt_min / number as f64;
            let [most, rate] = [f64::INFINITY; 2];
            self.sharing.begins(class, &self.services, Time((self.now * 1e9) as u64));
            self.streams.push(Sender {
                class,
                cwnd,
                most,
                rate,
                queued: 0.0,
                acked: 0.0,
                lost: 0.0,
                srtt: self.rtt_min,
                got: 0.0,
                is_foreign: false,
            });
        }
    }

    /// `seconds` pass. Returns what each class gets, as parts of the line, and the mean delay of the queue in milliseconds.
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
            let kept = (self.queue_most / queue.max(1.0)).min(1.0);
            for of in &mut self.streams {
                of.lost += of.queued * (1.0 - kept) / 1_448.0;
                of.queued *= kept;
            }
            let queue = queue * kept;
            let part = (self.rate * 0.01 / queue.max(1.0)).min(1.0);
            for of in &mut self.streams {
                let gone = of.queued * part;
                (of.queued, of.acked, of.got) = (of.queued - gone, of.acked + gone, of.got + gone);
                of.srtt += (rtt - of.srtt) * (1.0 - 0.875_f64.powf(gone / 2_896.0));
            }
            self.now += 0.01;
            if step % 2 == 0 {
                self.look();
            }
        }
        let got = |class| self.streams.iter().filter(move |of| of.class == class).map(|of| of.got).sum::<f64>();
        let all = self.rate * f64::from(seconds);
        ((0..self.services.len()).map(|class| got(class) / all).collect(), waits * 10.0 / f64::from(seconds))
    }

    fn look(&mut self) {
        let time = |seconds: f64| Time((seconds * 1e9) as u64);
        let shown = |(stream, of): (usize, &Sender)| {
            let is_waiting = of.rate.min(of.cwnd / of.srtt) < of.most;
            StreamSeen {
                stream: stream as u64,
                class: of.class,
                rtt: time(of.srtt),
                rtt_least: time(self.remembered),
                acked: of.acked as u64,
                handed: (of.acked + of.queued) as u64 + if is_waiting { 100_000 } else { 0 },
                retransmits: of.lost as u64,
                is_waiting,
                in_flight: (of.rate * of.srtt).min(of.cwnd) as u64,
            }
        };
        let own = self.streams.iter().filter(|of| !of.is_foreign);
        let shown: Vec<StreamSeen> = own.enumerate().map(shown).collect();
        let rates = self.sharing.look(time(self.now), &self.services, &mut self.lengths, &shown);
        for (of, rate) in self.streams.iter_mut().filter(|of| !of.is_foreign).zip(rates) {
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
    // More than the leg carries.
    let floors = [30, 15].map(|mbit| Service { floor: ceiling(mbit), ..WEIGHT });
    let mut line = Line::new(20.0, 40.0, &floors);
    line.begin(1, 4, 1.0);
    line.begin(0, 1, 0.05);
    line.run(5);
    // A window that grows while nothing is lost.
    for _ in 0..20 {
        line.streams[4].cwnd *= 1.2;
        line.run(1);
    }
    let (parts, waits) = line.run(20);
    assert!(is_near(parts[0] / parts[1], 2.0) && waits < 20.0, "{parts:?}, {waits} ms");
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
fn streams_are_not_held_back_for_a_while_where_others_fill_the_queue() {
    let mut line = Line::new(20.0, 40.0, &[WEIGHT, WEIGHT]);
    line.begin(0, 4, 1.0);
    line.begin(1, 4, 1.0);
    line.run(10);
    assert!(line.streams.iter().all(|of| of.rate.is_finite()));
    // The cross traffic on the line has a window of two bandwidth-delay products and does not give way.
    line.begin(1, 1, 0.7);
    line.sharing.ends(1, Time((line.now * 1e9) as u64));
    line.streams.last_mut().unwrap().is_foreign = true;
    line.run(10);
    assert!(line.streams.iter().all(|of| of.rate.is_infinite()), "others would have all of the line");
    let (_, waits) = line.run(10);
    assert!(line.streams[8].got < 0.5 * 10.0 * line.rate && waits > 100.0, "{waits} ms");
    // It is still there after the pause: its window is a part of the route then.
    line.run(20);
    let (parts, _) = line.run(30);
    assert!(parts[0] + parts[1] > 0.4, "{parts:?}");
    // It has gone.
    line.streams.pop();
    line.run(60);
    let (parts, waits) = line.run(20);
    assert!(is_near(parts[1] / parts[0], 1.0) && parts[0] + parts[1] > 0.9 && waits < 20.0, "{parts:?}, {waits} ms");
}

#[test]
fn a_leg_that_becomes_slower_or_faster_is_shared_on_and_its_queue_stays_short() {
    let mut line = Line::new(20.0, 40.0, &[WEIGHT, Service { weight: 3, ..WEIGHT }]);
    line.begin(0, 8, 1.0);
    line.begin(1, 1, 1.0);
    line.run(10);
    for rate in [0.4, 2.5, 1.5] {
        line.rate *= rate;
        line.run(10);
        let (parts, waits) = line.run(20);
        assert!(is_near(parts[1] / parts[0], 3.0) && parts[0] + parts[1] > 0.93, "{rate} times: {parts:?}");
        assert!(waits < 20.0, "{rate} times: {waits} ms");
    }
}

#[test]
fn a_route_that_becomes_longer_is_no_queue_for_long() {
    let mut line = Line::new(20.0, 40.0, &[WEIGHT, Service { weight: 3, ..WEIGHT }]);
    line.begin(0, 8, 1.0);
    line.begin(1, 1, 1.0);
    line.run(10);
    // Connections remember the shorter one for minutes.
    line.rtt_min = 0.09;
    line.run(80);
    let (parts, waits) = line.run(20);
    assert!(is_near(parts[1] / parts[0], 3.0) && parts[0] + parts[1] > 0.9, "{parts:?}");
    assert!(waits < 40.0, "{waits} ms");
}

#[test]
fn the_queue_of_a_slow_leg_does_not_grow_with_time() {
    let mut line = Line::new(1.0, 40.0, &[WEIGHT, WEIGHT]);
    line.queue_most = 200_000.0;
    line.begin(0, 8, 8.0);
    line.begin(1, 1, 8.0);
    line.run(60);
    for _ in 0..3 {
        let (parts, waits) = line.run(60);
        assert!(is_near(parts[1] / parts[0], 1.0) && parts[0] + parts[1] > 0.9, "{parts:?}");
        // 12 kB are 96 ms there.
        assert!(waits < 200.0, "{waits} ms");
    }
}

#[test]
fn a_short_queue_is_filled_no_further_than_it_takes_and_losses_of_the_leg_do_not_slow_it_down() {
    let mut line = Line::new(20.0, 40.0, &[WEIGHT, Service { weight: 3, ..WEIGHT }]);
    // 8 ms, where 10 ms are aimed at: a step of this line carries 25 kB.
    line.queue_most = 45_000.0;
    line.begin(0, 8, 1.0);
    line.begin(1, 1, 1.0);
    line.run(20);
    let before: f64 = line.streams.iter().map(|of| of.lost).sum();
    let (parts, _) = line.run(20);
    let lost = line.streams.iter().map(|of| of.lost).sum::<f64>() - before;
    assert!(is_near(parts[1] / parts[0], 3.0) && parts[0] + parts[1] > 0.9, "{parts:?}");
    assert!(lost < 0.01 * 20.0 * line.rate / 1_448.0, "{lost} segments");
    // One segment in seventeen is lost without a queue, after a second with one.
    let mut carried = Carried::default();
    let mut all = All { rtt: Time::ms(40), rtt_least: Time::ms(40), is_waiting: true, ..All::default() };
    let mut rate = None;
    for look in 0..3_000_u64 {
        all.acked += (rate.unwrap_or(2_500_000.0_f64).min(2_500_000.0) * 0.02) as u64;
        all.retransmits += 2;
        all.rtt = if look < 50 { Time::ms(60) } else { Time::ms(40) };
        rate = carried.look(Time::ms(20 * look), all);
    }
    assert!(rate.is_some_and(|rate| rate > 2_400_000.0), "{rate:?}");
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
    assert_eq!(sharing.look(Time::secs(112), &services[..1], &mut [Lengths::default()], &[]), []);
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
    // Floors that cannot be met count as weights; nobody's floor is more than it wants.
    assert_eq!(divided(6.0, &[wish(1.0, 4.0, all), wish(1.0, 8.0, all)]), [2.0, 4.0]);
    assert_eq!(divided(6.0, &[wish(1.0, 4.0, 1.0), wish(1.0, 0.0, all)]), [1.0, 5.0]);
    assert_eq!(divided(all, &[wish(1.0, 0.0, 7.0)]), [7.0]);
    assert_eq!(divided(5.0, &[]), [0.0; 0]);
}

#[test]
fn in_a_class_with_an_order_the_first_of_streams_alike_goes_first_and_none_stands_still() {
    let mut line = Line::new(20.0, 40.0, &[Service { order: Order::Soonest, ..WEIGHT }]);
    for _ in 0..200 {
        line.lengths[0].moves(0, 50_000_000);
        line.lengths[0].ends(50_000_000);
    }
    line.begin(0, 1, 0.5);
    line.run(2);
    line.begin(0, 9, 1.0);
    line.run(5);
    let (parts, waits) = line.run(10);
    let got: Vec<f64> = line.streams.iter().map(|of| of.got / 10.0 / line.rate).collect();
    assert!(parts[0] > 0.9 && waits < 30.0, "{parts:?}, {waits} ms");
    assert!(got[0] > 3.0 * got[9] && got.iter().all(|part| *part > 0.008), "{got:?}");
}
