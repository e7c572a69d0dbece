//! What was sent and is not acknowledged: the scoreboard and the pipe of RFC 6675, in segments.
//!
//! Positions count this end's sequence numbers without wrapping: the SYN has position 0, the first byte 1. A segment is always
//! retransmitted as it was first sent. Every operation takes logarithmic time, plus the segments whose state it changes;
//! each changes a bounded number of times per transmission.
//!
//! Without SACK a duplicate acknowledgement says that one more segment has left the network, but not which: those are
//! counted in `left`, so that the same pipe serves NewReno (its inflated window of RFC 6582 less what is outstanding is
//! the window less this pipe).

use std::collections::{BTreeSet, VecDeque};

use ekiden_units::Time;

use crate::ranges::Ranges;

mod losses;

pub(crate) use losses::{Losses, Mark};

/// A segment that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub start: u64,
    /// Sequence numbers that it takes, its FIN included.
    pub length: u32,
    pub fin: bool,
    /// When it was sent last.
    pub at: Time,
    /// What was so then.
    mark: Mark,
    /// Which transmission that was, counted over the connection.
    serial: u64,
    pub retransmitted: bool,
    sacked: bool,
    /// It counts as lost and waits to be sent again.
    lost: bool,
    /// It was sent again by rule 4 of NextSeg(), which does not advance HighRxt (RFC 6675, section 5, C.3): if it is found lost
    /// later, it is sent once more.
    rescued: bool,
    /// If it was sent again without counting as lost, both copies may be in the network: this is the serial of the first one.
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

/// What an acknowledgement reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AckSummary {
    /// Segments acknowledged cumulatively.
    pub acked: u32,
    /// Segments that have arrived, newly known: acknowledged cumulatively or selectively, each once.
    pub delivered: u32,
    /// Segments newly acknowledged selectively.
    pub sacked: u32,
    /// When the last segment was sent of those that are newly known to have arrived and were sent only once.
    pub sent_at: Option<Time>,
    /// The segment that was sent last of all that are newly known to have arrived.
    pub newest: Option<Newest>,
}

/// A segment that has arrived, as it was sent last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Newest {
    pub serial: u64,
    pub at: Time,
    pub mark: Mark,
}

impl AckSummary {
    fn note(&mut self, sent: &Sent) {
        if self.newest.is_none_or(|newest| newest.serial < sent.serial) {
            self.newest = Some(Newest { serial: sent.serial, at: sent.at, mark: sent.mark });
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Scoreboard {
    segments: VecDeque<Sent>,
    sacked: Ranges,
    /// Starts of the segments that are lost and not yet sent again.
    lost: BTreeSet<u64>,
    sacked_count: u32,
    doubled_count: u32,
    /// Without SACK: how many of the segments behind the first one have left the network, by the duplicate acknowledgements.
    left: u32,
    /// Everything before this position that is not sacked has been marked as lost.
    lost_before: u64,
    /// [`Scoreboard::mark_speculative`] has already passed everything before this position.
    speculative_from: u64,
    serials: u64,
    /// The latest transmission that is known to have arrived.
    newest_arrived: u64,
    /// A retransmission sent after this time cannot have arrived yet: an acknowledgement of the segment acknowledges the first
    /// copy (RFC 8985, section 6.2, step 2).
    pub arrived_until: Option<Time>,
    /// Transmissions in their order, with the segment's start, for [`Scoreboard::mark_overtaken`].
    order: VecDeque<(u64, u64)>,
    /// Whether `order` is kept, for [`Scoreboard::mark_overtaken`].
    pub keeps_order: bool,
    /// What the next transmissions are marked with.
    pub mark: Mark,
    pub losses: Losses,
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
            mark: self.mark,
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
    pub fn acknowledge(&mut self, una: u64) -> AckSummary {
        let mut summary = AckSummary::default();
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
            summary.acked += 1;
            if first.sacked {
                self.sacked_count -= 1;
            } else {
                summary.delivered += 1;
                summary.note(&first);
                if first.may_have_arrived(self.arrived_until) {
                    self.newest_arrived = self.newest_arrived.max(first.serial);
                }
                ambiguous |= first.retransmitted;
                summary.sent_at = summary.sent_at.max(Some(first.at));
            }
            if first.lost {
                self.lost.remove(&first.start);
            }
            self.doubled_count -= u32::from(first.doubled.is_some());
        }
        if ambiguous {
            // Karn's algorithm: segments behind a gap that a retransmission filled had arrived long before.
            summary.sent_at = None;
        }
        self.sacked.remove_before(una);
        // The first of the acknowledged segments was not counted in `left`.
        let left = self.left.saturating_sub(summary.acked.saturating_sub(1)).min(self.len().saturating_sub(1));
        summary.delivered -= (self.left - left).min(summary.delivered);
        self.left = left;
        let rest = self.segments.front().map(|first| (first.serial, first.doubled));
        while let Some((serial, _)) = self.order.front().filter(|(_, start)| *start < una) {
            // A partly acknowledged segment keeps its place.
            if rest.is_some_and(|(last, first)| *serial == last || Some(*serial) == first) {
                break;
            }
            self.order.pop_front();
        }
        summary
    }

    /// A block of a selective acknowledgement, already known to lie within what is outstanding.
    pub fn sack(&mut self, start: u64, end: u64, summary: &mut AckSummary) {
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
                // Skip the range that is sacked already.
                let known = self.sacked.around(sent.start).map_or(sent.end(), |(_, known)| known);
                at = self.index(known).max(at + 1);
                continue;
            }
            sent.sacked = true;
            self.sacked_count += 1;
            summary.sacked += 1;
            summary.delivered += 1;
            summary.note(sent);
            if sent.may_have_arrived(self.arrived_until) {
                self.newest_arrived = self.newest_arrived.max(sent.serial);
            }
            if !sent.retransmitted {
                summary.sent_at = summary.sent_at.max(Some(sent.at));
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
    pub fn duplicate(&mut self, summary: &mut AckSummary) {
        if self.left + 1 < self.len() {
            self.left += 1;
            summary.delivered += 1;
        }
    }

    /// Without SACK: after an acknowledgement that advances outside of a recovery, or ends one, no duplicates count for the
    /// segments that remain (RFC 6582, section 3.2, step 3: FlightSize is all that is outstanding).
    pub fn forget_duplicates(&mut self) {
        self.left = 0;
    }

    /// IsLost() of RFC 6675, section 4, for all segments at once: marks those with `duplicate_acks` sacked ranges, or more
    /// than `duplicate_acks` - 1 full segments of sacked data, beyond them. Returns how many were marked.
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
                self.losses.note(sent.mark);
                marked += 1;
            }
            // The first copy is lost.
            self.doubled_count -= u32::from(sent.doubled.take().is_some());
            at += 1;
        }
        self.lost_before = frontier;
        marked
    }

