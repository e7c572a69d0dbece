//! Samples of both ends: the state of the simulated TCP, as Linux's `TCP_INFO` would show it.

use std::collections::BTreeSet;

use ekiden_measure_proto::row::Row;
use ekiden_packet::Segment;
use ekiden_tcp::{Connection, Transmit};
use ekiden_units::Time;

/// Interval between two samples of a traced load, in nanoseconds.
const LOOK_NS: u64 = 200_000;

/// Looks at an end: every 200 µs, and only what has changed is kept.
#[derive(Default)]
pub struct Looks {
    began: Time,
    /// The look that shows what has happened last.
    due: Option<Time>,
    pub rows: Vec<Row>,
}

impl Looks {
    pub fn new(began: Time, first: Row) -> Self {
        Self { began, due: None, rows: vec![first] }
    }

    /// Notes that something has happened, so that the next sample is due.
    pub fn note(&mut self, now: Time) {
        self.due = Some(self.began + Time(now.since(self.began).0.next_multiple_of(LOOK_NS)));
    }

    /// Whether a look is due before something happens at `next`.
    pub fn is_due(&self, next: Option<Time>) -> bool {
        self.due.is_some_and(|due| next.is_none_or(|next| next > due))
    }

    pub fn take(&mut self, row: Row) {
        let Some(due) = self.due.take() else { return };
        let last = self.rows.last().copied().unwrap_or_default();
        let seen = |row: &Row| (row.kernel_bytes, row.sent_bytes, row.retransmits, row.delivered, row.lost);
        if seen(&last) != seen(&row) {
            self.rows.push(Row { at_us: due.since(self.began).0 / 1_000, ..row });
        }
    }
}

/// What Linux counts of a sender beside the engine: lost segments count as such until they are acknowledged, sent again or not.
#[derive(Default)]
pub struct Resent(BTreeSet<u64>);

impl Resent {
    /// A segment is sent, for the first time if it ends behind `sent_bytes`.
    pub fn sent(&mut self, transmit: &Transmit, sent_bytes: u64) {
        if transmit.segment.payload > 0 && transmit.offset < sent_bytes {
            self.0.insert(transmit.offset);
        }
    }

    /// An acknowledgement arrives. Sequence numbers begin with 0, and payload behind the SYN.
    pub fn acknowledged(&mut self, segment: &Segment) {
        let ack = segment.ack.map_or(0, |ack| u64::from(ack.0).saturating_sub(1));
        self.0 = self.0.split_off(&ack);
        for block in segment.options.sack.iter() {
            let [start, end] = [block.start, block.end].map(|seq| u64::from(seq.0).saturating_sub(1));
            self.0.retain(|offset| !(start..end).contains(offset));
        }
    }

    /// The sender as it is now.
    pub fn row(&self, sender: &Connection, sent_bytes: u64) -> Row {
        let info = sender.info();
        let us = |time: Option<Time>| time.map_or(0, |time| (time.0 / 1_000) as u32);
        Row {
            kernel_bytes: info.acked_bytes,
            sent_bytes,
            retransmits: info.retransmits as u32,
            delivered: info.delivered as u32,
            cwnd: info.cwnd,
            ssthresh: info.ssthresh.unwrap_or(i32::MAX as u32),
            unacked: info.outstanding,
            lost: info.lost + self.0.len() as u32,
            rtt_us: us(info.rtt),
            rtt_min_us: us(info.rtt_min),
            ..Row::default()
        }
    }
}

/// What Linux counts of a receiver.
pub struct Received(Row);

impl Received {
    /// One that has the preamble.
    pub fn new() -> Self {
        Self(Row { delivered: 1, ..Row::default() })
    }

    /// Payload arrives at `offset`, while all before `in_order` has been read.
    pub fn came(&mut self, offset: u64, in_order: u64) {
        self.0.delivered += 1;
        self.0.retransmits += u32::from(offset > in_order);
    }

    pub fn row(&self, in_order: u64) -> Row {
        Row { kernel_bytes: in_order, ..self.0 }
    }
}
