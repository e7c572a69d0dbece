//! The simulation: handles one event after the other until every flow is over, and carries out what the parts return.

use ekiden_record::{Record, Series};
use ekiden_scenario::Scenario;

use crate::background::{Sent, Sources};
use crate::capture::Capture;
use crate::events::{Event, Events};
use crate::flows::Flows;
use crate::gateway::{Gateways, Released, Verdict};
use crate::network::{Delivery, Network};
use crate::options::{Options, Progress};
use crate::overlay::{Later, Overlay};
use crate::packet::{Body, Packet};
use crate::pings::{self, Pings};
use crate::recorder::{Recorder, Reports};
use crate::shares::Shares;
use crate::sockets::{Effect, Sockets};
use crate::tunnel::{Broken, Tunnels};

/// The number of events between two reports of progress.
const PROGRESS_EVENTS: u64 = 1 << 17;

/// The parts of a simulation, and its events.
pub(crate) struct Simulation<'a> {
    scenario: &'a Scenario,
    options: &'a Options,
    events: Events,
    sockets: Sockets<'a>,
    flows: Flows<'a>,
    tunnels: Tunnels<'a>,
    gateways: Gateways,
    overlay: Overlay<'a>,
    shares: Shares,
    background: Sources,
    pings: Pings<'a>,
    network: Network,
    capture: Option<&'a mut Capture>,
    series: &'a mut dyn Series,
    recorder: Recorder,
}

impl<'a> Simulation<'a> {
    pub fn new(
        scenario: &'a Scenario,
        options: &'a Options,
        series: &'a mut dyn Series,
        mut capture: Option<&'a mut Capture>,
    ) -> Self {
        let mut sockets = Sockets::new(scenario);
        let tunnels = Tunnels::new(scenario, &mut sockets);
        let flows = Flows::new(scenario, &mut sockets);
        let overlay = Overlay::new(scenario, &sockets);
        let shares = Shares::new(scenario, &sockets);
        let background = Sources::new(scenario);
        let pings = Pings::new(scenario);
        let mut events = Events::default();
        for (at, event) in tunnels
            .timers()
            .chain(flows.timers())
            .chain(background.timers())
            .chain(pings.timers())
            .chain(overlay.timers())
            .chain(shares.timers())
        {
            events.plan(at, event);
        }
        events.plan(options.resolution, Event::Sample);
        if let Some(capture) = &mut capture {
            capture.know(sockets.all().iter().map(|socket| [socket.peer_node, socket.node]));
        }
        Self {
            scenario,
            options,
            events,
            gateways: Gateways::new(scenario, sockets.all()),
            overlay,
            shares,
            sockets,
            flows,
            tunnels,
            background,
            pings,
            network: Network::new(scenario),
            capture,
            series,
            recorder: Recorder::new(scenario),
        }
    }

    /// Handles events until every flow is over.
    pub fn run(&mut self, progress: &mut dyn FnMut(Progress)) {
        while self.flows.are_going() {
            let Some(event) = self.events.next() else { break };
            self.handle(event);
            if self.events.happened().is_multiple_of(PROGRESS_EVENTS) {
                progress(self.progress());
            }
        }
        progress(self.progress());
    }

    fn progress(&self) -> Progress {
        let received_bytes = self.flows.received_bytes();
        Progress { now: self.events.now(), events: self.events.happened(), received_bytes }
    }

