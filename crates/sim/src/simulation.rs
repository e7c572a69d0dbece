//! The simulation: events happen, sockets are served, until every flow is over.

use std::sync::Arc;

use ekiden_congestion::Tunables;
use ekiden_link::random;
use ekiden_record::{Event as Noted, Outcome};
use ekiden_scenario::{Amount, Scenario, Tcp};
use ekiden_tcp::{Connection, Failure, State};
use ekiden_units::Time;
use ekiden_wire::{Segment, Seq};

use crate::background;
use crate::events::{Event, Events};
use crate::gateway::Gateway;
use crate::network::{Body, IP_HEADER, Network, Packet};
use crate::queues::Queues;
use crate::socket::{Program, Socket};
use crate::stack::{Stack, parameters};
use crate::tunnel::Tunnels;
use crate::{Error, Options, Progress};

/// A flow of which nothing arrives for this long has failed.
const PATIENCE: Time = Time::secs(600);
/// Ports of sources and of those that they connect to.
const PORTS: (u16, u16) = (40_000, 20_000);
/// How many events happen between two looks at the progress.
const PROGRESS_EVENTS: u64 = 1 << 17;

pub(crate) struct Simulation<'a> {
    pub scenario: &'a Scenario,
    options: &'a Options,
    pub events: Events,
    pub network: Network,
    pub sockets: Vec<Socket>,
    pub tunnels: Tunnels,
    pub flows: Vec<Flow>,
    /// Flows that are not over.
    going: usize,
    background: Vec<background::Source>,
    pub samples: Vec<ekiden_record::Sample>,
    pub queues: Queues,
    pub noted: Vec<Noted>,
    /// Sockets to be served.
    pub waiting: Vec<u32>,
}

/// How a flow of the scenario goes.
pub(crate) struct Flow {
    /// The sockets that send and those that receive, one of each per connection.
    pub sources: Vec<u32>,
    pub sinks: Vec<u32>,
    pub start: Time,
    pub received: u64,
    pub last_arrival: Time,
    pub outcome: Option<Outcome>,
}

impl<'a> Simulation<'a> {
    pub fn new(scenario: &'a Scenario, options: &'a Options) -> Result<Self, Error> {
        let ends = scenario.flows.values().flat_map(|flow| [&flow.from, &flow.to].into_iter().chain(&flow.via));
        let ends = ends.chain(scenario.tunnels.values().flat_map(|tunnel| &tunnel.ends));
        let ends = ends.chain(scenario.background.values().map(|background| &background.to));
        let ends: Vec<_> = ends.filter_map(|node| scenario.nodes.get_index_of(node)).collect();
        let mut simulation = Self {
            scenario,
            options,
            events: Events::default(),
            network: Network::new(scenario, ends),
            sockets: Vec::new(),
            tunnels: Tunnels::default(),
            flows: Vec::new(),
            going: scenario.flows.len(),
            background: Vec::new(),
            samples: Vec::new(),
            queues: Queues::new(scenario),
            noted: Vec::new(),
            waiting: Vec::new(),
        };
        let tunables = parameters()?;
        simulation.add_tunnels(&tunables);
        for number in 0..scenario.flows.len() {
            simulation.add_flow(number, &tunables);
        }
        simulation.network.add_gateways(Gateway::all(scenario, &simulation.sockets));
        for (number, (name, background)) in scenario.background.iter().enumerate() {
            let source = background::Source::new(scenario, number as u32, name, background);
            if let Some(at) = source.next() {
                simulation.events.plan(at, Event::Datagram(number as u32));
            }
            simulation.background.push(source);
        }
        simulation.events.plan(options.resolution, Event::Sample);
        Ok(simulation)
    }

