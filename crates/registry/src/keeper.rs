//! Keeps a node's membership: registers it, watches the others, and comes back when etcd was away.
//!
//! This module decides when everything is read again, when a watch counts as silent, and how often changes are reported.

mod tell;

use std::mem::replace;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_keys::random_secret;
use ekiden_service::Throttle;

use crate::backoff::Backoff;
use crate::cache::{Cache, Cached, Nodes};
use crate::client::Client;
use crate::error::RegistryError;
use crate::gateway::{Failure, Header, Watched};
use crate::inbox::{Input, Said};
use crate::keys::Keys;
use crate::noisy::Noisy;
use crate::record::Load;
use crate::registration::{Registration, Step};
use crate::requests::{self, Unwritten};
use crate::settings::{Settings, wrong};
use crate::status::Shared;
use crate::view::{KEYS_MOST, RETURN_WITHIN, Roster, View};
use crate::watch::Watch;

/// The longest interval between two checks of etcd and of the watch: with it a node with a lease of 60 s sends and receives
/// less than 1 kbit/s.
const REST_MOST: Duration = Duration::from_secs(25);

/// The part of a lease that is left for further attempts, if checks are further apart than a third of it.
const SPARE: Duration = Duration::from_secs(35);

/// The longest absence after which a watch is resumed, for longer leases: in that time etcd cannot have been restored from a
/// copy.
const RESUME_WITHIN: Duration = Duration::from_secs(30);

/// The least interval between two reported changes: a node that writes without end causes this much work and no more.
const PUBLISH_EVERY: Duration = Duration::from_millis(500);

/// The maximum number of times that a record is written anew at once if etcd says that it was not as expected.
const WRITES_MOST: u32 = 3;

/// The store, and the revision up to which its changes are known.
#[derive(Debug, Clone, Copy)]
struct Position {
    header: Header,
    revision: u64,
    /// When etcd last answered.
    heard: Instant,
}

/// Why a stay with one member of etcd ends.
enum End {
    Stop,
    Error(RegistryError),
}

/// All that the thread has.
pub struct Keeper {
    settings: Settings,
    keys: Keys,
    client: Client,
    shared: Arc<Mutex<Shared>>,
    inbox: SyncSender<Input>,
    received: Receiver<Input>,
    on_change: Box<dyn FnMut(&Roster) + Send>,
    cache: Option<Cache>,
    view: View,
    /// The roster that was reported last, if any was.
    shown: Option<Roster>,
    shown_at: Option<Instant>,
    /// Whether there are changes that were not processed yet.
    is_changed: bool,
    registration: Registration,
    /// The load at the last check of etcd: it is written at no shorter interval.
    load: Load,
    lease: Option<u64>,
    /// How long etcd keeps the lease.
    ttl: Duration,
    position: Option<Position>,
    /// The position at which a check found that the watch may have missed something.
    behind: Option<u64>,
    watch: Option<Watch>,
    watches: u64,
    noisy: Noisy,
    /// Whether etcd was compacted in front of the watch since the last check.
    was_compacted: bool,
    backoff: Backoff,
    lines: Throttle,
}

