//! What a path is made of, from a loaded TCP.
//!
//! Each direction was loaded by one stream, Reno's slow start, until its first losses were over; both ends looked at it every 200 µs.
//! Packets come at the line's rate while a queue delays them; a queue that loses much of a window was full. Where single losses have ended
//! the slow start too soon, a second stream followed with BBR, which does not heed them.

mod base;
mod buffer;
mod ended;
mod find;
mod held;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod mended;
mod policer;
mod rate;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
mod trace;
#[cfg(test)]
mod truthful;

use ekiden_record::{EndSettings, Finding, PathDirection, Way};

use ended::{End, end};
use trace::{ANSWER_BYTES, PROBE_BYTES, STEPS_MOST};

pub use base::Base;
pub use find::{direction, drops, holed};
pub use trace::Trace;

/// Traces of a direction, for a picture.
pub struct PathPicture {
    /// The direction.
    pub way: Way,
    /// Seconds since the load began, and milliseconds that bytes which came then had waited on the way.
    pub queue_ms: Vec<(f64, f64)>,
    /// Seconds, and Mbit/s that came in the 20 ms before.
    pub rate_mbit: Vec<(f64, f64)>,
    /// When the first segment was missed at the receiver, in seconds.
    pub lost_s: Option<f64>,
}

/// Whether two base round trips are of different paths: the least of some 25 probes varies less than that, and with jitter by as much as most of
/// them do.
pub fn has_changed(before: Base, after: Base) -> bool {
    let varies_us = before.spread_us.max(after.spread_us);
    (before.rtt_us - after.rtt_us).abs() > 0.2 * before.rtt_us.min(after.rtt_us) + 2_000.0 + varies_us
}

/// What counts as spent before a second pass, where one is to tell what the first has left open: what lies beyond single losses, or whether
/// a policer holds its rate. That takes a budget of its own.
pub fn spent_before_second(trace: &Trace<'_>, base: Base) -> Option<u64> {
    let delays = trace.delays();
    let ended = end(trace, &delays, base);
    match ended {
        End::FewLosses => Some(trace.sent_bytes),
        _ => policer::is_suspected(trace, &delays, ended, base).then_some(0),
    }
}

/// The base round trip, less the time that the probes took to be sent; and each direction is told its bandwidth-delay product.
pub fn round_trip(base: Base, forth: &mut PathDirection, back: &mut PathDirection) -> Finding {
    let sent = [(&*forth, PROBE_BYTES), (&*back, ANSWER_BYTES)].map(|(direction, bytes)| Sent::of(direction, bytes));
    let rtt = base.finding(sent.iter().map(|sent| sent.likely_us).sum(), sent.iter().map(|sent| sent.most_us).sum());
    for direction in [forth, back] {
        direction.bdp_bytes = product(&direction.rate_bit_s, &rtt).unwrap_or(direction.bdp_bytes.clone());
    }
    rtt
}

/// How long a probe took to be sent, in microseconds.
struct Sent {
    likely_us: f64,
    most_us: f64,
}

impl Sent {
    fn of(direction: &PathDirection, bytes: f64) -> Self {
        let us = |rate: Option<f64>| rate.filter(|rate| *rate > 0.0).map_or(0.0, |rate| bytes * 8e6 / rate);
        let rate = &direction.rate_bit_s;
        Self { likely_us: us(rate.value()), most_us: us(rate.estimate_or_bound()) }
    }
}

/// A rate times a round trip, where both were seen, in bytes.
fn product(rate: &Finding, rtt: &Finding) -> Option<Finding> {
    let Finding::Observed { value, low, high, .. } = rate else { return None };
    let Finding::Observed { value: rtt_us, low: least_us, high: most_us, .. } = rtt else { return None };
    let of = |rate: &f64, rtt_us: &f64| rate * rtt_us / 8e6;
    let evidence = format!("rate × {:.2} ms", rtt_us / 1e3);
    Some(Finding::Observed { value: of(value, rtt_us), low: of(low, least_us), high: of(high, most_us), evidence })
}

/// The part of a receive buffer that is advertised: half before Linux 6.6, then what packets of 1500 bytes hold of their memory.
const ADVERTISED: [f64; 2] = [0.5, 0.625];
/// The part of a send buffer that holds payload.
const HOLDS: f64 = 0.8;

/// What the kernels of the ends let a window grow to by themselves.
pub fn window(sender: &EndSettings, receiver: &EndSettings) -> Finding {
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

/// Interval of the rates in a picture, in microseconds.
const BIN_US: f64 = 20_000.0;

/// What is shown of a trace.
pub fn picture(trace: &Trace<'_>, way: Way) -> PathPicture {
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
    PathPicture { way, queue_ms, rate_mbit, lost_s }
}
