//! What a path is made of, from a loaded TCP: S0's chapter 4 as a tool.
//!
//! Each direction is loaded by one stream, Reno's slow start, until its first losses are over; both ends look at it every 200 µs. Packets
//! come at the line's rate while a queue delays them; a queue that loses much of a window was full. Where single losses end the slow
//! start too soon, a second stream follows with BBR, which does not heed them.
//!
//! How much is sent for that, and for how long at most, is decided here. `path/find.rs` decides what follows from it.

mod base;
mod buffer;
mod ended;
mod find;
mod held;
mod hops;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod model;
mod policer;
mod rate;
#[cfg(test)]
mod tests;
mod trace;
#[cfg(test)]
mod truthful;

use std::time::Duration;

use ekiden_net::tcp_info::tcp_info;
use ekiden_record::{EndSettings, Finding, LoadSettings, PATH_FORMAT, PathDirection, PathRecord, Way};

use crate::Error;
use crate::client::{Server, measure};
use crate::load::budget;
use crate::message::Trace as How;
use crate::server::end_settings;
use crate::settings::Asked;
use base::Base;
use ended::{End, end};
use trace::{ANSWER_BYTES, PROBE_BYTES, STEPS_MOST, Trace};

/// The load of a direction: so many bandwidth-delay products at most, and so many round trips and so long.
const BDPS_MOST: f64 = 10.0;
const RTTS_MOST: f64 = 10.0;
const LONGEST: Duration = Duration::from_secs(2);
/// What may be sent on a path whose bandwidth-delay product is small, in bytes.
const BYTES_LEAST: u64 = 300_000;
/// How many overflows are counted with `long`, and how long they may take, in microseconds.
const OVERFLOWS: u32 = 3;
const OVERFLOWS_US: u64 = 60_000_000;
/// The congestion control that does not heed single losses.
const HEEDLESS: &str = "bbr";

/// What goes on, for people.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The routers on the way are counted.
    Hops,
    /// A direction's buffer is made to overflow again and again.
    Overflows {
        /// The direction.
        way: Way,
    },
    /// A direction is loaded.
    Loads {
        /// The direction.
        way: Way,
        /// By this congestion control.
        congestion: &'static str,
    },
}

/// Where a record comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The command line, program first.
    pub command: Vec<String>,
    /// When it was started, in milliseconds since 1970 (UTC).
    pub started_unix_ms: u64,
}

/// Traces of a direction, for a picture.
pub struct Seen {
    /// The direction.
    pub way: Way,
    /// Seconds since the load began, and milliseconds that bytes which came then had waited on the way.
    pub queue_ms: Vec<(f64, f64)>,
    /// Seconds, and Mbit/s that came in the 20 ms before.
    pub rate_mbit: Vec<(f64, f64)>,
    /// When the first segment was missed at the receiver, in seconds.
    pub lost_s: Option<f64>,
}

/// Measures both directions; with `long` it also overflows their buffers again and again.
///
/// # Errors
/// [`Error`].
pub fn characterise(
    server: &Server,
    origin: Origin,
    long: bool,
    step: &mut dyn FnMut(Step),
) -> Result<(PathRecord, Vec<Seen>), Error> {
    let (address, _, socket) = server.connect()?;
    let handshake = Duration::from_micros(tcp_info(&socket).map_or(0, |info| info.rtt_us).into());
    drop(socket);
    let longest = LONGEST + handshake.mul_f64(RTTS_MOST);
    let mut directions = Vec::new();
    let mut seen = Vec::new();
    let mut base: Option<Base> = None;
    let mut from = None;
    for way in [Way::Forth, Way::Back] {
        let settings = |congestion: &str| LoadSettings {
            ways: vec![way],
            streams: 1,
            duration_us: Some(longest.as_micros() as u64),
            bytes: None,
            congestion: Some(congestion.into()),
            ..Asked::default().get().clone()
        };
        let mut load = |congestion: &'static str, how: How| {
            step(Step::Loads { way, congestion });
            let asked = Asked::new(settings(congestion)).map_err(Error::Settings)?;
            measure(server, &asked, how, &mut |_| {})
        };
        let reno = load("reno", How::UntilLoss { bdps_most: BDPS_MOST, bytes_least: BYTES_LEAST })?;
        let known = Base::of(&reno);
        let idle_us = known.rtt_us;
        if let Some(other) = base.filter(|base| has_changed(*base, known)) {
            let [before, after] = [other.rtt_us, idle_us].map(|us| us / 1e3);
            let why = format!("its base round trip was {before:.1} ms and is {after:.1} ms; measure again");
            return Err(Error::Changed { to: server.name.clone(), why });
        }
        base = Some(base.filter(|base| base.rtt_us < idle_us).unwrap_or(known));
        let broken = || Error::Broken { to: server.name.clone(), why: "no samples of the load came".into() };
        let trace = Trace::of(&reno, way).ok_or_else(broken)?;
        let hole = reno.hole(way);
        let heedless = spent_before_second(&trace, known).filter(|_| hole.is_none()).and_then(|spent_bytes| {
            let bytes_least = budget(BDPS_MOST, BYTES_LEAST, trace.sent);
            load(HEEDLESS, How::Budget { spent_bytes, bdps_most: BDPS_MOST, bytes_least }).ok()
        });
        let second = heedless.as_ref().and_then(|measured| Trace::of(measured, way));
        let hops = match way {
            Way::Forth => {
                step(Step::Hops);
                hops::count(address)
            }
            Way::Back => Finding::NotObservable { reason: "TCP counts the routers on its own way only".into() },
        };
        let mut found = match hole {
            Some(hole) => find::holed(&trace, hole, hops),
            None => find::direction(&trace, second.as_ref(), known, hops),
        };
        if long && hole.is_none() {
            step(Step::Overflows { way });
            let settings = LoadSettings { duration_us: Some(OVERFLOWS_US), ..settings("reno") };
            let asked = Asked::new(settings).map_err(Error::Settings)?;
            let again = measure(server, &asked, How::Episodes { count: OVERFLOWS + 1 }, &mut |_| {})?;
            if let Some(trace) = Trace::of(&again, way) {
                found.drops_per_overflow = find::drops(trace.sent);
            }
        }
        let near = end_settings();
        found.window_bytes = match way {
            Way::Forth => window(&near, &reno.far),
            Way::Back => window(&reno.far, &near),
        };
        seen.push(picture(&trace, way));
        from.get_or_insert(reno.from);
        directions.push(found);
    }
    let (Some(forth), Some(back), Some(base)) = (take(&mut directions), take(&mut directions), base) else {
        return Err(Error::Here("a direction is missing".into()));
    };
    let record = PathRecord {
        path_format: PATH_FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        command: origin.command,
        started_unix_ms: origin.started_unix_ms,
        from: from.map(|from| from.ip().to_string()).unwrap_or_default(),
        to: server.name.clone(),
        rtt_us: rtt(base, &forth, &back),
        forth,
        back,
    };
    Ok((record, seen))
}

