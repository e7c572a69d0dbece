//! `ekiden measure` between a server and a client, on loopback and over lines of the lab.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use tempfile::TempDir;

mod lines;

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");

type Test = fn() -> Result<(), Failed>;

pub fn trials() -> Vec<Trial> {
    let is_root = crate::is_root();
    let mut trials = vec![
        Trial::test("a load by bytes arrives whole, in each direction and both at once", by_bytes),
        Trial::test("a load by time is written as a record with its series", by_time),
        Trial::test("several values make a table", sweep),
        Trial::test("sentences and notes fit the terminal, unless --wide is said", fits),
        Trial::test("nodes are known by their keys, of a configuration or of the command line", keys),
        Trial::test("who is not known, and what is no server, is told in a line", refused),
        Trial::test("an open server keeps to its limit", limited),
        Trial::test("one measures at a time", busy),
        Trial::test("a connection that belongs to no measurement gets nothing", stranger),
        Trial::test("a client that is killed frees the server", killed),
        Trial::test("a plain iperf3 server is measured in both directions", iperf3),
    ];
    let on_lines: [(&str, Test); 4] = [
        ("the README's path is measured, and a plan follows", lines::readme),
        ("a path's rate, round trip and buffer are found", lines::path),
        ("many streams carry no more than the line", lines::many),
        ("a record of a path is refused where it is in the way, before anything is sent", lines::record_in_the_way),
    ];
    trials.extend(on_lines.map(|(name, trial)| Trial::test(name, trial).with_ignored_flag(!is_root)));
    trials
}

