//! Turns the file as it is written into a checked configuration. Ranges and defaults are in `raw.rs` and `limits.rs`.

mod addresses;
mod classes;
mod files;
mod hints;
mod loops;
mod overlay;
mod tls;
mod transparent;

use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ekiden_bpf::named::tunables;
use ekiden_keys::{Fingerprint, FingerprintError, Identity, load_shared};
use ekiden_net::lookup;
use ekiden_net::socket::TcpOptions;
use ekiden_relay_proto::Target;
use ekiden_relay_proto::leg::MAX_CHAIN;
use ekiden_relay_proto::proxy_protocol::Version;
use ekiden_transport::{Prepared, Security, SharedKey};
use ekiden_units::{is_control_name, is_node_name};
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::classes::Classes;
use super::overlay::{Overlay, check_address};
use super::raw::{
    BUFFERS, KEEPALIVES, Raw, RawAction, RawKind, RawListen, RawPeer, RawRoute, RawTcp, RawVersion, RawVia, THREADS,
    USER_TIMEOUTS,
};
use super::{Config, ConfigError, Congestion, Limits, Listener, ListenerKind, OwnNode, Peer, Reply, Tcp};
use crate::config::route::{Route, Routes, Way};
use ekiden_config::{Count, Quantity, Source, range};
use files::ReadFiles;
use hints::hinted;
use overlay::Own;
pub(super) use overlay::check_members;

pub(super) fn resolve(text: &str, file: &Path) -> Result<Config, ConfigError> {
    let source = Resolver::of(text, file);
    source.config(source.read_explained(hinted)?)
}

pub(super) fn own(text: &str, file: &Path) -> Result<OwnNode, ConfigError> {
    let source = Resolver::of(text, file);
    let raw: Raw = source.read_explained(hinted)?;
    raw.name.as_ref().map(|name| source.node_name(name)).transpose()?;
    let own = raw.key_file.as_ref().map(|file| source.identity(file)).transpose()?;
    let has_leg_listener = raw.listen.values().any(|listen| listen.get_ref().kind == RawKind::Leg);
    let key = own.map(|(identity, _)| identity.fingerprint());
    Ok(OwnNode { name: raw.name(), key, has_leg_listener })
}

/// What is written in a file, on its way to a configuration.
struct Resolver<'a> {
    source: Source<'a>,
    /// The files that it names. One that is named twice is one.
    read: ReadFiles,
}

impl<'a> Resolver<'a> {
    fn of(text: &'a str, file: &'a Path) -> Self {
        Self { source: Source { text, file }, read: ReadFiles::default() }
    }
}

impl<'a> Deref for Resolver<'a> {
    type Target = Source<'a>;

    fn deref(&self) -> &Source<'a> {
        &self.source
    }
}

/// A node's own key and where it was read from.
type OwnKey = (Identity, PathBuf);

type Result<T, E = ConfigError> = std::result::Result<T, E>;

