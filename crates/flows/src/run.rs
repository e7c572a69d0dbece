//! A run: for each second, what is asked, opened, carried and seen.

use std::collections::VecDeque;

use ekiden_overlay::judged::Judged;
use ekiden_overlay::leg::Look;
use ekiden_overlay::path::{Class, DataDirection};
use ekiden_units::Time;

use crate::nodes::{Nodes, StreamPath};
use crate::outcome::{AtEnd, Finished, Log, Opened, Outcome, Policy, Rates};
use crate::peers::{Ron, best_rate, shortest_rtt};
use crate::rules::{ANSWERS_WITHIN, BROKEN, OPENS_MOST, STALLED};
use crate::share::{Ask, Got, Shared};
use crate::sites::Sites;
use crate::traffic::{Offered, of_second, slow_start};
use crate::world::World;

/// User data in a segment, in bits.
const SEGMENT_BITS: f64 = 1_448.0 * 8.0;
const STEP: Time = Time::secs(1);

/// Runs the sites' streams over the paths of a policy. Takes time in proportion to the streams; a site's memory is its open streams and a
/// line for each that was opened.
pub fn run(sites: &Sites, policy: Policy) -> Outcome {
    let mut run = Run::new(sites, policy);
    let seconds = sites.duration.0 / STEP.0;
    for second in 0..seconds {
        run.step(second);
    }
    run.finish()
}

/// A stream that is open.
struct Stream {
    offered: Offered,
    place: StreamPath,
    /// The legs in the direction of the data: both ends.
    legs: Vec<(usize, usize)>,
    ask: Ask,
    got: Got,
    rtt_s: f64,
    /// The rate that the lying nodes on its path let through, in bit/s.
    through: f64,
    opened: Time,
    moved: f64,
    stalled: Time,
    judged: Judged,
}

/// A stream that is to be opened again.
struct Again {
    at: Time,
    offered: Offered,
    /// The path that failed, and the leg of it that failed to open.
    failed: (StreamPath, (usize, usize)),
    /// The paths that are left to try.
    rest: VecDeque<StreamPath>,
}

struct Run<'a> {
    sites: &'a Sites,
    policy: Policy,
    world: World,
    nodes: Nodes<'a>,
    ron: Ron,
    streams: Vec<Stream>,
    again: Vec<Again>,
    /// The rate of one stream alone on each leg, in bit/s.
    alone: Vec<f64>,
    /// The rate of one more stream on each leg, in bit/s.
    offers: Vec<f64>,
    log: Log,
}

impl<'a> Run<'a> {
    fn new(sites: &'a Sites, policy: Policy) -> Self {
        let n = sites.sites.len();
        Self {
            sites,
            policy,
            world: World::new(sites),
            nodes: Nodes::new(sites),
            ron: Ron::new(sites.seed, sites.noise.as_f64(), n),
            streams: Vec::new(),
            again: Vec::new(),
            alone: vec![0.0; n * n],
            offers: vec![0.0; n * n],
            log: Log::new(n),
        }
    }

    fn step(&mut self, second: u64) {
        let now = Time(second * STEP.0);
        self.world.at(now);
        for leg in 0..self.log.was_cut.len() {
            self.log.was_cut[leg] |= self.world.leg(leg).rate <= 0.0;
        }
        let shared = self.shared();
        self.alone = self.least(&shared.carries);
        self.offers = self.offers(&shared);
        if now == self.sites.warm_up {
            self.log.warm(self.control_bytes(), self.nodes.changes().0);
        }
        let due: Vec<Again>;
        (due, self.again) = std::mem::take(&mut self.again).into_iter().partition(|again| again.at <= now);
        for Again { offered, failed: (place, leg), .. } in &due {
            if let Some(taken) = &place.taken {
                self.nodes.open_failed(offered.near, &taken.path, *leg, now);
            }
        }
        match self.policy {
            Policy::Ekiden => self.nodes.ask_what_is_due(&self.world, now),
            Policy::Ron => self.ron.probe(&self.offers, now),
            _ => {}
        }
        for Again { offered, mut rest, .. } in due {
            while rest.len() > 1 && self.nodes.fails_on(offered.near, &rest[0], now) {
                rest.pop_front();
            }
            self.open(offered, rest, now);
        }
        for offered in of_second(self.sites, second) {
            let places = self.places(&offered, now);
            self.open(offered, places, now);
        }
        self.carry(&shared, now);
        self.look(now);
        self.end(now + STEP);
    }

    /// All legs, and the lines of the sites: what goes out, and what comes in.
    fn shared(&self) -> Shared {
        let n = self.world.sites;
        let lines = || self.sites.sites.iter().map(|site| site.line.map_or(f64::INFINITY, |line| line.0 as f64));
        let legs = (0..n * n).map(|leg| self.world.leg(leg).rate);
        Shared { carries: legs.chain(lines()).chain(lines()).collect() }
    }

    fn over(&self, from: usize, to: usize) -> [usize; 3] {
        let n = self.world.sites;
        [self.world.number(from, to), n * n + from, n * n + n + to]
    }

