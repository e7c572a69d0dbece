//! A transfer computed one round trip at a time: windows as the senders' congestion controls set them (the arithmetic of
//! crate `congestion`, CUBIC as Linux has it), one bottleneck with a drop-tail queue, random loss, a policer. RFC 5681 and
//! RFC 9438 with RFC 6675's recovery: one reduction for all that is lost in a window, and lost segments are retransmitted in
//! the round trips that follow.
//!
//! It stands between the closed forms, which have no slow start and no queue, and the simulator, which has every packet.

use std::sync::Arc;

use ekiden_congestion::{CongestionControl, Tunables, Window, linux_control};
use ekiden_units::{BitRate, Bytes, Time};

use crate::line::HEADERS;

mod bbr;
mod far;
mod random;

use bbr::Bbr;
use far::Far;
use random::Random;

/// The maximum number of computed round trips; what comes after them goes on at the rate of their second half. With several
/// connections each has its part of this number ...
const ROUNDS_MOST: u64 = 8_000;
/// ... but at least this number.
const ROUNDS_LEAST: u64 = 400;
/// The number of acknowledgements per round trip that a control gets: each second segment in slow start, which HyStart
/// measures, and this number afterwards.
const ACKS: u32 = 8;
const ACKS_IN_SLOW_START: u32 = 4_000;
/// Segments sent at once when a connection begins (RFC 6928).
const INITIAL_WINDOW: u32 = 10;
/// The least retransmission timeout of Linux, in seconds.
const RTO_LEAST: f64 = 0.2;
/// The maximum number of computed connections. If there are more, these have their part of the line.
const FLOWS_MOST: u32 = 50;
/// The maximum number of segments lost at random in a window that are drawn one by one. For more, the mean is used.
const DRAWN_MOST: f64 = 64.0;
/// The maximum window, in segments.
const WINDOW_MOST: u32 = 1 << 30;

/// A congestion control of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sender {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC as Linux has it, with HyStart.
    Cubic,
    /// HighSpeed TCP (RFC 3649).
    Hstcp,
    /// Gentle HighSpeed TCP.
    Ghstcp,
    /// The kernel's BBR, about.
    Bbr,
    /// Ekiden's own control for paths that lose packets.
    Far,
}

impl Sender {
    /// Its name in the kernel, in configurations and in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Hstcp => "ekiden_hstcp",
            Self::Ghstcp => "ekiden_ghstcp",
            Self::Bbr => "bbr",
            Self::Far => "ekiden_far",
        }
    }
}

/// A limit on the rate that drops and has no queue: a token bucket, full at the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policer {
    /// Of IP packets.
    pub rate: BitRate,
    /// What passes at once.
    pub burst: Bytes,
}

/// The bottleneck of the connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bottleneck {
    /// The round trip without queues, of packets that take no time to send.
    pub rtt: Time,
    /// Of IP packets.
    pub rate: BitRate,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// The maximum that waits, in bytes of IP packets; drop tail.
    pub buffer: Bytes,
    /// The part of the packets that is lost at random, 0 to 1.
    pub loss: f64,
    /// A policer in front of the queue.
    pub policer: Option<Policer>,
}

/// The senders.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Senders {
    /// Connections at once.
    pub connections: u32,
    /// Of each: the least of send buffer and receive window.
    pub window: Bytes,
    /// Of each.
    pub control: Sender,
}

/// The size of the transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// All that is sent in this time, from the first data segment on.
    Time(Time),
    /// This amount of user data, over all connections.
    Bytes(Bytes),
}

/// The result of a transfer. Its time goes from the sending of the first data segment to the arrival of the last, without
/// the way there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// User data that arrived, in bytes.
    pub bytes: f64,
    /// In seconds.
    pub seconds: f64,
    /// Round trips in which the queue overflowed, a packet was lost at random, or the policer dropped.
    pub overflows: u64,
    /// As [`Outcome::overflows`].
    pub random_losses: u64,
    /// As [`Outcome::overflows`].
    pub policed: u64,
    /// The part of the time in which every connection sent its largest window.
    pub at_window: f64,
}

