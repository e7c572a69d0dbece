//! Congestion controls in the running kernel, through the built program.
//!
//! Their names are the whole machine's, so others may hold them at the same time: what these tests expect to be gone may
//! also be held by a process that is not theirs.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

type Test = fn() -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("what is loaded is shown, can be changed, and is gone after unload", round_trip),
    ("many may load and unload at once, and nothing stays", many_at_once),
    ("a name stays while one of two nodes lives, also if the other is killed", two_nodes),
    ("a reload takes what was loaded meanwhile", reload),
    ("parameters of a node that comes later do not replace those in force", other_parameters),
    ("a node that may not load uses what is loaded", uses_what_is_loaded),
    ("a node whose congestion control is unloaded goes on with the fallback", unloaded_meanwhile),
    ("a node that may not load warns once and uses the fallback", fallback),
    ("a node that may not load and has no fallback does not start", no_fallback),
    ("without privileges every command says so in a line", unprivileged),
    ("a trace shows a transfer from start to end", trace),
];

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");
const PATIENCE: Duration = Duration::from_secs(20);
const NAMES: [&str; 3] = ["ekiden_hstcp", "ekiden_ghstcp", "ekiden_bic"];

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let trial = |&(name, test): &(&str, Test)| Trial::test(name, test).with_ignored_flag(!root);
    TESTS.iter().map(trial).collect()
}

fn round_trip() -> Result<(), Failed> {
    let (pins_before, mounts_before) = (pins(), mounts());
    let name = free_name()?;
    let key = match name {
        "ekiden_bic" => "bic.decrease",
        "ekiden_ghstcp" => "ghstcp.reno_decrease",
        // Its parameters are read by gentle HSTCP as well, which others hold here.
        _ => return Ok(()),
    };
    let loaded = done(congestion(&["load", name, "--set", &format!("{key}=0.2")]))?;
    ensure(loaded.contains(&format!("{name}: loaded; stays until")), || loaded.clone())?;
    let status = status(name)?;
    ensure(status["registered"] == true && status["pinned"] == true && status["id"].is_u64(), || status.to_string())?;
    ensure(status["parameters"][key]["value"] == 0.2, || status.to_string())?;
    let shown = done(congestion(&["status"]))?;
    ensure(shown.lines().any(|line| line.starts_with(&format!("  * {key}")) && line.contains("0.2")), || {
        shown.clone()
    })?;
    ensure(available(name), || "it is not in the kernel's list".into())?;

    let changed = done(congestion(&["set", &format!("{key}=0.25")]))?;
    ensure(changed.contains(&format!("{name}: {key} 0.2 → 0.25")), || changed.clone())?;
    let again = done(congestion(&["load", name]))?;
    ensure(again.contains(&format!("{name}: was loaded already")), || again.clone())?;
    let same = done(congestion(&["load", name, "--set", &format!("{key}=0.25")]))?;
    ensure(!same.contains("changed"), || same.clone())?;
    let other = done(congestion(&["load", name, "--set", &format!("{key}=0.3")]))?;
    ensure(other.contains(&format!("{name}: was loaded already, its parameters changed\n")), || other.clone())?;
    let of_another = congestion(&["load", name, "--set", "far.queue=0.3"]).output()?;
    refused(&of_another, 2, &format!("far.queue is a parameter of ekiden_far, not of {name}; "))?;

    let unloaded = done(congestion(&["unload", name]))?;
    let elsewhere = unloaded.contains("is held by process");
    ensure(elsewhere || unloaded.contains(&format!("{name}: unloaded; ")), || unloaded.clone())?;
    if !elsewhere {
        is_gone(name)?;
    }
    ensure(pins() == pins_before, || format!("pins left: {:?}", pins()))?;
    ensure(mounts() == mounts_before, || "the mounts have changed".into())
}

