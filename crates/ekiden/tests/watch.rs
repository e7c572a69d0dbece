//! `ekiden measure watch` from outside: real programs' connections, on loopback and over paths of the lab.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");

/// A path on which one thing limits a sender.
struct Case {
    what: &'static str,
    /// Settings of TCP at the client and at the server.
    nodes: [&'static str; 2],
    line: &'static str,
    /// What receives and what sends.
    programs: [&'static str; 2],
    /// What the limit is called.
    limit: &'static str,
}

const CASES: &[Case] = &[
    Case {
        what: "a program that writes slowly",
        nodes: ["", ""],
        line: FAST,
        programs: [IPERF_SERVER, "iperf3 -c server -t 3 -b 2M"],
        limit: "application",
    },
    Case {
        what: "a receiver that reads slowly",
        nodes: ["", ""],
        line: FAST,
        programs: [SLOW_READER, "timeout 3 nc server 5201 </dev/zero"],
        limit: "receive_window",
    },
    Case {
        what: "a small receive buffer",
        nodes: ["", ", receive_buffer = \"64KiB\""],
        line: FAST,
        programs: [IPERF_SERVER, BULK],
        limit: "receive_window",
    },
    Case {
        what: "a small send buffer over a long path",
        nodes: [", send_buffer = \"64KiB\"", ""],
        line: FAST,
        programs: [IPERF_SERVER, BULK],
        limit: "send_buffer",
    },
    Case { what: "a full line", nodes: ["", ""], line: SLOW, programs: [IPERF_SERVER, BULK], limit: "path" },
    Case {
        what: "a line that loses packets",
        nodes: ["", ""],
        line: LOSSY,
        programs: [IPERF_SERVER, BULK],
        limit: "path",
    },
];
const FAST: &str = "rate = \"100Mbit/s\"\ndelay = \"25ms\"\nqueue = \"1MB\"";
const SLOW: &str = "rate = \"10Mbit/s\"\ndelay = \"10ms\"\nqueue = \"50KB\"";
const LOSSY: &str = "rate = \"100Mbit/s\"\ndelay = \"10ms\"\nqueue = \"1MB\"\nloss = \"2%\"";
const IPERF_SERVER: &str = "iperf3 -s -1";
const BULK: &str = "iperf3 -c server -t 3";
const SLOW_READER: &str = "python3 -c \"
import socket, time
peer, _ = socket.create_server(('', 5201)).accept()
while peer.recv(20000): time.sleep(0.05)\"";
/// Starts the receiver, watches, and when the watch runs starts the sender.
const WATCHED: &str = "ip netns exec server sh -c \"exec $RECEIVE\" >/dev/null 2>&1 & receiver=$!
until ip netns exec server ss -tln | grep -q :5201; do sleep 0.05; done
$EKIDEN measure watch --json --to server:5201 --for 5s --csv samples.csv --picture picture.svg >seen.json & watch=$!
sh -c \"$SEND\" >/dev/null 2>&1
wait $watch; code=$?
kill $receiver 2>/dev/null
exit $code";

pub fn trials() -> Vec<Trial> {
    let is_root = crate::is_root();
    let mut trials = vec![
        Trial::test("a connection on loopback is watched from its beginning to its end", loopback),
        Trial::test("Ctrl-C ends a watch with what was seen", interrupted),
        Trial::test("connections are chosen by address, port and process", chosen),
        Trial::test("what cannot be watched is told in a line", refused),
        Trial::test("the examples in the documentation work", documented),
    ];
    trials.extend(CASES.iter().map(|case| {
        Trial::test(format!("{}: {}", case.what, case.limit), || limited(case)).with_ignored_flag(!is_root)
    }));
    trials
}

/// The sender's greatest share is the limit, and more than half of all.
fn limited(case: &Case) -> Result<(), Failed> {
    let Case { nodes, line, programs, limit, .. } = case;
    let folder = tempfile::tempdir()?;
    let [client, server] = nodes.map(|more| format!("tcp = {{ congestion = \"reno\"{more} }}"));
    let scenario = format!(
        "name = \"watched\"\n[node.client]\n{client}\n[node.server]\n{server}\n[link.line]\nends = [\"client\", \"server\"]\n\
         {line}\n[flow.none]\nfrom = \"client\"\nto = \"server\"\nbytes = \"1B\"\n"
    );
    std::fs::write(folder.path().join("watched.toml"), scenario)?;
    let output = Command::new(EKIDEN)
        .args(["lab", "shell", "watched.toml", "client", "--", "sh", "-c", WATCHED])
        .envs([("EKIDEN", EKIDEN), ("RECEIVE", programs[0]), ("SEND", programs[1])])
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .output()?;
    ensure(output.status.success(), || text(&output))?;
    let seen = lines(&std::fs::read_to_string(folder.path().join("seen.json"))?)?;
    // iperf3 has a second connection, for what the two ends have to say to each other.
    let acked = |line: &&Value| line["acked_bytes"].as_u64();
    let sender = seen.iter().filter(|line| line["kind"] == "connection").max_by_key(acked).ok_or("no connection")?;
    let share = |name: &str| sender["limits"][name].as_f64().unwrap_or_default();
    let all: f64 = ["application", "receive_window", "send_buffer", "path"].map(share).iter().sum();
    ensure((all - 1.0).abs() < 1e-9 && share(limit) > 0.5, || sender.to_string())?;
    ensure(sender["rtt_us"]["min"].as_u64() >= sender["rtt_min_us"].as_u64(), || sender.to_string())?;
    let picture = std::fs::read_to_string(folder.path().join("picture.svg"))?;
    ensure(picture.contains("cwnd (segments)") && picture.contains("smoothed RTT (ms)"), || "no picture".into())?;
    let rows = std::fs::read_to_string(folder.path().join("samples.csv"))?;
    let columns = rows.lines().map(|row| row.split(',').count());
    ensure(rows.lines().count() > 20 && columns.into_iter().all(|columns| columns == 15), || rows.clone())
}

/// Twice 100,000 bytes there and an answer back, by a connection that begins and ends while it is watched; and one that was there
/// before.
fn loopback() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let mut old = connect(&listener)?;
    old[0].write_all(&[1; 5_000])?;
    old[1].read_exact(&mut [0; 5_000])?;
    let options = ["--port", &port.to_string(), "--interval", "2ms", "--record", "seen.json", "--samples", "1000"];
    let watch = watch(&options).current_dir(folder.path()).stdout(Stdio::piped()).spawn()?;
    await_start(watch.id());
    // Each state is there for so many looks that the watch has seen it, however busy the machine is.
    let pause = || thread::sleep(Duration::from_secs(1));
    pause();
    let mut new = connect(&listener)?;
    for _ in 0..2 {
        new[0].write_all(&[1; 100_000])?;
        new[1].read_exact(&mut vec![0; 100_000])?;
        pause();
    }
    new[1].write_all(&[2; 300])?;
    new[0].read_exact(&mut [0; 300])?;
    pause();
    let there = new[0].local_addr()?;
    drop(new);
    pause();
    signal(watch.id(), "INT")?;
    let output = watch.wait_with_output()?;
    ensure(output.status.success(), || text(&output))?;
    let said = text(&output);
    for wanted in ["limited by", "record: seen.json", "late by", &format!("{there} -> 127.0.0.1:{port}")] {
        ensure(said.contains(wanted), || said.clone())?;
    }
    let record: Value = serde_json::from_str(&std::fs::read_to_string(folder.path().join("seen.json"))?)?;
    ensure(record["watch_format"] == 1 && record["late"]["samples"].as_u64() > Some(10), || record.to_string())?;
    let all = record["connections"].as_array().ok_or("no connections")?;
    ensure(all.len() == 4, || record.to_string())?;
    let sender = all.iter().find(|one| one["local"] == there.to_string()).ok_or("no sender")?;
    // The kernel counts the SYN and the FIN as bytes.
    let received = sender["received_bytes"].as_u64().unwrap_or_default();
    ensure(sender["is_open"] == false && (300..=301).contains(&received), || sender.to_string())?;
    // If the watch was late, it was there before.
    if sender["was_open"] == false {
        let acked = sender["acked_bytes"].as_u64().unwrap_or_default();
        ensure((199_999..=200_001).contains(&acked), || sender.to_string())?;
    }
    let old = all.iter().find(|one| one["local"] == old[0].local_addr().unwrap().to_string()).ok_or("no old one")?;
    ensure(old["was_open"] == true && old["is_open"] == true && old["acked_bytes"] == 0, || old.to_string())
}

fn interrupted() -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let _both = connect(&listener)?;
    let port = listener.local_addr()?.port().to_string();
    for name in ["INT", "TERM"] {
        let child = watch(&["--port", &port, "--json"]).stdout(Stdio::piped()).spawn()?;
        signal(child.id(), name)?;
        let output = child.wait_with_output()?;
        ensure(output.status.success(), || text(&output))?;
        let seen = lines(&String::from_utf8_lossy(&output.stdout))?;
        let kinds: Vec<_> = seen.iter().map(|line| line["kind"].as_str().unwrap_or_default()).collect();
        ensure(kinds == ["connection", "connection", "watch"], || text(&output))?;
    }
    Ok(())
}

