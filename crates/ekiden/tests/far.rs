//! `ekiden_far` in the running kernel, through the built program.

use std::process::Command;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

type Test = fn() -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("a connection begins with what an earlier one has found of the path", known_path),
    ("a leg that is used again is not slower for what it has found", known_leg),
    ("legs that name no control fill a path that loses packets, also where routes name another", default_of_legs),
    ("a radio network that loses packets is filled between two proxies, simulated and in the lab", radio),
];

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let trial = |&(name, test): &(&str, Test)| Trial::test(name, test).with_ignored_flag(!root);
    TESTS.iter().map(trial).collect()
}

/// 100 Mbit/s and 200 ms: the product of bandwidth and delay is 1,700 segments, and the window jumps to half of it. Until a megabyte
/// has arrived over an unknown path it does not grow beyond 700. Where the host is late, the first segments tell a slower path: there are
/// three tries.
fn known_path() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (scenario, record) = (folder.path().join("known.toml"), folder.path().join("known.json"));
    std::fs::write(&scenario, KNOWN_PATH)?;
    let mut tries = Vec::new();
    for _ in 0..3 {
        let mut run = Command::new(EKIDEN);
        done(run.args(["lab", "run", "--force"]).arg(&scenario).arg("--record").arg(&record))?;
        let mut export = Command::new(EKIDEN);
        let samples = done(export.args(["record", "export", "--csv"]).arg(&record))?;
        let (unknown, known) = (most_of(&samples, "unknown")?, most_of(&samples, "known")?);
        ensure((10..700).contains(&unknown), || format!("a window of {unknown} segments\n{samples}"))?;
        if (700..2_000).contains(&known) {
            return Ok(());
        }
        tries.push(known.to_string());
    }
    Err(format!("windows of {} segments", tries.join(", ")).into())
}

/// The largest window of a flow.
fn most_of(samples: &str, name: &str) -> Result<u32, Failed> {
    let mut lines = samples.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap_or_default();
    let column = |name: &str| header.iter().position(|&column| column == name).ok_or("no such column");
    let (flow, cwnd) = (column("flow")?, column("cwnd_segments")?);
    let of_flow = lines.filter(|line| line.get(flow) == Some(&name));
    Ok(of_flow.filter_map(|line| line.get(cwnd)?.parse::<u32>().ok()).max().unwrap_or_default())
}

const KNOWN_PATH: &str = r#"name = "known"
[tcp]
congestion = "ekiden_far"
send_buffer = "16MiB"
receive_buffer = "16MiB"
[node.a]
[node.b]
[link.line]
ends = ["a", "b"]
rate = "100Mbit/s"
delay = "100ms"
queue = "1250KB"
[flow.unknown]
from = "a"
to = "b"
bytes = "1MB"
[flow.long]
from = "a"
to = "b"
bytes = "40MB"
start = "3s"
[flow.known]
from = "a"
to = "b"
bytes = "1MB"
start = "12s"
"#;

/// The same path between two nodes that encrypt: ten megabytes take 1.1 s, and 2.6 s over an unknown path. A window
/// that stays at ten segments takes more than six. A host that is late with the emulation delays all of them: it has three tries.
fn known_leg() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let scenario = folder.path().join("leg.toml");
    std::fs::write(&scenario, KNOWN_LEG)?;
    let mut tries = Vec::new();
    for _ in 0..3 {
        let mut run = Command::new(EKIDEN);
        let record = done(run.args(["lab", "run"]).arg(&scenario).args(["--record", "/dev/null", "--json"]))?;
        let record: Value = serde_json::from_str(&record)?;
        let seconds = record["flows"][1]["duration_us"].as_f64().unwrap_or(f64::NAN) / 1e6;
        if seconds < 4.0 {
            return Ok(());
        }
        tries.push(format!("{seconds} s, late {}", record["disturbed"]));
    }
    Err(tries.join("; ").into())
}

const KNOWN_LEG: &str = r#"name = "leg"
[tcp]
congestion = "cubic"
send_buffer = "16MiB"
receive_buffer = "16MiB"
[node.client]
[node.home]
kind = "proxy"
[node.away]
kind = "proxy"
tcp = { congestion = "ekiden_far" }
[node.server]
[link.lan]
ends = ["client", "home"]
rate = "1Gbit/s"
[link.line]
ends = ["home", "away"]
rate = "100Mbit/s"
delay = "100ms"
queue = "1250KB"
[link.far]
ends = ["away", "server"]
rate = "1Gbit/s"
[flow.long]
from = "server"
to = "client"
via = ["away", "auto", "home"]
bytes = "40MB"
start = "2s"
[flow.known]
from = "server"
to = "client"
via = ["away", "auto", "home"]
bytes = "10MB"
start = "12s"
"#;

