//! `ekiden proxy`: a node of the overlay.

/// Run a node of the overlay.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the node until it is told to stop.
pub fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
