//! What this node, as the exit, connects to: whatever its routes let it, but addresses that are not the public's, and its own,
//! only where `[exit] allow` names them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ekiden_net::transparent::own_addresses;
use ekiden_relay_proto::{Failure, FailureCode, Host, Target};

use crate::config::Config;
use crate::config::address::{embedded_v4, special};
use crate::config::route::ExitRules;

/// How long this host's addresses are believed to stay.
const STAY: Duration = Duration::from_secs(1);

/// Whose choice a destination is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// A client's or another node's.
    Client,
    /// This node's configuration, or that of the hosts whose connections pass through it. Only routes refuse it.
    Operator,
}

/// What binds an exit that connects to one destination.
pub struct Policy<'a> {
    rules: ExitRules<'a>,
    config: &'a Config,
    own: &'a OwnAddresses,
    choice: Choice,
    port: u16,
    /// Whether its addresses may be of any kind.
    any: bool,
}

/// Why an exit does not connect to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A route says so.
    Route,
    /// It is of this kind.
    Kind(&'static str),
    /// It may be one of this host's own, which the kernel does not tell.
    Unknown,
}

/// This host's addresses, as they were a moment ago.
#[derive(Debug, Default)]
pub struct OwnAddresses(Mutex<Option<(Instant, Vec<IpAddr>)>>);

impl<'a> Policy<'a> {
    /// For `target`.
    ///
    /// # Errors
    /// The name itself is refused, whatever its addresses.
    pub fn new(config: &'a Config, own: &'a OwnAddresses, target: &Target, choice: Choice) -> Result<Self, Refusal> {
        let Some(rules) = config.routes.exit_rules(target) else { return Err(Refusal::Route) };
        let any = choice == Choice::Operator || config.exit.allow.iter().any(|pattern| pattern.matches(target));
        Ok(Self { rules, config, own, choice, port: target.port, any })
    }

    /// What binds the exit besides when the search list makes `name` of the name that was asked for. Leave that is given to
    /// either of the two is enough, as a client may ask for both.
    ///
    /// # Errors
    /// This name is refused.
    pub fn of_expanded(&self, name: &str) -> Result<Self, Refusal> {
        let Ok(host) = Host::parse(name) else { return Err(Refusal::Route) };
        Self::new(self.config, self.own, &Target { host, port: self.port }, self.choice)
    }

    /// Why not to connect to `address`; `None`: nothing speaks against it.
    pub fn refusal(&self, address: SocketAddr) -> Option<Refusal> {
        if self.rules.refuses(address) {
            return Some(Refusal::Route);
        }
        if self.any {
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
        let allowed = self.config.exit.allow.iter().any(|pattern| pattern.matches(&target));
        (!allowed).then_some(kind)
    }
}

impl Refusal {
    /// What the one who asked for `target` is told.
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
    /// Whether `ip`, in any form, is one of this host's.
    ///
    /// # Errors
    /// The kernel does not tell them, and never has.
    fn contain(&self, ip: IpAddr) -> io::Result<bool> {
        self.contain_by(ip, own_addresses)
    }

    /// The same, of what `read` tells.
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
        // A failure is not remembered, and a list is.
        assert!(own.contain_by(mine, || Ok(vec![mine])).unwrap());
        own.0.lock().unwrap().as_mut().unwrap().0 -= 2 * STAY;
        assert!(own.contain_by(mine, fails).unwrap());
        assert!(!own.contain_by(ip("192.0.2.2"), fails).unwrap());
        assert!(!own.contain_by(mine, || Ok(Vec::new())).unwrap());
    }
}
