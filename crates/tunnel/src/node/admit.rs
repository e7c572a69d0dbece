//! Taking connections: finding out which peer it is that has connected.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ekiden_keys::Fingerprint;
use ekiden_net::socket::{canonical, client_of};
use ekiden_transport::{Admission, Connection, Security, accept};
use indexmap::IndexMap;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::{GREETING, Node, late};
use crate::carry::{CarryError, receive_hello, send_hello};
use crate::frame::{FrameError, Hello};

/// How a node that connects is authenticated.
pub type Accepts = Security<IndexMap<String, Fingerprint>>;

impl Node {
    /// Takes connections for as long as the node lives.
    pub async fn accept_all(self: Rc<Self>, listener: TcpListener, security: Rc<Accepts>) {
        loop {
            match listener.accept().await {
                Ok((socket, from)) => {
                    spawn_local(Rc::clone(&self).admit(socket, canonical(from), Rc::clone(&security)));
                }
                Err(error) => {
                    self.lines.warn("accept", "", format_args!("cannot accept a connection: {error}"));
                    // Descriptors are missing, mostly. Others have them.
                    self.strangers.evict_one(Duration::ZERO);
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Finds out who has connected, and carries packets if it is a peer.
    async fn admit(self: Rc<Self>, socket: TcpStream, from: SocketAddr, security: Rc<Accepts>) {
        let stranger = self.strangers.add(from.ip(), self.most_strangers);
        let greeted = tokio::select! {
            greeted = timeout(GREETING, self.greet(socket, &security)) => greeted.map_err(|_| late()).and_then(|greeted| greeted),
            () = stranger.evicted() => Err(io::Error::other("too many others have not proven a key yet").into()),
        };
        drop(stranger);
        match greeted {
            Ok((_, theirs, connection)) if theirs.is_question() => {
                tracing::debug!("a question from {from} was answered");
                connection.end_cleanly();
            }
            Ok((peer, theirs, connection)) => self.serve(peer, theirs, connection, false).await,
            Err(CarryError::Closed) => tracing::debug!("a connection from {from} said nothing"),
            // An end that dials gives a connection up whose large segments do not pass.
            Err(CarryError::Io(error)) if error.raw_os_error() == Some(libc::ECONNRESET) => {
                tracing::debug!("a connection from {from} broke off: {error}");
            }
            Err(error) => {
                let line = format_args!("a connection from {from} was refused: {error}");
                self.lines.warn("refused", client_of(from.ip()), line);
            }
        }
    }

    async fn greet(&self, socket: TcpStream, security: &Accepts) -> Result<(usize, Hello, Connection), CarryError> {
        // A client that only checks whether something listens here sends nothing.
        if socket.peek(&mut [0]).await? == 0 {
            return Err(CarryError::Closed);
        }
        let (name, connection) = match accept(socket, security, &self.config.name).await? {
            Admission::Admitted { name, connection, .. } => (name, connection),
            Admission::Refused(refused) => {
                let why = refused.why.clone();
                refused.tell().await;
                return Err(io::Error::other(why).into());
            }
        };
        // With a shared key, the name is what the node calls itself.
        let is_plain = matches!(security, Accepts::Plain(_));
        let peer = self.config.peers.get_full(&name);
        let Some((peer, _, settings)) =
            peer.filter(|(.., peer)| is_plain == matches!(peer.security, Security::Plain(_)))
        else {
            let why = format!("it calls itself '{name}', and no peer of this name has a plain_key_file here");
            return Err(io::Error::other(why).into());
        };
        let theirs = receive_hello(&connection).await?;
        let checked = self.check(&theirs, settings.classes.connections());
        // The other side finds by the answer that the MTU differs. Other faults only this side knows, and it does not answer.
        if matches!(checked, Ok(()) | Err(FrameError::Mtu { .. })) {
            send_hello(&connection, &self.hello(peer, theirs.connection)).await?;
        }
        checked?;
        Ok((peer, theirs, connection))
    }
}
