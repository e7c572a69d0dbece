//! Checks what a configuration says, and puts in the defaults.

use std::ops::{Deref, Range};
use std::time::Duration;

use ekiden_bpf::named::tunables;
use ekiden_config::{Quantity, Source};
use ekiden_keys::{Identity, load_shared};
use ekiden_net::device::NAME_BYTES_MOST;
use ekiden_net::lookup;
use ekiden_net::socket::TcpOptions;
use ekiden_queue::{Pull, Queue};
use ekiden_transport::{Prepared, Security, SharedKey};
use ekiden_units::{Bytes, Time, is_control_name, is_node_name};
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::raw::{BUFFERS, KEEPALIVES, MTUS, PACING, Raw, RawDevice, RawDiscipline, RawListen, RawQueue, RawTcp};
use super::{Config, ConfigError, Device, Listen, Peer, QueueSettings};
use crate::frame::SILENCES;

mod classes;
mod http_proxy;
mod networks;
mod peer;

/// A configuration, from its text.
pub fn parse(source: Source<'_>) -> Result<Config, ConfigError> {
    Resolver(source).resolve(&source.read()?)
}

/// What is written in a file, on its way to a configuration.
struct Resolver<'a>(Source<'a>);

impl<'a> Deref for Resolver<'a> {
    type Target = Source<'a>;

    fn deref(&self) -> &Source<'a> {
        &self.0
    }
}

