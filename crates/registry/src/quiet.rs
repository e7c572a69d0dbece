//! Limits log lines that other nodes, or etcd, could cause as often as they like: one of a kind about one node in ten seconds, and then
//! the last one of those that came meanwhile, with their number. Memory is bounded: beyond a number of nodes, all others count as one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// At most one line of a kind about one node in this time.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lines that are remembered.
const REMEMBERED: usize = 64;

/// What was said within the last interval, by the kind of line and whom it is about.
#[derive(Default)]
pub struct Quiet(BTreeMap<(&'static str, String), Line>);

struct Line {
    at: Instant,
    /// The last one that was not said.
    text: String,
    /// How many were not said.
    more: u64,
}

impl Quiet {
    /// A warning of this kind about `whom`, whom `line` names.
    pub fn warn(&mut self, kind: &'static str, whom: &str, line: String) {
        if let Some(line) = self.take((kind, whom.to_owned()), line, Instant::now()) {
            tracing::warn!("{line}");
        }
    }

    /// Says what is due. To be called now and then.
    pub fn flush(&mut self) {
        self.due(Instant::now()).iter().for_each(|line| tracing::warn!("{line}"));
    }

    /// The line to say now, if any.
    fn take(&mut self, mut key: (&'static str, String), text: String, now: Instant) -> Option<String> {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&key) {
            key.1.clear();
        }
        if let Some(line) = self.0.get_mut(&key) {
            (line.text, line.more) = (text, line.more + 1);
            return None;
        }
        self.0.insert(key, Line { at: now, text: String::new(), more: 0 });
        Some(text)
    }

    /// The lines that have waited long enough. Those that did not come again are forgotten.
    fn due(&mut self, now: Instant) -> Vec<String> {
        let mut due = Vec::new();
        self.0.retain(|(_, whom), line| {
            if now.saturating_duration_since(line.at) < INTERVAL {
                return true;
            }
            if line.more > 0 {
                let others = if whom.is_empty() { ", also about others" } else { "" };
                due.push(format!("{} (one of {} within {INTERVAL:?}{others})", line.text, line.more));
            }
            let came_again = line.more > 0;
            *line = Line { at: now, text: String::new(), more: 0 };
            came_again
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_said_and_of_the_others_the_last_with_their_number() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let take = |quiet: &mut Quiet, whom: &str, text: &str, seconds| {
            quiet.take(("ignored", whom.into()), text.into(), at(seconds))
        };
        assert_eq!(take(&mut quiet, "a", "first", 0).as_deref(), Some("first"));
        assert_eq!(take(&mut quiet, "b", "first", 0).as_deref(), Some("first"));
        assert!((0..5660).all(|number| take(&mut quiet, "a", &number.to_string(), 5).is_none()));
        assert!(quiet.due(at(9)).is_empty());
        assert_eq!(quiet.due(at(10)), ["5659 (one of 5660 within 10s)"]);
        assert_eq!(take(&mut quiet, "a", "again", 11), None, "that was a line, too");
        assert_eq!(take(&mut quiet, "b", "again", 11).as_deref(), Some("again"), "it has been calm");
    }

    #[test]
    fn many_names_cost_neither_memory_nor_log() {
        let (mut quiet, now) = (Quiet::default(), Instant::now());
        let said = (0..10_000).filter(|name| quiet.take(("k", name.to_string()), String::new(), now).is_some());
        assert_eq!(said.count(), REMEMBERED + 1);
        assert_eq!(quiet.0.len(), REMEMBERED + 1);
        let due = quiet.due(now + INTERVAL);
        assert!(due.len() == 1 && due[0].ends_with("also about others)"), "{due:?}");
    }
}
