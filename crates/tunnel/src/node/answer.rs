//! The answers of a node to questions for its status.

use ekiden_net::device;
use ekiden_service::process::Process;

use super::Node;
use super::slot::PeerState;
use crate::config::Peer;
use crate::status::{PeerStatus, TunnelStatus};

impl Node {
    pub(super) fn status(&self) -> TunnelStatus {
        let peer = |((name, settings), peer): ((&String, &Peer), &PeerState)| PeerStatus {
            name: name.clone(),
            build: peer.build.borrow().clone(),
            foreign: peer.foreign.get().0,
            foreign_last: peer.foreign.get().1.map(|address| address.to_string()),
            connections: (0..)
                .zip(&peer.slots)
                .map(|(number, slot)| slot.status(number, settings.classes.name(number)))
                .collect(),
        };
        TunnelStatus {
            process: Process::since(self.began),
            device: self.config.device.name.clone(),
            name: self.config.name.clone(),
            unroutable: self.unroutable.get(),
            foreign: self.foreign(),
            unreadable: self.unreadable.get(),
            device_refused: self.device_refused.get(),
            device_dropped: device::dropped(&self.config.device.name).ok(),
            peers: self.config.peers.iter().zip(&self.peers).map(peer).collect(),
        }
    }
}
