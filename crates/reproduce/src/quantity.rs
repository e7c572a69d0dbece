//! What a claim or a picture is about: one number of a run, named in a few words.

mod measure;

use std::fmt::{self, Display};
use std::str::FromStr;

use ekiden_scenario::Scenario;
use ekiden_units::Time;

/// What is said if a quantity is not understood.
const KNOWN: &str = "goodput, duration, transfer, connection_mean, retransmits, rtt_min, rtt_max, rtt_mean, ssthresh_min or collapsed, each perhaps with a flow; \
                     queue_drops or queue_max with a link; ping_p50 or ping_p99 with a ping; tunnel_drops, tunnel_queue, tunnel_timeouts \
                     or tunnel_retransmits with a tunnel";

/// One number of a run: `goodput relayed from 10s`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    kind: Kind,
    /// The flow, link, ping or tunnel; without one, of all flows.
    of: Option<String>,
    window: Window,
}

/// Which number it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Goodput,
    Duration,
    Transfer,
    ConnectionMean,
    Retransmits,
    RttMin,
    RttMax,
    RttMean,
    SsthreshMin,
    Collapsed,
    QueueDrops,
    QueueMax,
    PingMedian,
    PingHigh,
    TunnelDrops,
    TunnelQueue,
    TunnelTimeouts,
    TunnelRetransmits,
}

/// What has a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bearer {
    Flow,
    Link,
    Ping,
    Tunnel,
}

/// The part of a run that counts, on the run's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Window {
    from: Option<Time>,
    to: Option<Time>,
    /// Of the time before the last sample.
    last: Option<Time>,
}

impl Kind {
    /// Every kind with its word.
    const ALL: [(&'static str, Self); 18] = [
        ("goodput", Self::Goodput),
        ("duration", Self::Duration),
        ("transfer", Self::Transfer),
        ("connection_mean", Self::ConnectionMean),
        ("retransmits", Self::Retransmits),
        ("rtt_min", Self::RttMin),
        ("rtt_max", Self::RttMax),
        ("rtt_mean", Self::RttMean),
        ("ssthresh_min", Self::SsthreshMin),
        ("collapsed", Self::Collapsed),
        ("queue_drops", Self::QueueDrops),
        ("queue_max", Self::QueueMax),
        ("ping_p50", Self::PingMedian),
        ("ping_p99", Self::PingHigh),
        ("tunnel_drops", Self::TunnelDrops),
        ("tunnel_queue", Self::TunnelQueue),
        ("tunnel_timeouts", Self::TunnelTimeouts),
        ("tunnel_retransmits", Self::TunnelRetransmits),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word)
    }

    fn bearer(self) -> Bearer {
        match self {
            Self::QueueDrops | Self::QueueMax => Bearer::Link,
            Self::PingMedian | Self::PingHigh => Bearer::Ping,
            Self::TunnelDrops | Self::TunnelQueue | Self::TunnelTimeouts | Self::TunnelRetransmits => Bearer::Tunnel,
            _ => Bearer::Flow,
        }
    }

    /// Whether it is taken from the samples, a part of which may count.
    fn has_window(self, window: Window) -> bool {
        match self {
            Self::Goodput => window != Window::default(),
            Self::RttMax | Self::RttMean | Self::SsthreshMin | Self::Collapsed => true,
            _ => false,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Goodput => "Mbit/s",
            Self::Duration | Self::Transfer | Self::ConnectionMean => "s",
            Self::RttMin | Self::RttMax | Self::RttMean | Self::PingMedian | Self::PingHigh => "ms",
            Self::SsthreshMin => "segments",
            Self::Collapsed => "streams",
            Self::QueueDrops | Self::TunnelDrops => "packets dropped",
            Self::QueueMax | Self::TunnelQueue => "KB",
            Self::Retransmits | Self::TunnelRetransmits => "segments sent again",
            Self::TunnelTimeouts => "timeouts",
        }
    }
}

