//! Resolves names: by the hosts file, otherwise by the name servers of resolv.conf. Their answers are cached for as long as
//! they allow (RFC 1035 §3.2.1, RFC 2308).
//!
//! Nothing else is consulted, neither nsswitch.conf nor multicast DNS. Both files are read again when they have changed. A line
//! that makes no sense is left out, with a warning.

use std::fs::{self, Metadata};
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_files::{FileKind, ReadError};
use ekiden_net::device;
use ekiden_relay_proto::FailureCode;
use ekiden_relay_proto::names::{Hosts, Odd, ResolvConf};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use servers::Servers;

use crate::exit::spare::Spare;

mod lenient;
mod servers;
mod zoned;

/// The maximum number of left-out lines that are logged for each file.
const ODD_MOST: usize = 5;

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
    /// It is not in the hosts file, and resolv.conf gives no name server that can be asked.
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
    /// The name servers could not say (SERVFAIL): there may be such a name.
    #[error("cannot be asked for: the name server fails (SERVFAIL)")]
    ServerFailed,
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
    /// The zones that name servers have, with the index of the interface: one that comes, goes or is made anew has another.
    zones: Vec<(String, Option<u32>)>,
}

impl Loaded {
    fn has_its_zones(&self) -> bool {
        self.zones.iter().all(|(zone, index)| device::zone_index(zone).ok() == *index)
    }
}

/// Changes with a file's content: its modification time (seconds, nanoseconds), inode and length.
type FileVersion = (i64, i64, u64, u64);

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
        let mut known = loaded.hosts.addresses(host).peekable();
        if known.peek().is_some() {
            // A name that has an address there, in either family, is not asked for elsewhere.
            known.for_each(tell);
            return Ok(());
        }
        let Some(servers) = &loaded.servers else {
            return Err(Unknown::NoServer);
        };
        let asking = servers.find(host, wanted, tell);
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
            Some((loaded, looked)) if loaded.versions == self.files.versions() && loaded.has_its_zones() => {
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
        let hosts = match read(&self.hosts) {
            Ok(Some(bytes)) => {
                let (hosts, odd) = Hosts::parse(&bytes);
                warn(&self.hosts, &odd);
                hosts
            }
            Ok(None) => Hosts::default(),
            Err(error) => {
                tracing::warn!("{}: {error}: it names no host", self.hosts.display());
                Hosts::default()
            }
        };
        let mut zones = Vec::new();
        let servers = self.servers(&mut zones);
        if let Err(reason) = &servers {
            tracing::warn!("{}: {reason}: names are looked for in the hosts file alone", self.resolv_conf.display());
        }
        Loaded { versions, hosts, servers: servers.ok(), zones }
    }

    /// The name servers of resolv.conf, or why there are none. `looked` takes the zones that they have.
    fn servers(&self, looked: &mut Vec<(String, Option<u32>)>) -> Result<Servers, String> {
        // Without the file the name server of this host is asked, as glibc does.
        let bytes = read(&self.resolv_conf).map_err(|error| error.to_string())?.unwrap_or_default();
        let (mut conf, odd) = ResolvConf::parse(&bytes);
        warn(&self.resolv_conf, &odd);
        let mut zones = Vec::new();
        conf.servers.retain(|server| match (server.ip, &server.zone) {
            (IpAddr::V6(ip), Some(zone)) => {
                let index = device::zone_index(zone);
                looked.push((zone.clone(), index.as_ref().ok().copied()));
                match index {
                    Ok(index) => zones.push((ip, index)),
                    Err(error) => {
                        tracing::warn!("{}: nameserver {ip}%{zone}: {error}, left out", self.resolv_conf.display());
                        return false;
                    }
                }
                true
            }
            _ => true,
        });
        match conf.servers.is_empty() {
            true => Err("it names no name server that can be asked".into()),
            false => Servers::new(&conf, zones, &own_domain()).map_err(|error| error.to_string()),
        }
    }
}

/// What a file of the system holds. `None`: there is no such file.
fn read(file: &Path) -> Result<Option<Vec<u8>>, ReadError> {
    match ekiden_files::open(file, FileKind::System).and_then(ekiden_files::Opened::bytes) {
        Err(ReadError::Failed(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn warn(file: &Path, odd: &[Odd]) {
    for Odd { line, reason } in odd.iter().take(ODD_MOST) {
        tracing::warn!("{}:{line}: {reason}, left out", file.display());
    }
    if let Some(more) = odd.len().checked_sub(ODD_MOST).filter(|more| *more > 0) {
        tracing::warn!("{}: {more} more that make no sense are left out", file.display());
    }
}

/// What is behind the first dot of the host's own name.
fn own_domain() -> String {
    let name = fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    name.trim().split_once('.').map_or(String::new(), |(_, domain)| domain.to_owned())
}

impl Unknown {
    /// The code that the client is told.
    pub fn code(&self) -> FailureCode {
        match self {
            Self::NoSuchName | Self::NoAddress | Self::NoServer => FailureCode::NameNotFound,
            Self::Timeout => FailureCode::TimedOut,
            Self::NoDescriptor | Self::NoTurn | Self::Crowded => FailureCode::Overloaded,
            Self::Unreachable | Self::ServerFailed | Self::Failed(_) => FailureCode::Other,
        }
    }

    fn because(error: &NetError) -> Self {
        match error {
            error if error.is_nx_domain() => Self::NoSuchName,
            NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NoError => {
                Self::NoAddress
            }
            NetError::Timeout => Self::Timeout,
            NetError::Dns(DnsError::ResponseCode(ResponseCode::ServFail)) => Self::ServerFailed,
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
