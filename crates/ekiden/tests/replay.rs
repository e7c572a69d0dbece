//! One arithmetic: what the programs in the kernel decided on real connections, decided again by the native build from what
//! they were given.

use std::collections::HashMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ekiden_bpf::{Event, EventKind, Level, Trace, register};
use ekiden_congestion::{Algorithm, CongestionControl, Native, Tunables, Window};
use libtest_mimic::{Failed, Trial};

/// Three senders with short queues and random losses: windows below and above HSTCP's first row, many losses.
const SCENARIO: &str = r#"
name = "replay"
seed = 3
[node.high]
tcp = { congestion = "ekiden_hstcp" }
[node.gentle]
tcp = { congestion = "ekiden_ghstcp" }
[node.binary]
tcp = { congestion = "ekiden_bic" }
[node.junction]
kind = "router"
[node.sink]
[link.high]
ends = ["high", "junction"]
rate = "60Mbit/s"
queue = "150KB"
loss = "200ppm"
[link.gentle]
ends = ["gentle", "junction"]
rate = "60Mbit/s"
queue = "150KB"
loss = "200ppm"
[link.binary]
ends = ["binary", "junction"]
rate = "60Mbit/s"
queue = "150KB"
loss = "200ppm"
[link.far]
ends = ["junction", "sink"]
rate = "200Mbit/s"
delay = "20ms"
queue = "4MB"
[flow.high]
from = "high"
to = "sink"
duration = "8s"
[flow.gentle]
from = "gentle"
to = "sink"
duration = "8s"
[flow.binary]
from = "binary"
to = "sink"
duration = "8s"
"#;

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let trial = Trial::test("the kernel and the native build decide alike on real connections", replay);
    vec![trial.with_ignored_flag(!root)]
}

/// Those whose calls are told with all that they are given.
fn of_windows() -> Vec<Algorithm> {
    Algorithm::LOADABLE.into_iter().filter(|algorithm| !algorithm.sets_rate()).collect()
}

fn replay() -> Result<(), Failed> {
    let held = register(&of_windows(), &Tunables::default())?;
    let mut tunables = HashMap::new();
    for one in &held {
        tunables.insert(one.algorithm(), Arc::new(Tunables::new(&one.parameters()?)?));
    }
    let mut trace = Trace::start(&held, Level::Calls)?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("replay.toml");
    fs::write(&file, SCENARIO)?;
    let mut lab = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    lab.args(["lab", "run"]).arg(&file).arg("--record").arg(directory.path().join("record.json"));
    let mut lab = lab.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut events = Vec::new();
    while lab.try_wait()?.is_none() {
        events.extend(trace.poll(Duration::from_millis(100))?);
    }
    let output = lab.wait_with_output()?;
    ensure(output.status.success(), || String::from_utf8_lossy(&output.stderr).into())?;
    events.extend(trace.poll(Duration::ZERO)?);
    ensure(trace.lost()? == 0, || "events were lost".into())?;

    let mut connections: HashMap<u64, Replayed> = HashMap::new();
    let mut done = Vec::new();
    for event in &events {
        match event.kind {
            EventKind::Start => {
                let native = Native::new(event.algorithm, Arc::clone(&tunables[&event.algorithm]));
                connections.insert(event.connection, Replayed::new(event.algorithm, native));
            }
            EventKind::End => done.extend(connections.remove(&event.connection)),
            // What an unfinished handshake measures comes before the start.
            _ => {
                if let Some(replayed) = connections.get_mut(&event.connection) {
                    replayed.compare(event)?;
                }
            }
        }
    }
    done.extend(connections.into_values());
    for algorithm in of_windows() {
        let all: Vec<_> = done.iter().filter(|replayed| replayed.algorithm == algorithm).collect();
        let sum = |count: fn(&Replayed) -> u32| all.iter().map(|replayed| count(replayed)).sum::<u32>();
        let (rtts, grown, losses) = (sum(|one| one.rtts), sum(|one| one.grown), sum(|one| one.losses));
        let (modes, highest) = (sum(|one| one.modes), all.iter().map(|one| one.highest).max().unwrap_or_default());
        eprintln!(
            "{algorithm}: {rtts} round-trip times, {grown} growths, {losses} losses, {modes} modes, up to {highest}"
        );
        ensure(rtts > 1_500 && grown > 1_000, || format!("{algorithm}: only {rtts} and {grown} calls"))?;
        ensure(losses >= 3 && highest > 118, || format!("{algorithm}: {losses} losses, cwnd up to {highest}"))?;
        ensure(modes >= 2 || algorithm != Algorithm::Ghstcp, || format!("the mode changed {modes} times"))?;
    }
    Ok(())
}

/// One connection, decided again.
struct Replayed {
    algorithm: Algorithm,
    native: Native,
    rtts: u32,
    grown: u32,
    losses: u32,
    modes: u32,
    highest: u32,
}

impl Replayed {
    fn new(algorithm: Algorithm, native: Native) -> Self {
        Self { algorithm, native, rtts: 0, grown: 0, losses: 0, modes: 0, highest: 0 }
    }

    fn compare(&mut self, event: &Event) -> Result<(), Failed> {
        let mut window = Window { cwnd: event.cwnd_before, cwnd_cnt: event.cwnd_cnt_before, ..event.window };
        let differs = |native: &dyn std::fmt::Debug| format!("native: {native:?}; kernel: {event:?}");
        self.highest = self.highest.max(event.cwnd_before);
        match event.kind {
            EventKind::Rtt { rtt_us } => {
                self.rtts += 1;
                let changed = self.native.on_rtt(&window, event.at_us, rtt_us);
                self.modes += u32::from(changed);
                let reno = self.algorithm == Algorithm::Ghstcp && self.native.is_reno();
                ensure(reno == event.reno_mode, || differs(&reno))
            }
            EventKind::Acked { segments } => {
                self.grown += 1;
                self.native.on_ack(&mut window, segments);
                ensure(window == event.window, || differs(&window))
            }
            EventKind::Loss { ssthresh } => {
                self.losses += 1;
                let native = self.native.on_loss(event.cwnd_before);
                ensure(native == ssthresh, || differs(&native))
            }
            EventKind::Timeout => {
                self.native.on_timeout();
                Ok(())
            }
            EventKind::Undo { .. } => {
                self.native.undo();
                Ok(())
            }
            EventKind::Idle => {
                self.native.on_idle(&mut window, 0);
                Ok(())
            }
            EventKind::Start | EventKind::End | EventKind::Round | EventKind::Mode { .. } => Ok(()),
        }
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(otherwise().into()) }
}