fn chosen() -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let both = connect(&listener)?;
    let [client, server] = [both[0].local_addr()?.to_string(), both[1].local_addr()?.to_string()];
    let own = std::process::id().to_string();
    for (options, locals) in [
        (&["--to", &server][..], vec![&client]),
        (&["--from", &server, "--to", &client], vec![&server]),
        (&["--from", "localhost", "--to", &server, "--pid", &own], vec![&client]),
    ] {
        let output = watch(&[options, &["--json", "--for", "50ms"]].concat()).output()?;
        ensure(output.status.success(), || text(&output))?;
        let seen = lines(&String::from_utf8_lossy(&output.stdout))?;
        let found: Vec<_> = seen.iter().filter_map(|line| line["local"].as_str()).collect();
        ensure(found == locals, || format!("{options:?}: {found:?}"))?;
    }
    // A process that has none.
    let mut other = Command::new("sleep").arg("60").spawn()?;
    let pid = other.id().to_string();
    let output = watch(&["--pid", &pid, "--for", "50ms"]).output();
    other.kill()?;
    other.wait()?;
    told(&output?, 1, "no TCP connection was seen in ")
}

fn refused() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("there.csv"), "")?;
    for (options, code, why) in [
        (&["--to", "192.0.2.1"][..], 1, "no TCP connection was seen in "),
        (&["--to", "192.0.2.1:0"], 2, "'192.0.2.1:0': the port must be a number from 1 to 65535"),
        (&["--to", "server:0"], 2, "'server:0': the port must be a number from 1 to 65535"),
        (&["--to", ":80"], 2, "a host is missing"),
        (&["--port", "0"], 2, "0 is not a whole number from 1 to 65535"),
        (&["--interval", "10us"], 2, "at least 1ms"),
        (&["--interval", "20"], 2, "invalid value '20'"),
        (&["--pid", "4294967295"], 2, "there is no process 4294967295"),
        (&["--to", "name.invalid"], 5, "cannot find 'name.invalid'"),
        (&["--csv", "there.csv"], 3, "there.csv: is there already"),
        (&["--picture", "/proc/no/picture.svg"], 3, "/proc/no/picture.svg: cannot be written"),
        (&["--port", "1", "--csv", "new.csv"], 1, "no TCP connection was seen in "),
    ] {
        let output = watch(&[options, &["--for", "30ms"]].concat()).current_dir(folder.path()).output()?;
        told(&output, code, why)?;
    }
    let left = std::fs::read_dir(folder.path())?.count();
    ensure(left == 1, || format!("{left} files"))
}

