//! The process that keeps a gateway: while it lives and looks, the programs do their work.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ekiden_net::privileges::{Capability, has, keep_only};
use ekiden_net::{device, patience};
use ekiden_service::process::Process;
use ekiden_service::{Asked, Signals, announce, reload, status_socket};
use ekiden_units::Time;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::config::Config;
use crate::error::{StartError, taken};
use crate::full::Full;
use crate::kernel::{Events, Found, Gateway, GatewayError, HookKind, KEPT};
use crate::listing::{LISTED_MOST, Listing};
use crate::pins;
use crate::programs;
use crate::renewing::{Pulse, Renewing};
use crate::status::{GatewayStatus, socket_name};
use crate::throttlings::Throttlings;

/// The interval at which events are read and the device is checked.
const LOOKING: Duration = Duration::from_millis(200);
/// The pause between two passes in which streams without packets lose their places.
const SWEEPING: Duration = Duration::from_secs(5);
/// After a slice of such a pass, other work has its turn for this multiple of the slice's time.
const SHARE: u32 = 3;

/// What the tasks share. They run on one thread.
struct Keeper {
    config: Config,
    /// The file that it was read from.
    file: PathBuf,
    gateway: Gateway,
    hook: HookKind,
    ifindex: u32,
    began: Instant,
    events: RefCell<Events>,
    throttlings: RefCell<Throttlings>,
    lost: Cell<u64>,
    unkept: Cell<Unkept>,
    full: Cell<Full>,
    /// The streams that had places when they were last counted.
    found: Cell<Found>,
    pulse: Pulse,
}

/// Packets that passed untouched because the keeper's word was late.
#[derive(Default, Clone, Copy)]
struct Unkept {
    packets: u64,
    /// Whether an increase was reported.
    grows: bool,
}

/// Runs the gateway that `config`, read from `file`, describes until a signal ends it, or its device is gone. Its programs
/// end with the process, or with `restart_within` outlive it.
///
/// Once the programs are on the device, the process gives up the capabilities that it no longer needs.
///
/// Writes `device NAME`, then `ready` to standard output. SIGHUP reads `file` again, and reports which changes the next
/// start takes.
///
/// # Errors
/// If it cannot start, or its device is gone.
pub fn run(config: Config, file: &Path) -> Result<(), StartError> {
    let ifindex = device::index(&config.device).map_err(|_| StartError::NoDevice(config.device.clone()))?;
    // Before the programs are loaded: the process that has the name has the device.
    let asked = patience::patiently(
        patience::deadline(),
        || match status_socket::listen(&socket_name(&config.device)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(taken(config.device.clone())),
            asked => Ok(asked?),
        },
        |error| matches!(error, StartError::Runs(_)),
        |error| tracing::warn!("the device is waited for, {:?} at most: {error}", patience::LONGEST),
    )?;
    check_capabilities(has)?;
    let (gateway, hook) = programs::start(&config, ifindex).map_err(refused)?;
    let events = RefCell::new(gateway.events()?);
    let others = Gateway::others(ifindex as i32).unwrap_or_default();
    let counters = gateway.counters()?;
    let unkept = Cell::new(Unkept { packets: counters.unkept, grows: false });
    let (full, found) = (Cell::new(Full::new(counters.full)), Cell::default());
    keep_only(&needed(hook, has)).map_err(StartError::Privileges)?;
    let pulse = Pulse::default();
    // Dropped last, so that the word ends after the programs.
    let (_renewing, late) = Renewing::start(gateway.word()?, KEPT + config.restart_within.into(), pulse.clone())?;
    let throttlings = RefCell::new(Throttlings::new(config.groups.len()));
    let (began, lost) = (Instant::now(), Cell::default());
    let keeper = Keeper {
        config,
        file: file.into(),
        gateway,
        hook,
        ifindex,
        began,
        events,
        throttlings,
        lost,
        unkept,
        full,
        found,
        pulse,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, Rc::new(keeper).keep(asked, late, others))
}

