//! Limits log lines that strangers could cause as often as they like.
//!
//! The first line of a kind about somebody is logged at once. Those that follow within ten seconds are counted. The count is
//! logged with the text of the last one, whose reason may be another than that of the first. Memory is bounded, and so is the
//! log: beyond a number of addresses, all others count as one.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::Level;

/// At most one line of a kind about one address or name in this time.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lines that are remembered; what else comes within [`INTERVAL`] is one more entry for each kind.
const REMEMBERED: usize = 256;

/// The kind of a line that takes a warning back.
const RECOVERED: &str = "recovered";

/// The lines of one node.
#[derive(Debug)]
pub struct Throttle {
    started: Instant,
    lines: Mutex<Lines>,
    /// Whom a warning was about that holds until it is taken back.
    troubled: Mutex<HashSet<String>>,
    /// Whether there is anybody. Every stream asks.
    is_troubled: AtomicBool,
}

/// What was logged within the last interval, by the kind of line and whom it is about.
#[derive(Debug, Default)]
struct Lines(HashMap<(&'static str, String), Line>);

#[derive(Debug)]
struct Line {
    level: Level,
    text: String,
    /// When it was logged.
    at: Duration,
    /// How many came since then.
    more: u64,
    /// Whether it does not hold any more, and is not to be logged again.
    is_over: bool,
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            lines: Mutex::default(),
            troubled: Mutex::default(),
            is_troubled: AtomicBool::new(false),
        }
    }
}

impl Throttle {
    /// A warning of this kind about `whom`. `line` names whom it is about.
    pub fn warn(&self, kind: &'static str, whom: impl fmt::Display, line: fmt::Arguments<'_>) {
        self.log(Level::WARN, kind, &whom, line);
    }

    /// The same about one of few, such as a peer, of whom it holds until [`Throttle::recovered`].
    pub fn warn_until(&self, kind: &'static str, whom: &str, line: fmt::Arguments<'_>) {
        self.troubled.lock().unwrap_or_else(PoisonError::into_inner).insert(whom.into());
        self.is_troubled.store(true, Ordering::Relaxed);
        self.lock().mark_over(RECOVERED, whom);
        self.warn(kind, whom, line);
    }

