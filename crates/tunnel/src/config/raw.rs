//! The configuration file as it is written. [`super::resolve`] checks it and puts in the defaults.

use ekiden_bpf::named::RawCongestion;
use ekiden_units::{BitRate, Bytes, Time};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_spanned::Spanned;

use crate::protocol::Protocol;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    pub name: Option<Spanned<String>>,
    pub key_file: Option<Spanned<String>>,
    pub device: Option<Spanned<RawDevice>>,
    pub listen: Option<Spanned<RawListen>>,
    #[serde(default)]
    pub tcp: RawTcp,
    pub congestion: Option<Spanned<RawCongestion>>,
    #[serde(default)]
    pub queue: RawQueue,
    pub keepalive: Option<Spanned<Time>>,
    #[serde(default)]
    pub peer: IndexMap<Spanned<String>, Spanned<RawPeer>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDevice {
    pub name: Option<Spanned<String>>,
    pub addresses: Vec<Spanned<String>>,
    pub mtu: Option<Spanned<i64>>,
    pub offload: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawListen {
    pub address: Spanned<String>,
    pub plain_key_file: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct RawTcp {
    pub congestion: Option<Spanned<String>>,
    pub pacing: Option<Spanned<BitRate>>,
    pub send_buffer: Option<Spanned<Bytes>>,
    pub receive_buffer: Option<Spanned<Bytes>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct RawQueue {
    pub discipline: Option<RawDiscipline>,
    pub limit: Option<Spanned<Bytes>>,
    pub target: Option<Spanned<Time>>,
    pub interval: Option<Spanned<Time>>,
    pub unsent: Option<Spanned<Bytes>>,
    pub paced: Option<Spanned<bool>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum RawDiscipline {
    DropTail,
    FqCodel,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPeer {
    pub address: Option<Spanned<String>>,
    pub fingerprint: Option<Spanned<String>>,
    pub plain_key_file: Option<Spanned<String>>,
    pub allowed: Spanned<Vec<Spanned<String>>>,
    pub connections: Option<Spanned<i64>>,
    #[serde(default)]
    pub class: Vec<Spanned<RawClass>>,
    pub http_proxy: Option<Spanned<String>>,
    pub http_proxy_user: Option<Spanned<String>>,
    pub http_proxy_password_file: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawClass {
    pub name: Spanned<String>,
    pub protocol: Option<Protocol>,
    #[serde(default)]
    pub ports: Vec<Spanned<RawPorts>>,
    pub connections: Option<Spanned<i64>>,
}

/// A port, or a range such as "6000-6100".
#[derive(Deserialize)]
#[serde(untagged)]
pub enum RawPorts {
    One(i64),
    Range(String),
}

/// Every key of a configuration with the table that it is in, as serde knows them, for the guide.
#[cfg(test)]
pub fn every_key() -> Vec<String> {
    let keys = [
        ("", fields::<Raw>()),
        ("device.", fields::<RawDevice>()),
        ("listen.", fields::<RawListen>()),
        ("tcp.", fields::<RawTcp>()),
        ("queue.", fields::<RawQueue>()),
        ("peer.NAME.", fields::<RawPeer>()),
    ];
    let tables = ["device", "listen", "tcp", "congestion", "queue", "peer"];
    let all = keys.into_iter().flat_map(|(table, keys)| keys.into_iter().map(move |key| format!("{table}{key}")));
    all.filter(|key| !tables.contains(&key.as_str())).collect()
}

/// The fields of a table, which its error about an unknown one lists.
#[cfg(test)]
fn fields<T: serde::de::DeserializeOwned>() -> Vec<String> {
    let error =
        toml::from_str::<T>("no_such_key = 1").err().map(|error| error.message().to_owned()).unwrap_or_default();
    error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}
