//! The stopping process.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Once, Weak};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use ekiden_keys::random_secret;
use ekiden_net::socket::overlap;
use ekiden_net::{descriptors, patience};
use ekiden_service::status_socket;

use super::holder::{Held, Holder};
use super::{PATIENCE, SOCKETS, TEXT_MOST, ensure_same_user};

/// How often it looks for others.
const LOOK: Duration = Duration::from_millis(5);
/// How many others it answers at a time.
const ASKERS_MOST: usize = 8;

/// The sockets of a listener that another process may have.
pub struct Offered {
    pub address: SocketAddr,
    /// What the other process must have set, too. `None` if it cannot have them.
    pub settings: Option<String>,
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
        match listener.accept() {
            // One that is refused costs no time: strangers may be many.
            Ok((asker, _)) => begin_to_answer(asker, offered, &askers).unwrap_or_else(|error| log(&error)),
            Err(error) => {
                if error.kind() != ErrorKind::WouldBlock {
                    log(&error);
                }
                sleep(LOOK);
            }
        }
    }
}

/// Answers on a thread of its own.
fn begin_to_answer(asker: UnixStream, offered: &Arc<Vec<Offered>>, askers: &Arc<()>) -> io::Result<()> {
    ensure_same_user(&asker).inspect_err(say_once)?;
    if Arc::strong_count(askers) > ASKERS_MOST {
        return Err(io::Error::other("others ask already"));
    }
    let (offered, counted) = (offered.clone(), askers.clone());
    start(move || {
        answer(&asker, &offered).unwrap_or_else(|error| log(&error));
        drop(counted);
    })
}

/// Of another user's process, which may be the one that is to come after this one, or any.
fn say_once(error: &io::Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| tracing::info!("a process that asks for this node's listeners gets none: {error}"));
}

fn log(error: &io::Error) {
    tracing::debug!("a process asks for this node's listeners: {error}");
}

/// What another process wants.
struct Wish {
    address: SocketAddr,
    settings: String,
}

/// An asker, which is read from until a point in time.
struct Until<'a> {
    asker: &'a UnixStream,
    deadline: &'a Cell<Instant>,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.get().saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.asker.set_read_timeout(Some(left))?;
        self.asker.read(buffer)
    }
}

fn answer(mut asker: &UnixStream, offered: &[Offered]) -> io::Result<()> {
    asker.set_nonblocking(false)?;
    asker.set_write_timeout(Some(PATIENCE))?;
    let deadline = Cell::new(Instant::now() + PATIENCE);
    let until = Until { asker, deadline: &deadline };
    let mut lines = BufReader::new(until.take(TEXT_MOST as u64)).lines();
    let mut wishes = Vec::new();
    loop {
        let line = lines.next().ok_or(ErrorKind::UnexpectedEof)??;
        let Some((address, settings)) = line.split_once(' ') else { break };
        let address = address.parse().map_err(|_| ErrorKind::InvalidData)?;
        wishes.push(Wish { address, settings: settings.into() });
    }
    let mut promised: Vec<Promise<'_>> = offered.iter().filter_map(|offered| offered.promise(&wishes)).collect();
    let can_have: Vec<String> = promised.iter().map(|promise| promise.offered.address.to_string()).collect();
    asker.write_all(format!("{}\n", can_have.join(" ")).as_bytes())?;
    // What else the other needs may come as late.
    deadline.set(Instant::now() + patience::LONGEST + PATIENCE);
    let mut is_first = true;
    for line in lines {
        let line = line?;
        if std::mem::take(&mut is_first) {
            // It has all that it needs, and begins.
            deadline.set(Instant::now() + patience::LONGEST + PATIENCE);
        }
        if line.is_empty() {
            promised.iter().for_each(Promise::keep);
            return Ok(());
        }
        match promised.iter_mut().find(|promise| promise.offered.address.to_string() == line) {
            Some(promise) => promise.pass(asker)?,
            None => return Err(io::Error::other("it asks for what it cannot have")),
        }
    }
    Err(ErrorKind::UnexpectedEof.into())
}

