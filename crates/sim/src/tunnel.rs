//! TCP tunnels: packets that one end forwards travel, whole and in order, through a TCP connection to the other end.
//!
//! In the stream of a connection two bytes of length precede each packet. The simulator keeps the packets themselves beside
//! the stream, with the position at which each ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ekiden_queue::{QueueLength, Siblings, Signals};
use ekiden_record::{Event as Noted, TunnelDirection};
use ekiden_scenario::Scenario;
use ekiden_tcp::Connection;
use ekiden_units::{Time, random};

use crate::events::Event;
use crate::ingress::{Ingress, Sending};
use crate::pacer::Pacer;
use crate::packet::{Body, Packet};
use crate::socket::{Program, Socket, TunnelEnd};
use crate::sockets::Sockets;

/// A packet's length, before it in the stream.
const LENGTH_BYTES: u64 = 2;

/// All tunnels, and which packets go into which.
pub(crate) struct Tunnels<'a> {
    list: Vec<Tunnel<'a>>,
    /// By node, then by the node that a packet goes to: the tunnel that takes it, and the end at which it enters. Empty
    /// without tunnels.
    entries: Vec<Vec<Option<(u32, u8)>>>,
}

/// A connection of a tunnel that has failed.
pub(crate) struct Broken {
    /// Its sockets. One may not have noticed the failure yet.
    pub sockets: [u32; 2],
    /// What is to be noted.
    pub noted: Noted,
}

struct Tunnel<'a> {
    name: &'a str,
    /// The nodes at its ends.
    ends: &'a [String; 2],
    connections: Vec<TunnelConnection>,
    /// The last of them is for datagrams alone.
    separates: bool,
    /// Which connection a conversation's packets take.
    taken: BTreeMap<u64, u32>,
}

/// A connection of a tunnel.
struct TunnelConnection {
    /// By end: the socket, and what enters there.
    sockets: [u32; 2],
    pipes: [Pipe; 2],
}

/// One direction of one connection.
struct Pipe {
    waiting: Ingress,
    /// The packets in the stream, and where each ends.
    inside: VecDeque<(u64, Packet)>,
    /// The end of the last packet in the stream; how many of its bytes are not yet written; how far the other end has read.
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
    signals: Signals,
    broken_losses: u64,
    queue_max_bytes: u64,
    queue_max_packets: u64,
    rtt_max: Option<Time>,
}

impl<'a> Tunnels<'a> {
    /// The tunnels of a scenario, for which it adds sockets.
    pub fn new(scenario: &'a Scenario, sockets: &mut Sockets) -> Self {
        let mut list = Vec::new();
        for (at, (name, tunnel)) in scenario.tunnels.iter().enumerate() {
            let [a, b] = &tunnel.ends;
            let mut connections = Vec::new();
            let between = sockets.between_tunnel_ends([a, b], &tunnel.tcp);
            let number = (tunnel.connections + u32::from(tunnel.separate)) as usize;
            let siblings = [Siblings::new(number), Siblings::new(number)];
            let mtu = scenario.links.values().map(|link| link.mtu()).max().unwrap_or_default();
            for connection in 0..tunnel.connections + u32::from(tunnel.separate) {
                let first = sockets.next_number();
                let program = |end| Program::Tunnel(TunnelEnd { tunnel: at as u32, connection, end });
                sockets.add_pair(&between, [program(0), program(1)]);
                if tunnel.pull.is_some_and(|pull| pull.paced) {
                    for (end, siblings) in (first..).zip(&siblings) {
                        sockets.get_mut(end).pacer = Some(Box::new(Pacer::new(Arc::clone(siblings))));
                    }
                }
                let pipe = |end| {
                    let salt = random::derive(scenario.seed, "tunnel", u64::from(first + end));
                    Pipe::new(Ingress::new(tunnel, mtu, salt))
                };
                let pipes = [pipe(0), pipe(1)];
                connections.push(TunnelConnection { sockets: [first, first + 1], pipes });
            }
            list.push(Tunnel {
                name,
                ends: &tunnel.ends,
                connections,
                separates: tunnel.separate,
                taken: BTreeMap::new(),
            });
        }
        let entries = if list.is_empty() { Vec::new() } else { entries(scenario) };
        Self { list, entries }
    }

