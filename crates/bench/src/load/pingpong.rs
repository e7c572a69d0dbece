//! One small message at a time, there and back, on one connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use super::{MESSAGE_BYTES, Path, Times, joined};

/// Runs it, and returns the round-trip times in microseconds.
pub fn run(path: Path, times: Times) -> Result<Vec<f64>> {
    let listener = path.listen()?;
    let (client, server) = path.pair(&listener)?;
    thread::scope(|scope| {
        let echo = scope.spawn(move || echo(server));
        // The client's end is closed when it is done, which ends the echo.
        let samples = ask(client, times).context("the ping-pong stops");
        joined(echo).context("the echo stops").and(samples)
    })
}

fn ask(mut socket: TcpStream, times: Times) -> Result<Vec<f64>> {
    let mut message = [0x5a; MESSAGE_BYTES];
    let mut samples = Vec::with_capacity(1 << 18);
    let start = Instant::now();
    let mut sent = start;
    while sent.duration_since(start) < times.warm_up + times.measured {
        socket.write_all(&message)?;
        socket.read_exact(&mut message)?;
        let answered = Instant::now();
        if sent.duration_since(start) >= times.warm_up {
            samples.push((answered - sent).as_secs_f64() * 1e6);
        }
        sent = answered;
    }
    Ok(samples)
}

fn echo(mut socket: TcpStream) -> Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    loop {
        match socket.read(&mut message)? {
            0 => return Ok(()),
            count => socket.write_all(&message[..count])?,
        }
    }
}
