//! The description of an overlay's sites, of the legs between them and of what is sent: a TOML file.

use std::path::Path;

use ekiden_files::{ConfigError, explain, line_of, read_config};
use ekiden_units::{BitRate, Bytes, Fraction, Time};
use serde::{Deserialize, Serialize};

/// The most sites of a file.
pub const SITES_MOST: usize = 256;
/// The longest run.
pub const DURATION_MOST: Time = Time::secs(30 * 86_400);

/// Sites, the legs between each two of them, and what is sent over them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sites {
    /// What it is called in tables.
    pub name: String,
    /// All draws follow from it.
    pub seed: u64,
    /// How long the run is, with its warm-up; it begins at midnight UTC.
    pub duration: Time,
    /// How long streams run before what they get is counted.
    pub warm_up: Time,
    /// The deviation of what a node sees of rates and round trips from what they are, each second, as a part of them.
    #[serde(default)]
    pub noise: Fraction,
    /// Whether nodes believe those less that tell more than comes.
    #[serde(default = "yes")]
    pub judge: bool,
    /// How the legs are drawn.
    pub legs: Legs,
    /// What is sent.
    pub traffic: Traffic,
    /// The sites: two to [`SITES_MOST`].
    #[serde(rename = "site")]
    pub sites: Vec<Site>,
    /// When legs carry less, or nothing.
    #[serde(default, rename = "outage")]
    pub outages: Vec<Outage>,
    /// At which hours of the day legs carry less.
    #[serde(default, rename = "rush_hour")]
    pub rush_hours: Vec<RushHour>,
}

/// A place with a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// In degrees, north is positive.
    pub latitude: f64,
    /// In degrees, east is positive.
    pub longitude: f64,
    /// A name for the sites near it, for schedules.
    #[serde(default)]
    pub region: String,
    /// What its own line carries, each way; without it the legs alone count.
    #[serde(default)]
    pub line: Option<BitRate>,
    /// How much it may relay. It tells the others how much of that it does.
    #[serde(default)]
    pub relays_at_most: Option<BitRate>,
    /// If its node lies: it tells that all that it sends goes out at 1 Tbit/s, and lets a stream that it relays have no more than this.
    #[serde(default)]
    pub lies: Option<BitRate>,
}

/// How the legs are drawn: each direction of each pair its own line and loss, both the same round trip. A range is drawn from so that each
/// factor is as likely as any other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Legs {
    /// How much longer the fiber is than the way over the earth's surface.
    pub detour: [f64; 2],
    /// What all streams of a leg get together.
    pub rate: [BitRate; 2],
    /// Random loss, which limits each stream by itself.
    pub loss: [Fraction; 2],
    /// The least of both ends' buffers, which limits each stream by itself.
    pub window: Bytes,
    /// Which part of the legs is lossy ...
    #[serde(default)]
    pub lossy: Fraction,
    /// ... and how much so.
    #[serde(default = "much_loss")]
    pub lossy_loss: [Fraction; 2],
    /// Which part of the legs is congested ...
    #[serde(default)]
    pub congested: Fraction,
    /// ... and how much of its line is left.
    #[serde(default = "a_part")]
    pub congested_rate: [Fraction; 2],
}

/// What is sent: each site's programs open streams to the other sites, all equally often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// How many streams a site's programs open a second, in the mean; when, is a Poisson process.
    pub streams_s: f64,
    /// Which part of them is bulk; the rest are questions with short answers.
    pub bulk: Fraction,
    /// Half of the bulk transfers are longer. The sizes are distributed log-normally ...
    pub bulk_size: Bytes,
    /// ... with this deviation of the natural logarithm ...
    pub bulk_spread: f64,
    /// ... up to this.
    pub bulk_most: Bytes,
    /// What an answer has.
    pub answer_size: Bytes,
    /// Which part of the bulk goes from the site that opened the stream; the rest goes to it.
    pub up: Fraction,
}

/// Legs that carry less for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Between which two: each a site, a region, or `*` for all. Both directions.
    pub between: [String; 2],
    /// From when on.
    pub from: Time,
    /// Until when.
    pub to: Time,
    /// How much of the rate is left; without it, none.
    #[serde(default)]
    pub rate: Fraction,
}

