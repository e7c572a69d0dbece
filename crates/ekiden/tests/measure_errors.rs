//! What `ekiden measure` says of wrong usage, of who is not there, and of what cannot be written; and what an open server denies strangers.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");

/// An open server on loopback, which ends with this. Its log is the file `log` in its folder.
struct Server {
    child: Child,
    address: String,
    folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        Self::start_with("1024")
    }

    /// The same with so many descriptors.
    fn start_with(descriptors: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -n $0 && exec \"$@\"", descriptors, EKIDEN])
            .args(["measure", "server", "--listen", "127.0.0.1:0", "--open", "1GB"])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().into();
        Self { child, address, folder }
    }

    /// Ends it, and what it has logged.
    fn end(mut self) -> String {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
        self.child.wait().unwrap();
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measure(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(EKIDEN).arg("measure").args(arguments).current_dir(folder).output().unwrap()
}

/// What it says when it fails with this exit code.
fn failed(folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = measure(folder, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

/// A SOCKS5 listener that refuses with `code`.
fn refusing(code: u8) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let _ = client.read_exact(&mut [0; 3]).and_then(|()| client.write_all(&[5, 0]));
            let _ = client.read_exact(&mut [0; 10]);
            let _ = client.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
        }
    });
    address
}

#[test]
fn values_out_of_range_are_told_with_the_option_and_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let client = ["client", "192.0.2.1", "--open"];
    let server = ["server", "--open", "1GB"];
    for (start, option, value, range) in [
        (client, "--sample", "2h", "in 1ms to 10s"),
        (client, "--sample", "20us", "in 1ms to 10s"),
        (client, "--time", "2h", "in 1ms to 1h"),
        (client, "--streams", "129", "a whole number from 1 to 128"),
        (client, "--data", "5GB", "in 1B to 1MiB"),
        (client, "--mss", "5GB", "in 88B to 65495B"),
        (client, "--pacing", "1bit/s", "in 8kbit/s to 1Tbit/s"),
        (client, "--bytes", "0B", "in 1B to 1024TiB"),
        (client, "--limit", "0B", "in 1B to 1024TiB"),
        (server, "--longest", "2h", "in 1s to 1h"),
        (server, "--longest", "0s", "in 1s to 1h"),
    ] {
        let said = failed(folder.path(), &[&start[..], &[option, value]].concat(), 2);
        assert!(said.contains(&format!("'{option} <")) && said.contains(&format!("{value} is not {range}")), "{said}");
    }
}

#[test]
fn ports_that_there_are_not_are_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("node.toml"), CONFIG).unwrap();
    for arguments in [
        &["client", "192.0.2.1:99999", "--open"][..],
        &["client", "[2001:db8::1]:0", "--open"],
        &["client", "192.0.2.1:99999", "--iperf3"],
        &["client", "192.0.2.1", "--open", "--via", "127.0.0.1:99999"],
        &["path", "192.0.2.1:x", "--open"],
    ] {
        let said = failed(folder.path(), arguments, 2);
        assert!(said.contains("the port must be a number from 1 to 65535"), "{said}");
    }
    let none = failed(folder.path(), &["client", "city", "-c", "node.toml"], 3);
    assert!(none.contains("no peer is called 'city'; it has no peers. For another server"), "{none}");
}

#[test]
fn two_nodes_of_one_name_are_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(EKIDEN).args(["keygen", "node.key"]).current_dir(folder.path()).output().unwrap();
    assert!(made.status.success());
    let node = format!("island=sha256:{}", "15".repeat(32));
    let said = failed(folder.path(), &["server", "--key", "node.key", "--node", &node, "--node", &node], 2);
    assert!(said.contains("--node island is given twice"), "{said}");
}

/// A node without peers.
const CONFIG: &str = "name = \"island\"\n[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n";

#[test]
fn pictures_are_svg() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["path", "192.0.2.1", "--open", "--picture", "x.png"][..],
        &["watch", "--picture", "x.png"],
        &["monitor", "show", "history", "--picture", "x.png"],
    ] {
        let said = failed(folder.path(), arguments, 2);
        assert!(said.contains("pictures are SVG only: name a file that ends in .svg"), "{said}");
    }
}

