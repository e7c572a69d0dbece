//! `ekiden tunnel status`.

use ekiden_report::Table;
use ekiden_tunnel::status::{ConnectionStatus, Status, ask};
use ekiden_units::BitRate;

use crate::out;

/// Show what a running tunnel does: its connections, what waits for each, and what was lost.
///
/// Asks the tunnel that has the device DEVICE in this network namespace. It answers root and its own user. With --json, every
/// count is there, under names that stay.
#[derive(clap::Args)]
pub struct Args {
    /// The tunnel's network device.
    #[arg(value_name = "DEVICE", default_value = "ekiden0")]
    device: String,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Asks, and prints the answer.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let status = ask(&args.device)?;
    match args.json {
        true => out::line(serde_json::to_string_pretty(&status)?),
        false => out::text(text(&status)),
    }
}

fn text(status: &Status) -> String {
    let columns = [
        "connection",
        "with",
        "for s",
        "rtt ms",
        "Mbit/s",
        "sent MB",
        "received MB",
        "waiting KB",
        "dropped",
        "marked",
        "lost",
    ];
    let mut table = Table::new(columns);
    for peer in &status.peers {
        for one in &peer.connections {
            table.row(row(&peer.name, one));
        }
    }
    let Status { device, name, unroutable, foreign, device_refused, device_dropped, .. } = status;
    format!(
        "{name}, device {device}\n{}\n{unroutable} packets had no peer, {foreign} came from addresses that are not allowed, \
         {device_refused} were not taken by the device, {} were dropped by it\n",
        table.to_text(),
        device_dropped.unwrap_or_default()
    )
}

fn row(peer: &str, one: &ConnectionStatus) -> [String; 11] {
    let there = |value: String| if one.is_up { value } else { "-".into() };
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    [
        format!("{peer} {}", one.number),
        there(one.remote.clone().unwrap_or_default()),
        there(one.connected_s.unwrap_or_default().to_string()),
        there(format!("{:.1}", f64::from(one.rtt_us) / 1e3)),
        there(format!("{:.1}", BitRate(one.delivery_bit_s).as_mbit())),
        mb(one.bytes_sent),
        mb(one.bytes_received),
        (one.queue_bytes / 1_000).to_string(),
        one.dropped.to_string(),
        one.marked.to_string(),
        one.lost.to_string(),
    ]
}
