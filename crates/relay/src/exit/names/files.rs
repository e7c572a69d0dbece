//! What resolv.conf and the hosts file say, read again when they have changed.
//!
//! A file that is there and cannot be read keeps its last contents, and is read again at each check.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ekiden_files::{FileKind, ReadError};
use ekiden_net::device;
use ekiden_relay_proto::names::{Hosts, Odd, ResolvConf};
use ekiden_service::followed::{Content, Refused};

use super::servers::Servers;

/// The maximum number of left-out lines that are logged for each file.
const ODD_MOST: usize = 5;

/// /dev/null: number 3 of the devices of kind 1.
const NULL_DEVICE: u64 = 1 << 8 | 3;

/// The paths of the two files.
pub(super) struct Files {
    pub(super) resolv_conf: PathBuf,
    pub(super) hosts: PathBuf,
}

/// The contents of both files.
pub(super) struct Loaded {
    /// How often the answers had been forgotten when it was read.
    pub(super) forgotten: u64,
    pub(super) hosts: Content<Hosts>,
    pub(super) name_servers: Content<NameServers>,
}

/// What resolv.conf says.
#[derive(Default)]
pub(super) struct NameServers {
    /// `None` if there is none that can be asked.
    pub(super) servers: Option<Arc<Servers>>,
    /// The zones that name servers have, with the index of the interface: one that comes, goes or is made anew has another.
    pub(super) zones: Vec<(String, Option<u32>)>,
}

impl Loaded {
    /// Without any file.
    #[cfg(test)]
    pub(super) fn of(hosts: Hosts, servers: Servers) -> Self {
        let name_servers = NameServers { servers: Some(Arc::new(servers)), zones: Vec::new() };
        Self { forgotten: 0, hosts: Content::absent(hosts), name_servers: Content::absent(name_servers) }
    }

    pub(super) fn is_current(&self, files: &Files) -> bool {
        self.hosts.is_current(&files.hosts)
            && self.name_servers.is_current(&files.resolv_conf)
            && self.name_servers.value.has_its_zones()
    }
}

impl NameServers {
    pub(super) fn has_its_zones(&self) -> bool {
        self.zones.iter().all(|(zone, index)| device::zone_index(zone).ok() == *index)
    }
}

impl Files {
    /// Reads what has changed since `before`, or all if the answers have been forgotten since.
    pub(super) fn load(&self, before: Option<&Loaded>, forgotten: u64) -> Loaded {
        let kept = before.filter(|before| before.forgotten == forgotten);
        let hosts = match kept.map(|kept| &kept.hosts).filter(|hosts| hosts.is_current(&self.hosts)) {
            Some(hosts) => hosts.same(),
            None => content(&self.hosts, before.map(|before| &before.hosts), |bytes| {
                let (hosts, odd) = Hosts::parse(bytes);
                warn(&self.hosts, &odd);
                hosts
            }),
        };
        let is_current =
            |asked: &&Content<NameServers>| asked.is_current(&self.resolv_conf) && asked.value.has_its_zones();
        let name_servers = match kept.map(|kept| &kept.name_servers).filter(is_current) {
            Some(asked) => asked.same(),
            None => content(&self.resolv_conf, before.map(|before| &before.name_servers), |bytes| {
                let mut zones = Vec::new();
                let servers = self.servers(bytes, &mut zones);
                if let Err(reason) = &servers {
                    let file = self.resolv_conf.display();
                    tracing::warn!("{file}: {reason}: names are looked for in the hosts file alone");
                }
                NameServers { servers: servers.ok().map(Arc::new), zones }
            }),
        };
        Loaded { forgotten, hosts, name_servers }
    }

    /// The name servers of this resolv.conf, or why there are none. `looked` takes the zones that they have.
    pub(super) fn servers(&self, bytes: &[u8], looked: &mut Vec<(String, Option<u32>)>) -> Result<Servers, String> {
        let (mut conf, odd) = ResolvConf::parse(bytes);
        warn(&self.resolv_conf, &odd);
        let mut zones = Vec::new();
        conf.servers.retain(|server| {
            let Some(zone) = &server.zone else {
                zones.push(0);
                return true;
            };
            let index = device::zone_index(zone);
            looked.push((zone.clone(), index.as_ref().ok().copied()));
            match index {
                Ok(index) => zones.push(index),
                Err(error) => {
                    let (file, ip) = (self.resolv_conf.display(), server.ip);
                    tracing::warn!("{file}: nameserver {ip}%{zone}: {error}, left out");
                    return false;
                }
            }
            true
        });
        match conf.servers.is_empty() {
            true => Err("it names no name server that can be asked".into()),
            false => Servers::new(&conf, &zones, &own_domain()).map_err(|error| error.to_string()),
        }
    }
}

/// What `file` says; if it cannot be read, what it has said `before`. Without the file nothing is parsed: no name, and the name
/// server of this host, as glibc does.
fn content<T: Default>(file: &Path, before: Option<&Content<T>>, parse: impl FnOnce(&[u8]) -> T) -> Content<T> {
    Content::read(file, before, || match read(file) {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(error) => Err(Refused::Unread(error.to_string())),
    })
}

/// What a file of the system holds: nothing if there is no such file, or if it leads to /dev/null.
fn read(file: &Path) -> Result<Vec<u8>, ReadError> {
    let is_null = |file: Metadata| file.file_type().is_char_device() && file.rdev() == NULL_DEVICE;
    if fs::metadata(file).is_ok_and(is_null) {
        return Ok(Vec::new());
    }
    match ekiden_files::open(file, FileKind::System).and_then(ekiden_files::Opened::bytes) {
        Err(ReadError::Failed(error)) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
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
