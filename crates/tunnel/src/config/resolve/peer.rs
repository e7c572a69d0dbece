//! The peers of a configuration.

use ekiden_keys::{Fingerprint, FingerprintError, Identity};
use ekiden_transport::segments::Segments;
use ekiden_transport::{Prepared, Security};
use ekiden_units::HostPort;
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::Resolver;
use crate::allowed::Allowed;
use crate::config::raw::{Raw, RawPeer};
use crate::config::{ConfigError, Device, Listen, Peer};

/// The peers by name, and which has which addresses.
type Peers = (IndexMap<String, Peer>, Allowed);

impl Resolver<'_> {
    pub fn peers(
        &self,
        raw: &Raw,
        own_name: &str,
        own: Option<&Identity>,
        device: &Device,
    ) -> Result<Peers, ConfigError> {
        if raw.peer.is_empty() {
            return Err(self.error(None, "the file needs a table [peer.NAME] for the node at the other end".into()));
        }
        let (mut peers, mut allowed) = (IndexMap::new(), Allowed::default());
        for (number, (name, spanned)) in raw.peer.iter().enumerate() {
            let peer = spanned.get_ref();
            if peer.allowed.get_ref().is_empty() {
                let reason =
                    "the peer needs its networks, such as allowed = [\"10.77.0.2/32\"]: without, nothing goes to it";
                return Err(self.error(Some(peer.allowed.span()), reason.into()));
            }
            for network in peer.allowed.get_ref() {
                self.allow(network, number, device, &mut allowed, raw)?;
            }
            let security = self.security(spanned, own, &peers)?;
            let name_of = self.node_name(name)?;
            if matches!(security, Security::Plain(_)) && name_of == own_name {
                let reason = "the peer has this node's own name: nodes that share a key are told apart by their names";
                return Err(self.error(Some(name.span()), reason.into()));
            }
            let address = peer.address.as_ref().map(|address| self.target(address)).transpose()?;
            let http_proxy = self.http_proxy(spanned)?;
            let classes = self.classes(spanned)?;
            let segments = Segments::default();
            peers.insert(name_of, Peer { address, security, http_proxy, classes, segments });
        }
        self.no_route_to_a_peer(raw, &peers, device, &allowed)?;
        Ok((peers, allowed))
    }

    /// How a peer is authenticated.
    fn security(
        &self,
        raw: &Spanned<RawPeer>,
        own: Option<&Identity>,
        others: &IndexMap<String, Peer>,
    ) -> Result<Security<Option<Fingerprint>>, ConfigError> {
        let peer = raw.get_ref();
        match (&peer.fingerprint, &peer.plain_key_file) {
            (Some(fingerprint), Some(_)) => {
                let reason = "either fingerprint, for TLS, or plain_key_file, for connections without encryption";
                Err(self.error(Some(fingerprint.span()), reason.into()))
            }
            (None, None) => {
                let reason = "the peer needs its fingerprint, which `ekiden keygen --show` prints there (or, without \
                              encryption, plain_key_file)";
                Err(self.error(Some(raw.span()), reason.into()))
            }
            (None, Some(file)) => Ok(Security::Plain(self.shared_key(file)?)),
            (Some(text), None) => {
                let identity = self.needed(own, raw.span())?;
                let known = Some(self.fingerprint(text, &identity, others)?);
                Ok(Security::Tls { identity, known, prepared: Prepared::default() })
            }
        }
    }

    fn fingerprint(
        &self,
        text: &Spanned<String>,
        own: &Identity,
        others: &IndexMap<String, Peer>,
    ) -> Result<Fingerprint, ConfigError> {
        let failed = |error: FingerprintError| self.error(Some(text.span()), error.to_string());
        let fingerprint: Fingerprint = text.get_ref().parse().map_err(failed)?;
        if fingerprint == own.fingerprint() {
            return Err(self.error(
                Some(text.span()),
                "this is this node's own key: write the fingerprint that `ekiden keygen` has printed on the other node"
                    .into(),
            ));
        }
        let has_it =
            |peer: &Peer| matches!(peer.security, Security::Tls { known: Some(key), .. } if key == fingerprint);
        if let Some((other, _)) = others.iter().find(|(_, peer)| has_it(peer)) {
            return Err(self.error(Some(text.span()), format!("peer '{other}' has the same key")));
        }
        Ok(fingerprint)
    }

    /// A host and a port.
    pub(super) fn target(&self, text: &Spanned<String>) -> Result<(String, u16), ConfigError> {
        let place: Result<HostPort, _> = text.get_ref().parse();
        let place = place.map_err(|error| self.error(Some(text.span()), error.to_string()))?;
        Ok((place.host.bare(), place.port))
    }

    /// A peer without an address can connect to this node.
    pub fn can_connect(
        &self,
        raw: &Raw,
        peers: &IndexMap<String, Peer>,
        listen: Option<&Listen>,
    ) -> Result<(), ConfigError> {
        for (peer, raw) in peers.values().zip(raw.peer.values()).filter(|(peer, _)| peer.address.is_none()) {
            let reason = match (listen.map(|listen| &listen.security), &peer.security) {
                (None, _) => "neither end can connect: this node has no [listen], and the peer no address",
                (Some(Security::Tls { .. }), Security::Plain(_)) => {
                    "the peer has no address and cannot connect either: its plain_key_file is not in [listen]"
                }
                (Some(Security::Plain(_)), Security::Tls { .. }) => {
                    "the peer has no address and cannot connect either: [listen] has a plain_key_file, and takes no \
                     fingerprints"
                }
                (Some(Security::Plain(ours)), Security::Plain(theirs)) if ours.key != theirs.key => {
                    "the peer has no address and cannot connect either: its plain_key_file holds another key than that in \
                     [listen]"
                }
                _ => continue,
            };
            return Err(self.error(Some(raw.span()), reason.into()));
        }
        Ok(())
    }
}
