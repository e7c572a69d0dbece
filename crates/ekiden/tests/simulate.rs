//! `ekiden simulate` as a user calls it.

use std::path::Path;
use std::process::{Command, Output};

use ekiden_record::Record;

const SCENARIO: &str = "name = \"pair\"\n[node.a]\n[node.b]\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"10ms\"\n\
                        [flow.f]\nfrom = \"a\"\nto = \"b\"\nduration = \"3s\"\n";

fn simulate(folder: &Path, arguments: &[&str]) -> Output {
    std::fs::write(folder.join("pair.toml"), SCENARIO).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    command.current_dir(folder).args(["simulate", "pair.toml"]).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_single_run_leaves_a_record_and_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = simulate(folder.path(), &["--record", "r.json", "--resolution", "10ms"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("complete"), "{}", text(&output.stdout));
    let path = folder.path().join("r.json");
    let record = Record::read(&path).unwrap();
    assert_eq!(record.manifest.producer, "simulate");
    assert_eq!(record.manifest.kernel, None);
    let samples = record.samples(&path).unwrap().count();
    assert_eq!(record.flows[0].duration_us, 3_000_000);
    assert!(samples.abs_diff(300) <= 1, "{samples} samples in 300 times 10 ms");
    assert!(!text(&output.stderr).contains("--samples"), "{}", text(&output.stderr));
}

#[test]
fn a_record_may_go_into_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let output = simulate(folder.path(), &["--record", "/dev/null"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = simulate(folder.path(), &["--record", "/dev/stderr"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record = Record::parse(&text(&output.stderr), "standard error").unwrap();
    assert_eq!(record.flows[0].duration_us, 3_000_000);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is beside it");
}

#[test]
fn a_record_goes_behind_what_is_printed_into_a_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pair.toml"), SCENARIO).unwrap();
    for flags in [&[][..], &["--json"]] {
        // As `ekiden simulate … > FILE`.
        let printed = folder.path().join("printed");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        command.current_dir(folder.path()).args(["simulate", "pair.toml", "--record", "/dev/stdout"]).args(flags);
        let output = command.stdout(std::fs::File::create(&printed).unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let all = std::fs::read_to_string(&printed).unwrap();
        let records = serde_json::Deserializer::from_str(&all).into_iter::<serde_json::Value>();
        let records = records.map_while(Result::ok).filter(|value| value["manifest"].is_object()).count();
        assert_eq!(records, 1 + flags.len(), "{all}");
        assert!(!flags.is_empty() || all.contains("complete"), "{all}");
    }
}

#[test]
fn what_cannot_be_written_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    for (format, shown) in [(None, "complete"), (Some("--json"), "\"goodput_bit_s\"")] {
        let arguments: Vec<&str> = ["--record", "/dev/full"].into_iter().chain(format).collect();
        let output = simulate(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(shown), "{}", text(&output.stdout));
        assert!(!text(&output.stdout).contains("record: "), "{}", text(&output.stdout));
    }
}

#[test]
fn what_a_gateway_did_is_below_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = "name = \"balanced\"\n[node.a]\n[node.r]\nkind = \"router\"\n[node.b]\n[link.in]\nends = [\"a\", \"r\"]\nrate = \"200Mbit/s\"\n\
                    [link.out]\nends = [\"r\", \"b\"]\nrate = \"20Mbit/s\"\ndelay = \"20ms\"\nqueue = \"40 packets\"\n\
                    [flow.f]\nfrom = \"a\"\nto = \"b\"\nbytes = \"2MB\"\nparallel = 4\n[gateway.g]\nnode = \"r\"\nflows = [\"f\"]\n";
    std::fs::write(folder.path().join("balanced.toml"), scenario).unwrap();
    let ekiden = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        let output = command.current_dir(folder.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let simulated = |set: &[&str]| {
        let sets: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
        ekiden(&[&["simulate", "balanced.toml", "--record", "r.json", "--force"], &sets[..]].concat())
    };
    for policy in [&["seed=1"][..], &["gateway.g.policy=paper", "gateway.g.repeats=3"]] {
        let table = simulated(policy);
        let record = Record::read(&folder.path().join("r.json")).unwrap();
        let times: Vec<u64> =
            record.events.iter().filter(|event| event.kind == "throttled").map(|event| event.at_us).collect();
        let first = format!("after {:.1} s", times[0] as f64 / 1e6);
        let line = match times.len() {
            1 => format!("\ngateway g: throttled once, {first}\n"),
            several => format!("\ngateway g: throttled {several} times, first {first}\n"),
        };
        assert!(table.contains(&line), "{table}{line}");
        assert!(ekiden(&["record", "show", "r.json"]).contains(&line));
    }
    assert!(simulated(&["flow.f.bytes=10KB"]).contains("\ngateway g: never throttled\n"));
    assert!(!simulated(&["gateway.g.enabled=false"]).contains("gateway g"));
}

#[test]
fn a_run_with_more_samples_than_it_may_keep_says_so_and_has_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    let run = |record: &str, more: &[&str]| {
        let output = simulate(folder.path(), &[&["--record", record, "--resolution", "1ms"], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout).replace(record, ""), text(&output.stderr))
    };
    let (table, said) = run("r.json", &[]);
    assert!(!said.contains("--samples"), "{said}");
    let (thinned, said) = run("few.json", &["--samples", "1000"]);
    assert_eq!(thinned, table);
    assert_eq!(said, "ekiden: a run had more samples than --samples allows: one look in 8 is kept\n");
    let path = folder.path().join("few.json");
    let samples = Record::read(&path).unwrap().samples(&path).unwrap().count();
    assert!((300..=1000).contains(&samples), "{samples}");
}

#[test]
fn a_sweep_is_not_run_again_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = ["--set", "link.line.delay=1ms,20ms", "--repeat", "2", "--record", "all"];
    let first = simulate(folder.path(), &sweep);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let one = folder.path().join("all/pair,link.line.delay=20ms,r1.json");
    let before = std::fs::read_to_string(&one).unwrap();
    std::fs::remove_file(folder.path().join("all/pair,link.line.delay=1ms,r0.json")).unwrap();
    let second = simulate(folder.path(), &sweep);
    assert!(text(&second.stderr).contains("3 of 4 runs are there already"), "{}", text(&second.stderr));
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(std::fs::read_to_string(&one).unwrap(), before);
}

#[test]
fn what_it_does_not_have_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, code, why) in [
        (&["--set", "tcp.congestion=reno,vegas"][..], 3, "the simulator has no 'vegas'"),
        (&["--set", "link.line.rate=fast"], 3, "fast"),
        (&["--resolution", "1us"], 2, "at least 1ms"),
        (&["--samples", "10"], 2, "1000"),
    ] {
        let output = simulate(folder.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(!folder.path().join("record").exists(), "{arguments:?} left a record");
    }
}

