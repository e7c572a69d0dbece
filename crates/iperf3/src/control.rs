//! The control connection: what is said to the server, and what it says, each within a time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ekiden_measure_proto::message::PLAIN_SEGMENT_BYTES;
use ekiden_net::socket::{TcpOptions, outgoing};
use ekiden_net::{blocking, lookup, socks5};
use ekiden_units::{AddressError, HostPort};

use super::{Error, PORT, Settings};
use crate::error::Phase;
use crate::message::{self, COOKIE_BYTES, Results, State};
use ekiden_net::deadline::Deadline;

/// How long an answer to the question whether an iperf3 server is there may take.
const SOON: Duration = Duration::from_secs(2);

/// Whether an iperf3 server answers at `address`: after a cookie it says at once that it takes parameters, or that it is busy.
pub fn is_there(address: SocketAddr) -> bool {
    let asked = || -> io::Result<u8> {
        let socket = plainly(address, SOON)?;
        let mut socket = Deadline::new(&socket, SOON);
        socket.write_all(&message::cookie(&[0; COOKIE_BYTES - 1]))?;
        let mut byte = [0];
        socket.read_exact(&mut byte).map(|()| byte[0])
    };
    asked().is_ok_and(|byte| matches!(State::of(byte), Some(State::ParamExchange | State::AccessDenied)))
}

/// The control connection.
#[derive(Debug)]
pub struct Control {
    stream: TcpStream,
    /// Where connections go: the server, or the SOCKS5 listener before it.
    pub server: SocketAddr,
    /// What streams begin with.
    pub cookie: [u8; COOKIE_BYTES],
    patience: Duration,
}

impl Control {
    /// Connects to the first address of the server that answers, and sends a cookie.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let mut last = None;
        let (first, needs_port) = match &settings.via {
            Some(via) => (via, true),
            None => (&settings.server, false),
        };
        for address in addresses(first, needs_port)? {
            match connect(settings, address, &without_load()) {
                Ok(stream) => return Self::begin(stream, address, settings.patience),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::Name { server: first.clone(), source: io::Error::from(ErrorKind::NotFound) }))
    }

    fn begin(stream: TcpStream, server: SocketAddr, patience: Duration) -> Result<Self, Error> {
        let mut random = [0; COOKIE_BYTES - 1];
        getrandom::fill(&mut random).map_err(|error| Error::Local {
            what: "make a random number",
            source: io::Error::other(error.to_string()),
        })?;
        // A read has what is left of it.
        stream.set_write_timeout(Some(patience)).map_err(|source| Error::Local { what: "set up a socket", source })?;
        let control = Self { stream, server, cookie: message::cookie(&random), patience };
        control.send(&control.cookie, Phase::Greet)?;
        Ok(control)
    }

    /// Says a state.
    pub fn say(&self, state: State, phase: Phase) -> Result<(), Error> {
        self.send(&[state.byte()], phase)
    }

    /// Sends bytes.
    pub fn send(&self, bytes: &[u8], phase: Phase) -> Result<(), Error> {
        (&self.stream).write_all(bytes).map_err(|error| self.failed(error, phase))
    }

    /// Waits for a state, which must be `expected`.
    pub fn expect(&self, expected: State, phase: Phase) -> Result<(), Error> {
        let mut byte = [0];
        self.receive(&mut byte, phase)?;
        match self.understand(byte[0], phase)? {
            state if state == expected => Ok(()),
            state => Err(Error::Order { state: state as i8, phase }),
        }
    }

    /// Looks without waiting for what ends a measurement before its time.
    pub fn look(&self) -> Result<(), Error> {
        let phase = Phase::Carry;
        let mut byte = [0];
        match ekiden_net::socket::receive(&self.stream, &mut byte) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(Error::Gone { phase, source: Some(error) }),
            Ok(0) => Err(Error::Gone { phase, source: None }),
            Ok(_) => Err(Error::Order { state: self.understand(byte[0], phase)? as i8, phase }),
        }
    }

    /// Waits for the server's results.
    pub fn results(&self) -> Result<Results, Error> {
        let phase = Phase::SendResults;
        let mut header = [0; 4];
        self.receive(&mut header, phase)?;
        let mut json = vec![0; message::json_length(header)?];
        self.receive(&mut json, phase)?;
        message::decode_results(&json)
    }

    /// Waits until the server has ended the connection, `longest` at most.
    pub fn wait_for_end(&self, longest: Duration) {
        if self.stream.set_read_timeout(Some(longest)).is_ok() {
            // Whatever it is, there is nothing to be done about it.
            let _ = (&self.stream).read(&mut [0]);
        }
    }

    /// The state of a byte, but for those that are errors.
    fn understand(&self, byte: u8, phase: Phase) -> Result<State, Error> {
        let state = State::of(byte);
        if phase == Phase::Greet
            && !matches!(state, Some(State::ParamExchange | State::AccessDenied | State::ServerError))
        {
            return Err(Error::NotIperf3("it answers with something else"));
        }
        match state {
            None => Err(Error::Order { state: byte.cast_signed(), phase }),
            Some(State::AccessDenied) => Err(Error::Busy),
            Some(State::ServerTerminate) => Err(Error::Terminated),
            Some(State::ServerError) => {
                let mut numbers = [0; 8];
                self.receive(&mut numbers, phase)?;
                let [a, b, c, d, errno @ ..] = numbers;
                Err(Error::Server { code: i32::from_be_bytes([a, b, c, d]), errno: i32::from_be_bytes(errno) })
            }
            Some(state) => Ok(state),
        }
    }

    /// Fills `into`, within the time that the server may be silent: also if it sends a byte now and then.
    fn receive(&self, into: &mut [u8], phase: Phase) -> Result<(), Error> {
        let mut stream = Deadline::new(&self.stream, self.patience);
        stream.read_exact(into).map_err(|error| self.failed(error, phase))
    }

    fn failed(&self, error: io::Error, phase: Phase) -> Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Silent { phase, patience: self.patience },
            ErrorKind::UnexpectedEof if phase == Phase::Greet => {
                Error::NotIperf3("it ends the connection without an answer")
            }
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset if phase == Phase::TakeParameters => Error::Declined,
            ErrorKind::UnexpectedEof => Error::Gone { phase, source: None },
            _ => Error::Gone { phase, source: Some(error) },
        }
    }
}

