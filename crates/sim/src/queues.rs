//! The queues of links and tunnels over time.

use ekiden_queue::QueueLength;
use ekiden_record::QueueSample;
use ekiden_scenario::Scenario;
use ekiden_units::Time;

/// What was noted of the queues so far.
pub(crate) struct Queues {
    /// Of each queue the last note, or what it is before its first: of the links' directions, then of the tunnels', in the
    /// order of the record's lists.
    last: Vec<QueueSample>,
}

impl Queues {
    pub fn new(scenario: &Scenario) -> Self {
        let empty = |link: Option<&String>, tunnel: Option<&String>, connection, from: &String| QueueSample {
            at_us: 0,
            link: link.map(|link| link.as_str().into()),
            tunnel: tunnel.map(|tunnel| tunnel.as_str().into()),
            connection,
            from: from.as_str().into(),
            packets: 0,
            bytes: 0,
            drops: 0,
        };
        let mut last = Vec::new();
        for (name, link) in &scenario.links {
            last.extend(link.ends.iter().map(|from| empty(Some(name), None, None, from)));
        }
        for (name, tunnel) in &scenario.tunnels {
            for connection in 0..tunnel.connections {
                last.extend(tunnel.ends.iter().map(|from| empty(None, Some(name), Some(connection), from)));
            }
        }
        Self { last }
    }

    /// Every queue that has changed since it was noted last, given what waits in each, and what it has dropped.
    pub fn note(
        &mut self,
        now: Time,
        states: impl Iterator<Item = (QueueLength, u64)>,
    ) -> impl Iterator<Item = QueueSample> {
        let at_us = now.0 / 1000;
        self.last.iter_mut().zip(states).filter_map(move |(last, (QueueLength { packets, bytes }, drops))| {
            let is_news = (packets, bytes, drops) != (last.packets, last.bytes, last.drops);
            (last.at_us, last.packets, last.bytes, last.drops) = (at_us, packets, bytes, drops);
            is_news.then(|| last.clone())
        })
    }
}
