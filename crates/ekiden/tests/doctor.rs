//! `ekiden doctor` in a network namespace of its own, whose settings are its own too.

use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");
/// Prints the three settings that the tests change.
const SHOW: &str = "cd /proc/sys/net/ipv4; cat tcp_window_scaling tcp_rmem tcp_slow_start_after_idle";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("ignored: the tests of ekiden doctor make network namespaces, which needs root here");
    }
    let trials = vec![
        Trial::test("what costs throughput is found, set, and gone", found_and_set),
        Trial::test("the paths to a node's peers are looked at", paths),
        Trial::test("without a network there is nothing to reach", unreachable),
    ];
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(!root)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn found_and_set() -> Result<(), Failed> {
    let spoil = "cd /proc/sys/net/ipv4; echo 0 > tcp_window_scaling; echo '4096 131072 262144' > tcp_rmem; \
                 echo 1 > tcp_slow_start_after_idle";
    let doctor = format!("{EKIDEN} doctor --json --rate 100Mbit/s --rtt 100ms");

    let before = in_namespace(&format!("{spoil}; {doctor}"))?;
    assert_eq!(before.status.code(), Some(1), "{before:?}");
    let found = json(&before)?;
    assert_eq!(verdict(&found, "net.ipv4.tcp_window_scaling"), ("costs", Some("1")));
    assert_eq!(verdict(&found, "net.ipv4.tcp_rmem"), ("costs", Some("4096 131072 2500000")));
    assert_eq!(verdict(&found, "net.ipv4.tcp_slow_start_after_idle"), ("costs", Some("0")));
    assert_eq!(verdict(&found, "net.ipv4.tcp_sack"), ("good", None));
    assert_eq!(found["changed"].as_array().map(Vec::len), Some(0));

    // Looking changes nothing.
    let looked = in_namespace(&format!("{spoil}; {doctor} > /dev/null || true; {SHOW}"))?;
    assert_eq!(words(&looked), "0 4096 131072 262144 1");
    let set = in_namespace(&format!("{spoil}; {doctor} --fix > /dev/null || true; {SHOW}"))?;
    assert_eq!(words(&set), "1 4096 131072 2500000 0");

    let told = in_namespace(&format!("{spoil}; {doctor} --fix || true"))?;
    let changed = json(&told)?["changed"].clone();
    let before = |key: &str| {
        let one = changed.as_array()?.iter().find(|one| one["subject"] == key)?;
        one["before"].as_str().map(str::to_owned)
    };
    assert_eq!(before("net.ipv4.tcp_rmem").as_deref(), Some("4096 131072 262144"));
    assert_eq!(before("net.ipv4.tcp_sack"), None);

    // Once it is set, nothing more is found to set; the lines that undo it do.
    let again = in_namespace(&format!("{spoil}; {doctor} --fix > /dev/null || true; {doctor} || true"))?;
    assert!(json(&again)?["findings"].as_array().ok_or("no findings")?.iter().all(|one| one["set"].is_null()));
    let text = doctor.replace(" --json", "");
    let told = in_namespace(&format!("{spoil}; {text} --fix || true"))?;
    let told = String::from_utf8(told.stdout)?;
    let (_, undo) = told.split_once("To undo it:\n").ok_or("it does not say how to undo it")?;
    assert!(undo.contains("  sysctl -w net.ipv4.tcp_rmem='4096 131072 262144'\n"), "{undo}");
    Ok(())
}

fn paths() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let config = "key_file = \"node.key\"\n[peer.city]\naddress = \"127.0.0.1:7000\"\n";
    std::fs::write(folder.path().join("node.toml"), config)?;
    let network = "ip link set lo up; echo 0 > /proc/sys/net/ipv4/tcp_sack; nc -lk 127.0.0.1 7000 > /dev/null & nc=$!; \
                   while ! ss -Htln 'sport = :7000' | grep -q .; do sleep 0.05; done";
    for options in ["-c node.toml", "--to 127.0.0.1:7000"] {
        let script = format!(
            "cd {}; {EKIDEN} keygen node.key > /dev/null 2>&1; {network}; {EKIDEN} doctor {options} --json; code=$?; kill $nc; exit $code",
            folder.path().display()
        );
        let output = in_namespace(&script)?;
        let found = json(&output)?;
        assert_eq!(verdict(&found, "SACK to 127.0.0.1:7000"), ("costs", None), "{found}");
        assert_eq!(verdict(&found, "window scaling to 127.0.0.1:7000"), ("good", None), "{found}");
        assert_eq!(verdict(&found, "round trip to 127.0.0.1:7000"), ("good", None), "{found}");
        assert_eq!(output.status.code(), Some(1));
    }
    Ok(())
}

fn unreachable() -> Result<(), Failed> {
    let output = in_namespace(&format!("{EKIDEN} doctor --to 192.0.2.1:7000"))?;
    assert_eq!(output.status.code(), Some(5));
    let error = String::from_utf8(output.stderr)?;
    assert!(error.starts_with("ekiden: 192.0.2.1:7000: cannot be reached: ") && error.lines().count() == 1, "{error}");
    Ok(())
}

fn in_namespace(script: &str) -> Result<Output, Failed> {
    Ok(Command::new("unshare").args(["--net", "sh", "-c", script]).output()?)
}

fn json(output: &Output) -> Result<Value, Failed> {
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The verdict on a subject, and what it is to be set to.
fn verdict<'a>(found: &'a Value, subject: &str) -> (&'a str, Option<&'a str>) {
    let mut findings = found["findings"].as_array().into_iter().flatten();
    let finding = findings.find(|finding| finding["subject"] == subject).unwrap_or(&Value::Null);
    (finding["verdict"].as_str().unwrap_or("not looked at"), finding["set"].as_str())
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}
