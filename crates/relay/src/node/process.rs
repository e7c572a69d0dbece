//! The life of a process that is a node: start, signals, end.

use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant as StdInstant, SystemTime};

use ekiden_net::socket::{self, SocketError};
use ekiden_net::{allocator, patience};
use ekiden_service::{Asked, Signals, announce, reload};
use ekiden_units::Time;
use tokio::runtime::Builder;
use tokio::time::{Instant, interval_at, sleep};

use crate::config::pattern::Pattern;
use crate::config::{Config, Listener};
use crate::node::handover::{Inherited, Others};
use crate::node::membership::Membership;
use crate::node::status::Answers;
use crate::node::{Relay, StartError};
use crate::shared::ABOUT_TO_ASK;

/// How often draining looks whether it is done.
const DRAIN_STEP: Duration = Duration::from_millis(20);

/// The most time in which listeners are closed that no process waits for, where the node is not full.
const CLOSING: Duration = Duration::from_secs(3);

/// How often it says how many streams are left.
const DRAIN_TOLD: Duration = Duration::from_secs(60);

/// How often it says which certificates are not valid.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The timeout of telling etcd about the node's end, once nothing else is under way.
const LEAVING: Duration = Duration::from_secs(3);

/// Runs the node that `config`, read from `file`, describes, until a signal ends it.
///
/// If an address is in use, or is not this host's yet, it waits for it, up to [`patience::LONGEST`]. Once it listens, the
/// node gives up all privileges that the configuration does not need, for good.
///
/// Writes `listening KIND ADDRESS` for every listener and then `ready` to standard output. SIGHUP reads `file` again;
/// SIGTERM and SIGINT drain for at most `limits.drain`; a second one ends at once.
pub fn run(config: Config, file: &Path) -> Result<(), StartError> {
    allocator::limit_spare();
    if let Err(error) = socket::raise_open_files() {
        tracing::warn!("the limit of open files stays as it is: {error}");
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Until the end of this, SIGTERM and SIGINT end the process.
        let until = patience::deadline();
        let mut inherited = await_addresses(&config, until)?;
        let mut signals = Signals::new()?;
        let mut relay = loop {
            match Relay::bind_with(config.clone(), inherited) {
                // Another process, which has waited too, was first.
                Err(error) if error.may_pass() && Instant::now().into_std() < until => {
                    inherited = await_addresses(&config, until)?;
                }
                bound => break bound?,
            }
        };
        Relay::keep_what_it_needs(&config)?;
        let mut membership = Membership::new(config.clone())?;
        relay.node.overlay.observe(membership.observer());
        relay.serve()?;
        if let Some(identity) = &config.identity {
            tracing::info!("this node's key is {}", identity.fingerprint());
        }
        look_for_itself(&config);
        let answers = Answers::start(&relay);
        announce(listening(&config, &relay));
        let mut drain = config.limits.drain;
        let mut days = interval_at(Instant::now() + DAY, DAY);
        loop {
            tokio::select! {
                asked = signals.next() => match asked {
                    Asked::End => break,
                    Asked::Reload => if let Some(config) = read_again(&mut relay, &membership, file) {
                        drain = config.limits.drain;
                        answers.follow(&relay);
                        look_for_itself(&config);
                        membership.change(config);
                        relay.node.overlay.observe(membership.observer());
                    }
                },
                () = membership.changed() => take_members(&mut relay, &membership),
                _ = days.tick() => warn_of_times(&relay.config()),
            }
        }
        let left = membership.end();
        relay.pass_on();
        relay.stop_accepting();
        tokio::select! {
            () = drained(&relay, drain) => {
                // An error means that it is over, or has taken its time.
                let _ = left.recv_timeout(LEAVING);
            }
            () = signals.end() => {}
        }
        if relay.busy() > 0 {
            let busy = relay.busy();
            let streams = if busy == 1 { "stream" } else { "streams" };
            tracing::warn!(
                "{busy} {streams} did not end: those that run are reset, what others have yet to take is left to the kernel"
            );
        }
        Ok(())
    })
}

