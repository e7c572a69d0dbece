//! The configuration file as it is written. [`super::resolve`] checks it and puts in the defaults.

use ekiden_units::{Bytes, Time};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_spanned::Spanned;

use super::Direction;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    pub interval: Option<Spanned<Time>>,
    pub offset: Option<Spanned<String>>,
    pub history: Spanned<String>,
    pub keep: Option<Spanned<Time>>,
    pub prometheus: Option<Spanned<String>>,
    pub key_file: Option<Spanned<String>>,
    #[serde(default)]
    pub target: IndexMap<Spanned<String>, Spanned<RawTarget>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTarget {
    pub server: Option<Spanned<String>>,
    pub fingerprint: Option<Spanned<String>>,
    pub iperf3: Option<Spanned<String>>,
    pub via: Option<Spanned<String>>,
    pub direction: Option<Direction>,
    pub bytes: Option<Spanned<Bytes>>,
    pub duration: Option<Spanned<Time>>,
    pub streams: Option<Spanned<i64>>,
}

/// Every key of a configuration with the table that it is in, for the guide.
#[cfg(test)]
pub fn every_key() -> Vec<String> {
    let fields = |error: toml::de::Error| -> Vec<String> {
        error.message().split('`').skip(3).step_by(2).map(str::to_owned).collect()
    };
    let top = toml::from_str::<Raw>("no_such_key = 1").err().map(fields).unwrap_or_default();
    let target = toml::from_str::<RawTarget>("no_such_key = 1").err().map(fields).unwrap_or_default();
    let target = target.into_iter().map(|key| format!("target.NAME.{key}"));
    top.into_iter().filter(|key| key != "target").chain(target).collect()
}