impl Keeper {
    async fn keep(
        self: Rc<Self>,
        asked: std::os::unix::net::UnixListener,
        late: oneshot::Receiver<GatewayError>,
        others: usize,
    ) -> Result<(), StartError> {
        let asked = UnixListener::from_std(asked)?;
        let mut signals = Signals::new()?;
        let device = &self.config.device;
        match others {
            0 => tracing::info!("on {device} by {}", hook_name(self.hook)),
            _ => tracing::info!("on {device} by {}, before {others} programs of others", hook_name(self.hook)),
        }
        announce(format!("device {device}\nready\n"));
        let status = || serde_json::to_vec(&self.status()).unwrap_or_default();
        let ended = tokio::select! {
            () = self.heed(&mut signals) => Ok(()),
            ended = self.look() => ended,
            error = self.keep_sweeping() => Err(error.into()),
            Ok(error) = late => Err(error.into()),
            () = status_socket::answer_all(asked, status, |why| tracing::debug!("{why}")) => Ok(()),
        };
        self.tell_events()?;
        self.throttlings.borrow_mut().tell_silent(&self.config.groups, None);
        let counters = self.gateway.counters()?;
        self.tell_full(counters.full, None);
        tracing::info!(
            "{} packets passed, {} of {} streams; the windows of {} were lowered",
            counters.seen,
            counters.tracked,
            counters.begun,
            counters.rewritten
        );
        if self.config.restart_within > Time::ms(0) && ended.is_ok() && !pins::are_hidden() {
            tracing::info!(
                "its programs stay on {device} and go on for {}; `ekiden gateway remove {device}` takes them away",
                self.config.restart_within
            );
        }
        ended
    }

    /// Completes when a signal asks for the end. The programs have their groups from the start, and this process has given
    /// up the capabilities for loading others: a configuration that is read again is only checked.
    async fn heed(&self, signals: &mut Signals) {
        while signals.next().await == Asked::Reload {
            match Config::load(&self.file) {
                Err(error) => reload::refused(error),
                Ok(config) if config == self.config => reload::same(&self.file),
                Ok(_) => reload::at_next_start(format_args!("what is new in {}", self.file.display())),
            }
        }
    }

    async fn look(&self) -> Result<(), StartError> {
        let mut times = interval(LOOKING);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            self.pulse.beat();
            let device = &self.config.device;
            let gone = match device::index(device).ok() == Some(self.ifindex) {
                true if self.gateway.is_on(self.ifindex) => None,
                true => Some(StartError::ProgramsGone(device.clone())),
                false => Some(StartError::DeviceGone(device.clone())),
            };
            if let Some(gone) = gone {
                programs::forget(device);
                return Err(gone);
            }
            self.tell_events()?;
        }
    }

    async fn keep_sweeping(&self) -> GatewayError {
        loop {
            sleep(SWEEPING).await;
            if let Err(error) = self.sweep().await {
                return error;
            }
        }
    }

    async fn sweep(&self) -> Result<(), GatewayError> {
        let (mut swept, mut begin) = (0, Instant::now());
        let mut sweep = self.gateway.sweep(self.config.idle());
        for slice in sweep.by_ref() {
            swept += slice?;
            sleep(begin.elapsed() * SHARE).await;
            begin = Instant::now();
        }
        self.found.set(sweep.found());
        if swept > 0 {
            tracing::debug!("{swept} streams without packets have lost their places");
        }
        self.count()?;
        let counters = self.gateway.counters()?;
        if counters.lost > self.lost.replace(counters.lost) {
            tracing::debug!("{} events had no room so far", counters.lost);
        }
        self.tell_full(counters.full, Some(Instant::now()));
        let Unkept { packets, grows } = self.unkept.get();
        let now = Unkept { packets: counters.unkept, grows: counters.unkept > packets };
        if now.grows && !grows {
            tracing::warn!(
                "{} packets have passed untouched since this process did not run in time; was it stopped?",
                now.packets - packets
            );
        }
        self.unkept.set(now);
        Ok(())
    }

    /// `None` is the end.
    fn tell_full(&self, counted: u64, now: Option<Instant>) {
        let mut full = self.full.get();
        if let Some(line) = full.due(counted, self.found.get(), &self.config, now) {
            tracing::warn!("{line}");
        }
        self.full.set(full);
    }

    fn count(&self) -> Result<(), GatewayError> {
        let groups = self.gateway.groups()?;
        let mut throttlings = self.throttlings.borrow_mut();
        groups.iter().for_each(|(group, state)| throttlings.count(*group, state));
        Ok(())
    }

    fn tell_events(&self) -> Result<(), GatewayError> {
        for event in self.events.borrow_mut().poll(Duration::ZERO)? {
            if let Some(group) = self.config.groups.get(event.group) {
                self.throttlings.borrow_mut().tell(&event, &group.name, Instant::now());
            }
        }
        self.throttlings.borrow_mut().tell_silent(&self.config.groups, Some(Instant::now()));
        Ok(())
    }

    /// What cannot be read is left out.
    fn status(&self) -> GatewayStatus {
        let _ = self.count();
        let throttlings = self.throttlings.borrow();
        let groups = self.config.groups.iter().zip(throttlings.groups());
        let count_for = groups.map(|(group, throttled)| throttled.limits_count_for(&group.settings.balance)).collect();
        let mut listing = Listing::new(count_for, LISTED_MOST);
        let _ = self.gateway.for_each_stream(|stream| listing.add(stream));
        let memory = self.gateway.memory().unwrap_or_default();
        GatewayStatus {
            device: self.config.device.clone(),
            hook: hook_name(self.hook).into(),
            process: Process::since(self.began.into_std()),
            memory_bytes: memory.0 + memory.1,
            counters: self.gateway.counters().unwrap_or_default().into(),
            events: throttlings.last(),
            ..listing.status(&self.config, throttlings.groups())
        }
    }
}

