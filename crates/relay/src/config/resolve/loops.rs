//! Refuses configurations whose connections would come back to this node.

use std::net::IpAddr;

use ekiden_net::transparent::is_own;
use ekiden_relay_proto::{Host, Target};
use ekiden_units::without_dot;
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::super::raw::{Raw, RawVia};
use super::super::{Listener, ListenerKind, Peer};
use super::{Resolver, Result};
use crate::config::route::{Routes, Way};

impl Resolver<'_> {
    /// Refuses chains that this node is in, peers that are this node, and forwards that lead back to themselves.
    pub(super) fn refuse_loops(
        &self,
        raw: &Raw,
        listeners: &IndexMap<String, Listener>,
        peers: &IndexMap<String, Peer>,
        routes: &Routes,
    ) -> Result<()> {
        let forwards = raw.listen.values().filter_map(|listen| listen.get_ref().via.as_ref()).map(Spanned::get_ref);
        let routes_via = raw.route.iter().filter_map(|route| route.get_ref().via.as_ref()).map(Spanned::get_ref);
        let chains = forwards.chain(routes_via.filter_map(|via| match via {
            RawVia::Chain(chain) => Some(chain),
            RawVia::Auto => None,
        }));
        for name in chains.flatten() {
            if raw.name.as_ref().is_some_and(|own| own.get_ref() == name.get_ref()) {
                let message = format!("'{}' is this node: a chain has the nodes behind it only", name.get_ref());
                return Err(self.error(Some(name.span()), message));
            }
        }
        // Peers of the file come first, in its order; those behind them are members of the overlay.
        for (written, peer) in raw.peer.values().zip(peers.values()) {
            let is_here = |listener: &Listener| matches!(listener.kind, ListenerKind::Leg(_));
            let Ok(target) = Target::try_from(peer.address.clone()) else { continue };
            let own = listeners.iter().find(|(_, listener)| is_here(listener) && takes(listener, &target));
            if let Some((name, _)) = own {
                let message = format!("{} is this node's own: [listen.{name}] takes what comes there", peer.address);
                return Err(self.error(Some(written.get_ref().address.span()), message));
            }
        }
        for (written, (name, listener)) in raw.listen.values().zip(listeners) {
            if leads_back(listener, listeners, routes) {
                let to = written.get_ref().to.as_ref().map(Spanned::span);
                let message = format!("[listen.{name}] would connect to itself: 'to' must lead to another address");
                return Err(self.error(to, message));
            }
        }
        Ok(())
    }
}

/// Whether connections to `first` come to it again, perhaps by way of other forwards.
fn leads_back(first: &Listener, listeners: &IndexMap<String, Listener>, routes: &Routes) -> bool {
    let mut at = first;
    for _ in 0..listeners.len() {
        let ListenerKind::Forward { to, via, .. } = &at.kind else { return false };
        let is_direct = match via {
            Some(chain) => chain.is_empty(),
            None => match routes.way(to) {
                Way::Direct => true,
                Way::Via(chain) => chain.is_empty(),
                Way::Auto(_) | Way::Refuse => false,
            },
        };
        let Some(next) = listeners.values().find(|next| is_direct && takes(next, to)) else { return false };
        if std::ptr::eq(next, first) {
            return true;
        }
        at = next;
    }
    false
}

/// Whether a connection from here to `target` comes to `listener`, as far as that can be known without a name look-up.
fn takes(listener: &Listener, target: &Target) -> bool {
    let own = listener.address.ip();
    let at = |ip: IpAddr| {
        // A connection to the unspecified address reaches this host.
        let here = ip.is_loopback() || ip.is_unspecified() || own.is_unspecified() && is_own(ip);
        let family = own.is_ipv4() == ip.is_ipv4() || own.is_ipv6() && !listener.only_v6;
        ip == own || here && family && (own.is_unspecified() || own.is_loopback() && ip.is_unspecified())
    };
    let host = match &target.host {
        Host::Ip(ip) => at(ip.to_canonical()),
        Host::Name(name) => without_dot(name) == "localhost" && (own.is_loopback() || own.is_unspecified()),
    };
    host && listener.address.port() == target.port
}
