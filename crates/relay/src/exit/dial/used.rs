//! Sockets that have been used and can be used again.
//!
//! A socket whose connection is over can be connected anew, with the options that it has. That takes one system call instead of
//! nine that open, set up and close one: a tenth of what a short connection costs.

use std::cell::RefCell;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use ekiden_net::socket::{self, TcpOptions};

/// The maximum that a thread ever keeps.
pub const MOST: usize = 32;

/// The maximum that a thread may keep now.
static LIMIT: AtomicUsize = AtomicUsize::new(MOST);

/// What a socket was made as, if it may be used again.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    /// The low bits of the number of the configuration (`generation` of the node) whose options it has. They are enough to
    /// distinguish any two configurations during the life of one stream.
    pub generation: u32,
    /// Its family.
    pub is_ipv4: bool,
}

/// Sockets without a connection, all of one family and with the same options.
#[derive(Default)]
struct Used {
    is_ipv4: bool,
    options: TcpOptions,
    sockets: Vec<OwnedFd>,
}

thread_local! {
    static USED: RefCell<Used> = RefCell::default();
}

/// Sets the most that a thread may keep, up to [`MOST`].
pub fn limit(sockets: usize) {
    LIMIT.store(sockets.min(MOST), Ordering::Relaxed);
}

/// A socket that can be connected to `address` and has `options`.
pub fn take(address: SocketAddr, options: &TcpOptions) -> Option<OwnedFd> {
    USED.with_borrow_mut(|used| match used.is_ipv4 == address.is_ipv4() && used.options == *options {
        true => used.sockets.pop(),
        false => None,
    })
}

/// Whether one more would be kept.
pub fn has_room() -> bool {
    USED.with_borrow(|used| used.sockets.len() < LIMIT.load(Ordering::Relaxed))
}

/// Keeps a socket whose connection is over. It was made with `options`, and is bound to no address.
pub fn keep(socket: TcpStream, is_ipv4: bool, options: &TcpOptions) {
    USED.with_borrow_mut(|used| {
        if used.is_ipv4 != is_ipv4 || used.options != *options {
            *used = Used { is_ipv4, options: options.clone(), sockets: Vec::new() };
        }
        if used.sockets.len() < LIMIT.load(Ordering::Relaxed) && socket::disconnect(&socket).is_ok() {
            used.sockets.push(socket.into());
        }
    });
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use ekiden_net::tcp_info::tcp_info;
    use ekiden_relay_proto::Target;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::{attempt, failure};
    use super::*;
    use crate::config::Tcp;

    const KEEPALIVE: Duration = Duration::from_secs(77);

    fn options() -> TcpOptions {
        TcpOptions { keepalive: Some(KEEPALIVE), ..TcpOptions::default() }
    }

    /// A connection to `listener` that is over: this side has ended first.
    async fn over(listener: &TcpListener, tcp: &Tcp) -> TcpStream {
        let mut ours = attempt(listener.local_addr().unwrap(), None, tcp).await.unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.write_all(b"first").await.unwrap();
        ours.shutdown().await.unwrap();
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"first");
        assert!(!tcp_info(&ours).unwrap().is_over, "the other end has not been said");
        drop(theirs);
        assert_eq!(ours.read(&mut [0]).await.unwrap(), 0);
        assert!(tcp_info(&ours).unwrap().is_over);
        ours.into_std().unwrap()
    }

    #[tokio::test]
    async fn a_used_socket_connects_again_as_a_new_one_does() {
        let tcp = Tcp { options: options(), ..Tcp::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let first = over(&listener, &tcp).await;
        let fd = first.as_raw_fd();
        keep(first, true, &tcp.options);
        let mut again = attempt(address, None, &tcp).await.unwrap();
        assert_eq!(again.as_raw_fd(), fd);
        let option = socket2::SockRef::from(&again);
        assert_eq!(option.tcp_keepalive_time().unwrap(), KEEPALIVE);
        assert!(option.tcp_nodelay().unwrap() && option.keepalive().unwrap());
        assert_eq!(option.linger().unwrap(), Some(Duration::ZERO));
        let (mut theirs, from) = listener.accept().unwrap();
        assert_eq!(again.local_addr().unwrap(), from);
        theirs.write_all(b"second").unwrap();
        let mut got = [0; 6];
        again.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"second");
        // It resets when dropped, as every connection that has not been ended.
        drop(again);
        assert_eq!(theirs.read(&mut got).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_used_socket_tells_why_it_does_not_connect() {
        let tcp = Tcp { options: options(), ..Tcp::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        keep(over(&listener, &tcp).await, true, &tcp.options);
        drop(listener);
        let error = attempt(address, None, &tcp).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        let target = Target::from(address);
        assert_eq!(failure(&target, &error).code, ekiden_relay_proto::FailureCode::Refused);
    }

    #[tokio::test]
    async fn sockets_of_other_options_or_another_family_are_not_taken() {
        let tcp = Tcp { options: options(), ..Tcp::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        keep(over(&listener, &tcp).await, true, &tcp.options);
        assert!(take(address, &TcpOptions::default()).is_none());
        assert!(take("[::1]:1".parse().unwrap(), &tcp.options).is_none());
        assert!(take(address, &tcp.options).is_some());
        let mut many = Vec::new();
        for _ in 0..MOST + 3 {
            many.push(over(&listener, &tcp).await);
        }
        many.into_iter().for_each(|socket| keep(socket, true, &tcp.options));
        assert!(!has_room());
        keep(over(&listener, &tcp).await, true, &TcpOptions::default());
        assert!(has_room() && take(address, &tcp.options).is_none());
    }
}
