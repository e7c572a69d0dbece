//! Nodes, hosts and clients on loopback.

pub mod log;
pub mod origin;
pub mod overlay;
pub mod peer;
pub mod process;
pub mod sick;
pub mod tls;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ekiden_keys::{Fingerprint, Identity};
use ekiden_relay::{Config, Pattern, Relay, hash_password};
use socket2::{Domain, SockRef, Socket, Type};

/// Nothing here takes this long; only a hang does.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How nodes know each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Tls,
    Plain,
}

/// Ways of nodes and how many there are.
pub const CHAINS: [(Mode, usize); 5] =
    [(Mode::Plain, 0), (Mode::Plain, 1), (Mode::Tls, 1), (Mode::Plain, 3), (Mode::Tls, 3)];

impl Mode {
    /// What a node with this key says at the top.
    pub fn node(self, key: &str) -> String {
        match self {
            Self::Tls => format!("key_file = \"{key}.pem\"\n"),
            Self::Plain => String::new(),
        }
    }

    /// What a leg listener says that admits nodes with this key.
    pub fn listener(self, key: &str) -> String {
        match self {
            Self::Tls => format!("nodes = {{ any = \"{}\" }}\n", fingerprint(key)),
            Self::Plain => format!("plain_key_file = \"{key}\"\n"),
        }
    }

    /// What a peer's entry says that expects this key.
    pub fn peer(self, key: &str) -> String {
        match self {
            Self::Tls => format!("fingerprint = \"{}\"\n", fingerprint(key)),
            Self::Plain => format!("plain_key_file = \"{key}\"\n"),
        }
    }
}

/// A directory with two different keys, `key` and `other-key`, for all tests of the process: shared ones under these names, nodes'
/// own with `.pem`.
pub fn directory() -> PathBuf {
    static DIRECTORY: OnceLock<tempfile::TempDir> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        for (name, digit) in [("key", "a"), ("other-key", "b")] {
            let file = directory.path().join(name);
            std::fs::write(&file, digit.repeat(64)).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
            Identity::generate(&directory.path().join(format!("{name}.pem"))).unwrap();
        }
        directory
    });
    directory.path().into()
}

/// Of a node's own key.
pub fn fingerprint(key: &str) -> Fingerprint {
    Identity::load(&directory().join(format!("{key}.pem"))).unwrap().fingerprint()
}

/// The hash of the password "secret".
pub fn hash_of_secret() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| hash_password(b"secret").unwrap())
}

/// Hosts are on loopback, which a node connects to unless it is told what else it may.
pub fn config(text: &str) -> Config {
    let mut config = Config::parse(text, &directory().join("node.toml")).unwrap_or_else(|error| panic!("{error}"));
    if config.exit.allow.is_empty() {
        config.exit.allow = ["127.0.0.0/8", "::1"].map(|net| Pattern::parse(net).unwrap()).into();
    }
    config
}

pub fn node(text: &str) -> Relay {
    Relay::start(config(text)).unwrap()
}

/// A node with nothing but a leg listener, and perhaps a peer.
pub fn leg_node(mode: Mode, name: &str, peer: Option<(&str, SocketAddr)>, extra: &str) -> Relay {
    let known = mode.peer("key");
    let peer = peer.map(|(peer, address)| format!("[peer.{peer}]\naddress = \"{address}\"\n{known}"));
    let (own, nodes, peer) = (mode.node("key"), mode.listener("key"), peer.unwrap_or_default());
    node(&format!(
        "name = \"{name}\"\n{own}threads = 2\n[listen.leg]\nkind = \"leg\"\n\
         address = \"127.0.0.1:0\"\n{nodes}{peer}{extra}"
    ))
}

/// Nodes n1 … n`count` behind an entry; without any, the entry goes directly.
pub struct Chain {
    pub entry: Relay,
    pub nodes: Vec<Relay>,
}

impl Chain {
    pub fn new(count: usize) -> Self {
        Self::with(count, "", "")
    }

    /// With more configuration for the entry and for the nodes.
    pub fn with(count: usize, entry: &str, each: &str) -> Self {
        Self::of(Mode::Tls, count, entry, each)
    }

