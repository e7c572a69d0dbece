//! A load: the engine at both ends, small messages beside it, and what happens in the order of time.

use std::collections::BTreeMap;

use ekiden_measure_proto::row::Row;
use ekiden_packet::Seq;
use ekiden_tcp::{Connection, Transmit};
use ekiden_units::Time;

use super::Path;
use super::line::Ways;
use super::sampled::{Looks, Received, Resent};
use crate::latency::Answer;

/// The first bytes of a load's connection, which go before it begins.
const PREAMBLE: u64 = 23;
/// IPv4's header.
const IP: u32 = 20;
/// A question, and its answer, on the line.
const QUESTION: u32 = 68;
const ANSWER: u32 = 76;
const ASK_EVERY: Time = Time::ms(20);
/// Questions before the load begins.
const IDLE: u64 = 25;
/// Bytes that a traced sender writes ahead, and bytes that it writes at a time.
const AHEAD: u64 = 64 << 10;
const PIECE: u64 = 32 << 10;
/// Limit on the time for which a load sends, beside ten round trips, and on the wait for the rest after that.
const LONGEST: Time = Time::secs(2);
const STOPPED: Time = Time::secs(5);

/// What was seen of a load.
pub struct Told {
    pub senders: Vec<Row>,
    pub receivers: Vec<Row>,
    pub answers: Vec<Answer>,
    pub began_ns: u64,
    pub is_policed_first: bool,
}

pub fn run(path: &Path) -> Told {
    let mut load = Load::open(path);
    load.ask_idly();
    load.begin();
    while load.step() {}
    let senders = load.near_looks.rows;
    let is_policed_first = load.ways.is_policed_first == Some(true);
    Told { senders, receivers: load.far_looks.rows, answers: load.answers, began_ns: load.began.0, is_policed_first }
}

enum Event {
    /// A segment comes to the receiver, or to the sender.
    Data(Transmit),
    Ack(Transmit),
    Ask,
    /// A small message comes that was sent then.
    Question(Time),
}

struct Load<'a> {
    path: &'a Path,
    now: Time,
    began: Time,
    ways: Ways,
    sender: Connection,
    receiver: Connection,
    /// What will happen, in the order of time and then of its making.
    ahead: BTreeMap<(Time, u64), Event>,
    made: u64,
    written: u64,
    /// When the sender has written all that it may.
    spent: Option<Time>,
    /// When its first episode of losses is over.
    lost_until: Option<Time>,
    in_order: u64,
    resent: Resent,
    received: Received,
    near_looks: Looks,
    far_looks: Looks,
    answers: Vec<Answer>,
}

fn round_trip(path: &Path) -> Time {
    Time((path.rtt_us * 1e3) as u64)
}

impl<'a> Load<'a> {
    /// Opens the connection and sends the preamble, over the path without anything that drops.
    fn open(path: &'a Path) -> Self {
        let clear = Path { buffer_bytes: 1e9, policer: None, shaper: None, lost: 0.0, late: 0.0, ..*path };
        let (settings, mut ways) = (path.settings(), Ways::new(&clear));
        let mut sender = Connection::connect(&settings, path.control(), (1, 2), Seq(0));
        let syn = sender.poll_transmit(Time(0)).expect("a SYN");
        let mut now = ways.carry(Time(0), bytes(&syn)).expect("nothing drops it");
        let receiver = Connection::accept(&settings, path.control(), &syn.segment, Seq(0), now);
        let mut receiver = receiver.expect("it is a SYN");
        sender.write(PREAMBLE);
        while sender.info().acked_bytes < PREAMBLE {
            while let Some(answer) = receiver.poll_transmit(now) {
                now = ways.back(now, bytes(&answer));
                sender.on_segment(now, &answer.segment);
            }
            while let Some(sent) = sender.poll_transmit(now) {
                now = ways.carry(now, bytes(&sent)).expect("nothing drops it");
                receiver.on_segment(now, &sent.segment);
            }
            receiver.read(PREAMBLE);
        }
        Self {
            path,
            now,
            began: now,
            ways: Ways::new(path),
            sender,
            receiver,
            ahead: BTreeMap::new(),
            made: 0,
            written: PREAMBLE,
            spent: None,
            lost_until: None,
            in_order: PREAMBLE,
            resent: Resent::default(),
            received: Received::new(),
            near_looks: Looks::default(),
            far_looks: Looks::default(),
            answers: Vec::new(),
        }
    }

    /// The small messages before the load, and when it begins: they have been answered.
    fn ask_idly(&mut self) {
        for number in 0..IDLE {
            self.now = self.began + Time(number * ASK_EVERY.0);
            self.ask();
        }
        self.now = self.now + ASK_EVERY;
        while let Some(((at, _), event)) = self.ahead.pop_first() {
            self.now = self.now.max(at);
            if let Event::Question(sent) = event {
                self.answer(sent, at);
            }
        }
        let last_ns = self.answers.iter().map(|answer| answer.back_ns).max().unwrap_or_default();
        self.now = self.now.max(Time(last_ns));
        self.began = self.now;
    }