/// Whether two base round trips are of different paths: the least of some 25 probes varies less than that, and with jitter by as much as most of
/// them do.
fn has_changed(before: Base, after: Base) -> bool {
    let varies_us = before.spread_us.max(after.spread_us);
    (before.rtt_us - after.rtt_us).abs() > 0.2 * before.rtt_us.min(after.rtt_us) + 2_000.0 + varies_us
}

fn take(directions: &mut Vec<PathDirection>) -> Option<PathDirection> {
    (!directions.is_empty()).then(|| directions.remove(0))
}

/// What counts as spent before a second pass, where one is to tell what the first has left open: what lies beyond single losses, or whether
/// a policer holds its rate. That takes a budget of its own.
fn spent_before_second(trace: &Trace<'_>, base: Base) -> Option<u64> {
    let delays = trace.delays();
    let ended = end(trace, &delays, base);
    match ended {
        End::FewLosses => Some(trace.sent_bytes),
        _ => policer::is_suspected(trace, &delays, ended, base).then_some(0),
    }
}

/// The base round trip, less the time that the probes took to be sent.
fn rtt(base: Base, forth: &PathDirection, back: &PathDirection) -> Finding {
    let sent_us =
        |direction: &PathDirection, bytes: f64| direction.rate_bit_s.value().map_or(0.0, |rate| bytes * 8e6 / rate);
    base.finding(sent_us(forth, PROBE_BYTES) + sent_us(back, ANSWER_BYTES))
}

/// The part of a receive buffer that is advertised: half before Linux 6.6, then what packets of 1500 bytes hold of their memory.
const ADVERTISED: [f64; 2] = [0.5, 0.625];
/// The part of a send buffer that holds payload.
const HOLDS: f64 = 0.8;

/// What the kernels of the ends let a window grow to by themselves.
fn window(sender: &EndSettings, receiver: &EndSettings) -> Finding {
    let most = |limits: &str| limits.split_whitespace().nth(2).and_then(|most| most.parse::<u32>().ok()).map(f64::from);
    let mut release = receiver.kernel.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let is_new = release.next().zip(release.next()) >= Some((6, 6));
    match most(&sender.tcp_wmem).zip(most(&receiver.tcp_rmem)) {
        Some((send, receive)) => {
            let value = (send * HOLDS).min(receive * ADVERTISED[usize::from(is_new)]);
            let evidence = format!("tcp_wmem of the sender up to {send}, tcp_rmem of the receiver up to {receive}");
            Finding::Observed { value, low: value * 0.8, high: value * 1.25, evidence }
        }
        None => Finding::NotObservable { reason: "an end does not say its limits".into() },
    }
}

/// A picture shows what came in each of so many microseconds.
const BIN_US: f64 = 20_000.0;

fn picture(trace: &Trace<'_>, way: Way) -> Seen {
    let seconds = |at_us: f64| at_us / 1e6;
    let queue_ms = trace.delays().iter().map(|delay| (seconds(delay.at_us), delay.queued_us / 1e3)).collect();
    let mut rate_mbit = Vec::new();
    if let Some((from_us, until_us)) = trace.arrival_us() {
        for step in 0..STEPS_MOST {
            let at_us = from_us + f64::from(step) * BIN_US;
            // What is left of the last bin says no rate; of a load that is shorter than one it is all there is.
            let to_us = if step == 0 { (at_us + BIN_US).min(until_us) } else { at_us + BIN_US };
            if to_us > until_us {
                break;
            }
            rate_mbit.extend(trace.passed_bit_s(at_us, to_us).map(|rate| (seconds(to_us), rate / 1e6)));
        }
    }
    let lost_s = trace.first_hole().map(|row| seconds(trace.arrived[row].at_us as f64));
    Seen { way, queue_ms, rate_mbit, lost_s }
}