impl Outcome {
    /// User data, in bit/s.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes * 8.0 / self.seconds } else { 0.0 }
    }
}

/// User data in a full segment over IPv4, with timestamps.
pub fn segment_bytes(mtu: u32) -> u32 {
    mtu.saturating_sub(HEADERS).max(1)
}

/// One transfer. The same `seed` loses the same segments.
pub fn transfer(path: &Bottleneck, senders: &Senders, amount: Amount, seed: u64) -> Outcome {
    let part = f64::from(FLOWS_MOST) / f64::from(senders.connections.max(1));
    if part >= 1.0 {
        return Run::new(path, senders, seed).transfer(amount);
    }
    let of = |whole: u64| ((whole as f64 * part) as u64).max(1);
    let policer = path.policer.map(|all| Policer { rate: BitRate(of(all.rate.0)), burst: Bytes(of(all.burst.0)) });
    let rate = BitRate(of(path.rate.0));
    let path = Bottleneck { rate, buffer: Bytes(of(path.buffer.0)), policer, ..*path };
    let amount = match amount {
        Amount::Bytes(bytes) => Amount::Bytes(Bytes(of(bytes.0))),
        time => time,
    };
    let outcome = Run::new(&path, &Senders { connections: FLOWS_MOST, ..*senders }, seed).transfer(amount);
    Outcome { bytes: outcome.bytes / part, ..outcome }
}

struct Flow {
    control: Box<dyn CongestionControl + Send>,
    /// In the place of `control`.
    bbr: Option<Bbr>,
    /// If `control` is `ekiden_far`.
    far: Option<Far>,
    window: Window,
    /// Segments that were lost and are to be sent again.
    missing: f64,
    /// Segments until the next one that is lost at random.
    until_loss: f64,
    /// The time of its next transmission after a timeout, in seconds.
    wakes: f64,
    /// Segments that are sent besides the window of the next round trip: they were sent before the sender learned of its
    /// loss.
    besides: f64,
}

struct Run {
    /// Segments per second, seconds, segments.
    rate: f64,
    rtt: f64,
    buffer: f64,
    loss: f64,
    /// Segments per second, and the bucket's depth.
    policer: Option<(f64, f64)>,
    tokens: f64,
    /// The length of trains of which a policer has dropped, in segments of the line's time.
    spread: f64,
    /// The largest window, in segments.
    most: u32,
    segment: f64,
    flows: Vec<Flow>,
    random: Random,
    now: f64,
    outcome: Outcome,
}

impl Run {
    fn new(path: &Bottleneck, senders: &Senders, seed: u64) -> Self {
        let mtu = f64::from(path.mtu.max(1));
        let rate = (path.rate.0.max(1) as f64) / 8.0 / mtu;
        let segment = segment_bytes(path.mtu);
        let mut random = Random::new(seed);
        let tunables = Arc::new(Tunables::default());
        let flow = |random: &mut Random| Flow {
            control: linux_control(senders.control.name(), &tunables).expect("each of Sender's names is one"),
            bbr: (senders.control == Sender::Bbr).then(Bbr::new),
            far: (senders.control == Sender::Far).then(|| Far::new(segment)),
            window: Window { cwnd: INITIAL_WINDOW, clamp: WINDOW_MOST, ..Window::default() },
            missing: 0.0,
            until_loss: random.until(path.loss),
            wakes: 0.0,
            besides: 0.0,
        };
        let policer = path.policer.map(|policer| (policer.rate.0 as f64 / 8.0 / mtu, policer.burst.0 as f64 / mtu));
        Self {
            rate,
            rtt: path.rtt.as_secs() + 1.0 / rate,
            buffer: path.buffer.0 as f64 / mtu,
            loss: path.loss,
            policer,
            tokens: policer.map_or(0.0, |policer| policer.1),
            spread: 0.0,
            most: u32::try_from(senders.window.0 / u64::from(segment)).unwrap_or(u32::MAX).clamp(1, WINDOW_MOST),
            segment: f64::from(segment),
            flows: (0..senders.connections.max(1)).map(|_| flow(&mut random)).collect(),
            random,
            now: 0.0,
            outcome: Outcome { bytes: 0.0, seconds: 0.0, overflows: 0, random_losses: 0, policed: 0, at_window: 0.0 },
        }
    }

