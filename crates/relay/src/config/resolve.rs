//! From the file as written to the configuration that is meant. The defaults stand here and nowhere else.

mod transparent;

use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ekiden_congestion::{Settings, Tunables, choice};
use ekiden_net::socket::TcpOptions;
use ekiden_relay_proto::Target;
use ekiden_relay_proto::segment::{Key, MAX_CHAIN, is_node_name};
use ekiden_units::{Bytes, Time};
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::raw::{Raw, RawAction, RawCongestion, RawKind, RawLimits, RawListen, RawPeer, RawRoute, RawTcp};
use super::{Config, ConfigError, Limits, Listener, ListenerKind, Peer, Tcp};
use crate::route::{Pattern, Route, Routes, Way};

pub(super) fn resolve(text: &str, file: &Path) -> Result<Config, ConfigError> {
    let source = Source { text, file };
    let raw: Raw = toml::from_str(text).map_err(|error| {
        let message = error.message().trim().replace('\n', "; ");
        source.error(error.span(), message)
    })?;
    source.config(raw)
}

/// What errors point into.
struct Source<'a> {
    text: &'a str,
    file: &'a Path,
}

type Result<T, E = ConfigError> = std::result::Result<T, E>;

impl Source<'_> {
    fn config(&self, raw: Raw) -> Result<Config> {
        let name = match &raw.name {
            Some(name) => self.node_name(name)?,
            None => "ekiden".to_owned(),
        };
        let kernel = Tcp::default();
        let tcp = raw.tcp.as_ref().map_or(Ok(kernel.clone()), |tcp| self.tcp(tcp, &kernel))?;
        let mut peers = IndexMap::new();
        for (name, peer) in &raw.peer {
            peers.insert(self.node_name(name)?, self.peer(peer.get_ref(), &tcp)?);
        }
        let mut listeners = IndexMap::new();
        for (name, raw) in &raw.listen {
            let listener = self.listener(raw, &tcp, &peers)?;
            let same = |other: &Listener| other.address == listener.address && listener.address.port() != 0;
            if listeners.values().any(same) {
                let message = format!("another listener already has the address {}", listener.address);
                return Err(self.error(Some(raw.get_ref().address.span()), message));
            }
            listeners.insert(name.get_ref().clone(), listener);
        }
        let routes = raw.route.iter().map(|route| self.route(route, &peers)).collect::<Result<Vec<_>>>()?;
        let needs_key = !peers.is_empty() || listeners.values().any(|l| l.kind == ListenerKind::Segment);
        let (key, key_file) = match &raw.key_file {
            Some(path) => {
                let (key, path) = self.key(path)?;
                (Some(key), Some(path))
            }
            None if needs_key => {
                return Err(self.error(
                    None,
                    "peers and segment listeners need a key_file; make one with: \
                    (umask 077; head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > ekiden.key)"
                        .into(),
                ));
            }
            None => (None, None),
        };
        peers.values_mut().for_each(|peer| peer.key.clone_from(&key));
        let limits = self.limits(&raw.limits)?;
        let threads = self.threads(raw.threads)?;
        let congestion = raw.congestion.as_ref().map(|table| self.congestion(table)).transpose()?;
        let routes = Routes::new(routes);
        let exit = self.exit(&raw.exit)?;
        Ok(Config { name, key, threads, tcp, congestion, limits, listeners, peers, routes, exit, key_file })
    }

    fn threads(&self, threads: Option<Spanned<u16>>) -> Result<usize> {
        match threads {
            Some(n) if !(1..=256).contains(n.get_ref()) => {
                Err(self.error(Some(n.span()), "threads must be from 1 to 256".into()))
            }
            Some(n) => Ok(usize::from(n.into_inner())),
            None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }

    fn limits(&self, raw: &RawLimits) -> Result<Limits> {
        Ok(Limits {
            connections: self.count(&raw.connections, "connections", 1..=1_000_000, 16_384)?,
            handshake: self.time(&raw.handshake, "handshake", Time::secs(10))?,
            connect: self.time(&raw.connect, "connect", Time::secs(10))?,
            response: self.time(&raw.response, "response", Time::secs(300))?,
            drain: match &raw.drain {
                Some(drain) => (*drain.get_ref()).into(),
                None => Duration::from_secs(10),
            },
            head: match &raw.head {
                Some(head) if !(1024..=1 << 20).contains(&head.get_ref().0) => {
                    return Err(self.error(Some(head.span()), "limits.head must be from 1KiB to 1MiB".into()));
                }
                Some(head) => head.get_ref().0 as usize,
                None => Bytes::kib(64).0 as usize,
            },
            headers: self.count(&raw.headers, "headers", 8..=1000, 128)? as usize,
            pool: self.count(&raw.pool, "pool", 0..=1000, 16)? as usize,
            pool_idle: self.time(&raw.pool_idle, "pool_idle", Time::secs(60))?,
        })
    }

    fn count(
        &self,
        raw: &Option<Spanned<u32>>,
        key: &str,
        range: std::ops::RangeInclusive<u32>,
        default: u32,
    ) -> Result<u32> {
        match raw {
            Some(n) if !range.contains(n.get_ref()) => {
                let message = format!("limits.{key} must be from {} to {}", range.start(), range.end());
                Err(self.error(Some(n.span()), message))
            }
            Some(n) => Ok(*n.get_ref()),
            None => Ok(default),
        }
    }

    fn time(&self, raw: &Option<Spanned<Time>>, key: &str, default: Time) -> Result<Duration> {
        match raw {
            Some(time) if *time.get_ref() < Time::ms(1) || *time.get_ref() > Time::secs(86_400) => {
                Err(self.error(Some(time.span()), format!("limits.{key} must be from 1ms to 24h")))
            }
            Some(time) => Ok((*time.get_ref()).into()),
            None => Ok(default.into()),
        }
    }

    fn peer(&self, raw: &RawPeer, defaults: &Tcp) -> Result<Peer> {
        let address = self.target(&raw.address)?;
        let tcp = raw.tcp.as_ref().map_or(Ok(defaults.clone()), |tcp| self.tcp(tcp, defaults))?;
        Ok(Peer { address, tcp, key: None })
    }

    fn listener(&self, spanned: &Spanned<RawListen>, tcp: &Tcp, peers: &IndexMap<String, Peer>) -> Result<Listener> {
        let raw = spanned.get_ref();
        let address: SocketAddr = raw.address.get_ref().parse().map_err(|_| {
            let message = format!("'{}' is not an address and port, such as 127.0.0.1:1080", raw.address.get_ref());
            self.error(Some(raw.address.span()), message)
        })?;
        let misplaced = |key: &str, span: Range<usize>| {
            self.error(Some(span), format!("a {} listener has no '{key}'", word(raw.kind)))
        };
        let fronts_users = matches!(raw.kind, RawKind::Socks5 | RawKind::Http);
        match (&raw.users, &raw.to, &raw.via) {
            (Some(users), _, _) if !fronts_users => return Err(misplaced("users", users.span())),
            (_, Some(to), _) if raw.kind != RawKind::Forward => return Err(misplaced("to", to.span())),
            (_, _, Some(via)) if raw.kind != RawKind::Forward => return Err(misplaced("via", via.span())),
            _ => {}
        }
        match (&raw.interfaces, &raw.except, &raw.bypass) {
            _ if raw.kind == RawKind::Transparent => {}
            (Some(interfaces), _, _) => return Err(misplaced("interfaces", interfaces.span())),
            (_, Some(except), _) => return Err(misplaced("except", except.span())),
            (_, _, Some(bypass)) => return Err(misplaced("bypass", bypass.span())),
            _ => {}
        }
        let users = raw.users.as_ref().map(|users| self.users(users)).transpose()?.unwrap_or_default();
        let guarded = matches!(raw.kind, RawKind::Segment | RawKind::Transparent) || !users.is_empty();
        if !address.ip().is_loopback() && !guarded && !raw.open {
            let users = if fronts_users { "give it users, or " } else { "" };
            let message = format!(
                "anyone who can reach {address} could use this {} listener: {users}bind it to 127.0.0.1, or say open = true",
                word(raw.kind)
            );
            return Err(self.error(Some(raw.address.span()), message));
        }
        let kind = match raw.kind {
            RawKind::Socks5 => ListenerKind::Socks5 { users },
            RawKind::Http => ListenerKind::Http { users },
            RawKind::Segment => ListenerKind::Segment,
            RawKind::Transparent => self.transparent(spanned, address)?,
            RawKind::Forward => {
                let Some(to) = &raw.to else {
                    let message = "a forward listener needs to = \"host:port\"".into();
                    return Err(self.error(Some(spanned.span()), message));
                };
                let via = raw.via.as_ref().map(|via| self.chain(via, peers)).transpose()?;
                ListenerKind::Forward { to: self.target(to)?, via }
            }
        };
        let tcp = raw.tcp.as_ref().map_or(Ok(tcp.clone()), |own| self.tcp(own, tcp))?;
        Ok(Listener { kind, address, tcp })
    }

    /// RFC 1929 §2 and RFC 7617 §2: what both can carry.
    fn users(&self, users: &Spanned<IndexMap<String, String>>) -> Result<IndexMap<String, String>> {
        let fits = |text: &str| (1..=255).contains(&text.len());
        if !users.get_ref().iter().all(|(name, password)| fits(name) && fits(password) && !name.contains(':')) {
            let message = "user names (without ':') and passwords must have 1 to 255 bytes".into();
            return Err(self.error(Some(users.span()), message));
        }
        Ok(users.get_ref().clone())
    }

    fn route(&self, spanned: &Spanned<RawRoute>, peers: &IndexMap<String, Peer>) -> Result<Route> {
        let raw = spanned.get_ref();
        let mut patterns = Vec::new();
        for to in &raw.to {
            let pattern = Pattern::parse(to.get_ref()).map_err(|message| self.error(Some(to.span()), message))?;
            patterns.push(pattern);
        }
        if patterns.is_empty() {
            return Err(self.error(Some(spanned.span()), "a route needs at least one destination in 'to'".into()));
        }
        let way = match (&raw.via, raw.action) {
            (Some(via), None) => Way::Via(self.chain(via, peers)?),
            (None, Some(RawAction::Direct)) => Way::Direct,
            (None, Some(RawAction::Refuse)) => Way::Refuse,
            _ => {
                let message = "a route needs either via = [nodes] or action = \"direct\" or \"refuse\"".into();
                return Err(self.error(Some(spanned.span()), message));
            }
        };
        Ok(Route { patterns, way })
    }

    fn chain(&self, via: &Spanned<Vec<Spanned<String>>>, peers: &IndexMap<String, Peer>) -> Result<Vec<String>> {
        let chain = via.get_ref().iter().map(|name| self.node_name(name)).collect::<Result<Vec<_>>>()?;
        if chain.len() > MAX_CHAIN {
            return Err(self.error(Some(via.span()), format!("a chain has at most {MAX_CHAIN} nodes")));
        }
        if let Some(first) = chain.first().filter(|first| !peers.contains_key(*first)) {
            let message = format!("'{first}' begins a chain but there is no [peer.{first}]");
            return Err(self.error(Some(via.span()), message));
        }
        Ok(chain)
    }

    fn tcp(&self, raw: &Spanned<RawTcp>, defaults: &Tcp) -> Result<Tcp> {
        let span = raw.span();
        let raw = raw.get_ref();
        for size in [raw.send_buffer, raw.receive_buffer].into_iter().flatten() {
            if !(4096..=1 << 30).contains(&size.0) {
                return Err(self.error(Some(span), format!("a buffer of {size}: must be from 4KiB to 1GiB")));
            }
        }
        for name in [&raw.congestion, &raw.congestion_fallback].into_iter().flatten() {
            if !is_congestion_name(name) {
                let message = format!("'{name}' cannot be a congestion control: 1 to 15 letters, digits, '-' and '_'");
                return Err(self.error(Some(span), message));
            }
        }
        if let Some(name) = raw.congestion_fallback.as_deref().filter(|name| name.starts_with("ekiden_")) {
            let message =
                format!("tcp.congestion_fallback must be one of the kernel's own, such as reno, not '{name}'");
            return Err(self.error(Some(span), message));
        }
        let default = &defaults.options;
        let auto = raw.congestion.as_ref().map_or(defaults.auto, |name| name == choice::AUTO);
        let congestion = match auto {
            true => Some(choice::CAREFUL.name().into()),
            false => raw.congestion.clone().or_else(|| default.congestion.clone()),
        };
        let options = TcpOptions {
            congestion,
            send_buffer: raw.send_buffer.or(default.send_buffer),
            receive_buffer: raw.receive_buffer.or(default.receive_buffer),
        };
        let congestion_fallback = raw.congestion_fallback.clone().or_else(|| defaults.congestion_fallback.clone());
        Ok(Tcp { options, auto, congestion_fallback })
    }

    fn congestion(&self, table: &Spanned<RawCongestion>) -> Result<Settings> {
        let mut settings = Settings::default();
        for (group, parameters) in table.get_ref() {
            for (parameter, value) in parameters {
                let name = format!("{}.{}", group.get_ref(), parameter.get_ref());
                let set = settings.set(&name, &value.get_ref().to_string());
                set.map_err(|error| self.error(Some(parameter.span()), error.to_string()))?;
            }
        }
        Tunables::new(&settings).map_err(|error| self.error(Some(table.span()), error.to_string()))?;
        Ok(settings)
    }

    fn key(&self, path: &Spanned<String>) -> Result<(Key, PathBuf)> {
        let file = self.file.parent().unwrap_or(Path::new("")).join(path.get_ref());
        let refuse = |message: String| Err(self.error(Some(path.span()), message));
        let mode = match std::fs::metadata(&file) {
            Ok(metadata) => metadata.permissions().mode(),
            Err(error) => return refuse(format!("key file {}: {error}", file.display())),
        };
        if mode & 0o077 != 0 {
            let shown = file.display();
            return refuse(format!("key file {shown} can be read by others: chmod 600 {shown}"));
        }
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => return refuse(format!("key file {}: {error}", file.display())),
        };
        match Key::from_hex(&text) {
            Some(key) => Ok((key, file)),
            None => refuse(format!("key file {}: must hold 64 hexadecimal digits", file.display())),
        }
    }

    fn target(&self, raw: &Spanned<String>) -> Result<Target> {
        raw.get_ref().parse().map_err(|error| self.error(Some(raw.span()), format!("{error}")))
    }

    fn node_name(&self, name: &Spanned<String>) -> Result<String> {
        if !is_node_name(name.get_ref()) {
            let message = format!("'{}' is not a node name: 1 to 64 letters, digits, '-', '_' and '.'", name.get_ref());
            return Err(self.error(Some(name.span()), message));
        }
        Ok(name.get_ref().clone())
    }

    fn error(&self, span: Option<Range<usize>>, message: String) -> ConfigError {
        let line = span.map(|span| 1 + self.text.bytes().take(span.start).filter(|&b| b == b'\n').count());
        ConfigError { file: self.file.into(), line, message }
    }
}

/// What the kernel can have as a name (TCP_CA_NAME_MAX).
fn is_congestion_name(name: &str) -> bool {
    (1..=15).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

fn word(kind: RawKind) -> &'static str {
    match kind {
        RawKind::Socks5 => "socks5",
        RawKind::Http => "http",
        RawKind::Forward => "forward",
        RawKind::Segment => "segment",
        RawKind::Transparent => "transparent",
    }
}
