//! All sockets: what their programs do, and which of them have something to do.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ekiden_congestion::{PathMemory, Tunables};
use ekiden_packet::{Segment, Seq};
use ekiden_scenario::{Profile, Scenario, Tcp};
use ekiden_tcp::{Connection, Failure, State};
use ekiden_units::Time;
use ekiden_units::random::{self, Random};

use crate::packet::node_number;
use crate::socket::{Once, Program, Socket, TunnelEnd};
use crate::stack::Stack;

/// Ports of sources and of those that they connect to.
const PORTS: (u16, u16) = (40_000, 20_000);

/// All sockets. They stand in pairs, the one that opens the connection first.
pub(crate) struct Sockets<'a> {
    scenario: &'a Scenario,
    tunables: Arc<Tunables>,
    /// What each node knows about the paths to others.
    paths: BTreeMap<(u32, u32), PathMemory>,
    list: Vec<Socket>,
    /// Those whose programs may have something to do: last in, first out.
    waiting: Vec<u32>,
    /// Those to which another socket's program has written.
    written: Vec<u32>,
}

/// Two nodes between which there are connections, and their TCP.
pub(crate) struct Between {
    nodes: [u32; 2],
    stacks: [Arc<Stack>; 2],
}

/// What a socket's program asks others to do.
pub(crate) enum Effect {
    Nothing,
    /// The number of bytes of a flow that have arrived, perhaps 0; and if `is_end`, the end of this connection.
    Received {
        flow: u32,
        bytes: u64,
        is_end: bool,
    },
    /// A socket is to open its connection.
    Open(u32),
    /// A stream has come to the socket at which it enters the overlay.
    Place {
        flow: u32,
        entry: u32,
    },
    /// A stream that entered the overlay at this socket has reached its destination.
    Reached(u32),
    /// Packets may go into or come out of an end of a tunnel.
    Carry(TunnelEnd),
    /// A source knows that all it has sent has arrived.
    Sent {
        flow: u32,
        source: u32,
    },
    /// A flow has failed with one of its connections.
    FlowFailed {
        flow: u32,
        reason: &'static str,
    },
    /// The connection at this end of a tunnel has failed.
    TunnelFailed {
        end: TunnelEnd,
        reason: &'static str,
    },
}