/// 100 Mbit/s and 200 ms with one packet in a hundred lost: CUBIC, which the lab's routes name, carries about a megabyte in ten seconds.
fn default_of_legs() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("lossy.toml"), LOSSY)?;
    let mut shell = Command::new(EKIDEN);
    let shell = shell.args(["lab", "shell", "lossy.toml", "client", "--", "bash", "-c", DOWNLOADS]);
    done(shell.env("EKIDEN", EKIDEN).current_dir(folder.path())).map(drop)
}

const LOSSY: &str = r#"name = "lossy"
[tcp]
congestion = "cubic"
send_buffer = "16MiB"
receive_buffer = "16MiB"
[node.client]
[node.home]
kind = "router"
[node.away]
kind = "router"
[node.server]
[link.lan]
ends = ["client", "home"]
rate = "1Gbit/s"
[link.line]
ends = ["home", "away"]
rate = "100Mbit/s"
delay = "100ms"
queue = "1250KB"
loss = "1%"
[link.rack]
ends = ["away", "server"]
rate = "1Gbit/s"
"#;

const DOWNLOADS: &str = r#"set -Eeuo pipefail
trap 'cat home.log away.log >&2' ERR
home=$("$EKIDEN" keygen home.key) away=$("$EKIDEN" keygen away.key)
mkdir files && truncate -s 200M files/file
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
ip netns exec server python3 -m http.server 8000 --directory files > server.log 2>&1 &
for _ in $(seq 200); do ip netns exec server ss -Htln 'sport = :8000' | grep -q . && break; sleep 0.05; done
# downloads TCP: $size is what arrives in ten seconds through two nodes with these settings, $controls what `ss` says of their leg.
downloads() {
  printf 'name = "home"
key_file = "home.key"
%s
[listen.socks]
kind = "socks5"
address = "0.0.0.0:1080"
open = true
[peer.away]
address = "away:7000"
fingerprint = "%s"
[[route]]
to = ["*"]
via = ["away"]
' "$1" "$away" > home.toml
  printf 'name = "away"
key_file = "away.key"
%s
[listen.leg]
kind = "leg"
address = "0.0.0.0:7000"
nodes = { home = "%s" }
[exit]
allow = ["*"]
' "$1" "$home" > away.toml
  local nodes=()
  rm -f home.out away.out
  for node in home away; do
    ip netns exec $node "$EKIDEN" proxy -c $node.toml > $node.out 2> $node.log &
    nodes+=($!)
    for _ in $(seq 100); do grep -q ready $node.out && break; sleep 0.1; done
  done
  curl -s -o /dev/null -w '%{size_download}' --max-time 10 --socks5-hostname home:1080 http://server:8000/file > size &
  local curl=$!
  # What each node has last, while curl runs: at first an accepted connection has the listener's. On a busy machine a look takes long.
  local -A last=()
  while kill -0 $curl 2> /dev/null; do
    for node in home away; do
      local seen=$(ip netns exec $node ss -Htin state established '( sport = :7000 or dport = :7000 )' | { grep -o 'cubic\|ekiden_far' || true; } | sort -u)
      [ -z "$seen" ] || last[$node]=$seen
    done
    sleep 0.2
  done
  controls="${last[away]:-none} ${last[home]:-none}"
  wait $curl || true
  size=$(cat size)
  kill "${nodes[@]}"
  wait "${nodes[@]}" || true
}
downloads ''
echo "by default: $size bytes, $controls" >&2
[ "$controls" = "ekiden_far ekiden_far" ] && [ "$size" -gt 12000000 ] || { cat home.log away.log >&2; exit 1; }
downloads '[tcp]
congestion = "kernel"'
echo "the kernel's: $size bytes, $controls" >&2
[ "$controls" = "cubic cubic" ] && [ "$size" -lt 12000000 ]
"#;

/// 19.1 Mbit/s of payload are left of the radio network. The beginning counts.
fn radio() -> Result<(), Failed> {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/radio.toml");
    for (run, least) in [(&["simulate"][..], 17.0), (&["lab", "run"], 14.0)] {
        let mut command = Command::new(EKIDEN);
        let record = done(command.args(run).args([scenario, "--record", "/dev/null", "--json"]))?;
        let record: Value = serde_json::from_str(&record)?;
        let mbit = |flow: usize| record["flows"][flow]["goodput_bit_s"].as_f64().unwrap_or_default() / 1e6;
        let (direct, relayed) = (mbit(0), mbit(1));
        ensure(relayed > least && relayed > 5.0 * direct, || format!("{run:?}: {relayed} instead of {direct} Mbit/s"))?;
    }
    Ok(())
}

fn done(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.success(), || format!("{command:?}: {}: {said}", output.status))?;
    Ok(String::from_utf8(output.stdout)?)
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(message().into()) }
}
