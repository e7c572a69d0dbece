//! A node that stops hands its listening sockets to the process that comes after it. So no client is refused or reset in between: the
//! connections in the queues stay there.
//!
//! The stopping process listens on an abstract Unix socket while it closes its listeners. The new one names an address; it is sent the
//! sockets, if both are of one user. It takes them if its own file has the same settings for them.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Weak};
use std::thread::sleep;
use std::time::Duration;

use ekiden_net::descriptors;
use ekiden_net::privileges::peer_user;
use ekiden_net::steer;
use ekiden_service::status_socket;
use socket2::SockRef;
use tokio::sync::watch;

use crate::config::{Listener, ListenerKind};

/// What the names of the sockets begin with. The number of the process follows.
const SOCKETS: &str = "ekiden/listeners/";
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the stopping one looks for the other.
const LOOK: Duration = Duration::from_millis(5);
/// The longest address and settings.
const TEXT_MOST: usize = 4 << 10;

/// Whose a listening socket is that is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Of this process.
    Here,
    /// Of the process that comes after it as well, which accepts from now on.
    Passed,
    /// Of nobody soon: it is being closed.
    Closed,
}

/// The sockets of a listener that another process may have.
pub struct Offered {
    pub address: SocketAddr,
    /// What the other process must have set, too.
    pub settings: String,
    pub sockets: Vec<Weak<TcpListener>>,
    pub held: Arc<watch::Sender<Held>>,
}

/// Sockets that another process has passed to this one, by their address, with their settings.
#[derive(Debug, Default)]
pub struct Inherited(HashMap<SocketAddr, (String, Vec<TcpListener>)>);

/// The settings of a listener's sockets. `None` if they are not passed on: a transparent one needs what only a start may ask for, and one
/// whose port the kernel chooses has no address that another could name.
pub fn settings(listener: &Listener) -> Option<String> {
    let is_named = listener.address.port() != 0 && !matches!(listener.kind, ListenerKind::Transparent { .. });
    is_named.then(|| format!("{:?} {}", listener.tcp.options, listener.only_v6))
}

/// Offers these sockets, on a thread of its own, as long as one of them is open.
pub fn offer(offered: Vec<Offered>) {
    let name = format!("{SOCKETS}{}", std::process::id());
    let offering = status_socket::listen(&name).and_then(|listener| {
        let answer = move || answer_all(&listener, &offered);
        std::thread::Builder::new().name("handover".into()).spawn(answer)
    });
    if let Err(error) = offering {
        tracing::info!("this node's listeners cannot be passed to another process: {error}");
    }
}

fn answer_all(listener: &UnixListener, offered: &[Offered]) {
    let is_open = |offered: &Offered| offered.sockets.iter().any(|socket| socket.strong_count() > 0);
    while offered.iter().any(is_open) {
        let answered = listener.accept().and_then(|(asker, _)| answer(&asker, offered));
        match answered {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(LOOK),
            Err(error) => tracing::debug!("a process asks for this node's listeners: {error}"),
        }
    }
}

fn answer(asker: &UnixStream, offered: &[Offered]) -> io::Result<()> {
    if let Some(user) = peer_user(asker)? {
        return Err(denied(format!("user {user} may not have them")));
    }
    prepare(asker)?;
    let mut address = String::new();
    asker.take(TEXT_MOST as u64).read_to_string(&mut address)?;
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    for offered in offered.iter().filter(|offered| offered.address == address) {
        // They stay open here until they are passed: once they are theirs, nobody else here keeps them.
        let sockets: Vec<Arc<TcpListener>> = offered.sockets.iter().filter_map(Weak::upgrade).collect();
        let is_theirs = offered.held.send_if_modified(|held| {
            let is_here = *held == Held::Here && (1..=descriptors::MOST).contains(&sockets.len());
            *held = if is_here { Held::Passed } else { *held };
            is_here
        });
        if is_theirs {
            return descriptors::send(asker, offered.settings.as_bytes(), &sockets);
        }
    }
    Ok(())
}

/// Limits how long each side waits, on a socket that was accepted or connected.
fn prepare(socket: &UnixStream) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))
}

fn denied(why: impl Display) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why.to_string())
}

impl Inherited {
    /// Takes the sockets at this address of a process that stops. False if none has any.
    pub fn take_from_others(&mut self, address: SocketAddr) -> bool {
        let others = status_socket::names(SOCKETS).unwrap_or_default();
        for other in others {
            match ask(&other, address) {
                Ok(Some(taken)) => {
                    tracing::info!("{address} is taken over from process {other}");
                    self.0.insert(address, taken);
                    return true;
                }
                Ok(None) => {}
                Err(error) => tracing::debug!("process {other} passes no listeners: {error}"),
            }
        }
        false
    }

    /// The sockets for this listener, if they have its settings. Others are closed when `self` is dropped.
    pub fn sockets_of(&mut self, listener: &Listener) -> Option<Vec<TcpListener>> {
        let settings = settings(listener)?;
        let is_same = self.0.get(&listener.address).is_some_and(|(theirs, _)| *theirs == settings);
        is_same.then(|| self.0.remove(&listener.address)).flatten().map(|(_, sockets)| sockets)
    }

    /// Whether there are sockets at this address, of whatever settings.
    pub fn has(&self, address: SocketAddr) -> bool {
        self.0.contains_key(&address)
    }
}

fn ask(other: &str, address: SocketAddr) -> io::Result<Option<(String, Vec<TcpListener>)>> {
    let asked = status_socket::connect(&format!("{SOCKETS}{other}"))?;
    if let Some(user) = peer_user(&asked)? {
        return Err(denied(format!("it is of user {user}")));
    }
    prepare(&asked)?;
    (&asked).write_all(address.to_string().as_bytes())?;
    asked.shutdown(std::net::Shutdown::Write)?;
    let (settings, passed) = descriptors::receive(&asked, TEXT_MOST)?;
    let sockets: Vec<TcpListener> = passed.into_iter().map(TcpListener::from).collect();
    let is_right = |socket: &TcpListener| {
        SockRef::from(socket).is_listener().unwrap_or(false) && socket.local_addr().is_ok_and(|at| at == address)
    };
    if sockets.is_empty() || !sockets.iter().all(is_right) {
        return Ok(None);
    }
    // An error means that there is no filter.
    sockets.iter().for_each(|socket| drop(steer::hear_new(socket)));
    Ok(Some((String::from_utf8_lossy(&settings).into_owned(), sockets)))
}