/// The tables are read and written by their descriptors. Only clsact's filters are taken away by a message that needs a capability.
fn needed(hook: HookKind, has: fn(Capability) -> bool) -> Vec<Capability> {
    // A process that started without the small capability needs the large one.
    let of_bpf = if has(Capability::CAP_BPF) { Capability::CAP_BPF } else { Capability::CAP_SYS_ADMIN };
    match hook {
        HookKind::Tcx => vec![of_bpf],
        HookKind::Clsact => vec![of_bpf, Capability::CAP_NET_ADMIN],
    }
}

/// The capabilities without which the kernel takes no programs.
const AT_START: [Capability; 3] = [Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_PERFMON];

/// Before anything is loaded: the kernel's refusals do not say what is missing. As for the kernel, CAP_SYS_ADMIN stands for CAP_BPF and
/// CAP_PERFMON.
fn check_capabilities(has: impl Fn(Capability) -> bool) -> Result<(), StartError> {
    let stands_for = |capability| capability != Capability::CAP_NET_ADMIN && has(Capability::CAP_SYS_ADMIN);
    let lacking: Vec<_> =
        AT_START.into_iter().filter(|capability| !has(*capability) && !stands_for(*capability)).collect();
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(StartError::Lacks(lacking)),
    }
}

fn hook_name(hook: HookKind) -> &'static str {
    match hook {
        HookKind::Tcx => "tcx",
        HookKind::Clsact => "clsact",
    }
}

/// The verifier's output is long: it is kept in a file.
fn refused(error: StartError) -> StartError {
    let StartError::Kernel(GatewayError::Refused { log, .. }) = &error else { return error };
    let place = std::env::temp_dir().join(format!("ekiden-gateway-{}.log", std::process::id()));
    let written = fs::OpenOptions::new().write(true).create_new(true).open(&place);
    match written.and_then(|mut file| file.write_all(log.as_bytes())) {
        Ok(()) => StartError::Refused { reason: error.to_string(), file: place.display().to_string() },
        Err(_) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_capabilities_that_are_missing_are_named() {
        use Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN};
        let said =
            |held: &[Capability]| check_capabilities(|one| held.contains(&one)).map_err(|error| error.to_string());
        let lacks = |names: &str| {
            Err(format!(
                "the gateway lacks {names}; it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON to start: run it as root"
            ))
        };
        assert_eq!(said(&[]), lacks("CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"));
        assert_eq!(said(&[CAP_NET_ADMIN]), lacks("CAP_BPF and CAP_PERFMON"));
        assert_eq!(said(&[CAP_BPF, CAP_NET_ADMIN]), lacks("CAP_PERFMON"));
        assert_eq!(said(&[CAP_SYS_ADMIN]), lacks("CAP_NET_ADMIN"));
        for held in [&[CAP_SYS_ADMIN, CAP_NET_ADMIN][..], &AT_START] {
            assert_eq!(said(held), Ok(()));
        }
        assert_eq!(needed(HookKind::Clsact, |one| one != CAP_BPF), [CAP_SYS_ADMIN, CAP_NET_ADMIN]);
        assert_eq!(needed(HookKind::Tcx, |_| true), [CAP_BPF]);
    }

    #[test]
    fn what_the_verifier_says_is_kept_in_a_file() {
        let log = "0: R1=ctx()\n".repeat(1000);
        let error = refused(GatewayError::Refused { reason: "R1 is no number".into(), log: log.clone() }.into());
        let StartError::Refused { reason, file } = &error else { panic!("{error}") };
        let kept = fs::read_to_string(file);
        fs::remove_file(file).unwrap();
        assert_eq!(kept.unwrap(), log);
        assert!(reason.ends_with("R1 is no number") && error.to_string().lines().count() == 1, "{error}");
        // Other errors stay as they are.
        assert!(matches!(refused(GatewayError::Capabilities.into()), StartError::Kernel(GatewayError::Capabilities)));
    }
}
