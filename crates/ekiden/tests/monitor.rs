//! `ekiden measure monitor`: measures with a real iperf3 server, directly and through a node, ends when it is told to, and refuses what
//! cannot be. On loopback only.

use std::io::{BufRead, BufReader, Lines};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A program that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program, and waits for a line with `word`. Returns what it prints from there on too.
fn start(command: &mut Command, word: &str) -> Option<(Running, Lines<BufReader<ChildStdout>>)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it is installed");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let running = Running(child);
    lines.by_ref().map_while(Result::ok).any(|line| line.contains(word)).then_some((running, lines))
}

fn iperf3() -> (Running, u16) {
    for _ in 0..20 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("iperf3");
        command.args(["-s", "--forceflush", "-B", "127.0.0.1", "-p", &port.to_string()]);
        if let Some((server, lines)) = start(&mut command, "listening") {
            // It must not wait for somebody to read.
            thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            return (server, port);
        }
    }
    panic!("iperf3 does not listen");
}

fn ekiden(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    command.current_dir(folder).env("TZ", "UTC").args(["measure", "monitor"]).args(arguments).output().unwrap()
}

/// What it prints.
fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = ekiden(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Its last line on standard error.
fn refused(folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = ekiden(folder, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said.lines().last().unwrap_or_default().to_owned()
}

/// Kept in `history`: one target for each of these, which are its further keys.
fn config(folder: &Path, port: u16, targets: &[(&str, &str)]) {
    let targets = targets.iter().map(|(name, keys)| {
        format!("[target.{name}]\niperf3 = \"127.0.0.1:{port}\"\nbytes = \"2MB\"\nduration = \"5s\"\n{keys}\n")
    });
    let head = "offset = \"0\"\nhistory = \"h.sqlite\"\nprometheus = \"m.prom\"\n".to_owned();
    std::fs::write(folder.join("m.toml"), head + &targets.collect::<String>()).unwrap();
}

#[test]
fn one_round_measures_directly_and_through_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (_server, port) = iperf3();
    let node = "[listen.s]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n[exit]\nallow = [\"127.0.0.0/8\"]\n";
    std::fs::write(folder.join("node.toml"), node).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    let mut child = Running(
        command
            .current_dir(folder)
            .args(["proxy", "-c", "node.toml"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let line = BufReader::new(child.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let via = line.split_whitespace().last().unwrap().to_owned();
    config(
        folder,
        port,
        &[
            ("direct", ""),
            ("overlay", &format!("via = \"{via}\"")),
            ("up", &format!("direction = \"send\"\nvia = \"{via}\"")),
        ],
    );

    let checked = done(folder, &["check", "-c", "m.toml"]);
    assert!(checked.contains("at most 288 MB of payload a day") && checked.ends_with("m.toml: ok\n"), "{checked}");
    assert!(!folder.join("h.sqlite").exists());
    let ran = done(folder, &["run", "-c", "m.toml", "--once"]);
    assert!(ran.ends_with("\nready\n"), "{ran}");

    let shown = done(folder, &["show", "h.sqlite"]);
    assert!(shown.starts_with("3 measurements, ") && shown.contains(" overlay "), "{shown}");
    done(
        folder,
        &["show", "h.sqlite", "--csv", "a.csv", "--json", "a.json", "--picture", "a.svg", "--prometheus", "a.prom"],
    );
    let csv = std::fs::read_to_string(folder.join("a.csv")).unwrap();
    assert!(csv.lines().count() == 4 && !csv.contains("failed"), "{csv}");
    let list: Vec<serde_json::Value> =
        serde_json::from_str(&std::fs::read_to_string(folder.join("a.json")).unwrap()).unwrap();
    assert!(list.iter().all(|row| row["failure"].is_null() && row["received_bit_s"].as_u64() > Some(0)), "{list:?}");
    assert!(std::fs::read_to_string(folder.join("a.svg")).unwrap().contains("hour of day (UTC)"));
    let [asked, own] = ["a.prom", "m.prom"].map(|name| std::fs::read_to_string(folder.join(name)).unwrap());
    assert_eq!(asked, own);
    let said = refused(folder, &["show", "h.sqlite", "--csv", "a.csv"], 3);
    assert!(said.starts_with("ekiden: a.csv: is there already"), "{said}");
    done(folder, &["show", "h.sqlite", "--csv", "a.csv", "--force", "--since", "1h"]);
}

#[test]
fn a_service_measures_until_it_is_told_to_stop_and_holds_its_history() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (_server, port) = iperf3();
    config(folder, port, &[("direct", "")]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    command.current_dir(folder).args(["measure", "monitor", "run", "-c", "m.toml"]);
    let (mut monitor, _lines) = start(&mut command, "ready").unwrap();
    let said = refused(folder, &["run", "-c", "m.toml", "--once"], 4);
    assert_eq!(said, "ekiden: h.sqlite: another monitor writes this history; end it first, or name another file");
    // The first round begins at once; its text file comes last.
    let begun = std::time::Instant::now();
    while !folder.join("m.prom").exists() {
        assert_eq!(monitor.0.try_wait().unwrap(), None);
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "no text file after a minute");
        thread::sleep(std::time::Duration::from_millis(20));
    }
    kill(Pid::from_raw(monitor.0.id() as i32), Signal::SIGTERM).unwrap();
    assert!(monitor.0.wait().unwrap().success());
    assert!(done(folder, &["show", "h.sqlite"]).starts_with("1 measurements, "));
}

#[test]
fn what_cannot_be_used_is_told_in_one_line_with_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    config(folder, nobody, &[("direct", "")]);
    let said = refused(folder, &["run", "-c", "m.toml", "--once"], 5);
    assert!(said.starts_with("ekiden: no target could be measured; direct: no connection to 127.0.0.1:"), "{said}");
    assert!(done(folder, &["show", "h.sqlite"]).contains("last failure: "));

    std::fs::write(folder.join("text"), "this is a text, and no database").unwrap();
    std::fs::write(folder.join("wrong.toml"), "history = \"text\"\n[target.a]\niperf3 = \"x\"\nevery = 5\n").unwrap();
    std::fs::write(folder.join("text.toml"), "history = \"text\"\n[target.a]\niperf3 = \"x\"\n").unwrap();
    std::fs::write(folder.join("node.toml"), "[listen.s]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n").unwrap();
    std::fs::write(folder.join("far.toml"), "history = \"no/h\"\n[target.a]\niperf3 = \"x\"\n").unwrap();
    let key = "history = \"h\"\nkey_file = \"none\"\n[target.a]\niperf3 = \"x\"\n";
    std::fs::write(folder.join("key.toml"), key).unwrap();
    for (arguments, start) in [
        (&["check", "-c", "wrong.toml"][..], "ekiden: wrong.toml:4: unknown field `every` in target.a"),
        (&["check", "-c", "text.toml"], "ekiden: text: is no history of a monitor: it is not a SQLite file"),
        (&["run", "--check", "-c", "far.toml"], "ekiden: no/h: cannot be opened: No such file"),
        (&["check", "-c", "key.toml"], "ekiden: key file none: cannot be read"),
        (&["run", "-c", "none.toml"], "ekiden: none.toml: cannot be read"),
        (&["check", "-c", "node.toml"], "ekiden: node.toml: this is a configuration of `ekiden proxy`"),
        (&["run", "-c", "text.toml"], "ekiden: text: is no history of a monitor: it is not a SQLite file"),
        (&["show", "text"], "ekiden: text: is no history of a monitor"),
        (&["show", "none"], "ekiden: none: cannot be opened: No such file"),
    ] {
        let said = refused(folder, arguments, 3);
        assert!(said.starts_with(start), "{said}");
    }
    refused(folder, &["show", "h.sqlite", "--since", "yesterday"], 2);
}

#[test]
fn a_history_that_cannot_be_begun_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    config(folder.path(), 1, &[("direct", "")]);
    // Files may have no content, as on a full disk.
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" measure monitor run -c m.toml --once"]);
    let output = command.arg(env!("CARGO_BIN_EXE_ekiden")).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("h.sqlite"), "{said}");
    assert!(!folder.path().join("h.sqlite").exists(), "{said}");
}
