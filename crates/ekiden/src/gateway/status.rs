//! `ekiden gateway status`.

use ekiden_gateway::status::{GatewayStatus, StreamStatus, ask};
use ekiden_report::Table;

use crate::out::{self, Width};

/// Show what a running gateway does: its groups, their streams, and what was counted.
///
/// Asks the gateway on the device DEVICE in this network namespace. It answers root and its own user. With --json, every count is
/// there, under names that stay.
#[derive(clap::Args)]
pub struct Args {
    /// The gateway's network device.
    #[arg(value_name = "DEVICE")]
    device: String,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    width: Width,
}

/// Asks, and prints the answer.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let status = ask(&args.device)?;
    match args.json {
        true => out::line(serde_json::to_string_pretty(&status)?),
        false => out::text(args.width.fitted(&text(&status, args.width.columns()))),
    }
}

fn text(status: &GatewayStatus, columns: Option<usize>) -> String {
    let mut groups = Table::new(["group", "policy", "streams", "limited", "throttled", "last by"]);
    for group in &status.groups {
        groups.row([
            group.name.clone(),
            group.policy.clone(),
            group.streams.to_string(),
            group.limited.to_string(),
            group.throttlings.to_string(),
            group.throttled_by.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    let mut streams = Table::new(["stream", "group", "state", "idle s", "rtt ms", "least ms", "flow KB", "limit KB"])
        .spare(["least ms", "idle s", "flow KB"]);
    status.streams.iter().for_each(|stream| streams.row(row(stream)));
    let mut streams = streams.to_text_within(columns);
    if status.streams_not_listed > 0 {
        streams.push_str(&format!("and {} streams whose last packets are older\n", status.streams_not_listed));
    }
    let counters = &status.counters;
    let mut text = format!(
        "device {}, by {}, for {} s\n{}\n{}\n{} packets passed, {} of these groups, {} with a lowered window\n",
        status.device,
        status.hook,
        status.process.running_s,
        groups.to_text_within(columns),
        streams,
        counters.packets,
        counters.tracked,
        counters.rewritten
    );
    if counters.full > 0 {
        text.push_str(&format!(
            "new streams left alone, for their table was full: {}; a larger ipv4_streams (now {}) or ipv6_streams (now {}) makes room\n",
            counters.full, status.ipv4_streams, status.ipv6_streams
        ));
    }
    let lines = [
        (counters.unkept, "packets passed untouched since the gateway was stopped or late"),
        (
            counters.without_handshake,
            "packets were of streams of which only one direction, or no whole handshake, has passed here",
        ),
        (counters.signed, "packets were signed (TCP-MD5 or TCP-AO), which cannot be changed"),
        (counters.malformed, "packets were malformed"),
    ];
    for (count, what) in lines.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("{count} {what}\n"));
    }
    if counters.begun == 0 {
        text.push_str(&format!(
            "no stream of these groups has begun since the programs were loaded: does their data leave through {}, and are \
             sources and destinations as they are there, behind any NAT? Earlier streams are left alone without assumed_scale\n",
            status.device
        ));
    }
    text
}

fn row(stream: &StreamStatus) -> [String; 8] {
    let ms = |time: Option<u32>| time.map_or("-".into(), |us| format!("{:.1}", f64::from(us) / 1e3));
    let kb = |bytes: Option<u32>| bytes.map_or("-".into(), |bytes| format!("{:.1}", f64::from(bytes) / 1e3));
    [
        format!("{} to {}", stream.sender, stream.receiver),
        stream.group.clone(),
        stream.state.clone(),
        stream.idle_s.to_string(),
        ms(stream.rtt_us),
        ms(stream.rtt_min_us),
        kb(stream.flow_bytes),
        kb(stream.limit_bytes),
    ]
}
