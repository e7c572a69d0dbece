//! Checks what a configuration says, and puts in the defaults.

use std::ops::{Deref, RangeInclusive};

use ekiden_config::{Count, Ports, Quantity, Source};
use ekiden_files::line_of;
use ekiden_net::device::NAME_BYTES_MOST;
use ekiden_units::{Fraction, NetworkError, is_node_name, network};
use ekiden_window_balance::{BalanceSettings, ObservedFlow, Policy};
use ipnet::IpNet;
use serde_spanned::Spanned;

use super::raw::{
    self, HOLD, IDLE, PARTS, REPEATS, RESTART_WITHIN, Raw, RawGroup, RawObserved, RawPolicy, SCALES, SHORTEST_RTT,
    STREAMS,
};
use super::{Config, ConfigError, Group};
use crate::kernel::{self, GatewayError};

const SEVERAL_PORTS: &str = "several ports apart need a group each";

const NAMELESS: &str = "the keys of a group stand in one table with its name: [group.NAME], for example [group.tokyo]";

/// The prefix length of IPv6 addresses that stand for those of IPv4.
const MAPPED: u8 = 96;

/// A configuration, from its text.
pub fn parse(source: Source<'_>) -> Result<Config, ConfigError> {
    let Source { text, file } = source;
    if let Some(key) = key_without_group(text) {
        let line = line_of(text, &["group", &key]);
        return Err(ConfigError { line, ..ConfigError::whole(file, NAMELESS) });
    }
    Resolver(source).resolve(&source.read_explained(with_hint)?)
}

/// What a reader has said of the file, with what it cannot know: where a key belongs, and what the simulator alone has.
fn with_hint(said: String) -> String {
    if said.contains(Ports::WRONG) {
        return format!("{said}; {SEVERAL_PORTS}");
    }
    let hint = match said.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        Some((key, place)) => raw::right_place(key, place.starts_with(" in group.")),
        None => said.split_once(".policy: unknown variant `").and_then(|(_, rest)| {
            let is_simulated = ["delay`", "mark`", "drop`"].iter().any(|policy| rest.starts_with(policy));
            is_simulated.then_some("`ekiden simulate` alone has it")
        }),
    };
    match hint {
        Some(hint) => format!("{said}; {hint}"),
        None => said,
    }
}