impl Resolver<'_> {
    fn resolve(&self, raw: &Raw) -> Result<Config, ConfigError> {
        raw.name.as_ref().map(|name| self.node_name(name)).transpose()?;
        let name = raw.name();
        let identity = raw.key_file.as_ref().map(|file| self.identity(file)).transpose()?;
        let device = raw.device.as_ref().ok_or_else(|| {
            self.error(None, "the file needs a table [device], with addresses = [\"10.77.0.1/24\"] or others".into())
        })?;
        let device = self.device(device)?;
        self.in_range_if_set("keepalive", raw.keepalive.as_ref(), &KEEPALIVES)?;
        let keepalive = raw.keepalive();
        let (peers, allowed) = self.peers(raw, &name, identity.as_ref(), &device)?;
        let listen = raw.listen.as_ref().map(|listen| self.listen(listen, &peers, identity.as_ref())).transpose()?;
        self.can_connect(raw, &peers, listen.as_ref())?;
        let tcp = self.tcp(&raw.tcp, keepalive)?;
        let pacing = self.in_range_if_set("tcp.pacing", raw.tcp.pacing.as_ref(), &PACING)?;
        let congestion = raw.congestion.as_ref().map(tunables).transpose();
        let congestion = congestion.map_err(|(span, reason)| self.error(Some(span), reason))?;
        let queue = self.queue(&raw.queue)?;
        let key_file = raw.key_file.as_ref().map(|file| self.beside(file));
        Ok(Config {
            name,
            identity,
            key_file,
            device,
            listen,
            tcp,
            pacing,
            congestion,
            queue,
            keepalive,
            peers,
            allowed,
        })
    }

    fn device(&self, raw: &Spanned<RawDevice>) -> Result<Device, ConfigError> {
        let device = raw.get_ref();
        let name = device.name();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_BYTES_MOST || !name.chars().all(fits) || name.starts_with('.') {
            let span = device.name.as_ref().map(Spanned::span);
            let reason = format!(
                "{name:?} cannot be the name of a device: 1 to {NAME_BYTES_MOST} letters, digits, '-', '_' and '.'"
            );
            return Err(self.error(span, reason));
        }
        let addresses = self.addresses(raw)?;
        self.in_range_if_set("mtu", device.mtu.as_ref(), &MTUS)?;
        let mtu = u16::try_from(device.mtu().value()).unwrap_or(u16::MAX);
        Ok(Device { name, addresses, mtu, offload: device.offload() })
    }

    fn listen(
        &self,
        raw: &Spanned<RawListen>,
        peers: &IndexMap<String, Peer>,
        own: Option<&Identity>,
    ) -> Result<Listen, ConfigError> {
        let RawListen { address: text, plain_key_file } = raw.get_ref();
        let address = lookup::listening(text.get_ref())
            .map_err(|error| self.error(Some(text.span()), error.to_string()).of_lack(error.is_lack()))?;
        let security = match plain_key_file {
            Some(file) => Security::Plain(self.shared_key(file)?),
            None => {
                let identity = self.needed(own, raw.span())?;
                let key = |peer: &Peer| match peer.security {
                    Security::Tls { known, .. } => known,
                    Security::Plain(_) => None,
                };
                let known = peers.iter().filter_map(|(name, peer)| Some((name.clone(), key(peer)?))).collect();
                Security::Tls { identity, known, prepared: Prepared::default() }
            }
        };
        Ok(Listen { address, security })
    }

    fn identity(&self, file: &Spanned<String>) -> Result<Identity, ConfigError> {
        Identity::load(&self.beside(file)).map_err(|error| self.error(Some(file.span()), error.to_string()))
    }

    fn shared_key(&self, path: &Spanned<String>) -> Result<SharedKey, ConfigError> {
        let file = self.beside(path);
        let key = load_shared(&file).map_err(|error| self.error(Some(path.span()), error.to_string()))?;
        Ok(SharedKey { key, file })
    }

    /// This node's own key, for what begins at `span`.
    fn needed(&self, own: Option<&Identity>, span: Range<usize>) -> Result<Identity, ConfigError> {
        own.cloned().ok_or_else(|| {
            let reason = "this needs the node's own key: make one with `ekiden keygen FILE`, and say key_file = \"FILE\" at \
                          the top (or, without encryption, plain_key_file here)";
            self.error(Some(span), reason.into())
        })
    }

    fn queue(&self, raw: &RawQueue) -> Result<QueueSettings, ConfigError> {
        self.in_range_if_set("limit", raw.limit.as_ref(), &Pull::LIMITS)?;
        self.in_range_if_set("target", raw.target.as_ref(), &Pull::DELAYS)?;
        self.in_range_if_set("interval", raw.interval.as_ref(), &Pull::DELAYS)?;
        self.in_range_if_set("unsent", raw.unsent.as_ref(), &Pull::UNSENT)?;
        let pull = Pull { target: raw.target(), interval: raw.interval(), unsent: raw.unsent(), paced: raw.paced() };
        if let Some((longer, reason)) = raw.target.as_ref().or(raw.interval.as_ref()).zip(pull.problem()) {
            return Err(self.error(Some(longer.span()), reason));
        }
        let limit = Queue::Bytes(raw.limit());
        let spans = [
            raw.target.as_ref().map(Spanned::span),
            raw.interval.as_ref().map(Spanned::span),
            raw.unsent.as_ref().map(Spanned::span),
            raw.paced.as_ref().map(Spanned::span),
        ];
        match (raw.discipline(), spans.into_iter().flatten().next()) {
            (RawDiscipline::FqCodel, _) => Ok(QueueSettings { limit, pull: Some(pull) }),
            (RawDiscipline::DropTail, None) => Ok(QueueSettings { limit, pull: None }),
            (RawDiscipline::DropTail, Some(span)) => {
                let reason = "'target', 'interval', 'unsent' and 'paced' are of discipline = \"fq_codel\"";
                Err(self.error(Some(span), reason.into()))
            }
        }
    }

    fn tcp(&self, raw: &RawTcp, keepalive: Time) -> Result<TcpOptions, ConfigError> {
        if let Some(name) = raw.congestion.as_ref().filter(|name| !is_control_name(name.get_ref())) {
            let reason = format!(
                "tcp.congestion: '{}' cannot be a congestion control: 1 to 15 letters, digits, '-' and '_'",
                name.get_ref()
            );
            return Err(self.error(Some(name.span()), reason));
        }
        let buffer = |key: &str, size: &Option<Spanned<Bytes>>| self.in_range_if_set(key, size.as_ref(), &BUFFERS);
        Ok(TcpOptions {
            congestion: raw.congestion.as_ref().map(|name| name.get_ref().clone()),
            send_buffer: buffer("tcp.send_buffer", &raw.send_buffer)?,
            receive_buffer: buffer("tcp.receive_buffer", &raw.receive_buffer)?,
            first_window: None,
            keepalive: Some(keepalive.into()),
            // Until the other end has said its own.
            user_timeout: Some(Duration::from(keepalive) * SILENCES),
            max_segment: None,
        })
    }

    fn node_name(&self, name: &Spanned<String>) -> Result<String, ConfigError> {
        if is_node_name(name.get_ref()) {
            return Ok(name.get_ref().clone());
        }
        let reason = format!("{:?} cannot be the name of a node: letters, digits, '-', '_' and '.'", name.get_ref());
        Err(self.error(Some(name.span()), reason))
    }
}