/// The options of a connection that carries no load.
fn without_load() -> TcpOptions {
    TcpOptions { max_segment: Some(PLAIN_SEGMENT_BYTES), ..TcpOptions::default() }
}

/// A connection without a load, to see who is there.
pub fn plainly(address: SocketAddr, within: Duration) -> io::Result<TcpStream> {
    let socket = outgoing(address, &without_load()).map_err(io::Error::other)?;
    blocking::connect(socket, address, within)
}

/// A connection to the server, by way of `address`.
pub fn connect(settings: &Settings, address: SocketAddr, options: &TcpOptions) -> Result<TcpStream, Error> {
    let socket = outgoing(address, options)?;
    let stream = blocking::connect(socket, address, settings.patience);
    let of_via = |why: String| Error::Socks5(format!("{}: {why}", settings.via.as_deref().unwrap_or_default()));
    let stream = stream.map_err(|source| match settings.via {
        Some(_) => of_via(socks5::absent(&source)),
        None => Error::Connect { address, source },
    })?;
    if settings.via.is_some() {
        let HostPort { host, port } = host_and_port(&settings.server, false)?;
        socks5::ask(&stream, &host.bare(), port).map_err(of_via)?;
    }
    Ok(stream)
}

/// The addresses of `HOST` or `HOST:PORT`.
fn addresses(server: &str, needs_port: bool) -> Result<Vec<SocketAddr>, Error> {
    let place = host_and_port(server, needs_port)?;
    lookup::addresses(&place).map_err(|source| Error::Name { server: server.into(), source })
}

fn host_and_port(server: &str, needs_port: bool) -> Result<HostPort, Error> {
    let read = if needs_port { server.parse() } else { HostPort::with_default(server, PORT) };
    read.map_err(|error: AddressError| Error::Settings(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_addresses_with_or_without_a_port() {
        for (server, address) in [
            ("127.0.0.1", "127.0.0.1:5201"),
            ("127.0.0.1:99", "127.0.0.1:99"),
            ("::1", "[::1]:5201"),
            ("[::1]", "[::1]:5201"),
            ("[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(addresses(server, false).unwrap(), [address.parse().unwrap()], "{server}");
        }
        for server in ["127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x"] {
            assert!(matches!(addresses(server, false), Err(Error::Settings(_))), "{server}");
        }
        assert!(matches!(addresses("127.0.0.1", true), Err(Error::Settings(_))));
    }
}
