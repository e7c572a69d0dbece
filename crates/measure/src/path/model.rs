//! A path in virtual time, for tests: a slow start over a line, packet by packet, as both ends would see it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use ekiden_record::{EndSettings, Way};

use crate::client::Measured;
use crate::load::Seen;
use crate::message::{Row, StreamEnd};
use crate::probe::Answer;

const MSS: u64 = 1_448;
/// The preamble, which is the first segment, and what the last one lacks.
const PREAMBLE: u64 = 23;
const LACKS: u64 = 900;
const PACKET: f64 = 1_500.0;
const PROBE: f64 = 68.0;
const PROBE_EVERY_US: f64 = 20_000.0;
const LOOK_US: f64 = 200.0;
const LONGEST_US: f64 = 5e6;
/// When the load begins by the near end's clock, in microseconds.
const BEGAN_US: f64 = 1e6;

/// A token bucket: a rate in bit/s and its depth in bytes.
#[derive(Clone, Copy)]
pub struct Bucket {
    pub rate_bit_s: f64,
    pub depth_bytes: f64,
}

/// What lies between the ends.
#[derive(Clone, Copy)]
pub struct Path {
    pub rate_bit_s: f64,
    pub rtt_us: f64,
    pub buffer_bytes: f64,
    /// Drops, in front of the line.
    pub policer: Option<Bucket>,
    /// Delays, behind the line.
    pub shaper: Option<Bucket>,
    /// Parts of the packets.
    pub lost: f64,
    pub late: f64,
    /// The most that a packet is delayed by chance, and that a late one is delayed, in microseconds.
    pub jitter_us: f64,
    pub late_us: f64,
    /// A window that losses do not change, in segments, instead of Reno's.
    pub heedless: Option<f64>,
    pub seed: u64,
}

impl Path {
    pub const PLAIN: Self = Self {
        rate_bit_s: 20e6,
        rtt_us: 40_000.0,
        buffer_bytes: 100_000.0,
        policer: None,
        shaper: None,
        lost: 0.0,
        late: 0.0,
        jitter_us: 0.0,
        late_us: 3_000.0,
        heedless: None,
        seed: 1,
    };

    pub fn load(self) -> Measured {
        Run::new(self).run()
    }
}

/// User data in so many segments, in bytes.
fn payload(segments: u64) -> u64 {
    segments.checked_sub(1).map_or(0, |more| PREAMBLE + more * MSS)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Came(u64),
    Acknowledged(u64),
    Probe,
}

/// Tokens in a bucket, and when they were counted.
struct Tokens {
    bucket: Bucket,
    bytes: f64,
    at_us: f64,
}

impl Tokens {
    fn new(bucket: Bucket) -> Self {
        Self { bucket, bytes: bucket.depth_bytes, at_us: 0.0 }
    }

    fn fill(&mut self, at_us: f64) {
        let more = (at_us - self.at_us).max(0.0) * self.bucket.rate_bit_s / 8e6;
        self.bytes = (self.bytes + more).min(self.bucket.depth_bytes);
        self.at_us = self.at_us.max(at_us);
    }
}

struct Run {
    path: Path,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    random: u64,
    /// When the line is free, in microseconds.
    free_us: f64,
    policer: Option<Tokens>,
    shaper: Option<Tokens>,
    sent_us: Vec<f64>,
    arrived: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
    resent: BTreeMap<u64, f64>,
    to_resend: BTreeSet<u64>,
    in_order: u64,
    cwnd: f64,
    ssthresh: f64,
    first_loss_us: Option<f64>,
    /// When something was last acknowledged.
    last_us: f64,
    rtt_min_us: f64,
    sender: Row,
    receiver: Row,
    senders: Vec<Row>,
    receivers: Vec<Row>,
    answers: Vec<Answer>,
}

impl Run {
    fn new(path: Path) -> Self {
        Self {
            path,
            events: BinaryHeap::new(),
            random: path.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            free_us: 0.0,
            policer: path.policer.map(Tokens::new),
            shaper: path.shaper.map(Tokens::new),
            sent_us: Vec::new(),
            arrived: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            resent: BTreeMap::new(),
            to_resend: BTreeSet::new(),
            in_order: 0,
            cwnd: 10.0,
            ssthresh: f64::INFINITY,
            first_loss_us: None,
            last_us: 0.0,
            rtt_min_us: f64::INFINITY,
            sender: Row::default(),
            receiver: Row::default(),
            senders: Vec::new(),
            receivers: vec![Row::default()],
            answers: Vec::new(),
        }
    }

