//! A gateway that keeps parallel streams in balance (S2, section 3): it passes the packets of its streams that its node
//! forwards to [`ekiden_window_balance`], and writes the windows that this returns. Or it acts on the data instead, and leaves the
//! windows as they are: it delays, marks or drops.

mod shaper;

use ekiden_packet::{SackBlocks, Segment, Seq};
use ekiden_queue::Queued;
use ekiden_record::Event as Noted;
use ekiden_scenario::{GatewayPolicy, Scenario};
use ekiden_units::Time;
use ekiden_window_balance::{BalanceSettings, Block, Direction, ObservedFlow, Policy, StreamGroup, flags};

use crate::packet::{Body, Packet, node_number};
use crate::socket::Socket;
use shaper::Shaper;

/// All gateways that are enabled.
pub(crate) struct Gateways {
    list: Vec<Gateway>,
    /// By node: whether there is a gateway on it.
    is_watched: Vec<bool>,
}

/// What becomes of a packet that a gateway has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on.
    Passes,
    /// It waits in the gateway. `release` is when its release is to be planned, if it is not yet.
    Waits {
        release: Option<Time>,
    },
    Dropped,
}

/// A packet that has waited leaves.
pub(crate) struct Released {
    /// The gateway's node.
    pub from: u32,
    pub packet: Packet,
    /// When the next release is to be planned, if one is.
    pub next: Option<Time>,
}

/// One `[gateway.*]` of a scenario that is enabled.
struct Gateway {
    name: String,
    /// The node that it is on.
    node: u32,
    policy: GatewayPolicy,
    group: StreamGroup,
    /// By the socket that a packet goes to: the packet's stream and direction.
    ways: Vec<Option<(u32, Direction)>>,
    streams: Vec<Stream>,
    /// The stream that throttles the group; `None` while it is not throttled.
    throttled: Option<u32>,
    /// The number of the last throttling.
    throttlings: u16,
    /// Bytes of the packets that wait in it.
    waiting: u64,
    /// The most that ever waited, and when.
    waited_most: (u64, Time),
    /// Its events for the record.
    noted: Vec<Noted>,
}

/// A stream, as records name it, and what the policies that leave windows alone know of it.
struct Stream {
    flow: String,
    connection: u32,
    /// With [`GatewayPolicy::Delay`].
    shaper: Shaper,
    /// With [`GatewayPolicy::Mark`] and [`GatewayPolicy::Drop`], as the next: the last throttling that the stream has heard of.
    throttling: u16,
    /// That gave it a limit, and no segment has been marked or dropped for it yet.
    is_to_signal: bool,
    /// Behind the last byte that has passed.
    sent: Option<Seq>,
}

impl Gateways {
    /// The gateways of a scenario. Sockets stand in pairs, in which the one that opens the connection and sends comes first.
    pub fn new(scenario: &Scenario, sockets: &[Socket]) -> Self {
        let enabled = scenario.gateways.iter().filter(|(_, gateway)| gateway.enabled);
        let list: Vec<_> = enabled.map(|(name, gateway)| Gateway::new(scenario, name, gateway, sockets)).collect();
        let mut is_watched = vec![false; scenario.nodes.len()];
        for gateway in &list {
            is_watched[gateway.node as usize] = true;
        }
        Self { list, is_watched }
    }

    /// A packet has come to a node. If the node forwards it, its gateways see it, and may change it.
    #[inline]
    pub fn pass(&mut self, now: Time, at: u32, packet: &mut Packet) -> Verdict {
        if !self.is_watched[at as usize] || packet.to == at || !matches!(packet.body, Body::Segment(_)) {
            return Verdict::Passes;
        }
        let mut here = self.list.iter_mut().filter(|gateway| gateway.node == at);
        // No flow is in two groups, so at most one gateway does anything with it.
        here.find_map(|gateway| gateway.forward(now, packet)).unwrap_or(Verdict::Passes)
    }

    /// The release that was planned for the stream whose data goes to this socket.
    pub fn release(&mut self, now: Time, socket: u32) -> Option<Released> {
        self.list.iter_mut().find_map(|gateway| gateway.release(now, socket))
    }

