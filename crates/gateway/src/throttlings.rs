//! The throttlings of a gateway's groups: what the status tells of them, and the log.

use std::collections::VecDeque;
use std::time::Duration;

use ekiden_bpf::gateway::{Event, EventKind};
use ekiden_window_balance::GroupState;
use tokio::time::Instant;

use crate::status::EventStatus;

/// How many the status tells.
const TOLD_MOST: usize = 1_000;
/// A group has a throttling in the log in so long, with its release: they may be half a second apart, for hours.
const LOGGED: Duration = Duration::from_secs(10);

/// Of all groups, in the order of the configuration.
pub(crate) struct Throttlings {
    /// The last ones.
    told: VecDeque<EventStatus>,
    groups: Vec<Throttled>,
}

/// One group's.
#[derive(Default, Clone)]
pub(crate) struct Throttled {
    pub times: u64,
    /// The stream that began the last.
    pub by: Option<String>,
    /// The kernel's number of the last, which wraps.
    number: u16,
    /// When the log had a line, and how many throttlings had none since.
    logged: Option<Instant>,
    silent: u64,
}

impl Throttlings {
    pub fn new(groups: usize) -> Self {
        Self { told: VecDeque::new(), groups: vec![Throttled::default(); groups] }
    }

    pub fn groups(&self) -> &[Throttled] {
        &self.groups
    }

    pub fn last(&self) -> Vec<EventStatus> {
        self.told.iter().cloned().collect()
    }

    /// Counts as the kernel does: events may be lost.
    pub fn count(&mut self, group: usize, state: &GroupState) {
        let Some(throttled) = self.groups.get_mut(group) else { return };
        // From 65,535 it goes to 1.
        let wrapped = u16::from(state.throttlings < throttled.number);
        throttled.times += u64::from(state.throttlings.wrapping_sub(throttled.number).wrapping_sub(wrapped));
        throttled.number = state.throttlings;
    }

    /// An event of the group of that name.
    pub fn tell(&mut self, event: &Event, name: &str, now: Instant) {
        let stream = format!("{} to {}", event.sender, event.receiver);
        match event.kind {
            EventKind::Congestion => {
                self.note(event, name, "throttled");
                if let Some(throttled) = self.groups.get_mut(event.group) {
                    if let Some(silent) = throttled.may_log(now) {
                        let more = if silent > 0 { format!(" ({silent} times more before)") } else { String::new() };
                        tracing::info!("{name}: congestion in {stream}: the windows of all are lowered{more}");
                    }
                    throttled.by = Some(stream);
                }
            }
            EventKind::Released => {
                if self.groups.get(event.group).is_some_and(|throttled| throttled.silent == 0) {
                    tracing::info!("{name}: windows are what receivers say again");
                }
                self.note(event, name, "let_go");
            }
            EventKind::Limited => {
                let limit = event.limit.unwrap_or_default();
                tracing::debug!("{name}: {stream}: windows of {limit} bytes at most");
            }
            EventKind::Unlimited => tracing::debug!("{name}: {stream}: windows are not limited any longer"),
            EventKind::Begun => tracing::trace!("{name}: {stream} has begun"),
            EventKind::Ended => tracing::trace!("{name}: {stream} has ended"),
        }
    }

    fn note(&mut self, event: &Event, group: &str, kind: &str) {
        if self.told.len() >= TOLD_MOST {
            self.told.pop_front();
        }
        let (sender, receiver) = (event.sender.to_string(), event.receiver.to_string());
        self.told.push_back(EventStatus {
            at_us: event.at_us,
            kind: kind.into(),
            group: group.into(),
            sender,
            receiver,
        });
    }
}

impl Throttled {
    /// Whether a line of the log may be written; if so, how many throttlings had none since the last.
    fn may_log(&mut self, now: Instant) -> Option<u64> {
        if self.logged.is_some_and(|last| now - last < LOGGED) {
            self.silent += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_few_lines_of_many_throttlings_and_says_how_many() {
        let (begin, mut throttled) = (Instant::now(), Throttled::default());
        let lines: Vec<u64> =
            (0..50).filter_map(|half| throttled.may_log(begin + Duration::from_millis(500 * half))).collect();
        assert_eq!(lines, [0, 19, 19]);
        assert_eq!(throttled.silent, 9);
    }

    #[test]
    fn throttlings_are_counted_as_the_kernel_numbers_them() {
        let mut throttlings = Throttlings::new(1);
        for number in [0, 3, 3, 65_535, 2] {
            throttlings.count(0, &GroupState { throttlings: number, stalled: 0 });
        }
        assert_eq!(throttlings.groups()[0].times, 65_535 + 2);
    }
}
