//! A name server, and whether it answers.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_relay_proto::names::NameServer;
use hickory_resolver::Resolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{Name, RecordType};

use super::Unknown;
use super::cache::Answer;
use super::query::Queries;
use super::sockets::Sockets;

/// For this time after a server did not answer it counts as silent.
const SILENT: Duration = Duration::from_secs(30);

/// The port of name servers.
const PORT: u16 = 53;

/// Where and how a name server is asked.
pub(super) struct Place {
    /// With the interface of a link-local address, of which `config` does not know.
    pub(super) address: SocketAddr,
    pub(super) config: NameServerConfig,
}

pub(super) struct Server {
    address: SocketAddr,
    resolver: Resolver<Queries>,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    /// When it answered last.
    last: Option<Instant>,
    /// When it did not answer in time, if it has not answered since.
    silent: Option<Instant>,
    /// When that was logged last.
    logged: Option<Instant>,
}

impl Heard {
    /// Whether its silence is to be logged now: once in [`SILENT`].
    fn is_to_be_logged(&mut self, now: Instant) -> bool {
        let is_due = self.logged.is_none_or(|at| now.duration_since(at) >= SILENT);
        if is_due {
            self.logged = Some(now);
        }
        is_due
    }
}

impl Place {
    pub(super) fn of(server: &NameServer, zone: u32, tcp_only: bool) -> Self {
        let address = match server.ip {
            IpAddr::V6(ip) => SocketAddrV6::new(ip, PORT, 0, zone).into(),
            ip => SocketAddr::new(ip, PORT),
        };
        let config = match tcp_only {
            true => NameServerConfig::tcp(server.ip),
            false => NameServerConfig::udp(server.ip),
        };
        Self { address, config }
    }
}

impl Server {
    pub(super) fn new(place: Place, options: ResolverOpts) -> Result<Self, NetError> {
        let Place { address, config } = place;
        let queries = Queries(Sockets::new(address));
        let config = ResolverConfig::from_name_servers(vec![config]);
        let resolver = Resolver::builder_with_config(config, queries).with_options(options).build()?;
        Ok(Self { address, resolver, heard: Mutex::default() })
    }

    /// Asks it. Silence counts after its whole timeout, and only if it has answered nothing since it was asked: about some names
    /// nobody answers, and whoever asks for them does not decide about the server.
    pub(super) async fn look_up(&self, name: &Name, kind: RecordType) -> Answer {
        let since = Instant::now();
        let answer = Answer::of(self.resolver.lookup(name.clone(), kind).await);
        let mut heard = self.heard();
        match answer.found {
            // It was not asked.
            Err(Unknown::NoDescriptor) => {}
            Err(Unknown::Timeout) if heard.last.is_some_and(|last| last >= since) => {}
            Err(Unknown::Timeout) => {
                let now = Instant::now();
                heard.silent = Some(now);
                if heard.is_to_be_logged(now) {
                    let waited = now.duration_since(since).as_secs_f64();
                    tracing::warn!("name server {} has answered nothing for {waited:.0} s", self.address);
                }
            }
            // It has answered, or cannot be reached.
            _ => (heard.last, heard.silent) = (Some(Instant::now()), None),
        }
        drop(heard);
        answer
    }

    pub(super) fn is_silent(&self) -> bool {
        self.heard().silent.is_some_and(|since| since.elapsed() < SILENT)
    }

    /// Where it is asked.
    #[cfg(test)]
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_logged_once_in_a_while() {
        let (mut heard, start) = (Heard::default(), Instant::now());
        let logged = [0, 5, 29, 30, 31, 61].map(|at| heard.is_to_be_logged(start + Duration::from_secs(at)));
        assert_eq!(logged, [true, false, false, true, false, true]);
    }
}
