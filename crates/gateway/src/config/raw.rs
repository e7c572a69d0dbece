//! The configuration file as it is written. [`super::resolve`] checks it and puts in the defaults.

use ekiden_units::{Fraction, Time};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_spanned::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    pub device: Spanned<String>,
    pub ipv4_streams: Option<Spanned<i64>>,
    pub ipv6_streams: Option<Spanned<i64>>,
    pub idle: Option<Spanned<Time>>,
    pub restart_within: Option<Spanned<Time>>,
    #[serde(default)]
    pub group: IndexMap<Spanned<String>, Spanned<RawGroup>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawGroup {
    pub sources: Spanned<Vec<Spanned<String>>>,
    pub destinations: Option<Spanned<Vec<Spanned<String>>>>,
    pub source_ports: Option<Spanned<RawPorts>>,
    pub destination_ports: Option<Spanned<RawPorts>>,
    pub policy: Option<RawPolicy>,
    pub repeats: Option<Spanned<i64>>,
    pub part: Option<Spanned<Fraction>>,
    pub observes: Option<Spanned<RawObserved>>,
    pub hold: Option<Spanned<Time>>,
    pub shortest_rtt: Option<Spanned<Time>>,
    pub assumed_scale: Option<Spanned<i64>>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub enum RawPolicy {
    Delivered,
    Paper,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub enum RawObserved {
    Acknowledged,
    Sent,
}

/// A port, or a range such as "6000-6100".
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "neither a port nor a range such as \"6000-6100\", of 1 to 65535; several ports apart need a group each"
)]
pub enum RawPorts {
    One(i64),
    Range(String),
}

/// Where an unknown key, in `[group.NAME]` or above all groups, would be known.
pub fn right_place(key: &str, is_in_group: bool) -> Option<&'static str> {
    match is_in_group {
        true => fields::<Raw>().contains(&key.into()).then_some("it belongs above the first [group.…]"),
        false => fields::<RawGroup>().contains(&key.into()).then_some("it belongs into [group.NAME]"),
    }
}

/// Every key of a configuration with the table that it is in, as serde knows them, for the guide.
#[cfg(test)]
pub fn every_key() -> Vec<String> {
    let keys = [("", fields::<Raw>()), ("group.NAME.", fields::<RawGroup>())];
    let all = keys.into_iter().flat_map(|(table, keys)| keys.into_iter().map(move |key| format!("{table}{key}")));
    all.filter(|key| key != "group").collect()
}

/// The fields of a table, which its error about an unknown one lists.
fn fields<T: serde::de::DeserializeOwned>() -> Vec<String> {
    let error =
        toml::from_str::<T>("no_such_key = 1").err().map(|error| error.message().to_owned()).unwrap_or_default();
    error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}
