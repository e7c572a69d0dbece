//! Resolves names: by the hosts file, otherwise by the name servers of resolv.conf. Their answers are cached for as long as
//! they allow (RFC 1035 §3.2.1, RFC 2308).
//!
//! Nothing else is consulted, neither nsswitch.conf nor multicast DNS. Both files are read again when they have changed. A line
//! that makes no sense is left out, with a warning.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_relay_proto::FailureCode;
use ekiden_service::followed::CHECK_INTERVAL;
use files::{Files, Loaded};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::exit::spare::LookUp;

mod cache;
mod files;
mod flights;
mod lenient;
mod query;
mod server;
mod servers;
mod sockets;

/// How long a look-up waits for files that have changed. One that takes longer to read counts from then on.
const FOR_CHANGES: Duration = Duration::from_millis(100);

/// The most addresses of a name that are tried, and that are kept of it in each family. Without this bound the owner of a name
/// would decide how many connections a request makes, and how much memory its answer takes.
pub const MOST_ADDRESSES: usize = 16;

/// Resolves names and caches the answers. One for all threads.
pub struct Resolver(Arc<Shared>);

struct Shared {
    files: Files,
    /// What the files said when they were last read. `None`: they have not been read.
    loaded: watch::Sender<Option<Arc<Loaded>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When the files were last checked for changes.
    checked: Option<Instant>,
    is_loading: bool,
    /// How often the answers have been forgotten.
    forgotten: u64,
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
    #[error("cannot be asked for: no name server of resolv.conf can be reached (127.0.0.1, if it names none)")]
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

impl Resolver {
    /// Resolves by /etc/resolv.conf and /etc/hosts.
    pub fn of_system() -> Self {
        Self::of(Files { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into() })
    }

    fn of(files: Files) -> Self {
        Self(Arc::new(Shared { files, loaded: watch::Sender::default(), state: Mutex::default() }))
    }

    /// Drops all cached answers. The next look-up waits until the files have been read again.
    pub fn forget(&self) {
        self.0.lock().forgotten += 1;
    }

    /// Looks `host` up and gives its addresses to `tell`, those of each family as soon as they are known. The hosts file is
    /// asked first. The search list of resolv.conf may make several names of `host`: these and `host` itself are asked for in
    /// turn, until one has an address. A name is left out if `wanted` is false for it, so the addresses are those of the last
    /// name for which `wanted` was called.
    ///
    /// What is known waits for nothing. For a name that is being looked up for another, `look_up` waits for that; to ask a name
    /// server, for its turn. Asking goes on when nobody waits for it any longer, as long as nobody wants its descriptors. It is
    /// given up when it has taken long while others wait for turns.
    ///
    /// # Errors
    /// No address was found.
    pub async fn find(
        &self,
        host: &str,
        look_up: &LookUp<'_>,
        wanted: impl Fn(&str) -> bool,
        tell: impl Fn(IpAddr),
    ) -> Result<(), Unknown> {
        let asked = {
            let loaded = self.current().await;
            let mut known = loaded.hosts.value.addresses(host).peekable();
            if known.peek().is_some() {
                // A name that has an address there, in either family, is not asked for elsewhere.
                known.for_each(tell);
                return Ok(());
            }
            loaded.name_servers.value.clone()
        };
        let Some(servers) = &asked.servers else {
            return Err(Unknown::NoServer);
        };
        servers.find(host, look_up, wanted, tell).await
    }

    /// What the files say. While they are read anew, it is what they said before, but never from before [`Resolver::forget`].
    async fn current(&self) -> Arc<Loaded> {
        let mut loaded = self.0.loaded.subscribe();
        let before = loaded.borrow_and_update().clone();
        let forgotten = self.0.lock().forgotten;
        let is_fresh = |loaded: &Loaded| loaded.forgotten >= forgotten;
        let is_loading = self.0.check(before.as_deref());
        match before.filter(|before| is_fresh(before)) {
            Some(before) if !is_loading => before,
            Some(before) => match timeout(FOR_CHANGES, loaded.changed()).await {
                Ok(_) => loaded.borrow().clone().unwrap_or(before),
                Err(_) => before,
            },
            None => loop {
                if let Some(loaded) = loaded.borrow_and_update().clone().filter(|loaded| is_fresh(loaded)) {
                    return loaded;
                }
                // It is never closed.
                let _ = loaded.changed().await;
            },
        }
    }
}

impl Shared {
    /// Begins to read the files if that is due. Whether they are being read.
    fn check(self: &Arc<Self>, before: Option<&Loaded>) -> bool {
        let mut state = self.lock();
        let is_forgotten = before.is_none_or(|before| before.forgotten != state.forgotten);
        let is_due = is_forgotten || state.checked.is_none_or(|checked| checked.elapsed() >= CHECK_INTERVAL);
        if state.is_loading || !is_due {
            return state.is_loading;
        }
        state.checked = Some(Instant::now());
        if !is_forgotten && before.is_some_and(|before| before.is_current(&self.files)) {
            return false;
        }
        state.is_loading = true;
        drop(state);
        let loading = Loading { shared: self.clone(), is_over: false };
        spawn_blocking(move || loading.run());
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files are being read until this is dropped.
struct Loading {
    shared: Arc<Shared>,
    is_over: bool,
}

impl Loading {
    fn run(mut self) {
        while !self.is_over {
            let forgotten = self.shared.lock().forgotten;
            let before = self.shared.loaded.borrow().clone();
            let fresh = self.shared.files.load(before.as_deref(), forgotten);
            self.shared.loaded.send_replace(Some(Arc::new(fresh)));
            {
                let mut state = self.shared.lock();
                self.is_over = state.forgotten == forgotten;
                if self.is_over {
                    state.checked = Some(Instant::now());
                    state.is_loading = false;
                }
            }
            // A million names take a while to free: here, and not where the last look-up lets go of them.
            while before.as_ref().is_some_and(|before| Arc::strong_count(before) > 1) {
                std::thread::sleep(FOR_CHANGES / 100);
            }
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        // It has panicked, or the runtime has ended before it could begin.
        if !self.is_over {
            self.shared.lock().is_loading = false;
        }
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resolver")
    }
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
