//! Reading and writing within one time for a whole exchange: a peer that sends a byte now and then does not prolong it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A socket whose reads and writes all end by one moment.
pub struct Deadline<'a> {
    socket: &'a TcpStream,
    until: Instant,
}

impl<'a> Deadline<'a> {
    /// The exchange on `socket` may take as long as `within`.
    pub fn new(socket: &'a TcpStream, within: Duration) -> Self {
        Self { socket, until: Instant::now() + within }
    }

    /// What is left of the time.
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for Deadline<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(into)
    }
}

impl Write for Deadline<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use super::*;

    /// A listener that says `first`, and then a byte now and then, as long as somebody is there.
    pub fn dripping(first: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(first).unwrap();
            while client.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        address
    }

    #[test]
    fn bytes_that_drip_do_not_prolong_it() {
        let socket = TcpStream::connect(dripping(b"")).unwrap();
        let start = Instant::now();
        let error = Deadline::new(&socket, Duration::from_millis(200)).read_exact(&mut [0; 1000]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
}
