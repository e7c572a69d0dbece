//! Proxies whose streams share legs in an order. Crate [`ekiden_queue`] decides, as in a real node
//! (`crates/relay/src/overlay/sharing.rs`).
//!
//! A leg is what goes from one proxy to another. Here each stream has a connection of its own, which begins with slow start; a
//! real node keeps connections for the streams that follow.

use std::collections::BTreeMap;

use ekiden_queue::{Lengths, Order, Service, Sharing, StreamSeen};
use ekiden_scenario::{NodeKind, Scenario};
use ekiden_tcp::State;
use ekiden_units::Time;

use crate::events::Event;
use crate::pacer::Pacer;
use crate::packet::node_number;
use crate::socket::Socket;
use crate::sockets::Sockets;

/// The interval between two looks, and how much longer it is for each stream.
const TICK: Time = Time::ms(20);
const TICK_STREAM: Time = Time(100_000);
/// All streams are of one class.
const SERVICES: [Service; 1] = [Service { weight: 1, ceiling: None, floor: None, order: Order::Soonest }];

/// The legs of such proxies.
pub(crate) struct Shares {
    /// By the nodes at both ends, the one that sends first.
    legs: BTreeMap<[u32; 2], Leg>,
    /// By node.
    lengths: BTreeMap<u32, [Lengths; 1]>,
}

#[derive(Default)]
struct Leg {
    sharing: Sharing,
    /// Sockets on it that have not opened yet, and those that carry streams.
    waiting: Vec<u32>,
    open: Vec<u32>,
}

impl Shares {
    pub fn new(scenario: &Scenario, sockets: &Sockets) -> Self {
        let (mut legs, mut lengths) = (BTreeMap::new(), BTreeMap::new());
        let proxies = scenario.nodes.iter().filter(|(_, node)| node.kind == NodeKind::Proxy);
        let proxies: BTreeMap<u32, Order> =
            proxies.map(|(name, node)| (node_number(scenario, name), node.order)).collect();
        for (number, socket) in (0..).zip(sockets.all()) {
            if proxies.get(&socket.node) == Some(&Order::Soonest) && proxies.contains_key(&socket.peer_node) {
                let leg: &mut Leg = legs.entry([socket.node, socket.peer_node]).or_default();
                leg.waiting.push(number);
                lengths.entry(socket.node).or_insert_with(Default::default);
            }
        }
        Self { legs, lengths }
    }

    /// The first look, if there is such a leg.
    pub fn timers(&self) -> impl Iterator<Item = (Time, Event)> {
        (!self.legs.is_empty()).then_some((TICK, Event::Share)).into_iter()
    }

    /// Looks at all legs, and gives their connections rates. Returns the time of the next look.
    pub fn look(&mut self, now: Time, sockets: &mut Sockets) -> Time {
        let mut streams = 0;
        for ([node, _], leg) in &mut self.legs {
            let Some(lengths) = self.lengths.get_mut(node) else { continue };
            leg.look(now, lengths, sockets);
            streams += leg.open.len() as u64;
        }
        now + TICK + Time(TICK_STREAM.0 * streams)
    }
}

impl Leg {
    fn look(&mut self, now: Time, lengths: &mut [Lengths; 1], sockets: &mut Sockets) {
        let Self { sharing, waiting, open } = self;
        waiting.retain(|number| {
            let is_open = is_open(sockets.get(*number));
            if is_open {
                sharing.begins(0, &SERVICES, now);
                open.push(*number);
            }
            !is_open
        });
        open.retain(|number| {
            let carries = is_open(sockets.get(*number));
            if !carries {
                sharing.ends(0, now);
            }
            carries
        });
        let shown: Vec<StreamSeen> = open.iter().filter_map(|number| shown(*number, sockets.get(*number))).collect();
        let rates = sharing.look(now, &SERVICES, lengths, &shown);
        for (of, rate) in shown.iter().zip(rates) {
            let number = of.stream as u32;
            sockets.get_mut(number).pacer.get_or_insert_with(|| Box::new(Pacer::limited(None))).limit(rate);
        }
    }
}

/// Whether a stream is on it: until both of its ends have arrived.
fn is_open(socket: &Socket) -> bool {
    let state = socket.connection.as_ref().map(|connection| connection.state());
    state.is_some_and(|state| !matches!(state, State::SynSent | State::SynReceived | State::Closed | State::TimeWait))
}

fn shown(number: u32, socket: &Socket) -> Option<StreamSeen> {
    let connection = socket.connection.as_ref()?;
    let info = connection.info();
    let full = |segments: u32| u64::from(segments) * u64::from(info.mss);
    let unsent = connection.unsent();
    let is_shut_out = full(info.outstanding + 1) > info.window;
    Some(StreamSeen {
        stream: number.into(),
        class: 0,
        rtt: info.rtt?,
        rtt_least: info.rtt_min?,
        acked: info.acked_bytes + full(info.sacked),
        handed: info.acked_bytes + full(info.outstanding) + unsent,
        retransmits: info.retransmits,
        is_waiting: unsent > 0 && !is_shut_out,
        in_flight: full(info.pipe),
    })
}