#[test]
fn a_listener_on_the_way_is_told_from_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let not_allowed = refusing(2);
    for (via, why) in [
        ("127.0.0.1:1", "no SOCKS5 listener is there: is the node running"),
        (&not_allowed, "add the address to `allow` of [exit] at the node where its route ends"),
    ] {
        for mode in ["--open", "--iperf3"] {
            let said = failed(folder.path(), &["client", "127.0.0.1:7", mode, "--time", "1s", "--via", via], 5);
            assert!(said.contains(&format!("--via {via}: ")) && said.contains(why), "{said}");
            assert!(!said.contains("ekiden measure server"), "{said}");
        }
    }
}

#[test]
fn a_key_is_not_for_an_open_server() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(EKIDEN).args(["keygen", "node.key"]).current_dir(folder.path()).output().unwrap();
    let print = String::from_utf8(made.stdout).unwrap();
    let call = ["client", &server.address, "--key", "node.key", "--fingerprint", print.trim(), "--bytes", "1MB"];
    let said = failed(folder.path(), &call, 5);
    assert!(said.contains("is an open server, which takes no keys: measure with --open"), "{said}");
}

#[test]
fn an_open_server_has_no_privilege_that_strangers_could_use() {
    const NET_BIND_SERVICE: u64 = 1 << 10;
    let server = Server::start();
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let permitted = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap();
    let permitted = u64::from_str_radix(permitted.trim(), 16).unwrap();
    assert_eq!(permitted & !NET_BIND_SERVICE, 0, "{status}");
    let most: u64 = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    if most >= 1 << 30 || !geteuid().is_root() {
        eprintln!("ignored: this end cannot ask for more than the kernel gives to everyone");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let more = format!("{}B", most + 1024);
    let call = ["client", &server.address, "--open", "--bytes", "1MB", "--receive-buffer", &more];
    let said = failed(folder.path(), &call, 5);
    assert!(
        said.contains("refuses: at the server's end, --receive-buffer") && said.contains("net.core.rmem_max"),
        "{said}"
    );
}

#[test]
fn strangers_cannot_fill_the_log() {
    let server = Server::start();
    for _ in 0..20 {
        let mut stranger = TcpStream::connect(&server.address).unwrap();
        stranger.write_all(&[22, 3, 1, 0]).unwrap();
        // Until it is refused.
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    thread::sleep(Duration::from_millis(200));
    let log = server.end();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("it speaks TLS")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[1].contains("(and 19 more within 10s)"), "{log}");
}

/// What a server logs while so many connect and say nothing.
fn full(descriptors: &str, connections: usize) -> String {
    let server = Server::start_with(descriptors);
    let strangers: Vec<_> = (0..connections).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    thread::sleep(Duration::from_millis(500));
    drop(strangers);
    server.end()
}

#[test]
fn a_server_that_is_full_logs_it() {
    let log = full("1024", 70);
    let lines: Vec<_> =
        log.lines().filter(|line| line.contains("too many connections have proven nothing yet")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    let log = full("14", 8);
    let lines: Vec<_> = log.lines().filter(|line| line.contains("cannot accept a connection: ")).collect();
    assert!((1..=2).contains(&lines.len()) && lines[0].contains("Too many open files"), "{log}");
}

#[test]
fn measurements_cannot_fill_the_log() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let call = ["client", &server.address, "--open", "--bytes", "1MB", "--repeat", "5"];
    let output = measure(folder.path(), &call);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    thread::sleep(Duration::from_millis(200));
    let log = server.end();
    for what in [" measures: ", " has measured: "] {
        assert_eq!(log.lines().filter(|line| line.contains(what)).count(), 2, "{log}");
    }
}

#[test]
fn a_load_that_comes_within_a_round_trip_is_too_short() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    for more in [&["--time", "1s"][..], &[]] {
        let call = [&["client", &server.address, "--open", "--bytes", "1KB"][..], more].concat();
        let said = failed(folder.path(), &call, 5);
        assert!(said.contains("the load forth was too short to say how fast it was: 1000 bytes in "), "{said}");
    }
}

