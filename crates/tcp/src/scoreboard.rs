//! What was sent and is not acknowledged: the scoreboard and the pipe of RFC 6675, in segments.
//!
//! Positions count this end's sequence numbers without wrapping: the SYN has position 0, the first byte 1. Segments stay
//! as they were first sent. Every operation takes logarithmic time, apart from work on segments whose state
//! changes, of which each does a bounded number of times per transmission.
//!
//! Without SACK a duplicate acknowledgement says that one more segment has left the network, but not which: those are
//! counted in `left`, so that the same pipe serves NewReno (its inflated window of RFC 6582 less what is outstanding is
//! the window less this pipe).

use std::collections::{BTreeSet, VecDeque};

use ekiden_units::Time;

use crate::ranges::Ranges;

/// A segment that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub start: u64,
    /// Sequence numbers that it takes, its FIN included.
    pub length: u32,
    pub fin: bool,
    /// When it was sent last.
    pub at: Time,
    /// Which transmission that was, counted over the connection.
    serial: u64,
    pub retransmitted: bool,
    sacked: bool,
    /// It counts as lost and waits to be sent again.
    lost: bool,
    /// It was sent again by rule 4 of NextSeg(), which leaves HighRxt as it is (RFC 6675, section 5, C.3): if it counts as
    /// lost later, it is sent again once more.
    rescued: bool,
    /// It was sent again without counting as lost, so that both copies may be in the network: the first one's serial.
    doubled: Option<u64>,
}

impl Sent {
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }

    fn is_in_network(&self) -> bool {
        !self.sacked && !self.lost
    }

    /// Whether its last transmission can be the one that arrived.
    fn may_have_arrived(&self, until: Option<Time>) -> bool {
        !self.retransmitted || until.is_none_or(|until| self.at <= until)
    }
}

/// What an acknowledgement told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Segments acknowledged cumulatively.
    pub acked: u32,
    /// Segments that have arrived, newly known: acknowledged cumulatively or selectively, each once.
    pub delivered: u32,
    /// Segments newly acknowledged selectively.
    pub sacked: u32,
    /// When the last one of the newly known was sent, of those that were sent once.
    pub sent_at: Option<Time>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Scoreboard {
    segments: VecDeque<Sent>,
    sacked: Ranges,
    /// Starts of the segments that are lost and not yet sent again.
    lost: BTreeSet<u64>,
    sacked_count: u32,
    doubled_count: u32,
    /// Without SACK: segments that have left the network beyond the first.
    left: u32,
    /// Everything before it that is not sacked counts as lost already.
    lost_before: u64,
    /// What [`Scoreboard::mark_unsure`] looks for does not begin before it.
    unsure_from: u64,
    serials: u64,
    /// The latest transmission that is known to have arrived.
    newest_arrived: u64,
    /// What was sent again after this time cannot have arrived yet: an acknowledgement of it is one of the first copy (RFC
    /// 8985, section 6.2, step 2).
    pub arrived_until: Option<Time>,
    /// Transmissions in their order, with the segment's start, for [`Scoreboard::mark_overtaken`].
    order: VecDeque<(u64, u64)>,
    /// Whether [`Scoreboard::mark_overtaken`] will be asked.
    pub keeps_order: bool,
}

impl Scoreboard {
    /// A new segment was sent, after all others.
    pub fn push(&mut self, start: u64, length: u32, fin: bool, now: Time) {
        let serial = self.transmitted(start);
        self.segments.push_back(Sent {
            start,
            length,
            fin,
            at: now,
            serial,
            retransmitted: false,
            sacked: false,
            lost: false,
            rescued: false,
            doubled: None,
        });
    }

    fn transmitted(&mut self, start: u64) -> u64 {
        self.serials += 1;
        if self.keeps_order {
            self.order.push_back((self.serials, start));
        }
        self.serials
    }

    /// Everything before `una` has arrived.
    pub fn acknowledge(&mut self, una: u64) -> News {
        let mut news = News::default();
        let mut ambiguous = false;
        while let Some(first) = self.segments.front_mut() {
            if first.end() > una {
                if first.start < una {
                    // A part of a segment: what remains begins at `una`.
                    let (start, lost) = (first.start, first.lost);
                    first.length = (first.end() - una) as u32;
                    first.start = una;
                    if lost {
                        self.lost.remove(&start);
                        self.lost.insert(una);
                    }
                }
                break;
            }
            let Some(first) = self.segments.pop_front() else { break };
            news.acked += 1;
            if first.sacked {
                self.sacked_count -= 1;
            } else {
                news.delivered += 1;
                if first.may_have_arrived(self.arrived_until) {
                    self.newest_arrived = self.newest_arrived.max(first.serial);
                }
                ambiguous |= first.retransmitted;
                news.sent_at = news.sent_at.max(Some(first.at));
            }
            if first.lost {
                self.lost.remove(&first.start);
            }
            self.doubled_count -= u32::from(first.doubled.is_some());
        }
        if ambiguous {
            // Karn: what follows a gap that was filled had arrived long before.
            news.sent_at = None;
        }
        self.sacked.remove_before(una);
        // One of those acknowledged had not been counted as having left: the first.
        let left = self.left.saturating_sub(news.acked.saturating_sub(1)).min(self.len().saturating_sub(1));
        news.delivered -= (self.left - left).min(news.delivered);
        self.left = left;
        let rest = self.segments.front().map(|first| (first.serial, first.doubled));
        while let Some((serial, _)) = self.order.front().filter(|(_, start)| *start < una) {
            // What remains of a segment is still in its place.
            if rest.is_some_and(|(last, first)| *serial == last || Some(*serial) == first) {
                break;
            }
            self.order.pop_front();
        }
        news
    }

