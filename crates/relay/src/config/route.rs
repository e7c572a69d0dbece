//! Which way a destination is reached: the first route that matches, else directly.

use std::net::SocketAddr;

use ekiden_relay_proto::Target;

use super::raw::RELAYS;
use crate::config::destinations::Destinations;
use crate::config::pattern::Pattern;

/// The routes of a node, in the order of its file.
#[derive(Debug, Clone, Default)]
pub struct Routes(Vec<Route>);

/// One `[[route]]`.
#[derive(Debug, Clone)]
pub struct Route {
    /// The destinations it is for.
    pub to: Destinations,
    /// The way there.
    pub way: Way,
    /// The service class of the streams.
    pub class: Option<String>,
}

/// A way to a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// This node connects to the destination.
    Direct,
    /// Through these nodes; the last one connects. An empty chain means the same as direct.
    Via(Vec<String>),
    /// Over the overlay, by the path that is best by what is known.
    Auto(Auto),
    /// Not at all.
    Refuse,
}

/// How a path over the overlay is chosen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Auto {
    /// The node that connects; `None`: the one that is near the destination.
    pub exit: Option<String>,
    /// The nodes that may be in between; `None`: all that relay.
    pub relays: Option<Vec<String>>,
    /// The nodes that must be in between.
    pub through: Vec<String>,
    /// The regions in which all nodes of the path must be; empty: all regions.
    pub regions: Vec<String>,
    /// How many nodes may be in between, 0 to 2.
    pub most_relays: usize,
}

impl Auto {
    /// Whether any path may be taken.
    pub fn has_all_paths(&self) -> bool {
        let Self { exit: _, relays, through, regions, most_relays } = self;
        relays.is_none() && through.is_empty() && regions.is_empty() && *most_relays == RELAYS.end().0 as usize
    }

    /// The nodes that must be in between on a path to `exit`: where it is one of them, it is passed anyway.
    pub fn required<'a>(&'a self, exit: &'a str) -> impl Iterator<Item = &'a str> {
        self.through.iter().map(String::as_str).filter(move |node| *node != exit)
    }
}

impl Routes {
    /// Routes in order of precedence.
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// In order of precedence.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.iter()
    }

    /// The routes that decide about nothing, because one before them is for all that they are for, each as a sentence.
    pub fn hidden(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (later, route) in self.0.iter().enumerate() {
            // Of what a network's route refuses, addresses that contain one of its own are in no other network.
            let hides = |before: &Pattern, pattern: &Pattern| {
                before.covers(pattern) && (before.is_for_all_hosts() || route.way != Way::Refuse)
            };
            let hidden = self.0[..later].iter().position(|before| route.to.is_within(&before.to, hides));
            if let (Some(before), Some(first)) = (hidden, route.to.written().next()) {
                let (later, before) = (later + 1, before + 1);
                lines.push(format!(
                    "[[route]] number {later}, to {first}, decides about nothing: number {before} is for all of it, and comes first"
                ));
            }
        }
        lines
    }

    /// The way to `target`. Names are not resolved: networks match addresses, domains match names.
    pub fn way(&self, target: &Target) -> &Way {
        self.route(target).map_or(&Way::Direct, |route| &route.way)
    }

    /// The route that decides about `target`.
    pub fn route(&self, target: &Target) -> Option<&Route> {
        self.0.iter().find(|route| route.is_for(target))
    }

    /// The routes that can refuse an address of `target` when this node is the exit. `None` if they refuse `target` itself. If
    /// a route sends `target` directly, the routes after it do not count.
    pub fn exit_rules(&self, target: &Target) -> Option<ExitRules<'_>> {
        let found = self.0.iter().position(|route| route.is_for(target));
        match found.map(|at| (at, &self.0[at].way)) {
            Some((_, Way::Refuse)) => None,
            Some((at, Way::Direct)) => Some(ExitRules(&self.0[..at])),
            Some((_, Way::Via(_) | Way::Auto(_))) | None => Some(ExitRules(&self.0)),
        }
    }
}

/// The routes that an exit applies to the addresses of a destination.
#[derive(Debug, Clone, Copy)]
pub struct ExitRules<'a>(&'a [Route]);

impl ExitRules<'_> {
    /// Whether this node must not connect to `address`.
    pub fn refuses(&self, address: SocketAddr) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let target = address.into();
        self.0.iter().find(|route| route.is_for(&target)).is_some_and(|route| route.way == Way::Refuse)
    }
}