    /// Their connections open at once.
    pub fn timers(&self) -> impl Iterator<Item = (Time, Event)> {
        self.all().map(|(_, _, inner)| (Time(0), Event::Open(inner.sockets[0])))
    }

    /// The node `at` forwards a packet. If a tunnel takes it, returns the socket that then has something to do.
    #[inline]
    pub fn enter(&mut self, now: Time, at: u32, packet: &Packet) -> Option<u32> {
        let (tunnel, end) = (*self.entries.get(at as usize)?.get(packet.to as usize)?)?;
        let inner = self.list[tunnel as usize].connection(packet);
        inner.pipes[usize::from(end)].push(now, *packet);
        Some(inner.sockets[usize::from(end)])
    }

    /// Moves what it can at one end of a connection: from the queue into the stream, and out of the stream, from where
    /// [`Tunnels::next_out`] takes it.
    pub fn carry(&mut self, now: Time, end: TunnelEnd, socket: &mut Socket) {
        let Some(connection) = &mut socket.connection else { return };
        let pipes = &mut self.inner(end).pipes;
        let end = usize::from(end.end);
        pipes[end].fill(now, connection, socket.stack.settings.send_buffer);
        if let Some(pacer) = &mut socket.pacer {
            pacer.look(now, &connection.info(), pipes[end].waiting.length().packets > 0);
        }
        pipes[1 - end].read += connection.read(u64::MAX);
    }

    /// Whether the queue at this end waits until what was written before has been sent.
    pub fn pulls(&mut self, end: TunnelEnd) -> bool {
        self.inner(end).pipes[usize::from(end.end)].waiting.pulls()
    }

    /// The next packet that comes out at this end, and that its node forwards.
    pub fn next_out(&mut self, end: TunnelEnd) -> Option<Packet> {
        self.inner(end).pipes[1 - usize::from(end.end)].next_out()
    }

    /// The connection at this end has failed. Returns what follows, the first time.
    pub fn break_down(&mut self, now: Time, end: TunnelEnd, reason: &str) -> Option<Broken> {
        let TunnelConnection { sockets, pipes } = self.inner(end);
        if pipes[0].is_broken {
            return None;
        }
        pipes.iter_mut().for_each(Pipe::break_down);
        let lost: u64 = pipes.iter().map(|pipe| pipe.counts.broken_losses).sum();
        let sockets = *sockets;
        let (name, connection) = (self.list[end.tunnel as usize].name, end.connection);
        let noted = Noted {
            at_us: now.0 / 1000,
            flow: None,
            connection: None,
            kind: "failed".into(),
            detail: format!("tunnel {name}, connection {connection}: {reason}; {lost} packets lost with it"),
        };
        Some(Broken { sockets, noted })
    }

    /// Notes the round-trip times of all connections.
    pub fn sample(&mut self, sockets: &Sockets) {
        for TunnelConnection { sockets: numbers, pipes } in
            self.list.iter_mut().flat_map(|tunnel| &mut tunnel.connections)
        {
            for (number, pipe) in numbers.iter().zip(pipes) {
                let rtt = sockets.get(*number).info().and_then(|info| info.rtt);
                pipe.counts.rtt_max = pipe.counts.rtt_max.max(rtt);
            }
        }
    }

    /// What waits at either end of every connection, and what its queue has dropped, in the order of the scenario.
    pub fn queues(&self) -> impl Iterator<Item = (QueueLength, u64)> {
        self.all().flat_map(|(_, _, inner)| &inner.pipes).map(|pipe| (pipe.waiting.length(), pipe.counts.signals.drops))
    }

