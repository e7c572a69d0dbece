//! `ekiden measure client --window` over a path of the lab, and a lab's window that is not scaled: no more is advertised or in flight than was
//! asked for, and no less than whole segments fill but for one or two.

use std::process::Command;

use libtest_mimic::{Failed, Trial};

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");
const SCENARIO: &str = r#"name = "window"
[tcp]
congestion = "reno"
window_scaling = false
timestamps = false
[node.client]
[node.server]
[link.line]
ends = ["client", "server"]
rate = "50Mbit/s"
delay = "20ms"
[flow.none]
from = "client"
to = "server"
bytes = "1B"
"#;
/// Measures, and prints what was sampled of the sender.
const MEASURE: &str = r#"ip netns exec server "$EKIDEN" measure server --open 100GB --longest 1h --listen 10.77.0.2:7100 >server.log 2>&1 &
server=$!
until grep -q listening server.log || ! kill -0 $server; do sleep 0.05; done
"$EKIDEN" measure client --open 10.77.0.2:7100 --way back --time 3s --window "$WINDOW" --mss "$DATA" --data "$DATA" --record record.json >/dev/null
code=$?
kill $server
"$EKIDEN" record export --csv record.json
exit $code"#;

pub fn trials() -> Vec<Trial> {
    let is_root = crate::is_root();
    // Small segments take several times their payload of the receive buffer.
    let sizes = [(4_096, 1_460), (16_384, 1_000), (48_000, 100)];
    let measured = sizes.map(|(window, data)| {
        let name = format!("a window of {window} bytes holds with segments of {data}");
        Trial::test(name, move || measures(window, data)).with_ignored_flag(!is_root)
    });
    let run = sizes.map(|(window, data)| {
        let name = format!("a lab's window of {window} bytes is exact with segments of {data}");
        Trial::test(name, move || runs(window, data)).with_ignored_flag(!is_root)
    });
    measured.into_iter().chain(run).collect()
}

/// A flow of the lab.
fn runs(window: u64, data: u64) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let scenario = SCENARIO
        .replace("bytes = \"1B\"", "duration = \"4s\"")
        .replace("[node.server]", &format!("[node.server]\ntcp.receive_buffer = \"{window}B\""))
        .replace("delay = ", &format!("mtu = {}\ndelay = ", data + 40));
    std::fs::write(folder.path().join("window.toml"), scenario)?;
    let said = ["lab run window.toml --record record.json", "record export --csv record.json"].map(|arguments| {
        let mut command = Command::new(EKIDEN);
        command.args(arguments.split(' ')).current_dir(folder.path()).output()
    });
    let [run, shown] = said;
    let (run, shown) = (run?, shown?);
    ensure(run.status.success(), || String::from_utf8_lossy(&run.stderr).into_owned())?;
    is_exact(&String::from_utf8_lossy(&shown.stdout), window, data)
}

fn measures(window: u64, data: u64) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("window.toml"), SCENARIO)?;
    let output = Command::new(EKIDEN)
        .args(["lab", "shell", "window.toml", "client", "--", "sh", "-c", MEASURE])
        .env("EKIDEN", EKIDEN)
        .envs([("WINDOW", format!("{window}B")), ("DATA", format!("{data}B"))])
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure(output.status.success(), || format!("{said}{}", String::from_utf8_lossy(&output.stderr)))?;
    is_exact(&said, window, data)
}

/// What was sampled of the sender has this window, and fills it.
fn is_exact(said: &str, window: u64, data: u64) -> Result<(), Failed> {
    let mut lines = said.lines();
    let head: Vec<_> = lines.next().ok_or("nothing")?.split(',').collect();
    let at = |name| head.iter().position(|column| *column == name).ok_or(format!("no column {name}"));
    let columns = [at("at_us")?, at("window_bytes")?, at("unacked_segments")?];
    let rows = lines.map(|line| {
        let cells: Vec<_> = line.split(',').collect();
        columns.map(|column| cells[column].parse::<u64>().unwrap_or_default())
    });
    // The kernel sets windows anew when the first segments come, until the receiver sees it.
    let settled: Vec<_> = rows.filter(|[at_us, ..]| *at_us > 1_500_000).collect();
    // On a busy machine Linux 6.18 keeps a packet or two less for some connections: 47,872 bytes of 48,000 with packets of 100.
    let least = window / data * data - if data <= 536 { 2 * data } else { data };
    let is_within = |[_, advertised, unacked]: &[u64; 3]| *advertised <= window && unacked * data <= window;
    // A receiver that runs late closes its window for a while.
    let exact = settled.iter().filter(|[_, advertised, _]| *advertised >= least).count();
    ensure(settled.len() > 10 && settled.iter().all(is_within) && 2 * exact > settled.len(), || {
        format!("not {least} to {window}: {settled:?}")
    })?;
    ensure(settled.iter().any(|[.., unacked]| unacked * data >= least), || format!("never {least}: {settled:?}"))
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(message().into()) }
}
