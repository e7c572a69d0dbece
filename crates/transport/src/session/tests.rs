//! Two sessions and the bytes between them, without a network.

use std::collections::VecDeque;
use std::sync::Arc;

use indexmap::IndexMap;
use rustls::crypto::cipher::{OutboundChunks, OutboundPlainMessage};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{ConnectionTrafficSecrets, ContentType};

mod hosts;

use super::*;
use crate::tls::Prepared;
use ekiden_keys::{Fingerprint, Identity};

/// Two sessions, with a line in each direction. No read or write on a line moves more than `most` bytes.
struct Pair {
    client: Session,
    server: Session,
    up: VecDeque<u8>,
    down: VecDeque<u8>,
    most: usize,
}

fn identity() -> Identity {
    let folder = tempfile::tempdir().unwrap();
    Identity::generate(&folder.path().join("key")).unwrap()
}

fn write(line: &mut VecDeque<u8>, most: usize) -> impl FnMut(&[u8]) -> io::Result<usize> {
    move |bytes| {
        let n = bytes.len().min(most);
        line.extend(&bytes[..n]);
        Ok(n)
    }
}

fn read(line: &mut VecDeque<u8>, most: usize) -> impl FnMut(&mut [u8]) -> io::Result<usize> {
    move |room| {
        let n = line.len().min(room.len()).min(most);
        if n == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        room.iter_mut().zip(line.drain(..n)).for_each(|(slot, byte)| *slot = byte);
        Ok(n)
    }
}

/// Receives what has come, and sends the answer.
fn go_on(
    session: &mut Session,
    from: &mut VecDeque<u8>,
    to: &mut VecDeque<u8>,
    most: usize,
    error: &mut Option<io::Error>,
) {
    if error.is_none() {
        let seen = session.peek(&mut [0], read(from, most));
        *error = seen.err().filter(|error| error.kind() != io::ErrorKind::WouldBlock);
    }
    session.flush(write(to, most)).unwrap();
}

impl Pair {
    fn new(most: usize) -> Self {
        let (here, there) = (identity(), identity());
        let nodes = IndexMap::from([("here".to_owned(), here.fingerprint())]);
        let client = Prepared::default().dial(&here, Some(there.fingerprint())).unwrap();
        let server = Prepared::default().accept(&there, &nodes).unwrap();
        Self { client, server, up: VecDeque::new(), down: VecDeque::new(), most }
    }

    /// The handshake to its end, or the first error on each side.
    fn shake_hands(&mut self) -> [Option<io::Error>; 2] {
        let mut errors = [None, None];
        errors[0] = self.client.begin().err();
        for _ in 0..10_000 {
            let Self { client, server, up, down, most } = self;
            go_on(client, down, up, *most, &mut errors[0]);
            go_on(server, up, down, *most, &mut errors[1]);
            if up.is_empty() && down.is_empty() {
                break;
            }
        }
        errors
    }

    fn established(most: usize) -> Self {
        let mut pair = Self::new(most);
        assert!(pair.shake_hands().iter().all(Option::is_none));
        assert!(!pair.client.is_handshaking() && !pair.server.is_handshaking());
        assert!(pair.client.is_our_protocol() && pair.server.is_our_protocol());
        pair
    }

