//! The configuration file as it is written. [`super::resolve`] gives it its meaning.

use ekiden_units::{Bytes, Time};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_spanned::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    pub name: Option<Spanned<String>>,
    pub key_file: Option<Spanned<String>>,
    pub threads: Option<Spanned<u16>>,
    pub tcp: Option<Spanned<RawTcp>>,
    pub congestion: Option<Spanned<RawCongestion>>,
    #[serde(default)]
    pub limits: RawLimits,
    #[serde(default)]
    pub listen: IndexMap<Spanned<String>, Spanned<RawListen>>,
    #[serde(default)]
    pub peer: IndexMap<Spanned<String>, Spanned<RawPeer>>,
    #[serde(default)]
    pub route: Vec<Spanned<RawRoute>>,
    #[serde(default)]
    pub exit: RawExit,
}

/// Numbers by algorithm and parameter.
pub type RawCongestion = IndexMap<Spanned<String>, IndexMap<Spanned<String>, Spanned<f64>>>;

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTcp {
    pub congestion: Option<Spanned<String>>,
    pub congestion_fallback: Option<Spanned<String>>,
    pub send_buffer: Option<Spanned<Bytes>>,
    pub receive_buffer: Option<Spanned<Bytes>>,
    pub keepalive: Option<Spanned<Time>>,
    pub user_timeout: Option<Spanned<Time>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    pub connections: Option<Spanned<u32>>,
    pub client_connections: Option<Spanned<u32>>,
    pub client_rate: Option<Spanned<u32>>,
    pub loopback_rate: Option<Spanned<u32>>,
    pub user_connections: Option<Spanned<u32>>,
    pub user_rate: Option<Spanned<u32>>,
    pub memory: Option<Spanned<Bytes>>,
    pub handshake: Option<Spanned<Time>>,
    pub connect: Option<Spanned<Time>>,
    pub response: Option<Spanned<Time>>,
    pub idle: Option<Spanned<Time>>,
    pub lifetime: Option<Spanned<Time>>,
    pub drain: Option<Spanned<Time>>,
    pub head: Option<Spanned<Bytes>>,
    pub headers: Option<Spanned<u32>>,
    pub pool: Option<Spanned<u32>>,
    pub pool_idle: Option<Spanned<Time>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawKind {
    Socks5,
    Http,
    Forward,
    Segment,
    Transparent,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawAccept {
    Early,
    True,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawVersion {
    V1,
    V2,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawListen {
    pub kind: RawKind,
    pub address: Spanned<String>,
    #[serde(default)]
    pub open: bool,
    pub accept: Option<Spanned<RawAccept>>,
    pub users: Option<Spanned<IndexMap<String, String>>>,
    pub to: Option<Spanned<String>>,
    pub via: Option<Spanned<Vec<Spanned<String>>>>,
    pub proxy_protocol: Option<Spanned<RawVersion>>,
    pub proxy_protocol_from: Option<Spanned<Vec<Spanned<String>>>>,
    pub nodes: Option<Spanned<IndexMap<Spanned<String>, Spanned<String>>>>,
    pub plain_key_file: Option<Spanned<String>>,
    pub interfaces: Option<Spanned<Vec<Spanned<String>>>>,
    pub late_interfaces: Option<Spanned<bool>>,
    pub except: Option<Spanned<Vec<Spanned<String>>>>,
    pub bypass: Option<Spanned<bool>>,
    pub tcp: Option<Spanned<RawTcp>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawExit {
    #[serde(default)]
    pub client_addresses: Vec<Spanned<String>>,
    #[serde(default)]
    pub allow: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPeer {
    pub address: Spanned<String>,
    pub fingerprint: Option<Spanned<String>>,
    pub plain_key_file: Option<Spanned<String>>,
    pub warm: Option<Spanned<u32>>,
    pub tcp: Option<Spanned<RawTcp>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRoute {
    pub to: Vec<Spanned<String>>,
    pub via: Option<Spanned<Vec<Spanned<String>>>>,
    pub action: Option<RawAction>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawAction {
    Direct,
    Refuse,
}
