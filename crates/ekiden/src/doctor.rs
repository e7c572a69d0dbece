//! `ekiden doctor`: what on this host, and on the path to another, costs throughput.

mod registry;
mod tunnel;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ekiden_doctor::{Aim, Finding, FixError, Fixed, Remedy, SYSCTLS, Verdict, fix, machine, path, sysctls};
use ekiden_relay::{Config, Peer, ProbeError, Probed};
use ekiden_transport::Security;
use ekiden_units::path::{BDP_MOST, RATES, RTTS};
use ekiden_units::{BitRate, HostPort, Time};
use serde_json::{Value, json};

use crate::out::{self, Width};
use crate::usage::misused;
use crate::whose::whose;

/// The beginning of the subject of a finding about the length of segments.
const SEGMENTS: &str = "segments to ";

/// The round trip for which a host is judged, unless a path is measured.
const RTT: Time = Time::ms(200);

/// Say what on this host, and on the path to another, costs TCP throughput, and set what is safe to set.
///
/// Looks at the kernel's settings, the largest buffers, congestion controls, capabilities, the limit of open files, the
/// clock and the MTU of each device; with --to or --config also at what a few empty connections to another host show:
/// round-trip time, segment size, and which of TCP's options both ends and all that is between them agree on. With each peer
/// of --config it shakes hands, as the node does, and says whether both take the other's key. The file may be a proxy's or a
/// tunnel's; of a tunnel it also looks at the device and the MTU at both ends, and no tunnel that runs is disturbed. Of an overlay in etcd it
/// also looks at each member of etcd, at its space, and at the members of the overlay.
///
/// Buffers are judged by what one connection of --rate needs at the longest round trip that is measured, or --rtt. Nothing is
/// changed without --fix, which prints how to undo it, and how to keep it beyond the next boot. Settings are those of the
/// network namespace in which it runs.
///
/// What could be found is printed whatever fails. Exit code 5 if a path or a peer failed, 4 if something could not be set or a tunnel's device cannot be made, 1 if
/// something is left that costs throughput, 0 otherwise.
#[derive(clap::Args)]
pub struct Args {
    /// Look at the path to this, too: a node's leg listener, or anything that listens. Can be given several times.
    #[arg(long, value_name = "HOST:PORT")]
    to: Vec<HostPort>,
    /// Look at the paths to the peers of this configuration of a proxy or a tunnel.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What one connection should carry.
    #[arg(long, value_name = "RATE", default_value = "1Gbit/s", value_parser = within(RATES))]
    rate: BitRate,
    /// The round-trip time to be ready for [default: the longest that is measured, or 200ms]
    #[arg(long, value_name = "TIME", value_parser = within(RTTS))]
    rtt: Option<Time>,
    /// Set what is safe to set.
    #[arg(long)]
    fix: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    width: Width,
}

/// The findings that are left and cost throughput.
#[derive(Debug, thiserror::Error)]
#[error("{left} of {all} findings cost throughput{}", fixable(*settable))]
pub struct Costly {
    left: usize,
    all: usize,
    /// The number of findings that can be set.
    settable: usize,
}

/// A path, or a peer at its end, that is not as it should be.
#[derive(Debug, thiserror::Error)]
#[error("{first}{}", more(*others))]
pub struct PathFailed {
    first: String,
    others: usize,
}

/// Some settings that `--fix` could not set, or what a tunnel's device lacks.
#[derive(Debug, thiserror::Error)]
#[error("{first}{}", more(*others))]
pub struct HostFailed {
    first: String,
    others: usize,
}

/// What was found on the ways to other hosts.
#[derive(Default)]
struct Paths {
    findings: Vec<Finding>,
    /// The longest of their round trips.
    rtt: Option<Time>,
    failed: Vec<Failed>,
}

/// Why a path, or a peer at its end, is not as it should be.
struct Failed {
    subject: String,
    reason: String,
    /// The cause is at this host, and not on the way.
    is_of_host: bool,
}

