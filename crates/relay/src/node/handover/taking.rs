//! The new process.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ekiden_net::{descriptors, steer};
use ekiden_service::status_socket;
use socket2::SockRef;

use super::{NONE, PATIENCE, SOCKETS, TEXT_MOST, ensure_same_user, settings};
use crate::config::Listener;

/// What other processes have passed to this one.
#[derive(Default)]
pub struct Inherited {
    /// The sockets, by their address.
    sockets: HashMap<SocketAddr, Vec<TcpListener>>,
    /// The connections to those that have passed them.
    from: Vec<UnixStream>,
}

/// Processes that stop and may have sockets for this one.
pub struct Others {
    /// What each of them is asked.
    request: String,
    /// All that there are, by name. `None` for one that has nothing for this process.
    asked: HashMap<String, Option<Other>>,
    /// Until when an answer is waited for.
    until: Instant,
    taken: Inherited,
    /// Whether it was said that one of them is of another user.
    has_told: bool,
}

struct Other {
    socket: UnixStream,
    answer: Vec<u8>,
    /// The addresses that this process can have.
    has: Vec<SocketAddr>,
}

impl Inherited {
    pub fn remove(&mut self, address: SocketAddr) -> Option<Vec<TcpListener>> {
        self.sockets.remove(&address)
    }

    /// This process accepts on all of them. Where it ends before it has said so, those that have passed them accept again.
    pub fn confirm(self) {
        for mut other in self.from {
            // One that has ended keeps none.
            let _ = other.write_all(b"\n");
        }
    }
}

impl Others {
    /// Those that have sockets for these listeners, or have some in their way.
    pub fn of<'a>(listeners: impl Iterator<Item = &'a Listener>, until: Instant) -> Self {
        let mut request = String::new();
        for listener in listeners {
            let settings = settings(listener);
            let _ = writeln!(request, "{} {}", listener.address, settings.as_deref().unwrap_or(NONE));
        }
        request.push('\n');
        Self { request, asked: HashMap::new(), until, taken: Inherited::default(), has_told: false }
    }

    /// Asks those that have come since the last time, and hears what others have answered. Waits for none.
    pub fn look(&mut self) {
        let names = status_socket::names(SOCKETS).unwrap_or_default();
        self.asked.retain(|name, _| names.binary_search(name).is_ok());
        for name in names {
            if self.asked.contains_key(&name) {
                continue;
            }
            match Other::ask(&name, &self.request) {
                // Others ask it at the moment.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                asked => {
                    let other = asked.inspect_err(|error| self.tell(&name, error)).ok();
                    self.asked.insert(name, other);
                }
            }
        }
        // One that gives no answer, because others ask it or it has ended, is asked again.
        self.asked.retain(|_, other| other.as_mut().is_none_or(|other| other.hear().is_ok()));
    }

    /// Another user's process may be the one that is to be replaced, or any. It is said once: a stranger may have many.
    fn tell(&mut self, name: &str, error: &io::Error) {
        // Any user can make up a name; one without a number of a process is left out.
        let is_news = error.kind() == ErrorKind::PermissionDenied
            && process(name).parse::<u32>().is_ok()
            && !std::mem::replace(&mut self.has_told, true);
        match process(name) {
            process if is_news => tracing::info!("process {process} passes no listeners to this one: {error}"),
            process => tracing::debug!("process {process} passes no listeners: {error}"),
        }
    }

    /// Whether this process has sockets at this address, or can have them.
    pub fn has(&self, address: SocketAddr) -> bool {
        self.taken.sockets.contains_key(&address)
            || self.asked.values().flatten().any(|other| other.has.contains(&address))
    }

    /// Takes all sockets that this process can have.
    ///
    /// # Errors
    /// If one of the others does not pass what it has promised. What it has passed is kept, and it is asked again. `QuotaExceeded` if this
    /// process may not have as many open files; then some are left open that it cannot use.
    pub fn take(&mut self) -> io::Result<()> {
        for (name, asked) in self.asked.extract_if(|_, other| other.is_some()) {
            let (process, left) = (process(&name), self.until.saturating_duration_since(Instant::now()));
            let passed = asked.map_or(Ok(()), |asked| asked.pass(process, left.max(PATIENCE), &mut self.taken));
            passed
                .map_err(|error| io::Error::new(error.kind(), format!("process {process} has not passed {error}")))?;
        }
        Ok(())
    }

    /// What was taken.
    pub fn inherited(self) -> Inherited {
        self.taken
    }
}