impl<'a> Sockets<'a> {
    pub fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            tunables: Arc::new(scenario.tunables()),
            paths: BTreeMap::new(),
            list: Vec::new(),
            waiting: Vec::new(),
            written: Vec::new(),
        }
    }

    /// The number of the next socket that is added.
    pub fn next_number(&self) -> u32 {
        self.list.len() as u32
    }

    /// Two nodes between which there are connections, the one that opens them first.
    pub fn between(&self, nodes: [&str; 2], tcp: [&Tcp; 2]) -> Between {
        let scenario = self.scenario;
        let mtu = |from, to| scenario.path(from, to).and_then(|path| path.iter().map(|hop| hop.link.mtu()).min());
        let there = mtu(nodes[0], nodes[1]).unwrap_or(u32::MAX);
        let mtu = there.min(mtu(nodes[1], nodes[0]).unwrap_or(u32::MAX));
        Between {
            nodes: nodes.map(|node| node_number(scenario, node)),
            stacks: tcp.map(|tcp| Arc::new(Stack::new(tcp, mtu, &self.tunables))),
        }
    }

    /// Two nodes between which there are connections of a tunnel. As the real tunnel, they do not hold short segments back where
    /// their TCP is Linux's.
    pub fn between_tunnel_ends(&self, nodes: [&str; 2], tcp: &Tcp) -> Between {
        let mut between = self.between(nodes, [tcp; 2]);
        if tcp.profile == Profile::Linux {
            between.stacks.iter_mut().for_each(|stack| Arc::make_mut(stack).settings.nagle = false);
        }
        between
    }

    /// The two sockets of a connection, at the node that opens it and at the other.
    pub fn add_pair(&mut self, between: &Between, programs: [Program; 2]) {
        let first = self.next_number();
        for (end, program) in programs.into_iter().enumerate() {
            let number = first + end as u32;
            self.list.push(Socket {
                node: between.nodes[end],
                peer_node: between.nodes[1 - end],
                peer: first + 1 - end as u32,
                stack: Arc::clone(&between.stacks[end]),
                path: Arc::clone(self.paths.entry((between.nodes[end], between.nodes[1 - end])).or_default()),
                first_seq: Seq(random::word(self.scenario.seed, number.into()) as u32),
                connection: None,
                is_released: false,
                wakes: Random::new(random::derive(self.scenario.seed, "wakes", number.into())),
                is_to_run: false,
                alarm: None,
                program,
                pacer: None,
            });
        }
    }

    pub fn all(&self) -> &[Socket] {
        &self.list
    }

    #[inline]
    pub fn get(&self, number: u32) -> &Socket {
        &self.list[number as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, number: u32) -> &mut Socket {
        &mut self.list[number as usize]
    }

    /// A socket's program may have something to do.
    #[inline]
    pub fn wake(&mut self, number: u32) {
        self.waiting.push(number);
    }

    /// The next socket that was woken.
    #[inline]
    pub fn next_woken(&mut self) -> Option<u32> {
        self.waiting.pop()
    }

    /// The next socket that may have something to send because another's program has written to it.
    #[inline]
    pub fn next_written(&mut self) -> Option<u32> {
        self.written.pop()
    }

    /// Opens a socket's connection, and wakes it.
    pub fn open(&mut self, number: u32) {
        let ports = (PORTS.0.wrapping_add(number as u16), PORTS.1.wrapping_add(number as u16));
        if self.get_mut(number).open(ports) {
            self.wake(number);
        }
    }

    /// A segment arrives at a socket.
    #[inline]
    pub fn receive(&mut self, now: Time, number: u32, segment: &Segment) {
        self.get_mut(number).receive(now, segment);
        self.wake(number);
    }

    /// A socket's alarm goes off.
    pub fn alarm(&mut self, now: Time, number: u32) {
        if self.get_mut(number).on_alarm(now) {
            self.wake(number);
        }
    }

    /// A source's time is over.
    pub fn stop(&mut self, number: u32) {
        self.get_mut(number).stop();
        self.wake(number);
    }

    /// Resets the connection of a socket, if there is one that has not failed.
    pub fn abort(&mut self, number: u32) {
        if self.get_mut(number).abort() {
            self.wake(number);
        }
    }

    /// These sockets are no longer needed: their memory is freed as soon as they are closed.
    pub fn release(&mut self, numbers: RangeInclusive<u32>) {
        for number in numbers {
            self.get_mut(number).is_released = true;
            self.wake(number);
        }
    }

    /// The path of these sockets has failed: they are reset, and those that are not open yet stay closed.
    pub fn abandon(&mut self, numbers: RangeInclusive<u32>) {
        for number in numbers {
            self.get_mut(number).program = Program::Abandoned;
            self.get_mut(number).is_released = true;
            self.abort(number);
        }
    }

    /// Lets a socket's program do what it can now.
    pub fn work(&mut self, number: u32) -> Effect {
        let socket = &mut self.list[number as usize];
        let Some(connection) = &mut socket.connection else { return Effect::Nothing };
        if let Some(failure) = connection.failure() {
            return self.fail(number, failure);
        }
        if socket.is_released && connection.state() == State::Closed {
            socket.connection = None;
            return Effect::Nothing;
        }
        match &mut socket.program {
            Program::Source { flow, left: Some(left) } => {
                *left -= connection.write(*left);
                if *left == 0 {
                    connection.finish();
                }
                if *left == 0 && connection.is_peer_finished() {
                    return Effect::Sent { flow: *flow, source: number };
                }
                Effect::Nothing
            }
            Program::Source { left: None, .. } => {
                connection.write(u64::MAX);
                Effect::Nothing
            }
            Program::Sink { flow, received, is_done } => {
                let bytes = connection.read(u64::MAX);
                *received += bytes;
                let is_end = connection.is_peer_finished() && !*is_done;
                if is_end {
                    *is_done = true;
                    connection.finish();
                }
                Effect::Received { flow: *flow, bytes, is_end }
            }
            Program::Relay { other, once, .. } => {
                let other = *other;
                let once =
                    if is_connected(connection) { std::mem::replace(once, Once::Nothing) } else { Once::Nothing };
                self.relay(number, other);
                match once {
                    Once::Nothing => Effect::Nothing,
                    Once::Opens => Effect::Open(other),
                    Once::Tells(entry) => Effect::Reached(entry),
                }
            }
            Program::Entry { flow, is_placed } if !*is_placed && is_connected(connection) => {
                *is_placed = true;
                Effect::Place { flow: *flow, entry: number }
            }
            Program::Entry { .. } | Program::Opening { .. } | Program::Abandoned => Effect::Nothing,
            Program::Tunnel(end) => Effect::Carry(*end),
        }
    }

    /// Moves what has arrived at either of a proxy's sockets to the other.
    fn relay(&mut self, a: u32, b: u32) {
        let [Some(first), Some(second)] =
            self.list.get_disjoint_mut([a as usize, b as usize]).map_or([None, None], |[first, second]| {
                [first.connection.as_deref_mut(), second.connection.as_deref_mut()]
            })
        else {
            return;
        };
        let has_moved = pass(first, second) | pass(second, first);
        if has_moved {
            self.written.push(b);
        }
    }

    /// A connection has failed: its flow or its tunnel has, and a proxy's other side is reset.
    fn fail(&mut self, number: u32, failure: Failure) -> Effect {
        let program = self.get(number).program;
        if let Program::Relay { other, .. } = program {
            self.abort(other);
        }
        let reason = reason(failure);
        match program {
            Program::Tunnel(end) => Effect::TunnelFailed { end, reason },
            // This end was reset because another one failed.
            _ if failure == Failure::Aborted => Effect::Nothing,
            // Another path is tried, or was.
            Program::Opening { .. } | Program::Abandoned => Effect::Nothing,
            Program::Source { flow, .. }
            | Program::Sink { flow, .. }
            | Program::Relay { flow, .. }
            | Program::Entry { flow, .. } => Effect::FlowFailed { flow, reason },
        }
    }
}

/// The acknowledgement of the SYN may bring the end as well.
fn is_connected(connection: &Connection) -> bool {
    matches!(connection.state(), State::Established | State::CloseWait)
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

/// A failure as text for the record.
fn reason(failure: Failure) -> &'static str {
    match failure {
        Failure::Refused => "connection refused",
        Failure::Reset => "connection reset",
        Failure::TimedOut => "no answer",
        Failure::Aborted => "connection given up",
    }
}
