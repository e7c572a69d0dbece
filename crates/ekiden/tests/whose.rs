//! A file of another command is named as such by every command that takes a file.

use std::fs;
use std::path::Path;
use std::process::Command;

const PRINT: &str = "sha256:c17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17ec17e";

/// The kinds of files, and what each is called.
const KINDS: [(&str, &str); 10] = [
    ("proxy.toml", "a configuration of `ekiden proxy`"),
    ("tunnel.toml", "a configuration of `ekiden tunnel`"),
    ("gateway.toml", "a configuration of `ekiden gateway`"),
    ("monitor.toml", "a configuration of `ekiden measure monitor`"),
    ("scenario.toml", "a scenario of `ekiden lab run` and `ekiden simulate`"),
    ("members.toml", "a members file of an overlay"),
    ("sites.toml", "a file of sites of `ekiden overlay simulate`"),
    ("plan.toml", "a description of a path for `ekiden plan`"),
    ("path.json", "a record of `ekiden measure path`"),
    ("run.json", "a record of `ekiden lab run` or `ekiden simulate`"),
];

/// How commands are called with a file behind these words, what they are called, and which kinds they take.
const COMMANDS: &[(&[&str], &str, &[&str])] = &[
    (&["proxy", "--check", "-c"], "proxy", &["proxy.toml"]),
    (&["tunnel", "--check", "-c"], "tunnel", &["tunnel.toml"]),
    (&["gateway", "--check", "-c"], "gateway", &["gateway.toml"]),
    (&["doctor", "-c"], "doctor", &["proxy.toml", "tunnel.toml"]),
    (&["peer", "list", "-c"], "peer", &["proxy.toml"]),
    (&["peer", "add", "b", "192.0.2.1:7000", PRINT, "-c"], "peer", &["proxy.toml"]),
    (&["peer", "allow", "b", PRINT, "-c"], "peer", &["proxy.toml"]),
    (&["peer", "remove", "b", "-c"], "peer", &["proxy.toml"]),
    (&["measure", "server", "--listen", "127.0.0.1:0", "-c"], "measure server", &["proxy.toml"]),
    (&["measure", "client", "b", "-c"], "measure client", &["proxy.toml"]),
    (&["measure", "path", "b", "-c"], "measure path", &["proxy.toml"]),
    (&["measure", "monitor", "check", "-c"], "measure monitor", &["monitor.toml"]),
    (&["overlay", "join", "new.toml", "--address", "192.0.2.1:1", "-c"], "overlay join -c", &["proxy.toml"]),
    (&["overlay", "join", "-c", "proxy.toml", "--address", "192.0.2.1:1"], "overlay join", &["members.toml"]),
    (&["overlay", "simulate"], "overlay simulate", &["sites.toml"]),
    (&["overlay", "scenario"], "overlay scenario", &["sites.toml"]),
    (&["plan"], "plan", &["plan.toml", "path.json"]),
    (&["simulate"], "simulate", &["scenario.toml"]),
    (&["scenario", "check"], "scenario", &["scenario.toml"]),
    (&["lab", "run"], "lab run", &["scenario.toml"]),
    (&["record", "show"], "record show", &["run.json"]),
    (&["record", "export", "--csv"], "record export", &["run.json"]),
];

fn files(folder: &Path) {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    fs::copy(scenarios.join("sites-4.toml"), folder.join("sites.toml")).unwrap();
    fs::copy(scenarios.join("island.toml"), folder.join("scenario.toml")).unwrap();
    ekiden_keys::Identity::generate(&folder.join("node.key")).unwrap();
    write(
        "proxy.toml",
        "name = \"a\"\nkey_file = \"node.key\"\n[listen.x]\nkind = \"socks5\"\naddress = \"127.0.0.1:1\"\n",
    );
    write(
        "tunnel.toml",
        &format!(
            "[device]\naddresses = [\"10.77.0.1/24\"]\n[peer.b]\nfingerprint = \"{PRINT}\"\nallowed = [\"10.77.0.2\"]\n"
        ),
    );
    write("gateway.toml", "device = \"eth0\"\n");
    write("monitor.toml", "history = \"h\"\n[target.a]\niperf3 = \"127.0.0.1\"\n");
    write("members.toml", &format!("[node.a]\naddress = \"192.0.2.1:7000\"\nfingerprint = \"{PRINT}\"\n"));
    write("plan.toml", "# A path.\nrtt = \"10ms\"\nrate = \"1Mbit/s\"\n");
    write("path.json", "{\"path_format\": 1}");
    write("run.json", "{\"manifest\": {}}");
    fs::create_dir(folder.join("sweep")).unwrap();
    write("sweep/1.json", "{\"measurement_format\": 1}");
}

/// The exit code, and standard error.
fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ekiden")).args(arguments).current_dir(folder).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_file_of_another_command_is_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    files(folder);
    for (arguments, command, takes) in COMMANDS {
        for (file, what) in KINDS.iter().filter(|(file, _)| !takes.contains(file)) {
            let (code, said) = run(folder, &[*arguments, &[*file]].concat());
            let expected = format!("{file}: this is {what}");
            assert!(
                said.contains(&expected) && said.contains(&format!(", not of `ekiden {command}`")),
                "{arguments:?} {file}: {said}"
            );
            assert_eq!((code, said.lines().count()), (Some(3), 1), "{arguments:?} {file}: {said}");
        }
    }
    for command in ["show", "export"] {
        let arguments: &[&str] =
            if command == "show" { &["record", "show", "sweep"] } else { &["record", "export", "sweep", "--csv"] };
        let (code, said) = run(folder, arguments);
        assert!(said.contains("sweep: this is a sweep of `ekiden measure client`"), "{said}");
        assert_eq!(code, Some(3), "{said}");
    }
    let (_, said) = run(folder, &["plan", "run.json"]);
    assert!(said.contains("; a record of a path comes from `ekiden measure path --record`"), "{said}");
}

/// A file that is refused for its length costs no memory either.
#[test]
fn a_file_of_gigabytes_is_looked_at_in_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.toml");
    fs::File::create(&file).unwrap().set_len(3 << 30).unwrap();
    for command in [&["proxy", "--check", "-c"][..], &["tunnel", "-c"], &["plan"]] {
        // Address space in KiB.
        let limited = format!("ulimit -v {}; exec \"$0\" \"$@\"", 1 << 20);
        let mut shell = Command::new("sh");
        let output =
            shell.args(["-c", &limited, env!("CARGO_BIN_EXE_ekiden")]).args(command).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{command:?}: {said}");
        assert!(said.contains("long.toml") && said.lines().count() == 1, "{command:?}: {said}");
    }
}
