//! Background traffic: datagrams without congestion control.
//!
//! A source has a clock of its own, which stands still while it is silent. A datagram leaves at exact intervals of that clock.
//! So the rate is exact over any number of short periods: the remainder of a period carries over.

use ekiden_scenario::{Background, OnOff, Scenario};
use ekiden_units::{Time, random};

use crate::events::Event;
use crate::packet::{Body, Packet, node_number};

/// The index with which a source's random numbers are drawn from the seed. The directions of a link, which may have the same
/// name, have 0 and 1.
const RANDOM: u64 = 2;

/// All sources of a scenario.
pub(crate) struct Sources(Vec<Source>);

/// A datagram that leaves.
pub(crate) struct Sent {
    /// The node that it leaves.
    pub from: u32,
    pub packet: Packet,
    /// When the source sends again; `None`: never.
    pub next: Option<Time>,
}

/// One `[background.*]` of a scenario.
#[derive(Debug, Clone)]
struct Source {
    from: u32,
    packet: Packet,
    rate_bit_s: u64,
    /// The end: nothing leaves from then on.
    end: Option<Time>,
    /// When the next datagram leaves: `next` and `part` parts of a nanosecond, of which `rate_bit_s` make one.
    next: Time,
    part: u64,
    on_off: Option<OnOff>,
    /// When the present period of sending ends.
    on_until: Time,
    seed: u64,
    drawn: u64,
}

impl Sources {
    pub fn new(scenario: &Scenario) -> Self {
        let sources = scenario.background.iter().enumerate();
        Self(sources.map(|(number, (name, source))| Source::new(scenario, number as u32, name, source)).collect())
    }

    /// When each source sends for the first time.
    pub fn timers(&self) -> impl Iterator<Item = (Time, Event)> {
        let sources = self.0.iter().enumerate();
        sources.filter_map(|(number, source)| Some((source.next()?, Event::Datagram(number as u32))))
    }

    /// The datagram of a source that leaves now.
    pub fn send(&mut self, number: u32) -> Sent {
        let source = &mut self.0[number as usize];
        let packet = source.send();
        Sent { from: source.from, packet, next: source.next() }
    }
}

impl Source {
    fn new(scenario: &Scenario, number: u32, name: &str, background: &Background) -> Self {
        let bytes = background.packet.0 as u32;
        let to = node_number(scenario, &background.to);
        let mut source = Self {
            from: node_number(scenario, &background.from),
            packet: Packet { to, socket: 0, bytes, body: Body::Datagram { source: number } },
            rate_bit_s: background.rate.0.max(1),
            end: background.duration.map(|duration| background.start + duration),
            next: background.start,
            part: 0,
            on_off: background.on_off,
            on_until: Time(u64::MAX),
            seed: random::derive(scenario.seed, name, RANDOM),
            drawn: 0,
        };
        if let Some(OnOff { on, .. }) = source.on_off {
            source.on_until = background.start + source.draw(on);
            source.skip_silence();
        }
        source
    }

    /// When the next datagram leaves; `None` if there is none left.
    fn next(&self) -> Option<Time> {
        (self.end.is_none_or(|end| self.next < end) && self.next < Time(u64::MAX)).then_some(self.next)
    }

    /// The datagram that leaves now.
    fn send(&mut self) -> Packet {
        let parts = u64::from(self.packet.bytes) * 8_000_000_000 + self.part;
        self.next = self.next + Time(parts / self.rate_bit_s);
        self.part = parts % self.rate_bit_s;
        self.skip_silence();
        self.packet
    }

    /// Postpones the next datagram if the source is silent at its time.
    fn skip_silence(&mut self) {
        let Some(OnOff { on, off }) = self.on_off else { return };
        while self.next >= self.on_until && self.next < Time(u64::MAX) {
            let silence = self.draw(off);
            self.next = self.next + silence;
            self.on_until = self.on_until + silence + self.draw(on);
        }
    }

    fn draw(&mut self, mean: Time) -> Time {
        let (seed, drawn) = (self.seed, &mut self.drawn);
        let mut word = || {
            *drawn += 1;
            random::word(seed, *drawn)
        };
        exponential(mean, &mut word)
    }
}

/// A time that is exponentially distributed, from evenly distributed words: von Neumann's method (Various Techniques Used in
/// Connection with Random Digits, 1951), which only compares numbers. A logarithm would not be the same on every machine.
///
/// Take a word x as a fraction, and draw further words until one is larger than the word before it. With probability e^-x their
/// number is odd: then x is the fraction of the result. Otherwise the next x is tried, and the result is one mean longer.
fn exponential(mean: Time, word: &mut impl FnMut() -> u64) -> Time {
    let mut wholes = 0u64;
    loop {
        let first = word();
        let (mut last, mut is_odd) = (first, false);
        loop {
            let next = word();
            is_odd = !is_odd;
            if next > last {
                break;
            }
            last = next;
        }
        if is_odd {
            let part = (u128::from(mean.0) * u128::from(first)) >> 64;
            return Time(mean.0.saturating_mul(wholes).saturating_add(part as u64));
        }
        wholes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exponentially_distributed() {
        const DRAWS: u64 = 100_000;
        let mut n = 0;
        let mut word = || {
            n += 1;
            random::word(7, n)
        };
        let mean = Time::ms(10);
        let times: Vec<u64> = (0..DRAWS).map(|_| exponential(mean, &mut word).0).collect();
        let near = |what: &str, found: u64, wanted: u64| {
            // Five standard deviations of the mean. Those of the counts below are smaller.
            assert!(found.abs_diff(wanted) < wanted / 60, "{what}: {found}, not {wanted}");
        };
        near("mean", times.iter().sum::<u64>() / DRAWS, mean.0);
        // The part of the times that exceed each number of tenths of the mean: e^-1/10, e^-1, e^-2.
        for (tenths, part) in [(1, 90_484), (10, 36_788), (20, 13_534)] {
            let longer = times.iter().filter(|time| **time > mean.0 * tenths / 10).count() as u64;
            near(&format!("longer than {tenths} tenths"), longer, part * DRAWS / 100_000);
        }
    }
}