    fn handle(&mut self, event: Event) {
        let now = self.events.now();
        match event {
            Event::Delivery(line) => self.deliver(line),
            Event::Datagram(source) => {
                let Sent { from, packet, next } = self.background.send(source);
                if let Some(at) = next {
                    self.events.plan(at, event);
                }
                // A node that is a tunnel's end has its own datagrams carried too.
                self.forward(from, packet);
            }
            Event::Release(socket) => {
                if let Some(Released { from, packet, next }) = self.gateways.release(now, socket) {
                    if let Some(at) = next {
                        self.events.plan(at, event);
                    }
                    self.forward(from, packet);
                }
            }
            Event::Ping(ping) => {
                let pings::Sent { from, packet, next } = self.pings.send(ping);
                self.events.plan(next, event);
                self.forward(from, packet);
            }
            Event::Alarm(socket) => self.sockets.alarm(now, socket),
            Event::Run(socket) => {
                self.sockets.get_mut(socket).is_to_run = false;
                self.work(socket);
                self.transmit(socket);
            }
            Event::Open(socket) => {
                self.sockets.open(socket);
                if let Some(at) = self.overlay.waits(now, socket) {
                    self.events.plan(at, Event::Waited(socket));
                }
            }
            Event::Glance => {
                let later = self.overlay.glance(now, &self.sockets);
                later.into_iter().for_each(|(at, event)| self.events.plan(at, event));
            }
            Event::Share => {
                let next = self.shares.look(now, &mut self.sockets);
                self.events.plan(next, event);
            }
            Event::Message(message) => self.plan(|parts| parts.overlay.hear(now, message)),
            Event::Waited(socket) => self.plan(|parts| parts.overlay.has_waited(now, socket, &parts.sockets)),
            Event::PathFailed(entry) => {
                self.overlay.path_failed(now, entry, &mut self.sockets);
                self.attempt(entry);
            }
            Event::Reached(entry) => self.overlay.begin(now, entry, &mut self.sockets),
            Event::Stop(socket) => self.sockets.stop(socket),
            Event::Cut(flow) => {
                self.recorder.events.extend(self.flows.cut(now, flow, &self.sockets));
                self.overlay.cut(flow, &mut self.sockets);
                // Both: behind a loss the sender's reset is not where the receiver waits for it (RFC 5961, section 3.2).
                self.flows.ends(flow).for_each(|end| self.sockets.abort(end));
            }
            Event::Sample => {
                self.sample();
                self.recorder.events.extend(self.flows.give_up(now));
                self.events.plan(now + self.options.resolution, Event::Sample);
            }
        }
        loop {
            if let Some(number) = self.sockets.next_written() {
                self.transmit(number);
            } else if let Some(number) = self.sockets.next_woken() {
                match self.sockets.get_mut(number).runs_at(now) {
                    Some(at) if at > now => self.events.plan(at, Event::Run(number)),
                    Some(_) => self.work(number),
                    None => {}
                }
                self.transmit(number);
            } else {
                break;
            }
        }
    }

    /// A packet comes out of a line: to a socket, or to a node that forwards it.
    fn deliver(&mut self, line: u32) {
        let now = self.events.now();
        let Delivery { at, packet, next } = self.network.deliver(now, line);
        if let Some(next) = next {
            self.events.plan(next, Event::Delivery(line));
        }
        let Some(mut packet) = packet else { return };
        if let Some(capture) = &mut self.capture {
            capture.see_arrived(now, line, &packet);
        }
        match self.gateways.pass(now, at, &mut packet) {
            Verdict::Passes => {}
            Verdict::Waits { release } => {
                if let Some(at) = release {
                    self.events.plan(at, Event::Release(packet.socket));
                }
                return;
            }
            Verdict::Dropped => return,
        }
        match &packet.body {
            Body::Segment(segment) if at == packet.to => self.sockets.receive(now, packet.socket, segment),
            Body::Datagram { .. } if at == packet.to => {}
            Body::Echo { ping, number, is_reply } if at == packet.to => {
                if let Some(answer) = self.pings.receive(now, *ping, *number, *is_reply) {
                    self.forward(at, answer);
                }
            }
            _ => self.forward(at, packet),
        }
    }

    /// A node forwards a packet: into a tunnel, if one takes it.
    fn forward(&mut self, at: u32, packet: Packet) {
        match self.tunnels.enter(self.events.now(), at, &packet) {
            Some(socket) => self.sockets.wake(socket),
            None => self.send(at, packet),
        }
    }

    /// A packet leaves a node.
    fn send(&mut self, from: u32, packet: Packet) {
        let now = self.events.now();
        let Some(line) = self.network.route(from, packet.to) else { return };
        if let Some(capture) = &mut self.capture {
            capture.see_sent(now, line, &packet);
        }
        if let Some(at) = self.network.send(now, line, packet) {
            self.events.plan(at, Event::Delivery(line));
        }
    }

    /// Lets a socket's program do what it can, and carries out what follows elsewhere.
    fn work(&mut self, number: u32) {
        let now = self.events.now();
        match self.sockets.work(number) {
            Effect::Nothing => {}
            Effect::Received { flow, bytes, is_end } => {
                self.recorder.events.extend(self.flows.receive(now, flow, bytes, is_end));
            }
            Effect::Sent { flow, source } => self.send_next(flow, source),
            // As an event: opened now, it would be served before this socket.
            Effect::Open(other) => self.events.plan(now, Event::Open(other)),
            Effect::Place { flow, entry } if self.flows.is_going(flow) => {
                self.overlay.place(now, flow, entry);
                self.attempt(entry);
            }
            Effect::Place { .. } => {}
            Effect::Reached(entry) => self.plan(|parts| parts.overlay.reached(now, entry)),
            Effect::Carry(end) => {
                // What the window allows now goes first, as in a kernel: a queue that waits for it sees that it has gone.
                if self.tunnels.pulls(end) {
                    self.transmit(number);
                }
                let socket = self.sockets.get_mut(number);
                let node = socket.node;
                self.tunnels.carry(now, end, socket);
                while let Some(packet) = self.tunnels.next_out(end) {
                    self.forward(node, packet);
                }
            }
            Effect::FlowFailed { flow, reason } => self.recorder.events.extend(self.flows.fail(now, flow, reason)),
            Effect::TunnelFailed { end, reason } => {
                if let Some(Broken { sockets, noted }) = self.tunnels.break_down(now, end, reason) {
                    sockets.into_iter().for_each(|socket| self.sockets.abort(socket));
                    self.recorder.events.push(noted);
                }
            }
        }
    }

