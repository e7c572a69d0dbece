//! Lines between nodes, and the routes of packets over them.

use ekiden_link::{Channel, Counts};
use ekiden_queue::QueueLength;
use ekiden_record::LinkDirection;
use ekiden_scenario::Scenario;
use ekiden_units::{Time, random};

use crate::packet::{Packet, node_number};

/// All links and routes. A line is one direction of a link: twice the link's number and that of the end where packets enter.
pub(crate) struct Network {
    lines: Vec<Line>,
    /// By node, then by the node that a packet goes to: the line to take.
    routes: Vec<Vec<Option<u32>>>,
}

/// One line. While it has packets under way, one delivery is planned for it that counts.
struct Line {
    channel: Channel<Packet>,
    to: u32,
    /// When. A packet that overtakes others brings an earlier one; the one that was planned before does nothing then.
    planned: Option<Time>,
}

/// What a delivery brings.
pub(crate) struct Delivery {
    /// The node at which the line ends.
    pub at: u32,
    /// `None` if it was lost on the way.
    pub packet: Option<Packet>,
    /// When the next delivery is to be planned, if one is.
    pub next: Option<Time>,
}

impl Network {
    /// The network of a scenario, with routes to the nodes to which packets go.
    pub fn new(scenario: &Scenario) -> Self {
        let mut lines = Vec::new();
        for (name, link) in &scenario.links {
            for end in 0..2 {
                let channel = Channel::new(link.from_end(end), random::derive(scenario.seed, name, end as u64));
                lines.push(Line { channel, to: node_number(scenario, &link.ends[1 - end]), planned: None });
            }
        }
        Self { lines, routes: routes(scenario) }
    }

    /// The line that a packet takes from one node to another.
    #[inline]
    pub fn route(&self, from: u32, to: u32) -> Option<u32> {
        self.routes[from as usize][to as usize]
    }

    /// A packet enters a line. Returns when a delivery is to be planned, if one is.
    #[inline]
    pub fn send(&mut self, now: Time, line: u32, packet: Packet) -> Option<Time> {
        let Line { channel, planned, .. } = &mut self.lines[line as usize];
        channel.offer(now.0, packet);
        let next = Time(channel.next_ns()?);
        let is_earlier = planned.is_none_or(|planned| next < planned);
        is_earlier.then(|| *planned.insert(next))
    }

    /// The delivery that was planned on a line.
    #[inline]
    pub fn deliver(&mut self, now: Time, line: u32) -> Delivery {
        let Line { channel, to, planned } = &mut self.lines[line as usize];
        if *planned != Some(now) {
            return Delivery { at: *to, packet: None, next: None };
        }
        let packet = channel.take(now.0);
        *planned = channel.next_ns().map(Time);
        Delivery { at: *to, packet, next: *planned }
    }

    /// What waits for every line, and what it has dropped, in the order of the scenario.
    pub fn queues(&mut self, now: Time) -> impl Iterator<Item = (QueueLength, u64)> {
        self.lines.iter_mut().map(move |line| {
            let waiting = line.channel.waiting(now.0);
            (waiting, line.channel.counts().queue_drops)
        })
    }

    /// What every line has done, in the order of the scenario.
    pub fn report(&self, scenario: &Scenario) -> Vec<LinkDirection> {
        let ends = scenario.links.iter().flat_map(|(name, link)| {
            let [a, b] = &link.ends;
            [(name, a, b), (name, b, a)]
        });
        let report = |((link, from, to), line): ((&String, &String, &String), &Line)| {
            let Counts {
                packets,
                bytes,
                policer_drops,
                queue_drops,
                queue_marks,
                random_losses,
                outage_losses,
                largest_packet_bytes,
                queue_max_bytes,
                queue_max_packets,
                ..
            } = *line.channel.counts();
            LinkDirection {
                link: link.clone(),
                from: from.clone(),
                to: to.clone(),
                packets,
                bytes,
                policer_drops,
                queue_drops,
                queue_marks,
                random_losses,
                outage_losses,
                overruns: 0,
                largest_packet_bytes,
                queue_max_bytes,
                queue_max_packets,
                queue_wait_mean_us: line.channel.counts().mean_wait_us(),
                lateness: None,
            }
        };
        ends.zip(&self.lines).map(report).collect()
    }
}

/// From every node, the line towards each node at which flows, tunnels or background end.
fn routes(scenario: &Scenario) -> Vec<Vec<Option<u32>>> {
    let ends = scenario.flows.values().flat_map(|flow| [&flow.from, &flow.to].into_iter().chain(&flow.via));
    let ends = ends.chain(scenario.tunnels.values().flat_map(|tunnel| &tunnel.ends));
    let members = scenario.members();
    let ends = ends.map(String::as_str).chain(members);
    let ends = ends.chain(scenario.background.values().map(|background| background.to.as_str()));
    let mut routes = vec![vec![None; scenario.nodes.len()]; scenario.nodes.len()];
    for target in ends {
        let Some(to) = scenario.nodes.get_index_of(target) else { continue };
        for (from, name) in scenario.nodes.keys().enumerate() {
            let Some(hop) = scenario.path(name, target).and_then(|path| path.first().copied()) else { continue };
            let link = scenario.links.get_index_of(hop.name).unwrap_or_default();
            let end = usize::from(hop.link.ends[0] != hop.from);
            routes[from][to] = Some((2 * link + end) as u32);
        }
    }
    routes
}
