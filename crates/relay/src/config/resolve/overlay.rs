//! `[overlay]`, its members file, and routes over it.

use std::ops::Range;
use std::path::Path;

use ekiden_files::{explain, read_config};
use ekiden_keys::Fingerprint;
use ekiden_overlay::member::Member;
use ekiden_overlay::path::Class;
use ekiden_relay_proto::Target;
use ekiden_transport::{Prepared, Security};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_spanned::Spanned;

use super::super::keys::range;
use super::super::overlay::{Overlay, OverlayNode};
use super::super::raw::{RELAYS, RawClass, RawOverlay, RawRoute};
use super::super::{Listener, ListenerKind, Peer, Tcp};
use super::{OwnKey, Result, Source};
use crate::config::route::{Auto, Way};

/// A members file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMembers {
    node: IndexMap<Spanned<String>, Spanned<Member>>,
}

/// A node of a members file, and where it stands there.
struct ReadMember {
    name: String,
    at: Range<usize>,
    fingerprint: Fingerprint,
    address: Target,
    node: OverlayNode,
}

/// Whether the text of a members file can be used.
pub(in crate::config) fn check_members(text: &str, file: &Path) -> Result<()> {
    Source { text, file }.members().map(drop)
}

/// What a configuration says of this node, for its overlay.
pub(super) struct Own<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its key, if it has one.
    pub key: Option<&'a OwnKey>,
    /// The TCP settings of connections to nodes that are no [peer.NAME].
    pub tcp: &'a Tcp,
}

