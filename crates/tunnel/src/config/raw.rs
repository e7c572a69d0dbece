//! The configuration file as it is written. [`super::resolve`] checks it and puts in the defaults.

use ekiden_units::{Bytes, Time};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_spanned::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    pub name: Option<Spanned<String>>,
    pub key_file: Option<Spanned<String>>,
    pub device: Spanned<RawDevice>,
    pub listen: Option<Spanned<RawListen>>,
    #[serde(default)]
    pub tcp: RawTcp,
    #[serde(default)]
    pub queue: RawQueue,
    pub keepalive: Option<Spanned<Time>>,
    pub peer: IndexMap<Spanned<String>, Spanned<RawPeer>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDevice {
    pub name: Option<Spanned<String>>,
    pub addresses: Vec<Spanned<String>>,
    pub mtu: Option<Spanned<u32>>,
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
    pub congestion: Option<String>,
    pub send_buffer: Option<Bytes>,
    pub receive_buffer: Option<Bytes>,
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
    pub allowed: Vec<Spanned<String>>,
    pub connections: Option<Spanned<u32>>,
}