/// A server on loopback, which ends with this.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, arguments: &[&str]) -> Result<Self, Failed> {
        let mut child = Command::new(EKIDEN)
            .args(["measure", "server", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on ").ok_or("it does not listen")?.into();
        Ok(Self { child, address })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(folder: &Path, arguments: &[&str]) -> Result<Output, Failed> {
    Ok(Command::new(EKIDEN).args(["measure", "client"]).args(arguments).current_dir(folder).output()?)
}

/// What it prints as JSON.
fn measured(folder: &Path, arguments: &[&str]) -> Result<Value, Failed> {
    let output = client(folder, arguments)?;
    ensure(output.status.success(), || said(&output))?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The last line of a failure with this exit code.
fn failed(folder: &Path, arguments: &[&str], code: i32) -> Result<String, Failed> {
    let output = client(folder, arguments)?;
    let said = said(&output);
    ensure(output.status.code() == Some(code), || format!("{arguments:?}: {:?}: {said}", output.status))?;
    Ok(said.lines().last().unwrap_or_default().into())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ensure(holds: bool, or: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(or().into()) }
}

fn contains(text: &str, part: &str) -> Result<(), Failed> {
    ensure(text.contains(part), || format!("{part:?} is not in {text:?}"))
}

fn folder() -> Result<TempDir, Failed> {
    Ok(tempfile::tempdir()?)
}

fn by_bytes() -> Result<(), Failed> {
    let folder = folder()?;
    let server = Server::start(folder.path(), &["--open", "1GB"])?;
    for (way, ways) in [("forth", 1), ("back", 1), ("both", 2)] {
        for streams in ["1", "3"] {
            let call = [
                &server.address,
                "--open",
                "--bytes",
                "5000001B",
                "--streams",
                streams,
                "--way",
                way,
                "--json",
                "--pacing",
                "200Mbit/s",
            ];
            let found = measured(folder.path(), &call)?;
            let loads = found["loads"].as_array().ok_or("no loads")?;
            ensure(loads.len() == ways, || format!("{way}: {} directions", loads.len()))?;
            for load in loads {
                ensure(load["bytes"] == 5_000_001, || format!("{way}, {streams} streams: {}", load["bytes"]))?;
                let shares = load["shares"].as_object().ok_or("no shares")?;
                let sum: f64 = shares.values().filter_map(Value::as_f64).sum();
                ensure((sum - 1.0).abs() < 1e-6, || format!("shares sum to {sum}"))?;
            }
            ensure(found["latency"]["idle"]["count"].as_u64() >= Some(5), || "no idle probes".into())?;
        }
    }
    Ok(())
}

fn by_time() -> Result<(), Failed> {
    let folder = folder()?;
    let server = Server::start(folder.path(), &["--open", "100GB"])?;
    let call =
        [&server.address, "--open", "--time", "700ms", "--pacing", "80Mbit/s", "--json", "--record", "load.json"];
    let found = measured(folder.path(), &call)?;
    let load = &found["loads"][0];
    ensure(load["duration_us"] == 700_000, || format!("{}", load["duration_us"]))?;
    let rate = load["goodput_bit_s"].as_f64().unwrap_or_default();
    ensure((40e6..90e6).contains(&rate), || format!("paced to 80 Mbit/s, and {rate} bit/s came"))?;
    let written: Value = serde_json::from_slice(&std::fs::read(folder.path().join("load.json"))?)?;
    ensure(written == found, || "the record is not what was printed".into())?;
    ensure(folder.path().join("load.samples.parquet").exists(), || "no series".into())?;
    let again = failed(folder.path(), &call, 3)?;
    contains(&again, "load.json")
}

fn fits() -> Result<(), Failed> {
    let folder = folder()?;
    let server = Server::start(folder.path(), &["--open", "100GB"])?;
    for call in [&["client", "--time", "200ms", "--pacing", "80Mbit/s"][..], &["path"]] {
        let longest = |more: &[&str]| -> Result<[usize; 2], Failed> {
            let mut ekiden = Command::new(EKIDEN);
            let arguments = [&["measure"], call, &[&server.address, "--open"], more].concat();
            let output = ekiden.args(arguments).current_dir(folder.path()).env("COLUMNS", "40").output()?;
            ensure(output.status.success(), || said(&output))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
            // Figures follow the empty line.
            Ok([longest(text.split("\n\n").next().unwrap_or_default()), longest(&said(&output))])
        };
        let (fitted, wide) = (longest(&[])?, longest(&["--wide"])?);
        ensure(fitted.iter().all(|longest| *longest <= 40), || format!("{call:?}: {fitted:?}"))?;
        ensure(wide.iter().any(|longest| *longest > 40), || format!("{call:?}: {wide:?}"))?;
    }
    Ok(())
}

fn sweep() -> Result<(), Failed> {
    let folder = folder()?;
    let server = Server::start(folder.path(), &["--open", "1GB"])?;
    let call =
        [&server.address, "--open", "--bytes", "1MB", "--data", "100B,1000B", "--streams", "1,2", "--repeat", "2"];
    let output = client(folder.path(), &call)?;
    ensure(output.status.success(), || said(&output))?;
    let table = String::from_utf8(output.stdout.clone())?;
    for point in ["streams=1 data=100", "streams=1 data=1", "streams=2 data=100"] {
        contains(&table, point)?;
    }
    contains(&said(&output), "8 measurements: at most 8.00 MB")
}

/// A key in a folder, and its fingerprint.
fn key(folder: &Path, name: &str) -> Result<String, Failed> {
    let made = Command::new(EKIDEN).args(["keygen", name]).current_dir(folder).output()?;
    Ok(String::from_utf8(made.stdout)?.trim().into())
}

fn keys() -> Result<(), Failed> {
    let folder = folder()?;
    let (city, island) = (key(folder.path(), "city.key")?, key(folder.path(), "island.key")?);
    let node = format!("island={island}");
    let server = Server::start(folder.path(), &["--key", "city.key", "--node", &node])?;
    let call = [&server.address, "--key", "island.key", "--fingerprint", &city, "--bytes", "1MB", "--json"];
    let found = measured(folder.path(), &call)?;
    ensure(found["loads"][0]["bytes"] == 1_000_000, || format!("{found}"))?;
    // The same by the nodes' configurations.
    let port = server.address.rsplit(':').next().unwrap_or_default().to_owned();
    drop(server);
    std::fs::write(
        folder.path().join("city.toml"),
        format!(
            "name = \"city\"\nkey_file = \"city.key\"\n[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n[listen.leg.nodes]\nisland = \"{island}\"\n"
        ),
    )?;
    std::fs::write(
        folder.path().join("island.toml"),
        format!(
            "name = \"island\"\nkey_file = \"island.key\"\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n[peer.city]\naddress = \"127.0.0.1:7000\"\nfingerprint = \"{city}\"\n[[route]]\nto = [\"*\"]\nvia = [\"city\"]\n"
        ),
    )?;
    let server = Server::start(folder.path(), &["-c", "city.toml"])?;
    let port = server.address.rsplit(':').next().unwrap_or(&port);
    let at = format!("city:{port}");
    let found = measured(folder.path(), &[&at, "-c", "island.toml", "--bytes", "1MB", "--json"])?;
    ensure(found["loads"][0]["bytes"] == 1_000_000, || format!("{found}"))?;
    let unknown = failed(folder.path(), &["town", "-c", "island.toml"], 3)?;
    contains(&unknown, "no peer is called 'town'; there are: city")
}

fn refused() -> Result<(), Failed> {
    let folder = folder()?;
    let (city, island) = (key(folder.path(), "city.key")?, key(folder.path(), "island.key")?);
    key(folder.path(), "other.key")?;
    let node = format!("island={island}");
    let server = Server::start(folder.path(), &["--key", "city.key", "--node", &node])?;
    let with = |key, print| [&server.address, "--key", key, "--fingerprint", print, "--bytes", "1MB"];
    contains(&failed(folder.path(), &with("other.key", &city), 5)?, "does not know this client's key")?;
    contains(&failed(folder.path(), &with("island.key", &island), 5)?, &city)?;
    contains(
        &failed(folder.path(), &[&server.address, "--open", "--bytes", "1MB"], 5)?,
        "it serves nodes whose keys it knows",
    )?;
    let open = Server::start(folder.path(), &["--open", "1GB"])?;
    let call = [&open.address, "--key", "island.key", "--fingerprint", &city, "--bytes", "1MB"];
    contains(&failed(folder.path(), &call, 5)?, "is an open server, which takes no keys")?;
    // Nobody, and somebody else.
    let free = TcpListener::bind("127.0.0.1:0")?;
    let address = free.local_addr()?.to_string();
    let other = thread::spawn(move || {
        let (mut socket, _) = free.accept()?;
        socket.write_all(b"220 mail.example ESMTP\r\n")?;
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest)
    });
    contains(&failed(folder.path(), &[&address, "--open", "--bytes", "1MB"], 5)?, "is not a measuring server")?;
    let _ = other.join();
    contains(
        &failed(folder.path(), &[&address, "--open", "--bytes", "1MB"], 5)?,
        "is `ekiden measure server` running there",
    )?;
    // What cannot be asked for.
    contains(
        &failed(folder.path(), &[&open.address, "--open", "--congestion", "no such"], 2)?,
        "not the name of a congestion control",
    )?;
    contains(
        &failed(folder.path(), &[&open.address, "--open", "--bytes", "1MB", "--congestion", "nosuch"], 4)?,
        "cannot measure here: congestion control 'nosuch' is not in this kernel",
    )?;
    failed(folder.path(), &[&open.address], 2)?;
    Ok(())
}

fn limited() -> Result<(), Failed> {
    let folder = folder()?;
    let server = Server::start(folder.path(), &["--open", "2MB"])?;
    let more = failed(folder.path(), &[&server.address, "--open", "--bytes", "3MB"], 5)?;
    contains(&more, "a load of 3000000 bytes, where this server allows 2000000")?;
    let long = failed(folder.path(), &[&server.address, "--open", "--bytes", "1MB", "--time", "61s"], 5)?;
    contains(&long, "allows 60 s")?;
    // By time it sends no more, either.
    for way in ["forth", "back"] {
        let call = [&server.address, "--open", "--time", "1s", "--way", way, "--json"];
        let output = client(folder.path(), &call)?;
        contains(&said(&output), &format!("the limit of the server ended the load {way}"))?;
        let found: Value = serde_json::from_slice(&output.stdout)?;
        ensure(found["loads"][0]["bytes"] == 2_000_000, || format!("{}", found["loads"][0]["bytes"]))?;
        let own = client(folder.path(), &[&call[..], &["--limit", "1MB"]].concat())?;
        contains(&said(&own), &format!("--limit or --bytes ended the load {way}"))?;
    }
    Ok(())
}

fn busy() -> Result<(), Failed> {
    let folder = folder()?;
    let server = Server::start(folder.path(), &["--open", "100GB"])?;
    let call = [&server.address, "--open", "--time", "3s", "--pacing", "10Mbit/s"];
    let start = || {
        let mut first = Command::new(EKIDEN);
        first.args(["measure", "client"]).args(call).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let mut first = start()?;
    // The first has its place as soon as a second is refused.
    let mut second = String::new();
    for _ in 0..50 {
        let output = client(folder.path(), &[&server.address, "--open", "--bytes", "1MB"])?;
        second = said(&output);
        if output.status.code() == Some(5) {
            break;
        }
        // The second was there before the first, which was refused.
        if first.try_wait()?.is_some() {
            first = start()?;
        }
    }
    contains(&second, "is busy: another measurement is under way")?;
    ensure(first.wait()?.success(), || "the first was disturbed".into())
}

fn stranger() -> Result<(), Failed> {
    let folder = folder()?;
    let server = Server::start(folder.path(), &["--open", "1GB"])?;
    let mut socket = TcpStream::connect(&server.address)?;
    let mut preamble = b"EKD1".to_vec();
    preamble.extend([7; 16]);
    preamble.extend([2, 0, 0]);
    socket.write_all(&preamble)?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut got = Vec::new();
    let _ = socket.read_to_end(&mut got);
    ensure(got.is_empty(), || format!("{} bytes", got.len()))?;
    // It goes on.
    let found = measured(folder.path(), &[&server.address, "--open", "--bytes", "1MB", "--json"])?;
    ensure(found["loads"][0]["bytes"] == 1_000_000, || format!("{found}"))
}

fn killed() -> Result<(), Failed> {
    let folder = folder()?;
    let server = Server::start(folder.path(), &["--open", "100GB"])?;
    let call = [&server.address, "--open", "--time", "60s", "--way", "both", "--pacing", "10Mbit/s"];
    let mut first = Command::new(EKIDEN)
        .args(["measure", "client"])
        .args(call)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    thread::sleep(Duration::from_secs(1));
    first.kill()?;
    first.wait()?;
    // The server notices at once: no sooner than it looks.
    for _ in 0..50 {
        if client(folder.path(), &[&server.address, "--open", "--bytes", "1MB"])?.status.success() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    Err("the server is still busy".into())
}

fn iperf3() -> Result<(), Failed> {
    let folder = folder()?;
    for way in ["forth", "back"] {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut server = Command::new("iperf3").args(["-s", "-1", "-p", &port]).stdout(Stdio::null()).spawn()?;
        let address = format!("127.0.0.1:{port}");
        let call = [&address, "--iperf3", "--time", "1s", "--way", way, "--json", "--limit", "100GB"];
        let mut found = client(folder.path(), &call)?;
        // It may not listen yet.
        for _ in 0..100 {
            if found.status.success() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
            found = client(folder.path(), &call)?;
        }
        ensure(found.status.success(), || said(&found))?;
        server.wait()?;
        let found: Value = serde_json::from_slice(&found.stdout)?;
        let load = &found["loads"][0];
        ensure(load["way"] == way && load["bytes"].as_u64() > Some(1_000_000), || format!("{load}"))?;
    }
    let nobody = failed(folder.path(), &["127.0.0.1:1", "--iperf3", "--time", "1s"], 5)?;
    contains(&nobody, "127.0.0.1:1")?;
    failed(folder.path(), &["127.0.0.1:1", "--iperf3", "--mss", "1000B"], 2).map(|_| ())
}
