//! What nodes log, for tests to read.

use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps every line of the process, from the level info on.
pub fn keep() {
    // A second test of the process finds the same set up.
    let _ = tracing::subscriber::set_global_default(Log(|line| LINES.lock().unwrap().push(line)));
}

/// Prints them.
pub fn print() {
    let _ = tracing::subscriber::set_global_default(Log(|line| println!("log: {line}")));
}

/// The lines so far that have this part.
pub fn logged(part: &str) -> Vec<String> {
    LINES.lock().unwrap().iter().filter(|line| line.contains(part)).cloned().collect()
}

/// Whether there is such a line.
pub fn is_logged(part: &str) -> bool {
    !logged(part).is_empty()
}

struct Log(fn(String));

struct Message(fn(String));

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0(format!("{value:?}"));
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(self.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