    /// The peer for which one of `kinds` was logged has recovered: logs that in `line`. Nothing if there was no warning. The
    /// last logged line is the one that holds.
    pub fn recovered(&self, kinds: &[&'static str], whom: &str, line: fmt::Arguments<'_>) {
        if !self.is_troubled.load(Ordering::Relaxed) {
            return;
        }
        let mut troubled = self.troubled.lock().unwrap_or_else(PoisonError::into_inner);
        if troubled.remove(whom) {
            self.is_troubled.store(!troubled.is_empty(), Ordering::Relaxed);
            drop(troubled);
            kinds.iter().for_each(|kind| self.lock().mark_over(kind, whom));
            self.info(RECOVERED, whom, line);
        }
    }

    /// Whether a warning about `whom` holds.
    pub fn is_troubled(&self, whom: &str) -> bool {
        self.is_troubled.load(Ordering::Relaxed)
            && self.troubled.lock().unwrap_or_else(PoisonError::into_inner).contains(whom)
    }

    /// The same at the level info.
    pub fn info(&self, kind: &'static str, whom: impl fmt::Display, line: fmt::Arguments<'_>) {
        self.log(Level::INFO, kind, &whom, line);
    }

    /// Logs the counts that are due. To be called about once a second.
    pub fn flush(&self) {
        let due = self.lock().due(self.started.elapsed());
        due.iter().for_each(|(level, text)| emit(*level, text));
    }

    /// Logs all counts. The next line of each kind is logged at once, so that an operator sees whether a change has helped.
    /// Warnings that hold are forgotten, except those about peers that the new configuration `has`.
    pub fn forget(&self, has: impl Fn(&str) -> bool) {
        let mut troubled = self.troubled.lock().unwrap_or_else(PoisonError::into_inner);
        troubled.retain(|whom| has(whom));
        self.is_troubled.store(!troubled.is_empty(), Ordering::Relaxed);
        drop(troubled);
        self.emit_all();
    }

    fn emit_all(&self) {
        let due = self.lock().all();
        due.iter().for_each(|(level, text)| emit(*level, text));
    }

    fn log(&self, level: Level, kind: &'static str, whom: &dyn fmt::Display, line: fmt::Arguments<'_>) {
        let text = self.lock().take(level, (kind, whom.to_string()), line, self.started.elapsed());
        if let Some(text) = text {
            emit(level, &text);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.emit_all();
    }
}

impl Lines {
    /// The text to log now, if any.
    fn take(
        &mut self,
        level: Level,
        mut key: (&'static str, String),
        line: fmt::Arguments<'_>,
        now: Duration,
    ) -> Option<String> {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&key) {
            key.1.clear();
        }
        let text = line.to_string();
        if let Some(line) = self.0.get_mut(&key) {
            line.more += 1;
            (line.level, line.text, line.is_over) = (level, text, false);
            return None;
        }
        self.0.insert(key, Line { level, text: text.clone(), at: now, more: 0, is_over: false });
        Some(text)
    }

    /// A line of a kind about somebody does not hold any more.
    fn mark_over(&mut self, kind: &'static str, whom: &str) {
        if let Some(line) = self.0.get_mut(&(kind, whom.to_owned())) {
            line.is_over = true;
        }
    }

    /// All counts, which are forgotten.
    fn all(&mut self) -> Vec<(Level, String)> {
        let due = self.due(Duration::MAX);
        self.0.clear();
        due
    }

    /// The counts to log now. A line that did not come again is forgotten.
    fn due(&mut self, now: Duration) -> Vec<(Level, String)> {
        let mut due = Vec::new();
        self.0.retain(|(_, whom), line| {
            if now - line.at < INTERVAL {
                return true;
            }
            if line.more == 0 {
                return false;
            }
            let others = if whom.is_empty() { ", also about others" } else { "" };
            if !line.is_over {
                due.push((line.level, format!("{} (and {} more within {INTERVAL:?}{others})", line.text, line.more)));
            }
            (line.at, line.more) = (now, 0);
            true
        });
        due
    }
}

fn emit(level: Level, text: &str) {
    match level {
        Level::WARN => tracing::warn!("{text}"),
        _ => tracing::info!("{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "test";

    fn take(lines: &mut Lines, whom: &str, at: u64) -> Option<String> {
        let line = format_args!("{whom} did it");
        lines.take(Level::WARN, (KIND, whom.into()), line, Duration::from_secs(at))
    }

    fn due(lines: &mut Lines, at: u64) -> Vec<String> {
        lines.due(Duration::from_secs(at)).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn the_first_line_is_logged_at_once_and_the_others_are_counted() {
        let mut lines = Lines::default();
        assert_eq!(take(&mut lines, "192.0.2.1", 0).unwrap(), "192.0.2.1 did it");
        assert_eq!(take(&mut lines, "192.0.2.2", 0).unwrap(), "192.0.2.2 did it");
        assert!((0..57).all(|_| take(&mut lines, "192.0.2.1", 5).is_none()));
        assert!(due(&mut lines, 9).is_empty());
        assert_eq!(due(&mut lines, 10), ["192.0.2.1 did it (and 57 more within 10s)"]);
        assert!(take(&mut lines, "192.0.2.1", 11).is_none(), "the count was a line, too");
        assert!(take(&mut lines, "192.0.2.2", 11).is_some(), "it has been calm");
        assert_eq!(due(&mut lines, 20), ["192.0.2.1 did it (and 1 more within 10s)"]);
        assert!(due(&mut lines, 30).is_empty());
        assert!(lines.0.is_empty());
    }

    #[test]
    fn what_is_counted_is_told_with_the_last_reason() {
        let mut lines = Lines::default();
        for (i, why) in ["refused", "refused", "no answer"].into_iter().enumerate() {
            let line = format_args!("node b is dead: {why}");
            lines.take(Level::WARN, (KIND, "b".into()), line, Duration::from_secs(i as u64));
        }
        assert_eq!(due(&mut lines, 10), ["node b is dead: no answer (and 2 more within 10s)"]);
    }

    #[test]
    fn whoever_flaps_is_logged_seldom_and_last_as_it_is() {
        let mut lines = Lines::default();
        for _ in 0..100 {
            take(&mut lines, "b", 0);
        }
        lines.mark_over(KIND, "b");
        assert!(take(&mut lines, "c", 0).is_some());
        assert!(due(&mut lines, 10).is_empty(), "it is well since");
        let throttle = Throttle::default();
        for _ in 0..100 {
            throttle.warn_until("dead", "b", format_args!("b is dead"));
            throttle.recovered(&["dead"], "b", format_args!("b is well"));
        }
        let left = throttle.lock().due(Duration::MAX);
        assert_eq!(left, [(Level::INFO, format!("b is well (and 99 more within {INTERVAL:?})"))]);
        throttle.recovered(&["dead"], "b", format_args!("b is well"));
        assert_eq!(throttle.lock().due(Duration::MAX), []);
    }

    #[test]
    fn what_comes_after_a_reload_is_logged_at_once() {
        let mut lines = Lines::default();
        assert!(take(&mut lines, "192.0.2.1", 0).is_some() && take(&mut lines, "192.0.2.1", 1).is_none());
        assert_eq!(lines.all(), [(Level::WARN, "192.0.2.1 did it (and 1 more within 10s)".to_owned())]);
        assert!(take(&mut lines, "192.0.2.1", 2).is_some());
    }

    #[test]
    fn a_peer_that_a_reload_removes_is_not_well_again() {
        let throttle = Throttle::default();
        throttle.warn_until("dead", "b", format_args!("b is dead"));
        throttle.warn_until("dead", "c", format_args!("c is dead"));
        throttle.forget(|peer| peer == "c");
        throttle.recovered(&["dead"], "b", format_args!("b is well"));
        assert!(throttle.lock().0.is_empty());
        throttle.recovered(&["dead"], "c", format_args!("c is well"));
        assert!(!throttle.lock().0.is_empty(), "the reload may have mended it");
        throttle.warn_until("dead", "c", format_args!("c is dead"));
        throttle.forget(|_| false);
        assert!(!throttle.is_troubled.load(Ordering::Relaxed), "no stream need ask any more");
    }

    #[test]
    fn many_addresses_cost_neither_memory_nor_log() {
        let mut lines = Lines::default();
        let logged = (0..100_000).filter(|i| take(&mut lines, &i.to_string(), 0).is_some()).count();
        assert_eq!((logged, lines.0.len()), (REMEMBERED + 1, REMEMBERED + 1));
        let counted = (100_000 - logged).to_string();
        let told = due(&mut lines, 10);
        assert!(told.len() == 1 && told[0].contains(&format!("and {counted} more")), "{told:?}");
        assert!(told[0].ends_with("also about others)"), "{told:?}");
    }
}
