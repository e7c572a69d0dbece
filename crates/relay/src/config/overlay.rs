//! The nodes of the overlay, as a configuration knows them.
//!
//! `Overlay::exit` says which node is near a destination, and when that cannot be said.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ekiden_keys::{Fingerprint, Identity};
use ekiden_net::privileges::may_write_into;
use ekiden_overlay::member::{Member, Position, check_price};
use ekiden_registry::{Roster, Settings};
use ekiden_relay_proto::{Host, Target};
use ekiden_transport::{Prepared, Security};
use ekiden_units::is_node_name;
use indexmap::IndexMap;

use super::pattern::Pattern;
use super::route::Auto;
use super::{Config, Listener, ListenerKind, Peer, Tcp};

/// The overlay that a node is of.
#[derive(Debug, Clone, PartialEq)]
pub struct Overlay {
    /// Where its nodes were read from, if from a file.
    pub members_file: Option<PathBuf>,
    /// Where they are registered, if in etcd.
    pub etcd: Option<Box<Settings>>,
    /// The socket file on which other programs ask of paths.
    pub ask_socket: Option<PathBuf>,
    /// Its nodes by name, this one among them if it is listed.
    pub members: IndexMap<String, OverlayNode>,
    /// Its nodes that are not there, and the destinations that they are near.
    pub absent: IndexMap<String, Vec<Pattern>>,
    /// Whether its nodes are known. Those in etcd are when it has told them, or the file `members_cache`.
    pub is_known: bool,
}

/// A node of the overlay. Its address and key are those of the peer of the same name.
#[derive(Debug, Clone, PartialEq)]
pub struct OverlayNode {
    /// Destinations for which it is the exit.
    pub near: Vec<Pattern>,
    /// Where it stands.
    pub region: Option<String>,
    /// Where that is, for maps.
    pub at: Option<Position>,
    /// What it costs to send through it.
    pub price: f64,
    /// Whether it relays for destinations that it is not near.
    pub relays: bool,
}

impl Overlay {
    /// The files that this node is to make where this process cannot, each as a sentence. The node runs without them.
    pub fn unwritable(&self) -> Vec<String> {
        let cache = self.etcd.as_ref().and_then(|etcd| etcd.members_cache.as_deref());
        let files = [("members_cache", cache), ("ask_socket", self.ask_socket.as_deref())];
        let refused = |(key, file): (&str, Option<&Path>)| {
            let folder = file?.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            // The folder of the cache is made with it.
            let exists = |folder: &&Path| key != "members_cache" || folder.as_os_str().is_empty() || folder.exists();
            let folder = folder.ancestors().find(exists).filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            let error = may_write_into(folder).err()?;
            Some(format!("{key}: a node of this user cannot write into {}: {error}", folder.display()))
        };
        files.into_iter().filter_map(refused).collect()
    }
}

/// What a node becomes part of.
pub(super) struct Joining<'a> {
    pub own_name: &'a str,
    pub identity: &'a Identity,
    /// The TCP settings of connections to nodes that are no [peer.NAME].
    pub tcp: &'a Tcp,
    pub peers: &'a mut IndexMap<String, Peer>,
    pub listeners: &'a mut IndexMap<String, Listener>,
    pub nodes: &'a mut IndexMap<String, OverlayNode>,
}

