//! The settings of transparent listeners, and of exits that keep the client's address.

use std::net::SocketAddr;

use ekiden_net::device::NAME_BYTES_MOST;
use ekiden_units::network;
use ipnet::IpNet;
use serde_spanned::Spanned;

use super::super::raw::{RawExit, RawListen};
use super::super::{Exit, ListenerKind};
use super::{Resolver, Result};
use crate::config::pattern::Pattern;

impl Resolver<'_> {
    /// The listener's own address has no influence on which connections it takes, and must be a loopback address. Other
    /// machines cannot connect to such an address, and the socket does not match connections to the same port at other
    /// addresses.
    pub(super) fn transparent(&self, spanned: &Spanned<RawListen>, address: SocketAddr) -> Result<ListenerKind> {
        let raw = spanned.get_ref();
        let own = ["127.0.0.1", "::1"].iter().any(|own| own.parse() == Ok(address.ip()));
        if !own || address.port() == 0 {
            let message = format!(
                "a transparent listener has the address 127.0.0.1:PORT for IPv4 or [::1]:PORT for IPv6, not {address}; \
                 'interfaces' says whose connections it takes"
            );
            return Err(self.error(Some(raw.address.span()), message));
        }
        let names = raw.interfaces.as_ref().map(|names| names.get_ref().as_slice()).unwrap_or_default();
        if names.is_empty() {
            let message = "a transparent listener needs interfaces = [\"NAME\"]: those by which its clients' connections \
                           come in";
            return Err(self.error(Some(spanned.span()), message.into()));
        }
        let mut interfaces: Vec<String> = Vec::new();
        for name in names {
            if !is_interface(name.get_ref()) {
                let message = format!("'{}' is not the name of a network interface, such as eth0", name.get_ref());
                return Err(self.error(Some(name.span()), message));
            }
            if !interfaces.contains(name.get_ref()) {
                interfaces.push(name.get_ref().clone());
            }
        }
        let mut except = Vec::new();
        for text in raw.except.iter().flat_map(|texts| texts.get_ref()) {
            let pattern = Pattern::parse(text.get_ref()).map_err(|message| self.error(Some(text.span()), message))?;
            if pattern.addresses().is_none() {
                let message = format!(
                    "'{}' is a name, but a transparent listener sees addresses: use a network (10.0.0.0/8) or *, with or \
                     without :port",
                    text.get_ref()
                );
                return Err(self.error(Some(text.span()), message));
            }
            except.push(pattern);
        }
        Ok(ListenerKind::Transparent { interfaces, late: raw.late_interfaces(), except, bypass: raw.bypass() })
    }

    pub(super) fn exit(&self, raw: &RawExit) -> Result<Exit> {
        let network = |text| self.network(text);
        let client_addresses = raw.client_addresses.iter().flatten().map(network).collect::<Result<_>>()?;
        Ok(Exit { client_addresses, allow: self.destinations(raw.allow.as_deref().unwrap_or_default())? })
    }

    pub(super) fn network(&self, text: &Spanned<String>) -> Result<IpNet> {
        network(text.get_ref()).map_err(|error| self.error(Some(text.span()), error.to_string()))
    }
}

/// Whether this can be the name of an interface and stand in the packet filter's script as it is. `lo` is refused: it carries
/// only traffic of this machine with itself.
fn is_interface(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':' | b'@');
    (1..=NAME_BYTES_MOST).contains(&name.len()) && name.bytes().all(allowed) && name != "lo"
}