/// Waits for the addresses of all listeners: of a process before this one that gives them up, or that come later than this node. Returns
/// what such a process has passed to this one, which it does once all others can be had.
fn await_addresses(config: &Config, until: StdInstant) -> Result<Inherited, StartError> {
    let mut others = Others::of(config.listeners.values(), until);
    let mut waited_for = BTreeSet::new();
    let mut pause = patience::LOOK;
    loop {
        let are_there = || {
            others.look();
            let mut missing = None;
            for (name, listener) in config.listeners.iter().filter(|(_, listener)| !others.has(listener.address)) {
                let Err(error) = socket::ensure_free(listener.address, listener.only_v6) else { continue };
                if !error.may_pass() {
                    return Err((name, error));
                }
                if waited_for.insert(name) {
                    say_waited_for(name, &error);
                }
                missing = missing.or(Some((name, error)));
            }
            missing.map_or(Ok(()), Err)
        };
        let there = patience::patiently(until, are_there, |(_, error)| error.may_pass(), |_| {});
        there.map_err(|(name, source)| StartError::Listen { name: name.clone(), source })?;
        match others.take() {
            Ok(()) => return Ok(others.inherited()),
            Err(error) if error.kind() == ErrorKind::QuotaExceeded => return Err(StartError::TakeOver(error)),
            // It is asked again.
            Err(error) => {
                tracing::warn!("{error}");
                // Mostly it has ended, and nobody listens.
                std::thread::sleep(pause);
                pause = patience::LOOK_ANEW;
            }
        }
    }
}

fn say_waited_for(listener: &str, error: &SocketError) {
    let most = patience::LONGEST;
    match error.is_in_use() {
        true => tracing::info!(
            "[listen.{listener}] is waited for, {most:?} at most: {error}; a node is told to stop by SIGTERM"
        ),
        false => tracing::warn!("[listen.{listener}] is waited for, {most:?} at most: {error}"),
    }
}

/// Completes when all streams have ended, or `most` has passed.
async fn drained(relay: &Relay, most: Duration) {
    let begun = Instant::now();
    let deadline = begun + most;
    let mut told: Option<Instant> = None;
    loop {
        let (now, busy) = (Instant::now(), relay.busy());
        if busy > 0 && told.is_none_or(|told| now - told >= DRAIN_TOLD) {
            told = Some(now);
            let streams = if busy == 1 { "stream runs, and has" } else { "streams run, and have" };
            let left =
                Time::from(Duration::from_secs(deadline.saturating_duration_since(now).as_secs_f64().ceil() as u64));
            tracing::info!("stopping: {busy} {streams} {left} to end; another signal ends them at once");
        }
        // Before the first look, idle connections that have something left to send become busy.
        sleep(DRAIN_STEP).await;
        let is_over = Instant::now() >= deadline;
        // A client that is connected may be about to ask.
        let is_idle = || {
            let is_asked = relay.connections() > 0 && begun.elapsed() < ABOUT_TO_ASK;
            is_over || relay.busy() == 0 && !is_asked
        };
        // Listeners are passed or closed in order also where streams have no time left.
        let are_closed = || !(relay.is_awaited() || relay.may_be_had(begun.into_std(), CLOSING));
        if is_idle() && are_closed() {
            // What has been asked already may not have been read yet, on a machine that has much to do.
            relay.look_around().await;
            if is_idle() && are_closed() {
                return;
            }
        }
    }
}

/// Says so if the others would not know this node.
fn look_for_itself(config: &Config) {
    if let Some(warning) = config.membership_warning() {
        tracing::warn!("{warning}");
    }
    config.routes.hidden().iter().for_each(|line| tracing::warn!("{line}"));
    warn_of_near(config);
    warn_of_times(config);
}

/// What this node is near to.
fn near(config: &Config) -> Option<Vec<Pattern>> {
    let own = config.overlay.as_ref()?.members.get(&config.name)?;
    Some(own.near.clone())
}

/// Says so if this node will not connect to what it is near to.
fn warn_of_near(config: &Config) {
    config.near_refused().iter().for_each(|line| tracing::warn!("{line}"));
}

