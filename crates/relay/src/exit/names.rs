//! Resolves names: by the hosts file, otherwise by the name servers of resolv.conf. Their answers are cached for as long as
//! they allow (RFC 1035 §3.2.1, RFC 2308).
//!
//! Nothing else is consulted, neither nsswitch.conf nor multicast DNS. Both files are read again when they have changed.

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
use hickory_resolver::{Hosts, TokioResolver};

use crate::exit::spare::Spare;

/// The most answers that are cached, positive and negative. Beyond it the resolver drops those that are seldom asked for.
const REMEMBERED: u64 = 1024;

/// The longest time for which an answer is cached, whatever its TTL. It is a day, and less for negative answers, for which RFC
/// 2308 §5 asks for a bound.
const LONGEST: Duration = Duration::from_secs(86_400);
const LONGEST_NEGATIVE: Duration = Duration::from_secs(600);

/// The files are checked for changes by the first look-up after this time.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Resolves names and caches the answers. One for all threads.
pub struct Resolver {
    files: Files,
    /// What the files said when they were last read, and when they were last checked for changes.
    loaded: Mutex<Option<(Arc<Loaded>, Instant)>>,
}

/// The paths of the two files.
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
    /// The name exists, but has no address.
    #[error("has no address")]
    NoAddress,
    /// It is not in the hosts file, and resolv.conf gives no name server.
    #[error("is not in the hosts file, and this node has no name server")]
    NoServer,
    /// No name server has answered in time.
    #[error("was not answered for by a name server in time")]
    Timeout,
    /// No name server of resolv.conf can be reached.
    #[error("cannot be asked for: no name server in resolv.conf can be reached")]
    Unreachable,
    /// The look-up has not begun in time: others had the file descriptors.
    #[error("was not asked for in time: other look-ups had all descriptors that this node keeps for them")]
    NoTurn,
    /// The look-up has taken long, and others wait to begin.
    #[error("was not answered for while others waited to ask")]
    Crowded,
    /// There is no file descriptor for the query.
    #[error("cannot be asked for: out of descriptors")]
    NoDescriptor,
    /// Anything else, such as an error that the name server reports.
    #[error("cannot be asked for: {0}")]
    Failed(String),
}

/// The contents of both files when they were read.
struct Loaded {
    /// Of resolv.conf and the hosts file, so that a change is noticed. `None`: there was no such file.
    versions: [Option<FileVersion>; 2],
    hosts: Hosts,
    servers: Option<Servers>,
}

/// Changes with a file's content: its modification time (seconds, nanoseconds), inode and length.
type FileVersion = (i64, i64, u64, u64);

/// resolv.conf: the name servers, and how short names are completed.
struct Servers {
    resolver: TokioResolver,
    search: Vec<Name>,
    ndots: usize,
}

impl Resolver {
    /// Resolves by /etc/resolv.conf and /etc/hosts.
    pub fn of_system() -> Self {
        Self::of(Files { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into() })
    }

    fn of(files: Files) -> Self {
        Self { files, loaded: Mutex::default() }
    }

    /// Drops all cached answers. The next look-up reads the files again.
    pub fn forget(&self) {
        *self.lock() = None;
    }

    /// Looks `host` up and gives its addresses to `tell`, those of each family as soon as they are known. The hosts file is
    /// asked first. The search list of resolv.conf may make several names of `host`: these and `host` itself are asked for in
    /// turn, until one has an address. A name is left out if `wanted` is false for it, so the addresses are those of the last
    /// name for which `wanted` was called.
    ///
    /// Queries to name servers use descriptors of `spare`. The look-up waits for them. It is given up when it has taken long
    /// while others wait.
    ///
    /// # Errors
    /// No address was found.
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
            Some((loaded, looked)) if looked.elapsed() < CHECK_INTERVAL => return loaded.clone(),
            Some((loaded, looked)) if loaded.versions == self.files.versions() => {
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

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resolver")
    }
}

impl Files {
    fn versions(&self) -> [Option<FileVersion>; 2] {
        let version = |file: &Metadata| (file.mtime(), file.mtime_nsec(), file.ino(), file.len());
        [&self.resolv_conf, &self.hosts].map(|file| fs::metadata(file).ok().as_ref().map(version))
    }

    fn load(&self) -> Loaded {
        // Taken before the files are read, so that a change in between is noticed at the next check.
        let versions = self.versions();
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
        Loaded { versions, hosts, servers: servers.ok() }
    }
}

fn not_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

impl Loaded {
    /// Gives the addresses of `host` in the hosts file to `tell`. False if there are none. A name that has an address there, in
    /// either family, is not asked for elsewhere.
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
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        Ok(Self { resolver: builder.with_options(options).build()?, search, ndots })
    }

    /// The names that `host` may stand for, in the order in which resolv.conf(5) says to ask for them.
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

    /// Asks for the addresses of both families at the same time.
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
            // NXDOMAIN holds for both families. A name that has no address in one family may have one in the other.
            (Err(Unknown::NoSuchName), _) | (_, Err(Unknown::NoSuchName)) => Err(Unknown::NoSuchName),
            (Err(Unknown::NoAddress), other) => other,
            (other, _) => other,
        }
    }
}

impl Unknown {
    /// The code that the client is told.
    pub fn code(&self) -> FailureCode {
        match self {
            Self::NoSuchName | Self::NoAddress | Self::NoServer => FailureCode::NameNotFound,
            Self::Timeout => FailureCode::TimedOut,
            Self::NoDescriptor | Self::NoTurn | Self::Crowded => FailureCode::Overloaded,
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
            // The resolver says only that every server failed, not why.
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
