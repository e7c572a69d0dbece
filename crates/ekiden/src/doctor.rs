//! `ekiden doctor`: what on this host, and on the path to another, costs throughput.

use std::path::{Path, PathBuf};

use ekiden_doctor::{Aim, Finding, Remedy, SYSCTLS, Verdict, fix, machine, path, sysctls};
use ekiden_relay::Config;
use ekiden_units::{BitRate, Time};
use serde_json::{Value, json};

use crate::out;

/// The round trip that a host is looked at for, unless a path is measured.
const RTT: Time = Time::ms(200);

/// Say what on this host, and on the path to another, costs TCP throughput, and set what is safe to set.
///
/// Looks at the kernel's settings, the largest buffers, congestion controls, capabilities, the limit of open files, the
/// clock and the MTU of each device; with --to or --config also at what a few empty connections to another host show:
/// round-trip time, segment size, and which of TCP's options both ends and all that is between them agree on.
///
/// Buffers are judged by what one connection of --rate needs at the longest round trip that is measured, or --rtt. Nothing is
/// changed without --fix, which prints how to undo it, and how to keep it beyond the next boot. Settings are those of the
/// network namespace in which it runs.
///
/// Exit code 0 if nothing is left that costs throughput, 1 if something is.
#[derive(clap::Args)]
pub struct Args {
    /// Look at the path to this, too: a node's segment listener, or anything that listens. Can be given several times.
    #[arg(long, value_name = "HOST:PORT")]
    to: Vec<String>,
    /// Look at the paths to the peers of this node's configuration.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What one connection should carry.
    #[arg(long, value_name = "RATE", default_value = "1Gbit/s")]
    rate: BitRate,
    /// The round-trip time to be ready for [default: the longest that is measured, or 200ms]
    #[arg(long, value_name = "TIME")]
    rtt: Option<Time>,
    /// Set what is safe to set.
    #[arg(long)]
    fix: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// What is left that costs throughput.
#[derive(Debug, thiserror::Error)]
#[error("{left} of {all} findings cost throughput{}", fixable(*settable))]
pub struct Costly {
    left: usize,
    all: usize,
    /// So many can be set.
    settable: usize,
}

/// Does what the command line says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let root = Path::new(SYSCTLS);
    let (mut paths, mut longest) = (Vec::new(), None);
    for to in args.to.iter().cloned().chain(peers(args)?) {
        let (findings, rtt) = path(&to, args.rate)?;
        paths.extend(findings);
        longest = longest.max(Some(rtt));
    }
    let aim = Aim { rate: args.rate, rtt: args.rtt.or(longest).unwrap_or(RTT) };
    let mut findings = sysctls(root, &aim)?;
    findings.extend(machine());
    findings.extend(paths);
    let changed = if args.fix { fix(root, &findings)? } else { Vec::new() };
    match args.json {
        true => out::line(serde_json::to_string_pretty(&json(&aim, &findings, &changed))?)?,
        false => out::text(text(&aim, &findings, &changed))?,
    }
    let left = findings.iter().filter(|finding| finding.costs() && !is_in(&changed, finding));
    let settable = left.clone().filter(|finding| finding.fixed_value().is_some()).count();
    match left.count() {
        0 => Ok(()),
        left => Err(Costly { left, all: findings.len(), settable }.into()),
    }
}

/// A setting that was changed, and its value before.
type Changed<'a> = (&'a Finding, String);

fn peers(args: &Args) -> anyhow::Result<Vec<String>> {
    let Some(file) = &args.config else { return Ok(Vec::new()) };
    Ok(Config::load(file)?.peers.values().map(|peer| peer.address.to_string()).collect())
}

fn is_in(changed: &[Changed<'_>], finding: &Finding) -> bool {
    changed.iter().any(|(one, _)| one.subject == finding.subject)
}

fn text(aim: &Aim, findings: &[Finding], changed: &[Changed<'_>]) -> String {
    let mut text = format!("For {} at {}: {} on the way.\n\n", aim.rate, aim.rtt, aim.bdp());
    for finding in findings {
        let (word, more) = match &finding.verdict {
            Verdict::Good => ("good ", String::new()),
            Verdict::Note(what) => ("note ", format!("       {what}\n")),
            Verdict::Costs { what, remedy } => ("costs", format!("       {what}\n       {}\n", helps(finding, remedy))),
        };
        text += &format!("{word}  {}: {}\n{more}", finding.subject, finding.found);
    }
    if changed.is_empty() {
        return text;
    }
    text += "\nSet, until the next boot:\n";
    for (finding, _) in changed {
        text += &format!("  {} = {}\n", finding.subject, finding.fixed_value().unwrap_or_default());
    }
    text += "\nTo keep it, put these lines into /etc/sysctl.d/90-ekiden.conf. To undo it:\n";
    for (finding, before) in changed {
        text += &format!("  {}\n", set(&finding.subject, before));
    }
    text
}

fn helps(finding: &Finding, remedy: &Remedy) -> String {
    match remedy {
        Remedy::Set(value) => set(&finding.subject, value),
        Remedy::Advice(advice) => (*advice).into(),
    }
}

fn set(key: &str, value: &str) -> String {
    format!("sysctl -w {key}='{value}'")
}

fn json(aim: &Aim, findings: &[Finding], changed: &[Changed<'_>]) -> Value {
    let one = |finding: &Finding| {
        let (verdict, what, advice) = match &finding.verdict {
            Verdict::Good => ("good", None, None),
            Verdict::Note(what) => ("note", Some(what), None),
            Verdict::Costs { what, remedy: Remedy::Set(_) } => ("costs", Some(what), None),
            Verdict::Costs { what, remedy: Remedy::Advice(advice) } => ("costs", Some(what), Some(advice)),
        };
        json!({
            "subject": finding.subject, "found": finding.found, "verdict": verdict, "what": what, "advice": advice,
            "set": finding.fixed_value(),
        })
    };
    let undo = |(finding, before): &Changed<'_>| json!({ "subject": finding.subject, "before": before });
    json!({
        "rate_bit_s": aim.rate.0,
        "rtt_ns": aim.rtt.0,
        "findings": findings.iter().map(one).collect::<Vec<_>>(),
        "changed": changed.iter().map(undo).collect::<Vec<_>>(),
    })
}

fn fixable(settable: usize) -> String {
    if settable == 0 { String::new() } else { format!("; 'ekiden doctor --fix' sets {settable} of them") }
}
