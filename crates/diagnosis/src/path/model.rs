//! A path in virtual time, for tests: a slow start over a line, packet by packet, as both ends would see it.

mod bbr;
mod line;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use ekiden_record::{EndSettings, Way};

use crate::latency::Answer;
use crate::measured::Measured;
use ekiden_measure_proto::message::{Row, Segments, StreamEnd};
use ekiden_measure_proto::seen::Seen;

use bbr::Bbr;
use line::Line;
pub use line::{Bucket, Heedless, Path};

/// What the devices at both ends carry.
const MTU: u32 = 1_500;
/// What the last segment lacks.
const LACKS: u64 = 900;
const PROBE: f64 = 68.0;
const PROBE_EVERY_US: f64 = 20_000.0;
const LOOK_US: f64 = 200.0;
const LONGEST_US: f64 = 5e6;
/// When the load begins by the near end's clock, in microseconds.
const BEGAN_US: f64 = 1e6;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Came(u64),
    Acknowledged(u64),
    Probe,
    /// The next packet of a sender that paces.
    Send,
}

impl Path {
    pub fn load(self) -> Measured {
        self.load_and_tell().0
    }

    /// A load, and whether the policer dropped the first packet that was lost.
    pub fn load_and_tell(self) -> (Measured, bool) {
        Run::new(self).run()
    }
}