    fn offers(&self, shared: &Shared) -> Vec<f64> {
        let (asks, got): (Vec<_>, Vec<_>) = self.streams.iter().map(|stream| (stream.ask.clone(), stream.got)).unzip();
        self.least(&shared.offers(&asks, &got))
    }

    /// The rate of a stream on each leg, given its rates on everything that is shared.
    fn least(&self, each: &[f64]) -> Vec<f64> {
        let n = self.world.sites;
        let of = |leg: usize| {
            let least = self.over(leg / n, leg % n).into_iter().map(|of| each[of]).fold(f64::INFINITY, f64::min);
            if leg / n == leg % n { 0.0 } else { least.min(self.world.leg(leg).stream) }
        };
        (0..n * n).map(of).collect()
    }

    /// The paths of a new stream, to be tried one after the other.
    fn places(&mut self, offered: &Offered, now: Time) -> VecDeque<StreamPath> {
        let (from, to) = ends(offered);
        let by = |path: Vec<usize>| {
            let path = if from == offered.near { path } else { path.into_iter().rev().collect() };
            vec![StreamPath { path, why: None, taken: None }; 1 + OPENS_MOST]
        };
        let places = match (self.policy, offered.class) {
            (Policy::Direct, _) => by(vec![from, to]),
            (Policy::ShortestRtt, _) | (Policy::Oracle, Class::Interactive) => {
                by(shortest_rtt(&self.world, from, to).0)
            }
            (Policy::Oracle, Class::Bulk) => by(best_rate(&self.offers, self.world.sites, from, to, 2).0),
            (Policy::Ron, _) => by(self.ron.best(from, to)),
            (Policy::Ekiden, _) => {
                let (places, change) = self.nodes.place(offered, now);
                self.log.changes.extend(change);
                places
            }
        };
        places.into()
    }

    fn open(&mut self, offered: Offered, mut places: VecDeque<StreamPath>, now: Time) {
        let Some(place) = places.pop_front() else { return };
        let n = self.world.sites;
        let is_up = offered.direction == DataDirection::Up;
        let (from, to) = ends(&offered);
        let best = best_rate(&self.offers, n, from, to, 2);
        let shortest = shortest_rtt(&self.world, from, to);
        let mut path = place.path.clone();
        let failed = path
            .windows(2)
            .map(|leg| (leg[0], leg[1]))
            .find(|leg| self.world.is_cut(leg.0, leg.1) || self.world.is_cut(leg.1, leg.0));
        if !is_up {
            path.reverse();
        }
        let legs: Vec<_> = path.windows(2).map(|leg| (leg[0], leg[1])).collect();
        let through = self.let_through(&place);
        let rates = |of: &[f64], best: f64| {
            let own = legs.iter().map(|leg| of[self.world.number(leg.0, leg.1)]).fold(f64::INFINITY, f64::min);
            Rates { own: own.min(through), direct: of[self.world.number(from, to)], best }
        };
        let rtts = || legs.iter().map(|leg| self.world.rtt_s(leg.0, leg.1));
        let opened = Opened {
            at: now,
            near: offered.near,
            far: offered.far,
            class: offered.class,
            direction: offered.direction,
            relays: place.path[1..place.path.len() - 1].to_vec(),
            why: place.why,
            failed: failed.is_some(),
            alone: rates(&self.alone, best_rate(&self.alone, n, from, to, 2).1),
            beside: rates(&self.offers, best.1),
            rtt_s: rtts().sum(),
            shortest_s: shortest.1,
        };
        self.log.opened.push(opened);
        if let Some(failed) = failed {
            self.again.push(Again { at: now + ANSWERS_WITHIN, offered, failed: (place, failed), rest: places });
            return;
        }
        if let Some(taken) = &place.taken {
            self.nodes.opened(offered.near, &taken.path, now);
        }
        let rtt_s = rtts().fold(0.0, f64::max);
        let over = legs.iter().flat_map(|leg| self.over(leg.0, leg.1)).collect();
        self.streams.push(Stream {
            offered,
            place,
            legs,
            ask: Ask { most: 0.0, over },
            got: Got::default(),
            rtt_s,
            through,
            opened: now,
            moved: 0.0,
            stalled: now,
            judged: Judged::new(now),
        });
    }

    /// The rate that the lying nodes on a path let through, in bit/s.
    fn let_through(&self, place: &StreamPath) -> f64 {
        let relays = place.path[1..place.path.len() - 1].iter();
        relays
            .filter_map(|relay| self.sites.sites[*relay].lies)
            .fold(f64::INFINITY, |least, lies| least.min(lies.0 as f64))
    }

