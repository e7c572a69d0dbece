//! Streams for which a table had no place: the log reports them from time to time.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::Config;
use crate::kernel::Found;

/// The least interval between two lines of the log.
const LOGGED: Duration = Duration::from_secs(10);

/// The number that was counted, and the number that was reported.
#[derive(Default, Clone, Copy)]
pub(crate) struct Full {
    told: u64,
    logged: Option<Instant>,
}

impl Full {
    /// `before` were counted before this process.
    pub fn new(before: u64) -> Self {
        Self { told: before, logged: None }
    }

    /// The line of the log that is due now; at the end (`None` as the time) it is always due. `counted` are all so far,
    /// `found` the streams that have a place.
    pub fn due(&mut self, counted: u64, found: Found, config: &Config, now: Option<Instant>) -> Option<String> {
        let is_due = self.logged.zip(now).is_none_or(|(last, now)| now - last >= LOGGED);
        let new = counted.saturating_sub(self.told);
        if new == 0 || !is_due {
            return None;
        }
        (self.told, self.logged) = (counted, now);
        Some(line(new, found, config))
    }
}

fn line(new: u64, found: Found, config: &Config) -> String {
    let (most4, most6) = (config.ipv4_streams, config.ipv6_streams);
    let (table, keys) = match (found.ipv4 >= most4.into(), found.ipv6 >= most6.into()) {
        (true, false) => (format!("the table of IPv4 streams is full ({most4})"), "ipv4_streams makes it larger"),
        (false, true) => (format!("the table of IPv6 streams is full ({most6})"), "ipv6_streams makes it larger"),
        (is_full, _) => {
            let tables = if is_full { "both tables of streams are full" } else { "a table of streams was full" };
            let table = format!("{tables} (IPv4 {most4}, IPv6 {most6})");
            (table, "ipv4_streams and ipv6_streams make them larger")
        }
    };
    // Without the handshake each ACK may begin a stream, so what is counted are not streams.
    let assumes = config.groups.iter().any(|group| group.settings.assumed_scale.is_some());
    let left = match (assumes, new) {
        (true, _) => format!("{new} packets of new streams were left alone"),
        (false, 1) => "a new stream was left alone".into(),
        (false, _) => format!("{new} new streams were left alone"),
    };
    format!("{table}: {left}; {keys}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let group = crate::Group { name: "a".into(), settings: crate::kernel::Group::default() };
        let time = ekiden_units::Time::secs(60);
        Config {
            device: "wan0".into(),
            ipv4_streams: 2,
            ipv6_streams: 3,
            idle: time,
            restart_within: time,
            groups: vec![group],
        }
    }

    #[test]
    fn a_line_names_the_table_that_is_full() {
        let line = |new, ipv4, ipv6| line(new, Found { ipv4, ipv6 }, &config());
        let four = "the table of IPv4 streams is full (2): 3 new streams were left alone; ipv4_streams makes it larger";
        assert_eq!(line(3, 2, 0), four);
        let six = "the table of IPv6 streams is full (3): a new stream was left alone; ipv6_streams makes it larger";
        assert_eq!(line(1, 1, 3), six);
        assert!(line(1, 2, 3).starts_with("both tables of streams are full (IPv4 2, IPv6 3): "));
        assert!(line(1, 1, 0).starts_with("a table of streams was full (IPv4 2, IPv6 3): "));
        let mut assumed = config();
        assumed.groups[0].settings.assumed_scale = Some(7);
        assert!(super::line(5, Found::default(), &assumed).contains(": 5 packets of new streams were left alone; "));
    }

    #[test]
    fn there_is_a_line_in_ten_seconds_and_one_at_the_end() {
        let (begin, config, found) = (Instant::now(), config(), Found::default());
        let mut full = Full::new(100);
        let mut told =
            |counted, second| full.due(counted, found, &config, Some(begin + Duration::from_secs(second))).is_some();
        assert_eq!(
            [told(100, 0), told(101, 5), told(103, 10), told(103, 15), told(103, 25)],
            [false, true, false, true, false]
        );
        assert!(full.due(104, found, &config, None).is_some() && full.due(104, found, &config, None).is_none());
    }
}
