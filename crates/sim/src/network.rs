//! Nodes, lines and the way of packets over them.

use ekiden_link::{Channel, Counts, Length, Waiting, random};
use ekiden_record::LinkDirection;
use ekiden_scenario::Scenario;
use ekiden_units::Time;
use ekiden_wire::Segment;

use crate::capture::Capture;
use crate::events::{Event, Events};
use crate::gateway::Gateway;

/// An IPv4 header.
pub(crate) const IP_HEADER: u32 = 20;

/// A packet on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    /// The node that it goes to.
    pub to: u32,
    /// The socket there, if it is a segment.
    pub socket: u32,
    /// Its length with all headers.
    pub bytes: u32,
    pub body: Body,
}

/// What a packet carries. The compiler keeps the difference in a spare value of the segment, so that it takes no room.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body {
    Segment(Segment),
    /// Of the background of this number.
    Datagram {
        source: u32,
    },
}

const _: () = assert!(size_of::<Body>() == size_of::<Segment>());

impl Length for Packet {
    fn bytes(&self) -> u32 {
        self.bytes
    }
}

/// All links and routes.
pub(crate) struct Network {
    lines: Vec<Direction>,
    /// By node, then by the node that a packet goes to: the line to take.
    routes: Vec<Vec<Option<u32>>>,
    gateways: Vec<Gateway>,
    /// What writes down the packets that pass.
    pub capture: Option<Capture>,
}

/// One direction of a link. While anything is under way on it, the next delivery is planned.
struct Direction {
    channel: Channel<Packet>,
    to: u32,
    /// Whether there are gateways where it leads to.
    is_watched: bool,
}

impl Network {
    /// The network of a scenario, with routes to the nodes of `ends`.
    pub fn new(scenario: &Scenario, ends: impl IntoIterator<Item = usize>) -> Self {
        let index = |node: &str| scenario.nodes.get_index_of(node).unwrap_or_default() as u32;
        let mut lines = Vec::new();
        for (name, link) in &scenario.links {
            for end in 0..2 {
                let channel = Channel::new(link, random::derive(scenario.seed, name, end as u64));
                lines.push(Direction { channel, to: index(&link.ends[1 - end]), is_watched: false });
            }
        }
        let mut routes = vec![vec![None; scenario.nodes.len()]; scenario.nodes.len()];
        for to in ends {
            let Some((target, _)) = scenario.nodes.get_index(to) else { continue };
            for (from, name) in scenario.nodes.keys().enumerate() {
                let Some(hop) = scenario.path(name, target).and_then(|path| path.first().copied()) else { continue };
                let link = scenario.links.get_index_of(hop.name).unwrap_or_default();
                let end = usize::from(hop.link.ends[0] != hop.from);
                routes[from][to] = Some((2 * link + end) as u32);
            }
        }
        Self { lines, routes, gateways: Vec::new(), capture: None }
    }

    /// Puts gateways on their nodes.
    pub fn add_gateways(&mut self, gateways: Vec<Gateway>) {
        for line in &mut self.lines {
            line.is_watched = gateways.iter().any(|gateway| gateway.node == line.to);
        }
        self.gateways = gateways;
    }

    pub fn gateways(&self) -> &[Gateway] {
        &self.gateways
    }

    /// A node sends or forwards a packet.
    pub fn send(&mut self, events: &mut Events, from: u32, packet: Packet) {
        let Some(number) = self.routes[from as usize][packet.to as usize] else { return };
        if let Some(capture) = &mut self.capture {
            capture.see(events.now(), number as usize, &packet);
        }
        let channel = &mut self.lines[number as usize].channel;
        let is_planned = channel.next_ns().is_some();
        channel.offer(events.now().0, packet);
        if !is_planned && let Some(due_ns) = channel.next_ns() {
            events.plan(Time(due_ns), Event::Delivery(number));
        }
    }

    /// What is due comes out of a line. Returns the packet, and the node at which it does.
    pub fn deliver(&mut self, events: &mut Events, number: u32) -> Option<(u32, Packet)> {
        let direction = &mut self.lines[number as usize];
        let mut packet = direction.channel.take(events.now().0);
        if let Some(due_ns) = direction.channel.next_ns() {
            events.plan(Time(due_ns), Event::Delivery(number));
        }
        // Directions of a link are called after the end that packets enter; these have come to the other.
        if let (Some(capture), Some(packet)) = (&mut self.capture, &packet) {
            capture.see(events.now(), number as usize ^ 1, packet);
        }
        let at = direction.to;
        if direction.is_watched
            && let Some(Packet { to, socket, body: Body::Segment(segment), .. }) = &mut packet
            && *to != at
        {
            for gateway in self.gateways.iter_mut().filter(|gateway| gateway.node == at) {
                gateway.forward(events.now(), *socket, segment);
            }
        }
        Some((at, packet?))
    }

    /// What waits for every direction of every link, and what it has dropped, in the order of the scenario.
    pub fn queues(&mut self, now: Time) -> impl Iterator<Item = (Waiting, u64)> {
        self.lines.iter_mut().map(move |direction| {
            let waiting = direction.channel.waiting(now.0);
            (waiting, direction.channel.counts().queue_drops)
        })
    }

    /// What every direction of every link has done, in the order of the scenario.
    pub fn report(&self, scenario: &Scenario) -> Vec<LinkDirection> {
        let ends = scenario.links.iter().flat_map(|(name, link)| {
            let [a, b] = &link.ends;
            [(name, a, b), (name, b, a)]
        });
        let report = |((link, from, to), direction): ((&String, &String, &String), &Direction)| {
            let Counts {
                packets,
                bytes,
                queue_drops,
                random_losses,
                largest_packet_bytes,
                queue_max_bytes,
                queue_max_packets,
            } = *direction.channel.counts();
            LinkDirection {
                link: link.clone(),
                from: from.clone(),
                to: to.clone(),
                packets,
                bytes,
                queue_drops,
                random_losses,
                overruns: 0,
                largest_packet_bytes,
                queue_max_bytes,
                queue_max_packets,
                lateness: None,
            }
        };
        ends.zip(&self.lines).map(report).collect()
    }
}