struct Run {
    path: Path,
    line: Line,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// When a sender that paces is to send next.
    send_us: f64,
    bbr: Option<Bbr>,
    sent_us: Vec<f64>,
    arrived: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
    /// Sent, not acknowledged, and not to be sent again.
    under_way: BTreeSet<u64>,
    resent: BTreeMap<u64, f64>,
    to_resend: BTreeSet<u64>,
    /// Found missing and not acknowledged, sent again or not.
    lost: BTreeSet<u64>,
    in_order: u64,
    cwnd: f64,
    ssthresh: f64,
    first_loss_us: Option<f64>,
    /// When something was last acknowledged.
    last_us: f64,
    rtt_min_us: f64,
    smoothed_us: f64,
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
            line: Line::new(path),
            events: BinaryHeap::new(),
            send_us: 0.0,
            bbr: matches!(path.heedless, Some(Heedless::Bbr)).then(Bbr::default),
            sent_us: Vec::new(),
            arrived: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            under_way: BTreeSet::new(),
            resent: BTreeMap::new(),
            to_resend: BTreeSet::new(),
            lost: BTreeSet::new(),
            in_order: 0,
            cwnd: 10.0,
            ssthresh: f64::INFINITY,
            first_loss_us: None,
            last_us: 0.0,
            rtt_min_us: f64::INFINITY,
            smoothed_us: 0.0,
            sender: Row::default(),
            receiver: Row::default(),
            senders: Vec::new(),
            receivers: vec![Row::default()],
            answers: Vec::new(),
        }
    }

    fn at(&mut self, at_us: f64, event: Event) {
        self.events.push(Reverse(((at_us * 1e3) as u64, event)));
    }

    fn send(&mut self, now_us: f64) {
        let bdp = self.path.rate_bit_s * self.path.rtt_us / 8e6;
        let most = (10.0 * bdp).max(300_000.0);
        loop {
            let in_flight = self.under_way.len();
            let is_over = self.sent_us.len() as f64 * self.path.packet() > most
                || self.first_loss_us.is_some_and(|first_us| {
                    self.path.heedless.is_none() && now_us > first_us + 3.0 * self.path.rtt_us + 50_000.0
                });
            if in_flight as f64 >= self.cwnd || (is_over && self.to_resend.is_empty()) {
                return;
            }
            if let Some(bbr) = &mut self.bbr
                && let Err(at_us) = bbr.may_send(now_us)
            {
                if at_us > self.send_us {
                    self.send_us = at_us;
                    self.at(at_us, Event::Send);
                }
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
            self.under_way.insert(number);
            if let Some(bbr) = &mut self.bbr {
                bbr.sent(number, now_us, self.sender.delivered);
            }
            if let Some(arrives_us) = self.line.carry(now_us, self.path.packet()) {
                self.at(arrives_us, Event::Came(number));
            }
        }
    }

    fn acknowledge(&mut self, now_us: f64, number: u64) {
        if !self.resent.contains_key(&number) {
            let rtt_us = now_us - self.sent_us[number as usize];
            self.rtt_min_us = self.rtt_min_us.min(rtt_us);
            // RFC 6298, 2.3.
            self.smoothed_us += if self.smoothed_us == 0.0 { rtt_us } else { (rtt_us - self.smoothed_us) / 8.0 };
            self.sender.rtt_us = self.smoothed_us as u32;
        }
        self.sender.delivered += 1;
        self.acknowledged.insert(number);
        self.under_way.remove(&number);
        self.to_resend.remove(&number);
        self.lost.remove(&number);
        self.last_us = now_us;
        self.miss(now_us);
        if let Some(bbr) = &mut self.bbr {
            self.cwnd = bbr.acknowledged(number, now_us, self.sender.delivered, self.under_way.len() as f64);
        }
        match self.path.heedless {
            Some(Heedless::Bbr) => {}
            Some(Heedless::Window(most)) => self.cwnd = (self.cwnd + 1.0).min(most),
            None if self.cwnd < self.ssthresh => self.cwnd += 1.0,
            None => self.cwnd += 1.0 / self.cwnd,
        }
        let mut in_order = self.sender.kernel_bytes.div_ceil(self.path.mss);
        while self.acknowledged.contains(&in_order) {
            in_order += 1;
        }
        self.sender.kernel_bytes = self.path.payload(in_order);
    }

    /// Finds what was lost: what others overtook, and what was sent again long ago; everything, if nothing is acknowledged for long.
    fn miss(&mut self, now_us: f64) {
        // RFC 6298, 2.1: a second until a round trip is known.
        let patience_us = if self.sender.rtt_us == 0 { 1e6 } else { 200_000.0 + 2.0 * f64::from(self.sender.rtt_us) };
        let is_silent = now_us > self.last_us + patience_us;
        let highest = match is_silent {
            true => self.sent_us.len() as u64,
            false => self.acknowledged.last().copied().unwrap_or(0).saturating_sub(3),
        };
        if is_silent {
            self.last_us = now_us;
        }
        let patience_us = 1.5 * f64::from(self.sender.rtt_us);
        let is_under_way = |number: &u64| self.resent.get(number).is_some_and(|at_us| now_us < at_us + patience_us);
        let missing: Vec<_> = self.under_way.range(..highest).copied().filter(|number| !is_under_way(number)).collect();
        for number in &missing {
            self.under_way.remove(number);
        }
        self.to_resend.extend(&missing);
        self.lost.extend(&missing);
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
        self.receiver.kernel_bytes = self.path.payload(self.in_order);
        self.receiver.at_us = ((now_us / LOOK_US).ceil() * LOOK_US) as u64;
        self.receivers.push(self.receiver);
        let back_us = self.line.back(now_us);
        self.at(back_us, Event::Acknowledged(number));
    }

    fn run(mut self) -> (Measured, bool) {
        for probe in 0..25 {
            let sent_us = BEGAN_US - (25 - probe) as f64 * PROBE_EVERY_US;
            let rtt_us = self.path.rtt_us + (self.line.draw() + self.line.draw()) * self.path.jitter_us;
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
                Event::Send => {}
                Event::Probe => {
                    if let Some(there_us) = self.line.carry(now_us, PROBE) {
                        let back_us = self.line.answer(there_us);
                        let [sent_ns, back_ns] = [now_us, back_us].map(|us| ((BEGAN_US + us) * 1e3) as u64);
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
        let is_policed_first = self.line.is_policed_first == Some(true);
        (self.measured(), is_policed_first)
    }

    fn look(&mut self, now_us: f64) {
        self.sender.at_us = ((now_us / LOOK_US).ceil() * LOOK_US) as u64;
        self.sender.sent_bytes = self.path.payload(self.sent_us.len() as u64);
        self.sender.lost = self.lost.len() as u32;
        self.sender.cwnd = self.cwnd as u32;
        self.sender.unacked = (self.sent_us.len() - self.acknowledged.len()) as u32;
        self.sender.rtt_min_us = if self.rtt_min_us.is_finite() { self.rtt_min_us as u32 } else { 0 };
        self.senders.push(self.sender);
    }

    fn measured(self) -> Measured {
        let segments = Segments { longest_bytes: self.path.mss as u32, whole_bytes: u64::MAX, mtu_probing: 0 };
        let end = |bytes: u64| StreamEnd {
            bytes,
            mss_bytes: self.path.mss as u32,
            path_mtu_bytes: MTU,
            has_timestamps: true,
            segments: Some(segments),
            late_us: vec![50; 100],
            ..StreamEnd::default()
        };
        let most = self.path.payload(self.sent_us.len() as u64).saturating_sub(LACKS);
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
