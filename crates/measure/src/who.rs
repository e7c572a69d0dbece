//! Whether a measuring server of ekiden answers where another server was looked for.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use ekiden_record::LoadSettings;

use crate::deadline::Deadline;
use crate::message::{PLAIN, Reply, Request, Trace, decode, encode};
use crate::settings::Asked;
use crate::socket;

/// How long connecting may take, and how long all of the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer: a refusal with its reason.
const BYTES_MOST: usize = 4096;

/// Whether a measuring server of ekiden answers: it refuses a version that there is not, with keys or without.
pub fn is_ekiden(address: SocketAddr) -> bool {
    let asked = || -> std::io::Result<bool> {
        let socket = socket::connect(address, PATIENCE, None)?;
        let mut socket = Deadline::new(&socket, PATIENCE);
        let settings: Box<LoadSettings> = Box::new(Asked::default().get().clone());
        socket.write_all(&PLAIN)?;
        socket.write_all(&encode(&Request::Measure { version: 0, settings, trace: Trace::No })?)?;
        let mut length = [0; 4];
        socket.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > BYTES_MOST {
            return Ok(false);
        }
        let mut bytes = vec![0; length];
        socket.read_exact(&mut bytes)?;
        Ok(matches!(decode(&bytes), Ok(Reply::Refused { .. })))
    };
    asked().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::deadline::tests::dripping;

    #[test]
    fn an_answer_that_drips_or_is_long_holds_nobody() {
        for length in [&[0, 0, 4, 0], &[0, 64, 0, 0]] {
            let start = Instant::now();
            assert!(!is_ekiden(dripping(length)));
            assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        }
    }
}
