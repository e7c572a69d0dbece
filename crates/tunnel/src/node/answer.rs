//! Answering whoever asks for the status.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::rc::Rc;
use std::time::Duration;

use ekiden_net::device;
use ekiden_net::privileges::peer_user;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::Node;
use super::slot::PeerState;
use crate::config::Peer;
use crate::status::{PeerStatus, Status, address};

/// How long one that asks may take to read the answer. The next one waits meanwhile.
const READING: Duration = Duration::from_secs(2);

/// The socket on which the tunnel with this device is asked.
pub fn listen(device: &str) -> io::Result<StdListener> {
    let listener = StdListener::bind_addr(&address(device)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Node {
    /// Answers for as long as the node lives: one at a time, and nobody but root and this process's own user.
    pub async fn answer_all(self: Rc<Self>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((socket, _)) => self.answer(socket).await,
                Err(error) => {
                    tracing::debug!("cannot be asked for the status: {error}");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Nothing is read: whatever was sent, the answer is the same.
    async fn answer(&self, mut socket: UnixStream) {
        match peer_user(&socket) {
            Ok(None) => {}
            Ok(Some(user)) => return tracing::debug!("user {user} may not ask for the status"),
            Err(error) => return tracing::debug!("somebody unknown asks for the status: {error}"),
        }
        let Ok(text) = serde_json::to_vec(&self.status()) else { return };
        // Whoever has gone, or does not read, gets no answer.
        let _ = timeout(READING, socket.write_all(&text)).await;
    }

    fn status(&self) -> Status {
        let peer = |((name, settings), peer): ((&String, &Peer), &PeerState)| PeerStatus {
            name: name.clone(),
            connections: (0..)
                .zip(&peer.slots)
                .map(|(number, slot)| slot.status(number, settings.classes.name(number)))
                .collect(),
        };
        Status {
            device: self.config.device.name.clone(),
            name: self.config.name.clone(),
            unroutable: self.unroutable.get(),
            foreign: self.foreign.get(),
            unreadable: self.unreadable.get(),
            device_refused: self.device_refused.get(),
            device_dropped: device::dropped(&self.config.device.name).ok(),
            peers: self.config.peers.iter().zip(&self.peers).map(peer).collect(),
        }
    }
}
