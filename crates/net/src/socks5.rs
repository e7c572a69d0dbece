//! The client's side of SOCKS5 (RFC 1928), without a password.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use crate::deadline::Deadline;

/// How long the whole exchange may take. Nodes give up connecting sooner.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why no connection to a listener came about.
pub fn absent(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "no SOCKS5 listener is there: is the node running, and does it listen on that address?".into()
        }
        io::ErrorKind::TimedOut => "nothing answers: is the node running, and is the port open in the firewall?".into(),
        _ => format!("no connection to the listener: {error}"),
    }
}

/// Asks the listener at the other end of `stream` for a connection to `host`, a name or an address, and waits for its answer. After
/// that the socket waits as long as it takes.
pub fn ask(stream: &TcpStream, host: &str, port: u16) -> Result<(), String> {
    ask_within(stream, host, port, PATIENCE)?;
    let endless = stream.set_read_timeout(None).and_then(|()| stream.set_write_timeout(None));
    endless.map_err(|source| said(&source))
}

fn ask_within(stream: &TcpStream, host: &str, port: u16, patience: Duration) -> Result<(), String> {
    let mut stream = Deadline::new(stream, patience);
    let broken = |done: io::Result<()>| done.map_err(|source| said(&source));
    // Version 5, one method: none.
    broken(stream.write_all(&[5, 1, 0]))?;
    let mut method = [0; 2];
    broken(stream.read_exact(&mut method))?;
    match method {
        [5, 0] => {}
        [5, _] => {
            return Err("it takes nobody without a user and a password, or is no listener of kind socks5".into());
        }
        _ => return Err("it does not speak SOCKS5".into()),
    }
    broken(stream.write_all(&request(host, port)?))?;
    let mut head = [0; 4];
    broken(stream.read_exact(&mut head))?;
    let [5, code, _, kind] = head else { return Err("it does not speak SOCKS5".into()) };
    if code != 0 {
        let host = if host.contains(':') { format!("[{host}]") } else { host.into() };
        return Err(format!("the node there gets no connection to {host}:{port}: {}", meaning(code)));
    }
    let rest = match kind {
        1 => 4,
        4 => 16,
        3 => {
            let mut length = [0];
            broken(stream.read_exact(&mut length))?;
            usize::from(length[0])
        }
        _ => return Err("it answers with an address of no known kind".into()),
    };
    broken(stream.read_exact(&mut vec![0; rest + 2]))
}

/// A request for a connection.
fn request(host: &str, port: u16) -> Result<Vec<u8>, String> {
    let mut request = vec![5, 1, 0];
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(1);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(4);
            request.extend(address.octets());
        }
        Err(_) => {
            let length = u8::try_from(host.len()).ok().filter(|length| *length > 0);
            let length = length.ok_or_else(|| format!("'{host}' cannot be a host's name"))?;
            request.extend([3, length]);
            request.extend(host.bytes());
        }
    }
    request.extend(port.to_be_bytes());
    Ok(request)
}

fn said(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".into(),
        io::ErrorKind::UnexpectedEof => "it ends the connection".into(),
        _ => error.to_string(),
    }
}

/// RFC 1928, section 6.
fn meaning(code: u8) -> &'static str {
    match code {
        2 => {
            "its routes or its exit policy do not allow it; add the address to `allow` of [exit] at the node where its route ends"
        }
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused; is the server running there?",
        6 => "it took too long",
        _ => "it failed",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::deadline::tests::dripping;

    #[test]
    fn a_listener_that_drips_has_one_time_for_all() {
        let stream = TcpStream::connect(dripping(&[5, 0, 5, 0, 0, 3, 0xff])).unwrap();
        let start = Instant::now();
        let why = ask_within(&stream, "192.0.2.1", 1, Duration::from_millis(300)).unwrap_err();
        assert_eq!(why, "it does not answer");
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }

    #[test]
    fn names_and_addresses_are_asked_for_as_they_are() {
        assert_eq!(request("192.0.2.1", 5201).unwrap(), [5, 1, 0, 1, 192, 0, 2, 1, 0x14, 0x51]);
        assert_eq!(request("ab.c", 1).unwrap(), [5, 1, 0, 3, 4, b'a', b'b', b'.', b'c', 0, 1]);
        assert_eq!(request("::1", 1).unwrap().len(), 22);
        assert!(request(&"a".repeat(256), 1).is_err());
    }
}
