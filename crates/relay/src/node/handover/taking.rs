//! The new process.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;

use ekiden_net::{descriptors, steer};
use ekiden_service::status_socket;
use socket2::SockRef;

use super::{PATIENCE, SOCKETS, TEXT_MOST, ensure_same_user, settings};
use crate::config::Listener;

/// Sockets that another process has passed to this one, by their address.
pub type Inherited = HashMap<SocketAddr, Vec<TcpListener>>;

/// Processes that stop and may have sockets for this one.
pub struct Others {
    /// What each of them is asked.
    request: String,
    /// All that there are, by name. `None` for one that has nothing for this process.
    asked: HashMap<String, Option<Other>>,
    taken: Inherited,
}

struct Other {
    socket: UnixStream,
    answer: Vec<u8>,
    /// The addresses that this process can have.
    has: Vec<SocketAddr>,
}

impl Others {
    /// Those that have sockets for these listeners.
    pub fn of<'a>(listeners: impl Iterator<Item = &'a Listener>) -> Self {
        let mut request = String::new();
        for listener in listeners {
            if let Some(settings) = settings(listener) {
                let _ = writeln!(request, "{} {settings}", listener.address);
            }
        }
        request.push('\n');
        Self { request, asked: HashMap::new(), taken: Inherited::new() }
    }

    /// Asks those that have come since the last time, and hears what others have answered. Waits for none.
    pub fn look(&mut self) {
        let names = status_socket::names(SOCKETS).unwrap_or_default();
        self.asked.retain(|name, _| names.binary_search(name).is_ok());
        for name in names {
            self.asked.entry(name).or_insert_with_key(|name| {
                let asked = Other::ask(name, &self.request);
                asked.inspect_err(|error| tracing::debug!("process {name} passes no listeners: {error}")).ok()
            });
        }
        for other in self.asked.values_mut() {
            if other.as_mut().is_some_and(|other| other.hear().is_err()) {
                *other = None;
            }
        }
    }

    /// Whether this process has sockets at this address, or can have them.
    pub fn has(&self, address: SocketAddr) -> bool {
        self.taken.contains_key(&address) || self.asked.values().flatten().any(|other| other.has.contains(&address))
    }

    /// Takes all sockets that this process can have.
    ///
    /// # Errors
    /// If one of the others does not pass what it has promised. What it has passed is kept. `QuotaExceeded` if this process may not have
    /// as many open files: then some are left open that it cannot use.
    pub fn take(&mut self) -> io::Result<()> {
        for (name, other) in &mut self.asked {
            if let Some(asked) = other.take() {
                let process = name.split('/').next().unwrap_or_default();
                asked.pass(process, &mut self.taken)?;
            }
        }
        Ok(())
    }

    /// What was taken.
    pub fn inherited(self) -> Inherited {
        self.taken
    }
}

impl Other {
    fn ask(name: &str, request: &str) -> io::Result<Self> {
        let mut socket = status_socket::connect(&format!("{SOCKETS}{name}"))?;
        ensure_same_user(&socket)?;
        // It has more room than that.
        socket.write_all(request.as_bytes())?;
        Ok(Self { socket, answer: Vec::new(), has: Vec::new() })
    }

    fn hear(&mut self) -> io::Result<()> {
        let mut piece = [0; 4 << 10];
        match self.socket.read(&mut piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => self.answer.extend(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        let line = self.answer.strip_suffix(b"\n").map(String::from_utf8_lossy);
        if let Some(line) = line {
            self.has = line.split_whitespace().filter_map(|address| address.parse().ok()).collect();
        }
        if self.answer.len() > TEXT_MOST { Err(ErrorKind::InvalidData.into()) } else { Ok(()) }
    }

    fn pass(mut self, process: &str, taken: &mut Inherited) -> io::Result<()> {
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(PATIENCE))?;
        self.socket.set_write_timeout(Some(PATIENCE))?;
        for address in self.has {
            if taken.contains_key(&address) {
                continue;
            }
            self.socket.write_all(format!("{address}\n").as_bytes())?;
            let (count, passed) = descriptors::receive(&self.socket, size_of::<u32>())?;
            let sockets: Vec<TcpListener> = passed.into_iter().map(TcpListener::from).collect();
            let is_right = |socket: &TcpListener| {
                SockRef::from(socket).is_listener().unwrap_or(false)
                    && socket.local_addr().is_ok_and(|at| at == address)
            };
            let is_whole = !sockets.is_empty() && count == (sockets.len() as u32).to_be_bytes();
            if !is_whole || !sockets.iter().all(is_right) {
                return Err(io::Error::other(format!("process {process} has not passed the sockets at {address}")));
            }
            // An error means that there is no filter.
            sockets.iter().for_each(|socket| drop(steer::hear_new(socket)));
            tracing::info!("{address} is taken over from process {process}");
            taken.insert(address, sockets);
        }
        Ok(())
    }
}