fn many_at_once() -> Result<(), Failed> {
    free_name()?;
    let (pins_before, mounts_before) = (pins(), mounts());
    for round in 0..5 {
        let load = || congestion(&["load"]).stdout(Stdio::null()).spawn();
        let unload = || congestion(&["unload"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut children = (0..3).map(|_| load()).collect::<Result<Vec<_>, _>>()?;
        for child in &mut children {
            ensure(child.wait()?.success(), || format!("a load failed in round {round}"))?;
        }
        ensure(NAMES.iter().all(|name| available(name)), || format!("round {round}: not all are there"))?;
        let mixed = [unload()?, load()?, unload()?];
        for mut child in mixed {
            child.wait()?;
        }
        // Whoever came last has loaded or not; after one more there is nothing.
        congestion(&["unload"]).output()?;
        ensure(pins() == pins_before, || format!("round {round}: {:?}", pins()))?;
        ensure(mounts() == mounts_before, || format!("round {round}: {:?}", mounts()))?;
    }
    NAMES.iter().try_for_each(|name| is_gone(name))
}

fn two_nodes() -> Result<(), Failed> {
    let name = "ekiden_hstcp";
    let mut first = Node::start(&with_tcp(name), &[])?;
    let mut second = Node::start(&with_tcp(name), &[])?;
    first.connects()?;
    second.connects()?;
    first.child.kill()?;
    first.child.wait()?;
    // Long enough for the kernel to take a name down that nobody holds.
    sleep(Duration::from_millis(500));
    second.connects()?;
    ensure(uses(name).is_ok(), || "a new connection cannot use it".into())?;
    second.ends(Signal::SIGTERM)?;
    is_gone(name)
}

fn reload() -> Result<(), Failed> {
    let text = |name| format!("[tcp]\ncongestion = \"{name}\"\n{SOCKS}tcp = {{ congestion = \"reno\" }}\n");
    let mut node = Node::start(&text("reno"), &[])?;
    fs::write(&node.file, text("ekiden_bic"))?;
    // It has given up what brings one in.
    if !available("ekiden_bic") {
        node.signal(Signal::SIGHUP)?;
        node.says("what it did not need: restart it")?;
    }
    done(congestion(&["load", "ekiden_bic"]))?;
    node.signal(Signal::SIGHUP)?;
    node.says("the configuration was read again")?;
    node.connects()?;
    node.ends(Signal::SIGTERM)?;
    done(congestion(&["unload", "ekiden_bic"]))?;
    is_gone("ekiden_bic")
}

fn other_parameters() -> Result<(), Failed> {
    let mut first = Node::start(&with_tcp("ekiden_bic"), &[])?;
    let text = with_tcp("ekiden_bic") + "[congestion.bic]\ns_max = 17.25\n";
    let mut second = Node::start(&text, &[])?;
    second.says("which stay: bic.s_max is ")?;
    ensure(second.log().matches("WARN").count() == 1, || second.log())?;
    second.connects()?;
    first.ends(Signal::SIGTERM)?;
    second.ends(Signal::SIGTERM)?;
    is_gone("ekiden_bic")
}

fn uses_what_is_loaded() -> Result<(), Failed> {
    done(congestion(&["load", "ekiden_ghstcp"]))?;
    let started = Node::start(&with_tcp("ekiden_ghstcp"), UNPRIVILEGED);
    let result = started.and_then(|mut node| {
        node.says("'ekiden_ghstcp' is used as another process has brought it into the kernel")?;
        node.connects()?;
        node.ends(Signal::SIGTERM)
    });
    done(congestion(&["unload", "ekiden_ghstcp"]))?;
    result?;
    is_gone("ekiden_ghstcp")
}

fn unloaded_meanwhile() -> Result<(), Failed> {
    let name = free_name()?;
    done(congestion(&["load", name]))?;
    let text = with_tcp("reno").replace("reno\"", &format!("{name}\"\ncongestion_fallback = \"reno\""));
    let started = Node::start(&text, UNPRIVILEGED);
    done(congestion(&["unload", name]))?;
    let mut node = started?;
    is_gone(name)?;
    ensure(!available(name), || format!("another process holds {name}; end it for this test"))?;
    node.connects()?;
    node.connects()?;
    node.says(&format!("'reno' is used while it is gone: congestion control '{name}' is not in this kernel"))?;
    ensure(node.log().matches("WARN").count() == 1, || node.log())?;
    node.ends(Signal::SIGTERM)
}

fn fallback() -> Result<(), Failed> {
    let name = free_name()?;
    let text = format!("[tcp]\ncongestion = \"{name}\"\ncongestion_fallback = \"reno\"\n{SOCKS}");
    let mut node = Node::start(&text, UNPRIVILEGED)?;
    node.says(&format!(
        "'reno' is used instead of '{name}', which is not available: eBPF congestion control needs CAP_BPF"
    ))?;
    ensure(node.log().matches("WARN").count() == 1, || node.log())?;
    node.connects()?;
    node.ends(Signal::SIGTERM)
}

fn no_fallback() -> Result<(), Failed> {
    let name = free_name()?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("node.toml");
    fs::write(&file, with_tcp(name))?;
    let output = unprivileged_command().arg("proxy").arg("-c").arg(&file).output()?;
    let line = "[tcp]: congestion";
    let reason = "is not available: eBPF congestion control needs CAP_BPF";
    refused(&output, 4, &format!("{}:3: {line} '{name}' {reason}", file.display()))
}

fn unprivileged() -> Result<(), Failed> {
    for arguments in ["load", "status", "set bic.s_max=16", "unload", "trace"] {
        let output = unprivileged_command().arg("congestion").args(arguments.split(' ')).output()?;
        refused(&output, 4, "eBPF congestion control needs CAP_BPF")?;
    }
    Ok(())
}

fn trace() -> Result<(), Failed> {
    for name in ["ekiden_ghstcp", "ekiden_far"] {
        done(congestion(&["load", name]))?;
        let result = traced(name);
        done(congestion(&["unload", name]))?;
        let events = result?;
        is_gone(name)?;
        let model = events.iter().rev().find(|event| event["event"] == "round").map(|event| &event["model"]);
        let model = model.ok_or("no round")?;
        match name {
            "ekiden_far" => {
                let known =
                    ["least_us", "carried"].iter().all(|key| model[*key].as_u64().is_some_and(|value| value > 0));
                ensure(known && model["chance"].is_number(), || model.to_string())?;
                let modes = events.iter().all(|event| event["mode"].is_string());
                ensure(modes && events[0]["mode"] == "startup", || events[0].to_string())?;
            }
            _ => ensure(model.is_null(), || model.to_string())?,
        }
    }
    Ok(())
}

/// The events of a transfer with this control.
fn traced(name: &str) -> Result<Vec<Value>, Failed> {
    let limit = Instant::now() + PATIENCE;
    let (output, local) = loop {
        let mut command = congestion(&["trace", "--json", "--duration", "3s"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        sleep(Duration::from_millis(700));
        let local = transfer(name)?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !said.contains("another trace is running") || Instant::now() > limit {
            break (output, local);
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.success() && said.ends_with(" lost\n"), || said.to_string())?;
    let text = String::from_utf8(output.stdout)?;
    let events = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let ours: Vec<_> = events.iter().filter(|event| event["local"] == local.to_string()).collect();
    let words: Vec<_> = ours.iter().filter_map(|event| event["event"].as_str()).collect();
    ensure(["start", "round", "end"].iter().all(|word| words.contains(word)), || {
        format!("{words:?} of {local}: {text}")
    })?;
    ensure(words.last() == Some(&"end"), || format!("{words:?}"))?;
    let number = &ours[0]["connection"];
    let consistent = ours.iter().all(|event| event["connection"] == *number && event["algorithm"] == name);
    ensure(consistent && number.as_u64().is_some_and(|number| number < 1_000_000), || text.clone())?;
    Ok(ours.into_iter().cloned().collect())
}

const SOCKS: &str = "[exit]\nallow = [\"127.0.0.1\"]\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n";

/// Runs a program without what eBPF needs.
const UNPRIVILEGED: &[&str] = &["setpriv", "--bounding-set=-sys_admin,-bpf,-perfmon,-net_admin"];

fn with_tcp(name: &str) -> String {
    format!("threads = 1\n[tcp]\ncongestion = \"{name}\"\n{SOCKS}")
}

/// A node that runs until it is dropped.
struct Node {
    child: Child,
    address: SocketAddr,
    file: PathBuf,
    directory: TempDir,
}

impl Node {
    /// Starts one, by `through` another program, and waits until it is ready.
    fn start(text: &str, through: &[&str]) -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("node.toml");
        fs::write(&file, text)?;
        let words: Vec<&str> = through.iter().copied().chain([EKIDEN, "proxy", "-c"]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(&file).stdout(Stdio::piped());
        let mut child = command.stderr(File::create(directory.path().join("log"))?).spawn()?;
        let output = child.stdout.take().ok_or("no stdout")?;
        let mut node = Self { child, address: (Ipv4Addr::LOCALHOST, 0).into(), file, directory };
        for line in BufReader::new(output).lines() {
            let line = line?;
            if let Some(address) = line.strip_prefix("listening socks5 ") {
                node.address = address.parse()?;
            }
            if line == "ready" {
                return Ok(node);
            }
        }
        Err(format!("the node did not start: {}", node.log()).into())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn says(&self, part: &str) -> Result<(), Failed> {
        let limit = Instant::now() + PATIENCE;
        while !self.log().contains(part) {
            ensure(Instant::now() < limit, || format!("no line with '{part}': {}", self.log()))?;
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A connection through it arrives and carries bytes; its own congestion control is set on the way.
    fn connects(&self) -> Result<(), Failed> {
        let host = TcpListener::bind("127.0.0.1:0")?;
        let mut client = TcpStream::connect(self.address)?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.write_all(&[5, 1, 0])?;
        let port = host.local_addr()?.port().to_be_bytes();
        client.read_exact(&mut [0; 2])?;
        client.write_all(&[5, 1, 0, 1, 127, 0, 0, 1, port[0], port[1]])?;
        let mut reply = [0; 10];
        client.read_exact(&mut reply)?;
        ensure(reply[1] == 0, || format!("refused with {}: {}", reply[1], self.log()))?;
        let (mut arrived, _) = host.accept()?;
        arrived.write_all(b"hello")?;
        let mut hello = [0; 5];
        client.read_exact(&mut hello)?;
        ensure(hello == *b"hello", || "other bytes arrived".into())
    }

    fn signal(&self, signal: Signal) -> Result<(), Failed> {
        Ok(kill(Pid::from_raw(self.child.id().try_into()?), signal)?)
    }

    fn ends(&mut self, signal: Signal) -> Result<(), Failed> {
        self.signal(signal)?;
        let status = self.child.wait()?;
        ensure(status.success(), || format!("{status}: {}", self.log()))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn congestion(arguments: &[&str]) -> Command {
    let mut command = Command::new(EKIDEN);
    command.arg("congestion").args(arguments);
    command
}

fn unprivileged_command() -> Command {
    let mut command = Command::new(UNPRIVILEGED[0]);
    command.args(&UNPRIVILEGED[1..]).arg(EKIDEN);
    command
}

/// What a command that succeeds prints.
fn done(mut command: Command) -> Result<String, Failed> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.success(), || format!("{command:?}: {}: {said}", output.status))?;
    Ok(String::from_utf8(output.stdout)?)
}

/// One clear line, and the exit code.
fn refused(output: &Output, code: i32, line: &str) -> Result<(), Failed> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.code() == Some(code), || format!("exit {:?}: {said}", output.status.code()))?;
    ensure(said.starts_with(&format!("ekiden: {line}")) && said.lines().count() == 1, || said.to_string())
}

fn status(name: &str) -> Result<Value, Failed> {
    let all: Value = serde_json::from_str(&done(congestion(&["status", "--json"]))?)?;
    let found = all.as_array().into_iter().flatten().find(|status| status["name"] == name);
    Ok(found.ok_or("no such name in the status")?.clone())
}

fn available(name: &str) -> bool {
    let list = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    list.split_whitespace().any(|found| found == name)
}

/// A name that nobody on this machine has registered.
fn free_name() -> Result<&'static str, Failed> {
    let limit = Instant::now() + Duration::from_secs(5);
    while Instant::now() < limit {
        if let Some(free) = NAMES.into_iter().rev().find(|name| !available(name)) {
            return Ok(free);
        }
        sleep(Duration::from_millis(100));
    }
    Err("other processes hold all of ekiden's congestion controls; end them for this test".into())
}

/// Waits until the name is gone, or held by a process that is not ours.
fn is_gone(name: &str) -> Result<(), Failed> {
    let limit = Instant::now() + Duration::from_secs(3);
    while available(name) {
        let status = status(name)?;
        let others =
            status["holders"].as_array().is_some_and(|holders| !holders.is_empty()) || status["pinned"] == true;
        if others && Instant::now() > limit {
            return Ok(());
        }
        ensure(Instant::now() < limit, || format!("{name} is still there: {status}"))?;
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Sends a few megabytes over loopback with this congestion control; returns the sender's address.
fn transfer(name: &str) -> Result<SocketAddr, Failed> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        std::io::copy(&mut stream, &mut std::io::sink())
    });
    let socket = uses(name)?;
    socket.connect(&address.into())?;
    let mut stream: TcpStream = socket.into();
    let local = stream.local_addr()?;
    for _ in 0..64 {
        stream.write_all(&[0; 1 << 16])?;
    }
    drop(stream);
    let received = receiver.join().map_err(|_| "the receiver panicked")??;
    ensure(received == 64 << 16, || format!("{received} bytes arrived"))?;
    Ok(local)
}

/// A socket with this congestion control.
fn uses(name: &str) -> std::io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_tcp_congestion(name.as_bytes())?;
    Ok(socket)
}

/// What stays of congestion controls. Folders are those of gateways, which other tests have meanwhile.
fn pins() -> Vec<PathBuf> {
    all_pins().into_iter().filter(|path| !path.is_dir()).collect()
}

fn all_pins() -> Vec<PathBuf> {
    let entries = fs::read_dir("/sys/fs/bpf/ekiden").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// All that is mounted, the file system that `load` mounts too, unless a gateway needs it.
fn mounts() -> Vec<String> {
    let is_needed = all_pins().iter().any(|path| path.is_dir());
    let all = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    all.lines().filter(|line| !is_needed || !line.contains(" /sys/fs/bpf ")).map(str::to_owned).collect()
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(message().into()) }
}
