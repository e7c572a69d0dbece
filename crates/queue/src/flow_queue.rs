//! Queues per flow, each with CoDel, and what is new and short first (FQ-CoDel, RFC 8290).

use std::collections::VecDeque;

use crate::codel::{Codel, CodelTimes, Fifo};
use crate::{Queue, Queued, Signals};
use ekiden_units::random::word;

/// How many queues there are (RFC 8290, section 5.2.5). Flows whose hashes agree share one.
const QUEUES: usize = 1_024;

/// How many packets of one flow are dropped at a time when there is no more room (section 5.2.8).
const DROP_BATCH: usize = 64;

/// One flow's packets.
#[derive(Debug, Clone)]
struct Flow<P> {
    packets: Fifo<P>,
    codel: Codel,
    /// Bytes that it may still send before another flow's turn comes; negative behind a packet that was larger.
    credits: i64,
    /// It is in one of the two lists.
    is_listed: bool,
}

/// Packets that wait, by flow. Names are the RFC's.
#[derive(Debug, Clone)]
pub struct FlowQueue<P> {
    limit: Queue,
    flows: Vec<Flow<P>>,
    /// Flows that have just begun to wait, and those that have had a turn since: in the order of their turns.
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    /// Bytes that a flow may send in a turn: the longest packet (section 5.2.4).
    quantum: i64,
    /// Which queue a flow has cannot be known from outside (section 4.1).
    salt: u64,
    packets: usize,
    bytes: u64,
}

impl<P: Queued> FlowQueue<P> {
    /// For packets of at most `mtu` bytes. Which flows share a queue depends on `salt`.
    pub fn new(limit: Queue, mtu: u32, times: CodelTimes, salt: u64) -> Self {
        let flow = |_| Flow { packets: Fifo::default(), codel: Codel::new(mtu, times), credits: 0, is_listed: false };
        Self {
            limit,
            flows: (0..QUEUES).map(flow).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            quantum: mtu.into(),
            salt,
            packets: 0,
            bytes: 0,
        }
    }

    /// Packets that wait.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A packet arrives (section 4.1). Returns how many are dropped so that the queue stays within its limit.
    pub fn push(&mut self, arrival_ns: u64, packet: P) -> u64 {
        let number = word(self.salt, packet.flow()) as usize % QUEUES;
        let flow = &mut self.flows[number];
        self.packets += 1;
        self.bytes += u64::from(packet.bytes());
        flow.packets.push(arrival_ns, packet);
        if !flow.is_listed {
            (flow.is_listed, flow.credits) = (true, self.quantum);
            self.new.push_back(number);
        }
        let most = self.packets;
        while !self.limit.holds(self.packets, self.bytes) {
            self.drop_of_the_longest();
        }
        (most - self.packets) as u64
    }

    /// Drops packets of the flow that holds most bytes, from its head: half of its bytes, but no more than a batch (section
    /// 4.1). As in Linux, its CoDel counts them.
    fn drop_of_the_longest(&mut self) {
        let longest = self.new.iter().chain(&self.old).max_by_key(|number| self.flows[**number].packets.bytes());
        let Some(flow) = longest.map(|number| &mut self.flows[*number]) else { return };
        let (packets, bytes) = (flow.packets.packets(), flow.packets.bytes());
        let is_enough = |left: &Fifo<P>| left.bytes() <= bytes / 2 || packets - left.packets() >= DROP_BATCH;
        while flow.packets.pop().is_some() && !is_enough(&flow.packets) {}
        let gone = packets - flow.packets.packets();
        flow.codel.on_overload(gone as u64);
        let bytes = bytes - flow.packets.bytes();
        self.left(gone, bytes);
    }

    /// The serializer is free at `now_ns`: the packet to send next, and when it arrived (section 4.2). Counts in `signals` what
    /// CoDel drops and marks.
    pub fn pop(&mut self, now_ns: u64, signals: &mut Signals) -> Option<(u64, P)> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = list.pop_front()?;
            let flow = &mut self.flows[number];
            if flow.credits <= 0 {
                flow.credits += self.quantum;
                self.old.push_back(number);
                continue;
            }
            let (packets, bytes, before) = (flow.packets.packets(), flow.packets.bytes(), flow.codel.signals());
            let head = flow.codel.dequeue(now_ns, &mut flow.packets, self.bytes - bytes);
            *signals += flow.codel.signals().since(before);
            let gone = (packets - flow.packets.packets(), bytes - flow.packets.bytes());
            match &head {
                Some((_, packet)) => {
                    flow.credits -= i64::from(packet.bytes());
                    // It stays first until its credits are spent.
                    if is_new { self.new.push_front(number) } else { self.old.push_front(number) }
                }
                // So that a flow of single packets does not always come before those that wait.
                None if is_new && !self.old.is_empty() => self.old.push_back(number),
                None => flow.is_listed = false,
            }
            self.left(gone.0, gone.1);
            if head.is_some() {
                return head;
            }
        }
    }

    /// All that waits is lost.
    pub fn clear(&mut self) {
        while let Some(number) = self.new.pop_front().or_else(|| self.old.pop_front()) {
            let flow = &mut self.flows[number];
            flow.is_listed = false;
            while flow.packets.pop().is_some() {}
        }
        (self.packets, self.bytes) = (0, 0);
    }

    fn left(&mut self, packets: usize, bytes: u64) {
        self.packets -= packets;
        self.bytes -= bytes;
    }
}

#[cfg(test)]
mod tests;
