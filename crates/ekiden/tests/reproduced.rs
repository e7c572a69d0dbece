//! `ekiden reproduce` on the kernel's TCP: what is run, what is told of it, and what a signal leaves.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::experiment;

const REST: &str = r#"[[runs]]
name = "all"
scenario = "pair.toml"
set = { "flow.f.duration" = "1s" }
vary = { delay = ["10ms", "50ms"] }
simulator = { repeat = 2 }
kernel = { repeat = 2, set = { "tcp.profile" = "linux" } }

[[claims]]
says = "More delay, less throughput."
of = "goodput f"
compare = [{ ratio = ["delay=50ms", "delay=10ms"], below = 0.8 }]
"#;

pub fn trials() -> Vec<Trial> {
    let is_root = crate::is_root();
    let trial = |name: &str, test: fn() -> Result<(), Failed>| Trial::test(name, test).with_ignored_flag(!is_root);
    vec![
        trial("both engines judge the same claim", both),
        trial("a signal ends the labs, and the same command goes on", interrupted),
    ]
}

fn reproduce(folder: &Path, arguments: &[&str]) -> Command {
    experiment::reproduce(folder, REST, &[&["T1", "--json"], arguments].concat())
}

fn records(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder.join("reproduction/records/kernel/T1-window/all")) else { return 0 };
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".json")).count()
}

fn both() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut command = reproduce(folder.path(), &[]);
    // No lab can be built of the scenario alone: the kernel's runs set what is missing.
    let file = folder.path().join("own/window/pair.toml");
    let scenario = std::fs::read_to_string(&file)?;
    std::fs::write(&file, scenario.replace("[tcp]\n", "[tcp]\nprofile = \"rfc\"\n"))?;
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let shown: Value = serde_json::from_slice(&output.stdout)?;
    let claim = &shown["claims"][0];
    assert_eq!(claim["simulator"]["verdict"], "reproduced", "{claim:#}");
    // A machine that does other things may disturb every run, which leaves it open.
    let kernel = claim["kernel"]["verdict"].as_str().unwrap_or_default();
    assert!(["reproduced", "open"].contains(&kernel), "{claim:#}");
    assert!(claim["kernel"]["figures"][0]["effect"]["value"].as_f64().is_some_and(|ratio| ratio < 0.8), "{claim:#}");
    assert_eq!(records(folder.path()), 4);
    Ok(())
}

fn interrupted() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let arguments = ["--engine", "kernel", "--lab-jobs", "1"];
    let mut child = reproduce(folder.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let until = Instant::now() + Duration::from_secs(60);
    while records(folder.path()) == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT)?;
    let status = child.wait()?;
    assert_eq!(status.code(), Some(130), "{status}");
    let there = records(folder.path());
    assert!((1..4).contains(&there), "{there} records");
    let output = reproduce(folder.path(), &arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&format!("{there} of 4 runs are there")), "{said}");
    assert_eq!(records(folder.path()), 4);
    Ok(())
}
