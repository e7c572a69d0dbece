//! What was said of a path, each value with its place, from all sources alike; ranges and defaults.

use std::fmt::Display;
use std::ops::RangeInclusive;

use ekiden_model::rounds::{Policer, Sender};
use ekiden_units::path::{BDP_MOST, BUFFERS, RATES};
use ekiden_units::{BitRate, Bytes, Time};

use crate::{Carries, Direction, Error, Estimate, Path, Site};

/// What the hosts' windows may be: as a scenario's buffers.
pub const WINDOWS: RangeInclusive<Bytes> = Bytes::kib(1)..=Bytes::mib(1024);
pub const MTUS: RangeInclusive<u32> = 576..=9000;
/// The connections at once that a path may have.
pub const STREAMS: RangeInclusive<u32> = 1..=1000;
pub const SIZES: RangeInclusive<Bytes> = Bytes(1)..=Bytes::mib(1 << 30);
/// No model here holds beyond it, and no TCP gets anywhere.
pub const LOSS_MOST: f64 = 0.5;
/// What fits into a policer's bucket where nothing else is said; as a scenario's.
pub const BURST: Bytes = Bytes::kib(64);
/// Hosts whose windows are not known; what Linux gives without anybody's doing is about this.
const WINDOW: Bytes = Bytes::mib(4);

/// A value, and where it was said.
#[derive(Debug, Clone, PartialEq)]
pub struct Given<T> {
    pub value: T,
    /// `FILE:LINE`, `FILE`, or a flag.
    pub place: String,
}

/// What was said of a path.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values {
    pub name: Option<String>,
    pub direction: Option<Direction>,
    pub rtt_s: Option<Given<Estimate>>,
    pub rate_bit_s: Option<Given<Estimate>>,
    pub buffer_bytes: Option<Given<Estimate>>,
    pub loss: Option<Given<Estimate>>,
    pub unseen_loss: Option<f64>,
    pub policer_rate: Option<Given<BitRate>>,
    pub policer_burst: Option<Given<Bytes>>,
    pub mtu: Option<Given<u32>>,
    pub window: Option<Given<Bytes>>,
    pub client_window: Option<Given<Bytes>>,
    pub server_window: Option<Given<Bytes>>,
    pub congestion: Option<Sender>,
    pub streams: Option<Given<u32>>,
    pub size: Option<Given<Bytes>>,
    pub carries: Option<Carries>,
    pub sites: Vec<Site>,
    pub notes: Vec<String>,
}

impl Values {
    /// These, and where they say nothing, those of `other`.
    pub fn or(self, other: Self) -> Self {
        Self {
            name: self.name.or(other.name),
            direction: self.direction.or(other.direction),
            rtt_s: self.rtt_s.or(other.rtt_s),
            rate_bit_s: self.rate_bit_s.or(other.rate_bit_s),
            buffer_bytes: self.buffer_bytes.or(other.buffer_bytes),
            // If a loss was given, the bound of a record no longer counts.
            unseen_loss: if self.loss.is_some() { self.unseen_loss } else { other.unseen_loss },
            loss: self.loss.or(other.loss),
            policer_rate: self.policer_rate.or(other.policer_rate),
            policer_burst: self.policer_burst.or(other.policer_burst),
            mtu: self.mtu.or(other.mtu),
            // A window that was said of both hosts goes before one that another source says of a single one.
            client_window: self.client_window.or(self.window.clone()).or(other.client_window),
            server_window: self.server_window.or(self.window.clone()).or(other.server_window),
            window: self.window.or(other.window),
            congestion: self.congestion.or(other.congestion),
            streams: self.streams.or(other.streams),
            size: self.size.or(other.size),
            carries: self.carries.or(other.carries),
            sites: if self.sites.is_empty() { other.sites } else { self.sites },
            notes: [self.notes, other.notes].concat(),
        }
    }