#[test]
fn what_a_server_logs_says_how_much_went_which_way() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let load = |more: &[&str]| {
        let call = [&["client", &server.address, "--open", "--bytes", "2MB"][..], more].concat();
        let output = measure(folder.path(), &call);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    load(&["--way", "back"]);
    load(&["--way", "both", "--streams", "2"]);
    thread::sleep(Duration::from_millis(200));
    let log = server.end();
    assert!(log.contains("has measured: 1 stream back: 2.0 MB sent"), "{log}");
    assert!(log.contains("has measured: 2 streams each forth and back: 2.0 MB received, 2.0 MB sent"), "{log}");
}

#[test]
fn nothing_is_replaced_that_was_not_named_and_no_two_outputs_are_one_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.samples.parquet"), "mine").unwrap();
    let said = failed(folder.path(), &["client", "127.0.0.1:1", "--open", "--record", "a.json"], 3);
    assert!(said.contains("a.samples.parquet: is there already"), "{said}");
    assert_eq!(fs::read(folder.path().join("a.samples.parquet")).unwrap(), b"mine");
    let twice = ["path", "127.0.0.1:1", "--open", "--record", "a.svg", "--picture", "./a.svg"];
    let said = failed(folder.path(), &twice, 2);
    assert!(said.contains("--record and --picture are the same file"), "{said}");
    let over = ["monitor", "show", "h.sqlite", "--csv", "h.sqlite", "--force"];
    let said = failed(folder.path(), &over, 2);
    assert!(said.contains("--csv and the history are the same file"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_address_is_a_host_and_a_port() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, why) in [
        (&["client", "http://127.0.0.1:1/", "--open"][..], "give HOST:PORT without http://, as in 127.0.0.1:1"),
        (&["client", "me@127.0.0.1:1", "--open"], "give HOST:PORT without me@, as in 127.0.0.1:1"),
        (&["path", ":7100", "--open"], "a host is missing"),
        (&["client", "127.0.0.1:1", "--open", "--via", "socks5://127.0.0.1:1080"], "without socks5://"),
    ] {
        let said = failed(folder.path(), arguments, 2);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

/// A small disk is full while samples are written, a greater one while the record is.
#[test]
fn what_cannot_be_written_is_shown_and_leaves_nothing() {
    if !geteuid().is_root() {
        eprintln!("ignored: a small disk needs a mount, which needs root here");
        return;
    }
    let server = Server::start();
    let (mut of_samples, mut of_record) = (0, 0);
    // The record has the command line: so it takes more room than the samples.
    let place = format!("{}out", "./".repeat(1500));
    // A slow measurement has more samples.
    for size in [4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 1024] {
        if of_samples > 0 && of_record > 0 && (32..1024).contains(&size) {
            continue;
        }
        let size = format!("{size}k");
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "mkdir out && mount -t tmpfs -o size={size} none out || exit 99
             {EKIDEN} measure client {} --open --bytes 2MB --record {place}; code=$?
             ls -A out | wc -l >left; exit $code",
            server.address
        );
        let mut shell = Command::new("unshare");
        let output = shell.args(["-m", "sh", "-c", &script]).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(shown.contains("bytes  seconds"), "{size}: {shown}{said}");
        let left = fs::read_to_string(folder.path().join("left")).unwrap();
        match output.status.code() {
            Some(0) => assert_eq!(left.trim(), "2", "{size}"),
            Some(3) => {
                of_samples += usize::from(said.contains(".samples.parquet: cannot be written"));
                of_record += usize::from(said.contains(".json: cannot be written"));
                assert_eq!(left.trim(), "0", "{size}: {said}");
                assert!(said.contains("out/measurement-"), "{size}: {said}");
            }
            other => panic!("{size}: {other:?}: {said}"),
        }
    }
    assert!(of_samples > 0 && of_record > 0, "{of_samples} {of_record}");
}
