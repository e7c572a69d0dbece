//! `congestion = "auto"`, in the lab and without privileges.

use std::fs;
use std::process::{Command, ExitCode};

use ekiden_record::Record;
use libtest_mimic::{Arguments, Failed, Trial};

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");

fn main() -> ExitCode {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("ignored: labs with ekiden's congestion controls are tested as root");
    }
    let trial = |name, test: fn() -> Result<(), Failed>| Trial::test(name, test).with_ignored_flag(!root);
    let trials = vec![
        trial("without BIC and without fallback the node does not start", refused),
        trial("a path that loses at random gets BIC, also for the streams that follow", random),
        trial("a path whose queue overflows keeps Reno", overflow),
        trial("hosts of a lab cannot choose", hosts),
    ];
    // One at a time: labs hold the name that another test wants gone.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Two transfers, one after the other, over 20 Mbit/s and 40 ms.
const SCENARIO: &str = r#"
name = "auto"
[tcp]
send_buffer = "256KiB"
[node.a]
[node.near]
kind = "proxy"
tcp = { congestion = "auto" }
[node.far]
kind = "proxy"
[node.b]
[link.near]
ends = ["a", "near"]
rate = "1Gbit/s"
[link.path]
ends = ["near", "far"]
rate = "20Mbit/s"
delay = "20ms"
queue = "30KB"
[link.far]
ends = ["far", "b"]
rate = "1Gbit/s"
[flow.first]
from = "a"
to = "b"
via = ["near", "far"]
duration = "10s"
[flow.second]
from = "a"
to = "b"
via = ["near", "far"]
start = "13s"
bytes = "1MB"
"#;

/// Runs it with `set`; returns the choices that were told.
fn choices(set: &str) -> Result<(Record, Vec<String>), Failed> {
    let folder = tempfile::tempdir()?;
    let (file, record) = (folder.path().join("auto.toml"), folder.path().join("auto.json"));
    fs::write(&file, SCENARIO)?;
    let output =
        Command::new(EKIDEN).args(["lab", "run"]).arg(&file).args(["--set", set, "--record"]).arg(&record).output()?;
    ensure(output.status.success(), || String::from_utf8_lossy(&output.stderr).into_owned())?;
    let record = Record::read(&record)?;
    let told = record.events.iter().filter(|event| event.kind == "congestion").map(|event| event.detail.clone());
    let told = told.collect();
    Ok((record, told))
}

fn random() -> Result<(), Failed> {
    let (record, told) = choices("link.path.loss=1%")?;
    let last = told.last().ok_or("nothing was chosen")?;
    ensure(last.starts_with("near to far: ekiden_bic, at the last 5 losses"), || format!("{told:?}"))?;
    ensure(last.ends_with("losses are random"), || format!("{told:?}"))?;
    let traced = record.congestion.ok_or("no trace")?;
    // Nothing is left of the first transfer then.
    let second = traced.events.iter().filter(|event| event.at_us > 13_000_000);
    let of_second: Vec<_> = second.map(|event| event.algorithm.as_str()).collect();
    ensure(traced.not_traced.is_some() || of_second.contains(&"ekiden_bic"), || format!("{:?}", traced.events))
}

fn overflow() -> Result<(), Failed> {
    let (_, told) = choices("link.path.loss=0")?;
    ensure(told.iter().all(|told| told.starts_with("near to far: reno, ")), || format!("{told:?}"))
}

fn hosts() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("auto.toml");
    fs::write(&file, SCENARIO.replace("[tcp]\n", "[tcp]\ncongestion = \"auto\"\n"))?;
    let output = Command::new(EKIDEN).args(["lab", "run"]).arg(&file).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure(
        output.status.code() == Some(3) && said.contains("node 'a' has congestion = \"auto\", which only a proxy has"),
        || format!("{:?} {said}", output.status),
    )
}

fn refused() -> Result<(), Failed> {
    if available("ekiden_bic") {
        eprintln!("not asked: another process holds ekiden_bic");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("node.toml");
    let listener = "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n";
    fs::write(&file, format!("[tcp]\ncongestion = \"auto\"\n{listener}"))?;
    let bounds = "--bounding-set=-sys_admin,-bpf,-perfmon,-net_admin";
    let output = Command::new("setpriv").args([bounds, EKIDEN, "proxy", "-c"]).arg(&file).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.code() == Some(4) && said.contains("congestion 'ekiden_bic' cannot be had"), || {
        format!("{:?} {said}", output.status)
    })
}

fn available(name: &str) -> bool {
    let all = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    all.split_whitespace().any(|one| one == name)
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(message().into()) }
}
