//! `ekiden demo`: shows what a relay makes of a long distance.

use std::path::PathBuf;

use anyhow::Context;
use ekiden_demo::Options;
use ekiden_files::check_directory;

use crate::out::{self, Width};

/// Show on this machine what a relay makes of a long distance.
///
/// Builds long-distance networks from namespaces and emulated links, and fetches real files over them with curl, directly
/// and through ekiden: the Kagoshima project's 50 ms path in one to four legs, a proxy at different positions on it,
/// the path of 70 Mbit/s of the Osaka thesis (2005) with proxies next to the hosts and Reno, HSTCP or gentle HSTCP between
/// them, and the Kagoshima project's goal: 50 Mbit/s at 50 ms with a node beside the user and one in the middle of the
/// path. Then a ping beside a download over 10 Mbit/s: direct, and through `ekiden tunnel` with drop tail and with its own
/// queue; and 200 ms with one packet in a hundred lost, direct and between two nodes. Prints tables beside models and published values, and writes a page with pictures. docs/references.md names the
/// papers. Takes two to four minutes. Needs curl, python3 and ss, and root or unprivileged user namespaces; HSTCP, gentle
/// HSTCP and ekiden_far need root, and are left out without it; so are the tunnels without /dev/net/tun.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Where the page, the pictures, the JSON document and the scenario files go.
    #[arg(long, value_name = "DIR", default_value = "ekiden-demo")]
    output: PathBuf,
    #[command(flatten)]
    width: Width,
    /// Carry out one transfer, described on standard input; the demo starts itself with this.
    #[arg(long, hide = true)]
    transfer: bool,
}

/// Runs the demo.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.transfer {
        true => ekiden_demo::transfer(),
        // Noticed before two minutes of work.
        false => {
            check_directory(&args.output).with_context(|| args.output.display().to_string())?;
            let columns = args.width.columns().map(|columns| columns.min(out::WIDEST));
            let options = Options { json: args.json, folder: args.output, columns };
            let shown = ekiden_demo::run(&options)?;
            // Before an error, which would hide minutes of work.
            out::text(shown.text)?;
            shown.unwritten.map_or(Ok(()), Err)
        }
    }
}
