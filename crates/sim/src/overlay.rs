//! The nodes of an overlay: what their connections show about their legs, what they tell each other, and the paths that they
//! choose for streams. Crate [`ekiden_overlay`] decides, as in a real node.
//!
//! Questions and answers are no packets: each takes half of the round trip in the scenario, and is lost if a link on the way
//! is cut.

mod legs;
mod seen;

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use ekiden_overlay::choice::Why;
use ekiden_overlay::delivery::Verdict;
use ekiden_overlay::judged::Taken;
use ekiden_overlay::known::Known;
use ekiden_overlay::leg::Look;
use ekiden_overlay::path::{Class, Path, Wanted};
use ekiden_overlay::places::Places;
use ekiden_overlay::shown::Sum;
use ekiden_overlay::told::Told;
use ekiden_record::{Chosen, PathChange, StreamsOnPath};
use ekiden_scenario::Scenario;
use ekiden_tcp::State;
use ekiden_units::{Time, random};

use crate::events::Event;
use crate::socket::{Once, Program};
use crate::sockets::Sockets;
use legs::Legs;
use seen::LegSeen;

/// The interval at which connections are looked at, and the number of these after which a node updates its legs.
const GLANCE: Time = Time::ms(100);
const GLANCES: u64 = 10;
/// The maximum number of nodes in between on a path.
const RELAYS_MOST: usize = 2;
/// The timeout of a silent node, besides four round trips; and the assumed round trip if it is not known.
const SILENCE: Time = Time::secs(1);
const RTT_UNKNOWN: Time = Time::ms(250);

/// All nodes of the overlay, by their places among its members.
pub(crate) struct Overlay<'a> {
    scenario: &'a Scenario,
    names: Vec<&'a str>,
    legs: Legs,
    nodes: Vec<Node>,
    /// Streams by the socket at which they enter.
    streams: BTreeMap<u32, Stream>,
    /// Sockets that open a leg: the stream, and the two nodes of the leg.
    opening: BTreeMap<u32, (u32, [usize; 2])>,
    /// Connections that carry streams, by the socket at either end.
    watched: BTreeMap<u32, Watched>,
    messages: BTreeMap<u32, Message>,
    /// The number of messages so far.
    sent: u32,
    glances: u64,
}

struct Node {
    known: Known,
    places: Places<()>,
}

/// A stream for which a node chooses a path.
struct Stream {
    flow: u32,
    node: usize,
    /// The paths that are still to be tried.
    rest: VecDeque<Taken>,
    taken: Option<Taken>,
    /// The nodes of the path that is tried, or taken.
    path: Vec<usize>,
    /// The sockets between the entry and the exit.
    sockets: Option<RangeInclusive<u32>>,
    is_open: bool,
}

/// An end of a leg's connection.
struct Watched {
    leg: [usize; 2],
    seen: LegSeen,
    /// The stream whose path was chosen here.
    stream: Option<u32>,
}

/// A message between nodes at the time of its arrival, or of the discovery that it is lost.
enum Message {
    Question { from: usize, to: usize, wanted: Vec<String> },
    Answer { from: usize, to: usize, told: Told },
    Silence { from: usize, to: usize },
}

/// A later event.
pub(crate) type Later = (Time, Event);

impl<'a> Overlay<'a> {
    pub fn new(scenario: &'a Scenario, sockets: &Sockets) -> Self {
        let names = scenario.members();
        let node = |(number, name): (usize, &&str)| Node {
            known: Known::of_node(name),
            places: Places::new(random::derive(scenario.seed, "overlay", number as u64)),
        };
        Self {
            scenario,
            legs: Legs::new(scenario, &names, sockets),
            nodes: names.iter().enumerate().map(node).collect(),
            names,
            streams: BTreeMap::new(),
            opening: BTreeMap::new(),
            watched: BTreeMap::new(),
            messages: BTreeMap::new(),
            sent: 0,
            glances: 0,
        }
    }

    /// The first glance, if there is an overlay.
    pub fn timers(&self) -> impl Iterator<Item = Later> {
        (!self.names.is_empty()).then_some((GLANCE, Event::Glance)).into_iter()
    }

