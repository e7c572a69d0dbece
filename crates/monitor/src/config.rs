//! A monitor's configuration: one TOML file, read once into [`Config`] with every default in place.

use std::fmt;
use std::path::{Path, PathBuf};

pub use ekiden_config::ConfigError;
use ekiden_config::{load, words};
use ekiden_keys::Fingerprint;
use ekiden_units::{Bytes, Time};

mod raw;
mod resolve;
mod show;

pub use raw::sections;

/// A monitor's configuration, resolved and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The time between two rounds; in each, every target is measured once, one after another.
    pub interval: Time,
    /// When in each interval its round begins.
    pub offset: Offset,
    /// The file that holds the history.
    pub history: PathBuf,
    /// How long measurements are kept; `None`: for ever.
    pub keep: Option<Time>,
    /// A text file for Prometheus, written after each round.
    pub prometheus: Option<PathBuf>,
    /// Our key, for measuring servers that ask for it.
    pub key_file: Option<PathBuf>,
    /// What is measured, in the order of the file.
    pub targets: Vec<Target>,
}

/// When in each interval its round begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offset {
    /// At a random time, drawn for each interval.
    Random,
    /// At this time after the interval's begin.
    Fixed(Time),
}

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// The server at the other end.
    pub server: Server,
    /// The SOCKS5 listener of a node, `HOST:PORT`, that the connections go through; directly without.
    pub via: Option<String>,
    /// The direction of the data.
    pub direction: Direction,
    /// A measurement ends when it has moved this number of bytes of payload …
    pub bytes: Bytes,
    /// … or after this time.
    pub duration: Time,
    /// Connections.
    pub streams: u32,
}

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq)]
pub enum Server {
    /// `ekiden measure server`.
    Ekiden {
        /// `HOST:PORT`.
        address: String,
        /// Of its key.
        fingerprint: Fingerprint,
    },
    /// A plain iperf3 server, `HOST` or `HOST:PORT`.
    Iperf3(String),
}

words! {
    /// Which way data goes, as the monitor sees it.
    Direction {
        /// From the server to here: a download.
        Receive = "receive",
        /// From here to the server.
        Send = "send",
    }
}

impl Config {
    /// Reads a configuration. Files that it names are meant relative to its folder.
    ///
    /// # Errors
    /// If something in it cannot be used: with the line.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        load(file, resolve::parse)
    }

    /// The maximum payload of a day's rounds, in bytes: the sum of each target's `bytes`.
    pub fn daily_bytes(&self) -> u64 {
        let round: u128 = self.targets.iter().map(|target| u128::from(target.bytes.0)).sum();
        let day = u128::from(Time::secs(86_400).0);
        u64::try_from(round * day / u128::from(self.interval.0.max(1))).unwrap_or(u64::MAX)
    }

    /// The announcement before it begins.
    pub fn announcement(&self) -> String {
        let (count, noun) = (self.targets.len(), if self.targets.len() == 1 { "target" } else { "targets" });
        let rounds = Time::secs(86_400).0 as f64 / self.interval.0.max(1) as f64;
        let rounds = if rounds < 10.0 { format!("{rounds:.1}") } else { format!("{rounds:.0}") };
        let keep = self.keep.map_or("for ever".into(), |keep| format!("for {}", long_time(keep)));
        format!(
            "{count} {noun} every {}, {rounds} times a day: at most {} of payload a day; kept {keep} in {}",
            long_time(self.interval),
            Bytes(self.daily_bytes()).rounded(),
            self.history.display()
        )
    }
}

/// A time as people write it: what Display gives in seconds, in minutes or hours where these are whole.
pub(crate) fn long_time(value: impl fmt::Display) -> String {
    let text = value.to_string();
    let seconds = text.strip_suffix('s').and_then(|number| number.parse::<u64>().ok());
    match seconds {
        Some(seconds) if seconds >= 3600 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        Some(seconds) if seconds >= 60 && seconds % 60 == 0 => format!("{}min", seconds / 60),
        _ => text,
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ekiden { address, .. } => f.write_str(address),
            Self::Iperf3(address) => write!(f, "iperf3 {address}"),
        }
    }
}

#[cfg(test)]
mod tests;