    fn transfer(mut self, amount: Amount) -> Outcome {
        let (end, all) = match amount {
            Amount::Time(time) => (time.as_secs(), f64::INFINITY),
            Amount::Bytes(bytes) => (f64::INFINITY, bytes.0 as f64 / self.segment),
        };
        let (mut arrived, mut half) = (0.0, (0.0, 0.0));
        let most = (ROUNDS_MOST / self.flows.len() as u64).max(ROUNDS_LEAST);
        for round in 0..most {
            let began = self.now;
            let more = self.round();
            let took = self.now - began;
            // The part of the last round trip that counts.
            let part = ((end - began) / took).min((all - arrived) / more.max(1e-9)).clamp(0.0, 1.0);
            arrived += more * part;
            if part < 1.0 || arrived >= all {
                self.now = began + took * part;
                return self.finish(arrived);
            }
            if round == most / 2 {
                half = (arrived, self.now);
            }
        }
        let rate = ((arrived - half.0) / (self.now - half.1)).max(1e-9);
        let rest = (end - self.now).min((all - arrived) / rate).max(0.0);
        self.outcome.at_window *= 1.0 + rest / self.now;
        self.now += rest;
        self.finish(arrived + rate * rest)
    }

    fn finish(mut self, arrived: f64) -> Outcome {
        self.outcome.bytes = arrived * self.segment;
        self.outcome.seconds = self.now;
        self.outcome.at_window = (self.outcome.at_window / self.now.max(1e-12)).min(1.0);
        self.outcome
    }

    /// One round trip: sends the windows, and processes their fate. Returns the segments that arrived.
    fn round(&mut self) -> f64 {
        let (most, now) = (self.most, self.now);
        let window = |flow: &Flow| if flow.wakes > now { 0.0 } else { f64::from(flow.window.cwnd.clamp(1, most)) };
        let sent: Vec<f64> = self.flows.iter().map(window).collect();
        let total: f64 = sent.iter().sum();
        if total == 0.0 {
            return self.sleep();
        }
        let doubling: f64 =
            self.flows.iter().zip(&sent).filter(|(flow, _)| flow.is_in_slow_start()).map(|(_, n)| n).sum();
        let fills = self.rate * self.rtt;
        // In slow start each acknowledgement sends two segments: half of them wait until the train is over.
        let waiting = (total - fills).max(doubling / 2.0).max(0.0);
        let overflow = (waiting - self.buffer).max(0.0).ceil().min(total - 1.0);
        // What a sender sends until it learns of a loss: it passes while there is room; otherwise it is retransmitted,
        // without another reduction.
        let besides: f64 = self.flows.iter().map(|flow| flow.besides).sum();
        let passes = besides.min((fills + self.buffer - total + overflow).max(0.0));
        let took = self.rtt.max((total - overflow + passes) / self.rate);
        let senders = sent.iter().filter(|n| **n > 0.0).count();
        let policed = self.policed(total - overflow, took, senders);
        let passes = if self.policer.is_some() { passes.min(self.tokens.max(0.0)) } else { passes };
        self.tokens -= passes;
        self.outcome.overflows += u64::from(overflow > 0.0);
        self.outcome.policed += u64::from(policed > 0.0);
        if sent.iter().all(|&n| n >= f64::from(most)) && overflow + policed == 0.0 {
            self.outcome.at_window += took;
        }
        let lost = self.shared(overflow + policed, &sent, total);
        let mut arrived = passes;
        for (number, &n) in sent.iter().enumerate().filter(|(_, n)| **n > 0.0) {
            // What was sent before the first lost segment. A queue that overflows in slow start drops every second one at
            // the end.
            let until = self.flows[number].until_loss - 1.0;
            let until = if lost[number] > 0.0 { until.min(n - 2.0 * lost[number]) } else { until };
            let at_random = self.lost_at_random(number, n);
            self.outcome.random_losses += u64::from(at_random > 0.0);
            let lost = (lost[number] + at_random).min(n);
            arrived += n - lost;
            let queue = (total - fills).max(0.0) / self.rate;
            let again = std::mem::take(&mut self.flows[number].besides)
                * if besides > 0.0 { 1.0 - passes / besides } else { 0.0 };
            let heard = Heard { n, before: until.clamp(0.0, n), lost, took, queue };
            self.heard(number, &heard);
            self.flows[number].missing += again;
        }
        self.now += took;
        arrived
    }

