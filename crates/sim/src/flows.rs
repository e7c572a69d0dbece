//! The flows of the scenario: their sockets, progress and outcomes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_record::{Event as Noted, Flow as Report, Outcome, Sample, Series};
use ekiden_scenario::{Amount, Flow as Described, Scenario};
use ekiden_tcp::{State, TcpInfo};
use ekiden_units::Time;

use crate::events::Event;
use crate::socket::{Once, Program};
use crate::sockets::{Between, Sockets};

/// A flow of which nothing arrives for this long has failed.
const STALL_TIMEOUT: Time = Time::secs(600);

/// All flows.
pub(crate) struct Flows<'a> {
    list: Vec<Flow<'a>>,
    /// Flows that are not over.
    going: usize,
}

/// The state of a flow.
struct Flow<'a> {
    name: Arc<str>,
    described: &'a Described,
    /// Its seed, by which its connections open.
    seed: u64,
    legs: Vec<Between>,
    /// By the sockets that send.
    connections: BTreeMap<u32, Ends>,
    /// What is left of the connections that have sent their files.
    finished: Finished,
    /// Connections that have not arrived to their end; of a flow with files those at once.
    open: usize,
    received: u64,
    /// The sum of the times at which connections have ended, since the flow's start.
    ended: Time,
    last_arrival: Time,
    outcome: Option<Outcome>,
    /// The largest smoothed round-trip time that was seen.
    rtt_max_us: Option<u64>,
    /// Its time was over before all had arrived.
    is_cut: bool,
}

/// One connection of a flow.
struct Ends {
    /// Its place among all connections of the flow.
    number: u32,
    /// The socket that receives.
    sink: u32,
}

/// What counts of connections that have sent their files.
#[derive(Default)]
struct Finished {
    connections: u32,
    retransmits: u64,
    rtt_min: Option<Time>,
}

impl Finished {
    fn add(&mut self, info: &TcpInfo) {
        self.connections += 1;
        self.retransmits += info.retransmits;
        self.rtt_min = [self.rtt_min, info.rtt_min].into_iter().flatten().min();
    }
}

impl<'a> Flows<'a> {
    /// The flows of a scenario, for which it adds sockets.
    pub fn new(scenario: &'a Scenario, sockets: &mut Sockets) -> Self {
        let flows = scenario.flows.iter().enumerate();
        let list: Vec<_> = flows
            .map(|(number, (name, described))| {
                let legs = legs(scenario, described, sockets);
                let seed = scenario.seed_of(name);
                let bytes = described.bytes(seed);
                Flow {
                    name: name.as_str().into(),
                    described,
                    seed,
                    connections: (0..described.parallel)
                        .map(|at| {
                            let bytes = bytes.get(at as usize).copied();
                            connect(number as u32, at, described, bytes, &legs, sockets)
                        })
                        .collect(),
                    finished: Finished::default(),
                    legs,
                    open: described.parallel as usize,
                    received: 0,
                    ended: Time(0),
                    last_arrival: described.start,
                    outcome: None,
                    rtt_max_us: None,
                    is_cut: false,
                }
            })
            .collect();
        Self { going: list.len(), list }
    }

    /// When their sources open their connections, and when they stop or the flow is cut.
    pub fn timers(&self) -> impl Iterator<Item = (Time, Event)> {
        (0..).zip(&self.list).flat_map(|(number, flow)| {
            let cut = flow.described.cut_at();
            let stop = match flow.described.amount {
                Amount::Duration(duration) if cut.is_none() => Some(flow.described.start + duration),
                _ => None,
            };
            let of_connections = flow.connections.iter().flat_map(move |(&source, ends)| {
                let opens = flow.described.opens_at(flow.seed, ends.number);
                // A host that has not got round to it when the time is over does not open it.
                let open = cut.is_none_or(|cut| opens < cut).then_some((opens, Event::Open(source)));
                open.into_iter().chain(stop.map(|stop| (stop.max(opens), Event::Stop(source))))
            });
            let cut = cut.map(|at| (at, Event::Cut(number)));
            of_connections.chain(cut)
        })
    }

    /// Whether a flow is not over.
    pub fn is_going(&self, number: u32) -> bool {
        self.list[number as usize].outcome.is_none()
    }

    /// Whether any is not over.
    #[inline]
    pub fn are_going(&self) -> bool {
        self.going > 0
    }

    /// Bytes that have arrived, over all flows.
    pub fn received_bytes(&self) -> u64 {
        self.list.iter().map(|flow| flow.received).sum()
    }