impl Keeper {
    /// Of a node with checked settings. Sends nothing.
    pub fn new(
        settings: Settings,
        client: Client,
        shared: Arc<Mutex<Shared>>,
        (inbox, received): (SyncSender<Input>, Receiver<Input>),
        on_change: Box<dyn FnMut(&Roster) + Send>,
    ) -> Result<Self, RegistryError> {
        let instance = random_secret().map_err(|error| wrong("random numbers", error.to_string()))?;
        let instance = instance[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let keys = Keys::of(&settings.overlay);
        let registration = Registration::new(&settings, instance);
        shared.lock().unwrap_or_else(PoisonError::into_inner).overlay_id = settings.expected_id;
        Ok(Self {
            view: View::new(keys.clone()),
            cache: settings.members_cache.clone().map(|file| Cache::new(file, &settings.overlay)),
            ttl: settings.lease,
            settings,
            keys,
            client,
            shared,
            inbox,
            received,
            on_change,
            shown: None,
            shown_at: None,
            is_changed: false,
            registration,
            load: Load::default(),
            lease: None,
            position: None,
            behind: None,
            watch: None,
            watches: 0,
            noisy: Noisy::new(Instant::now()),
            was_compacted: false,
            backoff: Backoff::default(),
            lines: Throttle::default(),
        })
    }

    /// Runs until it is told to stop.
    pub fn run(mut self) {
        self.remember();
        while let End::Error(error) = self.session() {
            self.watch = None;
            if error.is_of_endpoint() {
                self.client.next_endpoint();
            }
            self.disconnected(error);
            let again = Instant::now() + self.backoff.failed(chance());
            while let Some(input) = self.next_input(again) {
                if matches!(input, Input::Stop) {
                    return self.leave();
                }
            }
            self.lines.flush();
        }
        self.leave();
    }

    /// Begins with the members that this process knew before.
    pub fn knows(&mut self, Roster { members, absent }: Roster) {
        let members = members.into_iter().map(|(name, listed)| (name, listed.member)).collect();
        self.view.remember(members, absent);
    }

    /// Begins with the members that were known before this process, unless it knows later ones.
    fn remember(&mut self) {
        if self.view.len() > 0 {
            return self.publish();
        }
        let Some(cache) = &mut self.cache else { return };
        let Cached { overlay_id, nodes: Nodes { mut members, absent }, age } =
            match cache.load(self.settings.expected_id) {
                Ok(None) => return,
                Ok(Some(cached)) => cached,
                Err(why) => return tracing::warn!("overlay '{}': {why}", self.settings.overlay),
            };
        // This node's own record counts; under another key it was never a member.
        let Settings { name, address, fingerprint, .. } = &self.settings;
        match members.get_mut(name) {
            Some(member) if member.fingerprint == *fingerprint => member.address.clone_from(address),
            _ => drop(members.remove(name)),
        }
        let mut shared = self.lock();
        shared.overlay_id = Some(overlay_id);
        shared.from_file = Some((age, Instant::now()));
        drop(shared);
        self.view.remember(members, absent);
        self.publish();
    }

    /// One session with one member of etcd, until it fails.
    fn session(&mut self) -> End {
        if let Err(error) = self.connect() {
            // A store restored from a copy is silent about tokens from its future, until it has caught up.
            self.client.forget_token();
            return End::Error(error);
        }
        match self.listen() {
            Ok(()) => End::Stop,
            Err(error) => End::Error(error),
        }
    }

    /// Identifies the overlay, reads what is new, begins the watch and registers this node.
    fn connect(&mut self) -> Result<(), RegistryError> {
        let header = self.identify()?;
        let now = Instant::now();
        let resumes = self.position.is_some_and(|position| {
            // A store that was restored from a copy has another past.
            let is_same = header.cluster_id == position.header.cluster_id
                && header.raft_term >= position.header.raft_term
                && header.revision >= position.revision;
            is_same && now.saturating_duration_since(position.heard) < self.ttl.min(RESUME_WITHIN)
        });
        if !resumes {
            self.read_all()?;
        }
        self.begin_watch()?;
        self.register()?;
        self.connected(header);
        Ok(())
    }

    /// Whether this is the intended overlay.
    fn identify(&mut self) -> Result<Header, RegistryError> {
        let known = self.lock().overlay_id;
        let found = requests::the_overlay(&mut self.client, &self.keys, &self.settings.overlay, known);
        let (header, found) = found.map_err(|error| match (error, &self.cache, self.settings.expected_id) {
            (RegistryError::OtherOverlay { endpoint, overlay, found, expected }, Some(cache), None) => {
                let expected = format!("{expected} (by {})", cache.path().display());
                RegistryError::OtherOverlay { endpoint, overlay, found, expected }
            }
            (error, ..) => error,
        })?;
        self.lock().overlay_id = Some(found);
        Ok(header)
    }

    /// Everything below the prefix, at one revision.
    fn read_all(&mut self) -> Result<(), RegistryError> {
        let (header, reading) = requests::read_all(&mut self.client, &self.keys)?;
        let now = Instant::now();
        let heard = self.position.map(|position| position.heard);
        let from_file = self.lock().from_file.is_some();
        let was_away = from_file || heard.is_some_and(|heard| now.saturating_duration_since(heard) >= self.ttl);
        self.view.replace(reading, now, was_away.then_some(RETURN_WITHIN));
        self.position = Some(Position { header, revision: header.revision, heard: now });
        self.publish();
        // Whoever sees that no file is relied on any more has been told the members.
        self.lock().from_file = None;
        Ok(())
    }

    /// A watch from where the changes are known.
    fn begin_watch(&mut self) -> Result<(), RegistryError> {
        self.watch = None;
        self.behind = None;
        self.watches += 1;
        let from = self.position.map_or(0, |position| position.revision) + 1;
        let (agent, body) = requests::watch(&mut self.client, &self.keys, from)?;
        let watch = Watch::start(self.watches, agent, body, self.keys.prefix().to_owned(), self.inbox.clone());
        self.watch = Some(watch.map_err(|error| wrong("threads", error.to_string()))?);
        Ok(())
    }

    /// Waits for changes, and renews the lease meanwhile.
    fn listen(&mut self) -> Result<(), RegistryError> {
        let mut due = Instant::now() + self.rest();
        loop {
            let changes = self.is_changed.then(|| self.publish_at());
            let wake = [self.view.next_departure(), self.noisy.next_look(), changes]
                .into_iter()
                .flatten()
                .fold(due, Instant::min);
            match self.next_input(wake) {
                Some(Input::Stop) => return Ok(()),
                // Watches that were given up may still say something.
                Some(Input::Watch(number, said)) if self.watch.as_ref().map(Watch::number) == Some(number) => {
                    self.on_watch(said)?;
                }
                Some(Input::Watch(..)) | None => {}
            }
            let now = Instant::now();
            if self.view.next_departure().is_some_and(|departure| departure <= now) {
                self.view.let_go(now);
                self.publish();
            }
            self.is_changed |= self.noisy.look(now);
            if self.is_changed && now >= self.publish_at() {
                self.is_changed = false;
                self.publish();
                self.register()?;
            }
            self.lines.flush();
            if now >= due {
                self.check()?;
                due = Instant::now() + self.rest();
            }
        }
    }

    /// How long nothing is to be asked.
    fn rest(&self) -> Duration {
        (self.ttl / 3).max(self.ttl.saturating_sub(SPARE)).min(REST_MOST)
    }

    fn on_watch(&mut self, said: Said) -> Result<(), RegistryError> {
        let what = "a watch";
        match said {
            Said::Changes(watched) if watched.compact_revision > 0 => {
                if replace(&mut self.was_compacted, true) {
                    let message = "it was compacted, and so again at once".into();
                    return Err(self.client.failed(what, Failure { code: 0, message }));
                }
                tracing::info!("overlay '{}': etcd was compacted; all is read again", self.settings.overlay);
                self.read_all()?;
                self.begin_watch()?;
                self.register()
            }
            Said::Changes(watched) if watched.canceled => {
                // It does not say why in a code: another token may help, and does no harm.
                self.client.forget_token();
                let message = watched.cancel_reason;
                Err(self.client.failed(what, Failure { code: 0, message }))
            }
            Said::Changes(watched) => self.changed(watched),
            Said::Failed(failure) => {
                if failure.is_of_token() {
                    self.client.forget_token();
                }
                Err(self.client.failed(what, failure))
            }
            Said::Ended(reason) => Err(RegistryError::Unreachable { endpoint: self.client.endpoint().into(), reason }),
        }
    }

    fn changed(&mut self, watched: Watched) -> Result<(), RegistryError> {
        let Some(last) = watched.events.last() else { return Ok(()) };
        // What follows a fragment has the same revision.
        let revision = last.kv.mod_revision - u64::from(watched.fragment).min(last.kv.mod_revision);
        watched.events.iter().for_each(|event| self.count(event));
        self.view.apply_all(watched.events);
        if self.view.len() > KEYS_MOST {
            self.position = None;
            return Err(requests::too_many(&self.client, &self.keys));
        }
        if let Some(position) = &mut self.position {
            position.revision = position.revision.max(revision);
        }
        self.is_changed = true;
        Ok(())
    }

    /// When changes are published next.
    fn publish_at(&self) -> Instant {
        self.shown_at.map_or_else(Instant::now, |at| at + PUBLISH_EVERY)
    }

    /// Renews the lease, and checks that the watch has missed nothing: etcd, or what is between, may be silent.
    fn check(&mut self) -> Result<(), RegistryError> {
        if let Some(lease) = self.lease
            && !requests::keep_alive(&mut self.client, lease)?
        {
            self.lease = None;
        }
        let Some(position) = self.position else { return Ok(()) };
        let (header, newer, count) = requests::since(&mut self.client, &self.keys, position.revision)?;
        if newer || count != self.view.len() as u64 {
            if self.behind == Some(position.revision) {
                let reason = "its watch has said nothing of changes that it has".into();
                return Err(RegistryError::Unreachable { endpoint: self.client.endpoint().into(), reason });
            }
            self.behind = Some(position.revision);
        } else {
            self.behind = None;
            // Changes of others' keys do not count as missed when etcd is compacted.
            let revision = position.revision.max(header.revision);
            self.position = Some(Position { header, revision, heard: position.heard });
            self.write_cache();
        }
        let load = self.lock().load;
        self.load = load;
        self.register()?;
        if let Some(position) = &mut self.position {
            position.heard = Instant::now();
        }
        self.was_compacted = false;
        self.backoff.succeeded();
        Ok(())
    }

    /// Writes this node's own record.
    fn register(&mut self) -> Result<(), RegistryError> {
        let mut writes = 0;
        let problem = loop {
            match self.registration.next(&self.view, self.lease, self.load) {
                Step::Nothing => break None,
                Step::Refused(error) => break Some(error),
                Step::Write(..) if writes == WRITES_MOST => {
                    return Err(self.client.malformed("a registration", "it does not hold what was written"));
                }
                Step::Write(record, revisions) => {
                    writes += 1;
                    let lease = match self.lease.map_or_else(|| self.grant(), Ok) {
                        Ok(lease) => lease,
                        // The members are known nevertheless.
                        Err(error @ RegistryError::NoSpace { .. }) => break Some(error),
                        Err(error) => return Err(error),
                    };
                    let name = self.registration.name();
                    match requests::write(&mut self.client, &self.keys, name, (&record, revisions), lease) {
                        Ok(event) => {
                            self.registration.written(lease);
                            self.view.apply(event);
                            self.publish();
                        }
                        // The watch, or the next check, reports the change.
                        Err(Unwritten::Changed) => break None,
                        Err(Unwritten::NoLease) => self.lease = None,
                        Err(Unwritten::Error(
                            error @ (RegistryError::Denied { .. } | RegistryError::NoSpace { .. }),
                        )) => break Some(error),
                        Err(Unwritten::Error(error)) => return Err(error),
                    }
                }
            }
        };
        self.record_outcome(problem);
        Ok(())
    }

    fn grant(&mut self) -> Result<u64, RegistryError> {
        let (lease, ttl) = requests::grant(&mut self.client, self.settings.lease)?;
        self.ttl = ttl;
        Ok(*self.lease.insert(lease))
    }

    /// Ends the lease.
    fn leave(&mut self) {
        self.watch = None;
        let is_there = self.lock().endpoint.is_some();
        if let Some(cache) = self.cache.as_mut().filter(|_| is_there)
            && let Err(why) = cache.confirm(Instant::now())
        {
            tracing::warn!("overlay '{}': {why}", self.settings.overlay);
        }
        if let Some(lease) = self.lease.take()
            && let Err(error) = requests::revoke(&mut self.client, lease)
        {
            tracing::warn!("overlay '{}': this node leaves when its lease ends: {error}", self.settings.overlay);
        }
    }

    /// The next message before `until`.
    fn next_input(&self, until: Instant) -> Option<Input> {
        match self.received.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Input::Stop),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From 0 to 1.
fn chance() -> f64 {
    random_secret().map_or(0.5, |bytes| f64::from(bytes[0]) / 255.0)
}