/// Says which certificates are not valid now, or not for long.
fn warn_of_times(config: &Config) {
    config.untimely(SystemTime::now()).iter().for_each(|line| tracing::warn!("{line}"));
}

/// Other nodes are registered than before.
fn take_members(relay: &mut Relay, membership: &Membership) {
    let (before, config) = (near(&relay.config()), membership.config());
    match relay.reload(config) {
        Ok(()) => {
            let config = relay.config();
            membership.say(&config);
            if near(&config) != before {
                warn_of_near(&config);
            }
        }
        Err(error) => tracing::error!("the nodes of the overlay stay as they were: {error}"),
    }
}

/// Returns the configuration of the file if it was taken.
fn read_again(relay: &mut Relay, membership: &Membership, file: &Path) -> Option<Config> {
    let config = match Config::load(file) {
        Ok(config) => config,
        Err(error) => {
            reload::refused(error);
            return None;
        }
    };
    let before = relay.config();
    let had: HashMap<&String, SocketAddr> =
        before.listeners.keys().filter_map(|name| Some((name, relay.address(name)?))).collect();
    let fingerprint = |config: &Config| config.identity.as_ref().map(|identity| identity.fingerprint());
    let (threads, key) = (config.threads, fingerprint(&config));
    let taken = membership.check(&config).map_err(StartError::from);
    match taken.and_then(|()| relay.reload(membership.of(&config))) {
        Ok(()) => {
            reload::taken(file);
            let config = relay.config();
            for (name, listener) in listeners_without(&before, &config) {
                let address = had.get(name).unwrap_or(&listener.address);
                tracing::info!("[listen.{name}] is closed: {} {address}", listener.kind.word());
            }
            for (name, listener) in listeners_without(&config, &before) {
                if let Some(address) = relay.address(name) {
                    tracing::info!("[listen.{name}] is new: listening {} {address}", listener.kind.word());
                }
            }
            for (name, (before, listener)) in changed_in_kind(&before, &config) {
                let address = had.get(name).unwrap_or(&listener.address);
                let [before, now] = [before, listener].map(|listener| listener.kind.word());
                tracing::info!("[listen.{name}] was {before}, and is {now} from now on: {address}");
            }
            if threads != relay.threads() {
                reload::at_next_start(format_args!("threads = {threads}"));
            }
            if let Some(key) = key.filter(|key| Some(key) != fingerprint(&before).as_ref()) {
                tracing::info!("this node's key is {key}");
            }
        }
        Err(error) => {
            let restart = "; the node gave up when it started what it did not need: restart it";
            let place = error.place_in(file).map_or(String::new(), |place| format!("{place}: "));
            reload::refused(format_args!("{place}{error}{}", if error.is_privilege() { restart } else { "" }));
            return None;
        }
    }
    Some(config)
}

/// The listeners that have another kind than before, at the same address.
fn changed_in_kind<'a>(
    before: &'a Config,
    now: &'a Config,
) -> impl Iterator<Item = (&'a String, (&'a Listener, &'a Listener))> {
    let both = now.listeners.iter().filter_map(|(name, now)| Some((name, (before.listeners.get(name)?, now))));
    both.filter(|(_, (before, now))| before.address == now.address && before.kind.word() != now.kind.word())
}

/// The listeners of `config` that `other` does not have, or has at other addresses.
fn listeners_without<'a>(config: &'a Config, other: &Config) -> impl Iterator<Item = (&'a String, &'a Listener)> {
    let is_there = |name: &str, listener: &Listener| {
        other.listeners.get(name).is_some_and(|there| there.address == listener.address)
    };
    config.listeners.iter().filter(move |(name, listener)| !is_there(name, listener))
}

/// What the node has, for the program that started it.
fn listening(config: &Config, relay: &Relay) -> String {
    let bound = config.listeners.iter().filter_map(|(name, listener)| Some((listener, relay.address(name)?)));
    let lines = bound.map(|(listener, address)| format!("listening {} {address}\n", listener.kind.word()));
    lines.chain(["ready\n".into()]).collect()
}