    /// Bytes of a flow have arrived, and if `is_end`, the end of one of its connections. Returns what is to be noted.
    #[inline]
    pub fn receive(&mut self, now: Time, number: u32, bytes: u64, is_end: bool) -> Option<Noted> {
        let flow = &mut self.list[number as usize];
        if flow.is_cut {
            return None;
        }
        if bytes > 0 {
            flow.received += bytes;
            flow.last_arrival = now;
        }
        // Behind a file comes the next, until the flow is cut.
        let is_end = is_end && flow.described.file.is_none();
        if is_end {
            flow.open -= 1;
            flow.ended = flow.ended + now.since(flow.described.start);
        }
        if is_end && flow.open == 0 { self.end(now, number, Outcome::Complete) } else { None }
    }

    /// The source has sent all of its data. If that was one of the flow's files, adds a connection for the next, and returns the
    /// socket that is to open it.
    pub fn follow(&mut self, number: u32, source: u32, sockets: &mut Sockets) -> Option<u32> {
        let flow = &mut self.list[number as usize];
        if flow.described.file.is_none() || flow.outcome.is_some() {
            return None;
        }
        let sent = flow.connections.remove(&source)?;
        sockets.get(source).info().iter().for_each(|info| flow.finished.add(info));
        sockets.release(source..=sent.sink);
        let at = flow.finished.connections + flow.connections.len() as u32;
        let (opens, next) = connect(number, at, flow.described, None, &flow.legs, sockets);
        flow.connections.insert(opens, next);
        Some(opens)
    }

    /// A connection of a flow has failed, and the flow with it. Returns what is to be noted, unless it was over.
    pub fn fail(&mut self, now: Time, number: u32, reason: &str) -> Option<Noted> {
        self.end(now, number, Outcome::Failed { reason: reason.into() })
    }

    /// The time of a flow is over: what arrives later does not count. Its connections are to be reset. It has failed if none was
    /// established, or nothing has arrived. Returns what is to be noted, unless the flow was over.
    pub fn cut(&mut self, now: Time, number: u32, sockets: &Sockets) -> Option<Noted> {
        let flow = &mut self.list[number as usize];
        if flow.outcome.is_some() {
            return None;
        }
        flow.is_cut = true;
        let is_connected = |source: &u32| {
            let connection = sockets.get(*source).connection.as_ref();
            connection.is_some_and(|connection| connection.state() != State::SynSent)
        };
        let was_connected = flow.finished.connections > 0 || flow.connections.keys().any(is_connected);
        let failed = |reason: &str| Outcome::Failed { reason: format!("{reason} before the flow's time was over") };
        let outcome = match was_connected {
            true if flow.received > 0 => Outcome::Complete,
            true => failed("nothing arrived"),
            false => failed("no connection was established"),
        };
        self.end(now, number, outcome)
    }

    /// The sockets that send a flow and those that receive it, but for those of files that have been sent.
    pub fn ends(&self, number: u32) -> impl Iterator<Item = u32> {
        self.list[number as usize].connections.iter().flat_map(|(source, ends)| [*source, ends.sink])
    }

    /// Flows of which nothing arrives any more have failed. Returns what is to be noted.
    pub fn give_up(&mut self, now: Time) -> impl Iterator<Item = Noted> {
        (0..self.list.len() as u32).filter_map(move |number| {
            let flow = &self.list[number as usize];
            let is_lost = now > flow.described.start && now.since(flow.last_arrival) > STALL_TIMEOUT;
            if is_lost { self.fail(now, number, &format!("nothing arrived for {STALL_TIMEOUT}")) } else { None }
        })
    }

    fn end(&mut self, now: Time, number: u32, outcome: Outcome) -> Option<Noted> {
        let flow = &mut self.list[number as usize];
        if flow.outcome.is_some() {
            return None;
        }
        let (kind, detail) = match &outcome {
            Outcome::Failed { reason } => ("failed", reason.clone()),
            _ => ("finished", String::new()),
        };
        flow.outcome = Some(outcome);
        self.going -= 1;
        let flow = Some(flow.name.to_string());
        Some(Noted { at_us: now.0 / 1000, flow, connection: None, kind: kind.into(), detail })
    }

    /// Looks at every sender that is connected and whose flow is not over, and gives its state to `series`, if there is one.
    pub fn look(&mut self, now: Time, sockets: &Sockets, mut series: Option<&mut dyn Series>) {
        for flow in self.list.iter_mut().filter(|flow| flow.outcome.is_none()) {
            for (source, ends) in &flow.connections {
                let Some(info) = sockets.get(*source).info() else { continue };
                flow.rtt_max_us = flow.rtt_max_us.max(info.rtt.map(|rtt| rtt.0 / 1000));
                let Some(series) = &mut series else { continue };
                if let Program::Sink { received, .. } = sockets.get(ends.sink).program {
                    series.sample(flow.sample(now, ends.number, received, &info));
                }
            }
        }
    }