    /// Each stream gets its share for a second.
    fn carry(&mut self, shared: &Shared, now: Time) {
        for stream in &mut self.streams {
            let legs = stream.legs.iter().map(|leg| self.world.leg(self.world.number(leg.0, leg.1)).stream);
            // In the middle of the second.
            let age = now.since(stream.opened) + Time(STEP.0 / 2);
            stream.ask.most = legs.fold(slow_start(age, stream.rtt_s), f64::min).min(stream.through);
        }
        let asks: Vec<Ask> = self.streams.iter().map(|stream| stream.ask.clone()).collect();
        let got = shared.fairly(&asks);
        let mut relayed = vec![0.0; self.world.sites];
        for (stream, got) in self.streams.iter_mut().zip(got) {
            stream.got = got;
            stream.judged.carried(got.rate);
            stream.moved += got.rate / 8.0 * STEP.as_secs();
            if got.rate > 0.0 {
                stream.stalled = now;
            }
            let path = &stream.place.path;
            path[1..path.len() - 1].iter().for_each(|relay| relayed[*relay] += got.rate);
        }
        for (site, rate) in relayed.iter().enumerate() {
            let load = self.sites.sites[site].relays_at_most.map_or(0.0, |most| rate / most.0 as f64);
            self.nodes.relays(site, load, now);
        }
        self.log.relay(now, &relayed);
    }

    /// The senders look at their connections.
    fn look(&mut self, now: Time) {
        let n = self.world.sites;
        // For each leg: the rates of the streams that it limits, their number, the greatest rate of all, the sum of all; and
        // whether one stands still.
        let mut seen = vec![(0.0, 0.0, 0.0_f64, 0.0, false); n * n];
        for stream in &self.streams {
            let rate = stream.got.rate;
            for (from, to) in &stream.legs {
                let number = self.world.number(*from, *to);
                let leg = self.world.leg(number);
                let limits = match stream.got.limit {
                    Some(limit) => self.over(*from, *to).contains(&limit),
                    None => leg.stream <= rate && !leg.is_window,
                };
                let of = &mut seen[number];
                if limits {
                    (of.0, of.1) = (of.0 + rate, of.1 + 1.0);
                }
                (of.2, of.3) = (of.2.max(rate), of.3 + rate);
                of.4 |= leg.rate <= 0.0 && now.since(stream.stalled) >= STALLED;
            }
        }
        for (number, (limited, count, most, all, is_still)) in seen.into_iter().enumerate() {
            let (from, to) = (number / n, number % n);
            if is_still {
                self.nodes.fail(from, to, now);
            }
            if most <= 0.0 {
                continue;
            }
            let leg = self.world.leg(number);
            let sent = (all * STEP.as_secs() / SEGMENT_BITS).ceil();
            let look = Look {
                span_s: STEP.as_secs(),
                rtt_s: Some(leg.rtt_s),
                rate_bit_s: (count > 0.0).then(|| limited / count),
                together_bit_s: limited,
                carried_bit_s: most,
                sent: sent as u64,
                resent: (sent * leg.loss).round() as u64,
            };
            self.nodes.see(from, to, &look, now);
        }
    }

    /// Ends streams that have moved all, or stand still for too long; judges those that have run for a while.
    fn end(&mut self, now: Time) {
        let mut still = Vec::with_capacity(self.streams.len());
        for mut stream in std::mem::take(&mut self.streams) {
            let is_done = stream.moved >= stream.offered.bytes;
            let is_broken = !is_done && now.since(stream.stalled) > BROKEN;
            let age = now.since(stream.opened);
            if let Some(taken) = &stream.place.taken
                && let Some(part) = stream.judged.says(taken, is_done || is_broken, now)
            {
                self.nodes.judge(stream.offered.near, taken, part, now);
            }
            if is_done || is_broken {
                // It used only the necessary part of the last second.
                let over_s = (stream.moved - stream.offered.bytes).max(0.0) * 8.0 / stream.got.rate.max(1.0);
                self.log.finished.push(Finished {
                    opened: stream.opened,
                    class: stream.offered.class,
                    broken: is_broken,
                    bytes: stream.moved.min(stream.offered.bytes),
                    took_s: (age.as_secs() - over_s).max(stream.rtt_s),
                });
            } else {
                still.push(stream);
            }
        }
        self.streams = still;
    }

    fn control_bytes(&self) -> Vec<f64> {
        match self.policy {
            Policy::Ron => self.ron.bytes.clone(),
            _ => self.nodes.control_bytes(),
        }
    }

    fn finish(self) -> Outcome {
        let control = self.control_bytes();
        let in_use = self.nodes.in_use(&self.world);
        let n = self.world.sites;
        let leg = |(number, paths): (usize, usize)| {
            let (from, to, loss) = (number / n, number % n, self.world.leg(number).loss);
            AtEnd { from, to, rate_bit_s: self.alone[number], loss, was_cut: self.log.was_cut[number], paths }
        };
        let legs = in_use.into_iter().enumerate().filter(|(number, _)| number / n != number % n).map(leg).collect();
        Outcome::of(self.sites, self.policy, self.log, legs, &control, self.nodes.changes())
    }
}

/// Where the data of a stream begins and ends.
fn ends(offered: &Offered) -> (usize, usize) {
    match offered.direction {
        DataDirection::Up => (offered.near, offered.far),
        DataDirection::Down => (offered.far, offered.near),
    }
}