impl Joining<'_> {
    /// Makes a node a peer, and one that may connect to every leg listener with TLS. The error is a sentence.
    pub fn add(
        &mut self,
        name: &str,
        fingerprint: Fingerprint,
        address: Target,
        node: OverlayNode,
    ) -> Result<(), String> {
        let own = self.identity.fingerprint();
        match (name == self.own_name, own == fingerprint) {
            (true, true) => {
                self.nodes.insert(name.into(), node);
                return Ok(());
            }
            (true, false) => {
                return Err(format!("'{name}' is this node's name, and the key here is not its own, {own}"));
            }
            (false, true) => {
                return Err(format!("'{name}' has this node's own key, and this node's name is '{}'", self.own_name));
            }
            (false, false) => {}
        }
        let known = self.peers.get(name).map(|peer| &peer.security);
        if let Some(Security::Tls { known: Some(known), .. }) = known
            && *known != fingerprint
        {
            return Err(format!("'{name}' has another key here than in [peer.{name}] of the configuration"));
        }
        self.admit(name, fingerprint)?;
        // A peer of the configuration has its own settings.
        if !self.peers.contains_key(name) {
            let (identity, prepared) = (self.identity.clone(), Prepared::default());
            let security = Security::Tls { identity, known: Some(fingerprint), prepared };
            self.peers.insert(name.into(), Peer { address: address.into(), tcp: self.tcp.clone(), security, warm: 0 });
        }
        self.nodes.insert(name.into(), node);
        Ok(())
    }

    fn admit(&mut self, name: &str, fingerprint: Fingerprint) -> Result<(), String> {
        for listener in self.listeners.values_mut() {
            let ListenerKind::Leg(Security::Tls { known, .. }) = &mut listener.kind else { continue };
            if let Some((other, _)) = known.iter().find(|(other, known)| **known == fingerprint && *other != name) {
                return Err(format!("'{name}' has the key of '{other}' in [listen.{}]", listener.name));
            }
            if known.get(name).is_some_and(|other| *other != fingerprint) {
                let listener = &listener.name;
                return Err(format!("'{name}' has another key here than in [listen.{listener}] of the configuration"));
            }
            known.insert(name.into(), fingerprint);
        }
        Ok(())
    }
}

impl OverlayNode {
    /// As a member is registered. The error is a sentence.
    pub(super) fn of(member: &Member) -> Result<Self, String> {
        check_price(member.price)?;
        check_address(&member.address)?;
        let near = patterns(&member.near)?;
        Ok(Self { near, region: member.region.clone(), at: member.at, price: member.price, relays: member.relays })
    }
}

/// Whether others can reach a node there. The error is a sentence.
pub(super) fn check_address(address: &str) -> Result<(), String> {
    let is_any = |target: Target| matches!(target.host, Host::Ip(address) if address.is_unspecified());
    match address.parse().is_ok_and(is_any) {
        true => Err(format!("'{address}' is where a node listens: give the address to which others connect")),
        false => Ok(()),
    }
}

fn patterns(texts: &[String]) -> Result<Vec<Pattern>, String> {
    texts.iter().map(|text| Pattern::parse(text)).collect()
}

impl Config {
    /// The configuration with the nodes of its overlay as etcd has them, and why some of them cannot be used. Nodes that
    /// were added before are removed: the result begins with the configuration as it was read.
    pub fn with_members(&self, roster: &Roster) -> (Self, BTreeMap<String, String>) {
        let (mut config, mut refused) = (self.clone(), BTreeMap::new());
        let (Some(overlay), Some(identity)) = (&mut config.overlay, &config.identity) else { return (config, refused) };
        overlay.is_known = true;
        let (own_name, tcp) = (&config.name, &config.tcp);
        let (peers, listeners, nodes) = (&mut config.peers, &mut config.listeners, &mut overlay.members);
        let mut joining = Joining { own_name, identity, tcp, peers, listeners, nodes };
        let mut members: BTreeMap<&str, Member> =
            roster.members.iter().map(|(name, listed)| (name.as_str(), listed.member.clone())).collect();
        for (name, admission) in &roster.absent {
            match (name == own_name, &overlay.etcd) {
                // Whatever others see of it, this node is here.
                (true, Some(own)) if own.fingerprint == admission.fingerprint => {
                    members.insert(name, admission.member(&own.address));
                }
                _ => match patterns(&admission.near) {
                    Ok(near) => drop(overlay.absent.insert(name.clone(), near)),
                    Err(why) => drop(refused.insert(name.clone(), why)),
                },
            }
        }
        for (name, member) in &members {
            let added = (|| {
                let fingerprint = member.fingerprint.parse::<Fingerprint>().map_err(|error| error.to_string())?;
                let address = member.address.parse::<Target>().map_err(|error| error.to_string())?;
                match is_node_name(name) {
                    true => joining.add(name, fingerprint, address, OverlayNode::of(member)?),
                    false => Err("that is not a node's name".into()),
                }
            })();
            if let Err(why) = added {
                refused.insert((*name).into(), why);
                overlay.absent.insert((*name).into(), patterns(&member.near).unwrap_or_default());
            }
        }
        (config, refused)
    }
}

