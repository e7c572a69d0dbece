//! Checks what a configuration says, and puts in the defaults.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ekiden_bpf::named::{is_name, tunables};
use ekiden_files::{explain, in_range};
use ekiden_keys::{Identity, load_shared};
use ekiden_net::device::NAME_BYTES_MOST;
use ekiden_net::lookup;
use ekiden_net::socket::TcpOptions;
use ekiden_queue::{Pull, Queue};
use ekiden_relay_proto::leg::is_node_name;
use ekiden_transport::{Prepared, Security, SharedKey};
use ekiden_units::{BitRate, Bytes, Time};
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::raw::{Raw, RawDevice, RawDiscipline, RawListen, RawQueue, RawTcp};
use super::{Config, ConfigError, Device, Listen, Peer, QueueSettings};
use crate::frame::{KEEPALIVE_MOST, SILENCES};

mod classes;
mod http_proxy;
mod networks;
mod peer;

const DEFAULT_NAME: &str = "ekiden";
const DEFAULT_DEVICE: &str = "ekiden0";
const DEFAULT_MTU: u16 = 1500;
const DEFAULT_LIMIT: Bytes = Bytes(10_000_000);
const DEFAULT_KEEPALIVE: Time = Time::secs(10);

/// The least that IPv6 wants (RFC 8200, section 5), and the most that a frame holds.
const MTUS: RangeInclusive<u16> = 1280..=65_535;
const LIMITS: RangeInclusive<Bytes> = Bytes::kib(64)..=Bytes::mib(1024);
const BUFFERS: RangeInclusive<Bytes> = Bytes::kib(4)..=Bytes::mib(1024);
const PACING: RangeInclusive<BitRate> = BitRate(8_000)..=BitRate(16_000_000_000);
/// As a scenario's.
const UNSENT: RangeInclusive<Bytes> = Bytes(1)..=Bytes::mib(1024);
const KEEPALIVES: RangeInclusive<Time> = Time::secs(1)..=Time::secs(KEEPALIVE_MOST.as_secs());

/// A configuration, from its text. `file` is where errors say that it is, and what its paths are relative to.
pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
    let source = Source { text, file };
    let raw: Raw = toml::from_str(text).map_err(|error| source.error(error.span(), explain(text, &error)))?;
    source.resolve(&raw)
}

/// The file that errors name, and its text, in which they find the line.
struct Source<'a> {
    text: &'a str,
    file: &'a Path,
}

