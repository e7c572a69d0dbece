//! What a running node may do that other processes may not.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

const NET_BIND_SERVICE: u64 = 1 << 10;
const NET_ADMIN: u64 = 1 << 12;
const SOCKS: &str = "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n";

/// A node, until it is dropped.
struct Node {
    child: Child,
    directory: tempfile::TempDir,
}

impl Node {
    fn start(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("node.toml"), text).unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        command.args(["proxy", "-c", "node.toml"]).current_dir(directory.path()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let is_ready = lines.any(|line| line == "ready");
        let node = Self { child, directory };
        assert!(is_ready, "{}", node.log());
        node
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// All capabilities of all threads must be these, and nothing that they start may have others. That of the log has none.
    fn has(&self, expected: u64) {
        let expected = if geteuid().is_root() { expected } else { 0 };
        let tasks: Vec<_> = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten().collect();
        assert!(tasks.len() >= 3, "the workers are there");
        for task in tasks {
            // One that ended meanwhile does no harm.
            let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
            let expected = if status.starts_with("Name:\tlog\n") { 0 } else { expected };
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                u64::from_str_radix(line.trim(), 16).unwrap()
            };
            assert_eq!(field("CapEff:"), expected, "{status}");
            assert_eq!(field("CapPrm:"), expected, "{status}");
            assert_eq!(field("CapInh:") | field("CapAmb:"), 0, "{status}");
            assert_eq!(field("NoNewPrivs:"), 1, "{status}");
            if geteuid().is_root() {
                assert_eq!(field("CapBnd:"), expected, "{status}");
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_node_keeps_no_privilege_that_its_configuration_does_not_need() {
    let threads = "threads = 2\n";
    Node::start(&format!("{threads}{SOCKS}")).has(0);
    Node::start(&format!("{threads}[tcp]\ncongestion = \"reno\"\n{SOCKS}")).has(NET_ADMIN);
    if geteuid().is_root() {
        Node::start(&format!("{threads}[tcp]\ncongestion = \"ekiden_bic\"\n{SOCKS}")).has(NET_ADMIN);
        let low = SOCKS.replace("127.0.0.1:0", "127.9.8.7:999");
        Node::start(&format!("{threads}{low}")).has(NET_BIND_SERVICE);
    }
}

#[test]
fn what_was_given_up_does_not_come_back_by_sighup() {
    if !geteuid().is_root() {
        eprintln!("ignored: only root has something to give up");
        return;
    }
    let node = Node::start(&format!("threads = 2\n{SOCKS}"));
    let more = format!("[tcp]\ncongestion = \"ekiden_bic\"\n{SOCKS}");
    fs::write(node.directory.path().join("node.toml"), more).unwrap();
    kill(Pid::from_raw(node.child.id() as i32), Signal::SIGHUP).unwrap();
    let start = Instant::now();
    while !node.log().contains("the node gave up when it started what it did not need: restart it") {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", node.log());
        sleep(Duration::from_millis(20));
    }
    assert_eq!(node.log().matches("the configuration stays as it was").count(), 1, "{}", node.log());
    node.has(0);
}
