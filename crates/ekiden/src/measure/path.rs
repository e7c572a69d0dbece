//! `ekiden measure path`.

mod picture;

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;
use ekiden_files::check_target;
use ekiden_measure::path::{Origin, Step, characterise};
use ekiden_record::{Finding, Judgement, PathDirection, PathRecord};
use ekiden_report::Table;

use super::target::Target;
use crate::out::{self, Width};
use crate::usage::{command_line, distinct, now_unix_ms, svg};

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLES: &str = "Examples:
    ekiden measure path city -c island.toml
    # for `ekiden plan`
    ekiden measure path city -c island.toml \\
        --record path.json";

/// Say what the path to a measuring server is made of.
///
/// Finds base RTT, routers, the bottleneck's rate, its buffer and how it drops, random loss, MTU and policers, each direction by itself, with
/// its uncertainty and what was seen. One stream loads each direction, with at most ten bandwidth-delay products (or 300 kB) and for ten round
/// trips and two seconds. What cannot be seen is said to be so.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// Write the path's record, as `ekiden plan` reads it.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Draw round trips and arrivals over time, with what is concluded from them.
    #[arg(long, value_name = "FILE.svg", value_parser = svg())]
    picture: Option<PathBuf>,
    /// Load each direction for up to a minute more, until its buffer has overflowed four times: how many packets each overflow loses.
    #[arg(long)]
    long: bool,
    /// Replace files that are there already.
    #[arg(long)]
    force: bool,
    /// Print the record as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    width: Width,
}

/// Measures.
pub fn run(args: &Args) -> anyhow::Result<()> {
    distinct(&[("--record", args.record.as_deref()), ("--picture", args.picture.as_deref())]);
    for record in [&args.record, &args.picture].into_iter().flatten() {
        check_target(record, args.force).with_context(|| record.display().to_string())?;
    }
    let server = args.target.server("measure path")?;
    out::note(args.width.wrapped(
        "at most ten bandwidth-delay products, or 300 kB, in each direction; twice that where a policer is sought",
    ));
    let mut step = |step| match step {
        Step::Hops => out::note("counting routers"),
        Step::Overflows { way } => out::note(format_args!("overflowing the way {}", way.word())),
        Step::Loads { way, congestion } => out::note(format_args!("loading the way {} with {congestion}", way.word())),
    };
    let origin = Origin { command: command_line(), started_unix_ms: now_unix_ms() };
    let (record, seen) = characterise(&server, origin, args.long, &mut step)?;
    // Before anything is written, which may fail.
    match args.json {
        true => out::line(serde_json::to_string_pretty(&record)?)?,
        false => out::text(text(&record, args.width))?,
    }
    if let Some(file) = &args.picture {
        let unwritable = |source| ekiden_record::Error::Unwritable { file: file.display().to_string(), source };
        ekiden_files::write(file, picture::picture(&record, &seen).as_bytes()).map_err(unwritable)?;
    }
    if let Some(file) = &args.record {
        record.save(file)?;
    }
    Ok(())
}

/// How a number is shown.
type Shown = fn(f64) -> String;

fn text(record: &PathRecord, width: Width) -> String {
    let ms: Shown = |us| format!("{:.2} ms", us / 1e3);
    let mbit: Shown = |rate| format!("{:.2} Mbit/s", rate / 1e6);
    let kb: Shown = |bytes| format!("{:.1} kB", bytes / 1e3);
    let count: Shown = |count| format!("{count:.0}");
    let percent: Shown = |part| format!("{:.3} %", part * 100.0);
    let first = format!("Path from {} to {}: round trip {}.", record.from, record.to, value(&record.rtt_us, ms));
    let mut text = width.wrapped(&first) + "\n";
    for (name, direction) in [("forth", &record.forth), ("back", &record.back)] {
        let PathDirection { sent_bytes, duration_us, .. } = direction;
        let (mb, seconds) = (*sent_bytes as f64 / 1e6, *duration_us as f64 / 1e6);
        let _ = writeln!(text, "\n{name} ({mb:.2} MB sent in {seconds:.2} s)");
        let rows = [
            ("rate", &direction.rate_bit_s, mbit),
            ("buffer", &direction.buffer_bytes, kb),
            ("bandwidth-delay product", &direction.bdp_bytes, kb),
            ("random loss", &direction.random_loss, percent),
            ("policer", &direction.policer_bit_s, mbit),
            ("MTU", &direction.mtu_bytes, count),
            ("routers", &direction.hops, count),
            ("drops per overflow", &direction.drops_per_overflow, count),
            ("window of the hosts", &direction.window_bytes, kb),
        ];
        let mut table = Table::new(["", "found", "range", "seen"]).of_text();
        for (name, finding, shown) in rows {
            table.row([name.into(), value(finding, shown), range(finding, shown), finding.evidence().to_owned()]);
        }
        let (answer, evidence) = match &direction.drop_tail {
            Judgement::Yes { evidence } => ("yes", evidence),
            Judgement::No { evidence } => ("no", evidence),
            Judgement::NotObservable { reason } => ("not observable", reason),
        };
        table.rows.insert(2, vec!["drop tail".into(), answer.into(), String::new(), evidence.clone()]);
        text.push_str(&table.to_text_within(width.columns()));
        text.push('\n');
    }
    text
}

fn value(finding: &Finding, shown: Shown) -> String {
    match finding {
        Finding::Observed { value, .. } => shown(*value),
        Finding::AtLeast { value, .. } => format!("at least {}", shown(*value)),
        Finding::AtMost { value, .. } => format!("at most {}", shown(*value)),
        Finding::Absent { .. } => "none".into(),
        Finding::NotObservable { .. } => "not observable".into(),
    }
}

fn range(finding: &Finding, shown: Shown) -> String {
    match finding {
        Finding::Observed { low, high, .. } if low < high => format!("{} to {}", shown(*low), shown(*high)),
        _ => String::new(),
    }
}
