//! The connections to a peer, and the classes of what they carry.

use std::ops::RangeInclusive;

use serde_spanned::Spanned;

use super::Source;
use crate::classes::{Class, Classes};
use crate::config::ConfigError;
use crate::config::raw::{RawClass, RawPeer, RawPorts};
use crate::protocol::Protocol;

const DEFAULT_CONNECTIONS: i64 = 1;
const CONNECTIONS: RangeInclusive<i64> = 1..=64;

impl Source<'_> {
    pub(super) fn classes(&self, peer: &Spanned<RawPeer>) -> Result<Classes, ConfigError> {
        let raw = peer.get_ref();
        let default = self.connections(raw.connections.as_ref())?;
        let mut classes: Vec<Class> = Vec::new();
        for one in &raw.class {
            let name = &one.get_ref().name;
            if classes.iter().any(|other| other.name == *name.get_ref()) {
                return Err(self.error(Some(name.span()), format!("two classes are called '{}'", name.get_ref())));
            }
            classes.push(self.class(one)?);
        }
        let all: i64 = classes.iter().map(|class| i64::from(class.connections)).sum::<i64>() + i64::from(default);
        if !CONNECTIONS.contains(&all) {
            let reason =
                format!("the peer has {all} connections with those of its classes, and may have {}", CONNECTIONS.end());
            return Err(self.error(Some(peer.span()), reason));
        }
        Ok(Classes { default, classes })
    }

    fn class(&self, spanned: &Spanned<RawClass>) -> Result<Class, ConfigError> {
        let raw = spanned.get_ref();
        let name = self.node_name(&raw.name)?;
        let ports = raw.ports.iter().map(|ports| self.ports(ports)).collect::<Result<Vec<_>, _>>()?;
        match (raw.protocol, ports.is_empty()) {
            (None, true) => {
                let reason = "a class needs a protocol or ports: without, it would take everything";
                return Err(self.error(Some(spanned.span()), reason.into()));
            }
            (Some(Protocol::Other), false) => {
                let reason = "only TCP and UDP have ports: protocol = \"other\" goes without";
                return Err(self.error(raw.ports.first().map(Spanned::span), reason.into()));
            }
            _ => {}
        }
        Ok(Class { name, protocol: raw.protocol, ports, connections: self.connections(raw.connections.as_ref())? })
    }

    fn ports(&self, raw: &Spanned<RawPorts>) -> Result<RangeInclusive<u16>, ConfigError> {
        let port = |number: i64| u16::try_from(number).ok().filter(|port| *port > 0);
        let parsed = match raw.get_ref() {
            RawPorts::One(number) => port(*number).map(|port| port..=port),
            RawPorts::Range(text) => text.split_once('-').and_then(|(least, most)| {
                let [least, most] = [least, most].map(|text| port(text.trim().parse().ok()?));
                Some(least?..=most?).filter(|range| !range.is_empty())
            }),
        };
        parsed.ok_or_else(|| {
            let reason = "ports are numbers from 1 to 65535, and ranges such as \"6000-6100\"";
            self.error(Some(raw.span()), reason.into())
        })
    }

    fn connections(&self, raw: Option<&Spanned<i64>>) -> Result<u8, ConfigError> {
        let number = self.within("connections", raw, DEFAULT_CONNECTIONS, &CONNECTIONS)?;
        Ok(u8::try_from(number).unwrap_or(u8::MAX))
    }
}
