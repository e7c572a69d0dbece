//! One TLS connection's state: plain bytes on one side, records on the other. Whoever has it moves the records.
//!
//! It holds no more than one read of records, opened or not, and one piece sealed for a socket that did not take it at
//! once; while nothing moves it holds no buffer at all.

use std::cell::{Cell, RefCell};
use std::io;

use ekiden_relay_proto::leg::VERSION;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus};
use rustls::{AlertDescription, CertificateError, CommonState, Error, InvalidMessage, PeerIncompatible};

use crate::budget;

/// The most payload of a record (RFC 8446 §5.1), and what a record has besides: header, content type, tag.
const RECORD: usize = 16 << 10;
const BESIDES: usize = 5 + 1 + 16;

/// Read at once, and sealed at once: four full records.
const PIECE: usize = 4 * RECORD;
const SEALED_PIECE: usize = 4 * (RECORD + BESIDES);

thread_local! {
    /// Where records are opened.
    static OPENING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// A buffer for the next session that seals something.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// One TLS connection's state.
pub struct Session {
    end: End,
    /// Received: the beginning of a record, or handshake messages that are not complete.
    partial: Vec<u8>,
    /// Opened, of which `taken` bytes were taken.
    opened: Vec<u8>,
    taken: usize,
    sealed: Sealed,
    /// Whether, and how, the other side's connection has ended. Neither way is an end of a stream.
    end_of_input: Option<EndOfInput>,
}

/// How the other side's connection ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndOfInput {
    /// It has said so (close_notify, RFC 8446 §6.1).
    Said,
    /// It did not, and anyone on the way can make a connection end.
    Cut,
}

/// What is to be sealed.
#[derive(Clone, Copy)]
enum Say<'a> {
    Nothing,
    Bytes(&'a [u8]),
    /// That nothing follows.
    End,
}

/// The two have no type in common.
enum End {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// Records to be sent.
#[derive(Default)]
struct Sealed {
    bytes: Vec<u8>,
    /// What of `bytes` was sent, and what of it is filled.
    sent: usize,
    filled: usize,
}

/// Where opened bytes go.
struct Sink<'a> {
    buffer: &'a mut [u8],
    filled: usize,
    /// What `buffer` has no room for.
    over: &'a mut Vec<u8>,
}

/// What a session did.
enum Step {
    /// There may be more to do.
    Again,
    /// It needs more records.
    Hungry,
    /// It can seal, and has sealed what it was given.
    Open,
    /// The other side has closed it.
    Closed,
}

impl Session {
    /// Of the side that connects.
    pub fn client(connection: UnbufferedClientConnection) -> Self {
        Self::new(End::Client(connection))
    }

    /// Of the side that accepts.
    pub fn server(connection: UnbufferedServerConnection) -> Self {
        Self::new(End::Server(connection))
    }

    fn new(end: End) -> Self {
        let (partial, opened, sealed) = (Vec::new(), Vec::new(), Sealed::default());
        Self { end, partial, opened, taken: 0, sealed, end_of_input: None }
    }

    /// Whether the handshake is not over.
    pub fn is_handshaking(&self) -> bool {
        self.common().is_handshaking()
    }

