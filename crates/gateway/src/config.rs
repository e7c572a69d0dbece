//! A gateway's configuration: one TOML file, read once into [`Config`] with every default in place.

use std::path::Path;

pub use ekiden_config::ConfigError;
use ekiden_config::load;
use ekiden_units::Time;

use crate::kernel::{self, Idle, Settings};

mod raw;
mod resolve;
mod show;

pub use raw::sections;

/// A gateway's configuration, resolved and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The network device of the wide area network: data of the groups' senders leaves through it, and ACKs come in.
    pub device: String,
    /// The number of IPv4 streams for which there is room.
    pub ipv4_streams: u32,
    /// The number of IPv6 streams for which there is room.
    pub ipv6_streams: u32,
    /// A stream without packets for this time loses its place.
    pub idle: Time,
    /// The programs outlive the process, and go on without one for this time; zero: they end with it.
    pub restart_within: Time,
    /// The groups, in the order of the file.
    pub groups: Vec<Group>,
}

/// Parallel streams that are kept in balance with each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Which streams are in it, and how they are balanced.
    pub settings: kernel::Group,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// If something in it cannot be used: with the line.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        load(file, resolve::parse)
    }

    /// Whether a file is a gateway's configuration rather than another command's: its device is a name.
    pub fn is_in(file: &Path) -> bool {
        let text = ekiden_files::read_config(file).unwrap_or_default();
        toml::from_str::<toml::Table>(&text).is_ok_and(|table| table.get("device").is_some_and(toml::Value::is_str))
    }

    /// The settings that the kernel gets.
    pub fn settings(&self) -> Settings {
        let groups = self.groups.iter().map(|group| group.settings.clone()).collect();
        Settings { groups, streams4: self.ipv4_streams, streams6: self.ipv6_streams }
    }

    /// When streams lose their places.
    pub fn idle(&self) -> Idle {
        Idle { open: self.idle.into(), ..Idle::default() }
    }
}

#[cfg(test)]
mod tests;
