//! `ekiden status`.

#[cfg(feature = "measure")]
mod measuring;

use ekiden_gateway::status as gateway;
use ekiden_relay::status::{LimitStatus, Open, Running, ask, processes};
use ekiden_report::Table;
use ekiden_service::process::Process;
use ekiden_service::status::StatusError;
use ekiden_service::status_socket::names;
use ekiden_tunnel::status as tunnel;
use ekiden_units::Bytes;
use serde::Serialize;

use crate::out::{self, Width};

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLES: &str = "Examples:
    # all that runs here
    ekiden status
    # one node, for other programs
    ekiden status island --json";

/// Show what of ekiden runs here: nodes with their listeners, streams and limits, tunnels, gateways, monitors and measuring servers.
///
/// Asks the programs of this network namespace. They answer root and their own user. What runs as another user is asked as that one, also by
/// root: `runuser -u USER -- ekiden status`. `ekiden overlay status`, `ekiden tunnel status` and
/// `ekiden gateway status` say more of an overlay, a tunnel and a gateway.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Only the node of this name, or of this process.
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    width: Width,
}

/// What runs.
#[derive(Serialize)]
struct Found {
    nodes: Vec<Running>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnels: Option<Vec<tunnel::TunnelStatus>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateways: Option<Vec<gateway::GatewayStatus>>,
    #[cfg(feature = "measure")]
    #[serde(flatten)]
    measuring: Option<measuring::Found>,
}

impl Found {
    /// Only these nodes.
    fn nodes(nodes: Vec<Running>) -> Self {
        Self {
            nodes,
            tunnels: None,
            gateways: None,
            #[cfg(feature = "measure")]
            measuring: None,
        }
    }

    fn is_empty(&self) -> bool {
        let is_empty = self.nodes.is_empty()
            && self.tunnels.as_ref().is_none_or(Vec::is_empty)
            && self.gateways.as_ref().is_none_or(Vec::is_empty);
        #[cfg(feature = "measure")]
        let is_empty = is_empty && self.measuring.as_ref().is_none_or(measuring::Found::is_empty);
        is_empty
    }
}

/// Asks, and prints the answers.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (found, mut silent) = find(args.node.as_deref())?;
    match args.json {
        true => out::line(serde_json::to_string_pretty(&found)?),
        false => out::text(args.width.fitted(&text(&found, args.width.columns()))),
    }?;
    let last = silent.pop();
    for error in silent {
        out::note(format_args!("ekiden: {error}"));
    }
    last.map_or(Ok(()), |error| Err(error.into()))
}

/// What runs, and why some programs have not told.
fn find(node: Option<&str>) -> Result<(Found, Vec<StatusError>), StatusError> {
    let is_meant = |running: &Running| match node {
        Some(node) => running.node == node || running.process.pid.to_string() == node,
        None => true,
    };
    let mut silent = Vec::new();
    let nodes: Vec<Running> =
        answers(&processes(), |process| ask(*process), &mut silent).into_iter().filter(is_meant).collect();
    if let Some(node) = node {
        return match (nodes.is_empty(), silent.pop()) {
            (false, _) => Ok((Found::nodes(nodes), Vec::new())),
            (true, Some(error)) => Err(error),
            (true, None) => Err(StatusError::Nobody(format!("no node '{node}' runs in this network namespace"))),
        };
    }
    let devices = |beginning: &str| names(beginning).unwrap_or_default();
    let tunnels = answers(&devices(&tunnel::socket_name("")), |device| tunnel::ask(device), &mut silent);
    let gateways = answers(&devices(&gateway::socket_name("")), |device| gateway::ask(device), &mut silent);
    let found = Found {
        nodes,
        tunnels: Some(tunnels),
        gateways: Some(gateways),
        #[cfg(feature = "measure")]
        measuring: Some(measuring::Found::ask(&mut silent)),
    };
    if found.is_empty() {
        return Err(silent.pop().unwrap_or_else(|| {
            StatusError::Nobody(
                "nothing of ekiden runs in this network namespace; `ip netns exec NAME ekiden status` asks in another one".into(),
            )
        }));
    }
    Ok((found, silent))
}

