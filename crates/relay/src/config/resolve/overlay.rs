//! `[overlay]`, its members file, and routes over it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ekiden_files::read_config;
use ekiden_keys::{Fingerprint, Identity};
use ekiden_overlay::member::{Member, Position, check_price};
use ekiden_registry::{Access, OverlayId, Settings, TEXT_MOST, is_text};
use ekiden_relay_proto::Target;
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::super::overlay::{Joining, Overlay, OverlayNode, check_address};
use super::super::raw::members::{RawMember, RawMembers};
use super::super::raw::{RELAYS, RawEtcd, RawOverlay, RawRoute};
use super::super::{Listener, Peer, Tcp};
use super::{OwnKey, Resolver, Result, given};
use crate::config::pattern::Pattern;
use crate::config::route::{Auto, Way};
use ekiden_config::{ConfigError, range};

/// How long an answer of etcd may take.
const ETCD_TIMEOUT: Duration = Duration::from_secs(3);

/// What fits into `sockaddr_un`, in bytes.
const SOCKET_PATH_MOST: usize = 107;

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
    Resolver::of(text, file).members().map(drop)
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

impl Resolver<'_> {
    /// Reads the members, or how to reach where they are registered, and makes them peers, and nodes that may connect to every leg
    /// listener with TLS.
    pub(super) fn overlay(
        &self,
        raw: &Spanned<RawOverlay>,
        own: &Own<'_>,
        peers: &mut IndexMap<String, Peer>,
        listeners: &mut IndexMap<String, Listener>,
    ) -> Result<Overlay> {
        let Some((identity, _)) = own.key else {
            let message = "an overlay needs this node's own key: make one with `ekiden keygen FILE`, and say key_file = \"FILE\" at the top";
            return Err(self.error(Some(raw.span()), message.into()));
        };
        let mut nodes = IndexMap::new();
        let RawOverlay { members_file, etcd, ask_socket } = raw.get_ref();
        let ask_socket = ask_socket.as_ref().map(|file| self.socket_file(file)).transpose()?;
        let (members_file, at) = match (members_file, etcd) {
            (Some(file), None) => (self.beside(file), file.span()),
            (None, Some(etcd)) => {
                let settings = Some(Box::new(self.etcd(etcd, own.name, identity)?));
                let (absent, is_known) = (IndexMap::new(), false);
                return Ok(Overlay {
                    members_file: None,
                    etcd: settings,
                    ask_socket,
                    members: nodes,
                    absent,
                    is_known,
                });
            }
            _ => {
                let message = "an overlay has its nodes either in members_file = \"FILE\" or in etcd, [overlay.etcd]";
                return Err(self.error(Some(raw.span()), message.into()));
            }
        };
        let text = read_config(&members_file).map_err(|why| self.error(Some(at), format!("members_file: {why}")))?;
        let file = Resolver::of(&text, &members_file);
        let (own_name, tcp) = (own.name, own.tcp);
        let mut joining = Joining { own_name, identity, tcp, peers, listeners, nodes: &mut nodes };
        for ReadMember { name, at, fingerprint, address, node } in file.members()? {
            joining.add(&name, fingerprint, address, node).map_err(|message| file.error(Some(at), message))?;
        }
        let (members_file, absent) = (Some(members_file), IndexMap::new());
        Ok(Overlay { members_file, etcd: None, ask_socket, members: nodes, absent, is_known: true })
    }

    /// The path of a socket file, which the kernel bounds.
    fn socket_file(&self, written: &Spanned<String>) -> Result<PathBuf> {
        let path = self.beside(written);
        match path.as_os_str().len() <= SOCKET_PATH_MOST {
            true => Ok(path),
            false => {
                let message = format!(
                    "'{}' is longer than {SOCKET_PATH_MOST} bytes, the most that a socket's path may have",
                    path.display()
                );
                Err(self.error(Some(written.span()), message))
            }
        }
    }

    /// How this node is registered in etcd.
    fn etcd(&self, raw: &Spanned<RawEtcd>, name: &str, identity: &Identity) -> Result<Settings> {
        let at = Some(raw.span());
        let raw = raw.get_ref();
        let _: Target = self.target(&raw.address)?;
        let expected_id = raw.id.as_ref().map(|id| {
            id.get_ref().parse::<OverlayId>().map_err(|error| self.error(Some(id.span()), error.to_string()))
        });
        let settings = Settings {
            access: Access {
                endpoints: raw.endpoints.get_ref().clone(),
                ca_file: raw.ca_file.as_ref().map(|file| self.beside(file)),
                user: given(&raw.user),
                password_file: raw.password_file.as_ref().map(|file| self.beside(file)),
                timeout: ETCD_TIMEOUT,
            },
            overlay: raw.overlay.get_ref().clone(),
            expected_id: expected_id.transpose()?,
            name: name.into(),
            address: raw.address.get_ref().clone(),
            fingerprint: identity.fingerprint().to_string(),
            lease: raw.lease().into(),
            members_cache: raw.members_cache.as_ref().map(|file| self.beside(file)),
        };
        check_address(&settings.address).map_err(|message| self.error(at.clone(), message))?;
        settings.check().map_err(|error| self.error(at, error.to_string()))?;
        Ok(settings)
    }

    /// The nodes of a members file.
    fn members(&self) -> Result<Vec<ReadMember>> {
        let raw: RawMembers = self.read()?;
        if raw.node.is_empty() {
            let message = "there is no node in it: each begins with [node.NAME], as `ekiden overlay join` writes it";
            return Err(self.error(None, message.into()));
        }
        let mut keys: IndexMap<Fingerprint, String> = IndexMap::new();
        let mut addresses: IndexMap<Target, String> = IndexMap::new();
        let mut all = Vec::new();
        for (written, raw) in raw.node {
            let at = raw.span();
            let (name, raw) = (self.node_name(&written)?, raw.into_inner());
            let fingerprint: Fingerprint =
                raw.fingerprint.get_ref().parse().map_err(self.wrong(&name, "fingerprint", &raw.fingerprint))?;
            if let Some(other) = keys.insert(fingerprint, name.clone()) {
                return Err(self.error(Some(at), format!("'{name}' has the same key as '{other}'")));
            }
            let address: Target = raw.address.get_ref().parse().map_err(self.wrong(&name, "address", &raw.address))?;
            check_address(raw.address.get_ref()).map_err(self.wrong(&name, "address", &raw.address))?;
            if let Some(other) = addresses.insert(address.clone(), name.clone()) {
                let message = format!("'{name}' has the address of '{other}', {address}: one listener is one node's");
                return Err(self.error(Some(at), message));
            }
            let member = self.member(&name, raw)?;
            let node =
                OverlayNode::of(&member).map_err(|why| self.error(Some(at.clone()), format!("'{name}': {why}")))?;
            all.push(ReadMember { name, at, fingerprint, address, node });
        }
        Ok(all)
    }

    /// What is wrong with the value of a member's key.
    fn wrong<T, E: ToString>(&self, name: &str, key: &str, value: &Spanned<T>) -> impl Fn(E) -> ConfigError {
        move |error| self.error(Some(value.span()), format!("node.{name}.{key}: {}", error.to_string()))
    }

    fn member(&self, name: &str, raw: RawMember) -> Result<Member> {
        for near in raw.near.iter().flatten() {
            Pattern::parse(near.get_ref()).map_err(self.wrong(name, "near", near))?;
        }
        if let Some(price) = &raw.price {
            check_price(*price.get_ref()).map_err(self.wrong(name, "price", price))?;
        }
        if let Some(region) = raw.region.as_ref().filter(|region| !is_text(region.get_ref())) {
            let why = format!("{:?} is no region: 1 to {TEXT_MOST} printable bytes", region.get_ref());
            return Err(self.wrong(name, "region", region)(why));
        }
        let at = raw.at.as_ref().map(|at| Position::try_from(at.get_ref().clone()).map_err(self.wrong(name, "at", at)));
        Ok(Member {
            at: at.transpose()?,
            price: raw.price(),
            relays: raw.relays(),
            address: raw.address.into_inner(),
            fingerprint: raw.fingerprint.into_inner(),
            near: raw.near.into_iter().flatten().map(Spanned::into_inner).collect(),
            region: raw.region.map(Spanned::into_inner),
        })
    }

    /// The way of a route with `via = "auto"`.
    pub(super) fn auto(&self, raw: &RawRoute, overlay: Option<&Overlay>, own_name: &str) -> Result<Way> {
        let Some(overlay) = overlay else {
            let message =
                "via = \"auto\" needs the nodes to choose from: say [overlay] with members_file = \"FILE\"".into();
            return Err(self.error(raw.via.as_ref().map(Spanned::span), message));
        };
        // Which nodes are registered is not known before the node runs.
        let member = |name: &Spanned<String>| match &overlay.members_file {
            Some(file) if !overlay.members.contains_key(name.get_ref()) => {
                let message = format!("'{}' is no node of {}", name.get_ref(), file.display());
                Err(self.error(Some(name.span()), message))
            }
            _ => self.node_name(name),
        };
        let region = |name: &Spanned<String>| {
            let is_there = overlay.etcd.is_some()
                || overlay.members.values().any(|node| node.region.as_ref() == Some(name.get_ref()));
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
        let through = raw.through.as_ref().map_or(&[][..], |all| all.get_ref());
        let regions = raw.regions.iter().flat_map(Spanned::get_ref).map(region).collect::<Result<_>>()?;
        let auto = Auto {
            exit: raw.exit.as_ref().map(member).transpose()?,
            relays,
            through: through.iter().map(member).collect::<Result<_>>()?,
            regions,
            most_relays: raw.most_relays.as_ref().map_or(2, |most| most.get_ref().0 as usize),
        };
        if let Some(exit) =
            raw.exit.as_ref().filter(|exit| overlay.etcd.is_none() && !overlay.may_be_exit(exit.get_ref(), &auto))
        {
            let message = format!("no path is left: the exit '{}' is in none of the route's regions", exit.get_ref());
            return Err(self.error(Some(exit.span()), message));
        }
        for (at, node) in through.iter().enumerate() {
            let twice = through[..at].iter().any(|other| other.get_ref() == node.get_ref());
            if let Some(why) = not_between(&auto, overlay, own_name, node.get_ref(), twice) {
                let message = format!("no path is left: '{}', in through, {why}", node.get_ref());
                return Err(self.error(Some(node.span()), message));
            }
        }
        if let Some(all) = raw.through.as_ref().filter(|_| through.len() > auto.most_relays) {
            let message = format!(
                "no path is left: nodes in through: {}, and most_relays is {}",
                through.len(),
                auto.most_relays
            );
            return Err(self.error(Some(all.span()), message));
        }
        Ok(Way::Auto(auto))
    }

    /// What only a route with `via = "auto"` has.
    pub(super) fn refuse_auto_keys(&self, raw: &RawRoute) -> Result<()> {
        let spans = [
            ("exit", raw.exit.as_ref().map(Spanned::span)),
            ("relays", raw.relays.as_ref().map(Spanned::span)),
            ("through", raw.through.as_ref().map(Spanned::span)),
            ("regions", raw.regions.as_ref().map(Spanned::span)),
            ("most_relays", raw.most_relays.as_ref().map(Spanned::span)),
        ];
        match spans.into_iter().find_map(|(key, span)| Some((key, span?))) {
            Some((key, span)) => Err(self.error(Some(span), format!("'{key}' is for routes with via = \"auto\""))),
            None => Ok(()),
        }
    }

    pub(super) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        text: &str,
        at: Option<Range<usize>>,
    ) -> Result<T> {
        text.parse().map_err(|error| self.error(at, format!("{error}")))
    }
}

/// Why no path of the route can have this node in between, as far as the configuration tells.
fn not_between(auto: &Auto, overlay: &Overlay, own_name: &str, node: &str, twice: bool) -> Option<&'static str> {
    let is_listed =
        |names: &Option<Vec<String>>| names.as_ref().is_none_or(|names| names.iter().any(|name| name == node));
    if node == own_name {
        Some("is this node itself")
    } else if auto.exit.as_deref() == Some(node) {
        Some("is the exit")
    } else if twice {
        Some("is there twice")
    } else if !is_listed(&auto.relays) {
        Some("is not in relays")
    } else if overlay.members.get(node).is_some_and(|member| !member.relays) {
        Some("does not relay, by the members file")
    } else if overlay.members.contains_key(node) && !overlay.may_be_exit(node, auto) {
        Some("is in none of the route's regions")
    } else {
        None
    }
}
