//! The connections to a peer, and the classes of what they carry.

use std::ops::RangeInclusive;

use ekiden_config::{Count, Ports, Quantity};
use serde_spanned::Spanned;

use super::Resolver;
use crate::classes::{Class, Classes};
use crate::config::ConfigError;
use crate::config::raw::{CONNECTIONS, RawClass, RawPeer};
use crate::protocol::Protocol;

impl Resolver<'_> {
    pub(super) fn classes(&self, peer: &Spanned<RawPeer>) -> Result<Classes, ConfigError> {
        let raw = peer.get_ref();
        let default = self.connections(raw.connections.as_ref(), raw.connections())?;
        let mut classes: Vec<Class> = Vec::new();
        for one in &raw.class {
            let name = &one.get_ref().name;
            if classes.iter().any(|other| other.name == *name.get_ref()) {
                return Err(self.error(Some(name.span()), format!("two classes are called '{}'", name.get_ref())));
            }
            classes.push(self.class(one)?);
        }
        let all = Count(classes.iter().map(|class| i64::from(class.connections)).sum::<i64>() + i64::from(default));
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
        let ports = raw.ports.iter().flatten().map(|ports| self.ports(ports)).collect::<Result<Vec<_>, _>>()?;
        match (raw.protocol, ports.is_empty()) {
            (None, true) => {
                let reason = "a class needs a protocol or ports: without, it would take everything";
                return Err(self.error(Some(spanned.span()), reason.into()));
            }
            (Some(Protocol::Other), false) => {
                let reason = "only TCP and UDP have ports: protocol = \"other\" goes without";
                return Err(self.error(raw.ports.iter().flatten().next().map(Spanned::span), reason.into()));
            }
            _ => {}
        }
        Ok(Class {
            name,
            protocol: raw.protocol,
            ports,
            connections: self.connections(raw.connections.as_ref(), raw.connections())?,
        })
    }

    fn ports(&self, raw: &Spanned<Ports>) -> Result<RangeInclusive<u16>, ConfigError> {
        raw.get_ref().range().ok_or_else(|| self.error(Some(raw.span()), format!("ports: {}", Ports::WRONG)))
    }

    fn connections(&self, raw: Option<&Spanned<Count>>, number: Count) -> Result<u8, ConfigError> {
        self.in_range_if_set("connections", raw, &CONNECTIONS)?;
        Ok(u8::try_from(number.value()).unwrap_or(u8::MAX))
    }
}
