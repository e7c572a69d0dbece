//! `ekiden demo`: a long distance built on this machine, real downloads over it directly and through ekiden.
//!
//! [`run`] carries out the cases — each in a process, and a network, of its own, which is what
//! [`transfer`] is — and writes a page, its pictures and a JSON document.

#![deny(clippy::print_stderr)]

mod acts;
mod cases;
mod orchestrate;
mod payload;
mod present;
mod protocol;
mod transfer;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ekiden_files::TargetError;
use ekiden_report::wrapped;
use ekiden_scenario::Scenario;

pub use orchestrate::{Failed, Mismatch};
pub use transfer::run as transfer;

/// A program that the demo runs is not installed.
#[derive(Debug, thiserror::Error)]
#[error("'{program}' is not installed; `make setup` installs what the demo needs")]
pub struct Missing {
    program: &'static str,
}

/// What a tunnel's device is made by.
const TUN: &str = "/dev/net/tun";

/// What the demo is to do.
pub struct Options {
    /// JSON instead of tables.
    pub json: bool,
    /// Where the page, its pictures, the JSON document and the scenarios go.
    pub folder: PathBuf,
    /// How many columns the tables and sentences may have; `None` without a limit.
    pub columns: Option<usize>,
}

/// What a demo gives.
#[derive(Debug)]
pub struct Shown {
    /// What is to be printed.
    pub text: String,
    /// Why the page, or something that belongs to it, could not be written.
    pub unwritten: Option<anyhow::Error>,
}

/// The page, in the folder.
const INDEX: &str = "index.html";

/// Runs all acts, and writes what they give.
///
/// # Errors
/// If the machine lacks something ([`Missing`], [`Failed`]), or if a file arrived changed ([`Mismatch`]).
pub fn run(options: &Options) -> anyhow::Result<Shown> {
    for program in ["curl", "python3", "ss"] {
        find(program)?;
    }
    // Held for all transfers, which find them in the kernel.
    let (_held, without) = own_controls(&acts::osaka::own_controls())?;
    let (_held_too, without_far) = own_controls(&[acts::lossy::network()])?;
    if let (true, Some(reason)) = (options.json, &without) {
        // Whether or not anyone reads it.
        let _ = writeln!(std::io::stderr(), "HSTCP and gentle HSTCP are left out: {reason}");
    }
    let mut cases = acts::cases(without.is_none());
    if let Err(reason) = File::options().read(true).write(true).open(TUN) {
        let _ = writeln!(std::io::stderr(), "The tunnels are left out: {TUN}: {reason}");
        cases.retain(|case| case.act != cases::Act::Tunnel);
    }
    if let Some(reason) = without_far {
        let _ = writeln!(std::io::stderr(), "The path that loses packets is left out: {reason}");
        cases.retain(|case| case.act != cases::Act::Lossy);
    }
    let transfers = orchestrate::run(&cases)?;
    let outcomes = present::outcomes(&cases, &transfers);
    let page = acts::page(&outcomes, without.as_deref());
    let json = serde_json::to_string_pretty(&outcomes)?;
    let (written, unwritten) = match write(&options.folder, &page, &json, &cases) {
        Ok(page) => (format!("The page with pictures: {}\n", page.display()), None),
        Err(error) => (String::new(), Some(error)),
    };
    if options.json {
        return Ok(Shown { text: json + "\n", unwritten });
    }
    let fitted = |text: &str| options.columns.map_or_else(|| text.to_owned(), |columns| wrapped(text, columns));
    let section = |section| present::text(section, options.columns) + "\n";
    let sections: String = page.sections.iter().map(section).collect();
    let ends = format!(
        "{}\n\n{}\nEvery file arrived whole (SHA-256). {written}Your own path: `ekiden help measure` and `ekiden help plan`.\n",
        page.message.join("\n"),
        page.sources.join("\n"),
    );
    Ok(Shown { text: sections + &fitted(&ends), unwritten })
}

/// Brings ekiden's own congestion controls of these networks into the kernel, or says why they are not available.
fn own_controls(scenarios: &[Scenario]) -> anyhow::Result<(Vec<impl Sized + use<>>, Option<String>)> {
    let mut held = Vec::new();
    for scenario in scenarios {
        match ekiden_lab::register_congestion(scenario) {
            Ok(more) => held.extend(more),
            Err(ekiden_lab::Error::OwnCongestion { source, .. }) => return Ok((held, Some(source.to_string()))),
            Err(error) => return Err(error.into()),
        }
    }
    Ok((held, None))
}

fn find(program: &'static str) -> Result<(), Missing> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        true => Ok(()),
        false => Err(Missing { program }),
    }
}

/// Writes everything that can be written, and returns the page's path, or the first error.
fn write(folder: &Path, page: &ekiden_report::Page, json: &str, cases: &[cases::Case]) -> anyhow::Result<PathBuf> {
    let scenario = |case: &cases::Case| (format!("scenarios/{}.toml", case.scenario.name), case.scenario.to_toml());
    let charts = page.sections.iter().flat_map(|section| &section.charts).enumerate();
    let mut all: Vec<_> = cases.iter().map(scenario).collect();
    all.extend(charts.map(|(number, chart)| (format!("figure-{}.svg", number + 1), chart.clone())));
    all.extend([("demo.json".into(), json.to_owned()), (INDEX.into(), page.to_html())]);
    let written = all.iter().map(|(name, text)| {
        let file = folder.join(name);
        ekiden_files::write(&file, text.as_bytes())
            .map_err(TargetError::Failed)
            .with_context(|| file.display().to_string())
    });
    written.reduce(Result::and).unwrap_or(Ok(()))?;
    Ok(fs::canonicalize(folder.join(INDEX))?)
}