    /// A number between 0 and 1 (xorshift64).
    fn draw(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// When a packet that is sent now arrives; `None` if it is lost.
    fn carry(&mut self, at_us: f64, bytes: f64) -> Option<f64> {
        if let Some(tokens) = &mut self.policer {
            tokens.fill(at_us);
            if tokens.bytes < bytes {
                return None;
            }
            tokens.bytes -= bytes;
        }
        let queued = (self.free_us - at_us).max(0.0) * self.path.rate_bit_s / 8e6;
        // What is being sent has left the buffer.
        if queued > self.path.buffer_bytes || self.draw() < self.path.lost {
            return None;
        }
        self.free_us = self.free_us.max(at_us) + bytes * 8e6 / self.path.rate_bit_s;
        let mut out_us = self.free_us;
        if let Some(tokens) = &mut self.shaper {
            tokens.fill(out_us);
            tokens.bytes -= bytes;
            out_us += (-tokens.bytes).max(0.0) * 8e6 / tokens.bucket.rate_bit_s;
        }
        let is_late = self.draw() < self.path.late;
        let late_us = self.draw() * self.path.jitter_us + if is_late { self.path.late_us } else { 0.0 };
        Some(out_us + self.path.rtt_us / 2.0 + late_us)
    }

    fn at(&mut self, at_us: f64, event: Event) {
        self.events.push(Reverse(((at_us * 1e3) as u64, event)));
    }

    fn send(&mut self, now_us: f64) {
        let bdp = self.path.rate_bit_s * self.path.rtt_us / 8e6;
        let most = (10.0 * bdp).max(300_000.0);
        loop {
            let in_flight = self.sent_us.len() - self.acknowledged.len() - self.to_resend.len();
            let is_over = self.sent_us.len() as f64 * PACKET > most
                || self.first_loss_us.is_some_and(|first_us| {
                    self.path.heedless.is_none() && now_us > first_us + 3.0 * self.path.rtt_us + 50_000.0
                });
            if in_flight as f64 >= self.cwnd || (is_over && self.to_resend.is_empty()) {
                return;
            }
            let number = match self.to_resend.pop_first() {
                Some(number) => {
                    self.resent.insert(number, now_us);
                    self.sender.retransmits += 1;
                    number
                }
                None => {
                    self.sent_us.push(now_us);
                    self.sent_us.len() as u64 - 1
                }
            };
            if let Some(arrives_us) = self.carry(now_us, PACKET) {
                self.at(arrives_us, Event::Came(number));
            }
        }
    }

    fn acknowledge(&mut self, now_us: f64, number: u64) {
        if !self.resent.contains_key(&number) {
            let rtt_us = now_us - self.sent_us[number as usize];
            self.rtt_min_us = self.rtt_min_us.min(rtt_us);
            self.sender.rtt_us = rtt_us as u32;
        }
        self.sender.delivered += 1;
        self.acknowledged.insert(number);
        self.to_resend.remove(&number);
        self.last_us = now_us;
        self.miss(now_us);
        match self.path.heedless {
            Some(most) => self.cwnd = (self.cwnd + 1.0).min(most),
            None if self.cwnd < self.ssthresh => self.cwnd += 1.0,
            None => self.cwnd += 1.0 / self.cwnd,
        }
        let mut in_order = self.sender.kernel_bytes.div_ceil(MSS);
        while self.acknowledged.contains(&in_order) {
            in_order += 1;
        }
        self.sender.kernel_bytes = payload(in_order);
    }

    /// Finds what was lost: what others overtook, and what was sent again long ago; everything, if nothing is acknowledged for long.
    fn miss(&mut self, now_us: f64) {
        let is_silent = now_us > self.last_us + 200_000.0 + 2.0 * f64::from(self.sender.rtt_us);
        let highest = match is_silent {
            true => self.sent_us.len() as u64,
            false => self.acknowledged.last().copied().unwrap_or(0).saturating_sub(3),
        };
        if is_silent {
            self.last_us = now_us;
        }
        let patience_us = 1.5 * f64::from(self.sender.rtt_us);
        let is_under_way = |number: &u64| self.resent.get(number).is_some_and(|at_us| now_us < at_us + patience_us);
        let missing =
            (self.sender.kernel_bytes.div_ceil(MSS)..highest).filter(|number| !self.acknowledged.contains(number));
        let missing: Vec<_> = missing.filter(|number| !is_under_way(number)).collect();
        self.to_resend.extend(&missing);
        if !missing.is_empty() && self.first_loss_us.is_none() {
            self.first_loss_us = Some(now_us);
            self.ssthresh = (self.cwnd / 2.0).max(2.0);
            if self.path.heedless.is_none() {
                self.cwnd = self.ssthresh;
            }
        }
    }

    fn came(&mut self, now_us: f64, number: u64) {
        self.receiver.delivered += 1;
        if self.arrived.insert(number) && number != self.in_order {
            self.receiver.retransmits += 1;
        }
        while self.arrived.contains(&self.in_order) {
            self.in_order += 1;
        }
        self.receiver.kernel_bytes = payload(self.in_order);
        self.receiver.at_us = ((now_us / LOOK_US).ceil() * LOOK_US) as u64;
        self.receivers.push(self.receiver);
        self.at(now_us + self.path.rtt_us / 2.0, Event::Acknowledged(number));
    }

    fn run(mut self) -> Measured {
        for probe in 0..25 {
            let sent_us = BEGAN_US - (25 - probe) as f64 * PROBE_EVERY_US;
            let rtt_us = self.path.rtt_us + self.draw() * self.path.jitter_us;
            let ns = |us: f64| (us * 1e3) as u64;
            let answer = Answer { sent_ns: ns(sent_us), there_ns: 0, back_ns: ns(sent_us + rtt_us) };
            self.answers.push(answer);
        }
        self.answers.retain(|answer| answer.back_ns as f64 <= BEGAN_US * 1e3);
        self.send(0.0);
        self.at(1.0, Event::Probe);
        while let Some(Reverse((at_ns, event))) = self.events.pop() {
            let now_us = at_ns as f64 / 1e3;
            match event {
                Event::Came(number) => self.came(now_us, number),
                Event::Acknowledged(number) => self.acknowledge(now_us, number),
                Event::Probe => {
                    if let Some(there_us) = self.carry(now_us, PROBE) {
                        let [sent_ns, back_ns] =
                            [now_us, there_us + self.path.rtt_us / 2.0].map(|us| ((BEGAN_US + us) * 1e3) as u64);
                        self.answers.push(Answer { sent_ns, there_ns: 0, back_ns });
                    }
                    if self.acknowledged.len() < self.sent_us.len() && now_us < LONGEST_US {
                        self.at(now_us + PROBE_EVERY_US, Event::Probe);
                        self.miss(now_us);
                    }
                }
            }
            self.send(now_us);
            self.look(now_us);
        }
        self.measured()
    }

    fn look(&mut self, now_us: f64) {
        self.sender.at_us = ((now_us / LOOK_US).ceil() * LOOK_US) as u64;
        self.sender.sent_bytes = payload(self.sent_us.len() as u64);
        self.sender.lost = self.to_resend.len() as u32;
        self.sender.cwnd = self.cwnd as u32;
        self.sender.unacked = (self.sent_us.len() - self.acknowledged.len()) as u32;
        self.sender.rtt_min_us = if self.rtt_min_us.is_finite() { self.rtt_min_us as u32 } else { 0 };
        self.senders.push(self.sender);
    }

    fn measured(self) -> Measured {
        let end = |bytes: u64| StreamEnd {
            bytes,
            mss_bytes: MSS as u32,
            path_mtu_bytes: 1_500,
            late_us: vec![50; 100],
            ..StreamEnd::default()
        };
        let most = payload(self.sent_us.len() as u64).saturating_sub(LACKS);
        let seen = |mut rows: Vec<Row>| {
            for row in &mut rows {
                row.sent_bytes = row.sent_bytes.min(most);
                row.kernel_bytes = row.kernel_bytes.min(most);
            }
            let end = end(rows.last().map_or(0, |row| row.kernel_bytes));
            vec![Seen { way: Way::Forth, stream: 0, end, rows }]
        };
        Measured {
            from: ([127, 0, 0, 1], 1).into(),
            far: EndSettings::default(),
            near_seen: seen(self.senders),
            far_seen: seen(self.receivers),
            answers: self.answers,
            began_ns: (BEGAN_US * 1e3) as u64,
            ended_ns: u64::MAX,
            bytes_most: None,
        }
    }
}
