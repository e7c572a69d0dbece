//! From the raw file to a [`Scenario`]: copies made, defaults filled in, everything checked.
//!
//! The defaults stand in this module; in `left_out` those of keys that are not written out with them.

mod background;
mod checker;
mod congestion;
mod copies;
mod fetch;
mod gateway;
mod link;
mod ping;
mod transparent;
mod tunnel;
mod via;

use std::ops::RangeInclusive;
use std::path::Path;

use ekiden_config::Source;
use ekiden_units::{BitRate, Bytes, Time, is_control_name};
use indexmap::IndexMap;
use serde_spanned::Spanned;

use crate::left_out::{DEFAULT_ECN, DEFAULT_FORWARDS, DEFAULT_PROFILE, DEFAULT_PROGRAM, DEFAULT_TRANSPARENT};
use crate::raw::{Named, RATES, RawFlow, RawNode, RawRate, RawScenario, RawTcp};
use crate::via::AUTO;
use crate::{Amount, Error, Flow, FlowEnd, Node, NodeKind, Queue, Scenario, Tcp};
use checker::Checker;

/// Reno, because it is the yardstick of the papers and allowed in every namespace; buffers that hold the
/// bandwidth-delay product of 300 Mbit/s × 100 ms.
fn default_tcp() -> Tcp {
    Tcp {
        profile: DEFAULT_PROFILE,
        congestion: "reno".into(),
        send_buffer: Bytes::mib(4),
        receive_buffer: Bytes::mib(4),
        sack: true,
        ecn: DEFAULT_ECN,
        timestamps: true,
        window_scaling: true,
        initial_window: None,
        initial_ssthresh: None,
        rto_min: None,
        rtt_per_window: None,
    }
}

const DEFAULT_KIND: NodeKind = NodeKind::Host;
const DEFAULT_START: Time = Time(0);
/// As iperf3 ends: throughput is what has arrived in the time, whatever the buffers hold.
const DEFAULT_END: FlowEnd = FlowEnd::Cut;
const DEFAULT_PARALLEL: u32 = 1;

const BUFFERS: RangeInclusive<Bytes> = Bytes::kib(1)..=Bytes::mib(1024);
const QUEUE_PACKETS: RangeInclusive<u64> = 1..=10_000_000;
const QUEUE_BYTES_MOST: Bytes = Bytes::mib(16 * 1024);
const AMOUNTS: RangeInclusive<Bytes> = Bytes(1)..=Bytes(1 << 50);
const DURATIONS: RangeInclusive<Time> = Time::ms(1)..=Time::secs(86_400);
const STARTS: RangeInclusive<Time> = Time(0)..=Time::secs(86_400);
const PARALLEL: RangeInclusive<u32> = 1..=100_000;
const INITIAL_WINDOWS: RangeInclusive<u32> = 1..=1_000;
const INITIAL_SSTHRESHS: RangeInclusive<Bytes> = Bytes::kib(1)..=Bytes::mib(1024);
const RTO_MINS: RangeInclusive<Time> = Time::ms(1)..=Time::secs(60);
const NODES_MOST: usize = 250;

pub(crate) fn scenario(text: &str, file: &str) -> Result<Scenario, Error> {
    let source = Source { text, file: Path::new(file) };
    let raw: RawScenario = source.read()?;
    let checker = Checker { source };
    checker.name("scenario", &raw.name)?;
    let base = checker.tcp(&raw.tcp, &default_tcp())?;
    let raw = checker.copies(raw)?;
    let mut scenario = Scenario {
        name: raw.name.get_ref().clone(),
        description: raw.description.clone(),
        seed: raw.seed,
        congestion: checker.congestion(raw.congestion.as_ref())?,
        nodes: checker.nodes(&raw.node, &base)?,
        links: checker.links(raw.link, &raw.node)?,
        flows: checker.flows(&raw.flow, &raw.node)?,
        tunnels: IndexMap::new(),
        gateways: IndexMap::new(),
        background: IndexMap::new(),
        pings: IndexMap::new(),
    };
    checker.topology(&scenario, &raw.node, &raw.flow)?;
    // What follows asks for paths.
    scenario.tunnels = checker.tunnels(&raw.tunnel, &raw.node, &scenario)?;
    scenario.gateways = checker.gateways(&raw.gateway, &raw.node, &scenario)?;
    scenario.background = checker.background(&raw.background, &raw.node, &scenario)?;
    scenario.pings = checker.pings(&raw.ping, &raw.node, &scenario)?;
    Ok(scenario)
}

