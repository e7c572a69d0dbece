//! Small packets that are sent back, and how long that takes.

use ekiden_record::Ping as Reported;
use ekiden_scenario::Scenario;
use ekiden_units::Time;

use crate::events::Event;
use crate::packet::{Body, Packet, node_number};

/// An IPv4 and an ICMP header, as in the lab.
const BYTES: u32 = 28;

/// All pings of a scenario.
pub(crate) struct Pings<'a>(Vec<Ping<'a>>);

/// One `[ping.*]` of a scenario.
struct Ping<'a> {
    name: &'a str,
    from: u32,
    to: u32,
    start: Time,
    interval: Time,
    /// By its number, how long each packet took; `None`: it has not been answered.
    times: Vec<Option<Time>>,
}

/// A packet that leaves, and when the next one does.
pub(crate) struct Sent {
    pub from: u32,
    pub packet: Packet,
    pub next: Time,
}

impl<'a> Pings<'a> {
    pub fn new(scenario: &'a Scenario) -> Self {
        let ping = |(name, ping): (&'a String, &ekiden_scenario::Ping)| Ping {
            name,
            from: node_number(scenario, &ping.from),
            to: node_number(scenario, &ping.to),
            start: ping.start,
            interval: ping.interval,
            times: Vec::new(),
        };
        Self(scenario.pings.iter().map(ping).collect())
    }

    /// When each sends first.
    pub fn timers(&self) -> impl Iterator<Item = (Time, Event)> {
        self.0.iter().enumerate().map(|(number, ping)| (ping.start, Event::Ping(number as u32)))
    }

    /// The packet of a ping that leaves now.
    pub fn send(&mut self, ping: u32) -> Sent {
        let ours = &mut self.0[ping as usize];
        let body = Body::Echo { ping, number: ours.times.len() as u32, is_reply: false };
        ours.times.push(None);
        let packet = Packet { to: ours.to, socket: 0, bytes: BYTES, body };
        Sent { from: ours.from, packet, next: ours.sent_at(ours.times.len()) }
    }

    /// A packet has arrived where it goes to. Returns the answer, if it is not one itself.
    pub fn receive(&mut self, now: Time, ping: u32, number: u32, is_reply: bool) -> Option<Packet> {
        let ours = &mut self.0[ping as usize];
        if is_reply {
            let sent_at = ours.sent_at(number as usize);
            ours.times[number as usize] = Some(Time(now.0 - sent_at.0));
            return None;
        }
        let body = Body::Echo { ping, number, is_reply: true };
        Some(Packet { to: ours.from, socket: 0, bytes: BYTES, body })
    }

    /// What they have measured until `now`.
    pub fn report(&self, now: Time) -> Vec<Reported> {
        let report = |ping: &Ping| {
            let times = ping.times.iter().flatten().map(|time| time.0 as f64 / 1e3);
            let is_lost = |(number, time): (usize, &Option<Time>)| {
                time.is_none() && ping.sent_at(number).0 + Reported::LATE_US * 1_000 <= now.0
            };
            let lost = ping.times.iter().enumerate().filter(|entry| is_lost(*entry)).count();
            Reported::new(ping.name, times.collect(), lost as u64)
        };
        self.0.iter().map(report).collect()
    }
}

impl Ping<'_> {
    fn sent_at(&self, number: usize) -> Time {
        Time(self.start.0 + self.interval.0 * number as u64)
    }
}