    /// Marks every transmission that was sent before another one that has arrived, as RACK does. Returns how many were marked.
    pub fn mark_overtaken(&mut self) -> u32 {
        let mut marked = 0;
        while let Some(&(serial, start)) = self.order.front().filter(|(serial, _)| *serial < self.newest_arrived) {
            self.order.pop_front();
            // If its beginning has been acknowledged since, it is the first segment.
            let at = self.index(start);
            let Some(sent) = self.segments.get_mut(at) else { continue };
            if sent.doubled == Some(serial) {
                // The first of two copies.
                sent.doubled = None;
                self.doubled_count -= 1;
            }
            // Unless the segment was sent again since.
            if sent.serial == serial && sent.is_in_network() {
                (sent.lost, sent.rescued) = (true, false);
                self.lost.insert(sent.start);
                self.losses.note(sent.mark);
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
            self.losses.note(first.mark);
        }
    }

    /// After a timeout: marks everything that is not sacked as lost (RFC 6675, section 5.1). If the first segment is sacked,
    /// the peer has reneged, and all SACK information is discarded (RFC 2018, section 8).
    pub fn mark_all(&mut self) {
        if self.segments.front().is_some_and(|first| first.sacked) {
            self.forget_sacked();
        }
        self.left = 0;
        self.doubled_count = 0;
        for sent in &mut self.segments {
            (sent.doubled, sent.rescued) = (None, false);
            if !sent.lost && !sent.sacked {
                self.losses.note(sent.mark);
            }
            sent.lost = !sent.sacked;
        }
        self.lost = self.segments.iter().filter(|sent| sent.lost).map(|sent| sent.start).collect();
    }

    /// Discards all SACK information. The caller marks everything as lost afterwards.
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
        let (serial, mark) = (self.transmitted(start), self.mark);
        let sent = self.find(start)?;
        sent.mark = mark;
        sent.lost = false;
        sent.retransmitted = true;
        sent.at = now;
        sent.serial = serial;
        Some(*sent)
    }

    /// NextSeg(), rule 3, of RFC 6675: the first segment before the highest sacked one that is neither sacked, nor lost, nor
    /// sent again. Marks it, to be sent again while its first copy still counts in the pipe.
    pub fn mark_speculative(&mut self) -> bool {
        let Some(end) = self.sacked.end() else { return false };
        // A segment that is sacked or was sent again never qualifies later, so it need not be looked at again.
        let from = self.speculative_from.max(self.lost_before);
        let mut at = self.index(from);
        while let Some(sent) = self.segments.get_mut(at).filter(|sent| sent.start < end) {
            self.speculative_from = sent.end();
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
        // Most segments are as long as the first: guessing saves a binary search over distant memory.
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

    /// Segments that were selectively acknowledged.
    pub fn sacked(&self) -> u32 {
        self.sacked_count
    }

    /// Segments that wait to be sent again.
    pub fn lost(&self) -> u32 {
        self.lost.len() as u32
    }

    /// Segments that were found lost over the whole connection, each as often as it was.
    pub fn lost_ever(&self) -> u64 {
        self.losses.ever
    }

    /// Where the first of them begins.
    pub fn first_lost(&self) -> Option<u64> {
        self.lost.first().copied()
    }

    /// IsLost() of RFC 6675, section 4, for the first segment, whether it was sent again since or not.
    pub fn is_first_lost(&self) -> bool {
        self.segments
            .front()
            .is_some_and(|first| !first.sacked && (first.lost || first.retransmitted || first.start < self.lost_before))
    }

    /// Whether the first segment was sent again, and does not count as lost since.
    pub fn is_first_sent_again(&self) -> bool {
        self.segments.front().is_some_and(|first| first.retransmitted && !first.lost)
    }

    /// Whether the peer has reported data beyond a gap.
    pub fn has_gaps(&self) -> bool {
        self.left > 0 || self.sacked_count > 0
    }
}

#[cfg(test)]
mod tests;
