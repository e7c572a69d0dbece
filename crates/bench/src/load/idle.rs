//! Many connections that have said something and now say nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{IO_TIMEOUT, MESSAGE_BYTES, Path, echo, joined};

/// Connections made and closed before the first look, so that what is made once does not count.
const WARM_UP: usize = 50;
/// What a relay gets to put its house in order.
const SETTLE: Duration = Duration::from_millis(700);

/// Returns what `memory` says with `connections` idle ones less what it says without, in bytes per connection.
pub fn run(path: Path, connections: usize, memory: impl Fn() -> Result<u64> + Send) -> Result<f64> {
    let listener = path.listen()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(|| echo::serve(&listener, &stop));
        let measured = joined(scope.spawn(move || measure(path, connections, memory)));
        stop.store(true, Ordering::Relaxed);
        joined(server)?;
        measured
    })
}

fn measure(path: Path, connections: usize, memory: impl Fn() -> Result<u64>) -> Result<f64> {
    if let Some(namespace) = path.client {
        namespace.enter()?;
    }
    drop(hold(path, WARM_UP)?);
    thread::sleep(SETTLE);
    let before = memory()?;
    let held = hold(path, connections)?;
    thread::sleep(SETTLE);
    let after = memory()?;
    drop(held);
    Ok((after as f64 - before as f64) / connections as f64)
}

/// Opens connections one after the other; each carries a message there and back.
fn hold(path: Path, connections: usize) -> Result<Vec<TcpStream>> {
    let one = || -> std::io::Result<TcpStream> {
        let mut socket = TcpStream::connect_timeout(&path.connect, IO_TIMEOUT)?;
        socket.set_read_timeout(Some(IO_TIMEOUT))?;
        let mut message = [0x5a; MESSAGE_BYTES];
        socket.write_all(&message)?;
        socket.read_exact(&mut message)?;
        Ok(socket)
    };
    (1..=connections).map(|number| one().with_context(|| format!("idle connection {number} fails"))).collect()
}
