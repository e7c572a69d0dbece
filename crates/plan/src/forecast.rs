//! What a connection, or a chain of them, should carry: the models of crate `model`, applied to known and unknown values.

use std::collections::BTreeMap;

use ekiden_model::rounds::{Amount, Bottleneck, Outcome, Policer, Sender, Senders, segment_bytes, transfer};
use ekiden_model::s3::EKIDEN_LOSS_PER_PROXY;
use ekiden_units::{BitRate, Bytes, Time};
use serde::Serialize;

use crate::Estimate;

/// The number of runs of a hop on which packets are lost at random.
const TRIALS: u64 = 24;
/// The number of runs if nothing is random but which connection loses.
const TRIALS_OF_SHARES: u64 = 4;
/// Round trips from a chain's first SYN until data flows: a handshake of TCP and one of keys on each leg, the request and its reply.
const SETUP_OF_CHAIN: f64 = 3.0;
/// The same of a direct connection.
const SETUP_OF_ONE: f64 = 1.0;
/// The relative error of what the rounds leave out: bursts, late programs. The median error in docs/measurements/plan.md is
/// this great.
const DOUBT: f64 = 0.05;
/// The additional relative error of a single run with few losses: this, divided by the square root of their number, and
/// multiplied by the probability that a run has any. Of thirty simulated runs of each of four paths with some ten losses,
/// 70 to 93 % lie within.
const DOUBT_OF_CHANCE: f64 = 0.5;
/// The relative error for a policer whose bucket holds less than its rate brings in a round trip: what it passes depends on
/// the spacing of packets, which the rounds do not model. Of nine paths in lab and simulator all are within this, except one
/// that carries 1.8 times as much.
const DOUBT_OF_POLICER: f64 = 0.4;
/// The part of the trials that a range leaves out at either end.
const LEFT_OUT: f64 = 0.1;
/// The part of the user data that a line carries from which on it counts as full.
const FULL: f64 = 0.9;

/// The limit of a connection or a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// A window per round trip.
    Window,
    /// The line, or what its buffer leaves of it.
    Line,
    /// What random loss leaves of the congestion window.
    Loss,
    /// A policer.
    Policer,
}

/// The expected result of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Forecast {
    /// User data that arrives, over the whole time from the first SYN, in bit/s.
    pub goodput_bit_s: Estimate,
    /// What bounds it.
    pub limit: Limit,
    /// How long the short transfer takes, in seconds, if there is one.
    pub short_s: Option<f64>,
}

/// One connection of a chain, from a node to the next; or the direct one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hop {
    pub rtt_s: Estimate,
    pub rate_bit_s: Estimate,
    pub buffer_bytes: Estimate,
    pub loss: Estimate,
    pub policer: Option<Policer>,
    pub mtu: u32,
    /// The least of send buffer and receive window, in bytes, as far as it is used.
    pub window: f64,
    pub control: Sender,
    pub connections: u32,
}

/// Which of the bounds is considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum View {
    Worst,
    Best,
    Middle,
}

impl View {
    /// Of a number that is the better the greater it is.
    fn greater(self, estimate: &Estimate) -> f64 {
        match self {
            Self::Worst => estimate.low,
            Self::Best => estimate.high,
            Self::Middle => estimate.value,
        }
    }

    fn less(self, estimate: &Estimate) -> f64 {
        match self {
            Self::Worst => estimate.high,
            Self::Best => estimate.low,
            Self::Middle => estimate.value,
        }
    }
}

/// Forecasts for one duration. Remembers hops, which chains have in common.
pub struct Forecaster {
    /// How long a transfer lasts, in seconds.
    seconds: f64,
    known: BTreeMap<Key, Vec<Outcome>>,
}

/// Everything that a run of a hop depends on.
type Key = ([u64; 7], Sender, u32, u64, bool);

impl Forecaster {
    pub fn new(seconds: f64) -> Self {
        Self { seconds, known: BTreeMap::new() }
    }

