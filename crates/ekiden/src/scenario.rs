//! `ekiden scenario`: checks and shows scenario files.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use ekiden_scenario::Scenario;

use crate::out;

/// Check a scenario file, or show it with every default written out.
///
/// A scenario describes nodes (hosts, routers, proxies) with their TCP settings, the links, tunnels and gateways between
/// them, and the flows over those. The same file is run by `ekiden lab`, and by `ekiden simulate`, which can do more.
/// docs/scenario.md describes every key.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Say whether the file can be run; if not, where and why not.
    Check {
        /// The scenario file (TOML).
        file: PathBuf,
    },
    /// Print the scenario with all defaults resolved; the output is a scenario file itself.
    Show {
        /// The scenario file (TOML).
        file: PathBuf,
        /// As JSON instead of TOML.
        #[arg(long)]
        json: bool,
    },
}

/// Checks or shows the file.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Check { file } => {
            let scenario = Scenario::load(&file)?;
            out::line(format_args!(
                "{}: '{}' can be run: {} nodes, {} links, {} flows",
                file.display(),
                scenario.name,
                scenario.nodes.len(),
                scenario.links.len(),
                scenario.flows.len()
            ))?;
        }
        Action::Show { file, json } => {
            let scenario = Scenario::load(&file)?;
            match json {
                true => out::line(serde_json::to_string_pretty(&scenario)?)?,
                false => out::text(scenario.to_toml())?,
            }
        }
    }
    Ok(())
}
