//! The name servers of resolv.conf, and which names are asked for.

use std::net::{IpAddr, Ipv6Addr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_relay_proto::names::{NameServer, ResolvConf};
use hickory_resolver::Resolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::time::timeout;

use super::Unknown;
use super::cache::{Answer, Answers, Found};
use super::query::Queries;
use super::sockets::Sockets;
use crate::exit::spare::Turn;

/// `SILENT`: for this time after a server did not answer, the next one is asked beside it after `SHORT`, so that not every name
/// waits for it. It keeps its place in the order and its whole timeout.
const SILENT: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(250);
/// A look-up may be given up because others wait to ask. If the server has had at least this time, it counts as not
/// answering.
const GIVEN_UP: Duration = Duration::from_millis(500);

/// resolv.conf: the name servers, and how short names are completed.
pub(super) struct Servers {
    /// In the order of the file.
    servers: Vec<OneServer>,
    /// How often all of them are asked.
    attempts: usize,
    /// The server that is first, where they take turns.
    next: Option<AtomicUsize>,
    search: Vec<Name>,
    ndots: usize,
    no_aaaa: bool,
    no_tld_query: bool,
    answers: Answers,
}

/// A name server, and whether it answers.
struct OneServer {
    resolver: Resolver<Queries>,
    /// When it did not answer in time, if it has not answered since.
    silent: Mutex<Option<Instant>>,
}

impl Servers {
    /// `zones`: the index of the interface of each server's zone. `own_domain`: what completes short names if resolv.conf has no
    /// search list.
    pub(super) fn new(conf: &ResolvConf, zones: Vec<(Ipv6Addr, u32)>, own_domain: &str) -> Result<Self, NetError> {
        let servers = conf.servers.iter().map(|server| at_port_53(server, conf.tcp_only)).collect();
        Self::with(conf, servers, options(conf), zones, own_domain)
    }

    pub(super) fn with(
        conf: &ResolvConf,
        servers: Vec<NameServerConfig>,
        options: ResolverOpts,
        zones: Vec<(Ipv6Addr, u32)>,
        own_domain: &str,
    ) -> Result<Self, NetError> {
        let written = conf.search.clone().unwrap_or_else(|| vec![own_domain.into()]);
        let counts = |domain: &&String| conf.search.is_some() || !domain.is_empty();
        let search = written.iter().filter(counts).filter_map(|domain| Name::from_str_relaxed(domain).ok()).collect();
        let queries = Queries(Sockets::new(zones));
        // Each is a resolver of its own: a resolver with several servers would split the time of one among them.
        let one = |server| {
            let config = ResolverConfig::from_name_servers(vec![server]);
            let resolver =
                Resolver::builder_with_config(config, queries.clone()).with_options(options.clone()).build()?;
            Ok(OneServer { resolver, silent: Mutex::new(None) })
        };
        let servers = servers.into_iter().map(one).collect::<Result<_, NetError>>()?;
        let next = conf.rotate.then(AtomicUsize::default);
        let ResolvConf { attempts, ndots, no_aaaa, no_tld_query, .. } = *conf;
        Ok(Self { servers, attempts, next, search, ndots, no_aaaa, no_tld_query, answers: Answers::new() })
    }

    /// Looks `host` up, as [`super::Resolver::find`] says. When to go on after a failure is as in glibc's `res_search`: the next
    /// domain is asked for if this one has no such name or its servers fail (SERVFAIL); after any other failure only the name as
    /// it is, if that has not been asked for. Without any server there is nothing to go on with.
    pub(super) async fn find(
        &self,
        host: &str,
        turn: &Turn<'_>,
        wanted: impl Fn(&str) -> bool,
        tell: impl Fn(IpAddr),
    ) -> Result<(), Unknown> {
        let mut failures = Failures::default();
        for Candidate { name, is_exact } in self.names(host) {
            if !is_exact && failures.search_is_over || !wanted(&name.to_ascii()) {
                continue;
            }
            match self.ask(&name, turn, &tell).await {
                Err(why) if !matches!(why, Unknown::Unreachable | Unknown::NoDescriptor | Unknown::Crowded) => {
                    failures.note(why, is_exact);
                }
                other => return other,
            }
        }
        Err(failures.most_telling())
    }

    /// The names that `host` may stand for, in the order in which resolv.conf(5) says to ask for them.
    fn names(&self, host: &str) -> Vec<Candidate> {
        let Ok(name) = Name::from_ascii(host) else { return Vec::new() };
        let absolute = |mut name: Name| {
            name.set_fqdn(true);
            name
        };
        let exact = Candidate { name: absolute(name.clone()), is_exact: true };
        if name.is_fqdn() {
            return vec![exact];
        }
        let in_domain = |domain: &Name| name.clone().append_domain(domain).ok().map(absolute);
        let in_domains = self.search.iter().filter_map(in_domain);
        let mut names: Vec<_> = in_domains.map(|name| Candidate { name, is_exact: false }).collect();
        let dots = host.bytes().filter(|&b| b == b'.').count();
        let is_left_out = self.no_tld_query && dots == 0 && !names.is_empty();
        if dots >= self.ndots {
            names.retain(|other| other.name != exact.name);
            names.insert(0, exact);
        } else if names.iter().all(|other| other.name != exact.name) && !is_left_out {
            names.push(exact);
        }
        names
    }

    /// Asks for the addresses of both families at the same time, unless resolv.conf wants IPv4 alone.
    async fn ask(&self, name: &Name, turn: &Turn<'_>, tell: impl Fn(IpAddr)) -> Result<(), Unknown> {
        let family = async |kind| {
            let found = self.look_up(name, kind, turn).await?;
            found.iter().copied().for_each(&tell);
            Ok(())
        };
        if self.no_aaaa {
            return family(RecordType::A).await;
        }
        match tokio::join!(family(RecordType::AAAA), family(RecordType::A)) {
            (Ok(()), _) | (_, Ok(())) => Ok(()),
            // NXDOMAIN holds for both families. A name that has no address in one family may have one in the other.
            (Err(Unknown::NoSuchName), _) | (_, Err(Unknown::NoSuchName)) => Err(Unknown::NoSuchName),
            (Err(Unknown::NoAddress), other) => other,
            (other, _) => other,
        }
    }
}

impl Servers {
    /// The addresses of a name in one family: as it was answered before, or as the servers say when it is their turn to be asked.
    async fn look_up(&self, name: &Name, kind: RecordType, turn: &Turn<'_>) -> Found {
        if let Some(found) = self.answers.get(name, kind) {
            return found;
        }
        turn.begin(self.descriptors()).await;
        // Another look-up may have asked for it meanwhile.
        if let Some(found) = self.answers.get(name, kind) {
            return found;
        }
        let answer = tokio::select! {
            biased;
            answer = self.ask_all(name, kind) => answer,
            () = turn.is_over() => Unknown::Crowded.into(),
        };
        let found = answer.found.clone();
        self.answers.put(name, kind, answer);
        found
    }

    /// Asks one server after the other, and all of them again, as glibc's `res_send` does: the next one only if one does not answer, or says
    /// that it cannot. That there is no such name, or no address, is an answer.
    async fn ask_all(&self, name: &Name, kind: RecordType) -> Answer {
        let order = self.order();
        let mut said = Answer::from(Unknown::Unreachable);
        for _ in 0..self.attempts {
            said = more_telling(said, ask_in_turn(&order, name, kind).await);
            if is_answer(&said.found) {
                break;
            }
        }
        said
    }

    /// The most descriptors that a look-up has at a time: each family is asked for at each server, if one after the other is
    /// silent, and a query has one.
    fn descriptors(&self) -> u32 {
        let families = if self.no_aaaa { 1 } else { 2 };
        families * u32::try_from(self.servers.len()).unwrap_or(u32::MAX)
    }

    /// The servers in the order in which they are asked, and which of them have been silent.
    fn order(&self) -> Vec<(&OneServer, bool)> {
        let mut order: Vec<_> = self.servers.iter().map(|server| (server, server.is_silent())).collect();
        if let Some(next) = self.next.as_ref().filter(|_| !order.is_empty()) {
            let first = next.fetch_add(1, Ordering::Relaxed) % order.len();
            order.rotate_left(first);
        }
        order
    }
}

/// Asks the servers of `order` once each. Those behind a silent one are asked beside it: an address that they give counts at
/// once, anything else only if the silent one has not answered within its whole timeout.
fn ask_in_turn<'a>(
    order: &'a [(&OneServer, bool)],
    name: &'a Name,
    kind: RecordType,
) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
    Box::pin(async move {
        let Some(((server, is_silent), later)) = order.split_first() else { return Unknown::Unreachable.into() };
        let alone = if *is_silent { SHORT } else { Duration::MAX };
        let (mut asking, mut asking_later) = (pin!(server.look_up(name, kind)), ask_in_turn(later, name, kind));
        let said = match timeout(alone, &mut asking).await {
            Ok(said) => said,
            Err(_) => tokio::select! {
                biased;
                said = &mut asking => said,
                by_later = &mut asking_later => {
                    if by_later.found.is_ok() {
                        return by_later;
                    }
                    let said = asking.await;
                    return if is_answer(&said.found) { said } else { more_telling(said, by_later) };
                }
            },
        };
        if is_answer(&said.found) { said } else { more_telling(said, asking_later.await) }
    })
}

