//! Measuring servers of examples.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running `ekiden measure server`.
pub struct MeasuringServer {
    process: Child,
    /// Where it listens on loopback.
    pub port: u16,
}

impl MeasuringServer {
    /// Starts what a line of the documentation says, in `folder`.
    pub fn start(line: &str, folder: &Path) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.starts_with(&["ekiden", "measure", "server"]), "{line}");
        let mut server = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        server.args(&words[1..]).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = server.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let port = said.trim().strip_prefix("listening on 127.0.0.1:").and_then(|port| port.parse().ok());
        let Some(port) = port else {
            let _ = process.kill();
            panic!("{line}: {said}");
        };
        Self { process, port }
    }
}

impl Drop for MeasuringServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