/// What those tell who answer. All are asked at once: a process that is stopped answers late. Those that have ended meanwhile are none.
fn answers<A: Sync, T: Send>(
    asked: &[A],
    ask: impl Fn(&A) -> Result<T, StatusError> + Sync,
    silent: &mut Vec<StatusError>,
) -> Vec<T> {
    let answers: Vec<Result<T, StatusError>> = std::thread::scope(|scope| {
        let asking: Vec<_> = asked.iter().map(|one| scope.spawn(|| ask(one))).collect();
        asking.into_iter().map(|one| one.join().expect("asking does not panic")).collect()
    });
    let mut told = Vec::new();
    for answer in answers {
        match answer {
            Ok(answer) => told.push(answer),
            Err(StatusError::Nobody(_)) => {}
            Err(error) => silent.push(error),
        }
    }
    told
}

fn text(found: &Found, columns: Option<usize>) -> String {
    let mut blocks: Vec<String> = found.nodes.iter().map(|running| of_node(running, columns)).collect();
    let tunnels = found.tunnels.iter().flatten().map(|tunnel| {
        let up = tunnel.peers.iter().flat_map(|peer| &peer.connections).filter(|connection| connection.is_up).count();
        let all = tunnel.peers.iter().flat_map(|peer| &peer.connections).count();
        let process = process(&tunnel.process);
        format!("tunnel {} of {}: {up} of {all} connections are up; {process}\n", tunnel.device, tunnel.name)
    });
    let gateways = found.gateways.iter().flatten().map(|gateway| {
        let streams: u64 = gateway.groups.iter().map(|group| group.streams).sum();
        let (streams, groups) = (out::amount(streams as usize, "stream"), out::amount(gateway.groups.len(), "group"));
        format!("gateway on {}: {streams} in {groups}; {}\n", gateway.device, process(&gateway.process))
    });
    blocks.extend(tunnels);
    blocks.extend(gateways);
    #[cfg(feature = "measure")]
    blocks.extend(found.measuring.iter().flat_map(|measuring| measuring.blocks(columns)));
    blocks.join("\n")
}

fn process(process: &Process) -> String {
    format!("process {}, for {}, ekiden {}", process.pid, out::ago(process.running_s as f64), process.version)
}

fn of_node(running: &Running, columns: Option<usize>) -> String {
    let state = if running.is_draining {
        "it was told to stop, passes on or closes its listeners, and ends with its last stream; "
    } else {
        ""
    };
    let mut text = format!(
        "node {}: {} of {}; {state}{}\n",
        running.node,
        out::amount(running.streams as usize, "stream"),
        out::amount(running.clients as usize, "client"),
        process(&running.process)
    );
    let mut table = |head: &[&str], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let mut table = Table::new(head.iter().copied());
            rows.into_iter().for_each(|row| table.row(row));
            text += &format!("{}\n", table.to_text_within(columns));
        }
    };
    let listeners = running.listeners.iter();
    table(
        &["listener", "kind", "address"],
        listeners.map(|one| vec![one.name.clone(), one.kind.clone(), one.address.clone()]).collect(),
    );
    let peers = running.peers.iter().map(|peer| {
        let state = if peer.is_failing { "last try failed" } else { "" };
        let build = peer.build.clone().unwrap_or_default();
        vec![
            peer.name.clone(),
            peer.address.clone(),
            peer.streams.to_string(),
            peer.idle.to_string(),
            build,
            state.into(),
        ]
    });
    table(&["peer", "address", "streams", "idle", "ekiden", ""], peers.collect());
    let nodes = running
        .nodes
        .iter()
        .map(|one| vec![one.name.clone(), one.open.to_string(), one.build.clone().unwrap_or_default()]);
    table(&["streams of node", "open", "ekiden"], nodes.collect());
    let users = running.users.iter().map(|one: &Open| vec![one.name.clone(), one.open.to_string()]);
    table(&["user", "connections"], users.collect());
    let limits = running.limits.iter().map(|limit| {
        let by = limit.by.clone().unwrap_or_default();
        vec![limit.limit.clone(), amount(limit, limit.used), amount(limit, limit.most), by]
    });
    table(&["limit", "used", "of", "by"], limits.collect());
    text
}

/// As people read it.
fn amount(limit: &LimitStatus, value: u64) -> String {
    match limit.limit.as_str() {
        "limits.memory" => Bytes(value).rounded(),
        "limits.client_bandwidth" | "limits.user_bandwidth" => format!("{:.2} Mbit/s", value as f64 / 1e6),
        _ => value.to_string(),
    }
}
