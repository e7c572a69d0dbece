//! The state of a TLS connection: plain bytes on one side, records on the other. It has no socket: its caller reads and writes
//! the records.
//!
//! It holds at most one read of records, decrypted or not, and one encrypted piece that the socket did not take at once. While
//! nothing moves it has no buffer at all.
//!
//! Before a key is proven, less of what has not come in whole is kept: `WAITING_UNPROVEN`.
//!
//! With a host, close_notify is the end of a direction, and the other one may go on (RFC 8446 §6.1). With a node it ends the connection.

mod encrypted;
mod explained;
mod sink;
mod step;

use std::cell::RefCell;
use std::io;

use ekiden_relay_proto::leg::VERSIONS;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::{CommonState, Error, ProtocolVersion};

use crate::budget::{self, Room};
use encrypted::Encrypted;
pub use explained::{OwnKeyRefusedError, is_own_key_refused};
use explained::{explained, explained_of_host};
use sink::Sink;
use step::{Step, ToEncrypt, step};

/// The most payload of a record (RFC 8446 §5.1), with what pads it (§5.4), and the other bytes of a record: header, content type, tag.
const RECORD: usize = 16 << 10;
const RECORD_OVERHEAD: usize = HEADER + 1 + 16;

/// Of these, the header: the last two of its bytes say how many follow.
const HEADER: usize = 5;

/// The most payload that is encrypted at a time: four full records. As records it has `ENCRYPTED_PIECE` bytes, which is also the
/// most that is read at a time.
const PIECE: usize = 4 * RECORD;
const ENCRYPTED_PIECE: usize = 4 * (RECORD + RECORD_OVERHEAD);

/// The maximum number of bytes that wait for the rest of a record, or of a message that TLS has cut into records. A node
/// that connects sends fewer than 1,000 before its key is proven, 300 of them in its longest message; a browser's longest
/// has 2,000. The dialled node may send as much as two records hold.
const WAITING_UNPROVEN: usize = 4 << 10;
const WAITING: usize = 2 * (RECORD + RECORD_OVERHEAD);
/// The same of a host that has said its hello: a whole record. It may have been asked for certificates, and it may pad what it says.
pub const CERTIFICATE_MOST: usize = RECORD + RECORD_OVERHEAD;

/// The most bytes of a host that have come after the handshake, and wait to be taken or for the rest of a record.
pub const UNREAD_MOST: usize = ENCRYPTED_PIECE + RECORD + RECORD_OVERHEAD;

/// By how many bytes records without payload may exceed the payload, after the handshake. Nodes send no session tickets, a change of keys has
/// 27 bytes and comes every 16 million records, and nothing else is without payload: what pads a record that has some does not count.
/// Without a bound the other side would keep a caller of [`Session::receive`] busy for as long as it sends.
const WITHOUT_PAYLOAD: usize = 64 << 10;

/// In place of a record's header it makes TLS end the connection with an alert.
const NO_HEADER: [u8; HEADER] = [0xff; HEADER];

thread_local! {
    /// The buffer in which records are decrypted.
    static DECRYPTION_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The state of a TLS connection.
pub struct Session {
    role: Role,
    /// Received bytes that cannot be decrypted yet: the beginning of a record, or of handshake messages. The first `whole` of them are
    /// complete records.
    partial: Vec<u8>,
    whole: usize,
    /// Decrypted bytes. The caller has taken the first `taken` of them.
    decrypted: Vec<u8>,
    taken: usize,
    encrypted: Encrypted,
    /// Whether, and how, the other side has ended the connection.
    end_of_input: Option<EndOfInput>,
    /// By how many bytes records without payload exceed the payload.
    without_payload: usize,
    /// Whether the other side is a host, and no node.
    is_host: bool,
}

/// How the other side ended the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndOfInput {
    /// With close_notify (RFC 8446 §6.1).
    CloseNotify,
    /// Without close_notify. Anyone on the path can end a TCP connection.
    Truncated,
    /// Not at all: this side takes no more.
    Unwanted,
}

/// rustls has no common type for the two sides.
enum Role {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

impl Session {
    /// A session of the side that connects.
    pub fn client(connection: UnbufferedClientConnection) -> Self {
        Self::new(Role::Client(connection))
    }

    /// A session of the side that accepts.
    pub fn server(connection: UnbufferedServerConnection) -> Self {
        Self::new(Role::Server(connection))
    }

