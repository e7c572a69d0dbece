//! A node that stops hands its listening sockets to the process that comes after it. So no client is refused or reset in between: the
//! connections in the queues stay there.
//!
//! The stopping process listens on an abstract Unix socket (`giving`). The new one (`taking`) connects, and says which addresses it wants
//! with which settings; it is told which of these it can have. Until it has all others that it needs, the stopping process accepts. Then it
//! asks for the sockets, and says when it accepts on them: from then on they are its own. If it ends before, the stopping process accepts
//! again. Addresses that it wants with other settings, or that are in the way of one that it wants, are closed for it.
//!
//! Both processes are of one user. What the new one sends are lines of text: `ADDRESS SETTINGS` for each listener, and an empty one; it gets
//! a line with the addresses that it can have. Then `ADDRESS` for each that it takes; it gets the number of sockets (4 bytes, big endian)
//! with the first sockets, and again with each of the next ones. An empty line says that it accepts.

mod giving;
mod holder;
mod taking;

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ekiden_net::privileges::peer_user;
use ekiden_net::socket::TcpOptions;
use ekiden_units::Bytes;
use sha2::{Digest, Sha256};

use crate::config::{Listener, ListenerKind};

pub use giving::{Offered, offer};
pub use holder::{Held, Holder};
pub use taking::{Inherited, Others};

/// What the names of the sockets begin with. The number of the process follows, and a random number: the names of one process number, also
/// of another container, are free for others to take.
const SOCKETS: &str = "ekiden/listeners/";
/// How long either side waits for the other's next line.
const PATIENCE: Duration = Duration::from_secs(1);
/// More than the lines of all listeners.
const TEXT_MOST: usize = 4 << 20;
/// In place of the settings of sockets that are not passed on.
const NONE: &str = "-";

/// Tells the settings of a listener's sockets apart, without the congestion control, which can be changed. `None` if they are not passed on:
/// a transparent one needs what only a start may ask for, and one whose port the kernel chooses has no address that another could name.
pub fn settings(listener: &Listener) -> Option<String> {
    let is_named = listener.address.port() != 0 && !matches!(listener.kind, ListenerKind::Transparent { .. });
    is_named.then(|| {
        let digest = Sha256::digest(written(&listener.tcp.options, listener.only_v6));
        let (first, _) = digest.split_first_chunk().expect("it is longer");
        format!("{:032x}", u128::from_be_bytes(*first))
    })
}

/// What is set of a listener's sockets. What is not set is left out: so builds agree one of which knows more settings than the other.
fn written(options: &TcpOptions, only_v6: bool) -> String {
    let TcpOptions { congestion: _, send_buffer, receive_buffer, first_window, keepalive, user_timeout, max_segment } =
        options;
    let bytes = |bytes: &Option<Bytes>| bytes.map(|bytes| u128::from(bytes.0));
    let time = |time: &Option<Duration>| time.map(|time| time.as_nanos());
    let all = [
        ("only_v6", only_v6.then_some(1)),
        ("send_buffer", bytes(send_buffer)),
        ("receive_buffer", bytes(receive_buffer)),
        ("first_window", bytes(first_window)),
        ("keepalive", time(keepalive)),
        ("user_timeout", time(user_timeout)),
        ("max_segment", max_segment.map(u128::from)),
    ];
    all.into_iter().filter_map(|(name, value)| Some(format!("{name} {}\n", value?))).collect()
}

/// Fails if the other process is of another user.
fn ensure_same_user(socket: &UnixStream) -> io::Result<()> {
    match peer_user(socket)? {
        None => Ok(()),
        Some(user) => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("it is of user {user}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_sockets_are_written_as_builds_to_come_will_write_them() {
        assert_eq!(written(&TcpOptions::default(), false), "");
        let options = TcpOptions {
            congestion: Some("reno".into()),
            send_buffer: Some(Bytes(1)),
            receive_buffer: Some(Bytes(2)),
            first_window: Some(Bytes(3)),
            keepalive: Some(Duration::from_nanos(4)),
            user_timeout: Some(Duration::from_nanos(5)),
            max_segment: Some(6),
        };
        let all =
            "only_v6 1\nsend_buffer 1\nreceive_buffer 2\nfirst_window 3\nkeepalive 4\nuser_timeout 5\nmax_segment 6\n";
        assert_eq!(written(&options, true), all);
    }
}
