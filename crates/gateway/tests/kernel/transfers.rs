//! Simulated transfers with losses, packet for packet as the native build decides.

use std::collections::VecDeque;

use ekiden_window_balance::{BalanceSettings, Direction, ObservedFlow, Policy};
use libtest_mimic::Failed;

use crate::both::{Both, SCALE, SEGMENT, at_once, paper};
use crate::frames::{Dice, Ends, Shape, sack, timestamps};

const STREAMS: u16 = 6;
/// Between gateway and receiver.
const RTT_US: u64 = 40_000;
/// Segments that the path takes in a round trip of all streams.
const PATH: u64 = 400;

/// A sender in slow start, which halves its window after a loss, and its receiver.
struct Transfer {
    ends: Ends,
    window: u32,
    /// What the receiver's last window allows, in segments.
    allowed: u32,
    /// The segment behind all that it has ever allowed.
    edge: u32,
    threshold: u32,
    /// The next new segment.
    next: u32,
    /// Whether each segment sent has arrived.
    arrived: Vec<bool>,
    /// ACKs on their way: the number, and what lies behind the gap.
    heard: VecDeque<(u32, Vec<(u32, u32)>)>,
}

impl Transfer {
    fn new(ends: Ends) -> Self {
        Self {
            ends,
            window: 10,
            allowed: u32::MAX,
            edge: 60,
            threshold: u32::MAX,
            next: 0,
            arrived: Vec::new(),
            heard: VecDeque::new(),
        }
    }

    /// All before it has arrived.
    fn acked(&self) -> u32 {
        self.arrived.iter().position(|arrived| !arrived).unwrap_or(self.arrived.len()) as u32
    }

    /// What lies behind the gap, the newest first.
    fn blocks(&self, most: usize) -> Vec<(u32, u32)> {
        let mut blocks = Vec::new();
        let mut at = self.acked();
        while at < self.next {
            let end = (at..self.next).find(|&index| !self.arrived[index as usize]).unwrap_or(self.next);
            if end > at {
                blocks.push((1 + at * SEGMENT, 1 + end * SEGMENT));
            }
            at = end.max(at + 1);
        }
        blocks.reverse();
        blocks.truncate(most);
        blocks
    }

    /// The receiver's ACK arrives.
    fn ack(&mut self, both: &mut Both, acked: u32, blocks: &[(u32, u32)]) {
        let options = [timestamps(), sack(blocks)].concat();
        let shape = Shape { ack: 1 + acked * SEGMENT, options, ..self.ends.shape(Direction::Acks) };
        let after = both.shape(Direction::Acks, &shape);
        let before = shape.frame();
        let at = before.len() - 20 - shape.options.len() + 14;
        let field = u16::from_be_bytes([after[at], after[at + 1]]);
        self.allowed = (u32::from(field) << SCALE) / SEGMENT;
        self.edge = self.edge.max(acked + self.allowed);
    }