/// A key that stands in `[group]` itself.
fn key_without_group(text: &str) -> Option<String> {
    let table: toml::Table = toml::from_str(text).ok()?;
    table.get("group")?.as_table()?.iter().find(|(_, group)| !group.is_table()).map(|(key, _)| key.clone())
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
        let device = raw.device.get_ref();
        // As dev_valid_name() in the kernel.
        if matches!(device.as_str(), "" | "." | "..")
            || device.len() > NAME_BYTES_MOST
            || device.contains(|letter: char| "/:".contains(letter) || letter.is_whitespace() || letter.is_control())
        {
            let reason = format!("{device:?} cannot be the name of a network device; `ip link` shows their names");
            return Err(self.error(Some(raw.device.span()), reason));
        }
        let streams = |key: &str, value: Option<&Spanned<Count>>, default: Count| {
            Ok(self.in_range_if_set(key, value, &STREAMS)?.unwrap_or(default).value())
        };
        let ipv4_streams = streams("ipv4_streams", raw.ipv4_streams.as_ref(), raw.ipv4_streams())?;
        let ipv6_streams = streams("ipv6_streams", raw.ipv6_streams.as_ref(), raw.ipv6_streams())?;
        let idle = self.in_range_if_set("idle", raw.idle.as_ref(), &IDLE)?.unwrap_or(raw.idle());
        let restart_within = self.in_range_if_set("restart_within", raw.restart_within.as_ref(), &RESTART_WITHIN)?;
        let restart_within = restart_within.unwrap_or(raw.restart_within());
        let mut groups = Vec::new();
        for (name, group) in &raw.group {
            if !is_node_name(name.get_ref()) {
                let reason = "cannot be the name of a group: 1 to 64 letters, digits, '-', '_' and '.'";
                return Err(self.error(Some(name.span()), format!("{:?} {reason}", name.get_ref())));
            }
            groups.push(Group { name: name.get_ref().clone(), settings: self.group(group)? });
        }
        let config = Config { device: device.clone(), ipv4_streams, ipv6_streams, idle, restart_within, groups };
        config.settings().check().map_err(|error| self.refused(&error, raw))?;
        Ok(config)
    }

    fn group(&self, raw: &Spanned<RawGroup>) -> Result<kernel::Group, ConfigError> {
        let group = raw.get_ref();
        let default = kernel::Group::default();
        let sources = self.networks("sources", &group.sources)?;
        let destinations = match &group.destinations {
            Some(networks) => self.networks("destinations", networks)?,
            None => default.destinations,
        };
        let ports = |key: &str, raw: &Option<Spanned<Ports>>, default: RangeInclusive<u16>| {
            raw.as_ref().map_or(Ok(default), |ports| self.ports(key, ports))
        };
        let scale = |raw: &Spanned<Count>| Ok(self.in_range("assumed_scale", raw, &SCALES)?.value() as u8);
        Ok(kernel::Group {
            sources,
            destinations,
            source_ports: ports("source_ports", &group.source_ports, default.source_ports)?,
            destination_ports: ports("destination_ports", &group.destination_ports, default.destination_ports)?,
            balance: self.balance(group)?,
            assumed_scale: group.assumed_scale.as_ref().map(scale).transpose()?,
        })
    }

    fn balance(&self, raw: &RawGroup) -> Result<BalanceSettings, ConfigError> {
        let default = BalanceSettings::default();
        let policy = match raw.policy {
            Some(RawPolicy::Paper) => Policy::Paper,
            Some(RawPolicy::Delivered) => Policy::Delivered,
            None => default.policy,
        };
        let of_the_paper =
            [("part", raw.part.as_ref().map(Spanned::span)), ("observes", raw.observes.as_ref().map(Spanned::span))];
        let useless = of_the_paper.into_iter().find_map(|(key, span)| Some((key, span?)));
        if let Some((key, span)) = useless.filter(|_| policy != Policy::Paper) {
            return Err(self.error(Some(span), format!("'{key}' needs policy = \"paper\"")));
        }
        let part = |part: &Spanned<Fraction>| Ok(self.in_range("part", part, &PARTS)?.as_f64());
        let hold = self.in_range_if_set("hold", raw.hold.as_ref(), &HOLD)?.unwrap_or(raw.hold());
        let shortest = self.in_range_if_set("shortest_rtt", raw.shortest_rtt.as_ref(), &SHORTEST_RTT)?;
        let repeats = self.in_range_if_set("repeats", raw.repeats.as_ref(), &REPEATS)?.unwrap_or(raw.repeats());
        Ok(BalanceSettings {
            policy,
            repeats: repeats.value(),
            part: raw.part.as_ref().map_or(Ok(default.part), part)?,
            hold: hold.into(),
            shortest_rtt: shortest.unwrap_or(raw.shortest_rtt()).into(),
            observes: match raw.observes.as_ref().map(Spanned::get_ref) {
                Some(RawObserved::Acknowledged) => ObservedFlow::Acknowledged,
                Some(RawObserved::Sent) => ObservedFlow::Sent,
                None => default.observes,
            },
            ..default
        })
    }

    fn networks(&self, key: &str, raw: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<IpNet>, ConfigError> {
        if raw.get_ref().is_empty() {
            return Err(self.error(Some(raw.span()), format!("{key} is empty, so that no stream is in the group")));
        }
        let mut networks = Vec::new();
        for text in raw.get_ref() {
            // An address alone is the network of that host.
            let failed = |reason: String| Err(self.error(Some(text.span()), format!("{key}: {reason}")));
            let network = match network(text.get_ref()) {
                Ok(network) => network,
                Err(error @ (NetworkError::HostBits(_) | NetworkError::Prefix { .. })) => {
                    return failed(error.to_string());
                }
                Err(NetworkError::Network(text)) => {
                    let is_letter = |letter: char| letter.is_ascii_alphabetic();
                    let looks_like_name = !text.contains(':') && text.contains(is_letter);
                    let names = if looks_like_name { "; names are not resolved" } else { "" };
                    let reason = "is neither an address nor a network, such as 10.1.0.5 or 10.1.0.0/16";
                    return failed(format!("{text:?} {reason}{names}"));
                }
            };
            if let IpNet::V6(net) = network
                && let Some(address) = net.addr().to_ipv4_mapped()
                && net.prefix_len() >= MAPPED
            {
                let length = net.prefix_len() - MAPPED;
                return failed(format!("no packet has an address of {network}: write {address}/{length}"));
            }
            networks.push(network);
        }
        Ok(networks)
    }

    fn ports(&self, key: &str, raw: &Spanned<Ports>) -> Result<RangeInclusive<u16>, ConfigError> {
        raw.get_ref()
            .range()
            .ok_or_else(|| self.error(Some(raw.span()), format!("{key}: {}; {SEVERAL_PORTS}", Ports::WRONG)))
    }

    /// What is wrong with the groups together.
    fn refused(&self, error: &GatewayError, raw: &Raw) -> ConfigError {
        let group = |number: usize| raw.group.get_index(number);
        let name = |number: usize| group(number).map_or("", |(name, _)| name.get_ref());
        let span = |number: usize| group(number).map(|(name, _)| name.span());
        match error {
            GatewayError::GroupCount(0) => self.error(
                None,
                "no group is named: a table [group.NAME] with sources = [\"10.1.0.0/16\"] is needed".into(),
            ),
            GatewayError::Overlap(a, b) => {
                let reason = format!(
                    "groups '{}' and '{}' overlap, and neither is more specific wherever both match: give one of them longer \
                     networks or fewer ports, or networks apart",
                    name(*a),
                    name(*b)
                );
                self.error(span(*b), reason)
            }
            GatewayError::NoNetworks(number) => {
                let reason =
                    format!("group '{}' has sources and destinations of different IP versions only", name(*number));
                self.error(span(*number), reason)
            }
            other => self.error(None, other.to_string()),
        }
    }
}