    /// The gateways' events for the record.
    pub fn noted(self) -> impl Iterator<Item = Noted> {
        self.list.into_iter().flat_map(Gateway::into_noted)
    }
}

impl Gateway {
    fn new(scenario: &Scenario, name: &str, gateway: &ekiden_scenario::Gateway, sockets: &[Socket]) -> Self {
        let settings = match gateway.paper {
            None => {
                BalanceSettings { watches: gateway.policy != GatewayPolicy::Delivered, ..BalanceSettings::default() }
            }
            Some(paper) => BalanceSettings {
                policy: Policy::Paper,
                repeats: paper.repeats,
                part: paper.part.as_f64(),
                observes: match paper.observes {
                    ekiden_scenario::ObservedFlow::Acknowledged => ObservedFlow::Acknowledged,
                    ekiden_scenario::ObservedFlow::Sent => ObservedFlow::Sent,
                },
                ..BalanceSettings::default()
            },
        };
        let mut made = Self {
            name: name.into(),
            node: node_number(scenario, &gateway.node),
            policy: gateway.policy,
            group: StreamGroup::new(settings),
            ways: vec![None; sockets.len()],
            streams: Vec::new(),
            throttled: None,
            throttlings: 0,
            waiting: 0,
            waited_most: (0, Time(0)),
            noted: Vec::new(),
        };
        made.find_streams(scenario, gateway, sockets);
        made
    }

    /// Finds the connections of its flows that its node forwards, and numbers them as streams. Connections that proxies join
    /// are one stream.
    fn find_streams(&mut self, scenario: &Scenario, gateway: &ekiden_scenario::Gateway, sockets: &[Socket]) {
        let node = |node: u32| scenario.nodes.get_index(node as usize).map_or("", |(name, _)| name);
        let forwards = |from: u32, to: u32| {
            let path = scenario.path(node(from), node(to)).unwrap_or_default();
            path.iter().skip(1).any(|hop| hop.from == gateway.node)
        };
        for name in &gateway.flows {
            let Some((number, _, flow)) = scenario.flows.get_full(name) else { continue };
            let legs = flow.via.len() + 1;
            let pairs = sockets.chunks_exact(2).enumerate();
            let of_flow = pairs.filter(|(_, pair)| pair[0].program.flow() == Some(number as u32));
            for (nth, (at, pair)) in of_flow.enumerate() {
                let ends = (pair[0].node, pair[1].node);
                if !forwards(ends.0, ends.1) || !forwards(ends.1, ends.0) {
                    continue;
                }
                let stream = self.streams.len() as u32;
                self.streams.push(Stream {
                    flow: name.clone(),
                    connection: (nth / legs) as u32,
                    shaper: Shaper::default(),
                    throttling: 0,
                    is_to_signal: false,
                    sent: None,
                });
                self.ways[2 * at + 1] = Some((stream, Direction::Data));
                self.ways[2 * at] = Some((stream, Direction::Acks));
            }
        }
    }

    /// The node forwards a segment. `None` if it is not of the group.
    fn forward(&mut self, now: Time, packet: &mut Packet) -> Option<Verdict> {
        let (stream, direction) = self.way(packet.socket)?;
        if self.policy == GatewayPolicy::Delay && direction == Direction::Data {
            let verdict = self.streams[stream as usize].shaper.offer(now, packet);
            if verdict != Verdict::Passes {
                self.waiting += u64::from(packet.bytes);
                self.waited_most = self.waited_most.max((self.waiting, now));
                return Some(verdict);
            }
        }
        Some(self.see(now, stream, direction, packet))
    }

    /// The next packet of a stream that waits leaves. The group sees it only now, so that its round trips are of the path alone.
    fn release(&mut self, now: Time, socket: u32) -> Option<Released> {
        let (stream, direction) = self.way(socket)?;
        let mut packet = self.streams[stream as usize].shaper.take()?;
        self.waiting -= u64::from(packet.bytes);
        self.see(now, stream, direction, &mut packet);
        Some(Released { from: self.node, packet, next: self.streams[stream as usize].shaper.next() })
    }

