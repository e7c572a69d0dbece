//! `ekiden reproduce` as a user calls it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::experiment;

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");

const REST: &str = r#"[[runs]]
name = "all"
scenario = "pair.toml"
vary = { delay = ["10ms", "20ms"] }
simulator = { repeat = 2 }
quick = { simulator = { repeat = 2, set = { "flow.f.duration" = "1s" } } }

[[claims]]
says = "More delay, less throughput."
published = "half"
of = "goodput f"
compare = [{ ratio = ["delay=20ms", "delay=10ms"], below = 1.0 }]

[[claims]]
says = "More delay, more throughput."
of = "goodput f"
compare = [{ ratio = ["delay=20ms", "delay=10ms"], above = 1.0 }]
because.simulator = "a window takes a round trip | each"

[[claims]]
says = "Nobody knows."
missing = "how it was measured"

[[plots]]
title = "Throughput"
kind = "lines"
x = "delay"
of = "goodput f"
levels = { "a level" = 5.0 }

[[plots]]
title = "Window"
kind = "time"
of = "cwnd"
points = ["delay=10ms"]
"#;

fn reproduce(folder: &Path, arguments: &[&str]) -> Output {
    experiment::reproduce(folder, REST, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn verdicts(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let claims = shown["claims"].as_array().unwrap();
    claims.iter().map(|claim| claim["simulator"]["verdict"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_missing_is_run_and_every_claim_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let output = reproduce(folder.path(), &["T1", "--json"]);
    assert_eq!(verdicts(&output), ["reproduced", "differs", "not decidable"]);
    assert!(
        text(&output.stderr).contains("T1-window/all, simulator: 0 of 4 runs are there"),
        "{}",
        text(&output.stderr)
    );
    let out = folder.path().join("reproduction");
    let records = out.join("records/simulator/T1-window/all");
    assert!(records.join("sweep.toml").exists() && records.join("scenario.toml").exists());
    let [html, markdown] =
        ["html", "md"].map(|ending| std::fs::read_to_string(out.join("report").with_extension(ending)).unwrap());
    for part in [
        "differs: a window takes a round trip | each",
        "the paper does not say how it was measured",
        "T1-window: A window",
        "seeds 0 to 1",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert!(html.contains("<svg") && !html.contains("src="));
    assert!(markdown.contains("differs: a window takes a round trip \\| each"), "{markdown}");
    let pictures: Vec<&str> = markdown.split("](pictures/").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert_eq!(pictures, ["T1-window-1-simulator.svg", "T1-window-2-simulator.svg"]);
    assert!(pictures.iter().all(|name| out.join("pictures").join(name).exists()));

    // Again: nothing is run. With a record less: that one alone.
    let again = reproduce(folder.path(), &["all", "--json"]);
    assert_eq!((again.stdout.clone(), text(&again.stderr)), (output.stdout, String::new()));
    std::fs::remove_file(records.join("pair,link.line.delay=20ms,r1.json")).unwrap();
    let judged = reproduce(folder.path(), &["T1-window", "--judge-only", "--json"]);
    assert_eq!(verdicts(&judged), ["open", "open", "not decidable"]);
    let resumed = reproduce(folder.path(), &["T1-window"]);
    assert!(text(&resumed.stderr).contains("3 of 4 runs are there"), "{}", text(&resumed.stderr));
    assert!(
        text(&resumed.stdout)
            .contains("Simulated: of 3 claims 1 reproduced, 1 differ, 0 open, 1 not decidable, 0 not run.")
    );
}

#[test]
fn quick_runs_are_apart_and_are_marked() {
    let folder = tempfile::tempdir().unwrap();
    let output = reproduce(folder.path(), &["T1", "--quick", "--engine", "simulator"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("reproduced, quick: "), "{}", text(&output.stdout));
    assert!(folder.path().join("reproduction/records/simulator-quick/T1-window/all").is_dir());
    let full = reproduce(folder.path(), &["T1", "--judge-only", "--json"]);
    assert!(text(&full.stdout).contains("\"claims\""));
}

#[test]
fn a_run_that_fails_is_told_and_the_others_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("reproduction/records/simulator/T1-window/all");
    std::fs::create_dir_all(records.join("pair,link.line.delay=20ms,r1.json")).unwrap();
    let output = reproduce(folder.path(), &["T1", "--engine", "simulator"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.ends_with("ekiden: 1 of 4 runs failed; the verdicts are of the others\n"), "{said}");
    assert!(said.contains("ekiden: T1-window/all, link.line.delay=20ms r1: "), "{said}");
    assert!(text(&output.stdout).contains("2 open, 1 not decidable"), "{}", text(&output.stdout));
    assert!(folder.path().join("reproduction/report").with_extension("html").exists());
}

#[test]
fn experiments_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let output = reproduce(folder.path(), &["list"]);
    let said = text(&output.stdout);
    assert!(
        said.contains("T1-window") && said.contains("A window") && said.contains("All: 4 simulated runs"),
        "{said}"
    );
    let output = reproduce(folder.path(), &["list", "--json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&listed[0]["experiment"], &listed[0]["claims"]), (&"T1-window".into(), &3.into()));
    assert_eq!(listed[0]["kernel"]["runs"], 0);
    let own = Command::new(EKIDEN).args(["reproduce", "list"]).current_dir(folder.path()).output().unwrap();
    assert!(text(&own.stdout).contains("S0-fig12"), "{}", text(&own.stdout));
}

#[test]
fn what_is_wrong_has_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let none = reproduce(folder.path(), &["T1-windo"]);
    let said = text(&none.stderr);
    assert_eq!(none.status.code(), Some(2), "{said}");
    assert!(said.contains("there is no experiment 'T1-windo'; did you mean `T1-window`?"), "{said}");
    let file = folder.path().join("own/wrong/experiment.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "titel = 1\n").unwrap();
    let wrong = reproduce(folder.path(), &["all"]);
    assert_eq!(wrong.status.code(), Some(3), "{}", text(&wrong.stderr));
    assert!(text(&wrong.stderr).contains("own/wrong/experiment.toml:1: "), "{}", text(&wrong.stderr));
}

/// Fenced blocks of the guide whose mark is `mark`.
fn examples(mark: &str) -> Vec<String> {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/reproduce.md");
    let page = std::fs::read_to_string(page).unwrap();
    let fence = format!("```{mark}\n");
    let blocks = page.split(&fence).skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_guides_examples_are_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = folder.path().join("own/delay");
    std::fs::create_dir_all(&experiment).unwrap();
    let island = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/island.toml");
    std::fs::copy(island, experiment.join("island.toml")).unwrap();
    let [description] = &examples("toml reproduce")[..] else { panic!("one description") };
    std::fs::write(experiment.join("experiment.toml"), description).unwrap();
    let arguments = ["reproduce", "all", "--from", "own", "--quick", "--engine", "simulator", "--json"];
    let output = Command::new(EKIDEN).args(arguments).current_dir(folder.path()).output().unwrap();
    assert_eq!(verdicts(&output), ["reproduced", "not decidable"]);
    let [calls] = &examples("sh reproduce")[..] else { panic!("one block of calls") };
    for call in calls.lines() {
        let words: Vec<&str> = call.split_whitespace().collect();
        assert_eq!(words[..2], ["ekiden", "reproduce"], "{call}");
        let output = Command::new(EKIDEN).args(&words[1..]).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{call}: {}", text(&output.stderr));
    }
}
