//! Nodes of an overlay on loopback.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use ekiden_keys::Identity;
use ekiden_relay::{Config, OverlayStatus, Relay, socket_name};
use ekiden_service::status_socket;

use super::{directory, socks, spare_port};

/// Every node sees every other where it is.
pub fn here(_: usize, _: usize) -> Option<SocketAddr> {
    None
}

/// Nodes a, b, c …, of which the last is near all loopback addresses. The first has a SOCKS listener.
pub struct Overlay {
    /// Its names have this in front: status sockets are by name.
    pub prefix: String,
    pub folder: PathBuf,
    pub addresses: Vec<SocketAddr>,
    pub prints: Vec<String>,
    pub nodes: Vec<Option<Relay>>,
    /// What the first node's configuration has besides.
    more: String,
}

impl Overlay {
    /// `seen` says where a node sees another, if that is not where it is: by their numbers.
    pub fn new(count: usize, seen: impl Fn(usize, usize) -> Option<SocketAddr>, route: &str) -> Self {
        Self::with(count, seen, route, None, true)
    }

    /// The same with somebody else in the place of the second node, who is known to the first by the plain key, and to the others
    /// not at all: they would say that they do not reach it.
    pub fn with_impostor(
        count: usize,
        seen: impl Fn(usize, usize) -> Option<SocketAddr>,
        route: &str,
        impostor: SocketAddr,
    ) -> Self {
        Self::with(count, seen, route, Some(impostor), false)
    }

    /// The same where the others reach the second node by TLS.
    pub fn behind_an_impostor(count: usize, route: &str, impostor: SocketAddr) -> Self {
        Self::with(count, here, route, Some(impostor), true)
    }

    fn with(
        count: usize,
        seen: impl Fn(usize, usize) -> Option<SocketAddr>,
        route: &str,
        impostor: Option<SocketAddr>,
        is_known: bool,
    ) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("t{}-{}-", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = directory().join(&prefix);
        std::fs::create_dir(&folder).unwrap();
        let key = |number: usize| Identity::generate(&folder.join(format!("{number}.pem"))).unwrap();
        let prints = (0..count).map(|number| key(number).fingerprint().to_string()).collect();
        let mut addresses: Vec<_> = (0..count).map(|_| spare_port()).collect();
        impostor.iter().for_each(|address| addresses[1] = *address);
        let is_impostor = |number: usize| impostor.is_some() && number == 1;
        let mut overlay = Self { prefix, folder, addresses, prints, nodes: Vec::new(), more: String::new() };
        if let Some(address) = impostor {
            std::fs::copy(directory().join("key"), overlay.folder.join("key")).unwrap();
            let name = overlay.name(1);
            overlay.more = format!("[peer.{name}]\naddress = \"{address}\"\nplain_key_file = \"key\"\n");
        }
        for number in 0..count {
            let mut members = overlay.members(|other| seen(number, other));
            if !is_known && number > 0 {
                let [from, to] = [1, 2].map(|other| members.find(&format!("[node.{}]", overlay.name(other))));
                members.replace_range(from.unwrap()..to.unwrap(), "");
            }
            std::fs::write(overlay.folder.join(format!("{number}.members")), members).unwrap();
            let route = if number == 0 { route } else { "" };
            overlay.nodes.push((!is_impostor(number)).then(|| overlay.start(number, route)));
        }
        overlay
    }

    pub fn name(&self, number: usize) -> String {
        format!("{}{}", self.prefix, ["a", "b", "c", "d", "e"][number])
    }

    pub fn members(&self, seen: impl Fn(usize) -> Option<SocketAddr>) -> String {
        let last = self.addresses.len() - 1;
        let one = |number: usize| {
            let (name, address) = (self.name(number), seen(number).unwrap_or(self.addresses[number]));
            let near = if number == last { "near = [\"127.0.0.0/8\"]\n" } else { "" };
            format!("[node.{name}]\naddress = \"{address}\"\nfingerprint = \"{}\"\n{near}", self.prints[number])
        };
        (0..=last).map(one).collect()
    }

    pub fn text(&self, number: usize, route: &str) -> String {
        let (name, address) = (self.name(number), self.addresses[number]);
        let route = match route {
            "" => String::new(),
            // Names have the prefix in front.
            route => format!(
                "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n\
                 [listen.web]\nkind = \"http\"\naddress = \"127.0.0.1:0\"\n[[route]]\nto = [\"*\"]\nvia = \"auto\"\n{}\n",
                route.replace('@', &self.prefix)
            ),
        };
        format!(
            "name = \"{name}\"\nkey_file = \"{number}.pem\"\nthreads = 2\n[listen.leg]\nkind = \"leg\"\naddress = \"{address}\"\n\
             {route}{}[overlay]\nmembers_file = \"{number}.members\"\n[exit]\nallow = [\"127.0.0.0/8\"]\n",
            if number == 0 { &self.more } else { "" }
        )
    }

    pub fn config(&self, number: usize, route: &str) -> Config {
        let text = self.text(number, route);
        Config::parse(&text, &self.folder.join("node.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    pub fn start(&self, number: usize, route: &str) -> Relay {
        Relay::start(self.config(number, route)).unwrap()
    }

    /// A stream from the first node's SOCKS listener, if it came about.
    pub fn stream(&self, to: SocketAddr) -> Option<TcpStream> {
        let (code, stream) = socks(self.nodes[0].as_ref()?.address("socks")?, &to.ip().to_string(), to.port());
        (code == 0).then_some(stream)
    }

    pub fn status(&self, number: usize) -> OverlayStatus {
        serde_json::from_slice(&status_socket::ask(&socket_name(&self.name(number))).unwrap()).unwrap()
    }

    /// The nodes of the path in use from the first node, without the prefix.
    pub fn path(&self) -> Vec<String> {
        let status = self.status(0);
        let short = |name: &String| name.strip_prefix(&self.prefix).unwrap().to_owned();
        status.exits.first().map_or(Vec::new(), |place| place.path.iter().map(short).collect())
    }
}