    /// The stream and the direction of what goes to a socket. Sockets that are added later are of no gateway's flows.
    fn way(&self, socket: u32) -> Option<(u32, Direction)> {
        self.ways.get(socket as usize).copied().flatten()
    }

    /// A segment leaves the gateway.
    fn see(&mut self, now: Time, stream: u32, direction: Direction, packet: &mut Packet) -> Verdict {
        let Body::Segment(segment) = &mut packet.body else { return Verdict::Passes };
        let (seen, payload) = (seen(now, direction, segment), segment.payload);
        segment.window = self.group.observe(stream, &seen).unwrap_or(segment.window);
        let (throttled, throttlings) = (self.group.throttled_by(), self.group.throttlings());
        if (throttled, throttlings) != (self.throttled, self.throttlings) {
            self.note(now, throttled, throttlings);
        }
        match (self.policy, direction) {
            (GatewayPolicy::Delay, Direction::Data) => {
                let pace = self.group.pace(stream);
                self.streams[stream as usize].shaper.left(now, payload, pace);
                Verdict::Passes
            }
            (GatewayPolicy::Mark | GatewayPolicy::Drop, _) => self.signal(now, stream, direction, packet),
            _ => Verdict::Passes,
        }
    }

    /// Marks or drops the first new data of a stream since a throttling has given it a limit.
    fn signal(&mut self, now: Time, number: u32, direction: Direction, packet: &mut Packet) -> Verdict {
        let stream = &mut self.streams[number as usize];
        if stream.throttling != self.group.throttlings() {
            stream.throttling = self.group.throttlings();
            stream.is_to_signal = self.group.limit(number).is_some();
        }
        if direction == Direction::Acks || !stream.is_new(packet) || !stream.is_to_signal {
            return Verdict::Passes;
        }
        let (kind, verdict) = match self.policy {
            // One that is not ECT passes, and the next may be.
            GatewayPolicy::Mark if !packet.mark() => return Verdict::Passes,
            GatewayPolicy::Mark => ("marked", Verdict::Passes),
            _ => ("dropped", Verdict::Dropped),
        };
        stream.is_to_signal = false;
        self.note_one(now, Some(number), kind, format!("gateway {}: throttling {}", self.name, self.throttlings));
        verdict
    }

    fn note(&mut self, now: Time, throttled: Option<u32>, throttlings: u16) {
        let begins = if throttlings != self.throttlings { self.group.last_throttled_by() } else { None };
        let changes = [(self.throttled, "let_go"), (begins, "throttled")];
        for (by, kind) in changes.into_iter().filter_map(|(change, kind)| Some((change?, kind))) {
            self.note_one(now, Some(by), kind, format!("gateway {}: {} streams", self.name, self.streams.len()));
        }
        (self.throttled, self.throttlings) = (throttled, throttlings);
    }

    fn note_one(&mut self, now: Time, stream: Option<u32>, kind: &str, detail: String) {
        let stream = stream.and_then(|stream| self.streams.get(stream as usize));
        self.noted.push(Noted {
            at_us: now.0 / 1000,
            flow: stream.map(|stream| stream.flow.clone()),
            connection: stream.map(|stream| stream.connection),
            kind: kind.into(),
            detail,
        });
    }

    fn into_noted(mut self) -> Vec<Noted> {
        if let (bytes @ 1.., at) = self.waited_most {
            self.note_one(at, None, "delayed", format!("gateway {}: {bytes} bytes at most waited at once", self.name));
        }
        self.noted
    }
}

impl Stream {
    /// Whether a packet has data that has not passed before.
    fn is_new(&mut self, packet: &Packet) -> bool {
        let Body::Segment(Segment { seq, payload: payload @ 1.., .. }) = packet.body else { return false };
        let is_new = self.sent.is_none_or(|sent| seq.since(sent) >= 0);
        if is_new {
            self.sent = Some(seq + payload);
        }
        is_new
    }
}