    /// Looks at all connections that carry streams. Each second each node updates its legs, one after the other, and asks
    /// what is due.
    pub fn glance(&mut self, now: Time, sockets: &Sockets) -> Vec<Later> {
        for (socket, watched) in &mut self.watched {
            if let Some(connection) = &sockets.get(*socket).connection {
                watched.seen.glance(now, connection);
            }
        }
        self.glances += 1;
        let mut later = vec![(now + GLANCE, Event::Glance)];
        for node in 0..self.nodes.len() {
            if !(self.glances + node as u64).is_multiple_of(GLANCES) {
                continue;
            }
            self.look(now, node, sockets);
            let Node { known, places } = &mut self.nodes[node];
            let questions = places.questions(known, now);
            for to in questions.to {
                let Some(to) = self.names.iter().position(|name| *name == to) else { continue };
                let question = Message::Question { from: node, to, wanted: questions.wanted.clone() };
                later.push(self.say(now, [node, to], node, question));
            }
        }
        later
    }

    fn look(&mut self, now: Time, node: usize, sockets: &Sockets) {
        let mut legs: BTreeMap<usize, Sum> = BTreeMap::new();
        let Node { known, places } = &mut self.nodes[node];
        for (socket, watched) in self.watched.iter_mut().filter(|(_, watched)| watched.leg[0] == node) {
            let Some(connection) = &sockets.get(*socket).connection else { continue };
            let Some((shown, acked_bytes)) = watched.seen.look(now, connection) else { continue };
            let taken = watched.stream.and_then(|entry| self.streams.get(&entry)?.taken.as_ref());
            if let Some(taken) = taken {
                places.carried(&taken.exit, acked_bytes, 0);
                if let Some(part) = watched.seen.judged.says(taken, false, now) {
                    known.judge(taken.path.relays(), part, now);
                }
            }
            legs.entry(watched.leg[1]).or_default().add(&shown);
        }
        for (peer, sum) in legs {
            match sum.is_stalled() {
                true => known.fail(self.names[peer], now),
                false => known.see(self.names[peer], &sum.look(), now),
            }
        }
    }

    /// A node sends something to another, for which `asker` waits.
    fn say(&mut self, now: Time, [from, to]: [usize; 2], asker: usize, message: Message) -> Later {
        let (at, message) = match self.legs.is_cut(from, to, now) {
            false => (now + Time(self.legs.rtt(from, to).0 / 2), message),
            true => {
                let other = if asker == from { to } else { from };
                (now + self.patience(asker, other, now), Message::Silence { from: asker, to: other })
            }
        };
        let number = self.sent;
        self.sent = self.sent.wrapping_add(1);
        self.messages.insert(number, message);
        (at, Event::Message(number))
    }

    /// The timeout of a node for another.
    fn patience(&self, node: usize, other: usize, now: Time) -> Time {
        let known = &self.nodes[node].known;
        let rtt = known.leg(self.names[node], self.names[other], now).map_or(RTT_UNKNOWN, |leg| leg.rtt);
        SILENCE + Time(rtt.0.saturating_mul(4))
    }

    /// A message arrives, or turns out to be lost.
    pub fn hear(&mut self, now: Time, number: u32) -> Option<Later> {
        match self.messages.remove(&number)? {
            Message::Question { from, to, wanted } => {
                let Node { known, places } = &mut self.nodes[to];
                let told = known.answer(self.names[from], &wanted, 0.0, now);
                let name = self.names[to];
                places.asked_for(wanted.iter().filter(|wanted| **wanted != name), now);
                Some(self.say(now, [to, from], from, Message::Answer { from: to, to: from, told }))
            }
            Message::Answer { from, to, told } => {
                let known = &mut self.nodes[to].known;
                let rtt_s = Some(self.legs.rtt(to, from).as_secs());
                known.see(self.names[from], &Look { span_s: 1.0, rtt_s, ..Look::default() }, now);
                known.hear(told, now);
                None
            }
            Message::Silence { from, to } => {
                self.nodes[from].known.fail(self.names[to], now);
                None
            }
        }
    }

