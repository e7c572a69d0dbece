//! Monitors and measuring servers in `ekiden status`.

use ekiden_measure::server::status as server;
use ekiden_monitor::{now_unix_ms, status as monitor};
use ekiden_report::Table;
use ekiden_service::status::StatusError;
use serde::Serialize;

use super::{answers, process};
use crate::out;

/// What runs.
#[derive(Serialize)]
pub struct Found {
    monitors: Vec<monitor::MonitorStatus>,
    measuring_servers: Vec<server::ServerStatus>,
}

impl Found {
    /// Asks all. Those that do not tell say why in `silent`.
    pub fn ask(silent: &mut Vec<StatusError>) -> Self {
        Self {
            monitors: answers(&monitor::MONITORS.processes(), |pid| monitor::MONITORS.ask(*pid), silent),
            measuring_servers: answers(&server::SERVERS.processes(), |pid| server::SERVERS.ask(*pid), silent),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.monitors.is_empty() && self.measuring_servers.is_empty()
    }

    /// A block for each.
    pub fn blocks(&self, columns: Option<usize>) -> impl Iterator<Item = String> {
        let monitors = self.monitors.iter().map(move |monitor| of_monitor(monitor, columns));
        monitors.chain(self.measuring_servers.iter().map(of_server))
    }
}

fn of_monitor(monitor: &monitor::MonitorStatus, columns: Option<usize>) -> String {
    let does = match (&monitor.measures, monitor.next_s) {
        (Some(target), _) => format!("measures {target}"),
        (None, Some(next)) => format!("the next round in {}", out::ago(next as f64)),
        (None, None) => "begins".into(),
    };
    let waiting = match monitor.waiting {
        0 => String::new(),
        number => format!("{} wait to be written; ", out::amount(number as usize, "measurement")),
    };
    let mut table = Table::new(["target", "server", "Mbit/s", "ago", ""]);
    for target in &monitor.targets {
        let ago = target.started_unix_ms.map(|at| out::ago(now_unix_ms().saturating_sub(at) as f64 / 1e3));
        let rate = target.received_bit_s.map(|rate| format!("{:.1}", rate as f64 / 1e6));
        table.row([
            target.name.clone(),
            target.server.clone(),
            rate.unwrap_or_default(),
            ago.unwrap_or_default(),
            target.failure.clone().unwrap_or_default(),
        ]);
    }
    format!(
        "monitor of {}: {does}; {waiting}{}\n{}\n",
        monitor.history,
        process(&monitor.process),
        table.to_text_within(columns)
    )
}

fn of_server(server: &server::ServerStatus) -> String {
    let measures = match (&server.client, server.client_s) {
        (Some(client), Some(since)) => format!("{client} measures, for {}", out::ago(since as f64)),
        _ => "nobody measures".into(),
    };
    format!(
        "measuring server on {}: {measures}; {} over; {}\n",
        server.address,
        out::amount(server.measured as usize, "measurement"),
        process(&server.process)
    )
}
