//! Ekiden's own congestion controls in a lab: registered while the lab lives, and traced during a run.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ekiden_bpf::{ErrorKind, Event, EventKind, Level, Registration, Trace};
use ekiden_congestion::{Algorithm, CongestionParameters};
use ekiden_record::{Congestion, CongestionEvent, CongestionEventKind};
use ekiden_scenario::Scenario;

use crate::error::building;
use crate::tunnels::all_tcp;
use crate::{Error, Lab};

/// How long the kernel may keep an event before it is fetched.
const WAIT: Duration = Duration::from_millis(100);
/// A slow start threshold of this or more means none.
const NO_SSTHRESH: u32 = i32::MAX as u32;

/// Registers those of ekiden's own congestion controls that the scenario uses, for as long as the result lives. It is for
/// programs that build several labs. A process that may not register uses those that are registered already, which the result
/// then lacks.
///
/// # Errors
/// [`Error::OwnCongestion`]; [`Error::CongestionParameters`] if the scenario's parameters are not available.
pub fn register(scenario: &Scenario) -> Result<Vec<Registration>, Error> {
    let mut registrations: Vec<Registration> = Vec::new();
    let tunables = scenario.tunables();
    let wanted = tunables.parameters();
    for (_, tcp) in all_tcp(scenario) {
        let Some(algorithm) = is_own(&tcp.congestion) else { continue };
        if registrations.iter().any(|registration| registration.algorithm() == algorithm) {
            continue;
        }
        match ekiden_bpf::register(&[algorithm], &tunables) {
            Ok(new) => registrations.extend(new),
            Err(error) if error.kind() == ErrorKind::Unavailable && crate::tcp::is_available(algorithm.name()) => {}
            Err(source) => return Err(Error::OwnCongestion { name: algorithm.to_string(), source }),
        }
    }
    if !scenario.congestion.is_empty() {
        registrations.iter().try_for_each(|registration| check_parameters(registration, &wanted))?;
    }
    Ok(registrations)
}

/// Someone else may have brought the control in before, with other parameters.
fn check_parameters(registration: &Registration, wanted: &CongestionParameters) -> Result<(), Error> {
    let algorithm = registration.algorithm();
    let held =
        registration.parameters().map_err(|source| Error::OwnCongestion { name: algorithm.to_string(), source })?;
    let differs = held
        .iter()
        .zip(wanted.iter())
        .find(|((parameter, held), (_, wanted))| algorithm.reads(parameter.name) && held != wanted);
    match differs {
        None => Ok(()),
        Some(((parameter, held), (_, wanted))) => Err(Error::CongestionParameters {
            reason: format!(
                "{algorithm} is in the kernel already, with {} = {held} and not {wanted}: unload it, or end who holds it \
                 (`ekiden congestion status`)",
                parameter.name
            ),
        }),
    }
}

/// All events of a run, and how many were lost.
type Collected = Result<(Vec<Event>, u64), ekiden_bpf::Error>;

/// Collects the events of a lab's congestion controls, on a thread of its own.
pub(crate) struct Tracer {
    result: Congestion,
    listening: Option<Listening>,
}

/// The thread that fetches events. It ends when this is dropped.
struct Listening {
    names: Names,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Collected>>,
}

/// Finds the node that an event is about.
struct Names {
    namespaces: HashMap<u64, String>,
    addresses: HashMap<IpAddr, String>,
}

