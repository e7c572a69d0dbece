//! `ekiden tunnel status`.

use ekiden_report::Table;
use ekiden_tunnel::RATE_WINDOW;
use ekiden_tunnel::status::{ConnectionStatus, PeerStatus, TunnelStatus, ask};
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
    /// Show the other end's address, the age, what was carried in all and marks too: more than 80 columns.
    #[arg(long, conflicts_with = "json")]
    wide: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Asks, and prints the answer.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let status = ask(&args.device)?;
    match args.json {
        true => out::line(serde_json::to_string_pretty(&status)?),
        false => out::text(text(&status, args.wide, ekiden_report::columns())),
    }
}

/// A column: its title, whether it is shown without --wide, and its cell.
type Column = (&'static str, bool, fn(&ConnectionStatus) -> String);

const COLUMNS: [Column; 11] = [
    ("with", false, |one| there(one, one.remote.clone().unwrap_or_default())),
    ("for s", false, |one| there(one, one.connected_s.unwrap_or_default().to_string())),
    ("rtt ms", true, |one| there(one, format!("{:.1}", f64::from(one.rtt_us) / 1e3))),
    ("Mbit/s out", true, |one| format!("{:.1}", BitRate(one.sent_bit_s).as_mbit())),
    ("Mbit/s in", true, |one| format!("{:.1}", BitRate(one.received_bit_s).as_mbit())),
    ("sent MB", false, |one| format!("{:.1}", one.bytes_sent as f64 / 1e6)),
    ("received MB", false, |one| format!("{:.1}", one.bytes_received as f64 / 1e6)),
    ("waiting KB", true, |one| (one.queue_bytes / 1_000).to_string()),
    ("dropped", true, |one| one.dropped.to_string()),
    ("marked", false, |one| one.marked.to_string()),
    ("lost", true, |one| one.lost.to_string()),
];

fn there(one: &ConnectionStatus, value: String) -> String {
    if one.is_up { value } else { "-".into() }
}

/// With all columns, or with the most important ones, within `within` columns of the terminal.
fn text(status: &TunnelStatus, is_wide: bool, within: Option<usize>) -> String {
    let columns = || COLUMNS.iter().filter(|(_, always, _)| is_wide || *always);
    let mut table = Table::new(std::iter::once("connection").chain(columns().map(|(title, ..)| *title)));
    for peer in &status.peers {
        for one in &peer.connections {
            let cells = columns().map(|(.., cell)| cell(one));
            table.row(std::iter::once(format!("{} {}", peer.name, one.number)).chain(cells));
        }
    }
    let TunnelStatus { device, name, unroutable, foreign, device_refused, device_dropped, .. } = status;
    let foreign_of = |peer: &PeerStatus| {
        let last = peer.foreign_last.as_ref()?;
        Some(format!("{}: {} of these, the last from {last}\n", peer.name, peer.foreign))
    };
    let is_of = |peer: &&PeerStatus| !peer.build.is_empty();
    let builds = status.peers.iter().filter(is_of).map(|peer| format!("{} is ekiden {}\n", peer.name, peer.build));
    let of_peers: String = status.peers.iter().filter_map(foreign_of).chain(builds).collect();
    let more = if is_wide { "" } else { "; --wide shows more columns" };
    format!(
        "{name}, device {device}\n{}\nMbit/s of the last {} s{more}\n\
         {unroutable} packets had no peer, {foreign} came from addresses that are not allowed,\n\
         {device_refused} were not taken by the device, {} were dropped by it\n{of_peers}",
        table.to_text_within(within.filter(|_| !is_wide)),
        RATE_WINDOW.as_secs(),
        device_dropped.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_a_terminal_of_80_columns_and_is_whole_with_wide() {
        let one = ConnectionStatus {
            is_up: true,
            remote: Some("[2001:db8:1234:5678::1]:7100".into()),
            rtt_us: 9_999_900,
            sent_bit_s: 27_801_000_000,
            received_bit_s: 27_801_000_000,
            queue_bytes: 10_000_000,
            dropped: 1_000_000,
            lost: 1_000_000,
            ..ConnectionStatus::default()
        };
        let peers = vec![PeerStatus { name: "island-node".into(), connections: vec![one], ..PeerStatus::default() }];
        let status = TunnelStatus { peers, unroutable: 1_000_000, foreign: 1_000_000, ..TunnelStatus::default() };
        let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
        let narrow = text(&status, false, Some(80));
        assert!(narrow.contains("27801.0") && !narrow.contains("2001:db8"), "{narrow}");
        assert!(longest(&narrow) <= 80, "{narrow}");
        let wide = text(&status, true, Some(80));
        assert!(COLUMNS.iter().all(|(title, ..)| wide.contains(title)) && wide.contains("2001:db8"), "{wide}");
    }
}
