//! Reading one watch, on a thread of its own.
//!
//! A watch that reports no key of the overlay is read slowly.

use std::io::{self, BufRead, BufReader, Read};
use std::mem::take;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use ureq::{Agent, Body};

use crate::client::ANSWER_MOST;
use crate::gateway::Line;
use crate::inbox::{Input, Said};

/// The pause in reading after a result that reports no key of the overlay. etcd sends few of them; if it sends them without
/// end, or the server is no etcd, they cost ten small lines a second.
const PAUSE: Duration = Duration::from_millis(100);

/// The additional pause for each byte of such a result.
const PAUSE_PER_BYTE: Duration = Duration::from_micros(1);

/// A watch that is being read. Its connection closes with it, and its thread ends.
pub struct Watch {
    number: u64,
    agent: Agent,
}

impl Watch {
    /// Reads `body` on a new thread, and sends on what it reports about keys that begin with `prefix`.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(number: u64, agent: Agent, body: Body, prefix: String, inbox: SyncSender<Input>) -> io::Result<Self> {
        let read = move || {
            let lines = BufReader::with_capacity(16 << 10, body.into_reader());
            read(lines, prefix.as_bytes(), thread::sleep, |said| inbox.send(Input::Watch(number, said)).is_ok());
        };
        thread::Builder::new().name("registry-watch".into()).spawn(read)?;
        Ok(Self { number, agent })
    }

    /// Which one it is.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.agent.clone().shutdown();
    }
}

/// Gives each line to `tell`, until `tell` wants no more or the watch ends.
fn read(mut lines: impl BufRead, prefix: &[u8], mut wait: impl FnMut(Duration), mut tell: impl FnMut(Said) -> bool) {
    // The first line confirms the watch.
    let mut is_first = true;
    loop {
        let (said, length) = next(&mut lines);
        let Said::Changes(watched) = &said else {
            tell(said);
            return;
        };
        let is_empty = !watched.events.iter().any(|event| event.kv.key.starts_with(prefix));
        if !tell(said) {
            return;
        }
        if is_empty && !take(&mut is_first) {
            wait(PAUSE + PAUSE_PER_BYTE * length);
        }
    }
}

/// The content of the next line, and its length.
fn next(lines: &mut impl BufRead) -> (Said, u32) {
    let line = match line(lines, ANSWER_MOST) {
        Ok(line) => line,
        Err(error) => return (Said::Ended(error.to_string()), 0),
    };
    let said = match serde_json::from_slice::<Line<_>>(&line) {
        Ok(Line { result: Some(watched), .. }) => Said::Changes(watched),
        Ok(Line { error: Some(failure), .. }) => Said::Failed(failure),
        Ok(_) => Said::Ended("neither a result nor an error".into()),
        Err(error) => Said::Ended(error.to_string()),
    };
    (said, line.len().try_into().unwrap_or(u32::MAX))
}

/// The next line, without its end.
fn line(from: &mut impl BufRead, most: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.by_ref().take(most as u64 + 1).read_until(b'\n', &mut line)?;
    match line.pop() {
        Some(b'\n') => Ok(line),
        Some(_) if line.len() >= most => Err(io::Error::other(format!("a line of more than {most} bytes"))),
        _ => Err(io::Error::other("the watch has ended")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_up_to_a_length() {
        let mut from = io::Cursor::new(b"one\n\nthree\nrest".to_vec());
        assert_eq!(line(&mut from, 5).unwrap(), b"one");
        assert_eq!(line(&mut from, 5).unwrap(), b"");
        assert_eq!(line(&mut from, 5).unwrap(), b"three");
        assert!(line(&mut from, 5).unwrap_err().to_string().contains("ended"));
        let mut long = io::Cursor::new(vec![b'x'; 20]);
        assert!(line(&mut long, 5).unwrap_err().to_string().contains("more than 5 bytes"));
    }

    #[test]
    fn what_is_no_answer_of_a_watch_ends_it() {
        for (text, ends) in [("{\"result\":{}}\n", false), ("{}\n", true), ("<html>\n", true), ("", true)] {
            assert_eq!(matches!(next(&mut text.as_bytes()).0, Said::Ended(_)), ends, "{text}");
        }
        assert!(matches!(next(&mut "{\"error\":{\"grpc_code\":14}}\n".as_bytes()).0, Said::Failed(_)));
    }

    #[test]
    fn after_results_that_hold_nothing_the_next_waits() {
        // `/a/b` is of the overlay, `/c` is not.
        let event = |key: &str| format!("{{\"result\":{{\"events\":[{{\"kv\":{{\"key\":\"{key}\"}}}}]}}}}\n");
        let (own, other, empty) = (event("L2EvYg=="), event("L2M="), "{\"result\":{}}\n".to_owned());
        let long = format!("{{\"result\":{{\"more\":\"{}\"}}}}\n", "x".repeat(3_000_000));
        let text = [&empty, &own, &own, &other, &own, &empty, &long].map(String::as_str).concat();
        let (mut waits, mut told) = (Vec::new(), 0);
        let tell = |said| {
            told += 1;
            matches!(said, Said::Changes(_))
        };
        read(text.as_bytes(), b"/a/", |wait: Duration| waits.push(wait.as_millis()), tell);
        assert_eq!((told, waits), (8, vec![100, 100, 3100]));
    }
}