    /// A block of a selective acknowledgement, already known to lie within what is outstanding.
    pub fn sack(&mut self, start: u64, end: u64, news: &mut News) {
        if self.sacked.covers(start, end) {
            return;
        }
        let from = self.index(start);
        let mut marked: Option<(u64, u64)> = None;
        let mut at = from;
        while let Some(sent) = self.segments.get_mut(at) {
            if sent.end() > end {
                break;
            }
            if sent.sacked {
                // On to the end of what is known already.
                let known = self.sacked.around(sent.start).map_or(sent.end(), |(_, known)| known);
                at = self.index(known).max(at + 1);
                continue;
            }
            sent.sacked = true;
            self.sacked_count += 1;
            news.sacked += 1;
            news.delivered += 1;
            if sent.may_have_arrived(self.arrived_until) {
                self.newest_arrived = self.newest_arrived.max(sent.serial);
            }
            if !sent.retransmitted {
                news.sent_at = news.sent_at.max(Some(sent.at));
            }
            self.doubled_count -= u32::from(sent.doubled.take().is_some());
            if sent.lost {
                sent.lost = false;
                self.lost.remove(&sent.start);
            }
            let (start, end) = (sent.start, sent.end());
            marked = Some(match marked {
                Some((first, last)) if last == start => (first, end),
                Some((first, last)) => {
                    self.sacked.insert(first, last);
                    (start, end)
                }
                None => (start, end),
            });
            at += 1;
        }
        if let Some((first, last)) = marked {
            self.sacked.insert(first, last);
        }
    }

    /// Without SACK: a duplicate acknowledgement arrived.
    pub fn duplicate(&mut self, news: &mut News) {
        if self.left + 1 < self.len() {
            self.left += 1;
            news.delivered += 1;
        }
    }

    /// Without SACK, outside of recovery: what advances begins anew, and no duplicates are known of what remains (RFC 6582,
    /// section 3.2, step 3: FlightSize is all that is outstanding).
    pub fn forget_duplicates(&mut self) {
        self.left = 0;
    }

    /// IsLost() of RFC 6675, section 4, for all at once: marks what `duplicate_acks` segments or ranges beyond it have
    /// overtaken. Returns how many were marked.
    pub fn mark_lost(&mut self, duplicate_acks: u32, mss: u32) -> u32 {
        let (mut ranges, mut bytes) = (0, 0);
        let mut frontier = None;
        for (start, end) in self.sacked.backwards() {
            ranges += 1;
            bytes += end - start;
            if ranges >= duplicate_acks || bytes > u64::from((duplicate_acks.max(1) - 1) * mss) {
                frontier = Some(start);
                break;
            }
        }
        let Some(frontier) = frontier.filter(|frontier| *frontier > self.lost_before) else { return 0 };
        let mut at = self.index(self.lost_before);
        let mut marked = 0;
        while let Some(sent) = self.segments.get_mut(at).filter(|sent| sent.start < frontier) {
            if sent.sacked {
                let known = self.sacked.around(sent.start).map_or(sent.end(), |(_, known)| known);
                at = self.index(known).max(at + 1);
                continue;
            }
            if !sent.lost && (!sent.retransmitted || sent.rescued) {
                (sent.lost, sent.rescued) = (true, false);
                self.lost.insert(sent.start);
                marked += 1;
            }
            // The first copy is lost.
            self.doubled_count -= u32::from(sent.doubled.take().is_some());
            at += 1;
        }
        self.lost_before = frontier;
        marked
    }

    /// Marks everything that was sent, or sent again, before something that has arrived. Returns how many were marked.
    pub fn mark_overtaken(&mut self) -> u32 {
        let mut marked = 0;
        while let Some(&(serial, start)) = self.order.front().filter(|(serial, _)| *serial < self.newest_arrived) {
            self.order.pop_front();
            // Its beginning may have been acknowledged since: then it is the first.
            let at = self.index(start);
            let Some(sent) = self.segments.get_mut(at) else { continue };
            if sent.doubled == Some(serial) {
                // The first of two copies.
                sent.doubled = None;
                self.doubled_count -= 1;
            }
            // Not what was sent again since.
            if sent.serial == serial && sent.is_in_network() {
                (sent.lost, sent.rescued) = (true, false);
                self.lost.insert(sent.start);
                marked += 1;
            }
        }
        marked
    }