impl Source<'_> {
    fn resolve(&self, raw: &Raw) -> Result<Config, ConfigError> {
        let name = raw.name.as_ref().map_or(Ok(DEFAULT_NAME.to_owned()), |name| self.node_name(name))?;
        let identity = raw.key_file.as_ref().map(|file| self.identity(file)).transpose()?;
        let device = raw.device.as_ref().ok_or_else(|| {
            self.error(None, "the file needs a table [device], with addresses = [\"10.77.0.1/24\"] or others".into())
        })?;
        let device = self.device(device)?;
        let keepalive = self.within("keepalive", raw.keepalive.as_ref(), DEFAULT_KEEPALIVE, &KEEPALIVES)?;
        let (peers, allowed) = self.peers(raw, &name, identity.as_ref(), &device)?;
        let listen = raw.listen.as_ref().map(|listen| self.listen(listen, &peers, identity.as_ref())).transpose()?;
        self.can_connect(raw, &peers, listen.as_ref())?;
        let tcp = self.tcp(&raw.tcp, keepalive)?;
        let pacing = raw.tcp.pacing.as_ref().map(|rate| self.in_range("tcp.pacing", rate, &PACING)).transpose()?;
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
        let name = device.name.as_ref().map_or(DEFAULT_DEVICE, |name| name.get_ref());
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_BYTES_MOST || !name.chars().all(fits) || name.starts_with('.') {
            let span = device.name.as_ref().map(Spanned::span);
            let reason = format!(
                "{name:?} cannot be the name of a device: 1 to {NAME_BYTES_MOST} letters, digits, '-', '_' and '.'"
            );
            return Err(self.error(span, reason));
        }
        let addresses = self.addresses(raw)?;
        let mtu = device.mtu.as_ref().map_or(Ok(DEFAULT_MTU), |mtu| {
            u16::try_from(*mtu.get_ref()).ok().filter(|mtu| MTUS.contains(mtu)).ok_or_else(|| {
                let (least, most) = (MTUS.start(), MTUS.end());
                self.error(Some(mtu.span()), format!("mtu = {} is out of range: {least} to {most}", mtu.get_ref()))
            })
        })?;
        Ok(Device { name: name.to_owned(), addresses, mtu, offload: device.offload.unwrap_or(true) })
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

    /// A path relative to the configuration.
    fn beside(&self, path: &Spanned<String>) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path.get_ref())
    }

    fn queue(&self, raw: &RawQueue) -> Result<QueueSettings, ConfigError> {
        let limit = Queue::Bytes(self.within("limit", raw.limit.as_ref(), DEFAULT_LIMIT, &LIMITS)?);
        let default = Pull::default();
        let times = Time::ms(1)..=Time::secs(60);
        let target = self.within("target", raw.target.as_ref(), default.target, &times)?;
        let interval = self.within("interval", raw.interval.as_ref(), default.interval, &times)?;
        if let Some(longer) = raw.target.as_ref().or(raw.interval.as_ref()).filter(|_| target > interval) {
            let reason =
                format!("target = {target} is longer than interval = {interval}: no packet would be dropped in time");
            return Err(self.error(Some(longer.span()), reason));
        }
        let unsent = self.within("unsent", raw.unsent.as_ref(), default.unsent, &UNSENT)?;
        let paced = raw.paced.as_ref().map_or(default.paced, |paced| *paced.get_ref());
        let spans = [
            raw.target.as_ref().map(Spanned::span),
            raw.interval.as_ref().map(Spanned::span),
            raw.unsent.as_ref().map(Spanned::span),
            raw.paced.as_ref().map(Spanned::span),
        ];
        match (raw.discipline.unwrap_or(RawDiscipline::FqCodel), spans.into_iter().flatten().next()) {
            (RawDiscipline::FqCodel, _) => {
                Ok(QueueSettings { limit, pull: Some(Pull { target, interval, unsent, paced }) })
            }
            (RawDiscipline::DropTail, None) => Ok(QueueSettings { limit, pull: None }),
            (RawDiscipline::DropTail, Some(span)) => {
                let reason = "'target', 'interval', 'unsent' and 'paced' are of discipline = \"fq_codel\"";
                Err(self.error(Some(span), reason.into()))
            }
        }
    }

    fn tcp(&self, raw: &RawTcp, keepalive: Time) -> Result<TcpOptions, ConfigError> {
        if let Some(name) = raw.congestion.as_ref().filter(|name| !is_name(name.get_ref())) {
            let reason = format!(
                "tcp.congestion: '{}' cannot be a congestion control: 1 to 15 letters, digits, '-' and '_'",
                name.get_ref()
            );
            return Err(self.error(Some(name.span()), reason));
        }
        let buffer = |key: &str, size: &Option<Spanned<Bytes>>| {
            size.as_ref().map(|size| self.in_range(key, size, &BUFFERS)).transpose()
        };
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

    fn within<T: Copy + PartialOrd + Display>(
        &self,
        key: &str,
        raw: Option<&Spanned<T>>,
        default: T,
        range: &RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        raw.map_or(Ok(default), |value| self.in_range(key, value, range))
    }

    fn in_range<T: Copy + PartialOrd + Display>(
        &self,
        key: &str,
        value: &Spanned<T>,
        range: &RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        in_range(key, value.get_ref(), range, ToString::to_string)
            .map_err(|reason| self.error(Some(value.span()), reason))
    }

    fn node_name(&self, name: &Spanned<String>) -> Result<String, ConfigError> {
        if is_node_name(name.get_ref()) {
            return Ok(name.get_ref().clone());
        }
        let reason = format!("{:?} cannot be the name of a node: letters, digits, '-', '_' and '.'", name.get_ref());
        Err(self.error(Some(name.span()), reason))
    }

    fn error(&self, span: Option<Range<usize>>, reason: String) -> ConfigError {
        ConfigError::at(self.file, self.text, span, reason)
    }
}
