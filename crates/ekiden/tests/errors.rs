//! Wrong input gets one clear line and its own exit code.

use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

const KEY: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const PAIR: &str = "name = \"pair\"\n[node.a]\n[node.b]\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"1Mbit/s\"\n";
const PROXY: &str = "name = \"x\"\n[node.p]\nkind = \"proxy\"\nnext = [\"p\"]\n[node.b]\n[link.l]\nends = [\"p\", \"b\"]\nrate = \"1Mbit/s\"\n";
const NOPE: &str = "name = \"x\"\n[tcp]\ncongestion = \"nope\"\n[node.a]\n[node.b]\n[link.l]\nends = [\"a\", \"b\"]\nrate = \"1Mbit/s\"\n";

/// (what is written to the file, how ekiden is called with FILE, exit code, part of the line)
const CASES: &[(&str, &[&str], i32, &str)] = &[
    ("", &["lab", "fly", "FILE"], 2, "unrecognized subcommand"),
    ("", &["reload"], 2, "a program reads its file again at SIGHUP"),
    ("", &["proxy", "node.toml"], 2, "a file is given as `-c node.toml`"),
    ("name = 1", &["scenario", "check", "FILE"], 3, "FILE:1: "),
    ("name = \"x\"\nnode = 1", &["lab", "run", "FILE"], 3, "FILE:2: "),
    ("", &["lab", "run", "FILE", "--repeat", "0"], 2, "0 is not a whole number from 1 to 1000"),
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
    (
        "",
        &["congestion", "load", "ekiden_bic", "--set", "far.queue=0.5"],
        2,
        "far.queue is a parameter of ekiden_far, not of ekiden_bic; 'ekiden congestion load ekiden_far' loads",
    ),
    ("", &["congestion", "set", "ghstcp.spam=1"], 2, "there is no parameter 'ghstcp.spam' (there are "),
    ("", &["congestion", "set"], 2, "<KEY=VALUE>"),
    (
        "[congestion.ghstcp]\nspan = 99",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:2: ghstcp.span cannot be '99': it is a number from 0.05 to 8: ",
    ),
    (
        "[tcp]\ncongestion = \"bic\"\n[listen.s]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"",
        &["proxy", "-c", "FILE", "--check"],
        4,
        "; did you mean ekiden_bic?",
    ),
    (
        "[tcp]\ncongestion = \"warp\"\n[listen.s]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"",
        &["proxy", "-c", "FILE"],
        4,
        "FILE:2: [tcp]: congestion 'warp' is not available: this kernel",
    ),
    (
        "[listen.\"s.1\"]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\ntcp = { congestion = \"warp\" }",
        &["proxy", "-c", "FILE", "--check"],
        4,
        "FILE:4: [listen.s.1]: congestion 'warp' is not available: this kernel",
    ),
    ("nam = \"x\"", &["proxy", "-c", "FILE"], 3, "FILE:1: unknown field `nam`"),
    (
        "[listen.a]\nkind = \"http\"\nadress = \"127.0.0.1:0\"",
        &["proxy", "-c", "FILE"],
        3,
        "; did you mean `address`?\n",
    ),
    ("[limits]\nuser_conections = 1", &["proxy", "-c", "FILE"], 3, "; did you mean `user_connections`?\n"),
    (
        "name = \"x\"\n[node.a]\n[link.l]\nends = [\"a\", \"a\"]\nrate = \"1Mbit/s\"\ndealy = \"1ms\"",
        &["scenario", "check", "FILE"],
        3,
        "; did you mean `delay`?\n",
    ),
    (PAIR, &["simulate", "FILE", "--set", "tcp.sacks=true"], 3, "; did you mean `sack`?\n"),
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
        "FILE:4: [listen.s]: cannot listen on 192.0.2.9:1080: Cannot assign requested address (os error 99); it is not an address of this host. \
         Where a router or a cloud translates a public address (NAT), listen on 0.0.0.0:1080",
    ),
    // A file's type and length, and whether it is text.
    ("", &["proxy", "-c", "/tmp"], 3, "/tmp: cannot be read: it is a directory, and only a regular file will do"),
    ("", &["proxy", "-c", "/dev/zero"], 3, "/dev/zero: cannot be read: it is a device"),
    (
        "key_file = \"/dev/zero\"",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:1: key file /dev/zero: cannot be read: it is a device",
    ),
    ("key_file = \"/tmp\"", &["proxy", "-c", "FILE"], 3, "key file /tmp: cannot be read: it is a directory"),
    (
        "",
        &["keygen", "--show", "/nonexistent"],
        3,
        "No such file or directory (os error 2); `ekiden keygen` makes keys",
    ),
    ("", &["scenario", "check", "/dev/zero"], 3, "/dev/zero: cannot be read: it is a device"),
    ("", &["record", "show", "/dev/zero"], 3, "/dev/zero: cannot be read: it is a device"),
    ("", &["lab", "chart", "/dev/zero"], 3, "/dev/zero: cannot be read: it is a device"),
    // A configuration's keys.
    (
        "threads = \"2\"",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:1: threads: invalid type: it is string \"2\", and must be a whole",
    ),
    (
        "[limits]\nhandshake = 10",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:2: limits.handshake: 10 has no unit: it must be a text in quotes, such as \"10ms\" or \"10s\"",
    ),
    (
        "[limits]\nhandshake = \"10\"",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:2: limits.handshake: '10' needs one of the units",
    ),
    (
        "name = \"a\"\nname = \"b\"",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:2: duplicate key `name`: it has a value already in line 1",
    ),
    (
        "[listen.a]\n[listen.a]\n",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:2: duplicate key: [listen.a] is there already in line 1",
    ),
    ("[listen.a]\nkind = \"http\"", &["proxy", "-c", "FILE"], 3, "FILE:1: listen.a: missing field `address`"),
    (
        "[listen]\nkind = \"http\"",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:2: listen.kind: invalid type: it is string \"http\", and must be a table",
    ),
    ("[listen.a]\nkind = 5", &["proxy", "-c", "FILE"], 3, "FILE:2: listen.a.kind: it must be a text in quotes"),
    ("[listen.a]\nkind = \"sock5\"", &["proxy", "-c", "FILE"], 3, "FILE:2: listen.a.kind: unknown variant `sock5`"),
    ("[listen.a]\nkind = \"sock5\"", &["proxy", "-c", "FILE"], 3, "; did you mean `socks5`?\n"),
    ("[listen.a]\nkind = \"quic\"", &["proxy", "-c", "FILE"], 3, "`leg`, `transparent`\n"),
    (
        "[[route]]\nto = \"*\"",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:2: route.to: invalid type: it is string \"*\", and must be a list",
    ),
    (
        "[route]\nto = [\"*\"]",
        &["proxy", "-c", "FILE"],
        3,
        "FILE:1: route: invalid type: it is a table, and must be a list",
    ),
    ("name = \"a", &["proxy", "-c", "FILE"], 3, "FILE:1: name: invalid basic string"),
    // A scenario's.
    (
        "name = \"x\"\n[link.l]\nends = [\"a\"]\nrate = \"1Mbit/s\"",
        &["scenario", "check", "FILE"],
        3,
        "FILE:3: link.l.ends: it is a list of 1, and must be one of 2, such as [\"a\", \"b\"]",
    ),
    (
        "name = \"x\"\n[link.l]\nends = [\"a\", \"b\", \"c\"]\nrate = \"1Mbit/s\"",
        &["scenario", "check", "FILE"],
        3,
        "FILE:3: link.l.ends: it is a list of 3, and must be one of 2",
    ),
    (
        "name = \"x\"\n[link.l]\nends = [\"a\", \"b\"]\nrate = \"0bit/s\"\n[node.a]\n[node.b]",
        &["scenario", "check", "FILE"],
        3,
        "FILE:4: link.l.rate: '0bit/s' is out of range: 1kbit/s to 1Tbit/s",
    ),
    (
        "name = \"x\"\n[link.l]\nends = [\"a\", \"b\"]\nrate = 5",
        &["scenario", "check", "FILE"],
        3,
        "FILE:4: link.l.rate: invalid type: it is integer `5`, and must be a text in quotes, such as \"70Mbit/s\"",
    ),
    (
        "name = \"x\"\n[congestion.bic]\nsmax = 5",
        &["scenario", "check", "FILE"],
        3,
        "FILE:3: there is no parameter 'bic.smax' (there are ",
    ),
    ("name = \"x\"\n[congestion.bic]\nsmax = 5", &["simulate", "FILE"], 3, "; did you mean `s_max`?"),
    (
        PAIR,
        &["simulate", "FILE", "--set", "congestion.bic.s_max=0"],
        3,
        "--set congestion.bic.s_max=0: bic.s_max cannot be '0': it is a number from 1 to 10000: ",
    ),
    (PROXY, &["scenario", "check", "FILE"], 3, "FILE:4: the 'next' of 'p' leads to itself"),
    (
        NOPE,
        &["scenario", "check", "FILE"],
        4,
        "FILE:3: can neither be simulated (node.a.tcp.congestion: the simulator has no 'nope'",
    ),
    (NOPE, &["lab", "run", "FILE"], 4, "FILE:3: node 'a': this kernel has no congestion control 'nope'"),
    (PAIR, &["lab", "run", "FILE", "--set", "tcp.congestion=nope"], 4, "FILE: node 'a': this kernel has no"),
    // What cannot be written, and what is there.
    (PAIR, &["simulate", "FILE", "--record", "/proc/x.json"], 3, "/proc/x.json: cannot be written: "),
    (PAIR, &["simulate", "FILE", "--record", "/dev/full"], 3, "/dev/full: cannot be written: No space left on device"),
    (PAIR, &["lab", "run", "FILE", "--record", "/proc/x.json"], 3, "/proc/x.json: cannot be written: "),
    (PAIR, &["lab", "chart", "FILE", "-o", "x.png"], 2, "pictures are SVG only: name a file that ends in .svg"),
    (PAIR, &["lab", "chart", "FILE", "--from", "5s", "--to", "2s"], 2, "--to must be later than --from"),
    (
        "[listen.s]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"",
        &["tunnel", "-c", "FILE"],
        3,
        "FILE: this is a configuration of `ekiden proxy`, not of `ekiden tunnel`",
    ),
    (
        "[device]\naddresses = [\"10.77.0.1/24\"]\n[peer.x]\nallowed = [\"10.77.0.2\"]",
        &["proxy", "-c", "FILE"],
        3,
        "FILE: this is a configuration of `ekiden tunnel`, not of `ekiden proxy`",
    ),
    ("name = \"x\"", &["tunnel", "-c", "FILE"], 3, "FILE: the file needs a table [device]"),
    (
        "[overlay.etcd]\nnear = [\".example\"]\n",
        &["proxy", "--check", "-c", "FILE"],
        3,
        "; the operator says that of a node: `ekiden overlay admit --near`",
    ),
    (
        "",
        &["overlay", "join", "FILE", "-c", "n.toml", "--address", "h:1", "--near", "10.0.0.1/8"],
        2,
        "10.0.0.1/8 is no network: 10.0.0.0/8 is the one around it",
    ),
    (
        "",
        &["overlay", "join", "FILE", "-c", "n.toml", "--address", "h:1", "--near", "[2001:db8::1/32]:443"],
        2,
        "2001:db8::/32 is the one around it",
    ),
    ("", &["overlay", "join", "FILE", "-c", "n.toml", "--address", "h:1", "--region", ""], 2, "'--region <NAME>'"),
    (
        "",
        &["overlay", "join", "FILE", "-c", "n.toml", "--address", "h:1", "--price", "1e300"],
        2,
        "'--price <NUMBER>': a price is a number from 0 to 1000000000",
    ),
    (
        "",
        &["overlay", "admit", "o", "--etcd", "http://127.0.0.1:1", "n", KEY, "--near", "10.0.0.1/8"],
        2,
        "10.0.0.1/8 is no network: 10.0.0.0/8 is the one around it",
    ),
    (
        "",
        &["overlay", "admit", "o", "--etcd", "http://127.0.0.1:1", "n", KEY, "--near", "[2001:db8::1/32]:443"],
        2,
        "2001:db8::/32 is the one around it",
    ),
    ("", &["overlay", "admit", "o", "--etcd", "http://127.0.0.1:1", "n", KEY, "--region", ""], 2, "'--region <NAME>'"),
    (
        "",
        &["overlay", "admit", "o", "--etcd", "http://127.0.0.1:1", "n", KEY, "--price", "1e300"],
        2,
        "'--price <NUMBER>': a price is a number from 0 to 1000000000",
    ),
    ("", &["doctor", "--rtt", "1h"], 2, "'--rtt <TIME>': it is from 10us to 10s"),
    ("", &["doctor", "--rate", "2Tbit/s"], 2, "'--rate <RATE>': it is from "),
    ("", &["doctor", "--rate", "1Tbit/s", "--rtt", "10s"], 2, " on the way: at most 17.2 GB are on any path"),
    (PAIR, &["demo", "--output", "/proc/demo"], 3, "/proc/demo: cannot be written: "),
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
        // An address that cannot be had is waited for, which is told before.
        let lines = if *code == 5 { 2 } else { 1 };
        assert!(*code == 2 || said.lines().count() <= lines, "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn a_pipe_and_a_file_that_is_no_text_or_too_long_are_refused_at_once() {
    use std::time::{Duration, Instant};
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    nix::unistd::mkfifo(&folder.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::write(place("latin1"), b"# caf\xe9\n").unwrap();
    std::fs::File::create(place("long")).unwrap().set_len((1 << 20) + 1).unwrap();
    for (name, said) in [
        ("pipe", "it is a pipe"),
        ("latin1", "line 1 is not UTF-8, from byte 6 of"),
        ("long", "more than 1048576 bytes"),
    ] {
        for command in [&["proxy", "--check", "-c"][..], &["scenario", "check"], &["peer", "remove", "x", "-c"]] {
            let started = Instant::now();
            let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"))
                .args(command)
                .arg(place(name))
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            while command.try_wait().unwrap().is_none() {
                if started.elapsed() > Duration::from_secs(20) {
                    command.kill().unwrap();
                    panic!("{name}: it waits");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let output = command.wait_with_output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(3), "{error}");
            assert!(error.contains(said) && error.lines().count() == 1, "{error}");
        }
    }
}

#[test]
fn a_record_that_is_there_is_replaced_only_if_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        command.current_dir(folder.path()).args(["simulate", "pair.toml", "--record", "x.json"]).args(arguments);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    std::fs::write(folder.path().join("pair.toml"), PAIR).unwrap();
    std::fs::write(folder.path().join("x.json"), "mine").unwrap();
    let (code, said) = run(&[]);
    assert!(code == Some(3) && said.contains("x.json: is there already; name another file, or say --force"), "{said}");
    assert_eq!(std::fs::read_to_string(folder.path().join("x.json")).unwrap(), "mine");
    assert_eq!(run(&["--force"]), (Some(0), String::new()));
    assert!(std::fs::read_to_string(folder.path().join("x.json")).unwrap().contains("\"producer\": \"simulate\""));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside it");
    let record = folder.path().join("x.json");
    std::fs::remove_file(&record).unwrap();
    nix::unistd::mkfifo(&record, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // A pipe that nobody reads is no place for a record, and is left as it is; one with a reader is.
    let (code, said) = run(&["--force"]);
    assert!(code == Some(3) && said.contains("x.json: ") && said.lines().count() == 1, "{said}");
    assert!(!std::fs::metadata(&record).unwrap().is_file());
    // Opened before, and without waiting for a writer. What it holds is read afterwards.
    let mut reader = std::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(&record).unwrap();
    assert_eq!(run(&["--force"]).0, Some(0));
    let mut read = String::new();
    std::io::Read::read_to_string(&mut reader, &mut read).unwrap();
    assert!(read.contains("\"producer\": \"simulate\""), "{read}");
}

#[test]
fn a_flow_that_begins_while_another_drains_is_told_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let flows = "[flow.one]\nfrom = \"a\"\nto = \"b\"\nduration = \"1s\"\nend = \"drain\"\n[flow.two]\nfrom = \"a\"\nto = \"b\"\nstart = \"1s\"\nbytes = \"1B\"\n";
    std::fs::write(folder.path().join("pair.toml"), format!("{PAIR}{flows}")).unwrap();
    for arguments in [&["scenario", "check", "pair.toml"][..], &["simulate", "pair.toml"]] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_ekiden")).current_dir(folder.path()).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(said.starts_with("ekiden: warning: flow 'two' starts at 1s, when what flow 'one' has sent"), "{said}");
    }
}

