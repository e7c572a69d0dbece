//! Proxies with `congestion = "auto"`: their connections are looked at as those of the overlay are.

use std::collections::BTreeMap;

use ekiden_congestion::Algorithm;
use ekiden_congestion::choice::{CAREFUL, LOOK_US, Look, Path};
use ekiden_record::Event as Noted;
use ekiden_tcp::Info;
use ekiden_units::Time;

use crate::events::Event;
use crate::simulation::Simulation;

/// How often.
const LOOK: Time = Time::ms(LOOK_US / 1000);

/// The connections that are looked at, and their paths by the nodes at both ends.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    paths: BTreeMap<(u32, u32), Path>,
    watched: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    socket: u32,
    before: Option<Info>,
    is_sending: bool,
    in_use: Algorithm,
}

impl Simulation<'_> {
    /// Plans the first look, if any proxy chooses.
    pub(crate) fn add_choices(&mut self) {
        let is_auto = |&socket: &u32| self.sockets[socket as usize].stack.is_auto;
        let watched = (0..self.sockets.len() as u32).filter(is_auto);
        let new = |socket| Watched { socket, before: None, is_sending: false, in_use: CAREFUL };
        self.choices.watched = watched.map(new).collect();
        if !self.choices.watched.is_empty() {
            self.events.plan(LOOK, Event::Look);
        }
    }

    /// Looks at all of them.
    pub(crate) fn look(&mut self) {
        let now_us = self.events.now().0 / 1000;
        let mut choices = std::mem::take(&mut self.choices);
        let mut senders: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for watched in choices.watched.iter().filter(|watched| watched.is_sending) {
            *senders.entry(self.ends(watched.socket)).or_default() += 1;
        }
        for watched in &mut choices.watched {
            let ends = self.ends(watched.socket);
            let path = choices.paths.entry(ends).or_default();
            let Some(connection) = &self.sockets[watched.socket as usize].connection else { continue };
            let now = connection.info();
            let was_sending = watched.is_sending;
            let before = watched.before.replace(now);
            watched.is_sending = before.is_some_and(|before| before.acked_bytes != now.acked_bytes);
            if let Some(before) = before
                && was_sending
                && watched.is_sending
                && watched.in_use == CAREFUL
                && let Some(told) = path.look(&look(&before), &look(&now), senders[&ends], now_us)
            {
                let [from, to] = [ends.0, ends.1].map(|node| self.name(node));
                let (kind, detail) = ("congestion".into(), format!("{from} to {to}: {told}"));
                self.noted.push(Noted { at_us: now_us, flow: None, connection: None, kind, detail });
            }
            let current = path.current(now_us);
            if current != watched.in_use {
                watched.in_use = current;
                let socket = &mut self.sockets[watched.socket as usize];
                if let Some(connection) = &mut socket.connection {
                    connection.set_control(socket.stack.control_of(current.name()));
                }
            }
        }
        self.choices = choices;
        self.events.plan(self.events.now() + LOOK, Event::Look);
    }

    fn ends(&self, socket: u32) -> (u32, u32) {
        let socket = &self.sockets[socket as usize];
        (socket.node, socket.peer_node)
    }

    fn name(&self, node: u32) -> &str {
        self.scenario.nodes.get_index(node as usize).map_or("", |(name, _)| name)
    }
}

fn look(info: &Info) -> Look {
    let us = |time: Option<Time>| time.map_or(0, |time| u32::try_from(time.0 / 1000).unwrap_or(u32::MAX));
    Look {
        cwnd: info.cwnd,
        ssthresh: info.ssthresh,
        rtt_us: us(info.rtt),
        rtt_min_us: us(info.rtt_min),
        retransmits: info.retransmits as u32,
    }
}