#[test]
fn a_run_of_a_sweep_whose_series_could_not_be_written_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = ["--set", "link.line.delay=1ms,20ms", "--record", "all"];
    let in_the_way = folder.path().join("all/pair,link.line.delay=20ms,r0.samples.parquet");
    std::fs::create_dir_all(&in_the_way).unwrap();
    for said in ["", "1 of 2 runs are there already"] {
        let failed = simulate(folder.path(), &sweep);
        let error = text(&failed.stderr);
        assert_eq!(failed.status.code(), Some(3), "{error}");
        assert!(error.contains("samples.parquet: cannot be written: ") && error.contains(said), "{error}");
    }
    std::fs::remove_dir(&in_the_way).unwrap();
    let second = simulate(folder.path(), &sweep);
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert!(in_the_way.is_file());
    assert!(text(&simulate(folder.path(), &sweep).stderr).contains("2 of 2 runs are there already"));
}

#[test]
fn a_sweep_goes_on_when_nobody_reads_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pair.toml"), SCENARIO).unwrap();
    // The second time, because it says so when runs are there already.
    for _ in 0..2 {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        command.current_dir(folder.path()).args(["simulate", "pair.toml", "--repeat", "2"]).stderr(writer);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("records: "), "{}", text(&output.stdout));
    }
}