impl Route {
    /// A route that refuses a network refuses IPv6 addresses with an embedded address of that network too. Other routes do not
    /// match these: they could hide a later route that refuses them.
    fn is_for(&self, target: &Target) -> bool {
        match self.way {
            Way::Refuse => self.to.reaches(target),
            Way::Direct | Way::Via(_) | Way::Auto(_) => self.to.matches(target),
        }
    }
}

#[cfg(test)]
mod tests {
    use ekiden_relay_proto::Host;

    use super::*;

    fn routes(routes: &[(&str, Way)]) -> Routes {
        let route =
            |(to, way): &(&str, Way)| Route { to: [Pattern::parse(to).unwrap()].into(), way: way.clone(), class: None };
        Routes::new(routes.iter().map(route).collect())
    }

    fn way(routes: &Routes, host: &str) -> Way {
        routes.way(&Target { host: Host::parse(host).unwrap(), port: 80 }).clone()
    }

    #[test]
    fn a_trailing_dot_in_a_pattern_or_a_request_makes_no_difference() {
        for pattern in ["localhost", "localhost.", ".test", ".test.", "localhost.:80", ".test.:80"] {
            let refuse = routes(&[(pattern, Way::Refuse)]);
            let hosts = if pattern.starts_with('.') { ["test", "a.test"] } else { ["localhost"; 2] };
            for host in hosts {
                for host in [host.to_owned(), format!("{host}.")] {
                    assert_eq!(way(&refuse, &host), Way::Refuse, "{pattern} {host}");
                }
            }
            assert_eq!(way(&refuse, "other"), Way::Direct, "{pattern}");
        }
    }

    #[test]
    fn a_network_that_is_refused_is_refused_in_every_form_of_its_addresses() {
        let forms =
            ["10.1.2.3", "::ffff:10.1.2.3", "::10.1.2.3", "::ffff:0:10.1.2.3", "64:ff9b::10.1.2.3", "2002:a01:203::1"];
        for pattern in ["10.0.0.0/8", "10.1.2.3", "::ffff:10.0.0.0/104"] {
            let refuse = routes(&[(pattern, Way::Refuse)]);
            for form in forms {
                let host = if form.contains(':') { format!("[{form}]") } else { form.to_owned() };
                assert_eq!(way(&refuse, &host), Way::Refuse, "{pattern} {form}");
                let address = SocketAddr::new(form.parse().unwrap(), 80);
                let name: Target = "name.example:80".parse().unwrap();
                assert!(refuse.exit_rules(&name).unwrap().refuses(address), "{pattern} {form}");
            }
            assert_eq!(way(&refuse, "[64:ff9b::11.1.2.3]"), Way::Direct);
        }
    }

    #[test]
    fn a_route_behind_one_that_is_for_all_of_it_is_told() {
        let via = || Way::Via(vec!["n1".into()]);
        let behind = |first: &str, way: Way| routes(&[(first, via()), ("10.1.0.0/16:22", way)]).hidden().len();
        assert_eq!(behind("*", Way::Refuse), 1);
        assert_eq!(behind("*:22", Way::Direct), 1);
        assert_eq!(behind("10.0.0.0/8", Way::Direct), 1);
        // It refuses addresses that contain one of these, too.
        assert_eq!(behind("10.0.0.0/8", Way::Refuse), 0);
        for other in ["*:80", "10.1.2.0/24", ".jp"] {
            assert_eq!(behind(other, Way::Refuse), 0, "{other}");
        }
        let told = routes(&[("a.jp", via()), ("*", via()), (".jp", Way::Refuse)]).hidden();
        assert_eq!(
            told,
            ["[[route]] number 3, to .jp, decides about nothing: number 2 is for all of it, and comes first"]
        );
    }

    #[test]
    fn a_translated_address_is_no_address_of_a_network_that_is_let_through() {
        // Otherwise the first route would let through what the second refuses.
        let both = routes(&[("0.0.0.0/0", Way::Direct), ("64:ff9b::/96", Way::Refuse)]);
        assert_eq!(way(&both, "[64:ff9b::10.1.2.3]"), Way::Refuse);
        assert_eq!(way(&both, "[::ffff:10.1.2.3]"), Way::Direct);
    }
}
