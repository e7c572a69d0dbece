//! What a stream transfers between two pauses.

use ekiden_units::Time;

use super::StreamSeen;
use super::lengths::Lengths;

/// A transfer has ended when nothing was on the way for this time. What comes later on the stream is another transfer: an
/// answer on a connection that is kept counts by its own length.
const PAUSE: Time = Time::secs(1);

/// A transfer, and the next one on the same stream.
#[derive(Debug)]
pub struct Transfer {
    begun: Time,
    /// Bytes of the connection acknowledged and handed over, at its begin and at the last look.
    first: u64,
    acked: u64,
    handed: u64,
    /// When something was last on the way.
    busy: Time,
}

impl Transfer {
    /// A stream is seen for the first time.
    pub fn new(now: Time, of: &StreamSeen) -> Self {
        Self { begun: now, first: of.acked, acked: of.acked, handed: of.handed, busy: now }
    }

    /// Looks at the stream again. `lengths`: those of its class.
    pub fn look(&mut self, now: Time, of: &StreamSeen, lengths: &mut Lengths) {
        let is_busy = of.acked > self.acked || of.handed > of.acked;
        if is_busy && self.handed <= self.acked && now.since(self.busy) >= PAUSE {
            self.ends(lengths);
            (self.begun, self.first) = (now, self.acked);
        }
        lengths.moves(self.moved(), of.acked.max(self.acked) - self.first);
        (self.acked, self.handed) = (of.acked.max(self.acked), of.handed);
        self.busy = if is_busy { now } else { self.busy };
    }

    /// It has ended, with all that was handed over.
    pub fn ends(&self, lengths: &mut Lengths) {
        let length = self.handed.max(self.acked) - self.first;
        if length > 0 {
            lengths.moves(self.moved(), length);
            lengths.ends(length);
        }
    }

    /// Bytes that it has moved.
    pub fn moved(&self) -> u64 {
        self.acked - self.first
    }

    pub fn begun(&self) -> Time {
        self.begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(acked: u64, handed: u64) -> StreamSeen {
        StreamSeen {
            stream: 0,
            class: 0,
            rtt: Time::ms(40),
            rtt_least: Time::ms(40),
            acked,
            handed,
            retransmits: 0,
            is_waiting: handed > acked,
            in_flight: 0,
        }
    }

    #[test]
    fn a_transfer_ends_with_a_pause_and_not_while_its_data_waits() {
        let mut lengths = Lengths::default();
        let mut transfer = Transfer::new(Time(0), &seen(500, 500));
        transfer.look(Time::ms(100), &seen(500, 9_500), &mut lengths);
        // It is held back for long.
        transfer.look(Time::ms(9_000), &seen(4_500, 9_500), &mut lengths);
        assert_eq!((transfer.moved(), transfer.begun()), (4_000, Time(0)));
        transfer.look(Time::ms(9_100), &seen(9_500, 9_500), &mut lengths);
        transfer.look(Time::ms(10_050), &seen(9_500, 9_500), &mut lengths);
        assert_eq!(transfer.moved(), 9_000);
        transfer.look(Time::ms(10_200), &seen(9_500, 10_000), &mut lengths);
        assert_eq!((transfer.moved(), transfer.begun()), (0, Time::ms(10_200)));
        transfer.look(Time::ms(10_300), &seen(10_000, 10_000), &mut lengths);
        assert_eq!(transfer.moved(), 500);
    }
}
