//! Wrong input gets one clear line and its own exit code.

use std::process::Command;

const PAIR: &str = "name = \"pair\"\n[node.a]\n[node.b]\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"1Mbit/s\"\n";

/// (what is written to the file, how ekiden is called with FILE, exit code, part of the line)
const CASES: &[(&str, &[&str], i32, &str)] = &[
    ("", &["lab", "fly", "FILE"], 2, "unrecognized subcommand"),
    ("name = 1", &["scenario", "check", "FILE"], 3, "FILE:1: "),
    ("name = \"x\"\nnode = 1", &["lab", "run", "FILE"], 3, "FILE:2: "),
    ("", &["lab", "run", "FILE", "--repeat", "0"], 2, "0 is not in 1..=1000"),
    ("", &["lab", "run", "FILE", "--set", "seed"], 3, "--set seed: needs a key, '=' and values"),
    (PAIR, &["lab", "run", "FILE", "--set", "tcp.sacks=true"], 3, "--set tcp.sacks=true: unknown field `sacks`"),
    (PAIR, &["lab", "run", "FILE", "--set", "seed=1,2", "--record", "x.json"], 2, "--record must name a directory"),
    (
        PAIR,
        &["lab", "run", "FILE", "--set", "link.line.discipline=red"],
        3,
        "FILE: link.line.discipline: only `ekiden simulate`",
    ),
    (
        PAIR,
        &["lab", "run", "FILE", "--set", "tcp.profile=linux,ns2"],
        3,
        "FILE: node.a.tcp.profile: only `ekiden simulate`",
    ),
    ("", &["scenario", "show", "/nonexistent/file"], 3, "/nonexistent/file: cannot be read"),
    ("", &["congestion", "load", "hstcp"], 2, "did you mean ekiden_hstcp?"),
    ("", &["congestion", "load", "--set", "ghstcp.span=99"], 2, "it is a number from 0.05 to 8: "),
    ("", &["congestion", "set", "ghstcp.spam=1"], 2, "there is no parameter 'ghstcp.spam' (there are "),
    ("", &["congestion", "set"], 2, "<KEY=VALUE>"),
    (
        "[congestion.ghstcp]\nspan = 99",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:2: ghstcp.span cannot be '99': it is a number from 0.05 to 8: ",
    ),
    ("[tcp]\ncongestion = \"bic\"", &["proxy", "-c", "FILE", "--check"], 4, "; did you mean ekiden_bic?"),
    (
        "[tcp]\ncongestion = \"warp\"",
        &["proxy", "-c", "FILE"],
        4,
        "[tcp]: congestion 'warp' cannot be had: this kernel",
    ),
    ("nam = \"x\"", &["proxy", "-c", "FILE"], 3, "FILE:1: unknown field `nam`"),
    (
        "name = \"x\"\n[listen.s]\nkind = \"socks5\"\naddress = \"0.0.0.0:1080\"",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:4: anyone who can reach",
    ),
    (
        "name = \"x\"\n[listen.s]\nkind = \"socks5\"\naddress = \"192.0.2.9:1080\"\nopen = true",
        &["proxy", "-c", "FILE"],
        5,
        "cannot listen on 192.0.2.9:1080",
    ),
];

#[test]
fn every_kind_of_failure_has_its_line_and_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    for (i, (text, arguments, code, line)) in CASES.iter().enumerate() {
        let file = folder.path().join(format!("case{i}.toml"));
        std::fs::write(&file, text).unwrap();
        let name = file.display().to_string();
        let arguments: Vec<&str> =
            arguments.iter().map(|argument| argument.replace("FILE", &name).leak() as &str).collect();
        let output = Command::new(env!("CARGO_BIN_EXE_ekiden")).args(&arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {said}");
        assert!(said.contains(&line.replace("FILE", &name)), "{arguments:?}: {said}");
        assert!(*code == 2 || said.lines().count() == 1, "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    use std::process::Stdio;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    let node = |i: u32| format!("[node.n{i}]\n[link.l{i}]\nends = [\"n0\", \"n{i}\"]\nrate = \"1Mbit/s\"\n");
    let nodes: String = (1..240).map(node).collect();
    std::fs::write(&file, format!("name = \"x\"\n[node.n0]\n{nodes}")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ekiden"))
        .args(["scenario", "show"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More than a pipe holds is to come, so the program meets the closed end.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