impl Quantity {
    /// Its unit, for figures and axes.
    pub fn unit(&self) -> &'static str {
        self.kind.unit()
    }

    /// Whether it is read from a run's samples, not from its summary.
    pub(crate) fn is_sampled(&self) -> bool {
        self.kind.has_window(self.window)
    }

    /// Whether a scenario has what it is of.
    ///
    /// # Errors
    /// What it names and what there is.
    pub fn check(&self, scenario: &Scenario) -> Result<(), String> {
        let Some(of) = &self.of else { return Ok(()) };
        let (what, known): (_, Vec<&String>) = match self.kind.bearer() {
            Bearer::Flow => ("flow", scenario.flows.keys().collect()),
            Bearer::Link => ("link", scenario.links.keys().collect()),
            Bearer::Ping => ("ping", scenario.pings.keys().collect()),
            Bearer::Tunnel => ("tunnel", scenario.tunnels.keys().collect()),
        };
        if known.contains(&of) {
            return Ok(());
        }
        let known: Vec<&str> = known.into_iter().map(String::as_str).collect();
        let there =
            if known.is_empty() { "there is none".to_owned() } else { format!("there is: {}", known.join(", ")) };
        Err(format!("the scenario '{}' has no {what} '{of}'; {there}", scenario.name))
    }
}

impl FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let first = words.next().ok_or_else(|| format!("a quantity is {KNOWN}"))?;
        let known = Kind::ALL.iter().find(|(word, _)| *word == first);
        let Some(&(_, kind)) = known else {
            let nearest = ekiden_files::suggestion(first, Kind::ALL.iter().map(|(word, _)| *word));
            return Err(format!("'{first}' is no quantity; there are {KNOWN}{nearest}"));
        };
        let mut words = words.peekable();
        let of = words.next_if(|word| !["from", "to", "last"].contains(word)).map(str::to_owned);
        if of.is_none() && kind.bearer() != Bearer::Flow {
            return Err(format!("'{first}' needs a name behind it, as in '{first} NAME'"));
        }
        let window = window(words)?;
        if window != Window::default() && !kind.has_window(window) {
            return Err(format!("'{first}' is of a whole run; it takes no 'from', 'to' or 'last'"));
        }
        Ok(Self { kind, of, window })
    }
}

fn window<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Window, String> {
    let mut window = Window::default();
    while let Some(word) = words.next() {
        let place = match word {
            "from" => &mut window.from,
            "to" => &mut window.to,
            "last" => &mut window.last,
            other => {
                return Err(format!(
                    "'{other}' is not understood; a time is given by 'from', 'to' or 'last', such as 'from 10s'"
                ));
            }
        };
        let time = words.next().ok_or_else(|| format!("'{word}' needs a time behind it, such as '{word} 10s'"))?;
        *place = Some(time.parse().map_err(|error: ekiden_units::ParseError| error.to_string())?);
    }
    if window.last.is_some() && (window.from.is_some() || window.to.is_some()) {
        return Err("'last' says the whole of the time: 'from' and 'to' are not for beside it".into());
    }
    Ok(window)
}

impl Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.word())?;
        if let Some(of) = &self.of {
            write!(f, " {of}")?;
        }
        for (word, time) in [("from", self.window.from), ("to", self.window.to), ("last", self.window.last)] {
            if let Some(time) = time {
                write!(f, " {word} {time}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn a_quantity_is_shown_as_it_is_written() {
        for text in [
            "goodput",
            "goodput relayed",
            "goodput relayed from 10s",
            "goodput bulk from 61s to 241s",
            "rtt_mean bulk last 180s",
            "queue_drops internet",
            "ping_p99 echo",
            "ssthresh_min to 21s",
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_none_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "a quantity is goodput"),
            ("goodputs", "did you mean `goodput`?"),
            ("queue_drops", "needs a name behind it, as in 'queue_drops NAME'"),
            ("duration f from 3s", "is of a whole run"),
            ("goodput f since 3s", "'since' is not understood"),
            ("goodput f from", "'from' needs a time behind it"),
            ("goodput f from soon", "soon"),
            ("goodput f last 3s from 1s", "not for beside it"),
        ] {
            let error = text.parse::<Quantity>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