    /// The report of every flow.
    pub fn report(&self, sockets: &Sockets) -> Vec<Report> {
        self.list.iter().map(|flow| flow.report(sockets)).collect()
    }
}

impl Flow<'_> {
    fn sample(&self, now: Time, connection: u32, received_bytes: u64, info: &TcpInfo) -> Sample {
        let passed = now.since(self.described.start).0.max(1);
        Sample {
            at_us: now.0 / 1000,
            flow: Arc::clone(&self.name),
            connection,
            received_bytes,
            acked_bytes: info.acked_bytes,
            cwnd_segments: info.cwnd,
            ssthresh_segments: info.ssthresh,
            unacked_segments: info.outstanding,
            window_bytes: info.window,
            rtt_us: us(info.rtt),
            rtt_min_us: us(info.rtt_min),
            retransmits: info.retransmits,
            delivery_bit_s: (u128::from(info.acked_bytes) * 8_000_000_000 / u128::from(passed)) as u64,
        }
    }

    fn report(&self, sockets: &Sockets) -> Report {
        let infos: Vec<_> = self.connections.keys().filter_map(|source| sockets.get(*source).info()).collect();
        let rtts_min = infos.iter().filter_map(|info| info.rtt_min).chain(self.finished.rtt_min);
        let until = self.described.cut_at().filter(|_| self.is_cut).unwrap_or(self.last_arrival);
        let duration = until.since(self.described.start);
        let goodput = (u128::from(self.received) * 8_000_000_000).checked_div(duration.0.into()).unwrap_or_default();
        Report {
            name: self.name.to_string(),
            from: self.described.from.clone(),
            to: self.described.to.clone(),
            via: self.described.via.words(),
            outcome: self
                .outcome
                .clone()
                .unwrap_or(Outcome::Failed { reason: "the simulation ended before it".into() }),
            received_bytes: self.received,
            duration_us: duration.0 / 1000,
            goodput_bit_s: u64::try_from(goodput).unwrap_or(u64::MAX),
            retransmits: self.finished.retransmits + infos.iter().map(|info| info.retransmits).sum::<u64>(),
            rtt_min_us: rtts_min.min().map(|rtt| rtt.0 / 1000),
            rtt_max_us: self.rtt_max_us,
            connection_mean_us: self.described.within.filter(|_| self.open == 0).map(|_| self.connection_mean_us()),
        }
    }

    fn connection_mean_us(&self) -> u64 {
        let opened = (0..self.described.parallel).map(|at| self.described.opens_at(self.seed, at));
        let opened: u64 = opened.map(|at| at.since(self.described.start).0).sum();
        self.ended.0.saturating_sub(opened) / 1000 / u64::from(self.described.parallel)
    }
}

/// In microseconds; 0 while there is none.
fn us(rtt: Option<Time>) -> u64 {
    rtt.map_or(0, |rtt| rtt.0 / 1000)
}

/// The stretches of a flow's connections: from its sender over its proxies to its receiver.
fn legs(scenario: &Scenario, flow: &Described, sockets: &Sockets) -> Vec<Between> {
    let stations: Vec<&str> = [&flow.from].into_iter().chain(&flow.via).chain([&flow.to]).map(String::as_str).collect();
    let leg = |leg: &[&str]| {
        let nodes = [leg[0], leg[1]];
        sockets.between(nodes, nodes.map(|node| &scenario.nodes[node].tcp))
    };
    // Between the two proxies of an overlay its nodes choose.
    let is_chosen = |place: usize| place == 1 && flow.via.chosen().is_some();
    stations.windows(2).enumerate().filter(|(place, _)| !is_chosen(*place)).map(|(_, stretch)| leg(stretch)).collect()
}

/// Adds the sockets of one connection of a flow, the flow's number `at`, which proxies may split into several, but for those between nodes
/// that choose the path. Returns the socket that sends, and the rest.
fn connect(
    number: u32,
    at: u32,
    flow: &Described,
    bytes: Option<u64>,
    legs: &[Between],
    sockets: &mut Sockets,
) -> (u32, Ends) {
    let source = sockets.next_number();
    let left = bytes.or(flow.file.map(|file| file.0));
    let mut sends = Program::Source { flow: number, left };
    let is_chosen = flow.via.chosen().is_some();
    for (place, leg) in legs.iter().enumerate() {
        let here = sockets.next_number();
        let receives = match place + 1 == legs.len() {
            true => Program::Sink { flow: number, received: 0, is_done: false },
            false if is_chosen => Program::Entry { flow: number, is_placed: false },
            false => Program::Relay { flow: number, other: here + 2, once: Once::Opens },
        };
        sockets.add_pair(leg, [sends, receives]);
        sends = Program::Relay { flow: number, other: here + 1, once: Once::Nothing };
    }
    (source, Ends { number: at, sink: sockets.next_number() - 1 })
}
