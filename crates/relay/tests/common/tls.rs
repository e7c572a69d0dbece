//! Certificates, and clients that speak TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use super::*;

/// A client's side of a TLS connection.
pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// What signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for this name, and its key.
    pub fn signs(&self, name: &str) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let host = name.is_ascii().then(|| name.to_owned());
        let mut params = CertificateParams::new(host.into_iter().collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        [params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem()]
    }
}

/// Who signs the proxy's certificates, who signs clients', and another.
pub fn authorities() -> &'static [Authority; 3] {
    static AUTHORITIES: OnceLock<[Authority; 3]> = OnceLock::new();
    AUTHORITIES.get_or_init(|| ["of proxies", "of clients", "another"].map(Authority::new))
}

/// Writes a file into the directory of keys, which only its owner can read.
pub fn put(name: &str, text: &str) -> PathBuf {
    let file = directory().join(name);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file
}

/// The files of the proxy's certificate and of its clients' authority, as a listener names them.
pub fn files() -> (&'static str, &'static str) {
    static FILES: OnceLock<()> = OnceLock::new();
    FILES.get_or_init(|| {
        let [certificate, key] = authorities()[0].signs("localhost");
        put("proxy.pem", &certificate);
        put("proxy.key", &key);
        put("clients.pem", &authorities()[1].pem);
    });
    ("certificate_file = \"proxy.pem\", key_file = \"proxy.key\"", "client_ca_file = \"clients.pem\"")
}

/// A client that trusts the authority of proxies.
#[derive(Default)]
pub struct Client {
    /// The versions of TLS that it speaks; the usual ones, if there are none.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// Its certificate and key.
    pub identity: Option<[String; 2]>,
    pub protocols: Vec<&'static str>,
    /// A certificate that it trusts besides, and the name that the proxy must have by it.
    pub trusts: Option<(Vec<u8>, &'static str)>,
}

impl Client {
    pub fn known(authority: usize, name: &str) -> Self {
        Self { identity: Some(authorities()[authority].signs(name)), ..Self::default() }
    }

    fn config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authorities()[0].pem.as_bytes()).unwrap()).unwrap();
        if let Some((der, _)) = &self.trusts {
            roots.add(CertificateDer::from(der.clone())).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = match self.versions.is_empty() {
            true => builder.with_safe_default_protocol_versions().unwrap(),
            false => builder.with_protocol_versions(&self.versions).unwrap(),
        };
        let builder = builder.with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some([certificate, key]) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        config.alpn_protocols = self.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }

    /// Speaks TLS on this connection; the handshake comes with the first read or write.
    pub fn on(&self, stream: TcpStream) -> Tls {
        let name = self.trusts.as_ref().map_or("localhost", |(_, name)| name);
        let name = ServerName::try_from(name).unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(self.config()), name).unwrap(), stream)
    }

    pub fn connect(&self, to: SocketAddr) -> Tls {
        self.on(connect(to))
    }

    /// What becomes of a handshake and the first byte behind it, as the client sees it.
    pub fn greeting(&self, to: SocketAddr) -> String {
        let mut tls = self.connect(to);
        let asked = tls.write_all(b"GET http://nowhere.invalid/ HTTP/1.1\r\nHost: nowhere.invalid\r\n\r\n");
        let told = asked.and_then(|()| tls.read(&mut [0]));
        told.map_or_else(|error| error.to_string(), |n| format!("{n} bytes"))
    }
}

/// Ends this side, and leaves the other open.
pub fn say_end(tls: &mut Tls) {
    tls.conn.send_close_notify();
    while tls.conn.wants_write() {
        tls.conn.write_tls(&mut tls.sock).unwrap();
    }
}

/// Reads until the stream is over: what came, and whether its end was said.
pub fn rest(tls: &mut Tls) -> (Vec<u8>, bool) {
    let (mut all, mut piece) = (Vec::new(), vec![0; 65_536]);
    loop {
        match tls.read(&mut piece) {
            Ok(0) => return (all, true),
            Ok(n) => all.extend(&piece[..n]),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof), "{error}");
                return (all, false);
            }
        }
    }
}

/// A stream to `target` by CONNECT.
pub fn tunnel(mut tls: Tls, target: SocketAddr) -> Tls {
    write!(tls, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
    let head = head(&mut tls);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    tls
}

/// A stream to `target` by SOCKS5; the code of the reply.
pub fn socks5(tls: &mut Tls, target: SocketAddr) -> u8 {
    let [high, low] = target.port().to_be_bytes();
    tls.write_all(&[5, 1, 0]).unwrap();
    let mut answers = [0; 12];
    tls.read_exact(&mut answers[..2]).unwrap();
    tls.write_all(&[5, 1, 0, 1, 127, 0, 0, 1, high, low]).unwrap();
    tls.read_exact(&mut answers[2..]).unwrap();
    answers[3]
}

pub fn head(from: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte).unwrap_or_else(|e| panic!("{e} after {:?}", String::from_utf8_lossy(&head)));
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}