    /// A stream of a flow has come to the socket at which it enters the overlay. Its node chooses the paths to try.
    pub fn place(&mut self, now: Time, flow: u32, entry: u32) {
        let Some((_, described)) = self.scenario.flows.get_index(flow as usize) else { return };
        let Some((near, exit)) = described.via.chosen() else { return };
        let Some(node) = self.names.iter().position(|name| *name == near) else { return };
        let Node { known, places } = &mut self.nodes[node];
        let wanted = Wanted {
            exit,
            relays: &self.names,
            relays_most: RELAYS_MOST,
            required: &[],
            size: None,
            class: Class::Bulk,
            direction: places.direction(exit),
            current: None,
            prices: None,
        };
        let rest = places.place(known, &(), &wanted, now).paths.into();
        let stream = Stream { flow, node, rest, taken: None, path: Vec::new(), sockets: None, is_open: false };
        self.streams.insert(entry, stream);
    }

    /// Adds the sockets of the next path to try for a stream. Returns the one that opens it; `None` if there is no path left.
    ///
    /// Beside the socket at which a stream enters stands the one that goes on from its exit.
    pub fn attempt(&mut self, entry: u32, sockets: &mut Sockets) -> Option<u32> {
        let stream = self.streams.get_mut(&entry)?;
        let taken = stream.rest.pop_front()?;
        let behind = taken.path.0.iter().filter_map(|name| self.names.iter().position(|known| known == name));
        stream.path = [stream.node].into_iter().chain(behind).collect();
        let (first, exit, flow) = (sockets.next_number(), entry + 1, stream.flow);
        let mut opens = Program::Opening { flow };
        for (place, leg) in stream.path.windows(2).enumerate() {
            let here = sockets.next_number();
            let is_last = place + 2 == stream.path.len();
            let other = if is_last { exit } else { here + 2 };
            let accepts = Program::Relay { flow, other, once: Once::Opens };
            sockets.add_pair(self.legs.between(leg[0], leg[1]), [opens, accepts]);
            self.opening.insert(here, (entry, [leg[0], leg[1]]));
            opens = Program::Relay { flow, other: here + 1, once: Once::Nothing };
        }
        let last = sockets.next_number() - 1;
        sockets.get_mut(exit).program = Program::Relay { flow, other: last, once: Once::Tells(entry) };
        (stream.taken, stream.sockets) = (Some(taken), Some(first..=last));
        Some(first)
    }

    /// A socket opens its connection. If that is one of a leg, until when its node waits for an answer.
    pub fn waits(&self, now: Time, socket: u32) -> Option<Time> {
        let (_, [node, other]) = self.opening.get(&socket)?;
        Some(now + self.patience(*node, *other, now))
    }

    /// A node has waited for a leg. If there is none, the node at which the stream entered hears of it later.
    pub fn has_waited(&mut self, now: Time, socket: u32, sockets: &Sockets) -> Option<Later> {
        let (entry, [node, other]) = self.opening.remove(&socket)?;
        let is_there = sockets.get(socket).connection.as_ref().is_some_and(|connection| match connection.state() {
            State::SynSent | State::Closed => false,
            _ => connection.failure().is_none(),
        });
        if is_there {
            return None;
        }
        self.nodes[node].known.fail(self.names[other], now);
        let stream = self.streams.get(&entry)?;
        let before = stream.path.iter().position(|of| *of == node)?;
        Some((now + self.legs.there(&stream.path[..=before]), Event::PathFailed(entry)))
    }

    /// The path that was tried for a stream has failed. What was opened is given up.
    pub fn path_failed(&mut self, now: Time, entry: u32, sockets: &mut Sockets) {
        let Some(stream) = self.streams.get_mut(&entry) else { return };
        if let Some(taken) = &stream.taken {
            self.nodes[stream.node].places.failed(&taken.path, now);
        }
        if let Some(range) = stream.sockets.take() {
            self.opening.retain(|socket, _| !range.contains(socket));
            sockets.abandon(range);
        }
    }

