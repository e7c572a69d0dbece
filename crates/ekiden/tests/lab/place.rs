//! Where a test of the lab has its files.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ekiden_record::Record;
use libtest_mimic::Failed;
use tempfile::TempDir;

use super::ensure;

/// A directory for one test: its scenario and its labs' own directories.
pub struct Place {
    pub directory: TempDir,
    pub scenario: PathBuf,
}

impl Place {
    pub fn small() -> Result<Self, Failed> {
        Self::new("100Mbit/s", "1ms", "100KB", "", "bytes = \"1B\"")
    }

    /// A client and a server on one link, and one flow.
    pub fn new(rate: &str, delay: &str, queue: &str, tcp: &str, amount: &str) -> Result<Self, Failed> {
        Self::with_loss(rate, delay, queue, tcp, amount, "0")
    }

    pub fn with_loss(
        rate: &str,
        delay: &str,
        queue: &str,
        tcp: &str,
        amount: &str,
        loss: &str,
    ) -> Result<Self, Failed> {
        Self::from(&format!(
            "name = \"test\"\n[node.client]\nkind = \"host\"\n{tcp}\n[node.server]\nkind = \"host\"\n{tcp}\n\
             [link.line]\nends = [\"client\", \"server\"]\nrate = \"{rate}\"\ndelay = \"{delay}\"\nqueue = \"{queue}\"\n\
             loss = \"{loss}\"\n[flow.bulk]\nfrom = \"client\"\nto = \"server\"\n{amount}\n"
        ))
    }

    pub fn from(text: &str) -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        let scenario = directory.path().join("scenario.toml");
        fs::write(&scenario, text)?;
        Ok(Self { directory, scenario })
    }

    /// Runs the flows and returns the record.
    pub fn run(&self) -> Result<Record, Failed> {
        let file = self.record_file();
        let output = self.lab(&["run", "--record"]).arg(&file).output()?;
        ensure(output.status.success(), || String::from_utf8_lossy(&output.stderr).into())?;
        Ok(Record::read(&file)?)
    }

    pub fn record_file(&self) -> PathBuf {
        self.directory.path().join("record.json")
    }

    /// `ekiden lab SUBCOMMAND FILE OPTIONS`.
    pub fn lab(&self, arguments: &[&str]) -> Command {
        let mut command = self.ekiden();
        command.args(["lab", arguments[0]]).arg(&self.scenario).args(&arguments[1..]);
        command
    }

    /// `ekiden lab run FILE OPTIONS DIRECTORY`.
    pub fn sweep(&self, options: &[&str]) -> Command {
        let mut command = self.lab(&[&["run"], options].concat());
        command.arg(self.records_directory());
        command
    }

    pub fn records_directory(&self) -> PathBuf {
        self.directory.path().join("records")
    }

    /// The names of all files among the records, sorted, without what says which sweep it is, and without whole series.
    pub fn records(&self) -> Result<Vec<String>, Failed> {
        let entries = fs::read_dir(self.records_directory()).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name != "sweep.toml" && !name.ends_with(".parquet"));
        names.sort();
        Ok(names)
    }

    pub fn shell(&self, program: &[&str]) -> Command {
        let mut command = self.lab(&["shell", "client", "--"]);
        command.args(program);
        command
    }

    pub fn ekiden(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        command.env("TMPDIR", self.directory.path());
        command
    }

    pub fn run_directories(&self) -> Result<Vec<PathBuf>, Failed> {
        let entries = fs::read_dir(self.directory.path())?.flatten().map(|entry| entry.path());
        Ok(entries.filter(|path| path.join("lock").exists()).collect())
    }
}