impl Tracer {
    /// Starts to trace, if the scenario uses a congestion control of ekiden's own. If another process traces already, the lab
    /// runs without a trace.
    pub(crate) fn start(lab: &Lab) -> Result<Option<Self>, Error> {
        if !uses_any(&lab.scenario) {
            return Ok(None);
        }
        let mut result = Congestion::default();
        for registration in &lab.congestion {
            let Ok(parameters) = registration.parameters() else { continue };
            let read = parameters.iter().filter(|(parameter, _)| registration.algorithm().reads(parameter.name));
            let parameters = read.map(|(parameter, value)| (parameter.name.to_owned(), value)).collect();
            result.parameters.insert(registration.algorithm().to_string(), parameters);
        }
        if lab.congestion.is_empty() {
            result.not_traced = Some("this process may not look into the kernel".into());
            return Ok(Some(Self { result, listening: None }));
        }
        let mut names = Names { namespaces: HashMap::new(), addresses: HashMap::new() };
        for name in lab.scenario.nodes.keys() {
            let cookie = lab.namespace(name)?.cookie().map_err(building(format!("look up node '{name}'")))?;
            names.namespaces.insert(cookie, name.clone());
            names.addresses.insert(lab.address(name)?.into(), name.clone());
        }
        let trace = match Trace::start(&lab.congestion, Level::Rounds) {
            Ok(trace) => trace,
            Err(error) => {
                result.not_traced = Some(error.to_string());
                return Ok(Some(Self { result, listening: None }));
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = thread::Builder::new().name("congestion".into()).spawn(move || collect(trace, &stopping));
        let thread = Some(thread.map_err(building("start a thread"))?);
        Ok(Some(Self { result, listening: Some(Listening { names, stop, thread }) }))
    }

    /// Ends listening. Times count from `origin_us` of the monotonic clock.
    pub(crate) fn finish(mut self, origin_us: u64) -> Congestion {
        if let Some(mut listening) = self.listening.take() {
            match listening.end() {
                Some(Ok(Ok((events, lost)))) => {
                    self.result.lost_events = lost;
                    self.result.events = listening.names.translate(events, origin_us);
                }
                Some(Ok(Err(error))) => self.result.not_traced = Some(error.to_string()),
                Some(Err(_)) | None => self.result.not_traced = Some("the listening thread failed".into()),
            }
        }
        self.result
    }
}

impl Listening {
    fn end(&mut self) -> Option<thread::Result<Collected>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.end();
    }
}

fn uses_any(scenario: &Scenario) -> bool {
    all_tcp(scenario).any(|(_, tcp)| is_own(&tcp.congestion).is_some())
}

/// Ekiden's own congestion control of this name.
pub(crate) fn is_own(name: &str) -> Option<Algorithm> {
    Algorithm::LOADABLE.into_iter().find(|algorithm| algorithm.name() == name)
}

fn collect(mut trace: Trace, stop: &AtomicBool) -> Collected {
    let mut events = Vec::new();
    // Polls once more after the stop, for the events before it.
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        events.extend(trace.poll(WAIT)?);
        if stopping {
            return Ok((events, trace.lost()?));
        }
    }
}

impl Names {
    /// Keeps this lab's events only: another lab may use the same addresses.
    fn translate(&self, events: Vec<Event>, origin_us: u64) -> Vec<CongestionEvent> {
        let mut connections: HashMap<u64, u32> = HashMap::new();
        let mut next = 0;
        let mut all = Vec::new();
        for event in events {
            let Some(from) = self.namespaces.get(&event.namespace) else { continue };
            let Some(to) = self.addresses.get(&event.remote.ip()) else { continue };
            let (kind, ssthresh) = match event.kind {
                EventKind::Start => (CongestionEventKind::Start, event.window.ssthresh),
                EventKind::Round => (CongestionEventKind::Round, event.window.ssthresh),
                EventKind::Loss { ssthresh } => (CongestionEventKind::Loss, ssthresh),
                EventKind::Timeout => (CongestionEventKind::Timeout, event.window.ssthresh),
                EventKind::Mode { .. } => (CongestionEventKind::Mode, event.window.ssthresh),
                EventKind::Undo { .. } => (CongestionEventKind::Undo, event.window.ssthresh),
                EventKind::End => (CongestionEventKind::End, event.window.ssthresh),
                EventKind::Rtt { .. } | EventKind::Acked { .. } | EventKind::Idle => continue,
            };
            if matches!(event.kind, EventKind::Start) {
                // The End of an earlier connection with this id may have been lost.
                connections.remove(&event.connection);
            }
            let connection = *connections.entry(event.connection).or_insert_with(|| {
                next += 1;
                next - 1
            });
            all.push(CongestionEvent {
                at_us: event.at_us.saturating_sub(origin_us),
                connection,
                from: from.clone(),
                to: to.clone(),
                algorithm: event.algorithm.to_string(),
                kind,
                cwnd_segments: event.window.cwnd,
                ssthresh_segments: Some(ssthresh).filter(|&ssthresh| ssthresh < NO_SSTHRESH),
                rtt_us: event.srtt_us.into(),
                reno_mode: event.reno_mode,
            });
        }
        all.sort_by_key(|event| event.at_us);
        all
    }
}
