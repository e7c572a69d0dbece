//! What commands print for people fits a terminal of 80 columns. Only commands to copy, which stand between backticks, and single words are
//! longer.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::measuring::MeasuringServer;

const COLUMNS: usize = 80;
const PRINT: &str = "sha256:c17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17e";
const PAIR: &str = "name = \"pair\"\n[node.a]\n[node.b]\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"20ms\"\n\
                    [flow.download]\nfrom = \"a\"\nto = \"b\"\nbytes = \"1MB\"\n";

fn ekiden(folder: &Path, arguments: &[&str], columns: Option<usize>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    match columns {
        Some(columns) => command.env("COLUMNS", columns.to_string()),
        None => command.env_remove("COLUMNS"),
    };
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

/// What is printed fits, or is a command, or one word. Returns it.
fn fits(folder: &Path, arguments: &[&str]) -> String {
    fits_within(folder, arguments, COLUMNS)
}

/// The same in so many columns.
fn fits_within(folder: &Path, arguments: &[&str], columns: usize) -> String {
    let output = ekiden(folder, arguments, Some(columns));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let is_whole = |line: &&str| {
        let line = line.trim_start().trim_start_matches("- ");
        !line.contains(' ') || line.contains('`') || line.starts_with("sysctl ")
    };
    for line in text.lines().filter(|line| line.chars().count() > columns) {
        assert!(is_whole(&line), "{arguments:?}: {} columns: {line}\n{text}", line.chars().count());
    }
    text
}

fn folder_with_files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let sites = fs::read_to_string(scenarios.join("sites-4.toml")).unwrap();
    let is_kept = |line: &&str| !line.starts_with("duration") && !line.starts_with("warm_up");
    let head = "duration = \"1h\"\nwarm_up = \"30min\"\n";
    let (sites, _) = sites
        .split_once("[[outage]]")
        .map(|(head, rest)| (head.to_owned() + &rest[rest.find("[[site]]").unwrap()..], ()))
        .unwrap();
    fs::write(
        folder.path().join("sites.toml"),
        head.to_owned() + &sites.lines().filter(is_kept).map(|line| format!("{line}\n")).collect::<String>(),
    )
    .unwrap();
    fs::write(folder.path().join("pair.toml"), PAIR).unwrap();
    folder
}

#[test]
fn simulations_records_and_plans_fit() {
    let folder = folder_with_files();
    let folder = folder.path();
    fits(folder, &["overlay", "simulate", "sites.toml"]);
    fits(folder, &["scenario", "check", "pair.toml"]);
    fits(folder, &["simulate", "pair.toml", "--record", "pair.json"]);
    fits(folder, &["record", "show", "pair.json"]);
    let sweep = ["--set", "link.line.delay=1ms,20ms", "--set", "link.line.rate=1Mbit/s,10Mbit/s", "--record", "sweep"];
    fits(folder, &[&["simulate", "pair.toml"][..], &sweep].concat());
    fits(folder, &["record", "show", "sweep"]);
    let path = ["--rtt", "60ms", "--rate", "100Mbit/s", "--window", "64KiB", "--size", "10MB"];
    let planned = fits(folder, &[&["plan"][..], &path].concat());
    assert!(planned.contains("bounded by"), "{planned}");
    let slow = ["plan", "--rtt", "60ms", "--rate", "8Mbit/s", "--window", "16KiB", "--duration", "4s"];
    let written = fits(folder, &[&slow[..], &["--write", "nodes", "--verify=simulator"]].concat());
    // A command to copy stays whole.
    let is_whole = |line: &str| line.matches('`').count().is_multiple_of(2);
    assert!(written.lines().all(is_whole) && written.contains("`sysctl -w net.ipv4.tcp_rmem="), "{written}");
    // What reads a pipe wants whole lines, and so may people.
    let longest = |text: &[u8]| String::from_utf8_lossy(text).lines().map(|line| line.chars().count()).max().unwrap();
    for (arguments, columns) in [
        (&["overlay", "simulate", "sites.toml"][..], None),
        (&["overlay", "simulate", "sites.toml", "--wide"], Some(COLUMNS)),
    ] {
        assert!(longest(&ekiden(folder, arguments, columns).stdout) > COLUMNS, "{arguments:?}");
    }
}