    /// What every direction of every connection has done, in the order of the scenario.
    pub fn report(&self, sockets: &Sockets) -> Vec<TunnelDirection> {
        let directions = self.all().flat_map(|at| [(at, 0), (at, 1)]);
        let report = |((tunnel, connection, inner), end): ((&Tunnel, u32, &TunnelConnection), usize)| {
            let info = sockets.get(inner.sockets[end]).info();
            let counts = &inner.pipes[end].counts;
            TunnelDirection {
                tunnel: tunnel.name.into(),
                connection,
                from: tunnel.ends[end].clone(),
                to: tunnel.ends[1 - end].clone(),
                packets: counts.packets,
                bytes: counts.bytes,
                queue_drops: counts.signals.drops,
                queue_marks: counts.signals.marks,
                broken_losses: counts.broken_losses,
                queue_max_bytes: counts.queue_max_bytes,
                queue_max_packets: counts.queue_max_packets,
                retransmits: info.as_ref().map_or(0, |info| info.retransmits),
                timeouts: info.as_ref().map_or(0, |info| info.timeouts),
                rtt_min_us: info.and_then(|info| info.rtt_min).map(|rtt| rtt.0 / 1000),
                rtt_max_us: counts.rtt_max.map(|rtt| rtt.0 / 1000),
            }
        };
        directions.map(report).collect()
    }

    fn inner(&mut self, end: TunnelEnd) -> &mut TunnelConnection {
        &mut self.list[end.tunnel as usize].connections[end.connection as usize]
    }

    /// Every connection, with its tunnel and its place there.
    fn all(&self) -> impl Iterator<Item = (&Tunnel<'a>, u32, &TunnelConnection)> {
        self.list.iter().flat_map(|tunnel| (0..).zip(&tunnel.connections).map(move |(at, inner)| (tunnel, at, inner)))
    }
}

impl Tunnel<'_> {
    /// The connection of a packet: conversations are assigned round robin, in the order in which they appear, for good.
    fn connection(&mut self, packet: &Packet) -> &mut TunnelConnection {
        let shared = self.connections.len() - usize::from(self.separates);
        let number = match packet.body {
            Body::Datagram { .. } | Body::Echo { .. } if self.separates => shared,
            _ => {
                let next = (self.taken.len() % shared) as u32;
                *self.taken.entry(packet.conversation()).or_insert(next) as usize
            }
        };
        &mut self.connections[number]
    }
}

impl Pipe {
    fn new(waiting: Ingress) -> Self {
        Self { waiting, inside: VecDeque::new(), end: 0, owed: 0, read: 0, is_broken: false, counts: Counts::default() }
    }

    /// A packet arrives at the queue.
    fn push(&mut self, now: Time, packet: Packet) {
        if self.is_broken {
            self.counts.broken_losses += 1;
        } else {
            self.counts.signals.drops += self.waiting.push(now, packet);
        }
        self.note_most();
    }

    /// Packets go from the queue into the stream.
    fn fill(&mut self, now: Time, connection: &mut Connection, buffer: u64) {
        self.owed -= connection.write(self.owed);
        while self.owed == 0 {
            let sending = Sending { buffer, room: connection.room(), unsent: connection.unsent() };
            let next = self.waiting.pop(now, sending, LENGTH_BYTES, &mut self.counts.signals);
            let Some(packet) = next else { break };
            let bytes = LENGTH_BYTES + u64::from(packet.bytes);
            self.end += bytes;
            self.inside.push_back((self.end, packet));
            self.owed = bytes - connection.write(bytes);
        }
    }

    fn note_most(&mut self) {
        let QueueLength { packets, bytes } = self.waiting.length();
        self.counts.queue_max_bytes = self.counts.queue_max_bytes.max(bytes);
        self.counts.queue_max_packets = self.counts.queue_max_packets.max(packets);
    }

    /// The next packet that has arrived to its end at the other end.
    fn next_out(&mut self) -> Option<Packet> {
        let packet = self.inside.front().filter(|(end, _)| *end <= self.read)?.1;
        self.inside.pop_front();
        self.counts.packets += 1;
        self.counts.bytes += u64::from(packet.bytes);
        Some(packet)
    }

    /// The connection has failed: all packets in it are lost.
    fn break_down(&mut self) {
        self.is_broken = true;
        self.counts.broken_losses += self.waiting.length().packets + self.inside.len() as u64;
        self.waiting.clear();
        self.inside.clear();
    }
}

/// By node, then by the node that a packet goes to.
fn entries(scenario: &Scenario) -> Vec<Vec<Option<(u32, u8)>>> {
    let entry = |at: &String, to: &String| scenario.tunnel_from(at, to).map(|(number, end)| (number as u32, end as u8));
    scenario.nodes.keys().map(|at| scenario.nodes.keys().map(|to| entry(at, to)).collect()).collect()
}
