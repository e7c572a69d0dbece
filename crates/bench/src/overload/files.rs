//! What limits are for: files that are asked for twice as fast as two nodes can bring them, with the number of connections
//! limited at the first node, so that the others wait in the kernel's queue, and without.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};

use crate::Args;
use crate::load::Path;
use crate::load::files::{self, Begin, FILE, Transfers};
use crate::network::Network;
use crate::relay::{self, Relay, Running};
use crate::stats::{median, percentile};

/// TLS, so that the nodes' processor is what there is too little of.
pub const RELAY: Relay = Relay::ChainTls;

/// Connections that the first node accepts at a time, if it is limited.
const LIMIT: u64 = 16;
/// Transfers at a time when the most is found.
const AT_A_TIME: u64 = 16;
/// What is asked for, in parts of the most.
const FACTOR: f64 = 2.0;
const OFFERING: Duration = Duration::from_secs(4);
/// The mean transfer time with the limit, in parts of the one without.
const AIM: f64 = 1.0;

/// What came out of all rounds.
#[derive(Default)]
pub struct Files {
    most: Vec<f64>,
    /// Without the limit, and with it.
    transfers: [Vec<Transfers>; 2],
}

impl Files {
    /// One round of both; `start` starts the nodes where they are to run.
    pub fn round(
        &mut self,
        path: Path,
        network: &Network,
        args: &Args,
        keep: &dyn Fn(bool) -> Result<()>,
    ) -> Result<()> {
        let file = relay::entry_file(RELAY).context("the relay has no file")?;
        let text = fs::read_to_string(&file)?;
        let limited = text.replace("[limits]\n", &format!("[limits]\nconnections = {LIMIT}\n"));
        let mut most = None;
        for (transfers, text) in self.transfers.iter_mut().zip([&text, &limited]) {
            fs::write(&file, text)?;
            keep(true)?;
            let running = Running::start(RELAY, network, args);
            keep(false)?;
            let mut running = running?;
            if most.is_none() {
                let found = running.explain(files::run(path, Begin::AtATime(AT_A_TIME), OFFERING))?;
                most = Some(found.rate);
                self.most.push(found.rate);
            }
            let begin = Begin::PerSecond(FACTOR * most.unwrap_or_default());
            transfers.push(running.explain(files::run(path, begin, OFFERING))?);
            running.check()?;
        }
        fs::write(&file, text)?;
        Ok(())
    }

    /// Files that neither arrived nor were refused.
    pub fn lost(&self) -> u64 {
        self.transfers.iter().flatten().map(|transfers| transfers.lost).sum()
    }

    /// The mean transfer time with the limit, in parts of the one without: the median of rounds.
    pub fn ratio(&self) -> f64 {
        let [without, with] = &self.transfers;
        let ratios: Vec<f64> = with.iter().zip(without).map(|(with, without)| mean(with) / mean(without)).collect();
        median(&ratios).unwrap_or_default()
    }

    /// Whether the limit does no harm.
    pub fn is_reached(&self) -> bool {
        self.ratio() <= AIM
    }

    /// The table, and its last line.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "files at twice the most",
            "per second",
            "arrived/s",
            "mean s",
            "p50",
            "p99",
            "refused",
            "lost",
        ]);
        for (name, rounds) in ["without a limit", &format!("limits.connections = {LIMIT}")].iter().zip(&self.transfers)
        {
            let middle = |value: &dyn Fn(&Transfers) -> f64| {
                median(&rounds.iter().map(value).collect::<Vec<_>>()).unwrap_or_default()
            };
            let took = |percent| middle(&|transfers| percentile(&transfers.took, percent).unwrap_or_default());
            table.add_row([
                (*name).to_string(),
                format!("{:.0}", middle(&|transfers| transfers.begun as f64 / OFFERING.as_secs_f64())),
                format!("{:.0}", middle(&|transfers| transfers.rate)),
                format!("{:.2}", middle(&mean)),
                format!("{:.2}", took(50.0)),
                format!("{:.2}", took(99.0)),
                rounds.iter().map(|transfers| transfers.refused).sum::<u64>().to_string(),
                rounds.iter().map(|transfers| transfers.lost).sum::<u64>().to_string(),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "{table}\nFiles of {} MiB over two nodes with TLS, which bring {:.0} per second with {AT_A_TIME} at a time.\n\
             With the limit the mean transfer time is {:.2} of what it is without (aim: at most {AIM:.1}).",
            FILE >> 20,
            median(&self.most).unwrap_or_default(),
            self.ratio()
        )
    }
}

/// Seconds that a file takes.
fn mean(transfers: &Transfers) -> f64 {
    transfers.took.iter().sum::<f64>() / transfers.took.len().max(1) as f64
}
