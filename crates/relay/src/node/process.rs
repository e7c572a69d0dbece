//! The life of a process that is a node: start, signals, end.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use ekiden_net::allocator;
use ekiden_net::privileges::keep_only;
use ekiden_net::socket;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use crate::config::Config;
use crate::config::route::Pattern;
use crate::host::privileges;
use crate::node::membership::Membership;
use crate::node::{Relay, StartError};

/// How often draining looks whether it is done.
const DRAIN_STEP: std::time::Duration = std::time::Duration::from_millis(20);

/// How long an end waits for etcd to be told of it, once nothing else is waited for.
const LEAVING: std::time::Duration = std::time::Duration::from_secs(3);

/// Runs the node that `config`, read from `file`, describes, until a signal ends it.
///
/// Once it listens, it gives up all privileges that the configuration does not need, for good.
///
/// Writes `listening KIND ADDRESS` for every listener and then `ready` to standard output. SIGHUP reads `file`
/// again; SIGTERM and SIGINT drain for at most `limits.drain`; a second one ends at once.
pub fn run(config: Config, file: &Path) -> Result<(), StartError> {
    allocator::limit_spare();
    if let Err(error) = socket::raise_open_files() {
        tracing::warn!("the limit of open files stays as it is: {error}");
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut relay = Relay::bind(config.clone())?;
        keep_only(&privileges::needed(&config)).map_err(StartError::Privileges)?;
        let mut membership = Membership::new(config.clone())?;
        relay.node.overlay.observe(membership.observer());
        relay.serve()?;
        if let Some(identity) = &config.identity {
            tracing::info!("this node's key is {}", identity.fingerprint());
        }
        look_for_itself(&config);
        announce(&config, &relay);
        let mut drain = config.limits.drain;
        loop {
            tokio::select! {
                _ = hangup.recv() => {
                    if let Some(config) = reload(&mut relay, &membership, file) {
                        drain = config.limits.drain;
                        look_for_itself(&config);
                        membership.change(config);
                        relay.node.overlay.observe(membership.observer());
                    }
                }
                () = membership.changed() => take_members(&mut relay, &membership),
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        let left = membership.end();
        relay.stop_accepting();
        let deadline = Instant::now() + drain;
        tracing::info!("stopping: {} streams have {drain:?} to end", relay.busy());
        loop {
            // Before the first look, idle connections that have something left to send become busy.
            tokio::select! {
                () = sleep(DRAIN_STEP) => {}
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
            if relay.busy() == 0 || Instant::now() >= deadline {
                break;
            }
        }
        // An error means that it is over, or has taken its time.
        let _ = left.recv_timeout(LEAVING);
        if relay.busy() > 0 {
            tracing::warn!(
                "{} streams did not end: those that run are reset, what others have yet to take is left to the kernel",
                relay.busy()
            );
        }
        Ok(())
    })
}

/// Says so if this node is not in its own members file: the others would not know it.
fn look_for_itself(config: &Config) {
    let Some(overlay) = &config.overlay else { return };
    if let Some(file) = overlay.members_file.as_ref().filter(|_| !overlay.members.contains_key(&config.name)) {
        let (node, file) = (&config.name, file.display());
        tracing::warn!("this node, '{node}', is not in {file}: nodes that read the same file refuse its connections");
    }
    warn_of_near(config);
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
fn reload(relay: &mut Relay, membership: &Membership, file: &Path) -> Option<Config> {
    let config = match Config::load(file) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!("the configuration stays as it was: {error}");
            return None;
        }
    };
    let before = relay.config();
    let fingerprint = |config: &Config| config.identity.as_ref().map(|identity| identity.fingerprint());
    let (threads, key) = (config.threads, fingerprint(&config));
    let taken = membership.check(&config).map_err(StartError::from);
    match taken.and_then(|()| relay.reload(membership.of(&config))) {
        Ok(()) => {
            tracing::info!("the configuration was read again from {}", file.display());
            if threads != relay.threads() {
                tracing::warn!("threads = {threads} is taken at the next start");
            }
            if let Some(key) = key.filter(|key| Some(key) != fingerprint(&before).as_ref()) {
                tracing::info!("this node's key is {key}");
            }
        }
        Err(error) => {
            let restart = "; the node gave up when it started what it did not need: restart it";
            let place = error.place_in(file).map_or(String::new(), |place| format!("{place}: "));
            tracing::error!(
                "the configuration stays as it was: {place}{error}{}",
                if error.is_privilege() { restart } else { "" }
            );
            return None;
        }
    }
    Some(config)
}

/// Says on standard output where the node listens. Whoever read it may have gone, or not read: the node does not wait for it.
fn announce(config: &Config, relay: &Relay) {
    let mut text = String::new();
    for (name, listener) in &config.listeners {
        if let Some(address) = relay.address(name) {
            // A string takes whatever is written to it.
            let _ = writeln!(text, "listening {} {address}", listener.kind.word());
        }
    }
    text.push_str("ready\n");
    let say = move || {
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            tracing::warn!("nobody could be told on standard output that this node is ready: {error}");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("announce".into()).spawn(say) {
        tracing::warn!("nobody could be told on standard output that this node is ready: {error}");
    }
}