impl OneServer {
    async fn look_up(&self, name: &Name, kind: RecordType) -> Answer {
        let asked = Asked { server: self, since: Instant::now() };
        let answer = Answer::of(self.resolver.lookup(name.clone(), kind).await);
        if !matches!(answer.found, Err(Unknown::Timeout)) {
            asked.end();
        }
        answer
    }

    fn silent(&self) -> MutexGuard<'_, Option<Instant>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_silent(&self) -> bool {
        self.silent().is_some_and(|since| since.elapsed() < SILENT)
    }
}

/// A server that is being asked. If that ends late and without an answer, the server was silent, even if nobody waits for the
/// answer any longer.
struct Asked<'a> {
    server: &'a OneServer,
    since: Instant,
}

impl Asked<'_> {
    /// The server has answered, or cannot be reached.
    fn end(self) {
        *self.server.silent() = None;
        std::mem::forget(self);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.since.elapsed() >= GIVEN_UP.min(self.server.resolver.options().timeout) {
            *self.server.silent() = Some(Instant::now());
        }
    }
}

/// Whether no other server is asked after this. Without descriptors none can be.
fn is_answer(found: &Found) -> bool {
    matches!(found, Ok(_) | Err(Unknown::NoSuchName | Unknown::NoAddress | Unknown::NoDescriptor))
}

