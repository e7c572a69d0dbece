//! What a running node may do that other processes may not.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
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

    /// What the kernel says of each of its threads. One that ended meanwhile does no harm.
    fn tasks(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect()
    }

    /// All capabilities of all threads must be these, and nothing that they start may have others. That of the log has none.
    fn has(&self, expected: u64) {
        // That of the log gives up its own when it first runs, which may be after all others.
        let limit = Instant::now() + Duration::from_secs(20);
        let log_runs = || {
            self.tasks()
                .iter()
                .any(|status| status.starts_with("Name:\tlog\n") && status.contains("CapPrm:\t0000000000000000"))
        };
        while !log_runs() && Instant::now() < limit {
            sleep(Duration::from_millis(5));
        }
        let expected = if geteuid().is_root() { expected } else { 0 };
        let tasks = self.tasks();
        assert!(tasks.len() >= 3, "the workers are there");
        for status in tasks {
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
    let _alone = crate::alone::alone();
    let threads = "threads = 2\n";
    Node::start(&format!("{threads}{SOCKS}")).has(0);
    Node::start(&format!("{threads}[tcp]\ncongestion = \"reno\"\n{SOCKS}")).has(NET_ADMIN);
    if geteuid().is_root() {
        Node::start(&format!("{threads}[tcp]\ncongestion = \"ekiden_bic\"\n{SOCKS}")).has(NET_ADMIN);
        let low = SOCKS.replace("127.0.0.1:0", "127.9.8.7:999");
        Node::start(&format!("{threads}{low}")).has(NET_BIND_SERVICE);
    }
}

/// Starts it without CAP_NET_ADMIN. Its exit code and what it says.
fn without_net_admin(text: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node.toml");
    fs::write(&file, text).unwrap();
    let ekiden = env!("CARGO_BIN_EXE_ekiden");
    let mut command = match geteuid().is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set=-net_admin", ekiden]);
            command
        }
        false => Command::new(ekiden),
    };
    let output = command.args(["proxy", "-c"]).arg(&file).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_buffer_that_the_kernel_would_cap_is_refused_with_the_remedy() {
    for (key, sysctl) in [("receive_buffer", "rmem_max"), ("send_buffer", "wmem_max")] {
        let most: u64 = fs::read_to_string(format!("/proc/sys/net/core/{sysctl}")).unwrap().trim().parse().unwrap();
        if most >= 1 << 29 {
            eprintln!("ignored: net.core.{sysctl} is so large that there is nothing beyond it to ask for");
            continue;
        }
        let size = most / 1024 + 1;
        let text = format!("{SOCKS}tcp = {{ {key} = \"{size}KiB\" }}\n");
        for arguments in [&["--check"][..], &[]] {
            let (code, said) = without_net_admin(&text, arguments);
            assert_eq!(code, Some(4), "{said}");
            let remedy = format!("(it is {most}): sysctl net.core.{sysctl}={}", size * 1024);
            assert!(said.contains("node.toml:4: [listen.socks]: tcp.") && said.contains(&remedy), "{said}");
        }
        let text = format!("{SOCKS}tcp = {{ {key} = \"{}KiB\" }}\n", most / 1024);
        assert_eq!(without_net_admin(&text, &["--check"]).0, Some(0));
    }
}

#[test]
fn what_a_restart_would_not_bring_is_not_told_to_be_had_by_one() {
    let node = Node::start(SOCKS);
    fs::write(node.directory.path().join("node.toml"), format!("[tcp]\ncongestion = \"nosuch\"\n{SOCKS}")).unwrap();
    kill(Pid::from_raw(node.child.id() as i32), Signal::SIGHUP).unwrap();
    let start = Instant::now();
    while !node.log().contains("the configuration stays as it was") {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", node.log());
        sleep(Duration::from_millis(20));
    }
    assert!(!node.log().contains("restart"), "{}", node.log());
    assert!(node.log().contains("it was: node.toml:2: [tcp]: congestion 'nosuch'"), "{}", node.log());
}

#[test]
fn a_file_of_somebody_else_s_that_root_may_no_longer_read_is_told_with_the_remedy() {
    if !geteuid().is_root() {
        eprintln!("ignored: only root has something to give up");
        return;
    }
    let node = Node::start(SOCKS);
    let file = node.directory.path().join("node.toml");
    chown(&file, Some(54321), None).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    kill(Pid::from_raw(node.child.id() as i32), Signal::SIGHUP).unwrap();
    let start = Instant::now();
    while !node.log().contains("the configuration stays as it was: node.toml: cannot be read: ") {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", node.log());
        sleep(Duration::from_millis(20));
    }
    assert!(node.log().contains("if user 54321 runs the node, do this as that one: `setpriv --reuid 54321 --regid 54321 --clear-groups COMMAND`; if root runs it, `chown root` it"), "{}", node.log());
}