    /// The forecast of a chain. `elsewhere` are other ways in which its hops may share the path's loss.
    pub fn chain(&mut self, hops: &[Hop], elsewhere: &[Vec<Hop>], short: Option<Bytes>) -> Forecast {
        let (middle, limit) = self.rates(hops, View::Middle);
        let value = mean(&middle);
        let doubt = DOUBT + self.doubt_of_chance(hops, value) + doubt_of_policer(hops, limit);
        let exact = hops
            .iter()
            .all(|hop| [hop.rtt_s, hop.rate_bit_s, hop.buffer_bytes, hop.loss].iter().all(Estimate::is_exact));
        let (mut worst, mut best) = match exact {
            true => (middle.clone(), middle),
            false => (self.rates(hops, View::Worst).0, self.rates(hops, View::Best).0),
        };
        let (mut low, mut high) = (quantile(&mut worst, LEFT_OUT), quantile(&mut best, 1.0 - LEFT_OUT));
        for hops in elsewhere {
            let rate = mean(&self.rates(hops, View::Middle).0);
            (low, high) = (low.min(rate), high.max(rate));
        }
        // Whatever the model's error, a line carries no more than its rate.
        let seconds = self.seconds;
        let policed = |hop: &Hop| {
            hop.policer.map_or(f64::INFINITY, |policer| policer.rate.0 as f64 + policer.burst.0 as f64 * 8.0 / seconds)
        };
        let lines = hops.iter().map(|hop| payload(hop) * hop.rate_bit_s.high.min(policed(hop)));
        // Nor does the error make a window larger.
        let windows = hops.iter().map(|hop| {
            hop.window * 8.0 * f64::from(hop.connections) / hop.rtt_s.low.max(f64::MIN_POSITIVE) * (1.0 + DOUBT)
        });
        let most = lines.chain(windows).fold(f64::INFINITY, f64::min);
        let goodput_bit_s = Estimate::between(low * (1.0 - doubt), value.min(most), (high * (1.0 + doubt)).min(most));
        Forecast { goodput_bit_s, limit, short_s: short.map(|bytes| self.short(hops, bytes)) }
    }

    /// The error of a single run as a part of the expectation, if few packets are lost at random.
    fn doubt_of_chance(&self, hops: &[Hop], rate_bit_s: f64) -> f64 {
        let losses = hops.iter().map(|hop| {
            let packets = rate_bit_s / 8.0 / f64::from(segment_bytes(hop.mtu)) * self.seconds;
            packets * hop.loss.value
        });
        let losses: f64 = losses.sum();
        let has_any = 1.0 - (-losses).exp();
        DOUBT_OF_CHANCE / (1.0 + losses).sqrt() * has_any
    }

    /// The rate of one hop alone, in bit/s.
    pub fn alone(&mut self, hop: &Hop) -> (f64, Limit) {
        let (rates, limit) = self.rates(&[*hop], View::Middle);
        (mean(&rates), limit)
    }

    /// The rate of a chain in each trial, in bit/s, and the most frequent limit.
    fn rates(&mut self, hops: &[Hop], view: View) -> (Vec<f64>, Limit) {
        let whole: f64 = hops.iter().map(|hop| view.less(&hop.rtt_s)).sum();
        let lead = (setup(hops.len()) + 0.5) * whole;
        let seconds = (self.seconds - lead).max(self.seconds * 0.05);
        let outcomes: Vec<Vec<Outcome>> = hops
            .iter()
            .enumerate()
            .map(|(number, hop)| self.outcomes(hop, view, Amount::Time(time(seconds)), number as u64))
            .collect();
        let trials = outcomes.iter().map(Vec::len).max().unwrap_or_default();
        let mut limits: BTreeMap<Limit, usize> = BTreeMap::new();
        let rates = (0..trials).map(|trial| {
            let of_hops = outcomes.iter().zip(hops).map(|(outcomes, hop)| {
                let outcome = &outcomes[trial % outcomes.len()];
                let limit = limit(outcome, hop, view);
                let cost = if limit == Limit::Window { cost(hops.len()) } else { 1.0 };
                (outcome.rate() * cost, limit)
            });
            let least = of_hops.min_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or((0.0, Limit::Line));
            *limits.entry(least.1).or_default() += 1;
            least.0 * seconds / self.seconds
        });
        let rates = rates.collect();
        let limit = limits.into_iter().max_by_key(|(_, count)| *count).map_or(Limit::Line, |(limit, _)| limit);
        (rates, limit)
    }