    /// A session with a host that connects.
    pub fn host(connection: UnbufferedServerConnection) -> Self {
        Self { is_host: true, ..Self::server(connection) }
    }

    fn new(role: Role) -> Self {
        let (partial, decrypted, encrypted) = (Vec::new(), Vec::new(), Encrypted::default());
        let (whole, taken, without_payload) = (0, 0, 0);
        let (end_of_input, is_host) = (None, false);
        Self { role, partial, whole, decrypted, taken, encrypted, end_of_input, without_payload, is_host }
    }

    /// Whether the other side is a host.
    pub fn is_host(&self) -> bool {
        self.is_host
    }

    /// Whether the handshake is not over.
    pub fn is_handshaking(&self) -> bool {
        self.common().is_handshaking()
    }

    /// Whether the other side has connected, and its handshake is not over. Until then whoever accepts it counts what it may hold.
    pub fn is_unproven(&self) -> bool {
        self.is_handshaking() && matches!(self.role, Role::Server(_))
    }

    /// A node's public key, or a host's certificate. It is proven once the handshake is over.
    pub fn peer_key(&self) -> Option<&CertificateDer<'_>> {
        self.common().peer_certificates()?.first()
    }

    /// The memory of the certificates that a host has shown: they stay for as long as the session.
    pub fn shown(&self) -> usize {
        let all = self.common().peer_certificates().filter(|_| self.is_host);
        all.map_or(0, |all| all.iter().map(|certificate| certificate.len()).sum())
    }

    /// Whether both sides have agreed on the leg protocol (ALPN).
    pub fn is_our_protocol(&self) -> bool {
        self.common().alpn_protocol().is_some_and(|agreed| protocols().iter().any(|ours| ours == agreed))
    }

    /// Whether [`Session::receive`] can return something without reading.
    pub fn has_more(&self) -> bool {
        self.taken < self.decrypted.len() || self.end_of_input.is_some()
    }

    /// Whether each close_notify demands one of the other side (RFC 5246 §7.2.1), as in TLS 1.2.
    pub fn demands_answers(&self) -> bool {
        self.common().protocol_version() == Some(ProtocolVersion::TLSv1_2)
    }

    /// Whether the other side has said close_notify.
    pub fn has_ended(&self) -> bool {
        self.end_of_input == Some(EndOfInput::CloseNotify)
    }

    /// Whether encrypted records are pending: the socket has not taken them yet.
    pub fn has_pending(&self) -> bool {
        self.encrypted.sent < self.encrypted.filled
    }

    /// Whether nothing is held, in either direction.
    pub fn is_at_rest(&self) -> bool {
        !self.has_more() && !self.has_pending() && self.partial.is_empty()
    }

    /// The memory of bytes that were received and not taken.
    pub fn unread(&self) -> usize {
        self.partial.capacity() + self.decrypted.capacity()
    }

    /// The memory of bytes that are to be sent.
    pub fn unsent(&self) -> usize {
        self.encrypted.bytes.capacity()
    }

