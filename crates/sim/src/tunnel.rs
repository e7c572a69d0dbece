//! TCP tunnels: what one end forwards goes, whole and in order, through a TCP connection to the other end, and on.
//!
//! In the stream of a connection each packet stands behind its length, two bytes. Which packets they are, the simulator
//! keeps beside the stream, with the position at which each ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ekiden_congestion::Tunables;
use ekiden_link::Waiting;
use ekiden_record::{Event as Noted, TunnelDirection};
use ekiden_scenario::{Queue, Scenario};
use ekiden_tcp::Connection;
use ekiden_units::Time;

use crate::events::Event;
use crate::network::Packet;
use crate::simulation::Simulation;
use crate::socket::Program;

/// A packet's length, before it in the stream.
const LENGTH_BYTES: u64 = 2;

/// All tunnels, and which packets go into which.
#[derive(Default)]
pub(crate) struct Tunnels {
    list: Vec<Tunnel>,
    /// By node, then by the node that a packet goes to: the tunnel that takes it, and the end at which it enters. Empty
    /// without tunnels.
    entries: Vec<Vec<Option<(u32, u8)>>>,
}

/// Where a socket is in the tunnels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mouth {
    tunnel: u32,
    connection: u32,
    end: u8,
}

struct Tunnel {
    /// By connection: its sockets, and what enters it, at either end.
    connections: Vec<([u32; 2], [Pipe; 2])>,
    /// Which connection the packets between two sockets take. By the half of their numbers, which they share.
    taken: BTreeMap<u32, u32>,
}

/// One direction of one connection.
struct Pipe {
    limit: Queue,
    waiting: VecDeque<Packet>,
    waiting_bytes: u64,
    /// The packets in the stream, and where each ends.
    inside: VecDeque<(u64, Packet)>,
    /// The end of the last packet in the stream; what of it was not yet written; and how far the other end has read.
    end: u64,
    owed: u64,
    read: u64,
    is_broken: bool,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    packets: u64,
    bytes: u64,
    queue_drops: u64,
    broken_losses: u64,
    queue_max_bytes: u64,
    queue_max_packets: u64,
    rtt_max: Option<Time>,
}

impl Tunnels {
    /// The tunnel that takes a packet to the node `to` that the node `at` forwards.
    fn entry(&self, at: u32, to: u32) -> Option<(u32, u8)> {
        *self.entries.get(at as usize)?.get(to as usize)?
    }

    /// What waits at either end of every connection, and what its queue has dropped, in the order of the scenario.
    pub fn queues(&self) -> impl Iterator<Item = (Waiting, u64)> {
        let pipes = self.list.iter().flat_map(|tunnel| &tunnel.connections).flat_map(|(_, pipes)| pipes);
        pipes.map(|pipe| {
            let waiting = Waiting { packets: pipe.waiting.len() as u64, bytes: pipe.waiting_bytes };
            (waiting, pipe.counts.queue_drops)
        })
    }
}

impl Tunnel {
    /// The connection of a packet: pairs of sockets take turns in the order in which they appear, and stay.
    fn connection(&mut self, packet: &Packet) -> u32 {
        let next = (self.taken.len() % self.connections.len()) as u32;
        *self.taken.entry(packet.socket / 2).or_insert(next)
    }
}

impl Pipe {
    fn new(limit: Queue) -> Self {
        Self {
            limit,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            inside: VecDeque::new(),
            end: 0,
            owed: 0,
            read: 0,
            is_broken: false,
            counts: Counts::default(),
        }
    }

    /// A packet arrives at the queue.
    fn push(&mut self, packet: Packet) {
        let has_room = match self.limit {
            Queue::Bytes(limit) => self.waiting_bytes + u64::from(packet.bytes) <= limit.0,
            Queue::Packets(limit) => (self.waiting.len() as u64) < limit,
        };
        match (self.is_broken, has_room) {
            (true, _) => self.counts.broken_losses += 1,
            (false, false) => self.counts.queue_drops += 1,
            (false, true) => {
                self.waiting.push_back(packet);
                self.waiting_bytes += u64::from(packet.bytes);
            }
        }
    }

