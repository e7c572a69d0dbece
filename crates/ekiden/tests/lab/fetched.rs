//! Files that the receiver fetches, through ekiden and through other programs.

use std::fs;
use std::process::Command;

use ekiden_record::{Outcome, Record};
use libtest_mimic::Failed;

use super::ensure;
use super::place::Place;
use crate::balancers::peers;

const SIZE: u64 = 3_000_000;

fn place(program: &str, fetch: &str, via: &str) -> Result<Place, Failed> {
    Place::from(&format!(
        r#"
name = "fetched"
[node.server]
[node.p]
kind = "proxy"
copies = 2
program = "{program}"
[node.client]
[link.land]
ends = ["server", "p-0"]
rate = "100Mbit/s"
delay = "1ms"
[link.sea]
ends = ["p-0", "p-1"]
rate = "100Mbit/s"
delay = "5ms"
[link.lan]
ends = ["p-1", "client"]
rate = "100Mbit/s"
[flow.file]
from = "server"
to = "client"
{via}
bytes = "{SIZE}B"
fetch = "{fetch}"
"#
    ))
}

/// With the programs that bench/load/relay/peers has unpacked.
fn with_peers(mut command: Command) -> Command {
    let paths = [peers().join("usr/sbin"), "/usr/bin".into(), "/bin".into()];
    let libraries = peers().join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    command.env("PATH", std::env::join_paths(paths).unwrap_or_default()).env("LD_LIBRARY_PATH", libraries);
    command
}

/// Every byte is compared. What each relays is seen by its links: nothing of the file goes past the proxies.
pub fn whole() -> Result<(), Failed> {
    let chain = "via = [\"p-0\", \"p-1\"]";
    let ways = [
        ("ekiden", "http", ""),
        ("ekiden", "ftp", ""),
        ("ekiden", "http", chain),
        ("ekiden", "ftp", chain),
        ("ekiden", "socks", chain),
        ("dante", "socks", chain),
        ("squid", "http", chain),
        ("squid", "ftp", chain),
    ];
    for (program, fetch, via) in ways {
        let file = ["dante", "squid"].contains(&program).then(|| peers().join("usr/sbin").join(binary(program)));
        if file.is_some_and(|file| !file.is_file()) {
            eprintln!("not tried: no {program} in {0} (bench/load/relay/peers {0} fetches it)", peers().display());
            continue;
        }
        let place = place(program, fetch, via)?;
        let record = place.record_file();
        let output = with_peers(place.lab(&["run", "--record"])).arg(&record).output()?;
        let said = || format!("{program}, {fetch}: {}", String::from_utf8_lossy(&output.stderr));
        ensure(output.status.success(), said)?;
        let flow = Record::read(&record)?.flows.remove(0);
        ensure((&flow.outcome, flow.received_bytes) == (&Outcome::Complete, SIZE), || format!("{flow:?}"))?;
        // The sender's own connection ends at the proxy beside it, 2 ms away, or at the client, 12 ms away. The lab is exact to 0.2 ms,
        // and the kernel to 1 ms where it sent a segment again: then it knows the time by TCP's time stamps alone.
        let least = if via.is_empty() { 10_800 } else { 800 };
        let rtt = flow.rtt_min_us.ok_or("no round trip")?;
        ensure((least..least + 9_000).contains(&rtt), || format!("{program}, {fetch}: {rtt} us"))?;
    }
    Ok(())
}

fn binary(program: &str) -> &str {
    if program == "dante" { "danted" } else { program }
}

pub fn missing() -> Result<(), Failed> {
    let place = place("dante", "socks", "via = [\"p-0\", \"p-1\"]")?;
    if ["/usr/sbin/danted", "/usr/local/sbin/danted", "/sbin/danted"]
        .iter()
        .any(|file| fs::exists(file).unwrap_or(false))
    {
        eprintln!("not tried: danted is installed here");
        return Ok(());
    }
    let output = place.lab(&["run"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.code() == Some(4), || format!("{:?}: {said}", output.status))?;
    let expected = "node 'p-0': there is no 'danted' in PATH or /usr/sbin; Debian's package dante-server has it";
    ensure(said.contains(expected), || said.to_string())
}
