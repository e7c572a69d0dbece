//! Measurements by hour of day.

use std::collections::BTreeMap;

use ekiden_units::Time;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::measurement::Measurement;

/// Hours of a day.
pub const HOURS: usize = 24;

/// The time zone of the hours of a day.
#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

/// The middle of several values, and the half of them around it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quartiles {
    /// How many values there are.
    pub count: usize,
    /// A quarter of them is below it.
    pub lower: f64,
    /// Half of them is below it.
    pub median: f64,
    /// A quarter of them is above it.
    pub upper: f64,
}

/// What a target has given in each hour of the day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByHour {
    /// The target's name.
    pub target: String,
    /// Throughput at the receiver in bit/s, over all hours; absent without a measurement.
    pub all: Option<Quartiles>,
    /// The same of the round-trip time without load, in milliseconds.
    pub rtt_base_ms: Option<Quartiles>,
    /// The same of the round-trip time under load, in milliseconds.
    pub rtt_loaded_ms: Option<Quartiles>,
    /// Measurements that failed.
    pub failed: usize,
    /// Throughput at the receiver in bit/s by hour of day, from 0 to 23; absent without a measurement.
    pub hours: Vec<Option<Quartiles>>,
}

impl Zone {
    /// That of this machine: TZ, or /etc/localtime.
    pub fn local() -> Self {
        Self(TimeZone::system())
    }

    /// UTC.
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Its name, such as `Asia/Tokyo`.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("local time")
    }

    /// The hour of day, 0 to 23, of a time in milliseconds since 1970; `None` beyond the year 9999.
    pub fn hour(&self, unix_ms: u64) -> Option<usize> {
        let time = Timestamp::from_millisecond(i64::try_from(unix_ms).ok()?).ok()?;
        usize::try_from(self.0.to_datetime(time).hour()).ok()
    }

    /// A time for people, to the minute.
    pub fn minute(&self, unix_ms: u64) -> String {
        let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        time.map_or("?".into(), |time| self.0.to_datetime(time).strftime("%Y-%m-%d %H:%M").to_string())
    }
}

/// A time as RFC 3339 has it, in UTC with milliseconds.
pub fn utc_text(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or("?".into(), |time| time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

impl Quartiles {
    /// Of these values, between neighbours in proportion; `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let at = |part: f64| {
            let place = part * last as f64;
            let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self { count: values.len(), lower: at(0.25), median: at(0.5), upper: at(0.75) })
    }
}

/// Each target's measurements by hour of day, in the order in which targets appear.
pub fn by_hour(measurements: &[Measurement], zone: &Zone) -> Vec<ByHour> {
    let mut names: Vec<&str> = Vec::new();
    let mut rows: BTreeMap<&str, Vec<&Measurement>> = BTreeMap::new();
    for measurement in measurements {
        let all = rows.entry(&measurement.target).or_default();
        if all.is_empty() {
            names.push(&measurement.target);
        }
        all.push(measurement);
    }
    names.into_iter().map(|name| of_target(name, rows.get(name).map_or(&[], Vec::as_slice), zone)).collect()
}

fn of_target(name: &str, rows: &[&Measurement], zone: &Zone) -> ByHour {
    let good = || rows.iter().filter_map(|row| Some((row.started_unix_ms, row.result.as_ref().ok()?)));
    let mut hours: Vec<Vec<f64>> = vec![Vec::new(); HOURS];
    for (started, measured) in good() {
        if let Some(values) = zone.hour(started).and_then(|hour| hours.get_mut(hour)) {
            values.push(measured.received_bit_s as f64);
        }
    }
    let ms = |us: u64| us as f64 / 1e3;
    ByHour {
        target: name.into(),
        all: Quartiles::of(good().map(|(_, measured)| measured.received_bit_s as f64)),
        rtt_base_ms: Quartiles::of(good().filter_map(|(_, measured)| measured.rtt_base_us.map(ms))),
        rtt_loaded_ms: Quartiles::of(good().filter_map(|(_, measured)| measured.rtt_loaded_us.map(ms))),
        failed: rows.iter().filter(|row| row.result.is_err()).count(),
        hours: hours.into_iter().map(Quartiles::of).collect(),
    }
}

/// The first time that is within `span` before `now`, both in milliseconds since 1970.
pub fn since(now_unix_ms: u64, span: Time) -> u64 {
    now_unix_ms.saturating_sub(span.0 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::{Failure, Measured};

    #[test]
    fn quartiles_are_those_of_the_sorted_values() {
        assert_eq!(Quartiles::of([]), None);
        assert_eq!(Quartiles::of([7.0]), Some(Quartiles { count: 1, lower: 7.0, median: 7.0, upper: 7.0 }));
        let five = Quartiles { count: 5, lower: 2.0, median: 3.0, upper: 4.0 };
        assert_eq!(Quartiles::of([5.0, 1.0, 4.0, 2.0, 3.0]), Some(five));
        let four = Quartiles { count: 4, lower: 1.75, median: 2.5, upper: 3.25 };
        assert_eq!(Quartiles::of([1.0, 2.0, 3.0, 4.0]), Some(four));
    }

    #[test]
    fn hours_are_those_of_the_zone_also_when_summer_begins() {
        let hour = |zone: &Zone, text: &str| {
            let time: Timestamp = text.parse().unwrap();
            zone.hour(time.as_millisecond() as u64).unwrap()
        };
        let berlin = Zone(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap());
        assert_eq!(hour(&Zone::utc(), "2026-11-22T23:59:59.999Z"), 23);
        assert_eq!(hour(&berlin, "2026-11-22T23:59:59.999Z"), 0);
        assert_eq!(hour(&berlin, "2026-07-01T00:00:00Z"), 2);
        assert_eq!(hour(&berlin, "2026-03-29T00:59:00Z"), 1);
        assert_eq!(hour(&berlin, "2026-03-29T01:00:00Z"), 3);
        assert_eq!(Zone::utc().hour(u64::MAX), None);
        assert_eq!(Zone::utc().name(), "UTC");
        assert_eq!(utc_text(1_000), "1970-01-01T00:00:01.000Z");
        assert_eq!(berlin.minute(0), "1970-01-01 01:00");
    }

    #[test]
    fn failures_are_counted_and_not_drawn() {
        let row = |hour: u64, target: &str, rate: Option<u64>| Measurement {
            round_unix_ms: 0,
            started_unix_ms: hour * 3_600_000,
            target: target.into(),
            server: String::new(),
            via: None,
            direction: "receive".into(),
            result: match rate {
                Some(received_bit_s) => Ok(Measured { received_bit_s, ..Measured::default() }),
                None => Err(Failure("x".into())),
            },
        };
        let rows = [
            row(3, "b", Some(10)),
            row(3, "a", None),
            row(27, "b", Some(20)),
            row(28, "b", Some(50)),
            row(4, "b", None),
        ];
        let [b, a] = &by_hour(&rows, &Zone::utc())[..] else { panic!() };
        assert_eq!((b.target.as_str(), b.failed, b.all.unwrap().median), ("b", 1, 20.0));
        assert_eq!((b.hours[3].unwrap().median, b.hours[4].unwrap().count, b.hours[5]), (15.0, 1, None));
        assert_eq!((a.failed, a.all, a.hours.iter().flatten().count()), (1, None, 0));
        assert_eq!(b.hours.len(), HOURS);
    }
}
