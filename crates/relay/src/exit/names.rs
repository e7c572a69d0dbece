//! From names to addresses: what the hosts file says, else what the name servers of resolv.conf say, which is remembered
//! for as long as they allow it (RFC 1035 §3.2.1, RFC 2308).
//!
//! Nothing else is asked: neither nsswitch.conf nor multicast DNS. Both files are read again when they have changed.

use std::fs::{self, Metadata};
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_relay_proto::FailureCode;
use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, Resolver, TokioResolver};

use crate::exit::spare::Spare;

/// Answers remembered, positive and negative; the one that was not asked for longest goes first.
const REMEMBERED: u64 = 1024;

/// The longest that an answer counts, whatever it says: a day, and as RFC 2308 §5 advises far less if there is none.
const LONGEST: Duration = Duration::from_secs(86_400);
const LONGEST_NEGATIVE: Duration = Duration::from_secs(600);

/// How often it is looked whether the files have changed.
const LOOK: Duration = Duration::from_secs(1);

/// The names that this node knows. One for all threads.
pub struct Names {
    files: Files,
    /// And when it was looked whether they have changed.
    loaded: Mutex<Option<(Arc<Loaded>, Instant)>>,
}

/// Where names are read from.
struct Files {
    resolv_conf: PathBuf,
    hosts: PathBuf,
}

/// Why there is no address for a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// There is no such name (NXDOMAIN).
    #[error("does not exist")]
    NoSuchName,
    /// There is, but without an address.
    #[error("has no address")]
    NoAddress,
    /// Only the hosts file could know it.
    #[error("is not in the hosts file, and this node has no name server")]
    NoServer,
    /// No name server has answered in time.
    #[error("was not answered for by a name server in time")]
    Timeout,
    /// No name server of resolv.conf can be reached.
    #[error("cannot be asked for: no name server in resolv.conf can be reached")]
    Unreachable,
    /// It takes long, and others wait to ask.
    #[error("was not answered for while others waited to ask")]
    Crowded,
    /// There is no descriptor to ask with.
    #[error("cannot be asked for: out of descriptors")]
    NoDescriptor,
    /// Anything else, such as a failure of the name server's own.
    #[error("cannot be asked for: {0}")]
    Failed(String),
}

/// The files as they were.
struct Loaded {
    /// What they were known by.
    seen: [Option<Seen>; 2],
    hosts: Hosts,
    servers: Option<Servers>,
}

/// Changes with a file's content: time, inode, length.
type Seen = (i64, i64, u64, u64);

/// resolv.conf: whom to ask, and what for.
struct Servers {
    resolver: TokioResolver,
    search: Vec<Name>,
    ndots: usize,
}

impl Names {
    /// As this machine's files say.
    pub fn of_system() -> Self {
        Self::of(Files { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into() })
    }

    fn of(files: Files) -> Self {
        Self { files, loaded: Mutex::default() }
    }

    /// Forgets all answers; the files are read again when the next name is looked for.
    pub fn forget(&self) {
        *self.lock() = None;
    }

    /// Gives every address of `host` to `tell`, each family's as soon as they are known. Each name that the search list makes
    /// of it, and it itself, is looked for only if `wanted`; the addresses told are those of the last one that was. What name
    /// servers are asked with is of the `spare` descriptors: it waits for them, and gives way to others that do.
    ///
    /// # Errors
    /// If there is none.
    pub async fn find(
        &self,
        host: &str,
        spare: &Spare,
        wanted: impl Fn(&str) -> bool,
        tell: impl Fn(IpAddr),
    ) -> Result<(), Unknown> {
        let loaded = self.current();
        if loaded.tell_known(host, &tell) {
            return Ok(());
        }
        let Some(servers) = &loaded.servers else {
            return Err(Unknown::NoServer);
        };
        let asking = async {
            let mut unknown = Unknown::NoSuchName;
            for name in servers.names(host).into_iter().filter(|name| wanted(&name.to_ascii())) {
                match servers.ask(&name, &tell).await {
                    Err(why @ (Unknown::NoSuchName | Unknown::NoAddress)) => unknown = why,
                    other => return other,
                }
            }
            Err(unknown)
        };
        let _counted = spare.look_up().await;
        tokio::select! {
            biased;
            found = asking => found,
            () = spare.give_way() => Err(Unknown::Crowded),
        }
    }

    fn current(&self) -> Arc<Loaded> {
        let mut loaded = self.lock();
        match &mut *loaded {
            Some((loaded, looked)) if looked.elapsed() < LOOK => return loaded.clone(),
            Some((loaded, looked)) if loaded.seen == self.files.seen() => {
                *looked = Instant::now();
                return loaded.clone();
            }
            _ => {}
        }
        let fresh = Arc::new(self.files.load());
        *loaded = Some((fresh.clone(), Instant::now()));
        fresh
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Arc<Loaded>, Instant)>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Names")
    }
}

impl Files {
    fn seen(&self) -> [Option<Seen>; 2] {
        let seen = |file: &Metadata| (file.mtime(), file.mtime_nsec(), file.ino(), file.len());
        [&self.resolv_conf, &self.hosts].map(|file| fs::metadata(file).ok().as_ref().map(seen))
    }

