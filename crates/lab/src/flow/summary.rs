//! What came of a flow, for the record.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ekiden_record::{Event, Outcome};

use super::connections::{Connection, Connections};
use super::fetch::Fetched;
use super::{Running, lock};

impl Running<'_> {
    pub(super) fn summary(&self) -> ekiden_record::Flow {
        let connections = lock(&self.connections);
        let outcome = self.outcome(&connections);
        let duration = match (&outcome, self.cut_ns) {
            (Outcome::Complete, Some(cut_ns)) => {
                Duration::from_nanos(cut_ns.saturating_sub(self.began_ns.load(Ordering::Relaxed)))
            }
            _ => self.moving(),
        };
        let duration_us = duration.as_micros() as u64;
        let received_bytes = self.received_bytes.load(Ordering::Relaxed);
        ekiden_record::Flow {
            name: self.name.into(),
            from: self.flow.from.clone(),
            to: self.flow.to.clone(),
            via: self.flow.via.words(),
            outcome,
            received_bytes,
            duration_us,
            goodput_bit_s: received_bytes.saturating_mul(8_000_000).checked_div(duration_us).unwrap_or_default(),
            retransmits: connections.retransmits(),
            rtt_min_us: connections.rtt_min_us(),
            rtt_max_us: Some(u64::from(self.rtt_max_us.load(Ordering::Relaxed))).filter(|us| *us > 0),
        }
    }

    pub(super) fn outcome(&self, connections: &Connections) -> Outcome {
        if let Some((connection, at_bytes)) = *lock(&self.differs) {
            return Outcome::Differs { connection, at_bytes };
        }
        if let Some(reason) = self.fetched.as_ref().and_then(Fetched::failure) {
            return Outcome::Failed { reason };
        }
        let failure = |connection: &Arc<Connection>| connection.sender().failure.clone();
        if let Some(reason) = connections.open.values().find_map(failure) {
            return Outcome::Failed { reason };
        }
        if self.given_up.load(Ordering::Relaxed) {
            return Outcome::Failed { reason: "the connection broke at the receiver".into() };
        }
        if self.cut_ns.is_some() {
            return match connections.was_any_connected() {
                true => Outcome::Complete,
                false => {
                    Outcome::Failed { reason: "no connection was established before the flow's time was over".into() }
                }
            };
        }
        // A truncated stream with a clean end: nothing else would detect it.
        let is_short = |connection: &Connection| connection.received() != connection.sender().sent_bytes;
        match connections.open.iter().find(|(_, connection)| is_short(connection)) {
            Some((number, short)) => Outcome::Differs { connection: *number, at_bytes: short.received() },
            None => Outcome::Complete,
        }
    }

    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (number, connection) in &lock(&self.connections).open {
            let sender = connection.sender();
            let mut add = |at_ns: Option<u64>, kind: &str, detail: &str| {
                let Some(at_ns) = at_ns else { return };
                events.push(Event {
                    at_us: at_ns.saturating_sub(self.origin_ns) / 1_000,
                    flow: Some(self.name.into()),
                    connection: Some(*number),
                    kind: kind.into(),
                    detail: detail.into(),
                });
            };
            add(sender.connected_ns, "connected", "");
            match &sender.failure {
                Some(reason) => add(sender.finished_ns, "failed", reason),
                None => add(sender.finished_ns, "finished", &format!("{} bytes sent", sender.sent_bytes)),
            }
        }
        events
    }
}