    /// Packets go from the queue into the stream while its send buffer has room for them.
    fn fill(&mut self, connection: &mut Connection, send_buffer: u64) {
        self.owed -= connection.write(self.owed);
        while let Some(packet) = self.waiting.front().copied().filter(|_| self.owed == 0) {
            let bytes = LENGTH_BYTES + u64::from(packet.bytes);
            // What is larger than the whole buffer goes in parts.
            if connection.room() < bytes.min(send_buffer) {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(packet.bytes);
            self.end += bytes;
            self.inside.push_back((self.end, packet));
            self.owed = bytes - connection.write(bytes);
        }
        self.note_most();
    }

    fn note_most(&mut self) {
        self.counts.queue_max_bytes = self.counts.queue_max_bytes.max(self.waiting_bytes);
        self.counts.queue_max_packets = self.counts.queue_max_packets.max(self.waiting.len() as u64);
    }

    /// The next packet that has arrived to its end at the other end.
    fn next_out(&mut self) -> Option<Packet> {
        let packet = self.inside.front().filter(|(end, _)| *end <= self.read)?.1;
        self.inside.pop_front();
        self.counts.packets += 1;
        self.counts.bytes += u64::from(packet.bytes);
        Some(packet)
    }

    /// The connection has died, with all that is in it.
    fn break_down(&mut self) {
        self.is_broken = true;
        self.counts.broken_losses += (self.waiting.len() + self.inside.len()) as u64;
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.inside.clear();
    }
}

impl Simulation<'_> {
    /// Makes the tunnels, whose connections open at once.
    pub(crate) fn add_tunnels(&mut self, tunables: &Arc<Tunables>) {
        let scenario = self.scenario;
        for (number, tunnel) in scenario.tunnels.values().enumerate() {
            let [a, b] = &tunnel.ends;
            let mut connections = Vec::new();
            for connection in 0..tunnel.connections {
                let here = self.sockets.len() as u32;
                let mouth = |end| Program::Tunnel(Mouth { tunnel: number as u32, connection, end });
                self.add_leg([a, b], [mouth(0), mouth(1)], [&tunnel.tcp; 2], tunables);
                self.events.plan(Time(0), Event::Open(here));
                connections.push(([here, here + 1], [Pipe::new(tunnel.queue), Pipe::new(tunnel.queue)]));
            }
            self.tunnels.list.push(Tunnel { connections, taken: BTreeMap::new() });
        }
        if !scenario.tunnels.is_empty() {
            self.tunnels.entries = entries(scenario);
        }
    }

    /// A node forwards a packet: into a tunnel, if one takes it. Sockets may want to be served then.
    pub(crate) fn forward(&mut self, at: u32, packet: Packet) {
        let Some((tunnel, end)) = self.tunnels.entry(at, packet.to) else {
            self.network.send(&mut self.events, at, packet);
            return;
        };
        let tunnel = &mut self.tunnels.list[tunnel as usize];
        let connection = tunnel.connection(&packet);
        let (sockets, pipes) = &mut tunnel.connections[connection as usize];
        let (pipe, socket) = (&mut pipes[usize::from(end)], sockets[usize::from(end)]);
        pipe.push(packet);
        match self.sockets[socket as usize].connection {
            Some(_) => self.waiting.push(socket),
            // Nothing goes into the stream until there is one.
            None => pipe.note_most(),
        }
    }

    /// Moves what it can at one end of a tunnel's connection: from the queue into it, and out of it, on its way.
    pub(crate) fn carry(&mut self, number: u32, Mouth { tunnel, connection: of_tunnel, end }: Mouth) {
        let socket = &mut self.sockets[number as usize];
        let Some(connection) = &mut socket.connection else { return };
        let (node, end) = (socket.node, usize::from(end));
        let (tunnel, of_tunnel) = (tunnel as usize, of_tunnel as usize);
        let (_, pipes) = &mut self.tunnels.list[tunnel].connections[of_tunnel];
        pipes[end].fill(connection, socket.stack.settings.send_buffer);
        pipes[1 - end].read += connection.read(u64::MAX);
        while let Some(packet) = self.tunnels.list[tunnel].connections[of_tunnel].1[1 - end].next_out() {
            self.forward(node, packet);
        }
    }

