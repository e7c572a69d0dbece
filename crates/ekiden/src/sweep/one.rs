//! One run of a sweep: simulated here, or in a lab that is a process of its own.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Command;

use ekiden_record::{SeriesWriter, remove_partial};
use ekiden_scenario::Scenario;
use ekiden_sim::Options;
use ekiden_sweep::{Run, RunOutcome};

use super::write;
use crate::children::Children;

/// Prefix of the argument that a sweep gives to its children: they end when it does.
pub const ENDS_WITH: &str = "--ends-with=";

/// Simulates a run, which leaves its record at `place`.
pub fn simulated(scenario: &Scenario, options: &Options, samples: u64, place: &Path) -> anyhow::Result<RunOutcome> {
    let mut series = SeriesWriter::new(place, samples);
    let record = ekiden_sim::simulate(scenario, options, &mut series, &mut |_| {})?;
    write(record, series, place)?;
    Ok(RunOutcome::Finished)
}

/// Runs of scenario files in labs.
pub struct Labs<'a> {
    /// This program.
    pub program: &'a Path,
    /// What ends the labs.
    pub children: &'a Children,
    /// How many samples a run keeps.
    pub samples: u64,
}

impl Labs<'_> {
    /// Does a run of the scenario in `file`.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn run(&self, run: &Run, file: &Path) -> io::Result<RunOutcome> {
        let Some(ended) = self.children.run(&mut self.command(run, file))? else {
            // Whatever the run was about to write; a whole record has another name.
            remove_partial(&run.record);
            return Ok(RunOutcome::Stopped);
        };
        Ok(match ended.code {
            0 => RunOutcome::Finished,
            code => RunOutcome::Failed { code, reason: ended.said },
        })
    }

    /// The number of the signal that has ended the labs, if one has.
    pub fn signal(&self) -> Option<i32> {
        self.children.stopped_by().map(|signal| signal as i32)
    }

    fn command(&self, run: &Run, file: &Path) -> Command {
        let mut command = Command::new(self.program);
        command.args(["lab", "run"]).arg(format!("{ENDS_WITH}{}", std::process::id()));
        // The sweep has looked at what is there.
        command.arg("--force").args(run.settings.settings().iter().map(|setting| format!("--set={setting}")));
        let mut record = OsString::from("--record=");
        record.push(&run.record);
        command.arg(record).arg(format!("--samples={}", self.samples)).arg("--").arg(file);
        command
    }
}