    fn load(&self) -> Loaded {
        // Before they are read: a change in between is seen the next time.
        let seen = self.seen();
        let mut hosts = Hosts::default();
        let read = fs::File::open(&self.hosts).and_then(|file| hosts.read_hosts_conf(file));
        if let Err(error) = read.or_else(not_there) {
            tracing::warn!("{}: {error}", self.hosts.display());
        }
        let text = fs::read(&self.resolv_conf).map_err(NetError::from);
        let servers = text.and_then(parse_resolv_conf).and_then(|(config, options)| Servers::new(config, options));
        if let Err(error) = &servers {
            tracing::warn!("{}: {error}: names are looked for in the hosts file alone", self.resolv_conf.display());
        }
        Loaded { seen, hosts, servers: servers.ok() }
    }
}

fn not_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

impl Loaded {
    /// What the hosts file says about `host`. A name that it has is not asked for elsewhere, in neither family.
    fn tell_known(&self, host: &str, tell: impl Fn(IpAddr)) -> bool {
        let Ok(name) = Name::from_ascii(host) else { return false };
        let mut found = false;
        for kind in [RecordType::AAAA, RecordType::A] {
            let known = self.hosts.lookup_static_host(&Query::query(name.clone(), kind));
            for ip in known.iter().flat_map(|known| known.answers()).filter_map(|record| record.data.ip_addr()) {
                found = true;
                tell(ip);
            }
        }
        found
    }
}

impl Servers {
    fn new(config: ResolverConfig, mut options: ResolverOpts) -> Result<Self, NetError> {
        options.use_hosts_file = ResolveHosts::Never;
        options.cache_size = REMEMBERED;
        options.positive_max_ttl = Some(LONGEST);
        options.negative_max_ttl = Some(LONGEST_NEGATIVE);
        let search = match config.search() {
            [] => config.domain().into_iter().cloned().collect(),
            search => search.to_vec(),
        };
        let ndots = options.ndots;
        let builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
        Ok(Self { resolver: builder.with_options(options).build()?, search, ndots })
    }

    /// The names that `host` may stand for, in the order of resolv.conf(5).
    fn names(&self, host: &str) -> Vec<Name> {
        let Ok(name) = Name::from_ascii(host) else { return Vec::new() };
        let mut exact = name.clone();
        exact.set_fqdn(true);
        if name.is_fqdn() {
            return vec![exact];
        }
        let mut names: Vec<Name> =
            self.search.iter().filter_map(|domain| name.clone().append_domain(domain).ok()).collect();
        for name in &mut names {
            name.set_fqdn(true);
        }
        let dots = host.bytes().filter(|&b| b == b'.').count();
        names.insert(if dots >= self.ndots { 0 } else { names.len() }, exact);
        names
    }

    /// Asks for both families at once.
    async fn ask(&self, name: &Name, tell: impl Fn(IpAddr)) -> Result<(), Unknown> {
        let family = async |kind| {
            let found = self.resolver.lookup(name.clone(), kind).await.map_err(|error| Unknown::because(&error))?;
            let mut ips = found.answers().iter().filter_map(|record| record.data.ip_addr()).peekable();
            ips.peek().ok_or(Unknown::NoAddress)?;
            ips.for_each(&tell);
            Ok(())
        };
        match tokio::join!(family(RecordType::AAAA), family(RecordType::A)) {
            (Ok(()), _) | (_, Ok(())) => Ok(()),
            // A name that does not exist has addresses of neither family; one without an address may have one of the other.
            (Err(Unknown::NoSuchName), _) | (_, Err(Unknown::NoSuchName)) => Err(Unknown::NoSuchName),
            (Err(Unknown::NoAddress), other) => other,
            (other, _) => other,
        }
    }
}

impl Unknown {
    /// What it means to the client.
    pub fn code(&self) -> FailureCode {
        match self {
            Self::NoSuchName | Self::NoAddress | Self::NoServer => FailureCode::NameNotFound,
            Self::Timeout => FailureCode::TimedOut,
            Self::NoDescriptor | Self::Crowded => FailureCode::Overloaded,
            Self::Unreachable | Self::Failed(_) => FailureCode::Other,
        }
    }

    fn because(error: &NetError) -> Self {
        match error {
            error if error.is_nx_domain() => Self::NoSuchName,
            NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NoError => {
                Self::NoAddress
            }
            NetError::Timeout => Self::Timeout,
            NetError::Io(error) if tells_of_descriptors(error) => Self::NoDescriptor,
            // Every server failed at once, of which the resolver tells no more.
            NetError::NoConnections if is_out_of_descriptors() => Self::NoDescriptor,
            NetError::NoConnections => Self::Unreachable,
            error => Self::Failed(error.to_string()),
        }
    }
}

/// EMFILE, ENFILE: 24, 23 on every Linux.
fn tells_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

fn is_out_of_descriptors() -> bool {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).is_err_and(|error| tells_of_descriptors(&error))
}

#[cfg(test)]
pub mod tests;