/// Does what the command line says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let root = Path::new(SYSCTLS);
    if let Some(rtt) = args.rtt {
        let bdp = Aim { rate: args.rate, rtt }.bdp();
        if bdp > BDP_MOST {
            let (bdp, most) = (bdp.rounded(), BDP_MOST.rounded());
            misused(&format!(
                "--rate {} at --rtt {rtt} is {bdp} on the way: at most {most} are on any path",
                args.rate
            ));
        }
    }
    let paths = paths(args)?;
    let aim = Aim { rate: args.rate, rtt: args.rtt.or(paths.rtt).unwrap_or(RTT) };
    let mut findings = sysctls(root, &aim)?;
    findings.extend(machine());
    findings.extend(paths.findings);
    let fixed = if args.fix { fix(root, &findings) } else { Fixed::default() };
    let assumed = args.rtt.is_none() && paths.rtt.is_none();
    let printed = match args.json {
        true => out::line(serde_json::to_string_pretty(&json(&aim, &findings, &paths.failed, &fixed))?),
        false => out::text(fitted(&text(&aim, assumed, &findings, &paths.failed, &fixed), args.width.columns())),
    };
    // What has been changed is not lost with it.
    if printed.is_err() && !fixed.changed.is_empty() {
        out::note(undo(&fixed.changed));
    }
    printed?;
    let (of_host, of_way): (Vec<_>, Vec<_>) = paths.failed.iter().partition(|failed| failed.is_of_host);
    if let [first, others @ ..] = &of_way[..] {
        return Err(PathFailed { first: first.reason.clone(), others: others.len() }.into());
    }
    let of_host = of_host.iter().map(|failed| failed.reason.clone());
    let of_host: Vec<_> = of_host.chain(fixed.failed.iter().map(ToString::to_string)).collect();
    if let [first, others @ ..] = &of_host[..] {
        return Err(HostFailed { first: first.clone(), others: others.len() }.into());
    }
    let left = findings.iter().filter(|finding| finding.costs() && !is_in(&fixed.changed, finding));
    let settable = left.clone().filter(|finding| finding.fixed_value().is_some()).count();
    match left.count() {
        0 => Ok(()),
        left => Err(Costly { left, all: findings.len(), settable }.into()),
    }
}

/// Reads a value of this range.
fn within<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr<Err: Display> + PartialOrd + Display + Clone,
{
    move |text| match text.parse() {
        Ok(value) if range.contains(&value) => Ok(value),
        Ok(_) => Err(format!("it is from {} to {}", range.start(), range.end())),
        Err(error) => Err(error.to_string()),
    }
}

/// A setting that was changed, and its value before.
type Changed<'a> = (&'a Finding, String);

/// Looks at every path, also after one that fails.
fn paths(args: &Args) -> anyhow::Result<Paths> {
    let mut paths = Paths::default();
    for to in &args.to {
        paths.look(&to.to_string(), args.rate);
    }
    match &args.config {
        Some(file) if ekiden_tunnel::Config::is_in(file) => tunnel::look(&mut paths, file, args.rate)?,
        Some(file) => {
            let config = registry::look(&mut paths, Config::load(file).map_err(|error| whose(file, "doctor", error))?)?;
            for line in config.near_refused() {
                let advice = Remedy::Advice("say so in [exit] allow of this node");
                let verdict = Verdict::Costs { what: line, remedy: advice };
                paths.add("what this node is near to".into(), "not all of it is let through", verdict);
            }
            for (name, peer) in &config.peers {
                if paths.look(&peer.address.to_string(), args.rate) {
                    paths.shake_hands(&config, name, peer);
                }
            }
        }
        None => {}
    }
    Ok(paths)
}

impl Paths {
    fn add(&mut self, subject: String, found: impl Into<String>, verdict: Verdict) {
        self.findings.push(Finding { subject, found: found.into(), verdict });
    }

    /// Whether it could be reached.
    fn look(&mut self, to: &str, rate: BitRate) -> bool {
        match path(to, rate) {
            Ok((findings, rtt)) => {
                self.findings.extend(findings);
                self.rtt = self.rtt.max(Some(rtt));
                true
            }
            Err(error) => {
                let (subject, reason) = (format!("path to {to}"), error.to_string());
                self.failed.push(Failed { subject, reason, is_of_host: false });
                false
            }
        }
    }

    fn shake_hands(&mut self, config: &Config, name: &str, peer: &Peer) {
        let subject = format!("handshake with {name}");
        match ekiden_relay::probe(config, name) {
            Ok(Probed { segments_most, build }) => {
                let found = match peer.security {
                    Security::Tls { .. } => "it has the key that is pinned, and takes this node's",
                    Security::Plain(_) => "it has the same plain_key_file",
                };
                let build = build.map(|build| format!("; it is ekiden {build}")).unwrap_or_default();
                self.add(subject, format!("{found}{build}"), Verdict::Good);
                self.segments(name, segments_most);
            }
            Err(error) => {
                let reason = match (&error, &config.identity) {
                    (ProbeError::OwnKey(_), Some(own)) => {
                        let (node, print) = (&config.name, own.fingerprint());
                        let overlay = config.overlay.as_ref().filter(|overlay| overlay.members.contains_key(name));
                        let remedy = match overlay.map(|overlay| overlay.etcd.as_ref()) {
                            Some(Some(etcd)) => format!("`ekiden overlay admit {} {node} {print}`", etcd.overlay),
                            Some(None) => format!("in {name}'s members file: `ekiden overlay join` makes the entry"),
                            None => format!("on {name}'s host: `ekiden peer allow -c FILE {node} {print}`"),
                        };
                        format!("{error}, which is {print}; {remedy}")
                    }
                    _ => error.to_string(),
                };
                self.failed.push(Failed { subject, reason, is_of_host: false });
            }
        }
    }