    /// Nothing is sent until the first timeout is over.
    fn sleep(&mut self) -> f64 {
        let wakes = self.flows.iter().map(|flow| flow.wakes).fold(f64::INFINITY, f64::min);
        let slept = wakes - self.now;
        self.now = wakes;
        self.tokens = self.policer.map_or(0.0, |(rate, burst)| (self.tokens + rate * slept).min(burst));
        0.0
    }

    /// The number of segments that the policer drops of `arriving` segments in a round trip. Each sender's window comes as
    /// one train at the line's rate, for a policer spaces nothing; the trains come one after another.
    fn policed(&mut self, arriving: f64, took: f64, senders: usize) -> f64 {
        let Some((rate, burst)) = self.policer else { return 0.0 };
        let parts = senders.max(1) as f64;
        let (train, each) = (arriving / parts, took / parts);
        // Recovery sends half as many in the same time (RFC 6937): afterwards trains are as long as the one that was too
        // long.
        let lasts = (train.max(self.spread) / self.rate).min(each);
        let mut all = 0.0;
        for _ in 0..senders.max(1) {
            let pass = self.tokens + rate * lasts;
            let dropped = (train - pass).max(0.0).floor();
            // A packet that passes with a part of its tokens owes the rest.
            self.tokens = (pass - train + dropped + rate * (each - lasts)).min(burst);
            all += dropped;
        }
        if all > 0.0 {
            self.spread = train;
        }
        all
    }

    /// Which senders lose what a full queue or a policer drops: about in proportion to what each sent, at random; at least
    /// one loses.
    fn shared(&mut self, dropped: f64, sent: &[f64], total: f64) -> Vec<f64> {
        if dropped < sent.len() as f64 * 4.0 && sent.len() > 1 {
            let mut lost = vec![0.0; sent.len()];
            for drop in 0..dropped as u64 {
                // None loses more than it sent.
                let mut at = self.random.part() * (total - drop as f64);
                let hit = sent.iter().zip(&lost).position(|(&n, &lost)| {
                    at -= n - lost;
                    at <= 0.0 && n > lost
                });
                if let Some(hit) = hit {
                    lost[hit] += 1.0;
                }
            }
            return lost;
        }
        sent.iter().map(|&n| dropped * n / total).collect()
    }

    fn lost_at_random(&mut self, number: usize, n: f64) -> f64 {
        if n * self.loss > DRAWN_MOST {
            self.flows[number].until_loss = self.random.until(self.loss);
            return (n * self.loss).round();
        }
        let mut lost = 0.0;
        let mut until = self.flows[number].until_loss;
        while until <= n && lost < n {
            lost += 1.0;
            until += self.random.until(self.loss);
        }
        self.flows[number].until_loss = until - n;
        lost
    }

