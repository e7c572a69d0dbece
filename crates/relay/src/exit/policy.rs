//! Decides which addresses this node, as the exit, connects to. Routes may refuse any destination. A destination that a client
//! has chosen must also have a public address, and not one of this host, unless `[exit] allow` names it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ekiden_net::transparent::own_addresses;
use ekiden_relay_proto::{Failure, FailureCode, Host, Target};

use crate::config::Config;
use crate::config::address::{embedded_v4, special};
use crate::config::route::ExitRules;

/// How long the list of this host's addresses is used before it is read again.
const STAY: Duration = Duration::from_secs(1);

/// Who has chosen a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenBy {
    /// A client or another node.
    Client,
    /// The operator: the destination is in this node's configuration, or that of a transparent connection, whose client could
    /// reach it without a proxy too. Only routes refuse it.
    Operator,
}

/// The rules for one destination.
pub struct Policy<'a> {
    rules: ExitRules<'a>,
    config: &'a Config,
    own: &'a OwnAddresses,
    chosen_by: ChosenBy,
    port: u16,
    /// Whether special addresses and those of this host are allowed too, so that only a route refuses an address.
    allows_special: bool,
}

/// Why an exit does not connect to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A route refuses it.
    Route,
    /// It is an address of this kind, such as "a loopback address".
    Kind(&'static str),
    /// It may be one of this host's own addresses: the kernel did not tell which these are.
    Unknown,
}

/// This host's addresses, read again at most once a second.
#[derive(Debug, Default)]
pub struct OwnAddresses(Mutex<Option<(Instant, Vec<IpAddr>)>>);

impl<'a> Policy<'a> {
    /// The rules for `target`.
    ///
    /// # Errors
    /// A route refuses the destination itself, whatever addresses its name has.
    pub fn new(
        config: &'a Config,
        own: &'a OwnAddresses,
        target: &Target,
        chosen_by: ChosenBy,
    ) -> Result<Self, Refusal> {
        let Some(rules) = config.routes.exit_rules(target) else { return Err(Refusal::Route) };
        let allows_special = chosen_by == ChosenBy::Operator || config.exit.allow.matches(target);
        Ok(Self { rules, config, own, chosen_by, port: target.port, allows_special })
    }

    /// The rules for `name`, which the search list has made of the name that was asked for. An address must pass the rules of
    /// one of the two names, not of both, because a client may ask for either.
    ///
    /// # Errors
    /// A route refuses `name` itself.
    pub fn of_expanded(&self, name: &str) -> Result<Self, Refusal> {
        let Ok(host) = Host::parse(name) else { return Err(Refusal::Route) };
        Self::new(self.config, self.own, &Target { host, port: self.port }, self.chosen_by)
    }

    /// Why the exit must not connect to `address`. `None`: it may.
    pub fn refusal(&self, address: SocketAddr) -> Option<Refusal> {
        if self.rules.refuses(address) {
            return Some(Refusal::Route);
        }
        if self.allows_special {
            return None;
        }
        let kind = match special(address.ip()) {
            Some(kind) => Refusal::Kind(kind),
            None => match self.own.contain(address.ip()) {
                Ok(false) => return None,
                Ok(true) => Refusal::Kind("an address of its own"),
                Err(error) => {
                    tracing::debug!("this host's addresses are not known: {error}");
                    Refusal::Unknown
                }
            },
        };
        let target = address.into();
        let allowed = self.config.exit.allow.matches(&target);
        (!allowed).then_some(kind)
    }
}

impl Config {
    /// The files that the node is to make where this process cannot, each as a sentence. It runs without them.
    pub fn unwritable(&self) -> Vec<String> {
        self.overlay.as_ref().map(|overlay| overlay.unwritable()).unwrap_or_default()
    }

    /// Why this node, as the exit, will refuse networks that it is near to by its entry or its admission: sentences.
    pub fn near_refused(&self) -> Vec<String> {
        let own = self.overlay.as_ref().and_then(|overlay| overlay.members.get(&self.name));
        let near = own.iter().flat_map(|own| &own.near);
        near.filter_map(|pattern| {
            let (Some(net), _) = pattern.addresses()? else { return None };
            // A network with public addresses in it is not meant as a whole.
            let kind = special(net.network()).filter(|_| special(net.broadcast()).is_some())?;
            let is_allowed = self.exit.allow.covers(pattern);
            (!is_allowed).then(|| {
                format!("this node is near {pattern}, and does not connect to {kind} unless [exit] has allow = [\"{pattern}\"]")
            })
        })
        .collect()
    }
}

impl Refusal {
    /// The failure that is reported for a request for `target`.
    pub fn of(self, target: &Target) -> Failure {
        match self {
            Self::Route => Failure::new(FailureCode::Forbidden, format_args!("a route refuses {target}")),
            Self::Kind(kind) => {
                let text =
                    format_args!("the exit does not connect to {kind} unless its [exit] allow says so: {target}");
                Failure::new(FailureCode::Forbidden, text)
            }
            Self::Unknown => {
                let text = format_args!("the exit cannot tell whether {target} is itself: its addresses are not known");
                Failure::new(FailureCode::Overloaded, text)
            }
        }
    }
}

impl OwnAddresses {
    /// Whether `ip`, or an IPv4 address that is embedded in it, is one of this host's.
    ///
    /// # Errors
    /// The addresses cannot be read from the kernel, and never could.
    fn contain(&self, ip: IpAddr) -> io::Result<bool> {
        self.contain_by(ip, own_addresses)
    }

    /// The same, with the addresses that `read` returns.
    fn contain_by(&self, ip: IpAddr, read: impl FnOnce() -> io::Result<Vec<IpAddr>>) -> io::Result<bool> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = match &mut *known {
            Some((since, addresses)) if since.elapsed() < STAY => addresses,
            Some((since, addresses)) => {
                // They seldom change: the last ones are a better answer than none.
                if let Ok(fresh) = read() {
                    (*since, *addresses) = (Instant::now(), fresh);
                }
                addresses
            }
            none => &mut none.insert((Instant::now(), read()?)).1,
        };
        let is_own = |ip: IpAddr| addresses.contains(&ip);
        Ok(is_own(ip.to_canonical()) || embedded_v4(ip).is_some_and(|ip| is_own(ip.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn own_addresses_are_known_in_every_form() {
        let own = OwnAddresses::default();
        for form in ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::"] {
            assert!(own.contain(ip(form)).unwrap(), "{form}");
        }
        assert!(!own.contain(ip("192.0.2.77")).unwrap());
    }

    #[test]
    fn without_a_list_of_own_addresses_nothing_is_let_through() {
        let mine = ip("192.0.2.1");
        let fails = || Err(io::Error::from_raw_os_error(24));
        let own = OwnAddresses::default();
        assert!(own.contain_by(mine, fails).is_err());
        // A failure is not remembered, but a list is.
        assert!(own.contain_by(mine, || Ok(vec![mine])).unwrap());
        own.0.lock().unwrap().as_mut().unwrap().0 -= 2 * STAY;
        assert!(own.contain_by(mine, fails).unwrap());
        assert!(!own.contain_by(ip("192.0.2.2"), fails).unwrap());
        assert!(!own.contain_by(mine, || Ok(Vec::new())).unwrap());
    }
}