/// The number of a process in the name of its socket.
fn process(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

impl Other {
    fn ask(name: &str, request: &str) -> io::Result<Self> {
        let mut socket = status_socket::connect(&format!("{SOCKETS}{name}"))?;
        ensure_same_user(&socket)?;
        let mut other = Self { socket: socket.try_clone()?, answer: Vec::new(), has: Vec::new() };
        other.wait(PATIENCE)?;
        socket.write_all(request.as_bytes())?;
        socket.set_nonblocking(true)?;
        Ok(other)
    }

    /// Reading and writing wait for so long from now on.
    fn wait(&mut self, most: Duration) -> io::Result<()> {
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(most))?;
        self.socket.set_write_timeout(Some(most))
    }

    fn hear(&mut self) -> io::Result<()> {
        let mut piece = [0; 4 << 10];
        loop {
            match self.socket.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.answer.extend(&piece[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.answer.len() > TEXT_MOST {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        let line = self.answer.strip_suffix(b"\n").map(String::from_utf8_lossy);
        if let Some(line) = line {
            self.has = line.split_whitespace().filter_map(|address| address.parse().ok()).collect();
        }
        Ok(())
    }

    /// An error says at which address, and why. The other has all of them back then, and shares what has come.
    fn pass(mut self, process: &str, most: Duration, taken: &mut Inherited) -> io::Result<()> {
        self.wait(most)?;
        for address in std::mem::take(&mut self.has) {
            if taken.sockets.contains_key(&address) {
                continue;
            }
            let sockets = self
                .take(address)
                .map_err(|error| io::Error::new(error.kind(), format!("the sockets at {address}: {error}")))?;
            // An error means that there is no filter.
            sockets.iter().for_each(|socket| drop(steer::hear_new(socket)));
            tracing::info!("{address} is taken over from process {process}");
            taken.sockets.insert(address, sockets);
        }
        // It has them back where this process ends before it accepts.
        taken.from.push(self.socket);
        Ok(())
    }

    fn take(&mut self, address: SocketAddr) -> io::Result<Vec<TcpListener>> {
        self.socket.write_all(format!("{address}\n").as_bytes())?;
        let sockets = receive(&self.socket)?;
        let is_right = |socket: &TcpListener| {
            SockRef::from(socket).is_listener().unwrap_or(false) && socket.local_addr().is_ok_and(|at| at == address)
        };
        match !sockets.is_empty() && sockets.iter().all(is_right) {
            true => Ok(sockets),
            false => Err(io::Error::other("it has none any more")),
        }
    }
}

/// All sockets of an address.
fn receive(from: &UnixStream) -> io::Result<Vec<TcpListener>> {
    let mut sockets = Vec::new();
    loop {
        let (count, passed) = descriptors::receive(from, size_of::<u32>())?;
        let count = count.try_into().map(u32::from_be_bytes).map_err(|_| ErrorKind::UnexpectedEof)? as usize;
        let is_last = passed.is_empty() || sockets.len() + passed.len() >= count;
        sockets.extend(passed.into_iter().map(TcpListener::from));
        if is_last {
            return if sockets.len() == count { Ok(sockets) } else { Err(ErrorKind::InvalidData.into()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_sockets_than_the_kernel_passes_at_once_are_received() {
        let (here, there) = UnixStream::pair().unwrap();
        let sockets = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        for piece in sockets.chunks(2) {
            descriptors::send(&here, &3_u32.to_be_bytes(), piece).unwrap();
        }
        let address = |socket: &TcpListener| socket.local_addr().unwrap();
        let received = receive(&there).unwrap();
        assert_eq!(received.iter().map(address).collect::<Vec<_>>(), sockets.each_ref().map(address));
        // None, and an end in between.
        descriptors::send(&here, &[0; 4], &[] as &[UnixStream]).unwrap();
        assert!(receive(&there).unwrap().is_empty());
        descriptors::send(&here, &3_u32.to_be_bytes(), &sockets[..2]).unwrap();
        drop(here);
        assert!(receive(&there).is_err());
    }
}
