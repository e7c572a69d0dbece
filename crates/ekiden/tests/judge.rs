//! The judges of `bench/experiments`: what follows from records, and what does not.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use ekiden_record::{Lateness, Record};

const SCENARIO: &str = "name = \"pair\"\n[node.a]\n[node.b]\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"10ms\"\n\
                        [flow.f]\nfrom = \"a\"\nto = \"b\"\nbytes = \"100KB\"\n";

/// One simulated run.
fn record(folder: &Path) -> Record {
    fs::write(folder.join("pair.toml"), SCENARIO).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    let output = command.current_dir(folder).args(["simulate", "pair.toml", "--record", "r.json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Record::read(&folder.join("r.json")).unwrap()
}

/// The same as a lab's: `times` as fast, with packets `late_us` late.
fn of_lab(record: &Record, times: f64, late_us: f64) -> Record {
    let mut record = record.clone();
    for flow in &mut record.flows {
        flow.goodput_bit_s = (flow.goodput_bit_s as f64 * times) as u64;
    }
    for link in &mut record.links {
        link.lateness = Some(Lateness { p50_us: 0.0, p99_us: late_us, max_us: late_us, queue_drain_us: None });
    }
    record.stolen_percent = Some(12.0);
    record
}

/// What the judge of `fidelity` says of these records, written as `to_json` writes them.
fn judge(folder: &Path, simulated: &Record, lab: &[Record], to_json: fn(&Record) -> String) -> Output {
    for (kind, records) in [("simulated", std::slice::from_ref(simulated)), ("lab", lab)] {
        let case = folder.join("records").join(kind).join("pair");
        let _ = fs::remove_dir_all(&case);
        fs::create_dir_all(&case).unwrap();
        for (at, record) in records.iter().enumerate() {
            fs::write(case.join(format!("r{at}.json")), to_json(record)).unwrap();
        }
    }
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/experiments/fidelity/judge");
    let mut command = Command::new("python3");
    command.arg(judge).arg(folder.join("records")).env("EKIDEN", env!("CARGO_BIN_EXE_ekiden")).output().unwrap()
}

#[test]
fn a_difference_is_told_from_what_the_machine_did() {
    let folder = tempfile::tempdir().unwrap();
    let simulated = record(folder.path());
    let lab = |times, late_us| of_lab(&simulated, times, late_us);
    for (runs, code, cell, said) in [
        (
            vec![lab(1.0, 100.0)],
            0,
            "| +0% |",
            "Of 1 goodputs 0 differ by more than 10 %, 0 could not be judged; 0 shares",
        ),
        (vec![lab(0.8, 100.0)], 1, "| **+25%** |", "1 differ"),
        // A disturbed run counts for nothing beside a calm one.
        (vec![lab(1.0, 100.0), lab(0.1, 5000.0)], 0, "| +0% |", "1 lab runs were disturbed"),
        (vec![lab(0.8, 5000.0)], 2, "| (+25%) |", "a hypervisor took 12 % of the processors' time"),
        (vec![lab(1.0, 5000.0)], 2, "| (+0%) |", "1 could not be judged"),
    ] {
        let output = judge(folder.path(), &simulated, &runs, Record::to_json);
        let [table, told] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert_eq!(output.status.code(), Some(code), "{table}{told}");
        assert!(table.contains(cell) && told.contains(said), "{table}{told}");
    }
}

#[test]
fn records_that_do_not_say_whether_they_were_disturbed_are_judged_alike() {
    let folder = tempfile::tempdir().unwrap();
    let simulated = record(folder.path());
    let runs = [of_lab(&simulated, 1.0, 100.0), of_lab(&simulated, 0.1, 5000.0)];
    let without = |record: &Record| serde_json::to_string(record).unwrap();
    let [new, old] = [Record::to_json, without].map(|to_json| judge(folder.path(), &simulated, &runs, to_json));
    assert_eq!(new.status.code(), Some(0), "{new:?}");
    assert_eq!(new, old);
}

#[test]
fn chances_are_those_of_the_published_tables() {
    // Of 252 orders of five and five values two have them apart; 9 of 20 is the 5 % of two samples of 20 (0.0335). Holm's example is that
    // of many textbooks.
    const SCRIPT: &str = "
import chance
shifted = lambda by, size: round(chance.smirnov(range(size), range(by, size + by)), 4)
print(shifted(5, 5), shifted(0, 20), shifted(8, 20), shifted(9, 20), round(chance.smirnov(range(20), range(40)), 4))
print([round(value, 3) for value in chance.holm([0.01, 0.04, 0.03, 0.005])], chance.holm([0.6, 0.7]))";
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/lib");
    let output = Command::new("python3").args(["-Bc", SCRIPT]).env("PYTHONPATH", library).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "0.0079 1.0 0.0811 0.0335 0.0019\n[0.03, 0.06, 0.06, 0.02] [1.0, 1.0]\n";
    assert_eq!(said, expected, "{output:?}");
}

/// What a script prints that has what a judge defines, in `judge`.
fn asked(experiment: &str, script: &str) -> String {
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../bench/experiments/{experiment}/judge"));
    let load = format!(
        "import runpy, sys\nsys.argv = ['judge', 'nowhere']\njudge = runpy.run_path({judge:?}, run_name='judge')\n{script}"
    );
    let output = Command::new("python3").args(["-Bc", &load]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Of files that are long the pages have short tables and pictures; nobody writes these by hand.
#[test]
fn pages_show_what_their_csv_files_have() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (page, judge) in [("tunnel", "tunnel/judge"), ("tunnel-lab", "tunnel/judge-lab")] {
        let (beside, made) = (root.join("docs/measurements").join(page), tempfile::tempdir().unwrap());
        let files: Vec<_> = fs::read_dir(&beside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        for file in files.iter().filter(|file| file.to_string_lossy().ends_with(".csv")) {
            fs::copy(beside.join(file), made.path().join(file)).unwrap();
        }
        let judge = root.join("bench/experiments").join(judge);
        let output = Command::new("python3").arg("-B").arg(&judge).arg("--csv").arg(made.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let (text, said) =
            (fs::read_to_string(beside.with_extension("md")).unwrap(), String::from_utf8(output.stdout).unwrap());
        let rows: Vec<_> = said.lines().filter(|line| line.starts_with('|')).collect();
        assert!(rows.len() > 5, "{said}");
        for row in rows {
            assert!(text.lines().any(|line| line == row), "{} has no row\n{row}", beside.display());
        }
        for entry in fs::read_dir(made.path()).unwrap().map(|entry| entry.unwrap()) {
            let [new, kept] = [made.path(), &beside].map(|folder| fs::read(folder.join(entry.file_name())).unwrap());
            assert!(new == kept, "{:?} of {} is another one", entry.file_name(), beside.display());
        }
    }
}

#[test]
fn drops_of_random_paths_are_judged_by_runs_of_one_seed() {
    const SCRIPT: &str = "
off = lambda lab, simulated: judge['far_off']('drops', lab, simulated)
print(off([100, 200, 300], [109, 185, 301]), off([100, 200, 300], [150, 280, 420]))
# Medians of 200 both, and no run is like the other.
print(off([100, 200, 400], [400, 200, 100]))
# One overflow of a thousand does not hide among runs without any, and few drops are compared with few.
print(off([0, 0, 1000], [0, 0, 500]), off([0, 0, 1000], [0, 0, 1050]), off([20, 22, 25], [24, 21, 60]), off([20, 22, 25], [40, 41, 60]))
# Nor does one that the lab has not; and a difference of one packet is none.
print(off([0, 0, 0, 0, 0], [0, 0, 900, 900, 0]), off([0, 50, 99], [0, 0, 5000]), off([99], [98]), off([300, 310, 99], [300, 310, 98]))";
    assert_eq!(asked("paths", SCRIPT), "False True\nTrue\nTrue False True True\nTrue True False False\n");
}

/// A benchmark that was stopped while it wrote a line goes on behind the last whole one.
#[test]
fn a_line_that_was_not_written_whole_is_taken_out() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/lib");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.jsonl");
    let run = || {
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", &library).env("PYTHONDONTWRITEBYTECODE", "1").arg("-c");
        let output = command.arg("import lines, sys; print(lines.kept(sys.argv[1]))").arg(&file).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let kept = || {
        let (success, values, error) = run();
        assert!(success, "{error}");
        values
    };
    assert_eq!(kept(), "[]\n");
    for (content, values, left) in [
        ("", "[]\n", ""),
        ("{\"a\"", "[]\n", ""),
        ("{\"a\": 1}\n{\"b\": 2", "[{'a': 1}]\n", "{\"a\": 1}\n"),
        ("{\"a\": 1}\n{\"b\": 2}\n", "[{'a': 1}, {'b': 2}]\n", "{\"a\": 1}\n{\"b\": 2}\n"),
        ("{\"a\": 1}\n\n{\"b\": 2}", "[{'a': 1}, {'b': 2}]\n", "{\"a\": 1}\n\n{\"b\": 2}\n"),
    ] {
        fs::write(&file, content).unwrap();
        assert_eq!(kept(), values, "{content}");
        assert_eq!(fs::read_to_string(&file).unwrap(), left);
    }
    // A file of something else.
    for content in ["notes\n{\"b\": 2", "notes\nand more\n", "notes"] {
        fs::write(&file, content).unwrap();
        let (success, _, error) = run();
        assert!(!success && error.contains("it is no file of this benchmark"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
    }
}