#[test]
fn a_check_finds_what_the_node_would_not_find_or_could_not_read_when_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        file
    };
    let check = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        let output = command.args(["proxy", "--check", "-c", "node.toml"]).current_dir(&folder).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let shared = file("key", &"a".repeat(64));
    let leg = "[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\nplain_key_file = \"key\"\n";
    file("node.toml", leg);
    assert_eq!(check(), (Some(0), String::new()));
    if geteuid().is_root() {
        chown(&shared, Some(1000), None).unwrap();
        let (code, said) = check();
        assert!(code == Some(3) && said.contains("with the rights that it keeps"), "{code:?} {said}");
        assert!(said.contains("key") && said.contains("`chown root` it") && said.lines().count() == 1, "{said}");
    }
    let taken = "kind = \"transparent\"\naddress = \"127.0.0.1:3129\"\ninterfaces = [\"nosuch0\"]\n";
    file("node.toml", &format!("[listen.lan]\n{taken}"));
    let (code, said) = check();
    assert!(code == Some(4) && said.contains("there is no network interface 'nosuch0' here"), "{code:?} {said}");
    let mut keygen = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    assert!(keygen.args(["keygen", "own"]).current_dir(&folder).output().unwrap().status.success());
    let other = "address = \"192.0.2.1:7000\"\nnear = [\"192.0.2.0/24\"]\n";
    file("members.toml", &format!("[node.other]\nfingerprint = \"sha256:{}\"\n{other}", "a".repeat(64)));
    let own = "name = \"lost\"\nkey_file = \"own\"\n[overlay]\nmembers_file = \"members.toml\"\n";
    file("node.toml", &format!("{own}{SOCKS}"));
    let (code, said) = check();
    assert!(code == Some(0) && said.contains("this node, 'lost', is not in "), "{code:?} {said}");
    file("node.toml", &format!("{}ask_socket = \"none/ask\"\n{SOCKS}", own));
    let (code, said) = check();
    assert!(code == Some(0) && said.contains("ask_socket: a node of this user cannot write into "), "{code:?} {said}");
    if geteuid().is_root() {
        fs::create_dir(folder.path().join("none")).unwrap();
        assert!(!check().1.contains("ask_socket"));
        chown(folder.path().join("none"), Some(1000), None).unwrap();
        fs::set_permissions(folder.path().join("none"), PermissionsExt::from_mode(0o700)).unwrap();
        assert!(check().1.contains("ask_socket: a node of this user cannot write into "));
    }
}

#[test]
fn a_check_finds_what_a_tunnel_would_miss_at_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let ekiden = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ekiden")).args(arguments).current_dir(&folder).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(ekiden(&["keygen", "--shared", "key"]).0, Some(0));
    let check = |tcp: &str| {
        let peer = "[peer.x]\naddress = \"192.0.2.1:1\"\nallowed = [\"10.77.0.2\"]\nplain_key_file = \"key\"\n";
        let text = format!("[device]\naddresses = [\"10.77.0.1/24\"]\n{peer}[tcp]\n{tcp}\n");
        fs::write(folder.path().join("tunnel.toml"), text).unwrap();
        ekiden(&["tunnel", "--check", "-c", "tunnel.toml"])
    };
    // What is ekiden's own comes into the kernel at the start.
    assert_eq!(check("congestion = \"ekiden_bic\"").0, Some(0));
    let (code, said) = check("congestion = \"cubik\"");
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("tunnel.toml:8: [tcp]: congestion 'cubik' is not available: this kernel"), "{said}");
    if !geteuid().is_root() {
        let (code, said) = check("congestion = \"ekiden_bic\"\nsend_buffer = \"1GiB\"");
        assert!(code == Some(4) && said.contains("tunnel.toml:9: [tcp]: "), "{code:?} {said}");
    }
}

#[test]
fn what_was_given_up_does_not_come_back_by_sighup() {
    if !geteuid().is_root() {
        eprintln!("ignored: only root has something to give up");
        return;
    }
    let _alone = crate::alone::alone();
    let start = Instant::now();
    let available = || fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    while available().contains("ekiden_bic") {
        assert!(start.elapsed() < Duration::from_secs(20), "a node that has ended still holds it");
        sleep(Duration::from_millis(20));
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
