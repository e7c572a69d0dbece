//! The scoreboard against a slow model that keeps every copy of every segment and computes RFC 6675's functions from their
//! definitions.

use proptest::prelude::*;

use super::*;

const MSS: u32 = 100;

/// One transmission of a segment.
#[derive(Debug, Clone, Copy)]
struct Copied {
    serial: u64,
    presumed_lost: bool,
    /// By rule 4, without raising HighRxt.
    is_rescue: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    start: u64,
    end: u64,
    sacked: bool,
    copies: Vec<Copied>,
}

impl Entry {
    fn live(&self) -> usize {
        self.copies.iter().filter(|copy| !copy.presumed_lost).count()
    }

    fn is_lost(&self) -> bool {
        !self.sacked && self.live() == 0
    }

    fn serial(&self) -> u64 {
        self.copies.last().map_or(0, |copy| copy.serial)
    }

    fn presume_lost(&mut self) {
        self.copies.iter_mut().for_each(|copy| copy.presumed_lost = true);
    }
}

#[derive(Debug, Default)]
struct Model {
    entries: Vec<Entry>,
    serials: u64,
    newest: u64,
}

impl Model {
    fn sent(&mut self, index: usize) {
        self.serials += 1;
        self.entries[index].copies.push(Copied { serial: self.serials, presumed_lost: false, is_rescue: false });
    }

    /// IsLost(): DupThresh discontiguous ranges, or more than (DupThresh - 1) * SMSS bytes, are sacked beyond.
    fn is_overtaken(&self, index: usize, threshold: u32) -> bool {
        let beyond = &self.entries[index + 1..];
        let bytes: u64 = beyond.iter().filter(|entry| entry.sacked).map(|entry| entry.end - entry.start).sum();
        let ranges = beyond.chunk_by(|a, b| a.sacked == b.sacked).filter(|run| run[0].sacked).count();
        ranges >= threshold as usize || bytes > u64::from((threshold - 1) * MSS)
    }

    fn pipe(&self) -> usize {
        self.entries.iter().filter(|entry| !entry.sacked).map(Entry::live).sum()
    }

    fn lost(&self) -> Vec<u64> {
        self.entries.iter().filter(|entry| entry.is_lost()).map(|entry| entry.start).collect()
    }

    fn acknowledge(&mut self, una: u64) {
        for entry in self.entries.iter().filter(|entry| entry.end <= una && !entry.sacked) {
            self.newest = self.newest.max(entry.serial());
        }
        self.entries.retain(|entry| entry.end > una);
        if let Some(first) = self.entries.first_mut() {
            first.start = first.start.max(una);
        }
    }

    fn sack(&mut self, start: u64, end: u64) -> u32 {
        let mut sacked = 0;
        for entry in self.entries.iter_mut().filter(|entry| start <= entry.start && entry.end <= end && !entry.sacked) {
            entry.sacked = true;
            self.newest = self.newest.max(entry.serial());
            sacked += 1;
        }
        sacked
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send(u32),
    /// Of all that is outstanding, in thousandths; aligned to segments or not.
    Acknowledge(u64, bool),
    Sack(u64, u64, bool),
    MarkLost,
    MarkFirst,
    MarkOvertaken,
    TimeOut,
    Retransmit,
    /// Rules 3 and 4 of NextSeg(), which are asked when nothing waits to be sent again.
    RetransmitUnsure,
    RetransmitLast,
}

fn steps(keeps_order: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1u32..=MSS).prop_map(Step::Send),
        6 => Just(Step::Send(MSS)),
        2 => (0u64..600, prop::bool::weighted(0.9)).prop_map(|(to, aligned)| Step::Acknowledge(to, aligned)),
        8 => (0u64..1000, 1u64..200, prop::bool::weighted(0.9)).prop_map(|(from, length, aligned)| Step::Sack(from, length, aligned)),
        5 => Just(Step::MarkLost),
        1 => Just(Step::MarkFirst),
        4 => Just(if keeps_order { Step::MarkOvertaken } else { Step::MarkLost }),
        1 => Just(Step::TimeOut),
        6 => Just(Step::Retransmit),
        3 => Just(Step::RetransmitUnsure),
        1 => Just(Step::RetransmitLast),
    ];
    prop::collection::vec(step, 1..120)
}

struct Both {
    board: Scoreboard,
    model: Model,
    una: u64,
    next: u64,
    threshold: u32,
}

impl Both {
    fn new(keeps_order: bool, threshold: u32) -> Self {
        let board = Scoreboard { keeps_order, ..Scoreboard::default() };
        Self { board, model: Model::default(), una: 1, next: 1, threshold }
    }

    /// A position `thousandths` of the way through what is outstanding.
    fn at(&self, thousandths: u64, aligned: bool) -> u64 {
        let at = self.una + (self.next - self.una) * thousandths.min(1000) / 1000;
        match self.model.entries.iter().find(|entry| entry.end > at) {
            Some(entry) if aligned => entry.start,
            _ => at,
        }
    }

    fn retransmit(&mut self) {
        let first = self.model.entries.iter().position(Entry::is_lost);
        let sent = self.board.retransmit(Time(0));
        assert_eq!(sent.map(|sent| sent.start), first.map(|index| self.model.entries[index].start));
        if let Some(index) = first {
            self.model.sent(index);
        }
    }