#[test]
fn what_only_one_of_lab_and_simulator_can_run_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pair.toml");
    std::fs::write(&file, format!("{PAIR}discipline = \"red\"\n")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_ekiden")).args(["scenario", "check"]).arg(&file).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success()
            && said.contains("'pair' can be simulated, but not be run in the lab (link.line.discipline: "),
        "{said}"
    );
}

#[test]
fn records_of_the_same_connections_are_told_apart_in_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let ekiden = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_ekiden")).current_dir(folder.path()).args(arguments).output().unwrap()
    };
    let flow = "[flow.one]\nfrom = \"a\"\nto = \"b\"\nduration = \"3s\"\n";
    std::fs::write(folder.path().join("pair.toml"), format!("{PAIR}{flow}")).unwrap();
    for record in ["first.json", "second.json"] {
        let output = ekiden(&["simulate", "pair.toml", "--record", record]);
        assert!(output.status.success(), "{output:?}");
    }
    assert!(ekiden(&["lab", "chart", "first.json", "second.json"]).status.success());
    let picture = std::fs::read_to_string(folder.path().join("chart.svg")).unwrap();
    for name in ["first: flow one 0", "second: flow one 0"] {
        assert!(picture.contains(name), "{name} is missing");
    }
    for (arguments, part) in [
        (&[][..], "chart.svg: is there already; name another file, or say --force"),
        (&["-o", "/proc/x.svg"], "/proc/x.svg: cannot be written: "),
    ] {
        let output = ekiden(&[&["lab", "chart", "first.json"][..], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains(part), "{said}");
    }
    assert!(ekiden(&["lab", "chart", "first.json", "--force"]).status.success());
    // What is wrong with a record is said before what is wrong with the picture's place.
    let output = ekiden(&["lab", "chart", "pair.toml"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("pair.toml: ") && !said.contains("chart.svg"), "{said}");
    let two = format!("{PAIR}{flow}{}", flow.replace("one", "two").replace("3s", "300ms"));
    std::fs::write(folder.path().join("two.toml"), two).unwrap();
    assert!(ekiden(&["simulate", "two.toml", "--record", "two.json"]).status.success());
    let output = ekiden(&["lab", "chart", "two.json", "-o", "two.svg"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("left out, with fewer than the 10 points that a line needs: flow two 0 ("), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 line: two.svg\n");
    let short = ["simulate", "pair.toml", "--set", "flow.one.duration=500ms", "--record", "short.json"];
    assert!(ekiden(&short).status.success());
    let output = ekiden(&["lab", "chart", "short.json", "-o", "short.svg"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("has the 10 points that a line needs") && said.contains("a longer 'duration'"), "{said}");
    let output = ekiden(&["lab", "chart", "first.json", "--from", "1h", "-o", "late.svg"]);
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("no connection has anything to draw in this time: say another --from or --to"),
        "{output:?}"
    );
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