/// What the client is told if an earlier server has failed: what a later one has found, or the failure that says most about the
/// name.
fn more_telling(earlier: Answer, later: Answer) -> Answer {
    let rank = |answer: &Answer| match &answer.found {
        found if is_answer(found) => 4,
        Err(Unknown::ServerFailed) => 3,
        Err(Unknown::Timeout) => 1,
        Err(Unknown::Unreachable) => 0,
        _ => 2,
    };
    if rank(&earlier) > rank(&later) { earlier } else { later }
}

/// One of the names that a host may stand for.
struct Candidate {
    name: Name,
    /// As the client has written it, and not completed by a domain.
    is_exact: bool,
}

/// Why the names that were asked for have no address.
#[derive(Default)]
struct Failures {
    /// Whether the domains that are left in the search list are not asked for.
    search_is_over: bool,
    /// Of the name as it is, if that was asked for before those in the search list.
    of_exact: Option<Unknown>,
    all: Vec<Unknown>,
}

impl Failures {
    fn note(&mut self, why: Unknown, is_exact: bool) {
        if is_exact && self.all.is_empty() {
            self.of_exact = Some(why.clone());
        }
        self.search_is_over |=
            !is_exact && !matches!(why, Unknown::NoSuchName | Unknown::NoAddress | Unknown::ServerFailed);
        self.all.push(why);
    }

    /// What is said of all: of a name with many dots what was found of itself, otherwise that there is such a name without an
    /// address, or that there may be one.
    fn most_telling(self) -> Unknown {
        let seen = [Unknown::NoAddress, Unknown::ServerFailed].into_iter().find(|why| self.all.contains(why));
        self.of_exact.or(seen).or_else(|| self.all.last().cloned()).unwrap_or(Unknown::NoSuchName)
    }
}

fn at_port_53(server: &NameServer, tcp_only: bool) -> NameServerConfig {
    match tcp_only {
        true => NameServerConfig::tcp(server.ip),
        false => NameServerConfig::udp(server.ip),
    }
}

/// How each server is asked.
pub(super) fn options(conf: &ResolvConf) -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.use_hosts_file = ResolveHosts::Never;
    // It would keep whole messages.
    options.cache_size = 0;
    options.timeout = Duration::from_secs(conf.timeout_s);
    // These are further attempts at the same server; all servers are asked before one is asked again.
    options.attempts = 0;
    options.edns0 = conf.edns0;
    options
}
