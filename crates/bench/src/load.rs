//! The loads, and what they have in common. Generators share the CPUs with the relay, so they must cost little.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ekiden_net::namespace::Namespace;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Socket, Type};

use crate::process;

mod echo;
pub mod files;
pub mod flood;
pub mod idle;
pub mod pingpong;
pub mod storm;
pub mod stream;

/// The size of small messages.
const MESSAGE_BYTES: usize = 64;

/// The timeout after which a relay that does nothing has failed.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// The numbers by which the two ends of a connection recognise each other.
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);

/// From whom to whom, and over what address. Without a namespace: wherever this process is.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    /// Where connections come from.
    pub client: Option<&'a Namespace>,
    /// Where they go to.
    pub server: Option<&'a Namespace>,
    /// What the client connects to: the relay, or the server itself.
    pub connect: SocketAddr,
    /// Where the server listens.
    pub listen: SocketAddr,
}

/// How long a load runs before it is measured, and while it is measured.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Not measured.
    pub warm_up: Duration,
    /// Measured.
    pub measured: Duration,
}

/// The counters of a load while it ran.
#[derive(Debug, Clone, Copy)]
pub struct Interval {
    /// Bytes, or connections.
    pub count: u64,
    /// The time it took.
    pub elapsed: Duration,
    /// The relay's CPU time in it.
    pub cpu: Duration,
    /// The CPU time of the whole machine: it includes the work that relays cause elsewhere, whichever process the kernel
    /// charges.
    pub machine: Duration,
}

/// Asks for the CPU time that the relay has used so far.
pub type Cpu<'a> = &'a (dyn Fn() -> Result<Duration> + Sync);

impl Path<'_> {
    fn listen(&self) -> Result<TcpListener> {
        let listen = || {
            let socket = Socket::new(Domain::for_address(self.listen), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&self.listen.into())?;
            socket.listen(4096)?;
            Ok(socket.into())
        };
        inside(self.server, listen).with_context(|| format!("cannot listen on {}", self.listen))
    }

    fn connect(&self) -> Result<TcpStream> {
        let connect = || TcpStream::connect_timeout(&self.connect, IO_TIMEOUT);
        inside(self.client, connect).with_context(|| format!("cannot connect to {}", self.connect))
    }

    /// One connection, both ends of it, patient for [`IO_TIMEOUT`] and without Nagle's delay.
    fn pair(&self, listener: &TcpListener) -> Result<(TcpStream, TcpStream)> {
        let mut client = self.connect()?;
        let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed).to_ne_bytes();
        client.write_all(&token)?;
        let server = loop {
            ensure!(readable(listener)?, "the connection does not reach the server");
            let (mut server, _) = listener.accept()?;
            server.set_read_timeout(Some(IO_TIMEOUT))?;
            let mut came = [0; 8];
            // Another relay may still be trying a connection that was requested when nothing listened here.
            if server.read_exact(&mut came).is_ok() && came == token {
                break server;
            }
        };
        for end in [&client, &server] {
            end.set_nodelay(true)?;
            end.set_read_timeout(Some(IO_TIMEOUT))?;
            end.set_write_timeout(Some(IO_TIMEOUT))?;
        }
        Ok((client, server))
    }
}

/// What was seen at the end of the warm-up, and at the end of the measured time.
struct Observed<T> {
    before: T,
    after: T,
    elapsed: Duration,
    cpu: Duration,
    machine: Duration,
}

impl<T> Observed<T> {
    fn interval(&self, count: u64) -> Interval {
        Interval { count, elapsed: self.elapsed, cpu: self.cpu, machine: self.machine }
    }
}

/// Looks at the end of the warm-up, and at the end of the measured time.
fn observe<T>(look: &dyn Fn() -> T, times: Times, cpu: Cpu) -> Result<Observed<T>> {
    thread::sleep(times.warm_up);
    let (before, spent, machine, start) = (look(), cpu()?, process::cpu_of_machine()?, Instant::now());
    thread::sleep(times.measured);
    let (after, elapsed, machine_after) = (look(), start.elapsed(), process::cpu_of_machine()?);
    let (cpu, machine) = (cpu()?.saturating_sub(spent), machine_after.saturating_sub(machine));
    Ok(Observed { before, after, elapsed, cpu, machine })
}

/// Waits until something can be read or accepted, or patience ends.
fn readable(socket: &impl AsFd) -> io::Result<bool> {
    let timeout = PollTimeout::try_from(IO_TIMEOUT).unwrap_or(PollTimeout::MAX);
    let mut sockets = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut sockets, timeout)? > 0)
}

/// Sockets stay in the namespace they were made in.
fn inside<T: Send>(namespace: Option<&Namespace>, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    match namespace {
        Some(namespace) => namespace.run(work),
        None => work(),
    }
}

/// The result of a thread that does not panic.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests;
