//! Packets of a simulation as files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use ekiden_record::Error;
use ekiden_scenario::Scenario;
use ekiden_sim::Capture;

/// Packets are some 100 bytes, and there may be millions.
const BUFFER_BYTES: usize = 1 << 16;

/// Makes a file `NODE.LINK.pcap` in `directory` for each end of a link at one of `nodes`, or at any if none is named.
pub fn capture(scenario: &Scenario, directory: &Path, nodes: &[String]) -> Result<Capture, Error> {
    let unwritable = |file: &Path, source| Error::Unwritable { file: file.display().to_string(), source };
    fs::create_dir_all(directory).map_err(|source| unwritable(directory, source))?;
    let mut file = directory.to_owned();
    let open = |node: &str, link: &str| -> io::Result<Option<Box<dyn Write + Send>>> {
        if !nodes.is_empty() && !nodes.iter().any(|name| name == node) {
            return Ok(None);
        }
        // Names have no dots.
        file = directory.join(format!("{node}.{link}.pcap"));
        Ok(Some(Box::new(BufWriter::with_capacity(BUFFER_BYTES, File::create(&file)?))))
    };
    let made = Capture::new(scenario, open);
    made.map_err(|source| unwritable(&file, source))
}

/// Completes the files.
pub fn finish(capture: Capture, directory: &Path) -> Result<(), Error> {
    capture.finish().map_err(|source| Error::Unwritable { file: directory.display().to_string(), source })
}
