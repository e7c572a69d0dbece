//! Checks what a configuration says, and puts in the defaults.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::Path;

use ekiden_files::{explain, in_range, line_of};
use ekiden_net::device::NAME_BYTES_MOST;
use ekiden_relay_proto::leg::is_node_name;
use ekiden_units::{Fraction, NetworkError, Time, network};
use ekiden_window_balance::{BalanceSettings, ObservedFlow, Policy};
use ipnet::IpNet;
use serde_spanned::Spanned;

use super::raw::{self, Raw, RawGroup, RawObserved, RawPolicy, RawPorts};
use super::{Config, ConfigError, Group};
use crate::kernel::{self, GatewayError, Settings};

/// The kernel's tables are made whole at the start.
const STREAMS: RangeInclusive<i64> = 1..=10_000_000;
/// The kernel's clock for this wraps after 19 hours.
const IDLE: RangeInclusive<Time> = Time::secs(60)..=Time::secs(19 * 3600);
/// Until a process comes that lets streams lose their places.
const RESTART_WITHIN: RangeInclusive<Time> = Time::ms(0)..=Time::secs(3600);
/// As a scenario's.
const PARTS: RangeInclusive<Fraction> = Fraction(1)..=Fraction::ONE;
const REPEATS: RangeInclusive<i64> = 1..=100_000;
/// Its clock wraps after 71 minutes.
const HOLD: RangeInclusive<Time> = Time::secs(1)..=Time::secs(3600);
/// From 0, with which every stream takes part.
const SHORTEST_RTT: RangeInclusive<Time> = Time::ms(0)..=Time::secs(10);
/// RFC 7323, section 2.3.
const SCALES: RangeInclusive<i64> = 0..=14;

const NAMELESS: &str = "the keys of a group stand in one table with its name: [group.NAME], for example [group.tokyo]";

/// The prefix length of IPv6 addresses that stand for those of IPv4.
const MAPPED: u8 = 96;

/// A configuration, from its text. `file` is where errors say that it is.
pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
    let source = Source { text, file };
    let raw: Raw = toml::from_str(text).map_err(|error| match key_without_group(text) {
        Some(key) => ConfigError {
            file: file.into(),
            line: line_of(text, &["group", &key]),
            reason: NAMELESS.into(),
            is_lack: false,
        },
        None => source.error(error.span(), with_hint(explain(text, &error))),
    })?;
    source.resolve(&raw)
}

/// What a reader has said of the file, with what it cannot know: where a key belongs, and what the simulator alone has.
fn with_hint(said: String) -> String {
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

/// The file that errors name, and its text, in which they find the line.
struct Source<'a> {
    text: &'a str,
    file: &'a Path,
}

impl Source<'_> {
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
        let default = Settings::default();
        let streams = |key: &str, raw: &Option<Spanned<i64>>, default: u32| {
            raw.as_ref().map_or(Ok(default), |number| Ok(self.in_range(key, number, &STREAMS)? as u32))
        };
        let ipv4_streams = streams("ipv4_streams", &raw.ipv4_streams, default.streams4)?;
        let ipv6_streams = streams("ipv6_streams", &raw.ipv6_streams, default.streams6)?;
        let idle = kernel::Idle::default().open.into();
        let idle = raw.idle.as_ref().map_or(Ok(idle), |idle| self.in_range("idle", idle, &IDLE))?;
        let restart_within = raw.restart_within.as_ref();
        let restart_within =
            restart_within.map_or(Ok(Time::ms(0)), |time| self.in_range("restart_within", time, &RESTART_WITHIN))?;
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
        let ports = |key: &str, raw: &Option<Spanned<RawPorts>>, default: RangeInclusive<u16>| {
            raw.as_ref().map_or(Ok(default), |ports| self.ports(key, ports))
        };
        let scale = |raw: &Spanned<i64>| Ok(self.in_range("assumed_scale", raw, &SCALES)? as u8);
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
        let repeats = |repeats: &Spanned<i64>| Ok(self.in_range("repeats", repeats, &REPEATS)? as u32);
        let part = |part: &Spanned<Fraction>| Ok(self.in_range("part", part, &PARTS)?.as_f64());
        let hold = |hold: &Spanned<Time>| Ok(self.in_range("hold", hold, &HOLD)?.into());
        let shortest = |rtt: &Spanned<Time>| Ok(self.in_range("shortest_rtt", rtt, &SHORTEST_RTT)?.into());
        Ok(BalanceSettings {
            policy,
            repeats: raw.repeats.as_ref().map_or(Ok(default.repeats), repeats)?,
            part: raw.part.as_ref().map_or(Ok(default.part), part)?,
            hold: raw.hold.as_ref().map_or(Ok(default.hold), hold)?,
            shortest_rtt: raw.shortest_rtt.as_ref().map_or(Ok(default.shortest_rtt), shortest)?,
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
                Err(error @ NetworkError::HostBits(_)) => return failed(error.to_string()),
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

    fn ports(&self, key: &str, raw: &Spanned<RawPorts>) -> Result<RangeInclusive<u16>, ConfigError> {
        let wrong = || {
            let reason = format!(
                "{key}: neither a port nor a range such as \"6000-6100\", of 1 to 65535; several ports apart need a group each"
            );
            self.error(Some(raw.span()), reason)
        };
        let (first, last) = match raw.get_ref() {
            RawPorts::One(port) => (u16::try_from(*port).ok(), u16::try_from(*port).ok()),
            RawPorts::Range(text) => match text.split_once('-') {
                Some((first, last)) => (first.trim().parse().ok(), last.trim().parse().ok()),
                None => (text.trim().parse().ok(), text.trim().parse().ok()),
            },
        };
        match (first, last) {
            (Some(first), Some(last)) if first > 0 && first <= last => Ok(first..=last),
            _ => Err(wrong()),
        }
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

    fn in_range<T: Copy + PartialOrd + Display>(
        &self,
        key: &str,
        value: &Spanned<T>,
        range: &RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        in_range(key, value.get_ref(), range, ToString::to_string)
            .map_err(|reason| self.error(Some(value.span()), reason))
    }

    fn error(&self, span: Option<Range<usize>>, reason: String) -> ConfigError {
        ConfigError::at(self.file, self.text, span, reason)
    }
}