/// Sockets that another process is about to take. Dropped, they are this process's again, unless the promise was kept.
struct Promise<'a> {
    offered: &'a Offered,
    /// Whether the other has them.
    is_lent: bool,
}

impl Promise<'_> {
    /// Sends the sockets, or none where another has them.
    fn pass(&mut self, asker: &UnixStream) -> io::Result<()> {
        self.is_lent |= self.offered.lend(asker)?;
        Ok(())
    }

    /// The other accepts on them.
    fn keep(&self) {
        if self.is_lent && self.offered.held.becomes(Held::Lent, Held::Passed) {
            tracing::info!("{} is passed on", self.offered.address);
        }
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.offered.held.forget(if self.is_lent { Held::Lent } else { Held::Asked });
    }
}

impl Offered {
    fn is_open(&self) -> bool {
        self.sockets.iter().any(|socket| socket.strong_count() > 0)
    }

    /// Whether another process may still have the sockets: for so long after `begun`, or after they came back.
    pub fn may_be_had(&self, begun: Instant, most: Duration) -> bool {
        let since = self.held.back_since().unwrap_or(begun);
        self.settings.is_some() && self.held.held() == Held::Here && self.is_open() && since.elapsed() < most
    }

    /// Whether another process is about to take the sockets, or waits until they are closed.
    pub fn is_awaited(&self) -> bool {
        match self.held.held() {
            Held::Here | Held::Passed => false,
            Held::Asked | Held::Lent => true,
            Held::Wanted => self.is_open(),
        }
    }

    /// Keeps the sockets open for one that wants them as they are. Where it wants the address with other settings, or one that they are in
    /// the way of, they are closed for it.
    fn promise(&self, wishes: &[Wish]) -> Option<Promise<'_>> {
        let address = self.address;
        match wishes.iter().find(|wish| wish.address == address) {
            Some(wish) if self.settings.as_ref() == Some(&wish.settings) => return self.keep_for_another(),
            Some(_) if self.held.becomes(Held::Here, Held::Wanted) => {
                tracing::info!("{address} is closed for another process that waits for it with other settings");
            }
            Some(_) => {}
            None => {
                let wish = wishes.iter().find(|wish| overlap(wish.address, address));
                if let Some(wish) = wish.filter(|_| self.held.becomes(Held::Here, Held::Wanted)) {
                    tracing::info!("{address} is closed for another process that waits for {}", wish.address);
                }
            }
        }
        None
    }

    fn keep_for_another(&self) -> Option<Promise<'_>> {
        (self.is_open() && self.held.promise()).then(|| Promise { offered: self, is_lent: false })
    }

    /// Sends the sockets, or none where another has them. Whether they were sent.
    fn lend(&self, asker: &UnixStream) -> io::Result<bool> {
        let mut sent = Ok(());
        // Nobody here closes them meanwhile. They are the other's once they are sent; what fails leaves them here.
        let is_lent = self.held.lend(|| {
            let sockets: Vec<Arc<TcpListener>> = self.sockets.iter().filter_map(Weak::upgrade).collect();
            sent = if sockets.is_empty() { Ok(()) } else { send(asker, &sockets) };
            !sockets.is_empty() && sent.is_ok()
        });
        sent?;
        if !is_lent {
            send(asker, &[])?;
        }
        Ok(is_lent)
    }
}

