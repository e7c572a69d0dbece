//! The configuration in force, as a file: what `--show-config` prints.

use std::fmt;
use std::ops::RangeInclusive;

use ekiden_config::{key, list, text};
use ekiden_units::Time;
use ekiden_window_balance::{BalanceSettings, ObservedFlow, Policy};

use super::{Config, Group};

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "device = {}", text(&self.device))?;
        writeln!(f, "ipv4_streams = {}\nipv6_streams = {}", self.ipv4_streams, self.ipv6_streams)?;
        writeln!(f, "idle = \"{}\"\nrestart_within = \"{}\"", self.idle, self.restart_within)?;
        self.groups.iter().try_for_each(|group| group.fmt(f))
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = &self.settings;
        writeln!(f, "\n[group.{}]", key(&self.name))?;
        writeln!(f, "sources = {}\ndestinations = {}", list(&group.sources), list(&group.destinations))?;
        for (key, range) in [("source_ports", &group.source_ports), ("destination_ports", &group.destination_ports)] {
            ports(f, key, range)?;
        }
        balance(f, &group.balance)?;
        group.assumed_scale.map_or(Ok(()), |scale| writeln!(f, "assumed_scale = {scale}"))
    }
}

fn ports(f: &mut fmt::Formatter<'_>, key: &str, range: &RangeInclusive<u16>) -> fmt::Result {
    match (range.start(), range.end()) {
        // All: there is no port 0.
        (0, _) => Ok(()),
        (first, last) => writeln!(f, "{key} = \"{first}-{last}\""),
    }
}

fn balance(f: &mut fmt::Formatter<'_>, balance: &BalanceSettings) -> fmt::Result {
    let BalanceSettings { policy, repeats, part, hold, shortest_rtt, observes, .. } = balance;
    let name = if *policy == Policy::Paper { "paper" } else { "delivered" };
    writeln!(f, "policy = \"{name}\"\nrepeats = {repeats}\nhold = \"{}\"", Time::from(*hold))?;
    writeln!(f, "shortest_rtt = \"{}\"", Time::from(*shortest_rtt))?;
    if *policy == Policy::Paper {
        let observes = if *observes == ObservedFlow::Sent { "sent" } else { "acknowledged" };
        writeln!(f, "part = \"{}%\"\nobserves = \"{observes}\"", part * 100.0)?;
    }
    Ok(())
}