impl Overlay {
    /// The node at which streams of a route leave the overlay: the one that the route names, otherwise the one near the
    /// destination. `None`: no node is near it.
    ///
    /// # Errors
    /// The node is not known now, for this reason. Then the stream must not take another way, which may not be intended.
    pub fn exit<'a>(&'a self, auto: &'a Auto, target: &Target) -> Result<Option<&'a str>, String> {
        Ok(self.exits(auto, target)?.first().copied())
    }

    /// The same, followed by the other nodes that are near the destination, for the case that it cannot be reached. None
    /// follow a node that the route names.
    pub fn exits<'a>(&'a self, auto: &'a Auto, target: &Target) -> Result<Vec<&'a str>, String> {
        let exits = auto.exit.as_deref().map_or_else(|| self.near(target), |exit| vec![exit]);
        if !exits.is_empty() {
            return Ok(exits);
        }
        if !self.is_known {
            return Err(format!(
                "which node is near {target} is not known: etcd has not told the overlay's nodes since this one started"
            ));
        }
        match self.absent.iter().find(|(_, near)| near.iter().any(|pattern| pattern.matches(target))) {
            Some((name, _)) => Err(format!("node {name} is near {target}, and is not there now")),
            None => Ok(Vec::new()),
        }
    }

    /// The nodes that are near a destination: first the one whose `near` has the narrowest pattern that matches, and of equals the first.
    fn near(&self, target: &Target) -> Vec<&str> {
        let matching = |node: &OverlayNode| {
            let matching = node.near.iter().filter(|pattern| pattern.matches(target));
            matching.map(Pattern::specificity).max()
        };
        let all = self.members.iter().filter_map(|(name, node)| Some((name.as_str(), matching(node)?)));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(_, specificity)| std::cmp::Reverse(*specificity));
        all.into_iter().map(|(name, _)| name).collect()
    }

    /// The nodes that may be in between on a path.
    pub fn relays(&self, auto: &Auto) -> Vec<&str> {
        let may = |(name, node): &(&String, &OverlayNode)| {
            node.relays
                && auto.relays.as_ref().is_none_or(|relays| relays.contains(name))
                && Self::is_in(node, &auto.regions)
        };
        self.members.iter().filter(may).map(|(name, _)| name.as_str()).collect()
    }

    /// What it costs to send through a node, of those that cost anything.
    pub fn prices(&self) -> BTreeMap<String, f64> {
        let dear = self.members.iter().filter(|(_, node)| node.price > 0.0);
        dear.map(|(name, node)| (name.clone(), node.price)).collect()
    }

    /// Whether a node of this name may be the last of a path.
    pub fn may_be_exit(&self, name: &str, auto: &Auto) -> bool {
        auto.regions.is_empty() || self.members.get(name).is_some_and(|node| Self::is_in(node, &auto.regions))
    }

    fn is_in(node: &OverlayNode, regions: &[String]) -> bool {
        regions.is_empty() || node.region.as_ref().is_some_and(|region| regions.contains(region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(near: &[&str], region: &str, relays: bool) -> OverlayNode {
        let near = near.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        OverlayNode { near, region: Some(region.into()), at: None, price: 0.0, relays }
    }

    fn overlay() -> Overlay {
        let members = [
            ("everywhere", node(&["*"], "eu", true)),
            ("tokyo", node(&["203.0.113.0/24", ".example.jp"], "asia", true)),
            ("osaka", node(&["203.0.113.128/25", "www.example.jp", ".example.jp"], "asia", false)),
        ];
        let members = members.into_iter().map(|(name, node)| (name.to_owned(), node)).collect();
        Overlay { members_file: None, etcd: None, ask_socket: None, members, absent: IndexMap::new(), is_known: true }
    }

    #[test]
    fn what_is_near_a_node_that_is_not_there_goes_to_another_one_near_it_or_nowhere() {
        let mut overlay = overlay();
        let auto = Auto::default();
        let exit = |overlay: &Overlay, target: &str| {
            overlay.exit(&auto, &target.parse().unwrap()).map(|exit| exit.map(str::to_owned))
        };
        let away = overlay.members.shift_remove("tokyo").unwrap();
        overlay.absent.insert("tokyo".into(), away.near);
        assert_eq!(exit(&overlay, "203.0.113.1:80").unwrap().as_deref(), Some("everywhere"));
        overlay.members.shift_remove("everywhere");
        assert_eq!(
            exit(&overlay, "203.0.113.1:80").unwrap_err(),
            "node tokyo is near 203.0.113.1:80, and is not there now"
        );
        assert_eq!(exit(&overlay, "203.0.113.200:80").unwrap().as_deref(), Some("osaka"));
        let all = self::overlay();
        let exits = |auto: &Auto| all.exits(auto, &"203.0.113.200:80".parse().unwrap()).unwrap().join(" ");
        assert_eq!(exits(&auto), "osaka tokyo everywhere");
        assert_eq!(
            exits(&Auto { exit: Some("tokyo".into()), ..Auto::default() }),
            "tokyo",
            "no other stands in for it"
        );
        assert_eq!(exit(&overlay, "198.51.100.1:80"), Ok(None), "no node is near it");
        overlay.is_known = false;
        assert!(exit(&overlay, "198.51.100.1:80").unwrap_err().contains("is not known"));
        let named = Auto { exit: Some("paris".into()), ..Auto::default() };
        assert_eq!(overlay.exit(&named, &"198.51.100.1:80".parse().unwrap()), Ok(Some("paris")));
    }

    #[test]
    fn an_address_that_stands_for_any_is_none_of_a_members() {
        let of = |address: &str| {
            let text = format!(r#"{{"address":"{address}","fingerprint":"sha256:00"}}"#);
            OverlayNode::of(&serde_json::from_str(&text).unwrap())
        };
        for any in ["0.0.0.0:7000", "[::]:7000"] {
            assert!(of(any).unwrap_err().starts_with(&format!("'{any}' is where a node listens")));
        }
        for good in ["192.0.2.1:7000", "[2001:db8::1]:7000", "tokyo.example:7000"] {
            of(good).unwrap();
        }
    }

    #[test]
    fn the_narrowest_pattern_says_which_node_is_near() {
        let overlay = overlay();
        let near = |target: &str| overlay.near(&target.parse().unwrap())[0].to_owned();
        assert_eq!(near("203.0.113.1:80"), "tokyo");
        assert_eq!(near("203.0.113.200:80"), "osaka");
        assert_eq!(near("www.example.jp:80"), "osaka");
        assert_eq!(near("other.example.jp:80"), "tokyo");
        assert_eq!(near("example.org:80"), "everywhere");
    }

    #[test]
    fn policies_say_who_may_be_on_a_path() {
        let overlay = overlay();
        let auto = Auto { most_relays: 2, ..Auto::default() };
        assert_eq!(overlay.relays(&auto), ["everywhere", "tokyo"]);
        let asia = Auto { regions: vec!["asia".into()], ..auto.clone() };
        assert_eq!(overlay.relays(&asia), ["tokyo"]);
        assert!(overlay.may_be_exit("osaka", &asia) && !overlay.may_be_exit("everywhere", &asia));
        let one = Auto { relays: Some(vec!["everywhere".into()]), ..auto };
        assert_eq!(overlay.relays(&one), ["everywhere"]);
    }
}
