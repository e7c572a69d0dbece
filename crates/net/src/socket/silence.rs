//! How long the other end of a connection may be silent.
//!
//! `watch_closely` decides how soon an idle connection is found dead: after 10 s.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Breaks the connection if sent data has not been acknowledged for `time` (TCP_USER_TIMEOUT).
pub fn limit_unacknowledged(socket: &impl AsFd, time: Duration) -> io::Result<()> {
    SockRef::from(socket).set_tcp_user_timeout(Some(time))
}

/// The silence after which the kernel probes a connection, and the silence after which it gives the connection up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveTimeouts {
    silence: Duration,
    pause: Duration,
    user_timeout: Option<Duration>,
}

/// From now on the other end is probed after 5 s of silence and then every 2 s, and an unanswered connection breaks after about
/// 10 s. Shorter times that were set before stay. Returns the times from before.
///
/// Only for an idle connection: with a user timeout, the kernel also gives up a connection whose receiver does not read.
pub fn watch_closely(socket: &impl AsFd) -> io::Result<KeepaliveTimeouts> {
    let asked = SockRef::from(socket);
    let before = KeepaliveTimeouts {
        silence: asked.tcp_keepalive_time()?,
        pause: asked.tcp_keepalive_interval()?,
        user_timeout: asked.tcp_user_timeout()?,
    };
    let [silence, pause, timeout] = [5, 2, 9].map(Duration::from_secs);
    KeepaliveTimeouts {
        silence: before.silence.min(silence),
        pause: before.pause.min(pause),
        // This replaces the number of probes, which go out at 5, 7 and 9 s.
        user_timeout: Some(before.user_timeout.map_or(timeout, |before| before.min(timeout))),
    }
    .restore(socket)?;
    Ok(before)
}

impl KeepaliveTimeouts {
    /// Sets these times for a connection.
    pub fn restore(&self, socket: &impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(socket);
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(self.silence).with_interval(self.pause))?;
        socket.set_tcp_user_timeout(self.user_timeout)
    }
}
