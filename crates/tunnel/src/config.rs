//! A tunnel's configuration: one TOML file, read once into [`Config`] with every default in place.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use ekiden_files::{FileKind, ReadError, explain};
use ekiden_keys::{Fingerprint, FingerprintError, Identity};
use ekiden_net::device::NAME_BYTES_MOST;
use ekiden_net::socket::TcpOptions;
use ekiden_relay_proto::leg::is_node_name;
use ekiden_scenario::{Pull, Queue};
use ekiden_transport::{Prepared, Security};
use ekiden_units::{Bytes, Time};
use indexmap::IndexMap;
use ipnet::IpNet;
use serde::Deserialize;
use serde_spanned::Spanned;

use crate::allowed::Allowed;

const DEFAULT_NAME: &str = "ekiden";
const DEFAULT_DEVICE: &str = "ekiden0";
const DEFAULT_MTU: u16 = 1500;
const DEFAULT_CONNECTIONS: u8 = 1;
const DEFAULT_LIMIT: Bytes = Bytes(10_000_000);
const DEFAULT_KEEPALIVE: Time = Time::secs(10);

/// The least that IPv6 wants (RFC 8200, section 5), and the most that a frame holds.
const MTUS: RangeInclusive<u16> = 1280..=65_535;
const CONNECTIONS: RangeInclusive<u8> = 1..=64;
const LIMITS: RangeInclusive<Bytes> = Bytes::kib(64)..=Bytes::mib(1024);
const KEEPALIVES: RangeInclusive<Time> = Time::secs(1)..=Time::secs(3600);

/// A tunnel's configuration, resolved and checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node's name, as the peers' logs show it.
    pub name: String,
    /// This node's own key.
    pub identity: Identity,
    /// The TUN device.
    pub device: Device,
    /// Where peers connect. `None`: this node connects to all of them.
    pub listen: Option<SocketAddr>,
    /// Of the TCP connections.
    pub tcp: TcpOptions,
    /// What waits for each connection.
    pub queue: QueueSettings,
    /// After so much silence an end says that it is there; after four times as much the other has gone.
    pub keepalive: Time,
    /// The nodes at the other ends, by name.
    pub peers: IndexMap<String, Peer>,
    /// Which peer has which addresses.
    pub allowed: Allowed,
    /// How a node that connects is authenticated.
    pub accepts: Security<IndexMap<String, Fingerprint>>,
}

/// The network device of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its addresses, each with the network around it.
    pub addresses: Vec<IpNet>,
    /// Its MTU, in bytes.
    pub mtu: u16,
    /// It takes super-packets where the kernel can.
    pub offload: bool,
}

/// The queue before each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// What it holds at most.
    pub limit: Queue,
    /// `None`: drop tail, from which packets go into the send buffer while that has room.
    pub pull: Option<Pull>,
}

/// The node at another end.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Where it listens: a host and a port. `None`: it connects to this node.
    pub address: Option<(String, u16)>,
    /// How it is authenticated.
    pub security: Security<Option<Fingerprint>>,
    /// How many TCP connections there are.
    pub connections: u8,
}

