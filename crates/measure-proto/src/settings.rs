//! What loads may ask for.

use std::fmt::Display;

use ekiden_record::{LoadSettings, Way};
use ekiden_units::{BitRate, Bytes, Time, is_control_name};

/// How often connections are looked at unless told otherwise, in microseconds.
pub const SAMPLE_US: u32 = 20_000;
/// The most connections in each direction.
pub const STREAMS_MOST: u32 = 128;
/// The longest load, in microseconds: an hour.
pub const DURATION_MOST_US: u64 = 3_600_000_000;
/// The most bytes of a load in each direction.
pub const BYTES_MOST: u64 = 1 << 50;

/// Ten seconds over one stream to the server.
impl Default for Asked {
    fn default() -> Self {
        Self(LoadSettings {
            ways: vec![Way::Forth],
            streams: 1,
            duration_us: Some(10_000_000),
            bytes: None,
            data_bytes: None,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            window_bytes: None,
            mss_bytes: None,
            congestion: None,
            pacing_bit_s: None,
            offered_bit_s: None,
            sample_us: SAMPLE_US,
        })
    }
}

/// Settings of a load that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked(LoadSettings);

impl Asked {
    /// Checks settings, from a user or from the network.
    ///
    /// # Errors
    /// One line that says which is wrong and what it may be.
    pub fn new(settings: LoadSettings) -> Result<Self, String> {
        fn within<T: Display>(
            name: &str,
            value: Option<u64>,
            least: u64,
            most: u64,
            unit: fn(u64) -> T,
        ) -> Result<(), String> {
            match value {
                Some(value) if !(least..=most).contains(&value) => {
                    let [value, least, most] = [value, least, most].map(unit);
                    Err(format!("{name}: {value} is not in {least} to {most}"))
                }
                _ => Ok(()),
            }
        }
        let time = |us: u64| Time(us.saturating_mul(1_000));
        let count = |count: u64| count;
        let mut ways = settings.ways.clone();
        ways.sort_unstable();
        ways.dedup();
        if ways.is_empty() || ways.len() != settings.ways.len() {
            return Err("a load has one direction, or both".into());
        }
        if settings.duration_us.is_none() && settings.bytes.is_none() {
            return Err("a load needs a duration or a number of bytes".into());
        }
        within("the number of streams", Some(settings.streams.into()), 1, STREAMS_MOST.into(), count)?;
        within("the duration", settings.duration_us, 1_000, DURATION_MOST_US, time)?;
        within("the number of bytes", settings.bytes, u64::from(settings.streams), BYTES_MOST, Bytes)?;
        within("the bytes of a write", settings.data_bytes.map(u64::from), 1, 1 << 20, Bytes)?;
        within("the send buffer", settings.send_buffer_bytes, 1, 1 << 30, Bytes)?;
        within("the receive buffer", settings.receive_buffer_bytes, 1, 1 << 30, Bytes)?;
        within("the window", settings.window_bytes.map(u64::from), 1, 1 << 30, Bytes)?;
        within("the largest segment", settings.mss_bytes.map(u64::from), 88, 65_495, Bytes)?;
        within("the pacing rate", settings.pacing_bit_s, 8_000, 1_000_000_000_000, BitRate)?;
        within("the offered rate", settings.offered_bit_s, 8_000, 1_000_000_000_000, BitRate)?;
        within("the interval of samples", Some(settings.sample_us.into()), 1_000, 10_000_000, time)?;
        if let Some(name) = settings.congestion.as_ref().filter(|name| !is_control_name(name)) {
            let shown: String = name.chars().take(32).collect();
            return Err(format!("{shown:?} is not the name of a congestion control, such as reno"));
        }
        Ok(Self(settings))
    }

    /// The settings.
    pub fn get(&self) -> &LoadSettings {
        &self.0
    }

    /// The bytes that a stream carries, where that was asked for: all shared evenly, the first ones a byte more.
    pub fn bytes_of(&self, stream: u32) -> Option<u64> {
        let (all, streams) = (self.0.bytes?, u64::from(self.0.streams));
        Some(all / streams + u64::from(u64::from(stream) < all % streams))
    }
}
