//! What can be seen of a connection.

use super::Connection;
use crate::info::TcpInfo;
use crate::state::{Failure, State};

impl Connection {
    /// What it is doing.
    pub fn info(&self) -> TcpInfo {
        self.sender.info()
    }

    /// Where the connection stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it ended too early, if it did.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// The local and the remote port.
    pub fn ports(&self) -> (u16, u16) {
        (self.local, self.remote)
    }
}
