//! A name server, and whether it answers.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::Resolver;
use hickory_resolver::config::{ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{Name, RecordType};

use super::Unknown;
use super::cache::Answer;
use super::query::Queries;
use super::servers::Place;
use super::sockets::Sockets;

/// For this time after a server did not answer it counts as silent.
const SILENT: Duration = Duration::from_secs(30);

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
                tracing::debug!("name server {} does not answer", self.address);
                heard.silent = Some(Instant::now());
            }
            // It has answered, or cannot be reached.
            _ => *heard = Heard { last: Some(Instant::now()), silent: None },
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