/// Every call in the guide, for a shorter time, with a connection to watch.
fn documented() -> Result<(), Failed> {
    let page = include_str!("../../../docs/guide/measure.md");
    let calls =
        page.split("```sh watch\n").skip(1).filter_map(|rest| rest.split_once("```")).flat_map(|of| of.0.lines());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut both = connect(&listener)?;
    let there = listener.local_addr()?;
    let (from, to) = (there.to_string(), there.port().to_string());
    let mut seen = 0;
    for call in calls {
        let folder = tempfile::tempdir()?;
        let call = call.replace("192.0.2.1:443", &from).replace("--port 22", &format!("--port {to}"));
        let call = call.replace("1234", &std::process::id().to_string());
        let words: Vec<&str> = call.split_whitespace().skip(1).collect();
        let mut child = Command::new(EKIDEN)
            .args(&words)
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // Data for a picture, for as long as the example lasts or until it has seen enough.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) && child.try_wait()?.is_none() {
            both[0].write_all(&[0; 1_000])?;
            both[1].read_exact(&mut [0; 1_000])?;
            thread::sleep(Duration::from_millis(5));
        }
        if child.try_wait()?.is_none() {
            signal(child.id(), "INT")?;
        }
        let output = child.wait_with_output()?;
        ensure(output.status.success(), || format!("{call}: {}", text(&output)))?;
        for file in words.iter().filter(|word| word.ends_with(".csv") || word.ends_with(".svg")) {
            ensure(folder.path().join(Path::new(file)).exists(), || format!("{call}: no {file}"))?;
        }
        seen += 1;
    }
    ensure(seen >= 4, || format!("found only {seen}"))
}

fn watch(options: &[&str]) -> Command {
    let mut command = Command::new(EKIDEN);
    command.args(["measure", "watch"]).args(options);
    command
}

/// Both ends of a new connection: the one that connects, and the one that accepts.
fn connect(listener: &TcpListener) -> Result<[TcpStream; 2], Failed> {
    let client = TcpStream::connect(listener.local_addr()?)?;
    Ok([client, listener.accept()?.0])
}

/// Sends a signal, when the watch has said that it takes signals itself.
fn signal(pid: u32, name: &str) -> Result<(), Failed> {
    await_start(pid);
    ensure(Command::new("kill").args([format!("-{name}"), pid.to_string()]).status()?.success(), || "no kill".into())
}

/// Until a watch has said that it takes signals itself, just before its first look.
fn await_start(pid: u32) {
    let is_ready = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 << 1 != 0)
    };
    let begun = Instant::now();
    while !is_ready() && begun.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(5));
    }
}

fn lines(text: &str) -> Result<Vec<Value>, Failed> {
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// One clear line, and the exit code.
fn told(output: &Output, code: i32, why: &str) -> Result<(), Failed> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure(output.status.code() == Some(code) && said.contains(why), || format!("{code}, {why}: {}", text(output)))?;
    // clap's own messages have a hint below.
    ensure(code == 2 || said.lines().count() == 1, || said.clone())
}

fn text(output: &Output) -> String {
    let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
    format!("{}\n{}", output.status, said.concat())
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(message().into()) }
}