    /// A segment is sent again although a copy of it may be in the network.
    fn retransmit_anyway(&mut self, index: Option<usize>, marked: bool) {
        assert_eq!(marked, index.is_some());
        if let Some(index) = index {
            let sent = self.board.retransmit(Time(0)).expect("it is marked");
            assert_eq!(sent.start, self.model.entries[index].start);
            self.model.sent(index);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Send(length) => {
                let end = self.next + u64::from(length);
                self.board.push(self.next, length, false, Time(0));
                self.model.entries.push(Entry { start: self.next, end, sacked: false, copies: vec![] });
                self.model.sent(self.model.entries.len() - 1);
                self.next = end;
            }
            Step::Acknowledge(to, aligned) => {
                let una = self.at(to, aligned);
                let before = self.model.entries.len();
                let sacked = self.model.entries.iter().filter(|entry| entry.end <= una && entry.sacked).count();
                self.model.acknowledge(una);
                let summary = self.board.acknowledge(una);
                let acked = before - self.model.entries.len();
                assert_eq!((summary.acked, summary.delivered), (acked as u32, (acked - sacked) as u32));
                self.una = una;
            }
            Step::Sack(from, length, aligned) => {
                let (start, end) = (self.at(from, aligned), self.at(from + length, aligned));
                if start < end {
                    let mut summary = AckSummary::default();
                    self.board.sack(start, end, &mut summary);
                    assert_eq!(summary.sacked, self.model.sack(start, end));
                    assert_eq!(summary.delivered, summary.sacked);
                }
            }
            Step::MarkLost => {
                self.board.mark_lost(self.threshold, MSS);
                for index in 0..self.model.entries.len() {
                    if self.model.is_overtaken(index, self.threshold) {
                        let copies = self.model.entries[index].copies.iter_mut().enumerate();
                        copies
                            .filter(|(nth, copy)| *nth == 0 || copy.is_rescue)
                            .for_each(|(_, copy)| copy.presumed_lost = true);
                    }
                }
            }
            Step::MarkFirst => {
                self.board.mark_first();
                self.model.entries.iter_mut().take(1).filter(|first| !first.sacked).for_each(Entry::presume_lost);
            }
            Step::MarkOvertaken => {
                self.board.mark_overtaken();
                let newest = self.model.newest;
                for copy in self.model.entries.iter_mut().flat_map(|entry| &mut entry.copies) {
                    copy.presumed_lost |= copy.serial < newest;
                }
            }
            Step::TimeOut => {
                self.board.mark_all();
                let reneged = self.model.entries.first().is_some_and(|first| first.sacked);
                for entry in &mut self.model.entries {
                    entry.sacked &= !reneged;
                    entry.presume_lost();
                }
            }
            Step::Retransmit => self.retransmit(),
            Step::RetransmitUnsure if self.model.lost().is_empty() => {
                let highest = self.model.entries.iter().rposition(|entry| entry.sacked).unwrap_or(0);
                let unsure = |entry: &Entry| !entry.sacked && entry.copies.len() == 1;
                let index = self.model.entries[..highest].iter().position(unsure);
                let marked = self.board.mark_speculative();
                self.retransmit_anyway(index, marked);
            }
            Step::RetransmitLast if self.model.lost().is_empty() => {
                let last = self.model.entries.last().filter(|last| !last.sacked && last.copies.len() == 1);
                let index = last.map(|_| self.model.entries.len() - 1);
                let marked = self.board.mark_last();
                self.retransmit_anyway(index, marked);
                if let Some(copy) = index.and_then(|index| self.model.entries[index].copies.last_mut()) {
                    copy.is_rescue = true;
                }
            }
            Step::RetransmitUnsure | Step::RetransmitLast => {}
        }
    }

    fn check(&self) {
        let Self { board, model, .. } = self;
        assert_eq!(board.len() as usize, model.entries.len());
        let places = |sent: &Sent| (sent.start, sent.end());
        assert_eq!(board.segments.front().map(places), model.entries.first().map(|entry| (entry.start, entry.end)));
        assert_eq!(board.segments.back().map(places), model.entries.last().map(|entry| (entry.start, entry.end)));
        let sacked: Vec<_> = model.entries.iter().filter(|entry| entry.sacked).map(|entry| entry.start).collect();
        let of_board = board.segments.iter().filter(|sent| sent.sacked).map(|sent| sent.start);
        assert_eq!(of_board.collect::<Vec<_>>(), sacked, "sacked");
        assert_eq!(board.has_gaps(), !sacked.is_empty());
        assert_eq!(board.lost.iter().copied().collect::<Vec<_>>(), model.lost(), "lost");
        assert_eq!(board.lost() as usize, model.lost().len());
        assert_eq!(board.pipe() as usize, model.pipe(), "pipe");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_scoreboard_is_rfc_6675s(steps in steps(false), threshold in 1u32..5) {
        let mut both = Both::new(false, threshold);
        for step in &steps {
            both.step(step);
            both.check();
        }
    }

    #[test]
    fn with_the_order_of_sending_what_was_overtaken_is_lost_too(steps in steps(true), threshold in 1u32..5) {
        let mut both = Both::new(true, threshold);
        for step in &steps {
            both.step(step);
            both.check();
        }
    }
}