    /// The exit has reached a stream's destination: when its entry hears of that.
    pub fn reached(&self, now: Time, entry: u32) -> Option<Later> {
        let stream = self.streams.get(&entry)?;
        Some((now + self.legs.there(&stream.path), Event::Reached(entry)))
    }

    /// A stream's entry hears that its destination is reached: from now on it carries data.
    pub fn begin(&mut self, now: Time, entry: u32, sockets: &mut Sockets) {
        let Some(stream) = self.streams.get_mut(&entry) else { return };
        let Some(range) = stream.sockets.clone() else { return };
        stream.is_open = true;
        if let Some(taken) = &stream.taken {
            // In a simulation all nodes deliver what they accept.
            let places = &mut self.nodes[stream.node].places;
            places.judge(&taken.path, Verdict::Arrived, now, now);
        }
        let (flow, first) = (stream.flow, *range.start());
        sockets.get_mut(entry).program = Program::Relay { flow, other: first, once: Once::Nothing };
        sockets.get_mut(first).program = Program::Relay { flow, other: entry, once: Once::Nothing };
        sockets.wake(entry);
        self.opening.retain(|socket, _| !range.contains(socket));
        for (place, leg) in stream.path.windows(2).enumerate() {
            for (end, leg) in [[leg[0], leg[1]], [leg[1], leg[0]]].into_iter().enumerate() {
                let socket = first + 2 * place as u32 + end as u32;
                let Some(info) = sockets.get(socket).info() else { continue };
                let stream = (socket == first).then_some(entry);
                self.watched.insert(socket, Watched { leg, seen: LegSeen::new(now, info), stream });
            }
        }
    }

    /// No path is left to try for a stream. Returns its flow, if the stream is there.
    pub fn give_up(&mut self, entry: u32) -> Option<u32> {
        self.streams.remove(&entry).map(|stream| stream.flow)
    }

    /// A stream has ended. Returns the sockets that carried it between its entry and its exit.
    pub fn end(&mut self, now: Time, entry: u32) -> Option<RangeInclusive<u32>> {
        let stream = self.streams.remove(&entry)?;
        let range = stream.sockets?;
        if let (Some(taken), Some(watched)) = (&stream.taken, self.watched.get_mut(range.start()))
            && let Some(part) = watched.seen.judged.says(taken, true, now)
        {
            self.nodes[stream.node].known.judge(taken.path.relays(), part, now);
        }
        self.watched.retain(|socket, _| !range.contains(socket));
        Some(range)
    }

    /// The streams of a flow are broken off.
    pub fn cut(&mut self, flow: u32, sockets: &mut Sockets) {
        let of_flow = |(_, stream): &(&u32, &Stream)| stream.flow == flow;
        let entries: Vec<u32> = self.streams.iter().filter(of_flow).map(|(entry, _)| *entry).collect();
        for stream in entries.iter().filter_map(|entry| self.streams.remove(entry)) {
            let Some(range) = stream.sockets else { continue };
            self.watched.retain(|socket, _| !range.contains(socket));
            self.opening.retain(|socket, _| !range.contains(socket));
            // The sockets of an open stream learn it from its ends.
            if !stream.is_open {
                sockets.abandon(range);
            }
        }
    }

    /// Which paths each node chose.
    pub fn report(&self) -> Vec<Chosen> {
        let of_node = |(node, name): (&Node, &&str)| -> Vec<Chosen> {
            let whole = |path: &Path| [vec![(*name).to_owned()], path.0.clone()].concat();
            let of_exit = |(exit, (), place): (&str, &(), &ekiden_overlay::places::ExitPaths)| {
                let taken = place.taken.iter();
                let streams = taken.map(|(path, streams)| StreamsOnPath { path: whole(path), streams: *streams });
                let change = |(at, path, why): &(Time, Path, Why)| PathChange {
                    at_us: at.0 / 1_000,
                    path: whole(path),
                    because: why.because().into(),
                };
                Chosen::new(name, exit, streams.collect(), place.changes.iter().map(change).collect())
            };
            node.places.iter().map(of_exit).collect()
        };
        self.nodes.iter().zip(&self.names).flat_map(of_node).collect()
    }
}