    /// A sender learns the fate of its segments.
    fn heard(&mut self, number: usize, heard: &Heard) {
        let Heard { n, before, lost, took, queue } = *heard;
        let (now, rtt, flow) = (self.now + took, self.rtt, &mut self.flows[number]);
        if let Some(bbr) = &mut flow.bbr {
            flow.window.cwnd = bbr.next(now, rtt, (n, n - lost, took)) as u32;
            return;
        }
        if let Some(far) = &mut flow.far {
            let rtt = rtt + queue.min(self.buffer / self.rate);
            far.heard((&mut *flow.control, &mut flow.window), (self.now, rtt), (n, lost, took));
            if lost >= n {
                flow.wakes = now + RTO_LEAST.max(rtt);
            }
            return;
        }
        let was_repairing = self.flows[number].missing > 0.0;
        let was_doubling = self.flows[number].is_in_slow_start();
        if !was_repairing && lost < n {
            self.acknowledged(number, heard);
        }
        let (rtt, seen, most) = (self.rtt, self.now + took, self.most);
        let flow = &mut self.flows[number];
        flow.missing = (flow.missing - n).max(0.0) + lost;
        if lost == 0.0 {
            return;
        }
        flow.control.on_rtt(&flow.window, (seen * 1e6) as u64, micros(rtt + queue));
        // The outstanding data counts, not an unused window (RFC 5681, section 3.1).
        let cwnd = flow.window.cwnd.min(most.saturating_mul(2));
        flow.window.ssthresh = flow.control.on_loss(cwnd).max(2);
        if lost >= n {
            flow.control.on_timeout();
            flow.window.cwnd = 1;
            flow.wakes = seen + RTO_LEAST.max(rtt);
            return;
        }
        flow.window.cwnd = flow.window.ssthresh;
        if !was_repairing {
            // Until the sender learns of the loss it sends as before; in recovery it sends the part of the rest that the
            // reduction allows (PRR, RFC 6937).
            let before_it_hears = if was_doubling { 2.0 * before } else { before };
            flow.besides = (before_it_hears - before * f64::from(flow.window.cwnd) / n).max(0.0);
        }
    }

    /// The acknowledgements of the segments that were sent before any lost one.
    fn acknowledged(&mut self, number: usize, heard: &Heard) {
        let Heard { n, before, took, queue, .. } = *heard;
        let (rate, rtt, now, most) = (self.rate, self.rtt, self.now, self.most);
        let share = self.flows.len() as f64;
        let flow = &mut self.flows[number];
        let is_doubling = flow.is_in_slow_start();
        let acks = if is_doubling { (before as u32).div_ceil(2).min(ACKS_IN_SLOW_START) } else { ACKS };
        let acks = acks.min(before as u32);
        let train = if is_doubling { n * share / rate } else { took };
        let mut told = 0;
        for number in 1..=acks {
            let part = before / n * f64::from(number) / f64::from(acks);
            let upto = (n * part) as u32;
            let waits = if is_doubling { queue.max(train / 2.0 * part) } else { queue };
            let at = now + rtt + if is_doubling { train * part } else { took * (part - 1.0) };
            flow.control.on_rtt(&flow.window, (at * 1e6) as u64, micros(rtt + waits));
            let cwnd = flow.window.cwnd;
            // An unused window does not grow; in slow start it grows up to twice what is used (is_cwnd_limited of Linux).
            let limits = if cwnd < flow.window.ssthresh { 2.0 * n } else { n.max(f64::from(most)) };
            if f64::from(cwnd) <= limits {
                flow.control.on_ack(&mut flow.window, upto - told);
            }
            told = upto;
        }
    }
}

/// What a sender learns of a round trip: of `n` segments the first `before` arrived, and `lost` of the others did not. Times
/// in seconds.
#[derive(Clone, Copy)]
struct Heard {
    n: f64,
    before: f64,
    lost: f64,
    took: f64,
    queue: f64,
}

fn micros(seconds: f64) -> u32 {
    (seconds * 1e6).min(4e9) as u32
}

impl Flow {
    fn is_in_slow_start(&self) -> bool {
        self.window.cwnd < self.window.ssthresh && self.missing == 0.0 && self.bbr.is_none() && self.far.is_none()
    }
}

#[cfg(test)]
mod tests;
