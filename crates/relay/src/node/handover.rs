//! A node that stops hands its listening sockets to the process that comes after it. So no client is refused or reset in between: the
//! connections in the queues stay there.
//!
//! The stopping process listens on an abstract Unix socket while it closes its listeners. The new one names an address, and the settings
//! that its own file has for the sockets; it is sent the sockets if these are the same, and if both processes are of one user. With other
//! settings it waits until the old sockets are closed.

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
/// The longest request.
const TEXT_MOST: u64 = 4 << 10;

/// Whose a listening socket is that is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Of this process.
    Here,
    /// Of the process that comes after it as well, which accepts from now on.
    Passed,
    /// Of this process, while another waits for the address, which cannot have the sockets: its settings differ.
    Wanted,
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

/// Sockets that another process has passed to this one, by their address.
#[derive(Debug, Default)]
pub struct Inherited(HashMap<SocketAddr, Vec<TcpListener>>);

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
    let mut asked = String::new();
    asker.take(TEXT_MOST).read_to_string(&mut asked)?;
    let (address, settings) = asked.split_once(' ').unwrap_or((&asked, ""));
    for offered in offered.iter().filter(|offered| offered.address.to_string() == address) {
        if offered.settings != settings {
            offered.held.send_if_modified(|held| {
                let is_here = *held == Held::Here;
                *held = if is_here { Held::Wanted } else { *held };
                is_here
            });
            continue;
        }
        let sockets: Vec<Arc<TcpListener>> = offered.sockets.iter().filter_map(Weak::upgrade).collect();
        let mut sent = Ok(());
        // Nobody here closes them meanwhile. They are the other's once they are sent; what fails leaves them here.
        let is_theirs = offered.held.send_if_modified(|held| {
            if *held != Held::Here || !(1..=descriptors::MOST).contains(&sockets.len()) {
                return false;
            }
            sent = descriptors::send(asker, b"!", &sockets);
            *held = if sent.is_ok() { Held::Passed } else { Held::Here };
            sent.is_ok()
        });
        sent?;
        if is_theirs {
            break;
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
    /// Takes this listener's sockets of a process that stops and has the same settings for them. False if there is none.
    pub fn take_from_others(&mut self, listener: &Listener) -> bool {
        let Some(settings) = settings(listener) else { return false };
        let address = listener.address;
        for other in status_socket::names(SOCKETS).unwrap_or_default() {
            match ask(&other, address, &settings) {
                Ok(sockets) if sockets.is_empty() => {}
                Ok(sockets) => {
                    tracing::info!("{address} is taken over from process {other}");
                    self.0.insert(address, sockets);
                    return true;
                }
                Err(error) => tracing::debug!("process {other} passes no listeners: {error}"),
            }
        }
        false
    }

    /// The sockets at this address.
    pub fn take(&mut self, address: SocketAddr) -> Option<Vec<TcpListener>> {
        self.0.remove(&address)
    }
}

fn ask(other: &str, address: SocketAddr, settings: &str) -> io::Result<Vec<TcpListener>> {
    let asked = status_socket::connect(&format!("{SOCKETS}{other}"))?;
    if let Some(user) = peer_user(&asked)? {
        return Err(denied(format!("it is of user {user}")));
    }
    prepare(&asked)?;
    (&asked).write_all(format!("{address} {settings}").as_bytes())?;
    asked.shutdown(std::net::Shutdown::Write)?;
    let (_, passed) = descriptors::receive(&asked, 1)?;
    let sockets: Vec<TcpListener> = passed.into_iter().map(TcpListener::from).collect();
    let is_right = |socket: &TcpListener| {
        SockRef::from(socket).is_listener().unwrap_or(false) && socket.local_addr().is_ok_and(|at| at == address)
    };
    if !sockets.iter().all(is_right) {
        return Err(io::Error::other("it has sent other sockets"));
    }
    // An error means that there is no filter.
    sockets.iter().for_each(|socket| drop(steer::hear_new(socket)));
    Ok(sockets)
}
