//! `ekiden scenario`: checks and shows scenario files.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand};
use ekiden_files::line_of;
use ekiden_lab::{check_congestion_controls, check_supported};
use ekiden_scenario::Scenario;

use crate::whose::whose;
use crate::{out, sweep};

/// Check a scenario file, or show it with every default written out.
///
/// A scenario describes nodes (hosts, routers, proxies) with their TCP settings, the links, tunnels and gateways between
/// them, and the flows over those. The same file is run by `ekiden lab`, and by `ekiden simulate`, which can do more.
/// docs/guide/scenario.md describes every key.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Say whether the file can be run, by the lab here and by the simulator; if not, where and why not.
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
            let scenario = Scenario::load(&file).map_err(|error| whose(&file, "scenario", error))?;
            sweep::warn(&scenario);
            check(&file.display().to_string(), &scenario)?;
        }
        Action::Show { file, json } => {
            let scenario = Scenario::load(&file).map_err(|error| whose(&file, "scenario", error))?;
            match json {
                true => out::line(serde_json::to_string_pretty(&scenario)?)?,
                false => out::toml(scenario.to_toml())?,
            }
        }
    }
    Ok(())
}

/// Where in `file` the key stands that `error` is about: `FILE:LINE`, or the file alone.
pub fn place(file: &str, error: &ekiden_lab::Error) -> String {
    let line = || {
        let ekiden_lab::Error::Congestion { node, .. } = error else { return None };
        let text = Scenario::read_text(Path::new(file)).ok()?;
        let key = ["node", node, "tcp", "congestion"];
        // A node that does not say has it from the whole scenario.
        line_of(&text, &key).or_else(|| line_of(&text, &key[2..]))
    };
    line().map_or(file.into(), |line| format!("{file}:{line}"))
}

/// Says who can run it.
fn check(file: &str, scenario: &Scenario) -> anyhow::Result<()> {
    let in_lab = check_supported(scenario).and_then(|()| check_congestion_controls(scenario));
    let can = match (in_lab, ekiden_sim::check_supported(scenario)) {
        (Ok(()), Ok(())) => "can be run".to_owned(),
        (Ok(()), Err(why)) => format!("can be run in the lab, but not be simulated ({why})"),
        (Err(why), Ok(())) => format!("can be simulated, but not be run in the lab ({why})"),
        (Err(lab), Err(simulator)) => {
            let file = place(file, &lab);
            let neither = format!("{file}: can neither be simulated ({simulator}) nor be run in the lab");
            return Err(anyhow::Error::from(lab).context(neither));
        }
    };
    let all = [(scenario.nodes.len(), "node"), (scenario.links.len(), "link"), (scenario.flows.len(), "flow")];
    let all = all.map(|(count, one)| out::amount(count, one)).join(", ");
    out::line(format_args!("{file}: '{}' {can}: {all}", scenario.name))
}
