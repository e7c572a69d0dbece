//! The throttlings of a gateway's groups: what the status and the log report about them.

use std::collections::VecDeque;
use std::time::Duration;

use ekiden_window_balance::{BalanceSettings, GroupState, Policy};
use tokio::time::Instant;

use crate::config::Group;
use crate::kernel::{Event, EventKind};
use crate::status::EventStatus;

/// The number of throttlings that the status shows.
const TOLD_MOST: usize = 1_000;
/// The least interval between two lines of the log about a group: throttlings may be half a second apart, for hours. The log
/// gives the number of the others.
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
    /// The stream that began the last one.
    pub by: Option<String>,
    /// The kernel's number of the last one, which wraps.
    number: u16,
    /// How many streams cause it, with the policy `paper`.
    stalled: u32,
    /// When the log had a line, and how many throttlings have had none since.
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
        throttled.stalled = state.stalled;
    }

    /// An event of the group of that name.
    pub fn tell(&mut self, event: &Event, name: &str, now: Instant) {
        let stream = format!("{} to {}", event.sender, event.receiver);
        match event.kind {
            EventKind::Congestion => {
                self.note(event, name, "throttled");
                if let Some(throttled) = self.groups.get_mut(event.group) {
                    if throttled.may_log(now) {
                        tracing::info!("{name}: congestion in {stream}: the group is throttled");
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

    /// Logs how many throttlings had no line: at most every [`LOGGED`], or at the end (`None`).
    pub fn tell_silent(&mut self, groups: &[Group], now: Option<Instant>) {
        for (throttled, group) in self.groups.iter_mut().zip(groups) {
            if let Some(times) = throttled.silent_until(now) {
                let often = if times == 1 { "once".into() } else { format!("{times} times") };
                tracing::info!("{}: congestion {often} more", group.name);
            }
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
    /// How long a stream's limit counts now without a packet, as `ekb_observe` has it; `None`: not at all.
    pub fn limits_count_for(&self, settings: &BalanceSettings) -> Option<Duration> {
        match settings.policy {
            Policy::Delivered => Some(settings.hold),
            Policy::Paper => (self.stalled > 0).then_some(Duration::MAX),
        }
    }

    /// Whether a throttling may have a line of the log.
    fn may_log(&mut self, now: Instant) -> bool {
        let may = self.logged.is_none_or(|last| now - last >= LOGGED);
        match may {
            true => self.logged = Some(now),
            false => self.silent += 1,
        }
        may
    }

    /// How many throttlings had no line, if that is to be logged now; `None` is the end.
    fn silent_until(&mut self, now: Option<Instant>) -> Option<u64> {
        let is_due = self.logged.zip(now).is_none_or(|(last, now)| now - last >= LOGGED);
        if self.silent == 0 || !is_due {
            return None;
        }
        self.logged = now;
        Some(std::mem::take(&mut self.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_few_lines_of_many_throttlings_and_tells_the_number_of_the_others() {
        let (begin, mut throttled) = (Instant::now(), Throttled::default());
        let (mut lines, mut told) = (0, Vec::new());
        for half in 0..50 {
            let now = begin + Duration::from_millis(500 * half);
            told.extend(throttled.silent_until(Some(now)));
            lines += u64::from(throttled.may_log(now));
        }
        told.extend(throttled.silent_until(None));
        assert_eq!((lines, told), (1, vec![19, 20, 10]));
        assert_eq!(throttled.silent_until(None), None);
    }

    #[test]
    fn only_while_a_stream_stalls_does_the_papers_policy_lower_windows() {
        let mut throttlings = Throttlings::new(1);
        for stalled in [0, 1, 0] {
            throttlings.count(0, &GroupState { throttlings: 1, stalled });
            let throttled = &throttlings.groups()[0];
            let count_for =
                |policy| throttled.limits_count_for(&BalanceSettings { policy, ..BalanceSettings::default() });
            assert_eq!(count_for(Policy::Paper).is_some(), stalled > 0);
            assert_eq!(count_for(Policy::Delivered), Some(Duration::from_secs(10)));
        }
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