/// Legs that carry less at some hours of each day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RushHour {
    /// As [`Outage::between`].
    pub between: [String; 2],
    /// From which hour of the day on, 0 to 24, by the sun at the site that sends ...
    pub from_hour: f64,
    /// ... to which; past midnight if that is less.
    pub to_hour: f64,
    /// Which part of these legs is crowded then, by the seed.
    #[serde(default = "all")]
    pub part: Fraction,
    /// How much of the rate is left.
    pub rate: Fraction,
}

fn yes() -> bool {
    true
}

fn all() -> Fraction {
    Fraction::ONE
}

fn much_loss() -> [Fraction; 2] {
    [Fraction(2_000_000), Fraction(20_000_000)]
}

fn a_part() -> [Fraction; 2] {
    [Fraction(20_000_000), Fraction(200_000_000)]
}

impl Sites {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or as [`Sites::parse`].
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(&read_config(file)?, file)
    }

    /// From a text. `file` is where errors say that it is.
    ///
    /// # Errors
    /// If it is no TOML, has a key that there is not, lacks one, or says what cannot be: with the line, where there is one to name.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let sites: Self =
            toml::from_str(text).map_err(|error| ConfigError::at(file, text, error.span(), explain(text, &error)))?;
        sites.check().map_err(|(key, reason)| {
            let path: Vec<&str> = key.split('.').collect();
            ConfigError { file: file.into(), line: line_of(text, &path), reason, is_lack: false }
        })?;
        Ok(sites)
    }

    /// Where the site of a name stands in the list.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.sites.iter().position(|site| site.name == name)
    }

    /// Whether a place of a schedule is, or holds, a site.
    pub(crate) fn is_at(&self, place: &str, site: usize) -> bool {
        place == "*" || self.sites[site].name == place || self.sites[site].region == place
    }

    /// What cannot be: its key, and why.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let require = |holds: bool, key: &'static str, reason: &str| match holds {
            true => Ok(()),
            false => Err((key, format!("{key}: {reason}"))),
        };
        let (legs, traffic) = (&self.legs, &self.traffic);
        let is_range = |[least, most]: [f64; 2]| least.is_finite() && most.is_finite() && least <= most;
        let parts = |range: [Fraction; 2]| range.map(Fraction::as_f64);
        require((2..=SITES_MOST).contains(&self.sites.len()), "site", "2 to 256 sites are needed")?;
        require(self.duration <= DURATION_MOST, "duration", "at most 30 days")?;
        require(self.warm_up < self.duration, "warm_up", "it has to be shorter than the duration")?;
        require(self.noise <= Fraction(500_000_000), "noise", "at most 50 %")?;
        require(is_range(legs.detour) && legs.detour[0] >= 1.0, "legs.detour", "from 1 on, the least first")?;
        require(legs.rate[0] <= legs.rate[1], "legs.rate", "the least first")?;
        require(is_range(parts(legs.loss)), "legs.loss", "the least first")?;
        require(is_range(parts(legs.lossy_loss)), "legs.lossy_loss", "the least first")?;
        require(is_range(parts(legs.congested_rate)), "legs.congested_rate", "the least first")?;
        require(legs.window.0 > 0, "legs.window", "more than nothing")?;
        require((0.0..=100.0).contains(&traffic.streams_s), "traffic.streams_s", "0 to 100")?;
        require((0.0..=5.0).contains(&traffic.bulk_spread), "traffic.bulk_spread", "0 to 5")?;
        for (number, site) in self.sites.iter().enumerate() {
            let is_place = site.latitude.abs() <= 90.0 && site.longitude.abs() <= 180.0;
            require(is_place, "site", &format!("{:?} is not on the earth", site.name))?;
            let is_new = site.name != "*" && self.index(&site.name) == Some(number);
            require(is_new, "site", &format!("the name {:?} is taken", site.name))?;
        }
        let outages = self.outages.iter().map(|outage| ("outage", &outage.between));
        let rush_hours = self.rush_hours.iter().map(|rush| ("rush_hour", &rush.between));
        for (key, between) in outages.chain(rush_hours) {
            for place in between {
                let is_known = (0..self.sites.len()).any(|site| self.is_at(place, site));
                require(is_known, key, &format!("{place:?} is neither a site nor a region"))?;
            }
        }
        for rush in &self.rush_hours {
            let are_hours = [rush.from_hour, rush.to_hour].iter().all(|hour| (0.0..=24.0).contains(hour));
            require(are_hours, "rush_hour", "hours are 0 to 24")?;
        }
        require(self.outages.iter().all(|outage| outage.from < outage.to), "outage", "it has to end after it begins")
    }
}
