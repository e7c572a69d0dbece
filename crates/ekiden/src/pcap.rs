//! Packets of a run as files, of the simulator and of the lab.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ekiden_record::Error;
use ekiden_scenario::Scenario;

use crate::out;
use crate::usage::misused;

/// Packets are some 100 bytes, and there may be millions.
const BUFFER_BYTES: usize = 1 << 16;

/// Which packets to write, and where.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// Write the headers of all packets, at the times of the record, for Wireshark and tcpdump: a file NODE.LINK.pcap in this
    /// directory for each end of a link. A single run only.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Of --pcap, only the files of these nodes.
    #[arg(long, value_name = "NODE,...", value_delimiter = ',', requires = "pcap")]
    pcap_nodes: Vec<String>,
}

impl Args {
    /// Ends the program if packets are wanted of several runs.
    pub fn refuse_sweep(&self) {
        if self.pcap.is_some() {
            misused("--pcap is for a single run");
        }
    }

    /// Ends the program if packets of a node are wanted that is not there.
    pub fn check(&self, scenario: &Scenario) {
        if let Some(unknown) = self.pcap_nodes.iter().find(|node| !scenario.nodes.contains_key(*node)) {
            misused(&format!("--pcap-nodes: the scenario has no node '{unknown}'"));
        }
    }

    /// Makes a file `NODE.LINK.pcap` for each end of a link that is wanted, if any is, so that what cannot be written is noticed
    /// before a run that may take hours. `capture` asks for each file by the names of node and link.
    pub fn capture<C>(&self, capture: impl FnOnce(&mut Open<'_>) -> io::Result<C>) -> Result<Option<C>, Error> {
        let Some(directory) = &self.pcap else { return Ok(None) };
        ekiden_files::make_directories(directory).map_err(|source| unwritable(directory, source))?;
        let mut file = directory.clone();
        let made = capture(&mut |node, link| {
            if !self.pcap_nodes.is_empty() && !self.pcap_nodes.iter().any(|name| name == node) {
                return Ok(None);
            }
            // Names have no dots.
            file = directory.join(format!("{node}.{link}.pcap"));
            Ok(Some(Box::new(BufWriter::with_capacity(BUFFER_BYTES, File::create(&file)?))))
        });
        made.map(Some).map_err(|source| unwritable(&file, source))
    }

    /// Says where the packets are, if that has been asked for, and how many of them are missing.
    pub fn tell(&self, finished: io::Result<u64>, as_json: bool) -> anyhow::Result<()> {
        let Some(directory) = &self.pcap else { return Ok(()) };
        let missing = finished.map_err(|source| unwritable(directory, source))?;
        if !as_json {
            out::line(format_args!("packets: {}", directory.display()))?;
        }
        if missing > 0 {
            out::note(format_args!(
                "ekiden: {}: {missing} packets are missing: they came faster than they could be written; name fewer nodes \
                 (--pcap-nodes) or a faster disk",
                directory.display()
            ));
        }
        Ok(())
    }
}

/// Opens the file of an end of a link, if it is wanted.
type Open<'a> = dyn FnMut(&str, &str) -> io::Result<Option<Box<dyn Write + Send>>> + 'a;

fn unwritable(file: &Path, source: io::Error) -> Error {
    Error::Unwritable { file: file.display().to_string(), source }
}