    /// A source has sent all of its data: if that was one of its flow's files, the next follows.
    fn send_next(&mut self, flow: u32, source: u32) {
        let now = self.events.now();
        let first = self.sockets.next_number();
        // Beside the source stands the socket at which its stream enters the overlay, if it does.
        if let Some(sockets) = self.overlay.end(now, source + 1) {
            self.sockets.release(sockets);
        }
        let Some(next) = self.flows.follow(flow, source, &mut self.sockets) else { return };
        self.tell_capture(first);
        self.events.plan(now, Event::Open(next));
    }

    /// Tries the next path for the stream that entered the overlay at this socket.
    fn attempt(&mut self, entry: u32) {
        let now = self.events.now();
        let first = self.sockets.next_number();
        match self.overlay.attempt(entry, &mut self.sockets) {
            Some(opens) => {
                self.tell_capture(first);
                self.events.plan(now, Event::Open(opens));
            }
            None => {
                let Some(flow) = self.overlay.give_up(entry) else { return };
                self.recorder.events.extend(self.flows.fail(now, flow, "no path over the overlay came about"));
                self.sockets.abort(entry);
            }
        }
    }

    /// Tells the capture of the sockets from this one on, which were added.
    fn tell_capture(&mut self, first: u32) {
        if let Some(capture) = &mut self.capture {
            let added = &self.sockets.all()[first as usize..];
            capture.know(added.iter().map(|socket| [socket.peer_node, socket.node]));
        }
    }

    /// Plans what follows from a part's work, if something does.
    fn plan(&mut self, work: impl FnOnce(&mut Self) -> Option<Later>) {
        if let Some((at, event)) = work(self) {
            self.events.plan(at, event);
        }
    }

    /// Sends what a socket has to send, and plans its alarm.
    fn transmit(&mut self, number: u32) {
        let now = self.events.now();
        let from = self.sockets.get(number).node;
        while let Some(packet) = self.sockets.get_mut(number).poll_packet(now) {
            self.send(from, packet);
        }
        if let Some(at) = self.sockets.get_mut(number).poll_alarm(now) {
            self.events.plan(at, Event::Alarm(number));
        }
    }

    /// Notes the state of senders and queues.
    fn sample(&mut self) {
        let now = self.events.now();
        let is_wanted = self.series.look(now.0 / 1000);
        self.tunnels.sample(&self.sockets);
        match is_wanted {
            true => {
                self.flows.look(now, &self.sockets, Some(self.series));
                self.note_queues();
            }
            false => self.flows.look(now, &self.sockets, None),
        }
    }

    fn note_queues(&mut self) {
        let now = self.events.now();
        let states = self.network.queues(now).chain(self.tunnels.queues());
        self.recorder.queues.note(now, states).for_each(|queue| self.series.queue(queue));
    }

    /// The record of the run, which is over.
    pub fn record(mut self) -> Record {
        // A last sample of the queues, so that it has all drops.
        self.note_queues();
        self.recorder.events.extend(self.gateways.noted());
        let reports = Reports {
            flows: self.flows.report(&self.sockets),
            links: self.network.report(self.scenario),
            tunnels: self.tunnels.report(&self.sockets),
            pings: self.pings.report(self.events.now()),
            overlay: self.overlay.report(),
        };
        self.recorder.record(self.scenario, self.options, reports)
    }
}

#[cfg(test)]
mod tests {
    use ekiden_record::Kept;

    use super::*;

    #[test]
    fn connections_that_have_sent_their_files_are_freed_behind_time_wait() {
        // A file a second, and TIME-WAIT of a minute at the end that closes first.
        let text = "name = \"t\"\n[node.a]\n[node.b]\n[link.l]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"250ms\"\n\
                    [flow.f]\nfrom = \"a\"\nto = \"b\"\nduration = \"200s\"\nfile = \"2KB\"\n";
        let scenario = Scenario::parse(text, "t.toml").unwrap();
        let (options, mut kept) = (Options::default(), Kept::default());
        let mut simulation = Simulation::new(&scenario, &options, &mut kept, None);
        simulation.run(&mut |_| {});
        let sockets = simulation.sockets.all();
        let live = sockets.iter().filter(|socket| socket.connection.is_some()).count();
        assert!(sockets.len() > 2 * 120 && live < 80, "{live} of {}", sockets.len());
    }
}