    fn add_flow(&mut self, number: usize, tunables: &Arc<Tunables>) {
        let Some((_, flow)) = self.scenario.flows.get_index(number) else { return };
        let stations: Vec<&str> =
            [&flow.from].into_iter().chain(&flow.via).chain([&flow.to]).map(String::as_str).collect();
        let (mut sources, mut sinks) = (Vec::new(), Vec::new());
        for _ in 0..flow.parallel {
            let left = match flow.amount {
                Amount::Bytes(bytes) => Some(bytes.0),
                Amount::Duration(_) => None,
            };
            let mut sends = Program::Source { flow: number as u32, left };
            for (at, leg) in stations.windows(2).enumerate() {
                let here = self.sockets.len() as u32;
                let is_last = at + 2 == stations.len();
                let receives = match is_last {
                    true => Program::Sink { flow: number as u32, received: 0, is_done: false },
                    false => Program::Relay { flow: number as u32, other: here + 2, opens: true },
                };
                let tcp = [leg[0], leg[1]].map(|node| &self.scenario.nodes[node].tcp);
                self.add_leg([leg[0], leg[1]], [sends, receives], tcp, tunables);
                sends = Program::Relay { flow: number as u32, other: here + 1, opens: false };
                if at == 0 {
                    sources.push(here);
                }
                if is_last {
                    sinks.push(here + 1);
                }
            }
        }
        for source in &sources {
            self.events.plan(flow.start, Event::Open(*source));
            if let Amount::Duration(duration) = flow.amount {
                self.events.plan(flow.start + duration, Event::Stop(*source));
            }
        }
        self.flows.push(Flow {
            sources,
            sinks,
            start: flow.start,
            received: 0,
            last_arrival: flow.start,
            outcome: None,
        });
    }

    /// The two sockets of a connection, at the node that opens it and at the other.
    pub fn add_leg(
        &mut self,
        [from, to]: [&str; 2],
        [first, second]: [Program; 2],
        [from_tcp, to_tcp]: [&Tcp; 2],
        tunables: &Arc<Tunables>,
    ) {
        let scenario = self.scenario;
        let here = self.sockets.len() as u32;
        let mtu = |from, to| scenario.path(from, to).and_then(|path| path.iter().map(|hop| hop.link.mtu).min());
        let index = |node| scenario.nodes.get_index_of(node).unwrap_or_default() as u32;
        for (node, peer_node, peer, program, tcp) in
            [(from, to, here + 1, first, from_tcp), (to, from, here, second, to_tcp)]
        {
            let mtu = mtu(node, peer_node).unwrap_or(u32::MAX).min(mtu(peer_node, node).unwrap_or(u32::MAX));
            self.sockets.push(Socket {
                node: index(node),
                peer_node: index(peer_node),
                peer,
                stack: Stack::new(tcp, mtu, tunables),
                connection: None,
                alarm: None,
                program,
            });
        }
    }

    /// Lets everything happen until every flow is over.
    pub fn run(&mut self, progress: &mut dyn FnMut(Progress)) {
        while self.going > 0 {
            let Some(event) = self.events.next() else { break };
            self.happen(event);
            if self.events.happened().is_multiple_of(PROGRESS_EVENTS) {
                progress(self.progress());
            }
        }
        progress(self.progress());
    }

    fn progress(&self) -> Progress {
        Progress {
            now: self.events.now(),
            events: self.events.happened(),
            received_bytes: self.flows.iter().map(|flow| flow.received).sum(),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Delivery(line) => {
                if let Some((at, packet)) = self.network.deliver(&mut self.events, line) {
                    match &packet.body {
                        Body::Segment(segment) if at == packet.to => self.receive(packet.socket, segment),
                        Body::Datagram { .. } if at == packet.to => {}
                        _ => self.forward(at, packet),
                    }
                    self.serve_waiting();
                }
            }
            Event::Datagram(number) => {
                let source = &mut self.background[number as usize];
                let packet = source.send();
                let from = source.from;
                if let Some(at) = source.next() {
                    self.events.plan(at, Event::Datagram(number));
                }
                // A node that is a tunnel's end has its own datagrams carried too.
                self.forward(from, packet);
                self.serve_waiting();
            }
            Event::Alarm(socket) => self.alarm(socket),
            Event::Open(socket) => self.open(socket),
            Event::Stop(socket) => {
                if let Program::Source { left, .. } = &mut self.sockets[socket as usize].program {
                    *left = Some(0);
                }
                self.serve(socket);
            }
            Event::Sample => {
                self.sample();
                self.note_queues();
                self.give_up();
                self.events.plan(self.events.now() + self.options.resolution, Event::Sample);
            }
        }
    }

