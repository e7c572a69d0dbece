//! Sessions with hosts.

use std::net::IpAddr;
use std::sync::Mutex;

use ekiden_keys::{Authorities, Certificate};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::budget::{Payer, Share, paid, pays};
use crate::connection::tls::Tls;
use crate::{Connection, HostTls, accept_host};

/// A listener for hosts, and one that trusts it.
struct Hosts {
    server: HostTls,
    client: Arc<ClientConfig>,
}

fn hosts(versions: &[&'static SupportedProtocolVersion], asks: bool) -> Hosts {
    hosts_beside(0, versions, asks)
}

/// Beside the authority of the client the listener takes so many others, whose names take 1 KiB each.
fn hosts_beside(others: usize, versions: &[&'static SupportedProtocolVersion], asks: bool) -> Hosts {
    let own = Certificate::of(&identity(), "city").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let above = KeyPair::generate().unwrap();
    let mut pem = params.self_signed(&above).unwrap().pem();
    for number in 0..others {
        let mut other = params.clone();
        let unit = format!("{number:01000}");
        other.distinguished_name.push(rcgen::DnType::OrganizationalUnitName, unit);
        pem += &other.self_signed(&above).unwrap().pem();
    }
    std::fs::write(&file, pem).unwrap();
    let above = rcgen::Issuer::new(params, above);
    let signed = CertificateParams::new(vec!["alice".into()]).unwrap().signed_by(&key, &above).unwrap();
    let authorities = asks.then(|| Authorities::load(&file).unwrap());
    let server = HostTls::new(&own, authorities.as_ref(), &["http/1.1"]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(own.der().to_vec().into()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let builder = builder.with_root_certificates(roots);
    let own = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut client = match asks {
        true => builder.with_client_auth_cert(vec![signed.der().clone()], own).unwrap(),
        false => builder.with_no_client_auth(),
    };
    client.enable_secret_extraction = true;
    Hosts { server, client: Arc::new(client) }
}

impl Hosts {
    fn pair(&self, most: usize) -> Pair {
        let name = ServerName::try_from("city").unwrap();
        let client = UnbufferedClientConnection::new(self.client.clone(), name).unwrap();
        let client = Session { is_host: true, ..Session::client(client) };
        Pair { client, server: self.server.session().unwrap(), up: VecDeque::new(), down: VecDeque::new(), most }
    }
}

#[test]
fn with_a_host_each_side_may_end_and_the_other_goes_on() {
    for version in [&TLS12, &TLS13] {
        for asks in [false, true] {
            let mut pair = hosts(&[version], asks).pair(1 << 20);
            assert!(pair.shake_hands().iter().all(Option::is_none));
            assert_eq!(pair.server.peer_key().is_some(), asks);
            pair.client.close().unwrap();
            pair.client.flush(write(&mut pair.up, 1 << 20)).unwrap();
            let mut got = [0; 9];
            assert_eq!(pair.server.receive(&mut got, read(&mut pair.up, 1 << 20)).unwrap(), 0);
            pair.server.send(b"answer", write(&mut pair.down, 1 << 20)).unwrap();
            assert_eq!(pair.client.receive(&mut got, read(&mut pair.down, 1 << 20)).unwrap(), 6);
            for _ in 0..2 {
                // Said once, however often it is asked for.
                pair.server.close().unwrap();
                pair.server.flush(write(&mut pair.down, 1 << 20)).unwrap();
            }
            assert_eq!(pair.client.receive(&mut got, read(&mut pair.down, 1 << 20)).unwrap(), 0);
            assert!(pair.down.is_empty());
        }
    }
}

#[test]
fn any_number_of_authorities_is_taken() {
    for version in [&TLS12, &TLS13] {
        for others in [1, 31, 32, 63, 64, 65, 100] {
            let mut pair = hosts_beside(others, &[version], true).pair(1 << 20);
            assert!(pair.shake_hands().iter().all(Option::is_none), "{others}");
            assert!(pair.server.peer_key().is_some());
        }
    }
}

/// Which of its certificates is wanted a client sees by the names of authorities.
#[test]
fn the_names_of_authorities_are_told_while_they_are_few() {
    for (others, is_told) in [(1, true), (25, true), (40, false)] {
        let mut hosts = hosts_beside(others, &[&TLS13], true);
        let config = Arc::get_mut(&mut hosts.client).unwrap();
        let seen = Arc::new(Mutex::new(None));
        let own = config.client_auth_cert_resolver.clone();
        config.client_auth_cert_resolver = Arc::new(Hinted { own, seen: seen.clone() });
        assert!(hosts.pair(1 << 20).shake_hands().iter().all(Option::is_none));
        assert_eq!(*seen.lock().unwrap(), Some(if is_told { others + 1 } else { 0 }), "{others}");
    }
}

/// Notes how many names it was told.
#[derive(Debug)]
struct Hinted {
    own: Arc<dyn rustls::client::ResolvesClientCert>,
    seen: Arc<Mutex<Option<usize>>>,
}

impl rustls::client::ResolvesClientCert for Hinted {
    fn resolve(&self, hints: &[&[u8]], schemes: &[rustls::SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        *self.seen.lock().unwrap() = Some(hints.len());
        self.own.resolve(hints, schemes)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// This side's own end is none of the other's.
#[test]
fn behind_its_own_end_a_side_reads_on_and_tells_an_end_from_a_cut() {
    for version in [&TLS12, &TLS13] {
        let mut pair = hosts(&[version], false).pair(1 << 20);
        assert!(pair.shake_hands().iter().all(Option::is_none));
        pair.server.close().unwrap();
        pair.server.flush(write(&mut pair.down, 1 << 20)).unwrap();
        pair.client.send(b"more", write(&mut pair.up, 1 << 20)).unwrap();
        let mut line = pair.up;
        let mut end = |room: &mut [u8]| if line.is_empty() { Ok(0) } else { read(&mut line, 1 << 20)(room) };
        assert_eq!(pair.server.receive(&mut [0; 9], &mut end).unwrap(), 4);
        let got = pair.server.receive(&mut [0; 9], &mut end).map_err(|error| error.kind());
        assert_eq!(got, Err(io::ErrorKind::UnexpectedEof));
    }
}

#[test]
fn a_hosts_small_records_are_payload_in_either_version() {
    for version in [&TLS12, &TLS13] {
        let mut pair = hosts(&[version], false).pair(1 << 20);
        assert!(pair.shake_hands().iter().all(Option::is_none));
        (0..20_000).for_each(|_| drop(pair.up(b"x", 8)));
        assert_eq!(pair.server.without_payload, 0);
    }
}

/// RFC 8446 §5.4: a sender may pad each record as it likes.
#[test]
fn what_pads_a_hosts_payload_does_not_count_and_records_of_padding_alone_do() {
    for padding in [500, RECORD - 2] {
        let mut pair = hosts(&[&TLS13], false).pair(1 << 20);
        assert!(pair.shake_hands().iter().all(Option::is_none));
        let mut record = records(pair.client, 23);
        for count in 0..400 {
            let mut line = VecDeque::from(record(b"ls", padding));
            let mut got = [0; 9];
            let n = pair.server.receive(&mut got, read(&mut line, 1 << 20));
            assert_eq!(n.unwrap_or_else(|error| panic!("{error} after {count}")), 2);
        }
        assert_eq!(pair.server.without_payload, 0);
        let mut line: VecDeque<u8> = (0..400).flat_map(|_| record(b"", padding)).collect();
        let error = pair.server.receive(&mut [0; 9], read(&mut line, 1 << 20)).unwrap_err();
        // Of short ones TLS has a limit too.
        let is_told = |why: &str| error.to_string().contains(why);
        assert!(is_told("without payload") || padding == 500 && is_told("TooManyEmptyFragments"), "{error}");
    }
}

#[test]
fn who_takes_no_more_holds_nothing_also_in_the_middle_of_a_message() {
    let mut pair = hosts(&[&TLS13], false).pair(1 << 20);
    assert!(pair.shake_hands().iter().all(Option::is_none));
    // Four bytes of five: a change of keys (RFC 8446 §4.6.3).
    let mut line = VecDeque::from(records(pair.client, 22)(&[24, 0, 0, 1], 1000));
    let waits = pair.server.receive(&mut [0; 9], read(&mut line, 1 << 20)).unwrap_err();
    assert!(waits.kind() == io::ErrorKind::WouldBlock && pair.server.unread() > 1000, "{waits}");
    pair.server.close().unwrap();
    pair.server.stop_receiving();
    assert_eq!(pair.server.unread(), 0);
    pair.server.close().unwrap();
    assert!(pair.server.send(b"more", write(&mut pair.down, 1 << 20)).is_err());
    let none = pair.server.receive(&mut [0; 9], read(&mut line, 1 << 20)).map_err(|error| error.kind());
    assert_eq!(none, Err(io::ErrorKind::UnexpectedEof));
}

/// Who pads, or sends little at a time, uses up a turn by what it costs.
#[test]
fn what_is_read_counts_with_what_pads_it() {
    let mut pair = hosts(&[&TLS13], false).pair(1 << 20);
    assert!(pair.shake_hands().iter().all(Option::is_none));
    let mut record = records(pair.client, 23);
    let tls = Tls::of(pair.server);
    for padding in [0, 16_000] {
        let mut line = VecDeque::from(record(b"ls", padding));
        let all = line.len();
        assert_eq!(tls.lock().receive(&mut [0; 9], read(&mut line, 1 << 20)).unwrap(), 2);
        assert_eq!(tls.lock().take_read(), all);
        assert_eq!(tls.lock().take_read(), 0);
    }
}

#[test]
fn a_record_may_be_as_long_as_records_can_be_also_before_the_handshake_is_over() {
    let mut pair = hosts(&[&TLS13], false).pair(1 << 20);
    pair.client.begin().unwrap();
    pair.client.flush(write(&mut pair.up, 1 << 20)).unwrap();
    go_on(&mut pair.server, &mut pair.up, &mut pair.down, 1 << 20, &mut None);
    // The whole record comes and is looked at: it is none of this connection's.
    let longest = (RECORD + 1 + 16) as u16;
    pair.up = [&[23, 3, 3][..], &longest.to_be_bytes(), &noise(longest.into())].concat().into();
    let error = loop {
        match pair.server.peek(&mut [0], read(&mut pair.up, 1 << 20)) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => break error,
            _ => assert!(!pair.up.is_empty() && pair.server.unread() <= CERTIFICATE_MOST),
        }
    };
    assert!(pair.up.is_empty() && error.to_string().contains("decrypt"), "{error}");
}

#[test]
fn a_hosts_hello_is_bounded_as_a_nodes_and_its_certificate_by_more() {
    for (version, asks) in [(&TLS12, true), (&TLS13, true), (&TLS13, false)] {
        // Each message in records of one byte.
        let hosts = hosts(&[version], asks);
        let mut pair = hosts.pair(1 << 20);
        pair.client.begin().unwrap();
        pair.client.flush(write(&mut pair.up, 1 << 20)).unwrap();
        let said: Vec<u8> = pair.up.drain(..).collect();
        pair.up = cut(&said, 1);
        assert!(pair.shake_hands().iter().all(Option::is_none) && !pair.server.is_handshaking());
        // A hello that does not end.
        let hello: Vec<u8> = [1, 0, 0xfd, 0xe8].into_iter().chain(noise(65_000)).collect();
        let record =
            |piece: &[u8]| [&[22, 3, 1][..], &u16::try_from(piece.len()).unwrap().to_be_bytes(), piece].concat();
        let records: Vec<u8> = hello.chunks(16_000).flat_map(record).collect();
        for (mut line, most) in [(cut(&records, 1), 1), (records.clone().into(), 1 << 20)] {
            let (mut pair, all) = (hosts.pair(most), line.len());
            let error = loop {
                match pair.server.peek(&mut [0], read(&mut line, most)) {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => break error,
                    _ => assert!(!line.is_empty() && pair.server.unread() <= WAITING_UNPROVEN),
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            assert!(all - line.len() <= WAITING_UNPROVEN, "{} were taken", all - line.len());
            pair.server.flush(write(&mut pair.down, 1 << 20)).unwrap();
            let alert: Vec<u8> = pair.down.into();
            assert!(matches!(alert[..], [21, 3, _, 0, 2, 2, 50]), "decode_error: {alert:?}");
        }
    }
    // A certificate of TLS 1.2 that does not end, behind a hello.
    let mut pair = hosts(&[&TLS12], true).pair(1);
    pair.client.begin().unwrap();
    pair.client.flush(write(&mut pair.up, 1 << 20)).unwrap();
    let mut errors = None;
    while !pair.up.is_empty() {
        go_on(&mut pair.server, &mut pair.up, &mut pair.down, 1 << 20, &mut errors);
    }
    assert!(errors.is_none() && pair.server.is_handshaking());
    let certificate: Vec<u8> = [11, 0, 0xfd, 0xe8].into_iter().chain(noise(60_000)).collect();
    let mut line: VecDeque<u8> = certificate.iter().flat_map(|byte| [22, 3, 3, 0, 1, *byte]).collect();
    let all = line.len();
    let error = loop {
        match pair.server.peek(&mut [0], read(&mut line, 1 << 20)) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => break error,
            _ => assert!(!line.is_empty() && pair.server.unread() <= CERTIFICATE_MOST),
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    assert!((WAITING_UNPROVEN..=CERTIFICATE_MOST).contains(&(all - line.len())), "{} were taken", all - line.len());
    pair.down.clear();
    pair.server.flush(write(&mut pair.down, 1 << 20)).unwrap();
    assert!(matches!(pair.down.make_contiguous(), [21, 3, 3, 0, 2, 2, 50]), "{:?}", pair.down);
}

/// Behind the hello of TLS 1.3 the alert is encrypted.
#[test]
fn a_host_whose_certificate_is_too_long_is_told_so_in_tls_1_3() {
    let mut hosts = hosts(&[&TLS13], true);
    let config = Arc::get_mut(&mut hosts.client).unwrap();
    config.client_auth_cert_resolver = Arc::new(Long(config.client_auth_cert_resolver.clone()));
    let [client, server] = hosts.pair(1 << 20).shake_hands().map(|error| error.unwrap().to_string());
    assert!(server.contains("no message is whole"), "{server}");
    assert!(client.contains("DecodeError"), "{client}");
}

/// Shows a certificate with many others behind it.
#[derive(Debug)]
struct Long(Arc<dyn rustls::client::ResolvesClientCert>);

impl rustls::client::ResolvesClientCert for Long {
    fn resolve(&self, hints: &[&[u8]], schemes: &[rustls::SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        let one = self.0.resolve(hints, schemes)?;
        let chain = std::iter::repeat_n(one.cert[0].clone(), 60).collect();
        Some(Arc::new(rustls::sign::CertifiedKey::new(chain, one.key.clone())))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn what_a_host_holds_behind_its_handshake_counts_for_as_long_as_it_does() {
    let (hosts, payer) = (hosts(&[&TLS13], false), Arc::new(Payer::default()));
    let holds = async {
        pays(payer.clone(), Share::Quarter);
        let [own, host] = connected(&hosts).await;
        // Both sides pay here, and the certificate is what one has shown.
        let shown = payer.held();
        // What was decrypted for a look.
        host.send_all(&[7; 16_000]).await.unwrap();
        own.peek_end().await.unwrap();
        assert!(payer.held() >= 16_000, "{}", payer.held());
        own.receive_exact(&mut [0; 16_000]).await.unwrap();
        assert_eq!(payer.held(), shown);
        // The beginning of a record.
        host.socket().try_write(&[&[23, 3, 3, 0x40, 0x10][..], &[7; 16_000]].concat()).unwrap();
        while own.unread() < 16_000 {
            own.socket().readable().await.unwrap();
            let _ = own.try_receive(&mut [0]);
        }
        assert!((16_000..UNREAD_MOST).contains(&payer.held()), "{}", payer.held());
        // It is ended, and may take long to go.
        own.shut_down().unwrap();
        let discarding = own.discard_to_end();
        assert!(tokio::time::timeout(std::time::Duration::from_millis(10), discarding).await.is_err());
        assert_eq!(payer.held(), shown);
        own.end_cleanly();
    };
    paid(holds).await;
    assert_eq!(payer.held(), 0);
}

/// A connection to a host, and the host's.
async fn connected(hosts: &Hosts) -> [Connection; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let host = Connection::start_tls_of_host(host, hosts.pair(0).client);
    let (host, own) = tokio::join!(host, accept_host(socket, &hosts.server, IpAddr::from([127, 0, 0, 1])));
    [own.unwrap(), host.unwrap()]
}

async fn receive(from: &Connection) -> Result<usize, io::ErrorKind> {
    from.receive(&mut [0; 9]).await.map_err(|error| error.kind())
}

/// In TLS 1.2 whoever gets close_notify answers with its own (RFC 5246 §7.2.1). In TLS 1.3 nobody does.
#[tokio::test]
async fn an_answer_to_this_sides_end_is_no_end_in_tls_1_2() {
    for (version, end) in [(&TLS12, Err(io::ErrorKind::UnexpectedEof)), (&TLS13, Ok(0))] {
        let [own, host] = connected(&hosts(&[version], false)).await;
        host.send_all(b"half").await.unwrap();
        own.shut_down().unwrap();
        assert_eq!(receive(&host).await, Ok(0));
        host.shut_down().unwrap();
        assert_eq!(receive(&own).await, Ok(4));
        assert_eq!((receive(&own).await, receive(&own).await), (end, end), "{version:?}");
    }
}

/// Whoever has not heard of it says its own.
#[tokio::test]
async fn an_end_that_was_said_before_this_sides_arrived_is_one() {
    // It has come, and was not read.
    let [own, host] = connected(&hosts(&[&TLS12], false)).await;
    host.send_all(b"all").await.unwrap();
    host.shut_down().unwrap();
    while ekiden_net::socket::unread(own.socket()) < 45 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    own.shut_down().unwrap();
    assert_eq!([receive(&own).await, receive(&own).await, receive(&own).await], [Ok(3), Ok(0), Ok(0)]);
    // This side's has not gone out: the host reads nothing.
    let [own, host] = connected(&hosts(&[&TLS12], false)).await;
    while own.try_send(&[7; 60_000], false).is_ok() {}
    assert_eq!(own.shut_down().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    host.send_all(b"all").await.unwrap();
    host.shut_down().unwrap();
    assert_eq!([receive(&own).await, receive(&own).await], [Ok(3), Ok(0)]);
}

#[tokio::test]
async fn the_certificates_that_a_host_has_shown_count() {
    let (hosts, payer) = (hosts(&[&TLS13], true), Arc::new(Payer::default()));
    let holds = async {
        pays(payer.clone(), Share::Quarter);
        let both = connected(&hosts).await;
        let shown = |side: &Connection| side.peer_certificate().unwrap().len();
        assert_eq!(payer.held(), both.iter().map(shown).sum::<usize>());
    };
    paid(holds).await;
    assert_eq!(payer.held(), 0);
}

/// What of a handshake was to be said before is sent with the alert, or nobody could read that.
#[test]
fn a_host_that_is_refused_behind_the_hello_is_told_why() {
    let hosts = hosts(&[&TLS13], false);
    let mut config = (*hosts.client).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut pair = Hosts { client: Arc::new(config), ..hosts }.pair(1 << 20);
    let [client, server] = pair.shake_hands().map(|error| error.unwrap().to_string());
    assert!(client.contains("NoApplicationProtocol") || client.contains("other protocols"), "{client}");
    assert!(server.contains("http/1.1 is spoken here"), "{server}");
}
