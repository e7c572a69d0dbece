//! The nodes of the overlay, as a configuration knows them.

use std::path::PathBuf;

use ekiden_relay_proto::Target;
use indexmap::IndexMap;

use super::route::{Auto, Pattern};

/// The overlay that a node is of.
#[derive(Debug, Clone, PartialEq)]
pub struct Overlay {
    /// Where its nodes were read from.
    pub members_file: PathBuf,
    /// Its nodes by name, this one among them if it is listed.
    pub members: IndexMap<String, OverlayNode>,
}

/// A node of the overlay. Its address and key are those of the peer of the same name.
#[derive(Debug, Clone, PartialEq)]
pub struct OverlayNode {
    /// Destinations for which it is the exit.
    pub near: Vec<Pattern>,
    /// Where it stands.
    pub region: Option<String>,
    /// What it costs to send through it.
    pub price: f64,
    /// Whether it relays for destinations that it is not near.
    pub relays: bool,
}

impl Overlay {
    /// The node that is near a destination: the one whose `near` has the narrowest pattern that matches, and of equals the first.
    pub fn near(&self, target: &Target) -> Option<&str> {
        let matching = |node: &OverlayNode| {
            let matching = node.near.iter().filter(|pattern| pattern.matches(target));
            matching.map(Pattern::specificity).max()
        };
        let all = self.members.iter().filter_map(|(name, node)| Some((name, matching(node)?)));
        // The first of equals: `max_by_key` takes the last.
        all.rev().max_by_key(|(_, specificity)| *specificity).map(|(name, _)| name.as_str())
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
        OverlayNode { near, region: Some(region.into()), price: 0.0, relays }
    }

    fn overlay() -> Overlay {
        let members = [
            ("everywhere", node(&["*"], "eu", true)),
            ("tokyo", node(&["203.0.113.0/24", ".example.jp"], "asia", true)),
            ("osaka", node(&["203.0.113.128/25", "www.example.jp", ".example.jp"], "asia", false)),
        ];
        let members = members.into_iter().map(|(name, node)| (name.to_owned(), node)).collect();
        Overlay { members_file: PathBuf::new(), members }
    }

    #[test]
    fn the_narrowest_pattern_says_which_node_is_near() {
        let overlay = overlay();
        let near = |target: &str| overlay.near(&target.parse().unwrap()).unwrap().to_owned();
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