    /// Decrypts what `read` returns until there is something for `buffer`. 0 is the end of the connection, if the other side
    /// has said so. Without close_notify the end is [`io::ErrorKind::UnexpectedEof`].
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let n = self.copy_decrypted(buffer);
            if n > 0 || self.taken < self.decrypted.len() {
                self.taken += n;
                if self.taken == self.decrypted.len() {
                    (self.decrypted, self.taken) = (Vec::new(), 0);
                }
                return Ok(n);
            }
            match self.end_of_input {
                Some(EndOfInput::CloseNotify) => return Ok(0),
                Some(EndOfInput::Truncated | EndOfInput::Unwanted) => return Err(io::ErrorKind::UnexpectedEof.into()),
                None => {}
            }
            let n = self.read_and_decrypt(buffer, &mut read)?;
            if n > 0 {
                return Ok(n);
            }
        }
    }

    /// Copies what can be received into `buffer`, and leaves it to be received. Decrypts what `read` returns until that fills
    /// `buffer`.
    pub fn peek(
        &mut self,
        buffer: &mut [u8],
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        while self.decrypted.len() - self.taken < buffer.len() && self.end_of_input.is_none() {
            match self.read_and_decrypt(&mut [], &mut read) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.has_more() => break,
                Err(error) => return Err(error),
            }
        }
        match self.copy_decrypted(buffer) {
            0 if matches!(self.end_of_input, Some(EndOfInput::Truncated | EndOfInput::Unwanted)) => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            n => Ok(n),
        }
    }

    /// Encrypts at most one piece of `bytes`, gives it to `write`, and returns how many bytes it has encrypted. What `write`
    /// does not take is kept for [`Session::flush`].
    pub fn send(&mut self, bytes: &[u8], mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<usize> {
        self.flush(&mut write)?;
        let bytes = &bytes[..bytes.len().min(PIECE)];
        self.encrypt(ToEncrypt::Data(bytes))?;
        match self.flush(&mut write) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(bytes.len()),
        }
    }

    /// Sends the records that `write` has not taken yet.
    pub fn flush(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        while self.has_pending() {
            let Encrypted { bytes, sent, filled } = &mut self.encrypted;
            *sent += write(&bytes[*sent..*filled])?;
        }
        if self.encrypted.filled > 0 {
            std::mem::take(&mut self.encrypted).free();
        }
        Ok(())
    }

    /// Begins the handshake.
    pub fn begin(&mut self) -> io::Result<()> {
        self.encrypt(ToEncrypt::Nothing)
    }

    /// Encrypts close_notify, for [`Session::flush`] to send.
    pub fn close(&mut self) -> io::Result<()> {
        if self.is_handshaking() { Ok(()) } else { self.encrypt(ToEncrypt::CloseNotify) }
    }

    /// Takes no more of what the other side sends, once this side has ended, and frees what has come.
    pub fn stop_receiving(&mut self) {
        (self.partial, self.whole, self.decrypted, self.taken) = (Vec::new(), 0, Vec::new(), 0);
        self.end_of_input = Some(EndOfInput::Unwanted);
    }

    /// Encrypts `what`, and answers messages of TLS that have come.
    fn encrypt(&mut self, what: ToEncrypt<'_>) -> io::Result<()> {
        // TLS knows of parts of a message that are not there any more.
        if self.end_of_input == Some(EndOfInput::Unwanted) {
            return if let ToEncrypt::Data(_) = what { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) };
        }
        let mut partial = std::mem::take(&mut self.partial);
        let mut overflow = std::mem::take(&mut self.decrypted);
        let mut sink = Sink::new(&mut [], &mut overflow);
        let used = self.process(&mut partial, &mut sink, what);
        self.decrypted = overflow;
        let n = *used.as_ref().unwrap_or(&0);
        partial.drain(..n);
        (self.partial, self.whole) = (partial, self.whole.saturating_sub(n));
        used.map(|_| ())
    }

    /// Copies decrypted bytes that were not taken. They stay.
    fn copy_decrypted(&self, buffer: &mut [u8]) -> usize {
        let rest = &self.decrypted[self.taken..];
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        n
    }

    /// Reads once and decrypts what came into `buffer`. What `buffer` has no room for goes behind the decrypted bytes that wait
    /// already.
    fn read_and_decrypt(
        &mut self,
        buffer: &mut [u8],
        read: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let is_unproven = self.is_unproven();
        let has_said_hello = || self.common().negotiated_cipher_suite().is_some();
        let most = match is_unproven {
            true if self.is_host && has_said_hello() => CERTIFICATE_MOST,
            true => WAITING_UNPROVEN,
            false => WAITING,
        };
        DECRYPTION_BUFFER.with_borrow_mut(|room| {
            let before = self.partial.len();
            room.resize(room.len().max(before + ENCRYPTED_PIECE), 0);
            room[..before].copy_from_slice(&self.partial);
            if before >= most {
                return Err(self.too_long(room));
            }
            // Who takes less than a record from a host waits for a request, and not for a stream.
            let takes_little = self.is_host && buffer.len() < RECORD || budget::room() != Room::Plenty;
            let piece = if takes_little { RECORD + RECORD_OVERHEAD } else { ENCRYPTED_PIECE };
            let piece = if is_unproven { most - before } else { piece };
            let n = read(&mut room[before..before + piece])?;
            if n == 0 {
                self.end_of_input = Some(EndOfInput::Truncated);
                return Ok(0);
            }
            // Before TLS moves the parts of a message together.
            let whole = complete(&room[..before + n], self.whole);
            let mut overflow = std::mem::take(&mut self.decrypted);
            let mut sink = Sink::new(buffer, &mut overflow);
            let used = self.process(&mut room[..before + n], &mut sink, ToEncrypt::Nothing);
            let filled = sink.filled;
            self.decrypted = overflow;
            let used = used?;
            (self.partial, self.whole) = (room[used..before + n].to_vec(), whole.saturating_sub(used));
            Ok(filled)
        })
    }

    /// Ends a connection whose other side has sent so much that no message is whole, and tells it so by an alert. `room` begins with what
    /// it has sent.
    fn too_long(&mut self, room: &mut [u8]) -> io::Error {
        let before = self.partial.len();
        let input = &mut room[..self.whole + HEADER];
        input[self.whole..].copy_from_slice(&NO_HEADER);
        // The error is the one that was asked for.
        let _ = self.advance(input, &mut Sink::new(&mut [], &mut Vec::new()), ToEncrypt::Nothing);
        self.end_of_input = Some(EndOfInput::Truncated);
        io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {before} bytes, and no message is whole"))
    }

    /// Decrypts the complete records in `input`, answers messages of TLS itself, and encrypts `what` as soon as TLS allows
    /// that. Returns how much of `input` was used.
    fn process(&mut self, input: &mut [u8], sink: &mut Sink<'_>, what: ToEncrypt<'_>) -> io::Result<usize> {
        let used = self.advance(input, sink, what)?;
        self.without_payload = self.without_payload.saturating_sub(sink.payload);
        if self.without_payload > WITHOUT_PAYLOAD {
            self.end_of_input = Some(EndOfInput::Truncated);
            let why = "TLS: many records without payload";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(used)
    }

    fn advance(&mut self, input: &mut [u8], sink: &mut Sink<'_>, what: ToEncrypt<'_>) -> io::Result<usize> {
        let mut used = 0;
        loop {
            let (is_handshaking, payload) = (self.is_handshaking(), sink.payload);
            let (discard, step) = self.step(&mut input[used..], sink, what);
            if !is_handshaking && sink.payload == payload {
                self.without_payload += discard;
            }
            match step {
                Ok(Step::Continue) => used += discard,
                Ok(Step::NeedsRecords | Step::Established) => return Ok(used + discard),
                Ok(Step::Closed) => {
                    self.end_of_input.get_or_insert(EndOfInput::CloseNotify);
                    return match what {
                        ToEncrypt::Data(_) => Err(io::ErrorKind::BrokenPipe.into()),
                        ToEncrypt::Nothing | ToEncrypt::CloseNotify => Ok(input.len()),
                    };
                }
                Err(error) => {
                    // Further steps encrypt what was to be said before, and the alert that tells the other side.
                    while self.common().wants_write()
                        && matches!(self.step(&mut input[used..], sink, ToEncrypt::Nothing).1, Ok(Step::Continue))
                    {
                    }
                    // From now on nothing that arrives is decrypted.
                    self.end_of_input = Some(EndOfInput::Truncated);
                    // The other side cannot refuse this side's key before it has seen it.
                    return Err(match self.is_host {
                        true => explained_of_host(&error),
                        false => explained(&error, self.common().negotiated_cipher_suite().is_some()),
                    });
                }
            }
        }
    }

    fn step(&mut self, input: &mut [u8], sink: &mut Sink<'_>, what: ToEncrypt<'_>) -> (usize, Result<Step, Error>) {
        match &mut self.role {
            Role::Client(connection) => step(connection.process_tls_records(input), sink, &mut self.encrypted, what),
            Role::Server(connection) => step(connection.process_tls_records(input), sink, &mut self.encrypted, what),
        }
    }

    fn common(&self) -> &CommonState {
        match &self.role {
            Role::Client(connection) => connection,
            Role::Server(connection) => connection,
        }
    }
}

/// How many bytes of `input` are complete records, of which the first `known` are known to be.
fn complete(input: &[u8], known: usize) -> usize {
    let mut end = known;
    while let Some([.., high, low]) = input.get(end..end + HEADER) {
        let next = end + HEADER + usize::from(u16::from_be_bytes([*high, *low]));
        if next > input.len() {
            break;
        }
        end = next;
    }
    end
}

/// The name of the leg protocol with each version that this node speaks, as in ALPN (RFC 7301), the one that it prefers first.
pub fn protocols() -> Vec<Vec<u8>> {
    VERSIONS.iter().map(|version| format!("ekiden/{version}").into_bytes()).collect()
}

#[cfg(test)]
mod tests;