    fn first_seq(&self, socket: u32) -> Seq {
        Seq(random::word(self.scenario.seed, socket.into()) as u32)
    }

    fn open(&mut self, number: u32) {
        let first = self.first_seq(number);
        let ports = (PORTS.0.wrapping_add(number as u16), PORTS.1.wrapping_add(number as u16));
        let socket = &mut self.sockets[number as usize];
        if socket.connection.is_none() {
            let stack = &socket.stack;
            socket.connection = Some(Connection::connect(&stack.settings, stack.control(), ports, first));
            self.serve(number);
        }
    }

    fn receive(&mut self, number: u32, segment: &Segment) {
        let now = self.events.now();
        let first = self.first_seq(number);
        let socket = &mut self.sockets[number as usize];
        match &mut socket.connection {
            Some(connection) => {
                connection.on_segment(now, segment);
            }
            None => {
                let Socket { stack, connection, .. } = socket;
                *connection = Connection::accept(&stack.settings, stack.control(), segment, first, now);
            }
        }
        self.waiting.push(number);
    }

    fn alarm(&mut self, number: u32) {
        let now = self.events.now();
        let socket = &mut self.sockets[number as usize];
        if socket.alarm != Some(now) {
            return;
        }
        socket.alarm = None;
        if let Some(connection) = &mut socket.connection {
            connection.on_time(now);
        }
        self.serve(number);
    }

    /// Lets a socket's program do what it can now, and those that follow from it; then sends.
    fn serve(&mut self, number: u32) {
        self.waiting.push(number);
        self.serve_waiting();
    }

    fn serve_waiting(&mut self) {
        while let Some(number) = self.waiting.pop() {
            self.work(number);
            self.transmit(number);
        }
    }

    fn work(&mut self, number: u32) {
        let now = self.events.now();
        let socket = &mut self.sockets[number as usize];
        let Some(connection) = &mut socket.connection else { return };
        if let Some(failure) = connection.failure() {
            self.fail(number, failure);
            return;
        }
        match &mut socket.program {
            Program::Source { left, .. } => match left {
                Some(left) => {
                    *left -= connection.write(*left);
                    if *left == 0 {
                        connection.finish();
                    }
                }
                None => {
                    connection.write(u64::MAX);
                }
            },
            Program::Sink { flow: number, received, is_done } => {
                let number = *number;
                let bytes = connection.read(u64::MAX);
                *received += bytes;
                let flow = &mut self.flows[number as usize];
                if bytes > 0 {
                    flow.received += bytes;
                    flow.last_arrival = now;
                }
                if connection.is_peer_finished() && !*is_done {
                    *is_done = true;
                    connection.finish();
                    self.note_end(number as usize);
                }
            }
            Program::Relay { other, opens, .. } => {
                let other = *other;
                if *opens && connection.state() == State::Established {
                    *opens = false;
                    // Not `open`, which would serve it before this one.
                    self.events.plan(now, Event::Open(other));
                }
                self.relay(number, other);
            }
            Program::Tunnel(mouth) => {
                let mouth = *mouth;
                self.carry(number, mouth);
            }
        }
    }