    /// Marks the first segment, unless it is marked already.
    pub fn mark_first(&mut self) {
        if let Some(first) = self.segments.front_mut()
            && first.is_in_network()
        {
            self.doubled_count -= u32::from(first.doubled.take().is_some());
            (first.lost, first.rescued) = (true, false);
            self.lost.insert(first.start);
        }
    }

    /// After a timeout: all that is not sacked counts as lost (RFC 6675, section 5.1). If the first is sacked
    /// the peer has dropped what it had reported, and no report counts any more (RFC 2018, section 8).
    pub fn mark_all(&mut self) {
        if self.segments.front().is_some_and(|first| first.sacked) {
            self.forget_sacked();
        }
        self.left = 0;
        self.doubled_count = 0;
        for sent in &mut self.segments {
            (sent.doubled, sent.rescued) = (None, false);
            sent.lost = !sent.sacked;
        }
        self.lost = self.segments.iter().filter(|sent| sent.lost).map(|sent| sent.start).collect();
    }

    /// What was reported selectively counts no more. The caller marks everything afterwards.
    pub fn forget_sacked(&mut self) {
        self.sacked.clear();
        self.sacked_count = 0;
        self.lost_before = 0;
        for sent in &mut self.segments {
            sent.sacked = false;
        }
    }

    /// Sends the first lost segment again. `None` if there is none.
    pub fn retransmit(&mut self, now: Time) -> Option<Sent> {
        let start = self.lost.pop_first()?;
        let serial = self.transmitted(start);
        let sent = self.find(start)?;
        sent.lost = false;
        sent.retransmitted = true;
        sent.at = now;
        sent.serial = serial;
        Some(*sent)
    }

    /// NextSeg(), rule 3, of RFC 6675: the first segment before the highest sacked one that is neither sacked, nor lost, nor
    /// sent again. Marks it, to be sent again while its first copy still counts in the pipe.
    pub fn mark_unsure(&mut self) -> bool {
        let Some(end) = self.sacked.end() else { return false };
        // What is passed over stays so: what is sacked or was sent again never becomes unsure.
        let from = self.unsure_from.max(self.lost_before);
        let mut at = self.index(from);
        while let Some(sent) = self.segments.get_mut(at).filter(|sent| sent.start < end) {
            self.unsure_from = sent.end();
            if sent.is_in_network() && !sent.retransmitted {
                self.doubled_count += 1;
                (sent.lost, sent.doubled) = (true, Some(sent.serial));
                self.lost.insert(sent.start);
                return true;
            }
            at += 1;
        }
        false
    }

    /// NextSeg(), rule 4: the last segment, if it is neither sacked, nor lost, nor sent again. Marks it in the same way.
    pub fn mark_last(&mut self) -> bool {
        let Some(last) = self.segments.back_mut().filter(|last| last.is_in_network() && !last.retransmitted) else {
            return false;
        };
        self.doubled_count += 1;
        (last.lost, last.rescued, last.doubled) = (true, true, Some(last.serial));
        self.lost.insert(last.start);
        true
    }

    /// Where the first segment is that begins at `start` or later.
    fn index(&self, start: u64) -> usize {
        let Some(first) = self.segments.front().filter(|first| first.start < start) else { return 0 };
        // Mostly all are as long as the first: no search, which would touch many that are far apart.
        let guess = ((start - first.start) / u64::from(first.length.max(1))) as usize;
        match self.segments.get(guess) {
            Some(sent) if sent.start == start => guess,
            _ => self.segments.partition_point(|sent| sent.start < start),
        }
    }

    fn find(&mut self, start: u64) -> Option<&mut Sent> {
        let at = self.index(start);
        self.segments.get_mut(at).filter(|sent| sent.start == start)
    }

    /// The pipe: segments in the network, as far as is known (RFC 6675, section 4, SetPipe()).
    pub fn pipe(&self) -> u32 {
        (self.len() + self.doubled_count).saturating_sub(self.sacked_count + self.left + self.lost.len() as u32)
    }

    /// Segments sent and not acknowledged cumulatively.
    pub fn len(&self) -> u32 {
        self.segments.len() as u32
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Segments that wait to be sent again.
    pub fn lost(&self) -> u32 {
        self.lost.len() as u32
    }

    /// Whether anything is known to have arrived out of order.
    pub fn has_gaps(&self) -> bool {
        self.left > 0 || self.sacked_count > 0
    }
}

#[cfg(test)]
mod tests;
