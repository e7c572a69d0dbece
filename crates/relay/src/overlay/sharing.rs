//! Legs that streams of several service classes share: each connection is paced as its class says. The deciding is `ekiden_queue`'s.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ekiden_net::socket::limit_rate;
use ekiden_net::tcp_info::tcp_info;
use ekiden_net::watched::WatchedSockets;
use ekiden_queue::{Lengths, Service, Sharing, StreamSeen};
use ekiden_tcp_info::TcpInfo;
use ekiden_units::Time;
use serde::{Deserialize, Serialize};

use super::OnLeg;
use super::seen::LegSeen;
use crate::config::classes::{BULK, Classes};

/// How often a leg that is shared is looked at, while few streams are on it ...
const TICK: Duration = Duration::from_millis(20);
/// ... and how much later for each stream, so that looking takes a small part of the time of one processor.
const TICK_STREAM: Duration = Duration::from_micros(100);
/// A rate that differs by less is left as it is.
const SAME: f64 = 0.01;

/// All legs that have streams.
#[derive(Debug, Default)]
pub struct Shares {
    classes: Classes,
    services: Vec<Service>,
    /// Of each class, how long the transfers were that this node has sent.
    lengths: Vec<Lengths>,
    legs: BTreeMap<Arc<str>, Sharing>,
}

impl Shares {
    /// Takes new classes. If they differ, what was seen of the legs is forgotten, and streams are of them from now on. Returns whether a leg
    /// is to be looked at.
    pub fn configure(&mut self, classes: &Classes, watched: &WatchedSockets<LegSeen>, now: Time) -> bool {
        if self.classes == *classes {
            return false;
        }
        let services = classes.services();
        let lengths = vec![Lengths::default(); services.len()];
        *self = Self { classes: classes.clone(), services, lengths, legs: BTreeMap::new() };
        let mut is_shared = false;
        watched.each(|_, seen, _| {
            seen.class = self.place(&seen.leg);
            is_shared |= self.begins(&seen.leg.peer, seen.class, now);
        });
        is_shared
    }

    /// The place of a stream's class.
    pub fn place(&self, leg: &OnLeg) -> usize {
        self.classes.get(leg.class.as_deref().unwrap_or(BULK)).0
    }

    /// A stream of the class at this place begins on a leg. Returns whether the leg is to be looked at from now on.
    pub fn begins(&mut self, peer: &Arc<str>, class: usize, now: Time) -> bool {
        let Self { services, legs, .. } = self;
        legs.entry(peer.clone()).or_default().begins(class, services, now)
    }

    /// It ends.
    pub fn ends(&mut self, peer: &str, class: usize, now: Time) {
        if let Some(leg) = self.legs.get_mut(peer) {
            leg.ends(class, now);
        }
    }

    /// Looks at the legs that are shared, and paces their connections. Returns when to look again; `None` if no leg is shared.
    pub fn look(&mut self, watched: &WatchedSockets<LegSeen>, now: Time) -> Option<Duration> {
        let Self { services, lengths, legs, .. } = self;
        legs.retain(|_, leg| leg.has_streams(now));
        let mut streams: BTreeMap<Arc<str>, Vec<StreamSeen>> = legs
            .iter()
            .filter(|(_, leg)| leg.is_needed(services, now))
            .map(|(peer, _)| (peer.clone(), Vec::new()))
            .collect();
        let mut number = 0;
        let mut released = Vec::new();
        watched.each(|stream, seen, socket| match streams.get_mut(&seen.leg.peer) {
            Some(all) => {
                let Ok(info) = tcp_info(&socket) else { return };
                all.push(shown(stream, seen.class, &info));
                number += 1;
            }
            None if seen.limit.is_some() => released.push((stream, None)),
            None => {}
        });
        let mut rates: BTreeMap<u64, Option<u64>> = released.into_iter().collect();
        for (peer, shown) in &streams {
            let Some(leg) = legs.get_mut(peer) else { continue };
            let decided = leg.look(now, services, lengths, shown);
            rates.extend(shown.iter().map(|of| of.stream).zip(decided));
        }
        watched.each(|stream, seen, socket| {
            let Some(rate) = rates.get(&stream).filter(|rate| differs(seen.limit, **rate)) else { return };
            // A connection that has just broken needs no pacing.
            let _ = limit_rate(&socket, rate.unwrap_or(u64::MAX));
            seen.limit = *rate;
            seen.is_capped = rate.is_some() && services.get(seen.class).is_some_and(|of| of.ceiling.is_some());
        });
        (!streams.is_empty()).then(|| TICK + TICK_STREAM * number)
    }
}

/// What the streams of a class on a leg may send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareStatus {
    /// The node at the other end.
    pub peer: String,
    /// The class.
    pub class: String,
    /// Its streams.
    pub streams: u64,
    /// The sum of the rates to which they are held, in bit/s; `None`: one of them is not.
    pub held_bit_s: Option<u64>,
}

/// What is held to what now.
pub fn status(watched: &WatchedSockets<LegSeen>, classes: &Classes) -> Vec<ShareStatus> {
    let mut shares: BTreeMap<(Arc<str>, usize), (u64, Option<u64>)> = BTreeMap::new();
    watched.each(|_, seen, _| {
        let (streams, held) = shares.entry((seen.leg.peer.clone(), seen.class)).or_insert((0, Some(0)));
        *streams += 1;
        *held = held.zip(seen.limit).map(|(all, one)| all.saturating_add(one.saturating_mul(8)));
    });
    let share = |((peer, class), (streams, held_bit_s)): ((Arc<str>, usize), _)| {
        let (peer, class) = (peer.to_string(), classes.name(class).to_owned());
        ShareStatus { peer, class, streams, held_bit_s }
    };
    shares.into_iter().map(share).collect()
}

fn differs(before: Option<u64>, now: Option<u64>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => (before as f64 - now as f64).abs() > SAME * before as f64,
        (before, now) => before != now,
    }
}

fn shown(stream: u64, class: usize, info: &TcpInfo) -> StreamSeen {
    let full = |segments: u32| u64::from(segments) * u64::from(info.mss_bytes);
    let micros = |us: u32| Time(u64::from(us) * 1_000);
    StreamSeen {
        stream,
        class,
        rtt: micros(info.rtt_us),
        rtt_least: micros(info.rtt_min_us),
        acked: info.acked_bytes + full(info.sacked_segments),
        handed: info.acked_bytes + full(info.unacked_segments) + u64::from(info.unsent_bytes),
        retransmits: info.retransmits.into(),
        in_flight: full(info.unacked_segments.saturating_sub(info.sacked_segments + info.lost_segments)),
        // What waits for a receiver to make room says nothing of the leg.
        is_waiting: info.unsent_bytes > 0 && !info.is_shut_out(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_its_receiver_does_not_wait_for_the_leg() {
        let full = TcpInfo { unsent_bytes: 100_000, unacked_segments: 2, mss_bytes: 1_000, ..TcpInfo::default() };
        let is_waiting = |info: TcpInfo| shown(1, 0, &info).is_waiting;
        assert!(is_waiting(full));
        assert!(is_waiting(TcpInfo { unacked_segments: 0, send_window_bytes: 1_000, ..full }));
        assert!(!is_waiting(TcpInfo { unacked_segments: 0, send_window_bytes: 999, ..full }));
        assert!(!is_waiting(TcpInfo { unsent_bytes: 0, ..full }));
    }
}