    /// Sends all of `data` up while it is received in pieces of `piece`.
    fn up(&mut self, data: &[u8], piece: usize) -> Vec<u8> {
        let (mut sent, mut got, mut buffer) = (0, Vec::new(), vec![0; piece]);
        while got.len() < data.len() {
            if sent < data.len() {
                sent += self.client.send(&data[sent..], write(&mut self.up, self.most)).unwrap();
            }
            loop {
                match self.server.receive(&mut buffer, read(&mut self.up, self.most)) {
                    Ok(0) => panic!("an end"),
                    Ok(n) => got.extend(&buffer[..n]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        got
    }
}

fn noise(length: usize) -> Vec<u8> {
    (0..length as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[test]
fn bytes_arrive_whatever_the_pieces_are() {
    for (most, piece) in [(1 << 20, 100_000), (1 << 20, 8), (1, 1), (7, 65_536), (1000, 3), (20_000, 70_000)] {
        let mut pair = Pair::established(most);
        let data = noise(if most < 1000 { 20_000 } else { 300_000 });
        assert!(pair.up(&data, piece) == data, "{most} {piece}");
        assert!(pair.client.is_at_rest() && pair.server.is_at_rest());
        assert_eq!(
            pair.server.decrypted.capacity() + pair.server.partial.capacity() + pair.client.encrypted.bytes.capacity(),
            0
        );
    }
}

/// What encrypts a session's next records of TLS 1.3, as it could not itself: `kind` is behind `content` there, and zeros that pad both.
fn records(session: Session, kind: u8) -> impl FnMut(&[u8], usize) -> Vec<u8> {
    let (suite, (first, secrets)) = match session.role {
        Role::Server(own) => (own.negotiated_cipher_suite(), own.dangerous_into_kernel_connection().unwrap().0.tx),
        Role::Client(own) => (own.negotiated_cipher_suite(), own.dangerous_into_kernel_connection().unwrap().0.tx),
    };
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets
    else {
        panic!("another cipher")
    };
    let (mut encrypter, mut seq) = (suite.unwrap().tls13().unwrap().aead_alg.encrypter(key, iv), first);
    move |content, padding| {
        let inner = [content, &[kind], &vec![0; padding]].concat();
        // It puts the last byte behind the others itself.
        let (last, inner) = inner.split_last().unwrap();
        let (typ, version) = (ContentType::from(*last), ProtocolVersion::TLSv1_2);
        let record =
            encrypter.encrypt(OutboundPlainMessage { typ, version, payload: OutboundChunks::Single(inner) }, seq);
        seq += 1;
        record.unwrap().encode()
    }
}

/// Records of session tickets, 900 each, that an accepting session would send next.
fn tickets(accepting: Session, count: u64) -> Vec<u8> {
    // RFC 8446 §4.6.1: lifetime, age, no nonce, a ticket of a byte, no extensions.
    let ticket = [&[4, 0, 0, 14][..], &[0; 9], &[0, 1, 7], &[0, 0]].concat().repeat(900);
    let mut record = records(accepting, 22);
    (0..count).flat_map(|_| record(&ticket, 0)).collect()
}

#[test]
fn records_without_payload_end_a_connection_and_those_with_payload_never() {
    let (here, there) = (identity(), identity());
    for (records, is_ended) in [(3, false), (5, true), (50, true)] {
        let mut config = crate::tls::server(&there, vec![here.fingerprint()]).unwrap();
        config.enable_secret_extraction = true;
        let server = Session::server(UnbufferedServerConnection::new(Arc::new(config)).unwrap());
        let client = Prepared::default().dial(&here, Some(there.fingerprint())).unwrap();
        let mut pair = Pair { client, server, up: VecDeque::new(), down: VecDeque::new(), most: 1 << 20 };
        assert!(pair.shake_hands().iter().all(Option::is_none));
        let mut line = VecDeque::from(tickets(pair.server, records));
        let error = pair.client.receive(&mut [0; 8], read(&mut line, 1 << 20)).unwrap_err();
        assert_eq!(error.kind() == io::ErrorKind::InvalidData, is_ended, "{records}: {error}");
    }
    let mut long = Pair::established(1 << 20);
    (0..20_000).for_each(|_| drop(long.up(&[7; 8], 8)));
    assert_eq!(long.server.without_payload, 0);
}

#[test]
fn each_side_knows_the_others_key() {
    let pair = Pair::established(1 << 20);
    let known = |session: &Session| session.peer_key().map(|key| Fingerprint::of(key));
    assert!(known(&pair.client).is_some() && known(&pair.server).is_some());
    assert_ne!(known(&pair.client), known(&pair.server));
}

#[test]
fn what_the_socket_does_not_take_is_pending_and_nothing_more_is_taken() {
    let mut pair = Pair::established(1 << 20);
    let full = |_: &[u8]| Err(io::Error::from(io::ErrorKind::WouldBlock));
    let data = noise(1 << 20);
    assert_eq!(pair.client.send(&data, full).unwrap(), PIECE);
    assert!(pair.client.has_pending());
    assert_eq!(pair.client.send(&data[PIECE..], full).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert!(pair.client.encrypted.filled <= ENCRYPTED_PIECE);
    pair.client.flush(write(&mut pair.up, 1000)).unwrap();
    let mut got = vec![0; PIECE];
    let n = pair.server.receive(&mut got, read(&mut pair.up, 1 << 20)).unwrap();
    assert!(n > 0 && got[..n] == data[..n]);
}

#[test]
fn peeked_bytes_are_received_again() {
    let mut pair = Pair::established(1 << 20);
    pair.client.send(b"some", write(&mut pair.up, 1 << 20)).unwrap();
    pair.client.send(b" bytes", write(&mut pair.up, 1 << 20)).unwrap();
    let mut buffer = [0; 100];
    for _ in 0..2 {
        assert_eq!(pair.server.peek(&mut buffer, read(&mut pair.up, 1 << 20)).unwrap(), 10);
        assert_eq!(&buffer[..10], b"some bytes");
    }
    assert_eq!(pair.server.receive(&mut buffer[..6], read(&mut pair.up, 1 << 20)).unwrap(), 6);
    assert_eq!(pair.server.receive(&mut buffer[6..], read(&mut pair.up, 1 << 20)).unwrap(), 4);
    assert_eq!(&buffer[..10], b"some bytes");
}

#[test]
fn keys_are_changed_on_the_way() {
    let mut pair = Pair::established(1 << 20);
    for _ in 0..3 {
        let Role::Client(connection) = &mut pair.client.role else { panic!() };
        let UnbufferedStatus { state: Ok(ConnectionState::WriteTraffic(traffic)), .. } =
            connection.process_tls_records(&mut [])
        else {
            panic!()
        };
        traffic.refresh_traffic_keys().unwrap();
        let data = noise(200_000);
        assert!(pair.up(&data, 65_536) == data);
        // The answer to a key change is sent with the next data.
        pair.server.send(b"x", write(&mut pair.down, 1 << 20)).unwrap();
        assert_eq!(pair.client.receive(&mut [0; 9], read(&mut pair.down, 1 << 20)).unwrap(), 1);
    }
}

#[test]
fn an_end_that_was_said_is_told_from_one_that_was_not() {
    for said in [true, false] {
        let mut pair = Pair::established(1 << 20);
        pair.client.send(b"x", write(&mut pair.up, 1 << 20)).unwrap();
        if said {
            pair.client.close().unwrap();
            pair.client.flush(write(&mut pair.up, 1 << 20)).unwrap();
        }
        let mut line = pair.up;
        let mut end = |room: &mut [u8]| if line.is_empty() { Ok(0) } else { read(&mut line, 1 << 20)(room) };
        assert_eq!(pair.server.receive(&mut [0; 9], &mut end).unwrap(), 1);
        for _ in 0..2 {
            let got = pair.server.receive(&mut [0; 9], &mut end).map_err(|error| error.kind());
            assert_eq!(got, if said { Ok(0) } else { Err(io::ErrorKind::UnexpectedEof) });
            let seen = pair.server.peek(&mut [0; 9], &mut end).map_err(|error| error.kind());
            assert_eq!(seen, got);
        }
        assert!(!pair.server.is_at_rest(), "it is not kept");
    }
}

#[test]
fn a_changed_bit_is_found_wherever_it_is() {
    for at in [3, 5, 100, 16_000] {
        let mut pair = Pair::established(1 << 20);
        pair.client.send(&noise(16_384), write(&mut pair.up, 1 << 20)).unwrap();
        pair.up[at] ^= 1;
        let got = pair.server.receive(&mut [0; 20_000], read(&mut pair.up, 1 << 20));
        assert!(got.is_err(), "bit in byte {at}");
        if at > 4 {
            // Data behind it is too late.
            pair.client.send(b"more", write(&mut pair.up, 1 << 20)).unwrap();
            let got = pair.server.receive(&mut [0; 9], read(&mut pair.up, 1 << 20));
            assert_eq!(got.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "after byte {at}");
        }
    }
}

#[test]
fn strangers_are_told_so_on_both_sides() {
    let (here, there, other) = (identity(), identity(), identity());
    let nodes = IndexMap::from([("here".to_owned(), here.fingerprint())]);
    let shake = |own: &Identity, pinned: Option<Fingerprint>| {
        let client = Prepared::default().dial(own, pinned).unwrap();
        let server = Prepared::default().accept(&there, &nodes).unwrap();
        let mut pair = Pair { client, server, up: VecDeque::new(), down: VecDeque::new(), most: 1 << 20 };
        pair.shake_hands().map(|error| {
            error.map(|error| {
                assert_eq!(is_own_key_refused(&error), error.to_string().contains("take this node's key"));
                (error.kind(), error.to_string())
            })
        })
    };
    let [back, _] = shake(&there, Some(other.fingerprint())).map(Option::unwrap);
    assert!(back.1.contains("the key of this node itself: the address leads to this node"), "{}", back.1);
    let there = there.fingerprint();
    assert_eq!(shake(&here, Some(there)), [None, None]);
    for (own, pinned, [client, server]) in [
        (
            &here,
            Some(other.fingerprint()),
            [
                format!("the key {there}, but the fingerprint given for it is {}", other.fingerprint()),
                "take this node's key".into(),
            ],
        ),
        (&here, None, [format!("presented {there}"), "take this node's key".into()]),
        (&other, Some(there), ["take this node's key".into(), format!("presented the key {}", other.fingerprint())]),
    ] {
        let [said_client, said_server] = shake(own, pinned).map(Option::unwrap);
        assert_eq!([said_client.0, said_server.0], [io::ErrorKind::PermissionDenied; 2]);
        assert!(said_client.1.contains(&client), "{}", said_client.1);
        assert!(said_server.1.contains(&server), "{}", said_server.1);
    }
}

#[test]
fn what_is_not_tls_is_refused_at_once() {
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[1, 0, 0, 0, 0, 0, 0, 33, 1], &[0xff; 64], &[0x16, 3, 1, 0xff, 0xff, 1, 2]]
    {
        let mut pair = Pair::new(1 << 20);
        let mut line: VecDeque<u8> = bytes.iter().copied().collect();
        let error = pair.server.peek(&mut [0], read(&mut line, 1 << 20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bytes:?}: {error}");
    }
    // What a listener without TLS answers.
    let failed = [5, 0, 0, 0, 0, 0, 0, 9, 8, b't', b'h', b'e', b' ', b'o', b't', b'h', b'e'];
    let mut pair = Pair::new(1 << 20);
    pair.client.begin().unwrap();
    let mut line = VecDeque::from(failed);
    let error = pair.client.peek(&mut [0], read(&mut line, 1 << 20)).unwrap_err();
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
}

/// What was said in TLS records, in records of `most` bytes.
fn cut(said: &[u8], most: usize) -> VecDeque<u8> {
    let (mut rest, mut cut) = (said, VecDeque::new());
    while let [kind, major, minor, high, low, after @ ..] = rest {
        let (payload, next) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        for piece in payload.chunks(most) {
            cut.extend([*kind, *major, *minor, 0, piece.len() as u8]);
            cut.extend(piece);
        }
        rest = next;
    }
    cut
}

#[test]
fn a_hello_in_small_records_is_a_hello() {
    let mut pair = Pair::new(1 << 20);
    pair.client.begin().unwrap();
    pair.client.flush(write(&mut pair.up, 1 << 20)).unwrap();
    let said: Vec<u8> = pair.up.drain(..).collect();
    assert!((100..500).contains(&said.len()), "{}", said.len());
    pair.up = cut(&said, 1);
    assert!(pair.shake_hands().iter().all(Option::is_none) && !pair.server.is_handshaking());
}

#[test]
fn a_hello_that_does_not_end_is_refused_before_it_holds_much() {
    // A ClientHello of 65,000 bytes, in records of one byte and of 16,000.
    let hello: Vec<u8> = [1, 0, 0xfd, 0xe8].into_iter().chain(noise(65_000)).collect();
    let records = hello
        .chunks(16_000)
        .flat_map(|piece| [&[22, 3, 1][..], &u16::try_from(piece.len()).unwrap().to_be_bytes(), piece].concat());
    let records: Vec<u8> = records.collect();
    for (mut line, most) in [(cut(&records, 1), 1), (cut(&records, 1), 1 << 20), (records.clone().into(), 1 << 20)] {
        let (mut pair, all, mut held) = (Pair::new(most), line.len(), 0);
        let error = loop {
            match pair.server.peek(&mut [0], read(&mut line, most)) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => break error,
                _ => assert!(!line.is_empty(), "all was taken, and {held} bytes are held"),
            }
            held = held.max(pair.server.unread());
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert!(held <= WAITING_UNPROVEN && all - line.len() <= WAITING_UNPROVEN, "{held} of {}", all - line.len());
    }
}
