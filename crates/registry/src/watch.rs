//! Reading one watch, on a thread of its own.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::mpsc::SyncSender;
use std::thread;

use ureq::{Agent, Body};

use crate::client::ANSWER_MOST;
use crate::gateway::Line;
use crate::inbox::{Input, Said};

/// A watch that is being read. Its connection closes with it, and its thread ends.
pub struct Watch {
    number: u64,
    agent: Agent,
}

impl Watch {
    /// Reads `body` on a new thread, and sends on what it says.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn start(number: u64, agent: Agent, body: Body, inbox: SyncSender<Input>) -> io::Result<Self> {
        let read = move || {
            let mut lines = BufReader::with_capacity(16 << 10, body.into_reader());
            loop {
                let said = next(&mut lines);
                let goes_on = matches!(said, Said::Changes(_));
                if inbox.send(Input::Watch(number, said)).is_err() || !goes_on {
                    return;
                }
            }
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

fn next(lines: &mut impl BufRead) -> Said {
    let line = match line(lines, ANSWER_MOST) {
        Ok(line) => line,
        Err(error) => return Said::Ended(error.to_string()),
    };
    match serde_json::from_slice::<Line<_>>(&line) {
        Ok(Line { result: Some(watched), .. }) => Said::Changes(watched),
        Ok(Line { error: Some(failure), .. }) => Said::Failed(failure),
        Ok(_) => Said::Ended("neither a result nor an error".into()),
        Err(error) => Said::Ended(error.to_string()),
    }
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
            assert_eq!(matches!(next(&mut text.as_bytes()), Said::Ended(_)), ends, "{text}");
        }
        assert!(matches!(next(&mut "{\"error\":{\"grpc_code\":14}}\n".as_bytes()), Said::Failed(_)));
    }
}