impl Resolver<'_> {
    fn config(&self, raw: Raw) -> Result<Config> {
        raw.name.as_ref().map(|name| self.node_name(name)).transpose()?;
        let name = raw.name();
        let options = TcpOptions { keepalive: Some(RawTcp::default().keepalive().into()), ..TcpOptions::default() };
        let default = Tcp { options, ..Tcp::default() };
        let tcp = raw.tcp.as_ref().map_or(Ok(default.clone()), |tcp| self.tcp(tcp, &default))?;
        let limits = raw.limits.resolve().map_err(|(span, message)| self.error(Some(span), message))?;
        let own = raw.key_file.as_ref().map(|file| self.identity(file)).transpose()?;
        let mut peers = IndexMap::new();
        for (name, peer) in &raw.peer {
            peers.insert(self.node_name(name)?, self.peer(peer, &tcp, own.as_ref(), &limits)?);
        }
        let classes = self.classes(&raw, &limits)?;
        let mut listeners = IndexMap::new();
        for (called, raw) in &raw.listen {
            if called.get_ref().contains(char::is_control) {
                let message =
                    format!("{:?} cannot be the name of a listener: it has a control character", called.get_ref());
                return Err(self.error(Some(called.span()), message));
            }
            let mut listener = self.listener(called.get_ref(), raw, &tcp, &peers, own.as_ref(), &classes)?;
            listener.tls = self.listener_tls(raw.get_ref(), own.as_ref(), &name)?;
            if let Some(message) = addresses::clash(&listener, listeners.values()) {
                return Err(self.error(Some(raw.get_ref().address.span()), message));
            }
            listeners.insert(called.get_ref().clone(), listener);
        }
        addresses::leave_ipv4(&mut listeners);
        let overlay = match &raw.overlay {
            Some(section) => {
                let own = Own { name: &name, key: own.as_ref(), tcp: &tcp };
                Some(self.overlay(section, &own, &mut peers, &mut listeners)?)
            }
            None => None,
        };
        let routes = raw.route.iter().map(|route| self.route(route, &peers, overlay.as_ref(), &classes, &name));
        let routes = routes.collect::<Result<Vec<_>>>()?;
        let routes = Routes::new(routes);
        self.refuse_loops(&raw, &listeners, &peers, &routes)?;
        let threads = self.threads(&raw)?;
        let congestion = raw.congestion.as_ref().map(tunables).transpose();
        let congestion = congestion.map_err(|(span, message)| self.error(Some(span), message))?;
        let exit = self.exit(&raw.exit)?;
        let (identity, key_file) = own.unzip();
        Ok(Config {
            name,
            identity,
            log_addresses: raw.log_addresses(),
            threads,
            tcp,
            congestion,
            limits,
            listeners,
            peers,
            routes,
            classes,
            exit,
            overlay,
            key_file,
        })
    }

    fn threads(&self, raw: &Raw) -> Result<usize> {
        if let Some(n) = raw.threads.as_ref().filter(|n| !THREADS.contains(n.get_ref())) {
            return Err(self.error(Some(n.span()), format!("threads must be from {}", range(&THREADS))));
        }
        Ok(raw.threads().value() as usize)
    }

    fn peer(&self, spanned: &Spanned<RawPeer>, defaults: &Tcp, own: Option<&OwnKey>, limits: &Limits) -> Result<Peer> {
        let raw = spanned.get_ref();
        let security = match (&raw.plain_key_file, &raw.fingerprint) {
            (Some(_), Some(fingerprint)) => return Err(self.both(fingerprint.span(), "fingerprint")),
            (Some(file), None) => Security::Plain(self.shared_key(file)?),
            (None, fingerprint) => {
                let known = fingerprint.as_ref().map(|text| self.fingerprint(text)).transpose()?;
                Security::Tls { identity: self.needed(own, spanned.span())?, known, prepared: Prepared::default() }
            }
        };
        let address = self.parsed(raw.address.get_ref(), Some(raw.address.span()))?;
        check_address(raw.address.get_ref()).map_err(|message| self.error(Some(raw.address.span()), message))?;
        let tcp = raw.tcp.as_ref().map_or(Ok(defaults.clone()), |tcp| self.tcp(tcp, defaults))?;
        let Count(warm) = raw.warm();
        if !(0..=i64::from(limits.pool)).contains(&warm) {
            let message = format!("warm must be from 0 to limits.pool, which is {}", limits.pool);
            return Err(self.error(raw.warm.as_ref().map(Spanned::span), message));
        }
        Ok(Peer { address, tcp, security, warm: warm as usize })
    }

    fn listener(
        &self,
        name: &str,
        spanned: &Spanned<RawListen>,
        tcp: &Tcp,
        peers: &IndexMap<String, Peer>,
        own: Option<&OwnKey>,
        classes: &Classes,
    ) -> Result<Listener> {
        let raw = spanned.get_ref();
        let address = lookup::listening(raw.address.get_ref());
        let address = address
            .map_err(|error| self.error(Some(raw.address.span()), error.to_string()).of_lack(error.is_lack()))?;
        let misplaced = |key: &str, span: Range<usize>| {
            self.error(Some(span), format!("a {} listener has no '{key}'", raw.kind.word()))
        };
        let fronts_users = matches!(raw.kind, RawKind::Socks5 | RawKind::Http | RawKind::Mixed);
        match (&raw.users, &raw.to, &raw.via) {
            (Some(users), _, _) if !fronts_users => return Err(misplaced("users", users.span())),
            (_, Some(to), _) if raw.kind != RawKind::Forward => return Err(misplaced("to", to.span())),
            (_, _, Some(via)) if raw.kind != RawKind::Forward => return Err(misplaced("via", via.span())),
            _ => {}
        }
        if let Some(file) = raw.users_file.as_ref().filter(|_| !fronts_users) {
            return Err(misplaced("users_file", file.span()));
        }
        match (&raw.proxy_protocol, &raw.proxy_protocol_from) {
            (Some(out), _) if raw.kind != RawKind::Forward => return Err(misplaced("proxy_protocol", out.span())),
            (_, Some(from)) if raw.kind == RawKind::Leg => {
                return Err(misplaced("proxy_protocol_from", from.span()));
            }
            _ => {}
        }
        match (&raw.nodes, &raw.plain_key_file) {
            (Some(nodes), _) if raw.kind != RawKind::Leg => return Err(misplaced("nodes", nodes.span())),
            (_, Some(file)) if raw.kind != RawKind::Leg => return Err(misplaced("plain_key_file", file.span())),
            _ => {}
        }
        match (&raw.interfaces, &raw.except, &raw.bypass) {
            _ if raw.kind == RawKind::Transparent => {}
            (Some(interfaces), _, _) => return Err(misplaced("interfaces", interfaces.span())),
            (_, Some(except), _) => return Err(misplaced("except", except.span())),
            (_, _, Some(bypass)) => return Err(misplaced("bypass", bypass.span())),
            _ => {}
        }
        if let Some(late) = raw.late_interfaces.as_ref().filter(|_| raw.kind != RawKind::Transparent) {
            return Err(misplaced("late_interfaces", late.span()));
        }
        if let Some(class) = raw.class.as_ref().filter(|_| raw.kind == RawKind::Leg) {
            return Err(misplaced("class", class.span()));
        }
        let class = raw.class.as_ref().map(|class| self.class_name(class, classes)).transpose()?;
        let users = self.users(raw)?;
        let asks = raw.tls.as_ref().is_some_and(|tls| tls.get_ref().client_ca_file.is_some());
        let guarded = matches!(raw.kind, RawKind::Leg | RawKind::Transparent) || users.is_some() || asks;
        if !address.ip().is_loopback() && !guarded && !raw.open() {
            let users = if fronts_users { "give it users, or " } else { "" };
            let message = format!(
                "anyone who can reach {address} could use this {} listener: {users}bind it to 127.0.0.1, or say open = true",
                raw.kind.word()
            );
            return Err(self.error(Some(raw.address.span()), message));
        }
        let kind = match raw.kind {
            RawKind::Socks5 => ListenerKind::Socks5 { users },
            RawKind::Http => ListenerKind::Http { users },
            RawKind::Mixed => ListenerKind::Mixed { users },
            RawKind::Leg => ListenerKind::Leg(self.admission(spanned, own)?),
            RawKind::Transparent => self.transparent(spanned, address)?,
            RawKind::Forward => {
                let Some(to) = &raw.to else {
                    let message = "a forward listener needs to = \"host:port\"".into();
                    return Err(self.error(Some(spanned.span()), message));
                };
                let via = raw.via.as_ref().map(|via| self.chain(via.get_ref(), via.span(), peers)).transpose()?;
                let proxy_protocol = raw.proxy_protocol.as_ref().map(|version| match version.get_ref() {
                    RawVersion::V1 => Version::V1,
                    RawVersion::V2 => Version::V2,
                });
                ListenerKind::Forward { to: self.target(to)?, via, proxy_protocol }
            }
        };
        let reply = self.reply(raw)?;
        let sources = raw.proxy_protocol_from.iter().flat_map(Spanned::get_ref);
        let proxy_protocol_from = sources.map(|text| self.network(text)).collect::<Result<_>>()?;
        let tcp = raw.tcp.as_ref().map_or(Ok(tcp.clone()), |own| self.tcp(own, tcp))?;
        let (name, tls) = (name.into(), None);
        Ok(Listener { name, kind, address, only_v6: false, reply, proxy_protocol_from, class, tls, tcp })
    }

    fn reply(&self, raw: &RawListen) -> Result<Reply> {
        match (&raw.reply, raw.kind) {
            (Some(reply), RawKind::Leg) => {
                let message =
                    "a leg listener has no 'reply': other nodes are answered when the destination is connected".into();
                Err(self.error(Some(reply.span()), message))
            }
            (Some(reply), _) => Ok(*reply.get_ref()),
            (None, kind) => Ok(kind.reply()),
        }
    }

    /// Who may connect to a leg listener.
    fn admission(
        &self,
        spanned: &Spanned<RawListen>,
        own: Option<&OwnKey>,
    ) -> Result<Security<IndexMap<String, Fingerprint>>> {
        let raw = spanned.get_ref();
        let mut known = IndexMap::new();
        for (name, text) in raw.nodes.iter().flat_map(Spanned::get_ref) {
            let fingerprint = self.fingerprint(text)?;
            if let Some((other, _)) = known.iter().find(|(_, known)| **known == fingerprint) {
                let message = format!("'{}' has the same key as '{other}'", name.get_ref());
                return Err(self.error(Some(text.span()), message));
            }
            known.insert(self.node_name(name)?, fingerprint);
        }
        match (&raw.plain_key_file, &raw.nodes) {
            (Some(_), Some(nodes)) => Err(self.both(nodes.span(), "nodes")),
            (Some(file), None) => Ok(Security::Plain(self.shared_key(file)?)),
            (None, _) => {
                let identity = self.needed(own, spanned.span())?;
                Ok(Security::Tls { identity, known, prepared: Prepared::default() })
            }
        }
    }

    fn route(
        &self,
        spanned: &Spanned<RawRoute>,
        peers: &IndexMap<String, Peer>,
        overlay: Option<&Overlay>,
        classes: &Classes,
        own_name: &str,
    ) -> Result<Route> {
        let raw = spanned.get_ref();
        let to = self.destinations(&raw.to)?;
        if to.is_empty() {
            return Err(self.error(Some(spanned.span()), "a route needs at least one destination in 'to'".into()));
        }
        if !matches!(raw.via.as_ref().map(Spanned::get_ref), Some(RawVia::Auto)) {
            self.refuse_auto_keys(raw)?;
        }
        let class = raw.class.as_ref().map(|class| self.class_name(class, classes)).transpose()?;
        if let (Some(class), None) = (&raw.class, &raw.via) {
            let message = "'class' is for routes with 'via': streams share the legs between nodes".into();
            return Err(self.error(Some(class.span()), message));
        }
        let way = match (&raw.via, raw.action) {
            (Some(via), None) => match via.get_ref() {
                RawVia::Auto => self.auto(raw, overlay, own_name)?,
                RawVia::Chain(chain) if chain.is_empty() => {
                    let message = "'via' names no node: to connect from here, say action = \"direct\" instead";
                    return Err(self.error(Some(via.span()), message.into()));
                }
                RawVia::Chain(chain) => Way::Via(self.chain(chain, via.span(), peers)?),
            },
            (None, Some(RawAction::Direct)) => Way::Direct,
            (None, Some(RawAction::Refuse)) => Way::Refuse,
            _ => {
                let message =
                    "a route needs either via = [nodes], via = \"auto\", or action = \"direct\" or \"refuse\"".into();
                return Err(self.error(Some(spanned.span()), message));
            }
        };
        Ok(Route { to, way, class })
    }

    fn chain(
        &self,
        via: &[Spanned<String>],
        span: Range<usize>,
        peers: &IndexMap<String, Peer>,
    ) -> Result<Vec<String>> {
        let chain = via.iter().map(|name| self.node_name(name)).collect::<Result<Vec<_>>>()?;
        if chain.len() > MAX_CHAIN {
            return Err(self.error(Some(span), format!("a chain has at most {MAX_CHAIN} nodes")));
        }
        if let Some(at) = (1..chain.len()).find(|&i| chain[..i].contains(&chain[i])) {
            let message = format!("'{}' is in this chain twice", chain[at]);
            return Err(self.error(Some(via[at].span()), message));
        }
        if let Some(first) = chain.first().filter(|first| !peers.contains_key(*first)) {
            let or_chosen = if first == "auto" { "; a path is chosen by via = \"auto\", without brackets" } else { "" };
            let message = format!("'{first}' begins a chain but there is no [peer.{first}]{or_chosen}");
            return Err(self.error(Some(span), message));
        }
        Ok(chain)
    }

    fn tcp(&self, raw: &Spanned<RawTcp>, defaults: &Tcp) -> Result<Tcp> {
        let raw = raw.get_ref();
        for (key, size) in [("send_buffer", &raw.send_buffer), ("receive_buffer", &raw.receive_buffer)] {
            if let Some(size) = size.as_ref().filter(|size| !BUFFERS.contains(size.get_ref())) {
                let message = format!("tcp.{key} = {}: a buffer must be from {}", size.get_ref(), range(&BUFFERS));
                return Err(self.error(Some(size.span()), message));
            }
        }
        let times = [("keepalive", KEEPALIVES, &raw.keepalive), ("user_timeout", USER_TIMEOUTS, &raw.user_timeout)];
        for (key, allowed, time) in times {
            if let Some(time) = time.as_ref().filter(|time| !allowed.contains(time.get_ref())) {
                return Err(self.error(Some(time.span()), format!("tcp.{key} must be from {}", range(&allowed))));
            }
        }
        for (key, name) in [("congestion", &raw.congestion), ("congestion_fallback", &raw.congestion_fallback)] {
            if let Some(name) = name.as_ref().filter(|name| !is_control_name(name.get_ref())) {
                let message = format!(
                    "tcp.{key}: '{}' cannot be a congestion control: 1 to 15 letters, digits, '-' and '_'",
                    name.get_ref()
                );
                return Err(self.error(Some(name.span()), message));
            }
        }
        if let Some(name) = raw.congestion_fallback.as_ref().filter(|name| name.get_ref().starts_with("ekiden_")) {
            let message = format!(
                "tcp.congestion_fallback must be one of the kernel's own, such as reno, not '{}'",
                name.get_ref()
            );
            return Err(self.error(Some(name.span()), message));
        }
        let default = &defaults.options;
        let congestion = raw.congestion.as_ref().map(|word| Congestion::of(word.get_ref()));
        let congestion = congestion.unwrap_or_else(|| defaults.congestion.clone());
        let options = TcpOptions {
            congestion: congestion.name().cloned(),
            send_buffer: given(&raw.send_buffer).or(default.send_buffer),
            receive_buffer: given(&raw.receive_buffer).or(default.receive_buffer),
            first_window: None,
            keepalive: given(&raw.keepalive).map(Duration::from).or(default.keepalive),
            user_timeout: given(&raw.user_timeout).map(Duration::from).or(default.user_timeout),
            max_segment: None,
        };
        let congestion_fallback = given(&raw.congestion_fallback).or_else(|| defaults.congestion_fallback.clone());
        Ok(Tcp { options, congestion, congestion_fallback })
    }

    fn identity(&self, path: &Spanned<String>) -> Result<OwnKey> {
        let file = self.beside(path);
        let identity = Identity::load(&file).map_err(|error| self.error(Some(path.span()), error.to_string()))?;
        Ok((identity, file))
    }

    fn shared_key(&self, path: &Spanned<String>) -> Result<SharedKey> {
        let file = self.beside(path);
        let key = load_shared(&file).map_err(|error| self.error(Some(path.span()), error.to_string()))?;
        Ok(SharedKey { key, file })
    }

    fn needed(&self, own: Option<&OwnKey>, span: Range<usize>) -> Result<Identity> {
        own.map(|(identity, _)| identity.clone()).ok_or_else(|| {
            let message = "peers and leg listeners need this node's own key: make one with `ekiden keygen FILE`, and say \
                           key_file = \"FILE\" at the top (or, without encryption, plain_key_file here)";
            self.error(Some(span), message.into())
        })
    }

    fn fingerprint(&self, text: &Spanned<String>) -> Result<Fingerprint> {
        text.get_ref().parse().map_err(|error: FingerprintError| self.error(Some(text.span()), error.to_string()))
    }

    fn both(&self, span: Range<usize>, key: &str) -> ConfigError {
        self.error(Some(span), format!("either {key}, for TLS, or plain_key_file, for a leg without encryption"))
    }

    /// A path relative to the configuration.
    fn target(&self, raw: &Spanned<String>) -> Result<Target> {
        raw.get_ref().parse().map_err(|error| self.error(Some(raw.span()), format!("{error}")))
    }

    fn node_name(&self, name: &Spanned<String>) -> Result<String> {
        self.name(name, "node")
    }

    /// The name of something, as nodes are told it.
    fn name(&self, name: &Spanned<String>, of: &str) -> Result<String> {
        let written = name.get_ref();
        if !is_node_name(written) {
            let message = format!("'{written}' is not a {of} name: 1 to 64 letters, digits, '-', '_' and '.'");
            return Err(self.error(Some(name.span()), message));
        }
        Ok(written.clone())
    }
}

/// The value of a key, if it is there.
fn given<T: Clone>(raw: &Option<Spanned<T>>) -> Option<T> {
    raw.as_ref().map(|raw| raw.get_ref().clone())
}