    /// With legs of this kind.
    pub fn of(mode: Mode, count: usize, entry: &str, each: &str) -> Self {
        let mut nodes: Vec<Relay> = Vec::new();
        let mut next: Option<(String, SocketAddr)> = None;
        for i in (1..=count).rev() {
            let name = format!("n{i}");
            let peer = next.as_ref().map(|(name, address)| (name.as_str(), *address));
            let relay = leg_node(mode, &name, peer, each);
            next = Some((name, relay.address("leg").unwrap()));
            nodes.insert(0, relay);
        }
        let via: Vec<String> = (1..=count).map(|i| format!("n{i}")).collect();
        let secret = hash_of_secret();
        let way = match &next {
            Some((name, address)) => {
                let known = mode.peer("key");
                format!("[peer.{name}]\naddress = \"{address}\"\n{known}[[route]]\nto = [\"*\"]\nvia = {via:?}\n")
            }
            None => String::new(),
        };
        let own = mode.node("key");
        let entry = node(&format!(
            "name = \"entry\"\n{own}threads = 2\n\
             [listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
             [listen.locked]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\nusers = {{ alice = \"{secret}\" }}\n\
             [listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n\
             [listen.weblocked]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\nusers = {{ alice = \"{secret}\" }}\n{entry}\n{way}"
        ));
        Self { entry, nodes }
    }

    pub fn address(&self, listener: &str) -> SocketAddr {
        self.entry.address(listener).unwrap()
    }

    /// A stream to `target` by SOCKS.
    pub fn socks(&self, target: SocketAddr) -> TcpStream {
        let (code, stream) = socks(self.address("socks"), &target.ip().to_string(), target.port());
        assert_eq!(code, 0);
        stream
    }

    /// A stream to `target` by CONNECT.
    pub fn tunnel(&self, target: SocketAddr) -> TcpStream {
        let mut stream = connect(self.address("web"));
        write!(stream, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
        let head = read_head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream
    }
}

/// As [`connect`], as the client that has this address. One that is refused may have been reset by now: then nothing can be
/// written.
pub fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    match socket.connect(&to.into()) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => other.unwrap(),
    }
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Asks for `host`, always as a name or address in text; returns the reply code.
pub fn socks(proxy: SocketAddr, host: &str, port: u16) -> (u8, TcpStream) {
    let mut stream = connect(proxy);
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut method = [0; 2];
    stream.read_exact(&mut method).unwrap();
    assert_eq!(method, [5, 0]);
    (socks_request(&mut stream, host, port), stream)
}

pub fn socks_request(stream: &mut TcpStream, host: &str, port: u16) -> u8 {
    let mut request = vec![5, 1, 0, 3, host.len() as u8];
    request.extend(host.as_bytes());
    request.extend(port.to_be_bytes());
    stream.write_all(&request).unwrap();
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let mut address = vec![0; if head[3] == 4 { 18 } else { 6 }];
    stream.read_exact(&mut address).unwrap();
    head[1]
}

pub fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A port on which nobody listens, nor will while the test runs: it stays bound.
pub fn closed_port() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(socket);
    address
}

/// A port to listen on later. The kernel chooses none below 32768 (`net.ipv4.ip_local_port_range`), so that meanwhile
/// nobody's connection gets it.
pub fn spare_port() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 12000 + (number % 20000) as u16));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// A server that does `serve` with every connection, on threads of its own.
pub fn server(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Reads everything, then sends it back: works only if half-close does.
pub fn late_echo() -> SocketAddr {
    server(|mut stream| {
        let mut all = Vec::new();
        if stream.read_to_end(&mut all).is_ok() {
            let _ = stream.write_all(&all);
        }
    })
}

/// Sends back what comes as it comes.
pub fn echo() -> SocketAddr {
    server(|mut stream| {
        let mut piece = vec![0; 65_536];
        while let Ok(n @ 1..) = stream.read(&mut piece) {
            if stream.write_all(&piece[..n]).is_err() {
                break;
            }
        }
    })
}

/// Bytes that do not repeat in any length that matters here.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend(state.to_le_bytes());
    }
    out.truncate(length);
    out
}

/// Sends `data` and its end, and returns all that comes back.
pub fn exchange(mut stream: TcpStream, data: &[u8]) -> Vec<u8> {
    let mut back = Vec::new();
    std::thread::scope(|scope| {
        let mut writer = stream.try_clone().unwrap();
        scope.spawn(move || {
            writer.write_all(data).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        stream.read_to_end(&mut back).unwrap();
    });
    back
}

pub fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap_or_else(|e| panic!("{e} after {:?}", String::from_utf8_lossy(&head)));
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Reads a body of this length.
pub fn body(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    body
}

/// Closes with a reset.
pub fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Writes until nothing has been taken for a while: every buffer on the way is full.
pub fn fill(stream: &mut TcpStream) {
    let piece = noise(64 << 10, 9);
    stream.set_nonblocking(true).unwrap();
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < Duration::from_millis(200) {
        match stream.write(&piece) {
            Ok(_) => quiet_since = Instant::now(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false).unwrap();
}

/// Reads until the stream is over; whether it ended cleanly.
pub fn ends_cleanly(stream: &mut TcpStream) -> bool {
    let mut piece = vec![0; 65_536];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                return false;
            }
        }
    }
}

pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_for(PATIENCE, what, condition);
}

/// As [`wait_until`], for what takes its time.
pub fn wait_for(patience: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        let waited = start.elapsed();
        assert!(waited < patience, "waited in vain until {what}");
        // Whoever has waited for long looks seldom: hundreds of tests that look all the time take the processors from others.
        std::thread::sleep((Duration::from_millis(5) + waited / 16).min(Duration::from_millis(200)));
    }
}