#[test]
fn what_is_said_of_this_host_and_its_files_fits() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fits(folder, &["keygen", "node.key"]);
    fits(folder, &["congestion", "status"]);
    fits(folder, &["proxy", "--keys"]);
    let node = format!(
        "name = \"island\"\nkey_file = \"node.key\"\n[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n\
         nodes = {{ a-node-with-a-long-name = \"{PRINT}\" }}\n\
         [peer.city]\naddress = \"127.0.0.1:1\"\nfingerprint = \"{PRINT}\"\n"
    );
    fs::write(folder.join("node.toml"), node).unwrap();
    let listed = fits(folder, &["peer", "list", "-c", "node.toml"]);
    assert!(listed.contains(PRINT), "{listed}");
    fits(folder, &["doctor", "-c", "node.toml"]);
    let monitor = "history = \"h.sqlite\"\n[target.direct]\niperf3 = \"127.0.0.1:9\"\n[target.a-second-one]\niperf3 = \"127.0.0.1:9\"\n";
    fs::write(folder.join("monitor.toml"), monitor).unwrap();
    fits(folder, &["measure", "monitor", "check", "-c", "monitor.toml"]);
    assert_eq!(
        ekiden(folder, &["measure", "monitor", "run", "-c", "monitor.toml", "--once"], None).status.code(),
        Some(5)
    );
    fits(folder, &["measure", "monitor", "show", "h.sqlite"]);
}

#[test]
fn measurements_fit() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = MeasuringServer::start("ekiden measure server --open 100MB --listen 127.0.0.1:0", folder);
    let server = format!("127.0.0.1:{}", server.port);
    let client = ["measure", "client", &server, "--open", "--bytes", "1MB", "--way", "both", "--streams", "2"];
    fits(folder, &client);
    // Tables whose rows are longer have a line for each figure.
    let narrow = fits_within(folder, &client, 40);
    assert!(narrow.lines().any(|line| line.starts_with("  sent again ")), "{narrow}");
    fits(
        folder,
        &[
            "measure",
            "client",
            &server,
            "--open",
            "--bytes",
            "20MB",
            "--receive-buffer",
            "16KiB,64KiB",
            "--record",
            "sweep",
        ],
    );
    fits(folder, &["measure", "path", &server, "--open"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let _connection = TcpStream::connect(address).unwrap();
    fits(folder, &["measure", "watch", "--for", "1s", "--to", &address.to_string()]);
}

/// A node of an overlay, until it is dropped.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn node(folder: &Path, name: &str) -> Node {
    let file: PathBuf = folder.join("node.toml");
    let text = format!(
        "name = \"{name}\"\nkey_file = \"node.key\"\n[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n\
         [overlay]\nmembers_file = \"members.toml\"\n[[route]]\nto = [\"*\"]\nvia = \"auto\"\n"
    );
    fs::write(&file, text).unwrap();
    for (number, member) in [name, "frankfurt-am-main", "tokyo"].into_iter().enumerate() {
        assert!(ekiden(folder, &["keygen", &format!("{number}.key")], None).status.success());
        let key = if number == 0 { "node.key" } else { "other.key" };
        fs::rename(folder.join(format!("{number}.key")), folder.join(key)).unwrap();
        let (own, address) = (format!("{member}.toml"), format!("[2001:db8:1234:5678:9abc::{number}]:7000"));
        fs::write(folder.join(&own), format!("name = \"{member}\"\nkey_file = \"{key}\"\n")).unwrap();
        let near = format!(".{member}.example");
        let joined = ekiden(
            folder,
            &[
                "overlay",
                "join",
                "members.toml",
                "-c",
                &own,
                "--address",
                &address,
                "--near",
                &near,
                "--region",
                "europe-west",
            ],
            None,
        );
        assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    command.args(["proxy", "-c", "node.toml"]).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut node = Node(command.spawn().unwrap());
    let mut lines = BufReader::new(node.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "ready"));
    node
}

#[test]
fn what_a_node_knows_of_its_overlay_fits() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // The name on which it is asked belongs to the network namespace.
    let name = format!("terminal-{}", std::process::id());
    let _node = node(folder, &name);
    for about in [&["nodes"][..], &["status"], &["why", "www.tokyo.example"], &["why", "www.of-nobody-at-all.example"]]
    {
        fits(folder, &[&["overlay"][..], about, &["--node", &name]].concat());
    }
    let nodes = fits(folder, &["overlay", "nodes", "--node", &name]);
    assert!(nodes.contains("[2001:db8:1234:5678:9abc::2]:7000"), "{nodes}");
}