    /// The other side's public key, proven when the handshake is over.
    pub fn peer_key(&self) -> Option<&CertificateDer<'_>> {
        self.common().peer_certificates()?.first()
    }

    /// Whether both sides mean the same protocol by what is inside.
    pub fn is_our_protocol(&self) -> bool {
        self.common().alpn_protocol() == Some(&protocol())
    }

    /// Whether [`Session::receive`] has something to give without reading.
    pub fn has_more(&self) -> bool {
        self.taken < self.opened.len() || self.end_of_input.is_some()
    }

    /// Whether records wait to be sent.
    pub fn owes(&self) -> bool {
        self.sealed.sent < self.sealed.filled
    }

    /// Whether nothing is held, in either direction.
    pub fn is_at_rest(&self) -> bool {
        !self.has_more() && !self.owes() && self.partial.is_empty()
    }

    /// Bytes of memory for what was received and not taken.
    pub fn unread(&self) -> usize {
        self.partial.capacity() + self.opened.capacity()
    }

    /// Bytes of memory for what is to be sent.
    pub fn unsent(&self) -> usize {
        self.sealed.bytes.capacity()
    }

    /// Opens what `read` gives until there is something for `buffer`. 0 is the end of the connection, if it was said;
    /// otherwise that is [`io::ErrorKind::UnexpectedEof`].
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let n = self.look(buffer);
            if n > 0 || self.taken < self.opened.len() {
                self.taken += n;
                if self.taken == self.opened.len() {
                    (self.opened, self.taken) = (Vec::new(), 0);
                }
                return Ok(n);
            }
            match self.end_of_input {
                Some(EndOfInput::Said) => return Ok(0),
                Some(EndOfInput::Cut) => return Err(io::ErrorKind::UnexpectedEof.into()),
                None => {}
            }
            let n = self.take_in(buffer, &mut read)?;
            if n > 0 {
                return Ok(n);
            }
        }
    }

    /// Opens what `read` gives until `buffer` could be filled, and leaves it all to be received.
    pub fn peek(
        &mut self,
        buffer: &mut [u8],
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        while self.opened.len() - self.taken < buffer.len() && self.end_of_input.is_none() {
            match self.take_in(&mut [], &mut read) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.has_more() => break,
                Err(error) => return Err(error),
            }
        }
        match self.look(buffer) {
            0 if self.end_of_input == Some(EndOfInput::Cut) => Err(io::ErrorKind::UnexpectedEof.into()),
            n => Ok(n),
        }
    }

    /// Takes as much of `bytes` as is sealed at once, and gives it to `write`; what that does not take is owed.
    pub fn send(&mut self, bytes: &[u8], mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<usize> {
        self.flush(&mut write)?;
        let bytes = &bytes[..bytes.len().min(PIECE)];
        self.say(Say::Bytes(bytes))?;
        match self.flush(&mut write) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(bytes.len()),
        }
    }

    /// Sends what is owed.
    pub fn flush(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        while self.owes() {
            let Sealed { bytes, sent, filled } = &mut self.sealed;
            *sent += write(&bytes[*sent..*filled])?;
        }
        if self.sealed.filled > 0 {
            SPARE.set(std::mem::take(&mut self.sealed).bytes);
        }
        Ok(())
    }

    /// Begins the handshake.
    pub fn begin(&mut self) -> io::Result<()> {
        self.say(Say::Nothing)
    }

    /// Says that nothing follows; it is owed then.
    pub fn close(&mut self) -> io::Result<()> {
        if self.is_handshaking() { Ok(()) } else { self.say(Say::End) }
    }

    fn say(&mut self, what: Say<'_>) -> io::Result<()> {
        let mut partial = std::mem::take(&mut self.partial);
        let mut over = std::mem::take(&mut self.opened);
        let mut sink = Sink { buffer: &mut [], filled: 0, over: &mut over };
        let used = self.process(&mut partial, &mut sink, what);
        self.opened = over;
        partial.drain(..*used.as_ref().unwrap_or(&0));
        self.partial = partial;
        used.map(|_| ())
    }

    /// Copies what was opened and not taken.
    fn look(&self, buffer: &mut [u8]) -> usize {
        let rest = &self.opened[self.taken..];
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        n
    }

    /// Reads once and opens what came: into `buffer`, and what it has no room for behind what was opened before.
    fn take_in(
        &mut self,
        buffer: &mut [u8],
        read: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        OPENING.with_borrow_mut(|room| {
            let before = self.partial.len();
            room.resize(room.len().max(before + SEALED_PIECE), 0);
            room[..before].copy_from_slice(&self.partial);
            let piece = if budget::is_scarce() { RECORD + BESIDES } else { SEALED_PIECE };
            let n = read(&mut room[before..before + piece])?;
            if n == 0 {
                self.end_of_input = Some(EndOfInput::Cut);
                return Ok(0);
            }
            let mut over = std::mem::take(&mut self.opened);
            let mut sink = Sink { buffer, filled: 0, over: &mut over };
            let used = self.process(&mut room[..before + n], &mut sink, Say::Nothing);
            let filled = sink.filled;
            self.opened = over;
            self.partial = room[used?..before + n].to_vec();
            Ok(filled)
        })
    }

    /// Opens what is complete in `input`, answers what TLS itself wants answered, and seals `what` is to be said as soon as
    /// that is allowed. Returns how much of `input` was used.
    fn process(&mut self, input: &mut [u8], sink: &mut Sink<'_>, what: Say<'_>) -> io::Result<usize> {
        let mut used = 0;
        loop {
            let (discard, step) = self.step(&mut input[used..], sink, what);
            match step {
                Ok(Step::Again) => used += discard,
                Ok(Step::Hungry | Step::Open) => return Ok(used + discard),
                Ok(Step::Closed) => {
                    self.end_of_input = Some(EndOfInput::Said);
                    return match what {
                        Say::Bytes(_) => Err(io::ErrorKind::BrokenPipe.into()),
                        Say::Nothing | Say::End => Ok(input.len()),
                    };
                }
                Err(error) => {
                    // One step more seals the alert by which the other side is told.
                    let _ = self.step(&mut input[used..], sink, Say::Nothing);
                    // Whatever still comes is not looked at.
                    self.end_of_input = Some(EndOfInput::Cut);
                    return Err(told(&error));
                }
            }
        }
    }

    fn step(&mut self, input: &mut [u8], sink: &mut Sink<'_>, what: Say<'_>) -> (usize, Result<Step, Error>) {
        match &mut self.end {
            End::Client(end) => step(end.process_tls_records(input), sink, &mut self.sealed, what),
            End::Server(end) => step(end.process_tls_records(input), sink, &mut self.sealed, what),
        }
    }

    fn common(&self) -> &CommonState {
        match &self.end {
            End::Client(end) => end,
            End::Server(end) => end,
        }
    }
}

fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    sink: &mut Sink<'_>,
    sealed: &mut Sealed,
    what: Say<'_>,
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    sink.put(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Step::Again),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => sealed.fill(|room| match data.encode(room) {
            Err(EncodeError::InsufficientSize(size)) => Ok(Err(size)),
            Err(EncodeError::AlreadyEncoded) => Err(Error::EncryptError),
            Ok(n) => Ok(Ok(n)),
        }),
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // It is owed, in its place.
            data.done();
            Ok(Step::Again)
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let seal = |written: Result<usize, EncryptError>| match written {
                Err(EncryptError::InsufficientSize(size)) => Ok(Err(size)),
                Err(EncryptError::EncryptExhausted) => Err(Error::EncryptError),
                Ok(n) => Ok(Ok(n)),
            };
            let sealed = match what {
                Say::Nothing => Ok(Step::Open),
                Say::Bytes(bytes) => sealed.fill(|room| seal(traffic.encrypt(bytes, room))),
                Say::End => sealed.fill(|room| seal(traffic.queue_close_notify(room))),
            };
            sealed.map(|_| Step::Open)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Hungry),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::Closed),
        // Early data is switched off, and there are no other states.
        Ok(_) => Err(Error::General("early data".into())),
    };
    (discard, step)
}

impl Sink<'_> {
    fn put(&mut self, bytes: &[u8]) {
        // What was put over before comes first.
        let room = if self.over.is_empty() { self.buffer.len() - self.filled } else { 0 };
        let (now, later) = bytes.split_at(bytes.len().min(room));
        self.buffer[self.filled..self.filled + now.len()].copy_from_slice(now);
        self.filled += now.len();
        self.over.extend_from_slice(later);
    }
}

impl Sealed {
    /// Lets `write` write behind what is filled; if it asks for more room, once more with that.
    fn fill(
        &mut self,
        mut write: impl FnMut(&mut [u8]) -> Result<Result<usize, InsufficientSizeError>, Error>,
    ) -> Result<Step, Error> {
        let usual = if budget::is_scarce() { 0 } else { SEALED_PIECE };
        if self.bytes.is_empty() && usual > 0 {
            self.bytes = SPARE.take();
        }
        let mut written = write(&mut self.bytes[self.filled..])?;
        if let Err(InsufficientSizeError { required_size }) = written {
            self.bytes.resize((self.filled + required_size).max(usual), 0);
            written = write(&mut self.bytes[self.filled..])?;
        }
        self.filled += written.map_err(|_| Error::EncryptError)?;
        Ok(Step::Again)
    }
}

/// The leg protocol and its version (RFC 7301).
pub fn protocol() -> Vec<u8> {
    format!("ekiden/{VERSION}").into_bytes()
}

/// The other node's refusal of this one's key.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("it does not take this node's key")]
pub struct OwnKeyRefusedError;

/// Whether a handshake failed because the other node refused this one, and not this one the other.
pub fn is_own_key_refused(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<OwnKeyRefusedError>())
}

/// What a failure of TLS means to someone who runs a node. [`io::ErrorKind::PermissionDenied`]: one of the two keys is not
/// taken; [`io::ErrorKind::InvalidData`]: anything else.
fn told(error: &Error) -> io::Error {
    use io::ErrorKind::{InvalidData, PermissionDenied};
    let plain = "it does not speak TLS: it has a plain_key_file, or is no ekiden node";
    match error {
        Error::InvalidCertificate(CertificateError::Other(error)) => {
            io::Error::new(PermissionDenied, error.to_string())
        }
        Error::AlertReceived(AlertDescription::CertificateUnknown) => {
            io::Error::new(PermissionDenied, OwnKeyRefusedError)
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) | Error::NoApplicationProtocol => {
            io::Error::new(InvalidData, "it speaks another version of the leg protocol")
        }
        // So a listener for clients says that it speaks something else.
        Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            io::Error::new(InvalidData, "it refuses to speak TLS: its address is not that of a leg listener")
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => io::Error::new(InvalidData, plain),
        Error::PeerIncompatible(
            PeerIncompatible::IncorrectCertificateTypeExtension | PeerIncompatible::UnsolicitedCertificateTypeExtension,
        ) => io::Error::new(InvalidData, "it speaks TLS but is no ekiden node"),
        other => io::Error::new(InvalidData, format!("TLS: {other}")),
    }
}

#[cfg(test)]
mod tests;
