//! Over lines of the lab.

use std::path::Path;
use std::process::{Command, Output};

use libtest_mimic::Failed;
use serde_json::Value;

use super::{EKIDEN, contains, ensure, folder, said};

/// Runs a client in the lab, at the end of a line, with a server at the other.
const ON_LINE: &str =
    "ip netns exec server $EKIDEN measure server --open 1GB --listen 10.77.0.2:7100 >listening 2>/dev/null & server=$!
until grep -q listening listening; do sleep 0.05; done
$EKIDEN measure $CALL; code=$?
kill $server
exit $code";

fn on_line(folder: &Path, line: &str, call: &str) -> Result<Output, Failed> {
    let tcp = "congestion = \"reno\"\nreceive_buffer = \"64MiB\"\nsend_buffer = \"64MiB\"";
    let scenario = format!(
        "name = \"measured\"\n[tcp]\n{tcp}\n[node.client]\n[node.server]\n[link.line]\nends = [\"client\", \"server\"]\n{line}\n\
         [flow.none]\nfrom = \"client\"\nto = \"server\"\nbytes = \"1B\"\n"
    );
    std::fs::write(folder.join("measured.toml"), scenario)?;
    Ok(Command::new(EKIDEN)
        .args(["lab", "shell", "measured.toml", "client", "--", "sh", "-c", ON_LINE])
        .envs([("EKIDEN", EKIDEN), ("CALL", call)])
        .env("TMPDIR", folder)
        .current_dir(folder)
        .output()?)
}

/// What is stated is so in each of these measurements, however busy the machine is. One of them must state all, or each says that an
/// end looked late.
pub fn path() -> Result<(), Failed> {
    let mut missing = Vec::new();
    for _ in 0..5 {
        let (found, said) = path_once()?;
        match ["forth", "back"].into_iter().find_map(|way| not_stated(&found, way)) {
            None => return Ok(()),
            Some(what) => missing.push((what, format!("{found}{said}").contains("an end looked up to"))),
        }
    }
    ensure(missing.iter().all(|(_, late)| *late), || format!("not stated, and whether an end was late: {missing:?}"))
}

/// What the record of this way does not state.
fn not_stated(found: &Value, way: &str) -> Option<String> {
    let kinds =
        [("rate_bit_s", "observed"), ("buffer_bytes", "observed"), ("drop_tail", "yes"), ("policer_bit_s", "absent")];
    let missing = kinds.iter().find(|(what, kind)| found[way][*what]["kind"] != *kind)?;
    Some(format!("{way}: {}: {}", missing.0, found[way][missing.0]))
}

/// What was measured, and what was said meanwhile.
fn path_once() -> Result<(Value, String), Failed> {
    let folder = folder()?;
    let line = "rate = \"20Mbit/s\"\ndelay = \"20ms\"\nqueue = \"100KB\"";
    let output = on_line(folder.path(), line, "path 10.77.0.2 --open --json --record path.json")?;
    ensure(output.status.success(), || said(&output))?;
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let written: Value = serde_json::from_slice(&std::fs::read(folder.path().join("path.json"))?)?;
    ensure(written == found, || "the record is not what was printed".into())?;
    for way in ["forth", "back"] {
        for (what, truth) in [("rate_bit_s", 20e6), ("buffer_bytes", 100e3)] {
            is_true(&found[way][what], truth).map_err(|why| format!("{way}: {what}: {why}"))?;
        }
        ensure(found[way]["drop_tail"]["kind"] != "no", || format!("{way}: {}", found[way]["drop_tail"]))?;
        ensure(found[way]["policer_bit_s"]["kind"] != "observed", || {
            format!("{way}: {}", found[way]["policer_bit_s"])
        })?;
        // Ten products of 100 KB, and what is under way when that is noticed; twice that where a host was late and BBR had to tell.
        let sent = found[way]["sent_bytes"].as_u64().unwrap_or(u64::MAX);
        let loads = said(&output).matches(&format!("loading the way {way} ")).count() as u64;
        ensure((1..=2).contains(&loads) && sent < loads * 1_300_000, || format!("{way}: {sent} bytes were sent"))?;
    }
    let rtt = found["rtt_us"]["value"].as_f64().unwrap_or_default();
    ensure((39_000.0..43_000.0).contains(&rtt), || format!("{rtt}"))?;
    Ok((found, said(&output)))
}

