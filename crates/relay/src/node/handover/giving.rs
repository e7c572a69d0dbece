//! The stopping process.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Weak};
use std::thread::{self, sleep};
use std::time::Duration;

use ekiden_keys::random_secret;
use ekiden_net::{descriptors, patience};
use ekiden_service::status_socket;
use tokio::sync::watch;

use super::{PATIENCE, SOCKETS, TEXT_MOST, ensure_same_user};

/// How often it looks for others.
const LOOK: Duration = Duration::from_millis(5);
/// How many others it answers at a time.
const ASKERS_MOST: usize = 8;

/// Whose a listening socket is that is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Of this process.
    Here,
    /// Of this process until another takes it, which is about to.
    Asked,
    /// Of this process, while another waits for the address, which cannot have the sockets: its settings differ.
    Wanted,
    /// Of this process, which is about to end.
    Last,
    /// Of the process that comes after it as well, which accepts from now on.
    Passed,
}

/// Whose the sockets of a listener are, which all of their workers hear.
#[derive(Debug)]
pub struct Holder(watch::Sender<Held>);

impl Holder {
    pub fn here() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Held::Here)))
    }

    pub fn subscribe(&self) -> watch::Receiver<Held> {
        self.0.subscribe()
    }

    /// Changes it if it is `from`. Whether it was.
    pub fn becomes(&self, from: Held, to: Held) -> bool {
        self.0.send_if_modified(|held| {
            let does = *held == from;
            *held = if does { to } else { *held };
            does
        })
    }
}

/// The sockets of a listener that another process may have.
pub struct Offered {
    pub address: SocketAddr,
    /// What the other process must have set, too.
    pub settings: String,
    pub sockets: Vec<Weak<TcpListener>>,
    pub held: Arc<Holder>,
}

/// Offers these sockets, on a thread of its own, as long as one of them is open.
pub fn offer(offered: Arc<Vec<Offered>>) {
    let offering = listen().and_then(|listener| start(move || answer_all(&listener, &offered)));
    if let Err(error) = offering {
        tracing::info!("this node's listeners cannot be passed to another process: {error}");
    }
}

fn listen() -> io::Result<UnixListener> {
    let random = random_secret()?;
    let random = u64::from_ne_bytes(random[..8].try_into().expect("it is longer"));
    status_socket::listen(&format!("{SOCKETS}{}/{random:016x}", std::process::id()))
}

fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("handover".into()).spawn(work).map(drop)
}

fn answer_all(listener: &UnixListener, offered: &Arc<Vec<Offered>>) {
    let askers = Arc::new(());
    while offered.iter().any(Offered::is_open) {
        let answered = listener.accept().and_then(|(asker, _)| {
            ensure_same_user(&asker)?;
            if Arc::strong_count(&askers) > ASKERS_MOST {
                return Err(io::Error::other("others ask already"));
            }
            let (offered, counted) = (offered.clone(), askers.clone());
            start(move || {
                answer(&asker, &offered).unwrap_or_else(|error| log(&error));
                drop(counted);
            })
        });
        match answered {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(LOOK),
            Err(error) => {
                log(&error);
                sleep(LOOK);
            }
        }
    }
}

fn log(error: &io::Error) {
    tracing::debug!("a process asks for this node's listeners: {error}");
}

fn answer(mut asker: &UnixStream, offered: &[Offered]) -> io::Result<()> {
    asker.set_nonblocking(false)?;
    asker.set_read_timeout(Some(PATIENCE))?;
    asker.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(asker.take(TEXT_MOST as u64)).lines();
    let mut promised: Vec<Promise<'_>> = Vec::new();
    loop {
        let line = lines.next().ok_or(ErrorKind::UnexpectedEof)??;
        let Some((address, settings)) = line.split_once(' ') else { break };
        for offered in offered.iter().filter(|offered| offered.address.to_string() == address) {
            promised.extend(offered.promise(settings));
        }
    }
    let can_have: Vec<String> = promised.iter().map(|promise| promise.0.address.to_string()).collect();
    asker.write_all(format!("{}\n", can_have.join(" ")).as_bytes())?;
    // What else the other needs may come as late.
    asker.set_read_timeout(Some(patience::LONGEST + PATIENCE))?;
    for line in lines {
        let address = line?;
        match promised.iter().find(|promise| promise.0.address.to_string() == address) {
            Some(promise) => promise.0.pass(asker)?,
            None => return Err(io::Error::other("it asks for what it cannot have")),
        }
    }
    Ok(())
}