fn seen(now: Time, direction: Direction, segment: &Segment) -> ekiden_window_balance::Packet {
    let bit = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    ekiden_window_balance::Packet {
        time_us: now.0 / 1000,
        seq: segment.seq.0,
        ack: segment.ack.unwrap_or_default().0,
        length: segment.payload,
        segment: segment.payload,
        scale: segment.options.window_scale.map_or(-1, i32::from),
        window: segment.window,
        flags: bit(segment.flags.syn, flags::SYN)
            | bit(segment.flags.fin, flags::FIN)
            | bit(segment.flags.rst, flags::RST)
            | bit(segment.ack.is_some(), flags::ACK),
        direction,
        blocks: segment.options.sack.len() as u32,
        block: blocks(&segment.options.sack),
    }
}

fn blocks(sack: &SackBlocks) -> [Block; SackBlocks::MAX] {
    let mut blocks = [Block::default(); SackBlocks::MAX];
    for (block, from) in blocks.iter_mut().zip(sack.iter()) {
        *block = Block { start: from.start.0, end: from.end.0 };
    }
    blocks
}

#[cfg(test)]
mod tests {
    use ekiden_packet::{Flags, Options, Seq};

    use super::*;
    use crate::flows::Flows;
    use crate::sockets::Sockets;

    const SCENARIO: &str = "
        name = 'one'
        [node.a]
        [node.b]
        kind = 'router'
        [node.c]
        [link.ab]
        ends = ['a', 'b']
        rate = '1Mbit/s'
        [link.bc]
        ends = ['b', 'c']
        rate = '1Mbit/s'
        [flow.bulk]
        from = 'a'
        to = 'c'
        bytes = '1MB'
        [gateway.balance]
        node = 'b'
        flows = ['bulk']
        policy = 'paper'";

    #[test]
    fn the_hundredth_repetition_throttles_until_the_ack_number_advances() {
        let scenario = Scenario::parse(SCENARIO, "test.toml").unwrap();
        let mut sockets = Sockets::new(&scenario);
        Flows::new(&scenario, &mut sockets);
        let mut gateway = Gateways::new(&scenario, sockets.all()).list.remove(0);
        let syn = |ack: Option<u32>| Segment {
            flags: Flags { syn: true, ..Flags::default() },
            ack: ack.map(Seq),
            options: Options { window_scale: Some(0), ..Options::default() },
            ..Segment::default()
        };
        let data = |seq: u32| Segment { seq: Seq(seq), ack: Some(Seq(1)), payload: 1000, ..Segment::default() };
        let ack = |ack: u32| Segment { seq: Seq(1), ack: Some(Seq(ack)), window: 60_000, ..Segment::default() };
        let mut ms = 0;
        // The windows that come out. Socket 0 sends, socket 1 receives.
        let mut forward = |gateway: &mut Gateway, to: u32, segment: Segment| {
            // Streams of shorter round trips are left alone.
            ms += 20;
            let mut packet = Packet { to: 0, socket: to, bytes: 0, body: Body::Segment(segment) };
            assert_eq!(gateway.forward(Time::ms(ms), &mut packet), Some(Verdict::Passes));
            let Body::Segment(segment) = packet.body else { unreachable!() };
            segment.window
        };
        for (to, segment) in [(1, syn(None)), (0, syn(Some(1))), (1, data(1)), (0, ack(1001)), (1, data(1001))] {
            let before = segment.window;
            assert_eq!(forward(&mut gateway, to, segment), before);
        }
        for nth in 1..100 {
            assert_eq!(forward(&mut gateway, 0, ack(1001)), 60_000, "repetition {nth}");
        }
        // 0.8 of the flow of 1000 bytes would be less than two segments.
        assert_eq!(forward(&mut gateway, 0, ack(1001)), 2000);
        assert_eq!(forward(&mut gateway, 0, ack(2001)), 60_000);
        let noted: Vec<_> = gateway.noted.iter().map(|event| (event.kind.as_str(), event.connection)).collect();
        assert_eq!(noted, [("throttled", Some(0)), ("let_go", Some(0))]);
    }
}