    /// A path with every default in place. `whole` names the source where something is missing.
    pub fn resolve(self, whole: &str) -> Result<Path, Error> {
        let mut notes = self.notes;
        let missing = |key: &str, flag: &str, example: &str| {
            Error::wrong(whole, format!("{key} is missing: a path needs {key} = \"{example}\", or --{flag} {example}"))
        };
        let rtt_s = self.rtt_s.ok_or_else(|| missing("rtt", "rtt", "200ms"))?;
        let rate_bit_s = self.rate_bit_s.ok_or_else(|| missing("rate", "rate", "100Mbit/s"))?;
        let mtu = within("mtu", self.mtu, &MTUS)?.unwrap_or(1500);
        let rate_place = rate_bit_s.place;
        let (rtt_s, rate_bit_s) = (rtt_s.value, rate_bit_s.value);
        let bdp = rate_bit_s.value * rtt_s.value / 8.0;
        if bdp > BDP_MOST.0 as f64 {
            let (rate, rtt) = (BitRate(rate_bit_s.value as u64), Time((rtt_s.value * 1e9) as u64));
            let reason = format!(
                "rate × rtt = {rate} × {rtt} is {}: at most {} are on the way",
                Bytes(bdp as u64).rounded(),
                BDP_MOST.rounded()
            );
            return Err(Error::wrong(&rate_place, reason));
        }
        let least = f64::from(mtu) * 10.0;
        let buffer_bytes = match self.buffer_bytes {
            Some(given) => given.value,
            None => {
                notes.push(
                    "The bottleneck's buffer is not known: from a quarter of the BDP to four of them were tried."
                        .into(),
                );
                Estimate::between((bdp / 4.0).max(least), bdp.max(least), (4.0 * bdp).max(least))
            }
        };
        let loss = self.loss.map(|given| given.value).unwrap_or_else(|| {
            notes.push("Random loss is not known: none was assumed.".into());
            Estimate::exact(0.0)
        });
        let both = within("window", self.window, &WINDOWS)?;
        let client_window = within("client_window", self.client_window, &WINDOWS)?.or(both);
        let server_window = within("server_window", self.server_window, &WINDOWS)?.or(both);
        if client_window.is_none() || server_window.is_none() {
            notes
                .push(format!("What windows the hosts use is not known: {WINDOW} was assumed where nothing was said."));
        }
        let ms = |seconds: f64| format!("{:.0} ms", seconds * 1e3);
        for site in &self.sites {
            let detour = site.client_rtt_s + site.server_rtt_s;
            if detour > longest_s(rtt_s.value) {
                notes.push(format!(
                    "Site '{}' is left out: its client_rtt and server_rtt make {}, more than twice the path's round trip of {}.",
                    site.name,
                    ms(detour),
                    ms(rtt_s.value)
                ));
            }
        }
        let policer_rate = within("policer.rate", self.policer_rate, &RATES)?;
        let burst = within("policer.burst", self.policer_burst, &BUFFERS)?.unwrap_or(BURST);
        Ok(Path {
            name: self.name.unwrap_or_else(|| "path".into()),
            direction: self.direction.unwrap_or(Direction::Back),
            rtt_s,
            rate_bit_s,
            buffer_bytes,
            loss,
            unseen_loss: self.unseen_loss,
            policer: policer_rate.map(|rate| Policer { rate, burst }),
            mtu,
            client_window: client_window.unwrap_or(WINDOW),
            server_window: server_window.unwrap_or(WINDOW),
            congestion: self.congestion.unwrap_or(Sender::Cubic),
            streams: within("streams", self.streams, &STREAMS)?.unwrap_or(1),
            size: within("size", self.size, &SIZES)?,
            carries: self.carries.unwrap_or(Carries::Tcp),
            sites: self.sites,
            notes,
        })
    }
}

/// The longest sum of a chain's round trips, in seconds: no detour of more than twice the path, which no leg's gain makes good for the one
/// who waits.
pub(crate) fn longest_s(rtt_s: f64) -> f64 {
    2.0 * rtt_s + 0.02
}

fn within<T: PartialOrd + Display + Copy>(
    key: &str,
    given: Option<Given<T>>,
    range: &RangeInclusive<T>,
) -> Result<Option<T>, Error> {
    given.map(|given| in_range(key, given.value, &given.place, range)).transpose()
}

/// The value, if it is in its range.
pub fn in_range<T: PartialOrd + Display + Copy>(
    key: &str,
    value: T,
    place: &str,
    range: &RangeInclusive<T>,
) -> Result<T, Error> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(Error::wrong(place, format!("{key} = {value} is out of range: {} to {}", range.start(), range.end())))
}

/// A loss, 0 to [`LOSS_MOST`].
pub fn loss(key: &str, value: f64, place: &str) -> Result<f64, Error> {
    if (0.0..=LOSS_MOST).contains(&value) {
        return Ok(value);
    }
    let most = LOSS_MOST * 100.0;
    Err(Error::wrong(
        place,
        format!("{key} = {}% is out of range: 0 to {most}%, beyond which TCP carries nothing", value * 100.0),
    ))
}