/// Why a configuration cannot be used: `FILE:LINE: reason`.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {reason}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct ConfigError {
    file: PathBuf,
    /// Counted from 1.
    line: Option<usize>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: Option<Spanned<String>>,
    key_file: Spanned<String>,
    device: Spanned<RawDevice>,
    listen: Option<RawListen>,
    #[serde(default)]
    tcp: RawTcp,
    #[serde(default)]
    queue: RawQueue,
    keepalive: Option<Spanned<Time>>,
    peer: IndexMap<Spanned<String>, Spanned<RawPeer>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDevice {
    name: Option<Spanned<String>>,
    addresses: Vec<Spanned<String>>,
    mtu: Option<Spanned<u32>>,
    offload: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawListen {
    address: Spanned<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawTcp {
    congestion: Option<String>,
    send_buffer: Option<Bytes>,
    receive_buffer: Option<Bytes>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawQueue {
    discipline: Option<RawDiscipline>,
    limit: Option<Spanned<Bytes>>,
    target: Option<Spanned<Time>>,
    interval: Option<Spanned<Time>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum RawDiscipline {
    DropTail,
    FqCodel,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPeer {
    address: Option<Spanned<String>>,
    fingerprint: Spanned<String>,
    allowed: Vec<Spanned<String>>,
    connections: Option<Spanned<u32>>,
}

impl Config {
    /// Reads a configuration, and the key that it names.
    ///
    /// # Errors
    /// If something in it cannot be used: with the line.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let unreadable = |error: ReadError| ConfigError { file: file.into(), line: None, reason: error.to_string() };
        let text = ekiden_files::read(file, FileKind::Config).map_err(unreadable)?;
        Self::parse(&text, file)
    }

    fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let source = Source { text, file };
        let raw: Raw = toml::from_str(text).map_err(|error| source.error(error.span(), explain(text, &error)))?;
        source.resolve(&raw)
    }
}

/// The file that errors name, and its text, in which they find the line.
struct Source<'a> {
    text: &'a str,
    file: &'a Path,
}

impl Source<'_> {
    fn resolve(&self, raw: &Raw) -> Result<Config, ConfigError> {
        let name = raw.name.as_ref().map_or(Ok(DEFAULT_NAME.to_owned()), |name| self.node_name(name))?;
        let key_file = self.file.parent().unwrap_or(Path::new("")).join(raw.key_file.get_ref());
        let identity =
            Identity::load(&key_file).map_err(|error| self.error(Some(raw.key_file.span()), error.to_string()))?;
        let device = self.device(&raw.device)?;
        let listen = raw.listen.as_ref().map(|listen| self.listen(&listen.address)).transpose()?;
        let keepalive = self.within("keepalive", raw.keepalive.as_ref(), DEFAULT_KEEPALIVE, &KEEPALIVES)?;
        let (mut peers, mut known, mut allowed) = (IndexMap::new(), IndexMap::new(), Allowed::default());
        for (number, (name, peer)) in raw.peer.iter().enumerate() {
            let own = self.node_name(name)?;
            for network in &peer.get_ref().allowed {
                self.allow(network, number, &device, &mut allowed, raw)?;
            }
            let fingerprint = self.fingerprint(&peer.get_ref().fingerprint, &identity, &known)?;
            known.insert(own.clone(), fingerprint);
            peers.insert(own, self.peer(peer, fingerprint, &identity, listen.is_some())?);
        }
        self.no_route_to_a_peer(raw, &peers, &allowed)?;
        let tcp = TcpOptions {
            congestion: raw.tcp.congestion.clone(),
            send_buffer: raw.tcp.send_buffer,
            receive_buffer: raw.tcp.receive_buffer,
            keepalive: Some(keepalive.into()),
            user_timeout: Some(Time(keepalive.0 * 4).into()),
        };
        let accepts = Security::Tls { identity: identity.clone(), known, prepared: Prepared::default() };
        let queue = self.queue(&raw.queue)?;
        Ok(Config { name, identity, device, listen, tcp, queue, keepalive, peers, allowed, accepts })
    }

    fn device(&self, raw: &Spanned<RawDevice>) -> Result<Device, ConfigError> {
        let device = raw.get_ref();
        let name = device.name.as_ref().map_or(DEFAULT_DEVICE, |name| name.get_ref());
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_BYTES_MOST || !name.chars().all(fits) || name.starts_with('.') {
            let span = device.name.as_ref().map(Spanned::span);
            let reason = format!(
                "{name:?} cannot be the name of a device: 1 to {NAME_BYTES_MOST} letters, digits, '-', '_' and '.'"
            );
            return Err(self.error(span, reason));
        }
        let mut addresses = Vec::new();
        for text in &device.addresses {
            let with_prefix = text.get_ref().parse::<IpNet>();
            let address = with_prefix.or_else(|_| text.get_ref().parse::<IpAddr>().map(IpNet::from));
            addresses.push(address.map_err(|_| {
                self.error(Some(text.span()), format!("'{}' is not an address, such as 10.77.0.1/24", text.get_ref()))
            })?);
        }
        if addresses.is_empty() {
            return Err(self.error(
                Some(raw.span()),
                "the device needs an address, such as addresses = [\"10.77.0.1/24\"]".into(),
            ));
        }
        let mtu = device.mtu.as_ref().map_or(Ok(DEFAULT_MTU), |mtu| {
            u16::try_from(*mtu.get_ref()).ok().filter(|mtu| MTUS.contains(mtu)).ok_or_else(|| {
                let (least, most) = (MTUS.start(), MTUS.end());
                self.error(Some(mtu.span()), format!("mtu = {} is out of range: {least} to {most}", mtu.get_ref()))
            })
        })?;
        Ok(Device { name: name.to_owned(), addresses, mtu, offload: device.offload.unwrap_or(true) })
    }

    fn listen(&self, address: &Spanned<String>) -> Result<SocketAddr, ConfigError> {
        address.get_ref().parse().map_err(|_| {
            let reason = format!("'{}' is not an address and port, such as 0.0.0.0:7100", address.get_ref());
            self.error(Some(address.span()), reason)
        })
    }

    /// Gives a peer a network.
    fn allow(
        &self,
        text: &Spanned<String>,
        peer: usize,
        device: &Device,
        allowed: &mut Allowed,
        raw: &Raw,
    ) -> Result<(), ConfigError> {
        let with_prefix = text.get_ref().parse::<IpNet>();
        let network = with_prefix.or_else(|_| text.get_ref().parse::<IpAddr>().map(IpNet::from)).map_err(|_| {
            self.error(Some(text.span()), format!("'{}' is not a network, such as 10.0.0.0/8", text.get_ref()))
        })?;
        if network != network.trunc() {
            let reason = format!("{network} is no network: {} is the one around it", network.trunc());
            return Err(self.error(Some(text.span()), reason));
        }
        if let Some(own) = device.addresses.iter().find(|own| network.contains(&own.addr()) && network.prefix_len() > 0)
        {
            let reason = format!("{network} holds this node's own address {}", own.addr());
            return Err(self.error(Some(text.span()), reason));
        }
        allowed.add(network, peer).map_err(|(other, number)| {
            let name = raw.peer.get_index(number).map_or("", |(name, _)| name.get_ref());
            self.error(Some(text.span()), format!("{network} overlaps {other}, which peer '{name}' has"))
        })
    }

    fn fingerprint(
        &self,
        text: &Spanned<String>,
        own: &Identity,
        known: &IndexMap<String, Fingerprint>,
    ) -> Result<Fingerprint, ConfigError> {
        let failed = |error: FingerprintError| self.error(Some(text.span()), error.to_string());
        let fingerprint: Fingerprint = text.get_ref().parse().map_err(failed)?;
        if fingerprint == own.fingerprint() {
            return Err(self.error(Some(text.span()), "this is this node's own key".into()));
        }
        if let Some((other, _)) = known.iter().find(|(_, key)| **key == fingerprint) {
            return Err(self.error(Some(text.span()), format!("peer '{other}' has the same key")));
        }
        Ok(fingerprint)
    }

    fn peer(
        &self,
        raw: &Spanned<RawPeer>,
        fingerprint: Fingerprint,
        own: &Identity,
        listens: bool,
    ) -> Result<Peer, ConfigError> {
        let peer = raw.get_ref();
        let address = peer.address.as_ref().map(|address| self.target(address)).transpose()?;
        if address.is_none() && !listens {
            let reason = "neither end can connect: this node has no [listen], and the peer no address".into();
            return Err(self.error(Some(raw.span()), reason));
        }
        let connections = peer.connections.as_ref().map_or(Ok(DEFAULT_CONNECTIONS), |number| {
            u8::try_from(*number.get_ref()).ok().filter(|number| CONNECTIONS.contains(number)).ok_or_else(|| {
                let (least, most) = (CONNECTIONS.start(), CONNECTIONS.end());
                let reason = format!("connections = {} is out of range: {least} to {most}", number.get_ref());
                self.error(Some(number.span()), reason)
            })
        })?;
        let security = Security::Tls { identity: own.clone(), known: Some(fingerprint), prepared: Prepared::default() };
        Ok(Peer { address, security, connections })
    }

    /// A host and a port.
    fn target(&self, text: &Spanned<String>) -> Result<(String, u16), ConfigError> {
        let wrong = || {
            let reason = format!("'{}' is not host:port, such as 192.0.2.1:7100", text.get_ref());
            self.error(Some(text.span()), reason)
        };
        let (host, port) = text.get_ref().rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let fits = !bare.is_empty() && (bare.parse::<IpAddr>().is_ok() || bare.chars().all(is_name));
        if fits { Ok((bare.to_owned(), port)) } else { Err(wrong()) }
    }

    /// A connection to a peer must not go through the tunnel that it carries.
    fn no_route_to_a_peer(
        &self,
        raw: &Raw,
        peers: &IndexMap<String, Peer>,
        allowed: &Allowed,
    ) -> Result<(), ConfigError> {
        for ((name, peer), raw) in peers.iter().zip(raw.peer.values()) {
            let Some((host, _)) = &peer.address else { continue };
            let through = host.parse().ok().and_then(|address| allowed.peer(address));
            if through.is_some() {
                let span = raw.get_ref().address.as_ref().map(Spanned::span);
                let reason = format!(
                    "{host} is in the allowed addresses: the connection to '{name}' would go through the tunnel itself"
                );
                return Err(self.error(span, reason));
            }
        }
        Ok(())
    }

    fn queue(&self, raw: &RawQueue) -> Result<QueueSettings, ConfigError> {
        let limit = Queue::Bytes(self.within("limit", raw.limit.as_ref(), DEFAULT_LIMIT, &LIMITS)?);
        let default = Pull::default();
        let times = Time::ms(1)..=Time::secs(60);
        let target = self.within("target", raw.target.as_ref(), default.target, &times)?;
        let interval = self.within("interval", raw.interval.as_ref(), default.interval, &times)?;
        let given = raw.target.as_ref().or(raw.interval.as_ref());
        match (raw.discipline.unwrap_or(RawDiscipline::FqCodel), given) {
            (RawDiscipline::FqCodel, _) => {
                Ok(QueueSettings { limit, pull: Some(Pull { target, interval, ..default }) })
            }
            (RawDiscipline::DropTail, None) => Ok(QueueSettings { limit, pull: None }),
            (RawDiscipline::DropTail, Some(time)) => {
                Err(self.error(Some(time.span()), "'target' and 'interval' are of discipline = \"fq_codel\"".into()))
            }
        }
    }

    fn within<T: Copy + PartialOrd + std::fmt::Display>(
        &self,
        key: &str,
        raw: Option<&Spanned<T>>,
        default: T,
        range: &RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        match raw {
            None => Ok(default),
            Some(value) if range.contains(value.get_ref()) => Ok(*value.get_ref()),
            Some(value) => {
                let reason =
                    format!("{key} = {} is out of range: {} to {}", value.get_ref(), range.start(), range.end());
                Err(self.error(Some(value.span()), reason))
            }
        }
    }

    fn node_name(&self, name: &Spanned<String>) -> Result<String, ConfigError> {
        if is_node_name(name.get_ref()) {
            return Ok(name.get_ref().clone());
        }
        let reason = format!("{:?} cannot be the name of a node: letters, digits, '-', '_' and '.'", name.get_ref());
        Err(self.error(Some(name.span()), reason))
    }

    fn error(&self, span: Option<Range<usize>>, reason: String) -> ConfigError {
        let line = span.and_then(|span| self.text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
        ConfigError { file: self.file.into(), line, reason }
    }
}

#[cfg(test)]
mod tests;
