//! The description of a sweep: a file beside the records from which the sweep can be planned again.

use std::path::{Path, PathBuf};

use ekiden_files::{FileKind, read};
use ekiden_record::Record;
use ekiden_units::Time;
use serde::{Deserialize, Serialize};

use crate::FORMAT;
use crate::error::Error;

/// The name of the file; not `.json`, as the records' are.
const NAME: &str = "sweep.toml";

/// A sweep: a scenario and the values of it that vary. Described in docs/guide/record.md.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    format: u32,
    /// What makes its records: `lab` or `simulate`.
    pub producer: String,
    /// Each `--set`, as it was given.
    pub set: Vec<String>,
    /// How often each combination is run.
    pub repeat: u32,
    /// How often a simulation notes the state of senders and queues; absent for the lab.
    pub resolution: Option<Time>,
    /// The text of the scenario file.
    pub scenario: String,
}

impl Index {
    /// The sweep of a scenario file's text.
    pub fn new(producer: &str, set: &[String], repeat: u32, resolution: Option<Time>, scenario: String) -> Self {
        Self { format: FORMAT, producer: producer.into(), set: set.into(), repeat, resolution, scenario }
    }

    /// Whether a record was made by the same means: producer and resolution.
    pub fn has(&self, record: &Record) -> bool {
        let resolution_us = self.resolution.map(|resolution| resolution.0 / 1000);
        record.manifest.producer == self.producer && record.manifest.resolution_us == resolution_us
    }

    /// The sweep that the records in `directory` are of.
    ///
    /// # Errors
    /// If its description is missing, malformed, or written by a newer ekiden.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        /// The format is read first: a newer one may differ in everything else.
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let file = Self::place(directory);
        let text = match read(&file, FileKind::Sweep) {
            Ok(text) => text,
            Err(source) => return Err(Error::Unreadable { file, directory: directory.into(), source }),
        };
        let no_sweep = |error: toml::de::Error| Error::NoSweep { file: file.clone(), reason: error.message().into() };
        match toml::from_str::<Version>(&text) {
            Ok(Version { format: found }) if found > FORMAT => Err(Error::TooNew { file, found }),
            Ok(_) => toml::from_str(&text).map_err(no_sweep),
            Err(error) => Err(no_sweep(error)),
        }
    }

    /// Writes the description into `directory`, atomically. Several shards may do so at the same time.
    ///
    /// # Errors
    /// [`Error::Unwritable`].
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        let file = Self::place(directory);
        let text = toml::to_string(self).expect("texts and numbers");
        if read(&file, FileKind::Sweep).is_ok_and(|there| there == text) {
            return Ok(());
        }
        ekiden_files::write(&file, text.as_bytes()).map_err(|source| Error::Unwritable { file, source })
    }

    /// The path of the description.
    pub fn place(directory: &Path) -> PathBuf {
        directory.join(NAME)
    }
}

#[cfg(test)]
mod tests {
    use super::{Index, Time};

    #[test]
    fn what_is_read_is_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        for scenario in ["", "name = \"x\"\n# '''\n\"\"\"\n", "a = 'b'\r\n\tc = \"\\n\"\n", "\n\nπ\u{7f}\u{0}"] {
            let set = ["link.a.queue=1 packets,'2 packets'".to_owned()];
            let index = Index::new("simulate", &set, 3, Some(Time::ms(5)), scenario.into());
            index.write(directory.path()).unwrap();
            assert_eq!(Index::read(directory.path()).unwrap(), index);
        }
    }

    #[test]
    fn what_is_no_description_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let missing = Index::read(directory.path()).unwrap_err().to_string();
        assert!(missing.contains("sweep.toml: cannot be read: No such file"), "{missing}");
        assert!(missing.contains("so it is not known which sweep"), "{missing}");
        for (text, part) in [
            ("format = 9\nall = 'different'", "format 9, but this ekiden reads up to 1"),
            ("", "not the description of a sweep"),
            ("format = 1\nset = 3", "not the description of a sweep"),
        ] {
            std::fs::write(Index::place(directory.path()), text).unwrap();
            let error = Index::read(directory.path()).unwrap_err().to_string();
            assert!(error.contains(part) && error.lines().count() == 1, "{error}");
        }
    }
}