impl Source<'_> {
    /// Reads the members, and makes them peers, and nodes that may connect to every leg listener with TLS.
    pub(super) fn overlay(
        &self,
        raw: &Spanned<RawOverlay>,
        own: &Own<'_>,
        peers: &mut IndexMap<String, Peer>,
        listeners: &mut IndexMap<String, Listener>,
    ) -> Result<Overlay> {
        let members_file = self.beside(&raw.get_ref().members_file);
        let Some((identity, _)) = own.key else {
            let message = "an overlay needs this node's own key: make one with `ekiden keygen FILE`, and say key_file = \"FILE\" at the top";
            return Err(self.error(Some(raw.span()), message.into()));
        };
        let text = read_config(&members_file)?;
        let file = Source { text: &text, file: &members_file };
        let mut nodes = IndexMap::new();
        for ReadMember { name, at, fingerprint, address, node } in file.members()? {
            let at = Some(at);
            nodes.insert(name.clone(), node);
            let is_own_key = identity.fingerprint() == fingerprint;
            match (name == own.name, is_own_key) {
                (true, true) => continue,
                (true, false) => {
                    let message = format!(
                        "'{name}' is this node's name, and the key here is not its own, {}",
                        identity.fingerprint()
                    );
                    return Err(file.error(at, message));
                }
                (false, true) => {
                    let message = format!("'{name}' has this node's own key, and this node's name is '{}'", own.name);
                    return Err(file.error(at, message));
                }
                (false, false) => {}
            }
            match peers.get(&name).map(|peer| &peer.security) {
                None => {
                    let security = Security::Tls {
                        identity: identity.clone(),
                        known: Some(fingerprint),
                        prepared: Prepared::default(),
                    };
                    peers.insert(name.clone(), Peer { address, tcp: own.tcp.clone(), security, warm: 0 });
                }
                Some(Security::Tls { known, .. }) if known.is_some_and(|known| known != fingerprint) => {
                    return Err(file.error(
                        at,
                        format!("'{name}' has another key here than in [peer.{name}] of the configuration"),
                    ));
                }
                // A peer of the configuration has its own settings.
                Some(_) => {}
            }
            admit(&name, fingerprint, listeners).map_err(|message| file.error(at, message))?;
        }
        Ok(Overlay { members_file, members: nodes })
    }

    /// The nodes of a members file.
    fn members(&self) -> Result<Vec<ReadMember>> {
        let raw: RawMembers =
            toml::from_str(self.text).map_err(|error| self.error(error.span(), explain(self.text, &error)))?;
        let mut keys: IndexMap<Fingerprint, String> = IndexMap::new();
        let mut all = Vec::new();
        for (written, member) in &raw.node {
            let at = member.span();
            let (name, member) = (self.node_name(written)?, member.get_ref());
            let fingerprint: Fingerprint = self.parsed(&member.fingerprint, Some(at.clone()))?;
            if let Some(other) = keys.insert(fingerprint, name.clone()) {
                return Err(self.error(Some(at), format!("'{name}' has the same key as '{other}'")));
            }
            if !(member.price.is_finite() && member.price >= 0.0) {
                return Err(self.error(Some(at), format!("the price of '{name}' must be a number from 0")));
            }
            let near = member.near.iter().map(|text| Spanned::new(at.clone(), text.clone()));
            let near = self.patterns(&near.collect::<Vec<_>>())?;
            let address = self.parsed(&member.address, Some(at.clone()))?;
            let node = OverlayNode { near, region: member.region.clone(), price: member.price, relays: member.relays };
            all.push(ReadMember { name, at, fingerprint, address, node });
        }
        Ok(all)
    }

    /// The way of a route with `via = "auto"`.
    pub(super) fn auto(&self, raw: &RawRoute, overlay: Option<&Overlay>) -> Result<Way> {
        let Some(overlay) = overlay else {
            let message =
                "via = \"auto\" needs the nodes to choose from: say [overlay] with members_file = \"FILE\"".into();
            return Err(self.error(raw.via.as_ref().map(Spanned::span), message));
        };
        let member = |name: &Spanned<String>| match overlay.members.contains_key(name.get_ref()) {
            true => Ok(name.get_ref().clone()),
            false => {
                let message = format!("'{}' is no node of {}", name.get_ref(), overlay.members_file.display());
                Err(self.error(Some(name.span()), message))
            }
        };
        let region = |name: &Spanned<String>| {
            let is_there = overlay.members.values().any(|node| node.region.as_ref() == Some(name.get_ref()));
            match is_there {
                true => Ok(name.get_ref().clone()),
                false => Err(self
                    .error(Some(name.span()), format!("no node of the overlay is in the region '{}'", name.get_ref()))),
            }
        };
        if let Some(most) = raw.most_relays.as_ref().filter(|most| !RELAYS.contains(most.get_ref())) {
            return Err(self.error(Some(most.span()), format!("most_relays must be from {}", range(&RELAYS))));
        }
        let relays =
            raw.relays.as_ref().map(|all| all.get_ref().iter().map(member).collect::<Result<_>>()).transpose()?;
        let regions = raw.regions.iter().flat_map(Spanned::get_ref).map(region).collect::<Result<_>>()?;
        let auto = Auto {
            exit: raw.exit.as_ref().map(member).transpose()?,
            class: raw.class.as_ref().map_or(Class::Bulk, |class| match class.get_ref() {
                RawClass::Bulk => Class::Bulk,
                RawClass::Interactive => Class::Interactive,
            }),
            relays,
            regions,
            most_relays: raw.most_relays.as_ref().map_or(2, |most| most.get_ref().0 as usize),
        };
        if let Some(exit) = raw.exit.as_ref().filter(|exit| !overlay.may_be_exit(exit.get_ref(), &auto)) {
            let message = format!("no path is left: the exit '{}' is in none of the route's regions", exit.get_ref());
            return Err(self.error(Some(exit.span()), message));
        }
        Ok(Way::Auto(auto))
    }

    /// What only a route with `via = "auto"` has.
    pub(super) fn refuse_auto_keys(&self, raw: &RawRoute) -> Result<()> {
        let spans = [
            ("exit", raw.exit.as_ref().map(Spanned::span)),
            ("class", raw.class.as_ref().map(Spanned::span)),
            ("relays", raw.relays.as_ref().map(Spanned::span)),
            ("regions", raw.regions.as_ref().map(Spanned::span)),
            ("most_relays", raw.most_relays.as_ref().map(Spanned::span)),
        ];
        match spans.into_iter().find_map(|(key, span)| Some((key, span?))) {
            Some((key, span)) => Err(self.error(Some(span), format!("'{key}' is for routes with via = \"auto\""))),
            None => Ok(()),
        }
    }

    fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(&self, text: &str, at: Option<Range<usize>>) -> Result<T> {
        text.parse().map_err(|error| self.error(at, format!("{error}")))
    }
}

/// Lets a member connect to the leg listeners with TLS.
fn admit(name: &str, fingerprint: Fingerprint, listeners: &mut IndexMap<String, Listener>) -> Result<(), String> {
    for listener in listeners.values_mut() {
        let ListenerKind::Leg(Security::Tls { known, .. }) = &mut listener.kind else { continue };
        if let Some((other, _)) = known.iter().find(|(other, known)| **known == fingerprint && other.as_str() != name) {
            return Err(format!("'{name}' has the key of '{other}' in [listen.{}]", listener.name));
        }
        match known.get(name) {
            Some(other) if *other != fingerprint => {
                return Err(format!(
                    "'{name}' has another key here than in [listen.{}] of the configuration",
                    listener.name
                ));
            }
            _ => known.insert(name.into(), fingerprint),
        };
    }
    Ok(())
}