/// Sockets that another process is about to take.
struct Promise<'a>(&'a Offered);

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.0.held.becomes(Held::Asked, Held::Here);
    }
}

impl Offered {
    fn is_open(&self) -> bool {
        self.sockets.iter().any(|socket| socket.strong_count() > 0)
    }

    /// Whether another process is about to take the sockets, or they are about to be closed.
    pub fn is_awaited(&self) -> bool {
        match *self.held.0.borrow() {
            Held::Here | Held::Passed => false,
            Held::Asked => true,
            Held::Wanted | Held::Last => self.is_open(),
        }
    }

    /// Has the sockets closed now, unless another process asks for them.
    pub fn close(&self) {
        self.held.becomes(Held::Here, Held::Last);
    }

    /// Keeps the sockets open for one that has these settings. With others they are closed for it.
    fn promise(&self, settings: &str) -> Option<Promise<'_>> {
        if settings != self.settings || self.sockets.len() > descriptors::MOST {
            if self.held.becomes(Held::Here, Held::Wanted) {
                let address = self.address;
                tracing::info!("{address} is closed for another process that waits for it with other settings");
            }
            return None;
        }
        if self.is_open() {
            self.held.becomes(Held::Here, Held::Asked);
        }
        let is_asked = *self.held.0.borrow() == Held::Asked;
        is_asked.then(|| Promise(self))
    }

    /// Sends the sockets, or none where another has them.
    fn pass(&self, asker: &UnixStream) -> io::Result<()> {
        let sockets: Vec<Arc<TcpListener>> = self.sockets.iter().filter_map(Weak::upgrade).collect();
        let count = (sockets.len() as u32).to_be_bytes();
        let mut sent = Ok(());
        // Nobody here closes them meanwhile. They are the other's once they are sent; what fails leaves them here.
        let is_passed = self.held.0.send_if_modified(|held| {
            if !matches!(held, Held::Here | Held::Asked) || sockets.is_empty() {
                return false;
            }
            sent = descriptors::send(asker, &count, &sockets);
            *held = if sent.is_ok() { Held::Passed } else { *held };
            sent.is_ok()
        });
        sent?;
        if is_passed { Ok(()) } else { descriptors::send(asker, &[0; 4], &[] as &[TcpListener]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_has_taken_no_other_is_promised() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1080));
        let socket = Arc::new(TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap());
        let sockets = vec![Arc::downgrade(&socket)];
        let offered = Offered { address, settings: "same".into(), sockets, held: Holder::here() };
        let held = offered.held.subscribe();
        // Two ask, the first leaves without them.
        let (first, second) = (offered.promise("same"), offered.promise("same"));
        assert!(first.is_some() && second.is_some());
        drop(first);
        assert_eq!(*held.borrow(), Held::Here);
        drop(second);
        assert!(offered.promise("other").is_none());
        assert_eq!(*held.borrow(), Held::Wanted);
        assert!(offered.promise("same").is_none() && offered.is_awaited());
        offered.held.0.send_replace(Held::Passed);
        assert!(offered.promise("same").is_none() && offered.promise("other").is_none());
        assert_eq!(*held.borrow(), Held::Passed);
        // Nor is one that is closed because the process ends.
        offered.held.0.send_replace(Held::Here);
        offered.close();
        assert!(offered.promise("same").is_none() && offered.promise("other").is_none() && offered.is_awaited());
        assert_eq!(*held.borrow(), Held::Last);
        // Once it is closed there is nothing to promise.
        offered.held.0.send_replace(Held::Here);
        drop(socket);
        assert!(offered.promise("same").is_none() && !offered.is_awaited());
    }
}