impl Checker<'_> {
    fn nodes(&self, raw: &Named<RawNode>, base: &Tcp) -> Result<IndexMap<String, Node>, Error> {
        let mut nodes = IndexMap::new();
        for (name, node) in raw {
            self.node_name(name)?;
            if nodes.len() == NODES_MOST {
                return Err(self.wrong(name.span(), format!("more than {NODES_MOST} nodes")));
            }
            let kind = node.kind.unwrap_or(DEFAULT_KIND);
            if let (false, Some(first)) = (kind == NodeKind::Proxy, node.next.first()) {
                let reason = format!("node '{}' has 'next', which only a proxy has", name.get_ref());
                return Err(self.wrong(first.span(), reason));
            }
            if let (false, Some(forwards)) = (kind == NodeKind::Proxy, &node.forwards) {
                let reason = format!("node '{}' has 'forwards', which only a proxy has", name.get_ref());
                return Err(self.wrong(forwards.span(), reason));
            }
            self.proxies(&node.next, raw)?;
            if let Some(own) = node.next.iter().find(|proxy| *proxy == name) {
                let reason = format!("the 'next' of '{}' leads to itself; leave it out there", name.get_ref());
                return Err(self.wrong(own.span(), reason));
            }
            self.program(name, kind, node)?;
            let next = node.next.iter().map(|proxy| proxy.get_ref().clone()).collect();
            let forwards = node.forwards.as_ref().map_or(DEFAULT_FORWARDS, |forwards| *forwards.get_ref());
            let program = node.program.as_ref().map_or(DEFAULT_PROGRAM, |program| *program.get_ref());
            nodes.insert(
                name.get_ref().clone(),
                Node { kind, next, forwards, program, tcp: self.tcp(&node.tcp, base)? },
            );
        }
        Ok(nodes)
    }

    fn tcp(&self, raw: &RawTcp, base: &Tcp) -> Result<Tcp, Error> {
        let congestion = match &raw.congestion {
            Some(name) => {
                if !is_control_name(name.get_ref()) {
                    let reason = format!("'{}' is not the name of a congestion control, such as reno", name.get_ref());
                    return Err(self.wrong(name.span(), reason));
                }
                name.get_ref().clone()
            }
            None => base.congestion.clone(),
        };
        let initial_window = match &raw.initial_window {
            Some(_) => Some(self.within("initial_window", &raw.initial_window, 1, &INITIAL_WINDOWS)?),
            None => base.initial_window,
        };
        let initial_ssthresh = match &raw.initial_ssthresh {
            Some(_) => Some(self.within("initial_ssthresh", &raw.initial_ssthresh, Bytes(0), &INITIAL_SSTHRESHS)?),
            None => base.initial_ssthresh,
        };
        let rto_min = match &raw.rto_min {
            Some(_) => Some(self.within("rto_min", &raw.rto_min, Time(0), &RTO_MINS)?),
            None => base.rto_min,
        };
        Ok(Tcp {
            profile: raw.profile.unwrap_or(base.profile),
            congestion,
            send_buffer: self.within("send_buffer", &raw.send_buffer, base.send_buffer, &BUFFERS)?,
            receive_buffer: self.within("receive_buffer", &raw.receive_buffer, base.receive_buffer, &BUFFERS)?,
            sack: raw.sack.unwrap_or(base.sack),
            ecn: raw.ecn.unwrap_or(base.ecn),
            timestamps: raw.timestamps.unwrap_or(base.timestamps),
            window_scaling: raw.window_scaling.unwrap_or(base.window_scaling),
            initial_window,
            initial_ssthresh,
            rto_min,
            rtt_per_window: raw.rtt_per_window.or(base.rtt_per_window),
        })
    }

    fn rate(&self, key: &str, raw: &Spanned<RawRate>) -> Result<BitRate, Error> {
        match raw.get_ref().0 {
            rate if RATES.contains(&rate) => Ok(rate),
            rate => Err(self.outside(key, &raw.span(), rate, &RATES)),
        }
    }

    /// `mtu` is the largest packet, which must fit.
    fn queue(&self, raw: Option<&Spanned<Queue>>, default: Queue, mtu: u32) -> Result<Queue, Error> {
        let Some(raw) = raw else { return Ok(default) };
        match *raw.get_ref() {
            Queue::Packets(packets) if !QUEUE_PACKETS.contains(&packets) => {
                Err(self.outside("queue", &raw.span(), packets, &QUEUE_PACKETS))
            }
            Queue::Bytes(bytes) => {
                let range = Bytes(mtu.into())..=QUEUE_BYTES_MOST;
                match range.contains(&bytes) {
                    true => Ok(Queue::Bytes(bytes)),
                    false => Err(self.outside("queue", &raw.span(), bytes, &range)),
                }
            }
            queue @ Queue::Packets(_) => Ok(queue),
        }
    }

    fn flows(&self, raw: &Named<RawFlow>, nodes: &Named<RawNode>) -> Result<IndexMap<String, Flow>, Error> {
        let mut flows = IndexMap::new();
        for (name, flow) in raw {
            self.name("flow", name)?;
            self.known(&flow.from, nodes)?;
            self.known(&flow.to, nodes)?;
            let via = self.via(name.get_ref(), &flow.via, nodes)?;
            if flow.from.get_ref() == flow.to.get_ref() {
                let reason = format!("flow '{}' goes from '{}' to itself", name.get_ref(), flow.from.get_ref());
                return Err(self.wrong(flow.to.span(), reason));
            }
            if let Some(end) = flow.via.iter().find(|proxy| [&flow.from, &flow.to].contains(proxy)) {
                let reason = format!("flow '{}' goes via its own end '{}'", name.get_ref(), end.get_ref());
                return Err(self.wrong(end.span(), reason));
            }
            let amount = match (&flow.bytes, &flow.duration) {
                (Some(_), None) => Amount::Bytes(self.within("bytes", &flow.bytes, Bytes(1), &AMOUNTS)?),
                (None, Some(_)) => {
                    Amount::Duration(self.within("duration", &flow.duration, Time::secs(1), &DURATIONS)?)
                }
                (Some(_), Some(duration)) => {
                    let reason = format!("flow '{}' has 'bytes' and 'duration'; keep one of them", name.get_ref());
                    return Err(self.wrong(duration.span(), reason));
                }
                (None, None) => {
                    let reason = format!("flow '{}' needs either 'bytes' or 'duration'", name.get_ref());
                    return Err(self.wrong(name.span(), reason));
                }
            };
            let end = match (amount, &flow.end) {
                (Amount::Duration(_), end) => Some(end.as_ref().map_or(DEFAULT_END, |end| *end.get_ref())),
                (Amount::Bytes(_), None) => None,
                (Amount::Bytes(_), Some(end)) => {
                    let reason = format!(
                        "flow '{}' has 'bytes', and so ends when all have arrived; leave 'end' out",
                        name.get_ref()
                    );
                    return Err(self.wrong(end.span(), reason));
                }
            };
            let file = match &flow.file {
                Some(_) => Some(self.within("file", &flow.file, Bytes(1), &AMOUNTS)?),
                None => None,
            };
            if let (Some(file), None | Some(FlowEnd::Drain)) = (&flow.file, end) {
                let reason =
                    format!("flow '{}' has a 'file', and so needs a 'duration' with end = \"cut\"", name.get_ref());
                return Err(self.wrong(file.span(), reason));
            }
            let fetch = self.fetch(name, flow, &via, nodes)?;
            flows.insert(
                name.get_ref().clone(),
                Flow {
                    from: flow.from.get_ref().clone(),
                    to: flow.to.get_ref().clone(),
                    amount,
                    file,
                    end,
                    start: self.within("start", &flow.start, DEFAULT_START, &STARTS)?,
                    via,
                    fetch,
                    transparent: flow.transparent.as_ref().map_or(DEFAULT_TRANSPARENT, |key| *key.get_ref()),
                    parallel: self.within("parallel", &flow.parallel, DEFAULT_PARALLEL, &PARALLEL)?,
                },
            );
        }
        Ok(flows)
    }

    /// Every node can be reached by something, and every stretch that a flow or a proxy's `next` needs exists.
    fn topology(&self, scenario: &Scenario, nodes: &Named<RawNode>, flows: &Named<RawFlow>) -> Result<(), Error> {
        if let Some((name, _)) =
            nodes.iter().find(|(name, _)| !scenario.links.values().any(|link| link.ends.contains(name.get_ref())))
        {
            return Err(self.wrong(name.span(), format!("node '{}' has no link", name.get_ref())));
        }
        for (name, node) in nodes {
            self.stretches(scenario, &format!("the 'next' of '{}'", name.get_ref()), name, &node.next)?;
        }
        for (name, flow) in flows {
            let what = format!("flow '{}'", name.get_ref());
            let mut stops: Vec<_> = flow.via.iter().filter(|word| word.get_ref() != AUTO).cloned().collect();
            stops.push(flow.to.clone());
            self.stretches(scenario, &what, &flow.from, &stops)?;
            self.transparent(scenario, name.get_ref(), flow)?;
        }
        Ok(())
    }

    /// Checks that two nodes are there, are not the same, and that there is a way from one to the other.
    fn joined(
        &self,
        what: &str,
        from: &Spanned<String>,
        to: &Spanned<String>,
        nodes: &Named<RawNode>,
        scenario: &Scenario,
    ) -> Result<(), Error> {
        self.known(from, nodes)?;
        self.known(to, nodes)?;
        if from == to {
            let reason = format!("{what} goes from '{}' to itself", from.get_ref());
            return Err(self.wrong(to.span(), reason));
        }
        self.stretches(scenario, what, from, std::slice::from_ref(to))
    }

    fn stretches(
        &self,
        scenario: &Scenario,
        what: &str,
        start: &Spanned<String>,
        stops: &[Spanned<String>],
    ) -> Result<(), Error> {
        let mut at = start;
        for stop in stops {
            if scenario.path(at.get_ref(), stop.get_ref()).is_none() {
                let reason = format!(
                    "{what}: no route from '{}' to '{}' (only routers and proxies forward; one with forwards = false does not)",
                    at.get_ref(),
                    stop.get_ref()
                );
                return Err(self.wrong(stop.span(), reason));
            }
            at = stop;
        }
        Ok(())
    }
}