    /// Moves what has arrived at either of a proxy's sockets to the other.
    fn relay(&mut self, a: u32, b: u32) {
        let [Some(first), Some(second)] = self
            .sockets
            .get_disjoint_mut([a as usize, b as usize])
            .map_or([None, None], |[first, second]| [first.connection.as_mut(), second.connection.as_mut()])
        else {
            return;
        };
        let has_moved = pass(first, second) | pass(second, first);
        if has_moved {
            self.waiting.push(b);
        }
    }

    fn transmit(&mut self, number: u32) {
        let now = self.events.now();
        let socket = &mut self.sockets[number as usize];
        let Some(connection) = &mut socket.connection else { return };
        while let Some(transmit) = connection.poll_transmit(now) {
            let bytes = IP_HEADER + transmit.segment.header_bytes() + transmit.segment.payload;
            let packet =
                Packet { to: socket.peer_node, socket: socket.peer, bytes, body: Body::Segment(transmit.segment) };
            self.network.send(&mut self.events, socket.node, packet);
        }
        if let Some(at) = connection.timeout().map(|at| at.max(now))
            && socket.alarm.is_none_or(|planned| at < planned)
        {
            socket.alarm = Some(at);
            self.events.plan(at, Event::Alarm(number));
        }
    }

    /// A connection has failed: the flow has, and a proxy's other side is reset.
    fn fail(&mut self, number: u32, failure: Failure) {
        let program = self.sockets[number as usize].program;
        if let Program::Relay { other, .. } = program
            && let Some(connection) = &mut self.sockets[other as usize].connection
            && connection.failure().is_none()
        {
            connection.abort();
            self.waiting.push(other);
        }
        match program {
            Program::Tunnel(mouth) => self.break_tunnel(mouth, reason(failure)),
            // Because of another's failure.
            _ if failure == Failure::Aborted => {}
            Program::Source { flow, .. } | Program::Sink { flow, .. } | Program::Relay { flow, .. } => {
                self.end_flow(flow as usize, Outcome::Failed { reason: reason(failure).into() });
            }
        }
    }

    /// A connection of the flow has arrived to its end.
    fn note_end(&mut self, number: usize) {
        let is_done = |sink: &u32| matches!(self.sockets[*sink as usize].program, Program::Sink { is_done: true, .. });
        if self.flows[number].sinks.iter().all(is_done) {
            self.end_flow(number, Outcome::Complete);
        }
    }

    fn end_flow(&mut self, number: usize, outcome: Outcome) {
        let at_us = self.events.now().0 / 1000;
        let flow = self.scenario.flows.get_index(number).map(|(name, _)| name.clone());
        let (kind, detail) = match &outcome {
            Outcome::Failed { reason } => ("failed", reason.clone()),
            _ => ("finished", String::new()),
        };
        if self.flows[number].outcome.is_none() {
            self.flows[number].outcome = Some(outcome);
            self.going -= 1;
            self.noted.push(Noted { at_us, flow, connection: None, kind: kind.into(), detail });
        }
    }

    /// Flows of which nothing arrives any more have failed.
    fn give_up(&mut self) {
        let now = self.events.now();
        for number in 0..self.flows.len() {
            let flow = &self.flows[number];
            if flow.outcome.is_none() && now > flow.start && now.since(flow.last_arrival) > PATIENCE {
                let reason = format!("nothing arrived for {PATIENCE}");
                self.end_flow(number, Outcome::Failed { reason });
            }
        }
    }
}

/// Moves what has arrived on one connection to another, and its end. Returns whether there was anything.
fn pass(from: &mut Connection, to: &mut Connection) -> bool {
    let bytes = to.write(from.readable());
    from.read(bytes);
    let ends = from.is_peer_finished() && from.readable() == 0;
    let is_news = ends && !to.has_finished_writing();
    if is_news {
        to.finish();
    }
    bytes > 0 || is_news
}

/// For people.
fn reason(failure: Failure) -> &'static str {
    match failure {
        Failure::Refused => "connection refused",
        Failure::Reset => "connection reset",
        Failure::TimedOut => "no answer",
        Failure::Aborted => "connection given up",
    }
}
