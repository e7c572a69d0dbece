//! Which way a destination is reached: the first route that matches, else directly.

use std::fmt;
use std::net::SocketAddr;

use ekiden_relay_proto::{Host, Target};
use ipnet::IpNet;

/// The routes of a node, in the order of its file.
#[derive(Debug, Clone, Default)]
pub struct Routes(Vec<Route>);

/// One `[[route]]`.
#[derive(Debug, Clone)]
pub struct Route {
    /// The destinations it is for.
    pub patterns: Vec<Pattern>,
    /// The way there.
    pub way: Way,
}

/// A way to a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// This node connects to the destination.
    Direct,
    /// Through these nodes; the last one connects. Empty is the same as direct.
    Via(Vec<String>),
    /// Not at all.
    Refuse,
}

/// A set of destinations: `10.0.0.0/8`, `192.0.2.1`, `.example.jp` (the domain and all below it),
/// `example.org` (that name), `*` (all); each optionally with `:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    All,
    Net(IpNet),
    Suffix(String),
    Name(String),
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

    /// The way to `target`. Names are not resolved: networks match addresses, domains match names.
    pub fn way(&self, target: &Target) -> &Way {
        let route = self.0.iter().find(|route| route.is_for(target));
        route.map_or(&Way::Direct, |route| &route.way)
    }

    /// The routes that may keep this node, as the exit, from connecting to an address of `target`. `None` if the
    /// name itself is refused. A route that lets a name go directly hides those behind it.
    pub fn exit_rules(&self, target: &Target) -> Option<ExitRules<'_>> {
        let found = self.0.iter().position(|route| route.is_for(target));
        match found.map(|at| (at, &self.0[at].way)) {
            Some((_, Way::Refuse)) => None,
            Some((at, Way::Direct)) => Some(ExitRules(&self.0[..at])),
            Some((_, Way::Via(_))) | None => Some(ExitRules(&self.0)),
        }
    }
}

/// Routes as they bind an exit.
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
    fn is_for(&self, target: &Target) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(target))
    }
}

impl Pattern {
    /// Reads a pattern. The error is a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not a destination: use a network (10.0.0.0/8), an address, a domain (.example.jp), a name or *, with or without :port"
            )
        };
        let (hosts, port) = match text.rsplit_once(':') {
            Some((hosts, port)) if !hosts.contains(':') || hosts.ends_with(']') => (hosts, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            Some(port) => Some(port.parse().ok().filter(|&port| port != 0u16).ok_or_else(wrong)?),
            None => None,
        };
        let bare = hosts.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(hosts);
        let hosts = if hosts == "*" {
            Hosts::All
        } else if bare.contains('/') {
            Hosts::Net(bare.parse::<IpNet>().map_err(|_| wrong())?.trunc())
        } else if let Some(domain) = hosts.strip_prefix('.') {
            match Host::parse(domain).map_err(|_| wrong())? {
                Host::Name(name) => Hosts::Suffix(name),
                Host::Ip(_) => return Err(wrong()),
            }
        } else {
            match Host::parse(hosts).map_err(|_| wrong())? {
                Host::Name(name) => Hosts::Name(name),
                Host::Ip(ip) => Hosts::Net(ip.into()),
            }
        };
        Ok(Self { hosts, port })
    }

    /// The network (`None`: all addresses) and the port (`None`: all). `None` if it is about names.
    pub fn addresses(&self) -> Option<(Option<IpNet>, Option<u16>)> {
        match self.hosts {
            Hosts::All => Some((None, self.port)),
            Hosts::Net(net) => Some((Some(net), self.port)),
            Hosts::Name(_) | Hosts::Suffix(_) => None,
        }
    }

    /// Whether `target` is in the set.
    pub fn matches(&self, target: &Target) -> bool {
        if self.port.is_some_and(|port| port != target.port) {
            return false;
        }
        match (&self.hosts, &target.host) {
            (Hosts::All, _) => true,
            // An IPv4 network also means its addresses written as IPv4-mapped IPv6.
            (Hosts::Net(net), Host::Ip(ip)) => net.contains(&ip.to_canonical()) || net.contains(ip),
            (Hosts::Name(name), Host::Name(host)) => name == host.trim_end_matches('.'),
            (Hosts::Suffix(domain), Host::Name(host)) => {
                let rest = host.trim_end_matches('.').strip_suffix(domain.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            _ => false,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.hosts, self.port) {
            (Hosts::All, _) => f.write_str("*")?,
            (Hosts::Net(net @ IpNet::V6(_)), Some(_)) => write!(f, "[{net}]")?,
            (Hosts::Net(net), _) => write!(f, "{net}")?,
            (Hosts::Suffix(domain), _) => write!(f, ".{domain}")?,
            (Hosts::Name(name), _) => f.write_str(name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}