    /// The time that a transfer of `bytes` takes, in seconds: the slowest hop's time, after the set-up.
    fn short(&mut self, hops: &[Hop], bytes: Bytes) -> f64 {
        let whole: f64 = hops.iter().map(|hop| hop.rtt_s.value).sum();
        let times = hops.iter().enumerate().map(|(number, hop)| {
            let outcomes = self.outcomes(hop, View::Middle, Amount::Bytes(bytes), number as u64);
            mean(&outcomes.iter().map(|outcome| outcome.seconds).collect::<Vec<_>>())
        });
        (setup(hops.len()) + 0.5) * whole + times.fold(0.0, f64::max)
    }

    fn outcomes(&mut self, hop: &Hop, view: View, amount: Amount, number: u64) -> Vec<Outcome> {
        let (amount_bits, is_time) = match amount {
            Amount::Time(time) => (time.0, true),
            Amount::Bytes(bytes) => (bytes.0, false),
        };
        let path = Bottleneck {
            rtt: time(view.less(&hop.rtt_s)),
            rate: BitRate(view.greater(&hop.rate_bit_s) as u64),
            mtu: hop.mtu,
            buffer: Bytes(view.greater(&hop.buffer_bytes).max(f64::from(hop.mtu)) as u64),
            loss: view.less(&hop.loss),
            policer: hop.policer,
        };
        let is_random = path.loss > 0.0;
        let trials = match (is_random, hop.connections) {
            (true, _) => TRIALS,
            (false, 1) => 1,
            (false, _) => TRIALS_OF_SHARES,
        };
        let policer = hop.policer.map_or(0, |policer| policer.rate.0 ^ (policer.burst.0 << 20));
        let window = Bytes(hop.window as u64);
        let bits = [path.rtt.0, path.rate.0, path.buffer.0, path.loss.to_bits(), policer, window.0, amount_bits];
        // Without randomness, equal hops give equal results.
        let number = if trials > 1 { number } else { 0 };
        let key = (bits, hop.control, hop.connections, number, is_time);
        let senders = Senders { connections: hop.connections, window, control: hop.control };
        let run = || (0..trials).map(|trial| transfer(&path, &senders, amount, 1 + trial + 1000 * number)).collect();
        self.known.entry(key).or_insert_with(run).clone()
    }
}

/// The relative error of what a small bucket passes.
fn doubt_of_policer(hops: &[Hop], limit: Limit) -> f64 {
    let is_small = |hop: &Hop| {
        let policed = |policer: Policer| (policer.burst.0 as f64) < policer.rate.0 as f64 / 8.0 * hop.rtt_s.value;
        hop.policer.is_some_and(policed)
    };
    if limit == Limit::Policer && hops.iter().any(is_small) { DOUBT_OF_POLICER } else { 0.0 }
}

/// The part of a window's throughput that the proxies of a chain leave (S3's f, with the cost of ekiden's proxies).
fn cost(hops: usize) -> f64 {
    let n = hops.max(1) as f64;
    1.0 - EKIDEN_LOSS_PER_PROXY * (n - 1.0) / n
}

fn setup(hops: usize) -> f64 {
    if hops > 1 { SETUP_OF_CHAIN } else { SETUP_OF_ONE }
}

/// The part of a line's rate that user data gets.
fn payload(hop: &Hop) -> f64 {
    f64::from(segment_bytes(hop.mtu)) / f64::from(hop.mtu)
}

fn limit(outcome: &Outcome, hop: &Hop, view: View) -> Limit {
    let is_full = outcome.rate() > FULL * payload(hop) * view.greater(&hop.rate_bit_s);
    if outcome.at_window > 0.5 && !is_full {
        return Limit::Window;
    }
    let is_policed = hop.policer.is_some_and(|policer| (policer.rate.0 as f64) < view.greater(&hop.rate_bit_s));
    if is_policed && outcome.policed > 0 {
        return if outcome.random_losses > 2 * outcome.policed { Limit::Loss } else { Limit::Policer };
    }
    if !is_full && outcome.random_losses > outcome.overflows { Limit::Loss } else { Limit::Line }
}

fn time(seconds: f64) -> Time {
    Time((seconds * 1e9) as u64)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((part * last as f64).round() as usize).copied().unwrap_or_default()
}
