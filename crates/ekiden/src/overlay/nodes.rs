//! `ekiden overlay nodes`.

use ekiden_relay::OverlayStatus;
use ekiden_report::Table;
use serde_json::json;

use super::{Asked, failed, mbit};
use crate::out::{self, Width, ago};

/// Show the nodes of the overlay, and what the node that runs here knows of its legs to them.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    asked: Asked,
}

/// Asks, and prints the answer.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let status = args.asked.ask()?;
    match args.asked.json {
        true => {
            let told = json!({ "nodes": status.nodes, "legs": status.legs, "failed": status.failed });
            out::line(serde_json::to_string_pretty(&told)?)
        }
        false => out::text(args.asked.width.fitted(&text(&status, args.asked.width))),
    }
}

fn text(status: &OverlayStatus, width: Width) -> String {
    let columns = ["node", "region", "address", "rtt ms", "Mbit/s to it", "Mbit/s from it", "load", "credit", "asked"];
    let mut table = Table::new(columns).spare(["asked", "region", "load", "credit", "address"]);
    for node in &status.nodes {
        let leg = |from: &str, to: &str| status.legs.iter().find(|leg| leg.from == from && leg.to == to);
        let (there, back) = (leg(&status.node, &node.name), leg(&node.name, &status.node));
        let rate = |leg: Option<&ekiden_relay::LegStatus>| match leg {
            Some(leg) => leg.rate_bit_s.map_or_else(|| at_least(leg.carried_bit_s), mbit),
            None => "-".into(),
        };
        table.row([
            node.name.clone(),
            node.region.clone().unwrap_or_default(),
            node.address.clone().unwrap_or_else(|| "this node".into()),
            there.map_or_else(|| "-".into(), |leg| format!("{:.1}", leg.rtt_ms)),
            rate(there),
            rate(back),
            format!("{:.0} %", node.load * 100.0),
            match node.aside_s {
                Some(seconds) => format!("left alone for {seconds:.0} s"),
                None => format!("{:.0} %", node.credit * 100.0),
            },
            node.heard_s.map_or_else(|| "-".into(), |seconds| format!("{} ago", ago(seconds))),
        ]);
    }
    format!(
        "Nodes that {} knows of: {}. ≥: so much was carried, and the leg did not limit it. -: not known.\n{}\n{}",
        status.node,
        status.nodes.len(),
        table.to_text_within(width.columns()),
        failed(status)
    )
}

/// A rate in bit/s below this is shown as nothing.
const LEAST_TOLD: u64 = 50_000;

fn at_least(bit_s: u64) -> String {
    match bit_s {
        0..LEAST_TOLD => "-".into(),
        bits => format!("≥{}", mbit(bits)),
    }
}
