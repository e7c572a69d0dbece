//! Which streams a status lists. There may be millions: the most recently active are listed, all are counted.

use std::time::Duration;

use ekiden_window_balance::Policy;

use crate::config::{Config, Group};
use crate::kernel::Stream;
use crate::status::{GatewayStatus, GroupStatus, StreamStatus};
use crate::throttlings::Throttled;

/// How many.
pub(crate) const LISTED_MOST: usize = 1_000;

/// The streams of a status.
pub(crate) struct Listing {
    streams: Vec<Stream>,
    most: usize,
    /// By group: limits of streams that are idle for longer do not count; `None`: none does now.
    count_for: Vec<Option<Duration>>,
    /// By group: how many there are, and how many of these have a limit.
    pub counts: Vec<(u64, u64)>,
}

impl Listing {
    pub fn new(count_for: Vec<Option<Duration>>, most: usize) -> Self {
        Self { streams: Vec::new(), most, counts: vec![(0, 0); count_for.len()], count_for }
    }

    pub fn add(&mut self, mut stream: Stream) {
        let Some((all, limited)) = self.counts.get_mut(stream.group) else { return };
        *all += 1;
        if self.count_for[stream.group].is_none_or(|most| stream.idle > most) {
            stream.state.limit = None;
        }
        *limited += u64::from(stream.state.limit.is_some());
        self.streams.push(stream);
        if self.streams.len() >= 2 * self.most {
            self.cut();
        }
    }

    /// Those that are listed, in the order of their sender and receiver.
    pub fn listed(&mut self) -> &[Stream] {
        self.cut();
        self.streams.sort_unstable_by_key(|stream| (stream.sender, stream.receiver));
        &self.streams
    }

    /// What of a status is about groups and streams.
    pub fn status(mut self, config: &Config, throttled: &[Throttled]) -> GatewayStatus {
        let streams: Vec<StreamStatus> = self
            .listed()
            .iter()
            .filter_map(|stream| Some(of_stream(stream, config.groups.get(stream.group)?)))
            .collect();
        let groups = config.groups.iter().zip(throttled).zip(&self.counts);
        let groups = groups.map(|((group, throttled), (all, limited))| GroupStatus {
            name: group.name.clone(),
            policy: if group.settings.balance.policy == Policy::Paper { "paper" } else { "delivered" }.into(),
            streams: *all,
            limited: *limited,
            throttlings: throttled.times,
            throttled_by: throttled.by.clone(),
        });
        let all: u64 = self.counts.iter().map(|(all, _)| all).sum();
        GatewayStatus {
            ipv4_streams: config.ipv4_streams,
            ipv6_streams: config.ipv6_streams,
            groups: groups.collect(),
            streams_not_listed: all - streams.len() as u64,
            streams,
            ..GatewayStatus::default()
        }
    }

    fn cut(&mut self) {
        if self.streams.len() > self.most {
            self.streams.select_nth_unstable_by_key(self.most, |stream| stream.idle);
            self.streams.truncate(self.most);
        }
    }
}

fn of_stream(stream: &Stream, group: &Group) -> StreamStatus {
    let known = &stream.state;
    let state = match known.limit {
        _ if !known.is_open => "opening",
        Some(_) => "limited",
        None if known.is_short(&group.settings.balance) => "short",
        None => "watched",
    };
    StreamStatus {
        group: group.name.clone(),
        sender: stream.sender.to_string(),
        receiver: stream.receiver.to_string(),
        state: state.into(),
        idle_s: stream.idle.as_secs(),
        rtt_us: known.rtt_us,
        rtt_min_us: known.least_us,
        flow_bytes: known.flow,
        limit_bytes: known.limit,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ekiden_window_balance::{STREAM_BYTES, StreamState};

    use super::{Listing, Stream};

    #[test]
    fn the_most_recently_active_are_listed_and_all_are_counted() {
        let state =
            StreamState { is_open: true, rtt_us: None, least_us: None, flow: None, limit: None, segment: 0, scale: 0 };
        let stream = |number: u16| Stream {
            sender: ([10, 0, 0, 1], number).into(),
            receiver: ([192, 0, 2, 1], 80).into(),
            group: usize::from(number % 2),
            // 7 and 100 have no factor in common: each second once.
            idle: Duration::from_secs(u64::from(number * 7 % 100)),
            state: StreamState { limit: (number < 10).then_some(1), ..state },
        };
        let mut listing = Listing::new(vec![Some(Duration::from_secs(99)), None], 10);
        (0..100).for_each(|number| listing.add(stream(number)));
        listing.add(Stream { group: 2, ..stream(1) });
        assert_eq!(listing.counts, [(50, 5), (50, 0)]);
        let listed = listing.listed();
        assert!(listed.len() == 10 && listed.iter().all(|stream| stream.idle.as_secs() < 10), "{listed:?}");
        assert!(listed.is_sorted_by_key(|stream| stream.sender));
    }

    #[test]
    fn a_stream_that_was_idle_for_longer_than_hold_is_limited_no_more() {
        let mut listing = Listing::new(vec![Some(Duration::from_secs(10))], 10);
        let limited =
            StreamState { is_open: true, limit: Some(3000), ..StreamState::read(&[0; STREAM_BYTES]).unwrap() };
        for (port, idle) in [(1, 10), (2, 11)] {
            let (sender, receiver) = (([10, 0, 0, 1], port).into(), ([192, 0, 2, 1], 80).into());
            listing.add(Stream { sender, receiver, group: 0, idle: Duration::from_secs(idle), state: limited });
        }
        assert_eq!(listing.counts, [(2, 1)]);
        let limits: Vec<Option<u32>> = listing.listed().iter().map(|stream| stream.state.limit).collect();
        assert_eq!(limits, [Some(3000), None]);
    }
}