    /// A round trip: what is missing is sent again, then what is new, while the ACKs of the last round come back. That something is
    /// missing is known when all of these have.
    fn round(&mut self, both: &mut Both, dice: &mut Dice, fill: u64, has_sack: bool) {
        let window = self.window.min(self.allowed).max(2);
        let acked = self.acked();
        let missing = (acked..self.next).filter(|&index| !self.arrived[index as usize]);
        let mut segments: Vec<u32> = missing.take(window as usize).collect();
        let before = if segments.is_empty() { VecDeque::new() } else { std::mem::take(&mut self.heard) };
        for (acked, blocks) in before {
            self.ack(both, acked, &blocks);
            both.now_us += dice.roll(30);
        }
        let new = window.saturating_sub(segments.len() as u32).min(self.edge.saturating_sub(self.next));
        segments.extend(self.next..self.next + new);
        self.next += new;
        self.arrived.resize(self.next as usize, false);
        let mut lost = false;
        let mut heard = VecDeque::new();
        let mut at = 0;
        while let Some(&segment) = segments.get(at) {
            // Some go as one packet of two, as offloads send them.
            let is_pair = segments.get(at + 1) == Some(&(segment + 1)) && dice.roll(8) == 0;
            let count = 1 + u32::from(is_pair);
            at += count as usize;
            if let Some((acked, blocks)) = self.heard.pop_front() {
                self.ack(both, acked, &blocks);
                both.now_us += dice.roll(30);
            }
            let shape = Shape {
                seq: 1 + segment * SEGMENT,
                options: timestamps(),
                payload: (count * SEGMENT) as usize,
                ..self.ends.shape(Direction::Data)
            };
            both.pass(Direction::Data, &shape.frame(), if is_pair { SEGMENT } else { 0 });
            both.now_us += dice.roll(40);
            if fill > PATH && dice.roll(fill) >= PATH {
                lost = true;
                continue;
            }
            self.arrived[segment as usize..(segment + count) as usize].fill(true);
            heard.push_back((self.acked(), if has_sack { self.blocks(3) } else { Vec::new() }));
        }
        both.now_us += RTT_US / u64::from(STREAMS);
        for (acked, blocks) in std::mem::replace(&mut self.heard, heard) {
            self.ack(both, acked, &blocks);
            both.now_us += dice.roll(30);
        }
        if lost {
            self.threshold = (self.window / 2).max(2);
            self.window = self.threshold;
        } else if self.window < self.threshold {
            self.window *= 2;
        } else {
            self.window += 1;
        }
    }
}

fn transfer(balance: BalanceSettings, has_sack: bool, seed: u64) -> Both {
    let mut both = Both::new(balance);
    let mut dice = Dice(seed);
    let ends = |port| if port % 2 == 0 { Ends::ipv4(6000 + port) } else { Ends::ipv6(6000 + port) };
    let mut transfers: Vec<_> = (0..STREAMS).map(|port| Transfer::new(ends(port))).collect();
    for transfer in &transfers {
        both.open(transfer.ends);
    }
    for _ in 0..25 {
        let fill = transfers.iter().map(|one| u64::from(one.window.min(one.allowed))).sum();
        for transfer in &mut transfers {
            transfer.round(&mut both, &mut dice, fill, has_sack);
        }
    }
    let streams = both.gateway.streams().expect("they can be read");
    assert_eq!(streams.len(), usize::from(STREAMS));
    for stream in streams {
        let number = both.number(Ends { sender: stream.sender, receiver: stream.receiver });
        assert_eq!(stream.state.rtt_us, both.native.rtt_us(number));
        assert_eq!(stream.state.limit, both.native.limit(number));
        assert!(stream.state.is_open && stream.state.segment == SEGMENT as u16 && stream.state.scale == SCALE);
    }
    let (_, group) = both.gateway.groups().expect("they can be read")[0];
    assert_eq!(group.throttlings, both.native.throttlings());
    assert_eq!(group.stalled > 0, both.native.throttled_by().is_some());
    let counters = both.gateway.counters().expect("they can be read");
    assert_eq!((counters.seen, counters.tracked, counters.rewritten), (both.passed, both.passed, both.rewritten));
    both
}

pub fn simulated_transfers_are_decided_as_natively() -> Result<(), Failed> {
    let sent = BalanceSettings { observes: ObservedFlow::Sent, ..paper() };
    let edge = BalanceSettings { keeps_edge: true, ..paper() };
    let delivered = BalanceSettings { repeats: 3, missing: 3, ..at_once() };
    assert_eq!(delivered.policy, Policy::Delivered);
    for (name, balance) in [("paper", paper()), ("sent", sent), ("edge", edge), ("delivered", delivered)] {
        for has_sack in [true, false] {
            let both = transfer(balance, has_sack, 77 + u64::from(has_sack));
            println!("{name}, SACK {has_sack}: {} packets, {} rewritten", both.passed, both.rewritten);
            assert!(both.native.throttlings() > 0, "{name}, SACK {has_sack}: nothing throttles");
            assert!(both.rewritten > 50, "{name}, SACK {has_sack}: {} of {} rewritten", both.rewritten, both.passed);
        }
    }
    Ok(())
}