    /// A tunnel's connection has died.
    pub(crate) fn break_tunnel(&mut self, mouth: Mouth, reason: &str) {
        let Mouth { tunnel, connection, .. } = mouth;
        let (sockets, pipes) = &mut self.tunnels.list[tunnel as usize].connections[connection as usize];
        if pipes[0].is_broken {
            return;
        }
        pipes.iter_mut().for_each(Pipe::break_down);
        let lost: u64 = pipes.iter().map(|pipe| pipe.counts.broken_losses).sum();
        for socket in *sockets {
            if let Some(connection) = &mut self.sockets[socket as usize].connection
                && connection.failure().is_none()
            {
                connection.abort();
                self.waiting.push(socket);
            }
        }
        let name = self.scenario.tunnels.get_index(tunnel as usize).map_or("", |(name, _)| name);
        self.noted.push(Noted {
            at_us: self.events.now().0 / 1000,
            flow: None,
            connection: None,
            kind: "failed".into(),
            detail: format!("tunnel {name}, connection {connection}: {reason}; {lost} packets lost with it"),
        });
    }

    /// Notes the round-trip times of the tunnels' connections.
    pub(crate) fn sample_tunnels(&mut self) {
        for (sockets, pipes) in self.tunnels.list.iter_mut().flat_map(|tunnel| &mut tunnel.connections) {
            for (socket, pipe) in sockets.iter().zip(pipes) {
                let rtt =
                    self.sockets[*socket as usize].connection.as_ref().and_then(|connection| connection.info().rtt);
                pipe.counts.rtt_max = pipe.counts.rtt_max.max(rtt);
            }
        }
    }

    /// What every direction of every tunnel's connections has done.
    pub(crate) fn report_tunnels(&self) -> Vec<TunnelDirection> {
        let mut report = Vec::new();
        for ((name, described), tunnel) in self.scenario.tunnels.iter().zip(&self.tunnels.list) {
            for (connection, (sockets, pipes)) in tunnel.connections.iter().enumerate() {
                for end in 0..2 {
                    let info = self.sockets[sockets[end] as usize].connection.as_ref().map(Connection::info);
                    let counts = &pipes[end].counts;
                    report.push(TunnelDirection {
                        tunnel: name.clone(),
                        connection: connection as u32,
                        from: described.ends[end].clone(),
                        to: described.ends[1 - end].clone(),
                        packets: counts.packets,
                        bytes: counts.bytes,
                        queue_drops: counts.queue_drops,
                        broken_losses: counts.broken_losses,
                        queue_max_bytes: counts.queue_max_bytes,
                        queue_max_packets: counts.queue_max_packets,
                        retransmits: info.map_or(0, |info| info.retransmits),
                        timeouts: info.map_or(0, |info| info.timeouts),
                        rtt_min_us: info.and_then(|info| info.rtt_min).map(|rtt| rtt.0 / 1000),
                        rtt_max_us: counts.rtt_max.map(|rtt| rtt.0 / 1000),
                    });
                }
            }
        }
        report
    }
}

/// Which tunnel takes what the nodes forward: the first of the file whose one end the node is, and over whose other end
/// the packet's path leads. What goes to that end itself stays outside, as what comes from it does.
fn entries(scenario: &Scenario) -> Vec<Vec<Option<(u32, u8)>>> {
    let leads_over = |from: &str, over: &str, to: &str| {
        scenario.path(from, to).is_some_and(|path| path.iter().any(|hop| hop.to == over && over != to))
    };
    let entry = |at: &String, to: &String| {
        scenario.tunnels.values().enumerate().find_map(|(number, tunnel)| {
            let end = tunnel.ends.iter().position(|end| end == at)?;
            leads_over(at, &tunnel.ends[1 - end], to).then_some((number as u32, end as u8))
        })
    };
    scenario.nodes.keys().map(|at| scenario.nodes.keys().map(|to| entry(at, to)).collect()).collect()
}