/// Whether a finding agrees with what is so: what is observed within its bounds, and to a quarter; what is a bound on its side.
fn is_true(finding: &Value, truth: f64) -> Result<(), String> {
    let number = |key: &str| finding[key].as_f64().unwrap_or(f64::NAN);
    let holds = match finding["kind"].as_str().unwrap_or_default() {
        "observed" => (number("low")..=number("high")).contains(&truth) && (number("value") / truth - 1.0).abs() < 0.25,
        "at_least" => number("value") < truth * 1.05,
        "at_most" => number("value") > truth * 0.95,
        kind => kind == "not_observable",
    };
    if holds { Ok(()) } else { Err(finding.to_string()) }
}

/// However many streams there are, they carry no more than the line: never until the end of a tenth of a second, and in none of them where
/// the receiver was not held up. It has three tries for that.
pub fn many() -> Result<(), Failed> {
    let mut greatest = Vec::new();
    for _ in 0..3 {
        let tenths = tenths_of_many()?;
        let mut carried = 0.0;
        for (number, bytes) in (1..).zip(&tenths) {
            carried += bytes;
            let may_be = f64::from(number) * TENTH + STOOD;
            ensure(carried < may_be, || format!("{carried} bytes in {number} tenths of a second"))?;
        }
        let most = tenths.into_iter().fold(0.0, f64::max);
        if most < TENTH + STOOD {
            return Ok(());
        }
        greatest.push(most);
    }
    Err(format!("{greatest:?} bytes in a tenth of a second").into())
}

/// What a line of 20 Mbit/s carries in a tenth of a second.
const TENTH: f64 = 20e6 / 80.0;
/// What may stand in the queue and on the way before the first byte comes.
const STOOD: f64 = 200e3;

/// What 64 streams carried in each tenth of a second.
fn tenths_of_many() -> Result<Vec<f64>, Failed> {
    let folder = folder()?;
    let line = "rate = \"20Mbit/s\"\ndelay = \"20ms\"\nqueue = \"100KB\"";
    let call = "client 10.77.0.2 --open --streams 64 --time 2s --way back --json";
    let output = on_line(folder.path(), line, call)?;
    ensure(output.status.success(), || said(&output))?;
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let load = &found["loads"][0];
    let goodput = load["goodput_bit_s"].as_f64().unwrap_or_default();
    ensure((5e6..20e6).contains(&goodput), || format!("{goodput}"))?;
    let tenths = load["tenths_bytes"].as_array().ok_or("no tenths")?;
    Ok(tenths.iter().filter_map(Value::as_f64).collect())
}

/// The first step of a new user after the demo.
pub fn readme() -> Result<(), Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).ok_or("no root")?;
    let page = std::fs::read_to_string(root.join("README.md"))?;
    let rest = page.split_once("```sh measured\n").ok_or("README.md has no such example")?.1;
    let script = rest.split_once("```").ok_or("it has no end")?.0;
    let programs = Path::new(EKIDEN).parent().ok_or("no folder")?.display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH")?);
    let run = || -> Result<String, Failed> {
        let folder = folder()?;
        std::os::unix::fs::symlink(root.join("scenarios"), folder.path().join("scenarios"))?;
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env("PATH", &path).env("TMPDIR", folder.path());
        let shell = shell.current_dir(folder.path()).output()?;
        ensure(shell.status.success(), || said(&shell))?;
        Ok(String::from_utf8(shell.stdout)?.replace('\n', " "))
    };
    // On a busy machine it may see less of the path, and says so. It has five tries.
    let mut printed = run()?;
    for _ in 0..4 {
        if ["an end looked up to", "the rate was not seen"].iter().any(|said| printed.contains(said)) {
            printed = run()?;
        }
    }
    let (_, rest) = printed.split_once("2 proxies beside the hosts would give ").ok_or_else(|| printed.clone())?;
    let rate: f64 = rest.split(' ').next().unwrap_or_default().parse()?;
    // A line of 100 Mbit/s, as it was measured.
    ensure((70.0..140.0).contains(&rate), || printed.clone())?;
    contains(&printed, "the hosts' window bounds the direct connection")
}

pub fn record_in_the_way() -> Result<(), Failed> {
    let folder = folder()?;
    std::fs::write(folder.path().join("path.json"), "mine")?;
    let line = "rate = \"20Mbit/s\"\ndelay = \"20ms\"\nqueue = \"100KB\"";
    let output = on_line(folder.path(), line, "path 10.77.0.2 --open --record path.json")?;
    ensure(output.status.code() == Some(3), || said(&output))?;
    ensure(std::fs::read(folder.path().join("path.json"))? == b"mine", || "it was replaced".into())
}
