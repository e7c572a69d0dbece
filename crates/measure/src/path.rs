//! Measures what a path is made of: S0's chapter 4 as a tool.
//!
//! Each direction is loaded by one stream, Reno's slow start, until its first losses are over; both ends look at it every 200 µs. Where
//! single losses end the slow start too soon, a second stream follows with BBR, which does not heed them.
//!
//! How much is sent for that, and for how long at most, is decided here. What follows from it, `path.rs` decides.

mod hops;

use std::time::Duration;

use ekiden_net::tcp_info::tcp_info;
use ekiden_record::{Finding, LoadSettings, PATH_FORMAT, PathDirection, PathRecord, Way};

use crate::Error;
use crate::client::{Server, measure};
use crate::server::end_settings;
use ekiden_diagnosis::budget::budget;
use ekiden_diagnosis::path::{
    Base, PathPicture, Trace, direction, drops, has_changed, holed, picture, round_trip, spent_before_second, window,
};
use ekiden_measure_proto::message::Trace as How;
use ekiden_measure_proto::settings::Asked;

/// Limits on the load of a direction: its bytes in bandwidth-delay products, and its duration, the sum of a number of round trips and a
/// fixed time.
const BDPS_MOST: f64 = 10.0;
const RTTS_MOST: f64 = 10.0;
const LONGEST: Duration = Duration::from_secs(2);
/// Bytes that may be sent even if the bandwidth-delay product is small.
const BYTES_LEAST: u64 = 300_000;
/// How many overflows are counted with `long`, and how long they may take, in microseconds.
const OVERFLOWS: u32 = 3;
const OVERFLOWS_US: u64 = 60_000_000;
/// The congestion control that does not react to single losses.
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

/// Measures both directions; with `long` it also overflows their buffers again and again.
///
/// # Errors
/// [`Error`].
pub fn characterise(
    server: &Server,
    origin: Origin,
    long: bool,
    step: &mut dyn FnMut(Step),
) -> Result<(PathRecord, Vec<PathPicture>), Error> {
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
            Some(hole) => holed(&trace, hole, hops),
            None => direction(&trace, second.as_ref(), known, hops),
        };
        if long && hole.is_none() {
            step(Step::Overflows { way });
            let settings = LoadSettings { duration_us: Some(OVERFLOWS_US), ..settings("reno") };
            let asked = Asked::new(settings).map_err(Error::Settings)?;
            let again = measure(server, &asked, How::Episodes { count: OVERFLOWS + 1 }, &mut |_| {})?;
            if let Some(trace) = Trace::of(&again, way) {
                found.drops_per_overflow = drops(trace.sent);
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
    let (Some(mut forth), Some(mut back), Some(base)) = (take(&mut directions), take(&mut directions), base) else {
        return Err(Error::Here("a direction is missing".into()));
    };
    let rtt_us = round_trip(base, &mut forth, &mut back);
    let record = PathRecord {
        path_format: PATH_FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        command: origin.command,
        started_unix_ms: origin.started_unix_ms,
        from: from.map(|from| from.ip().to_string()).unwrap_or_default(),
        to: server.name.clone(),
        rtt_us,
        forth,
        back,
    };
    Ok((record, seen))
}

fn take(directions: &mut Vec<PathDirection>) -> Option<PathDirection> {
    (!directions.is_empty()).then(|| directions.remove(0))
}