/// Sends them, or that there are none.
fn send(asker: &UnixStream, sockets: &[Arc<TcpListener>]) -> io::Result<()> {
    let count = (sockets.len() as u32).to_be_bytes();
    let mut pieces = sockets.chunks(descriptors::MOST);
    descriptors::send(asker, &count, pieces.next().unwrap_or_default())?;
    pieces.try_for_each(|piece| descriptors::send(asker, &count, piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(address: &str, settings: &str) -> Vec<Wish> {
        vec![Wish { address: address.parse().unwrap(), settings: settings.into() }]
    }

    fn offered(count: usize) -> (Offered, Vec<Arc<TcpListener>>) {
        let open = || Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let sockets: Vec<_> = std::iter::repeat_with(open).take(count).collect();
        let address = "127.0.0.1:1080".parse().unwrap();
        let weak = sockets.iter().map(Arc::downgrade).collect();
        (Offered { address, settings: Some("same".into()), sockets: weak, held: Holder::here() }, sockets)
    }

    #[test]
    fn what_one_process_has_taken_no_other_is_promised() {
        let (offered, socket) = offered(1);
        let held = offered.held.subscribe();
        let (same, other) = (wish("127.0.0.1:1080", "same"), wish("127.0.0.1:1080", "other"));
        // Two ask, the first leaves without them.
        let (first, second) = (offered.promise(&same), offered.promise(&same));
        assert!(first.is_some() && second.is_some());
        drop(first);
        assert_eq!(held.borrow().held, Held::Asked);
        drop(second);
        assert_eq!(held.borrow().held, Held::Here);
        assert!(offered.promise(&other).is_none());
        assert_eq!(held.borrow().held, Held::Wanted);
        assert!(offered.promise(&same).is_none() && offered.is_awaited());
        assert!(offered.held.becomes(Held::Wanted, Held::Passed));
        assert!(offered.promise(&same).is_none() && offered.promise(&other).is_none());
        assert_eq!(held.borrow().held, Held::Passed);
        // Once it is closed there is nothing to promise.
        assert!(offered.held.becomes(Held::Passed, Held::Here));
        drop(socket);
        assert!(offered.promise(&same).is_none() && !offered.is_awaited());
    }

    #[test]
    fn sockets_are_closed_for_an_address_that_they_are_in_the_way_of() {
        for (address, held) in [
            ("0.0.0.0:1080", Held::Wanted),
            ("[::]:1080", Held::Wanted),
            ("127.0.0.1:1081", Held::Here),
            ("127.0.0.2:1080", Held::Here),
        ] {
            let (offered, _open) = offered(1);
            assert!(offered.promise(&wish(address, "same")).is_none());
            assert_eq!(offered.held.held(), held, "{address}");
        }
        // Both are wanted.
        let (offered, _open) = offered(1);
        let mut both = wish("0.0.0.0:1080", "same");
        both.extend(wish("127.0.0.1:1080", "same"));
        assert!(offered.promise(&both).is_some());
    }

    #[test]
    fn an_asker_has_a_time_for_all_that_it_says() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let (ended, has_ended) = std::sync::mpsc::channel::<()>();
        let answering = thread::spawn(move || {
            let answered = answer(&here, &[]);
            drop(ended);
            answered
        });
        // A byte now and then: never a line.
        while has_ended.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
            let _ = there.write_all(b"1");
            sleep(PATIENCE / 10);
        }
        assert!(answering.join().unwrap().is_err());
    }

    #[test]
    fn what_was_lent_comes_back_unless_the_other_has_said_that_it_accepts() {
        let (here, there) = UnixStream::pair().unwrap();
        // More than the kernel passes at once.
        let (offered, sockets) = offered(descriptors::MOST + 1);
        let held = offered.held.subscribe();
        let same = wish("127.0.0.1:1080", "same");
        let mut promise = offered.promise(&same).unwrap();
        promise.pass(&here).unwrap();
        // Asked once more, it has none.
        promise.pass(&here).unwrap();
        assert_eq!(descriptors::receive(&there, 4).unwrap().1.len(), descriptors::MOST);
        let (count, last) = descriptors::receive(&there, 4).unwrap();
        assert_eq!((count, last.len()), ((sockets.len() as u32).to_be_bytes().to_vec(), 1));
        assert!(held.borrow().held == Held::Lent && offered.is_awaited());
        assert!(offered.promise(&same).is_none());
        drop(promise);
        assert_eq!(held.borrow().held, Held::Here);
        let mut promise = offered.promise(&same).unwrap();
        promise.pass(&here).unwrap();
        promise.keep();
        drop(promise);
        assert_eq!(held.borrow().held, Held::Passed);
    }
}
