//! The name servers of resolv.conf, and which names are asked for.

use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ekiden_relay_proto::names::ResolvConf;
use hickory_resolver::config::{ResolveHosts, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::time::timeout;

use super::Unknown;
use super::cache::{Answer, Answers, Found};
use super::flights::{Flight, Flights, UnderWay};
use super::server::{Place, Server};
use crate::exit::spare::{LookUp, Turn};

/// The server after a silent one is asked beside it after this time, so that not every name waits for it. The silent one keeps
/// its place in the order and its whole timeout.
const SHORT: Duration = Duration::from_millis(250);

/// The last parts of names that are asked for nowhere (RFC 6761, RFC 7686): the resolver itself answers for them.
const RESERVED: [&[u8]; 3] = [b"localhost", b"invalid", b"onion"];

/// resolv.conf: the name servers, and how short names are completed.
pub(super) struct Servers {
    /// In the order of the file.
    servers: Vec<Server>,
    /// How often all of them are asked.
    attempts: usize,
    /// The server that is first, where they take turns.
    next: Option<AtomicUsize>,
    search: Vec<Name>,
    ndots: usize,
    no_aaaa: bool,
    no_tld_query: bool,
    answers: Answers,
    flights: Flights,
}

impl Servers {
    /// `zones`: the index of the interface of each server's zone, 0 without one. `own_domain`: what completes short names if
    /// resolv.conf has no search list.
    pub(super) fn new(conf: &ResolvConf, zones: &[u32], own_domain: &str) -> Result<Self, NetError> {
        let places = conf.servers.iter().zip(zones).map(|(server, zone)| Place::of(server, *zone, conf.tcp_only));
        Self::with(conf, places.collect(), &options(conf), own_domain)
    }

    pub(super) fn with(
        conf: &ResolvConf,
        places: Vec<Place>,
        options: &ResolverOpts,
        own_domain: &str,
    ) -> Result<Self, NetError> {
        let written = conf.search.clone().unwrap_or_else(|| vec![own_domain.into()]);
        let counts = |domain: &&String| conf.search.is_some() || !domain.is_empty();
        let search = written.iter().filter(counts).filter_map(|domain| Name::from_str_relaxed(domain).ok()).collect();
        // Each is a resolver of its own: a resolver with several servers would split the time of one among them.
        let servers = places.into_iter().map(|place| Server::new(place, options.clone()));
        let servers = servers.collect::<Result<_, NetError>>()?;
        let next = conf.rotate.then(AtomicUsize::default);
        let ResolvConf { attempts, ndots, no_aaaa, no_tld_query, .. } = *conf;
        let (answers, flights) = (Answers::new(), Flights::default());
        Ok(Self { servers, attempts, next, search, ndots, no_aaaa, no_tld_query, answers, flights })
    }

    /// Looks `host` up, as [`super::Resolver::find`] says. When to go on after a failure is as in glibc's `res_search`: the next
    /// domain is asked for if this one has no such name or its servers fail (SERVFAIL); after any other failure only the name as
    /// it is, if that has not been asked for. Without any server there is nothing to go on with.
    pub(super) async fn find(
        self: &Arc<Self>,
        host: &str,
        look_up: &LookUp<'_>,
        wanted: impl Fn(&str) -> bool,
        tell: impl Fn(IpAddr),
    ) -> Result<(), Unknown> {
        let mut failures = Failures::default();
        for Candidate { name, is_exact } in self.names(host) {
            if !is_exact && failures.search_is_over || !wanted(&name.to_ascii()) {
                continue;
            }
            match self.ask(&name, look_up, &tell).await {
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
        let is_reserved =
            name.iter().next_back().is_some_and(|last| RESERVED.iter().any(|name| last.eq_ignore_ascii_case(name)));
        if name.is_fqdn() || is_reserved {
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
    async fn ask(self: &Arc<Self>, name: &Name, look_up: &LookUp<'_>, tell: impl Fn(IpAddr)) -> Result<(), Unknown> {
        let flight = LazyLock::new(|| self.flights.of(name));
        let family = async |kind| {
            let found = match self.known(name, kind) {
                Some(found) => found,
                None => flight.found(kind).await,
            };
            found?.iter().copied().for_each(&tell);
            Ok(())
        };
        let families = async { tokio::join!(family(RecordType::AAAA), family(RecordType::A)) };
        let said = tokio::select! {
            biased;
            said = families => said,
            () = async { self.begin_in_turn(&flight, look_up).await } => return Err(Unknown::Crowded),
        };
        match said {
            (Ok(()), _) | (_, Ok(())) => Ok(()),
            // NXDOMAIN holds for both families. A name that has no address in one family may have one in the other.
            (Err(Unknown::NoSuchName), _) | (_, Err(Unknown::NoSuchName)) => Err(Unknown::NoSuchName),
            (Err(Unknown::NoAddress), other) => other,
            (other, _) => other,
        }
    }

    /// The addresses of a name in one family, if they need not be asked for.
    fn known(&self, name: &Name, kind: RecordType) -> Option<Found> {
        match self.no_aaaa && kind == RecordType::AAAA {
            true => Some(Err(Unknown::NoAddress)),
            false => self.answers.get(name, kind),
        }
    }

    /// Waits for a turn and begins the look-up, unless another does. Completes when it was given up in a turn of this group. If
    /// it was in another's turn, it is begun anew: from then on no turn counts that may be given up as well, but the own one.
    async fn begin_in_turn(self: &Arc<Self>, flight: &Arc<Flight>, look_up: &LookUp<'_>) {
        let group = look_up.group();
        let mut is_anew = false;
        loop {
            let turn = tokio::select! {
                biased;
                () = flight.has_begun(is_anew) => None,
                turn = look_up.turn(self.descriptors()) => Some(turn),
            };
            look_up.begin();
            if let Some(turn) = turn {
                if turn.is_exempt() {
                    flight.has_room().await;
                }
                if let Some(flight) = flight.begin(&turn) {
                    tokio::spawn(self.clone().run(flight, turn));
                }
            }
            // If it was not given up and not all is found then, the thread that ran it has ended.
            match flight.has_ended().await {
                Some(other) if other == group => return,
                given_up => is_anew |= given_up.is_some(),
            }
        }
    }

    /// Looks a name up, until it is found or the turn is over. It goes on while nobody waits for it, if nobody wants the descriptors.
    async fn run(self: Arc<Self>, flight: UnderWay, mut turn: Turn) {
        let family = async |kind| {
            if flight.found(kind).is_none() {
                let found = match self.known(flight.name(), kind) {
                    Some(found) => found,
                    None => self.look_up(flight.name(), kind).await,
                };
                flight.tell(kind, found);
            }
        };
        tokio::select! {
            biased;
            _ = async { tokio::join!(family(RecordType::AAAA), family(RecordType::A)) } => {}
            is_waited_for = turn.is_over(|| flight.is_waited_for()) => {
                let families = [RecordType::AAAA, RecordType::A];
                if !families.iter().any(|kind| flight.found(*kind).is_some_and(|found| found.is_ok())) {
                    return flight.give_up(is_waited_for.then(|| turn.group()));
                }
                // The addresses of one family do.
                families.iter().for_each(|kind| flight.tell(*kind, Err(Unknown::Crowded)));
            }
        }
        flight.land();
    }
}

impl Servers {
    /// The addresses of a name in one family, as the servers say.
    async fn look_up(&self, name: &Name, kind: RecordType) -> Found {
        let answer = self.ask_all(name, kind).await;
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

    #[cfg(test)]
    pub(super) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address().to_string()).collect()
    }

    /// The servers in the order in which they are asked, and which of them have been silent.
    fn order(&self) -> Vec<(&Server, bool)> {
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
    order: &'a [(&Server, bool)],
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

/// How each server is asked.
pub(super) fn options(conf: &ResolvConf) -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.use_hosts_file = ResolveHosts::Never;
    // It would keep whole messages.
    options.cache_size = 0;
    // A bound of its own would hide times that are none.
    options.positive_max_ttl = Some(Duration::from_secs(u32::MAX.into()));
    options.timeout = Duration::from_secs(conf.timeout_s);
    // These are further attempts at the same server; all servers are asked before one is asked again.
    options.attempts = 0;
    options.edns0 = conf.edns0;
    options
}
