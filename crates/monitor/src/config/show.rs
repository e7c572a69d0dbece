//! The configuration in force, as a file: what `--show-config` prints.

use std::fmt;

use ekiden_config::{key, path, text};

use super::{Config, Offset, Server, Target, long_time};

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "interval = \"{}\"\noffset = \"{}\"", long_time(self.interval), self.offset)?;
        writeln!(f, "history = {}", path(&self.history))?;
        self.keep.map_or(Ok(()), |keep| writeln!(f, "keep = \"{}\"", long_time(keep)))?;
        self.prometheus.as_ref().map_or(Ok(()), |file| writeln!(f, "prometheus = {}", path(file)))?;
        self.key_file.as_ref().map_or(Ok(()), |file| writeln!(f, "key_file = {}", path(file)))?;
        self.targets.iter().try_for_each(|target| target.fmt(f))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::Fixed(time) => f.write_str(&long_time(*time)),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n[target.{}]", key(&self.name))?;
        match &self.server {
            Server::Ekiden { address, fingerprint } => {
                writeln!(f, "server = {}\nfingerprint = \"{fingerprint}\"", text(address))?;
            }
            Server::Iperf3(address) => writeln!(f, "iperf3 = {}", text(address))?,
        }
        self.via.as_ref().map_or(Ok(()), |via| writeln!(f, "via = {}", text(via)))?;
        let Self { direction, bytes, duration, streams, .. } = self;
        let direction = direction.word();
        writeln!(
            f,
            "direction = \"{direction}\"\nbytes = \"{bytes}\"\nduration = \"{}\"\nstreams = {streams}",
            long_time(*duration)
        )
    }
}