    /// `limit`: the longest segments that pass on the path, if longer ones are dropped.
    fn segments(&mut self, name: &str, limit: Option<u16>) {
        let Some(limit) = limit else { return };
        let what = "the path drops longer packets and says nothing (a black hole of path MTU discovery)".into();
        let remedy = Remedy::Advice(
            "let ICMP's \"fragmentation needed\" and \"packet too big\" through on the path, or lower the MTU of this host's device",
        );
        // Only one statement holds about what the path takes: what has passed, not what both hosts would send.
        let assumed = self.findings.iter().rposition(|finding| finding.subject.starts_with(SEGMENTS));
        let assumed = assumed.map(|at| self.findings.remove(at).found);
        let instead = assumed.map(|assumed| format!(", instead of {assumed}")).unwrap_or_default();
        let found = format!("{limit} bytes at most, TCP's options among them{instead}");
        self.add(format!("{SEGMENTS}{name}"), found, Verdict::Costs { what, remedy });
    }
}

fn is_in(changed: &[Changed<'_>], finding: &Finding) -> bool {
    changed.iter().any(|(one, _)| one.subject == finding.subject)
}

fn text(aim: &Aim, assumed: bool, findings: &[Finding], failed: &[Failed], fixed: &Fixed<'_>) -> String {
    let mut text = format!("For {} at {}: {} on the way.\n", aim.rate, aim.rtt, aim.bdp().rounded());
    if assumed {
        text += "This round-trip time is assumed, for none was measured: say --rtt, or --to or --config with a host that answers.\n";
    }
    text.push('\n');
    for finding in findings {
        let (word, more) = match &finding.verdict {
            Verdict::Good => ("good ", String::new()),
            Verdict::Note(what) => ("note ", format!("       {what}\n")),
            Verdict::Costs { what, remedy } => ("costs", format!("       {what}\n       {}\n", helps(finding, remedy))),
        };
        text += &format!("{word}  {}: {}\n{more}", finding.subject, finding.found);
    }
    for Failed { subject, reason, .. } in failed {
        text += &format!("FAILS  {subject}\n       {reason}\n");
    }
    if !fixed.failed.is_empty() {
        text += "\nNot set:\n";
        text.extend(fixed.failed.iter().map(|error| format!("  {error}\n")));
    }
    let changed = &fixed.changed;
    if changed.is_empty() {
        return text;
    }
    text += "\nSet, until the next boot:\n";
    for (finding, _) in changed {
        text += &format!("  {} = {}\n", finding.subject, finding.fixed_value().unwrap_or_default());
    }
    text + "\nTo keep it, put these lines into /etc/sysctl.d/90-ekiden.conf. " + &undo(changed) + "\n"
}

/// How to undo the changes, without the end of the last line.
fn undo(changed: &[Changed<'_>]) -> String {
    let lines = changed.iter().map(|(finding, before)| format!("\n  {}", set(&finding.subject, before)));
    format!("To undo it:{}", lines.collect::<String>())
}

/// Wrapped to `columns` columns, except commands, which are copied.
fn fitted(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let is_command = |line: &str| line.trim_start().starts_with("sysctl ");
    let line = |line: &str| if is_command(line) { format!("{line}\n") } else { ekiden_report::wrapped(line, columns) };
    text.split_terminator('\n').map(|text| if text.is_empty() { "\n".to_owned() } else { line(text) }).collect()
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

fn json(aim: &Aim, findings: &[Finding], failed: &[Failed], fixed: &Fixed<'_>) -> Value {
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
    let fails = |failed: &Failed| json!({ "subject": failed.subject, "reason": failed.reason });
    let not_set = |error: &FixError| json!({ "subject": error.key, "set": error.value, "reason": error.to_string() });
    let undo = |(finding, before): &Changed<'_>| json!({ "subject": finding.subject, "before": before });
    json!({
        "rate_bit_s": aim.rate.0,
        "rtt_ns": aim.rtt.0,
        "findings": findings.iter().map(one).collect::<Vec<_>>(),
        "failed": failed.iter().map(fails).collect::<Vec<_>>(),
        "changed": fixed.changed.iter().map(undo).collect::<Vec<_>>(),
        "not_set": fixed.failed.iter().map(not_set).collect::<Vec<_>>(),
    })
}

fn more(others: usize) -> String {
    if others == 0 { String::new() } else { format!(" (and {others} more, above)") }
}

fn fixable(settable: usize) -> String {
    if settable == 0 { String::new() } else { format!("; 'ekiden doctor --fix' sets {settable} of them") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_said_once() {
        let mut paths = Paths::default();
        let found = "1448 bytes of payload agreed on; the kernel assumes an MTU of 1500";
        for subject in ["segments to 192.0.2.1:7000", "segments to 192.0.2.2:7000", "handshake with city"] {
            paths.add(subject.into(), found, Verdict::Good);
        }
        paths.segments("city", None);
        assert_eq!(paths.findings.len(), 3);
        paths.segments("city", Some(1220));
        let said: Vec<_> =
            paths.findings.iter().map(|finding| format!("{}: {}", finding.subject, finding.found)).collect();
        assert_eq!(said[0], format!("segments to 192.0.2.1:7000: {found}"));
        assert_eq!(
            said[2],
            format!("segments to city: 1220 bytes at most, TCP's options among them, instead of {found}")
        );
        assert_eq!(said.len(), 3);
    }
}