    fn ask(&mut self) {
        if let Some(there) = self.ways.carry(self.now, QUESTION) {
            self.at(there, Event::Question(self.now));
        }
    }

    fn answer(&mut self, sent: Time, there: Time) {
        let back = self.ways.back(there, ANSWER);
        self.answers.push(Answer { sent_ns: sent.0, there_ns: there.0, back_ns: back.0 });
    }

    fn begin(&mut self) {
        self.ways.is_policed_first = None;
        self.near_looks = Looks::new(self.began, self.resent.row(&self.sender, self.sent_bytes()));
        self.far_looks = Looks::new(self.began, self.received.row(self.in_order));
        self.at(self.now, Event::Ask);
    }

    fn at(&mut self, at: Time, event: Event) {
        self.made += 1;
        self.ahead.insert((at, self.made), event);
    }

    fn sent_bytes(&self) -> u64 {
        self.written - self.sender.unsent()
    }

    /// What may be sent: ten products of the path's rate and round trip.
    fn most_bytes(&self) -> u64 {
        (10.0 * self.path.rate_bit_s * self.path.rtt_us / 8e6).max(300_000.0) as u64
    }

    /// Goes on to the next thing that happens. `false` if nothing will, or the load is over.
    fn step(&mut self) -> bool {
        self.write();
        self.transmit();
        let timer = [self.sender.timeout(), self.receiver.timeout()].into_iter().flatten().min();
        let arrival = self.ahead.first_key_value().map(|((at, _), _)| *at);
        let next = [timer, arrival].into_iter().flatten().min().map(|next| next.max(self.now));
        let is_late = self.spent.zip(next).is_some_and(|(spent, next)| next > spent + STOPPED);
        let next = next.filter(|_| !self.sender.is_finished() && !is_late);
        self.look(next);
        let Some(next) = next else { return false };
        self.now = next;
        match self.ahead.first_entry().filter(|first| first.key().0 <= next).map(|first| first.remove()) {
            Some(event) => self.happen(event),
            None => {
                self.sender.on_time(next);
                self.receiver.on_time(next);
            }
        }
        self.near_looks.note(next);
        self.far_looks.note(next);
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Data(Transmit { segment, offset }) => {
                if segment.payload > 0 {
                    self.received.came(offset, self.in_order);
                }
                self.receiver.on_segment(self.now, &segment);
                self.in_order += self.receiver.read(self.receiver.readable());
            }
            Event::Ack(Transmit { segment, .. }) => {
                self.resent.acknowledged(&segment);
                self.sender.on_segment(self.now, &segment);
            }
            Event::Question(sent) => self.answer(sent, self.now),
            Event::Ask => {
                self.ask();
                self.at(self.now + ASK_EVERY, Event::Ask);
            }
        }
    }

    /// The sending program, which ends when its first episode of losses is over, or by its budget.
    fn write(&mut self) {
        if self.spent.is_some() {
            return;
        }
        let info = self.sender.info();
        if info.retransmits > 0 && !self.path.by_bbr {
            let rtt = info.rtt.unwrap_or(Time(0));
            self.lost_until.get_or_insert(self.now + Time(3 * rtt.0) + Time::ms(50));
        }
        let has_lost = self.lost_until.is_some_and(|until| self.now > until);
        let is_long = self.now > self.began + LONGEST + Time(10 * round_trip(self.path).0);
        while !has_lost && !is_long && self.written < self.most_bytes() && self.sender.unsent() < AHEAD {
            let piece = PIECE.min(self.most_bytes() - self.written);
            let taken = self.sender.write(piece);
            self.written += taken;
            if taken == 0 {
                break;
            }
        }
        if has_lost || is_long || self.written >= self.most_bytes() {
            self.sender.finish();
            self.spent = Some(self.now);
        }
    }

    fn transmit(&mut self) {
        loop {
            let sent = self.sent_bytes();
            let Some(transmit) = self.sender.poll_transmit(self.now) else { break };
            self.resent.sent(&transmit, sent);
            if let Some(at) = self.ways.carry(self.now, bytes(&transmit)) {
                self.at(at, Event::Data(transmit));
            }
        }
        while let Some(transmit) = self.receiver.poll_transmit(self.now) {
            let at = self.ways.back(self.now, bytes(&transmit));
            self.at(at, Event::Ack(transmit));
        }
    }

    /// Looks that are due before what happens next.
    fn look(&mut self, next: Option<Time>) {
        if self.near_looks.is_due(next) {
            let row = self.resent.row(&self.sender, self.sent_bytes());
            self.near_looks.take(row);
        }
        if self.far_looks.is_due(next) {
            self.far_looks.take(self.received.row(self.in_order));
        }
    }
}

/// A segment's IP packet, in bytes.
fn bytes(transmit: &Transmit) -> u32 {
    IP + transmit.segment.header_bytes() + transmit.segment.payload
}
