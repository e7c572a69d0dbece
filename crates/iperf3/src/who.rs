//! Whether a measuring server of ekiden answers where another server was looked for.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use ekiden_record::LoadSettings;

use crate::control;
use ekiden_measure_proto::message::{PLAIN, Reply, Request, Speaks, Trace, decode, encode};
use ekiden_measure_proto::settings::Asked;
use ekiden_net::deadline::Deadline;

/// How long connecting may take, and how long all of the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer: a refusal with its reason.
const BYTES_MOST: usize = 4096;

/// Whether a measuring server of ekiden answers: it refuses a version that there is not, with keys or without.
pub fn is_ekiden(address: SocketAddr) -> bool {
    let asked = || -> std::io::Result<bool> {
        let socket = control::plainly(address, PATIENCE)?;
        let mut socket = Deadline::new(&socket, PATIENCE);
        let settings: Box<LoadSettings> = Box::new(Asked::default().get().clone());
        socket.write_all(&PLAIN)?;
        socket.write_all(&encode(&Request::Measure {
            speaks: Speaks { version: 0, ..Speaks::own() },
            settings,
            trace: Trace::No,
        })?)?;
        let mut length = [0; 4];
        socket.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > BYTES_MOST {
            return Ok(false);
        }
        let mut bytes = vec![0; length];
        socket.read_exact(&mut bytes)?;
        Ok(matches!(decode(&bytes), Ok(Some(Reply::Refused { .. }))))
    };
    asked().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// A listener that says `first`, and then a byte now and then, as long as somebody is there.
    fn dripping(first: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(first).unwrap();
            while client.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        address
    }

    #[test]
    fn an_answer_that_drips_or_is_long_holds_nobody() {
        for length in [&[0, 0, 4, 0], &[0, 64, 0, 0]] {
            let start = Instant::now();
            assert!(!is_ekiden(dripping(length)));
            assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        }
    }
}
