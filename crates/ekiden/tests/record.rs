//! Sweeps in shards, and `ekiden record`, which brings them together again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ekiden_record::Record;

const SCENARIO: &str = "name = \"pair\"\n[node.a]\n[node.b]\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"10ms\"\n\
                        queue = \"10KB\"\nloss = \"0.1%\"\n[flow.f]\nfrom = \"a\"\nto = \"b\"\nbytes = \"300KB\"\n";
/// Six runs.
const SWEEP: [&str; 4] = ["--set", "link.line.delay=1ms,20ms,40ms", "--repeat", "2"];

/// A directory with the scenario.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("pair.toml"), SCENARIO).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn ekiden(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ekiden")).current_dir(self.0.path()).args(arguments).output().unwrap()
    }

    /// A sweep of these arguments with its records in `record`.
    fn simulate(&self, record: &str, sweep: &[&str], more: &[&str]) -> Output {
        self.ekiden(&[&["simulate", "pair.toml", "--record", record], sweep, more].concat())
    }

    /// The three shards of the sweep, in `one`, `two` and `three`.
    fn shards(&self) {
        for (number, record) in ["one", "two", "three"].into_iter().enumerate() {
            succeeds(&self.simulate(record, &SWEEP, &["--shard", &format!("{}/3", number + 1)]));
        }
    }

    fn merge(&self, arguments: &[&str]) -> Output {
        self.ekiden(&[&["record", "merge"], arguments].concat())
    }

    fn records(&self, directory: &str) -> BTreeMap<PathBuf, Record> {
        let files = names(&self.path(directory)).into_iter().filter(|name| name.ends_with(".json"));
        files.map(|name| (name.clone().into(), Record::read(&self.path(directory).join(name)).unwrap())).collect()
    }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Without the line that names the directory.
fn table(output: &Output) -> String {
    let shown = text(&output.stdout);
    shown.lines().filter(|line| !line.starts_with("records: ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn shards_merged_are_what_the_whole_sweep_would_have_left() {
    let place = Place::new();
    let whole = place.simulate("whole", &SWEEP, &[]);
    succeeds(&whole);
    place.shards();
    for shard in ["one", "two", "three"] {
        assert_eq!(place.records(shard).len(), 2);
    }
    succeeds(&place.merge(&["merged", "three", "one", "two"]));
    assert_eq!(names(&place.path("merged")), names(&place.path("whole")));
    let index = |directory| fs::read_to_string(place.path(directory).join("sweep.toml")).unwrap();
    assert_eq!(index("merged"), index("whole"));
    for name in names(&place.path("whole")).iter().filter(|name| name.ends_with(".parquet")) {
        let series = |directory| fs::read(place.path(directory).join(name)).unwrap();
        assert_eq!(series("merged"), series("whole"), "{name}");
    }
    let (mut whole_records, mut merged) = (place.records("whole"), place.records("merged"));
    for record in whole_records.values_mut().chain(merged.values_mut()) {
        record.manifest.command.clear();
        record.manifest.started_unix_ms = 0;
    }
    assert_eq!(whole_records, merged);

    let again = place.simulate("merged", &SWEEP, &[]);
    assert!(text(&again.stderr).contains("6 of 6 runs are there already"), "{}", text(&again.stderr));
    assert_eq!(table(&again), table(&whole));
    assert_eq!(table(&place.ekiden(&["record", "show", "merged"])), table(&whole));
    let json = |arguments: &[&str]| text(&place.ekiden(arguments).stdout).replace("whole/", "merged/");
    assert_eq!(json(&["record", "show", "merged", "--json"]), json(&["record", "show", "whole", "--json"]));
}

#[test]
fn a_shard_does_its_runs_alone_and_continues() {
    let place = Place::new();
    let first = place.simulate("two", &SWEEP, &["--shard", "2/4"]);
    succeeds(&first);
    assert!(text(&first.stdout).contains("records: two (shard 2/4, 2 of 6 runs)"), "{}", text(&first.stdout));
    let names: Vec<_> = names(&place.path("two")).into_iter().filter(|name| !name.ends_with(".parquet")).collect();
    assert_eq!(names, ["pair,link.line.delay=20ms,r0.json", "pair,link.line.delay=40ms,r1.json", "sweep.toml"]);
    // One of two values is not there: its rows are another shard's.
    assert!(!table(&first).contains("1ms"), "{}", table(&first));
    fs::remove_file(place.path("two").join(&names[0])).unwrap();
    let second = place.simulate("two", &SWEEP, &["--shard", "2/4"]);
    assert!(text(&second.stderr).contains("1 of 2 runs are there already"), "{}", text(&second.stderr));
    assert_eq!(second.stdout, first.stdout);
    // Records with other samples are not what is asked for.
    let finer = place.simulate("two", &SWEEP, &["--shard", "2/4", "--resolution", "10ms"]);
    assert!(!text(&finer.stderr).contains("there already"), "{}", text(&finer.stderr));
    assert_eq!(finer.stdout, first.stdout);
}

#[test]
fn shards_may_share_a_directory_and_have_nothing_to_do() {
    let place = Place::new();
    for shard in ["1/2", "2/2", "7/7"] {
        succeeds(&place.simulate("all", &SWEEP, &["--shard", shard]));
    }
    let whole = place.simulate("all", &SWEEP, &[]);
    assert!(text(&whole.stderr).contains("6 of 6 runs are there already"), "{}", text(&whole.stderr));
}

#[test]
fn what_is_missing_is_said_and_the_rest_is_merged() {
    let place = Place::new();
    place.shards();
    let output = place.merge(&["merged", "one", "three"]);
    assert_eq!(output.status.code(), Some(1));
    let missing = "merged has 4 of 6 runs; missing: link.line.delay=20ms r0, link.line.delay=20ms r1\n";
    assert!(text(&output.stderr).ends_with(missing), "{}", text(&output.stderr));
    let shown = table(&place.ekiden(&["record", "show", "merged"]));
    assert!(shown.contains("0 of 2"), "{shown}");
    // What was merged is merged again.
    succeeds(&place.merge(&["whole", "merged", "two", "one"]));
    assert_eq!(place.records("whole").len(), 6);
}

#[test]
fn what_does_not_belong_together_is_refused_and_nothing_is_left() {
    let place = Place::new();
    place.shards();
    let scenario = |from: &str, to: &str| fs::write(place.path("pair.toml"), SCENARIO.replace(from, to)).unwrap();
    scenario("10Mbit", "11Mbit");
    succeeds(&place.simulate("faster", &SWEEP, &["--shard", "1/3"]));
    scenario("", "");
    succeeds(&place.simulate("longer", &[&SWEEP[..3], &["3"]].concat(), &["--shard", "1/3"]));
    succeeds(&place.simulate("other", &["--set", "seed=1,2"], &[]));
    succeeds(&place.simulate("finer", &SWEEP, &["--shard", "2/3", "--resolution", "10ms"]));
    // A comment changes no scenario.
    scenario("[node.a]", "[node.a] # as it was");
    succeeds(&place.simulate("commented", &SWEEP, &["--shard", "1/3"]));
    succeeds(&place.merge(&["fine", "commented", "one", "two", "three"]));

    fs::create_dir(place.path("bare")).unwrap();
    fs::create_dir(place.path("single")).unwrap();
    fs::write(place.path("single/alone.json"), "{}").unwrap();
    let copy = |from: &str, to: &str| {
        fs::create_dir(place.path(to)).unwrap();
        for name in names(&place.path(from)) {
            fs::copy(place.path(from).join(&name), place.path(to).join(name)).unwrap();
        }
    };
    let first = |directory: &str| place.path(directory).join("pair,link.line.delay=1ms,r0.json");
    for directory in ["cut", "changed", "stranger", "misnamed", "broken", "bereft"] {
        copy("one", directory);
    }
    let whole = fs::read_to_string(first("one")).unwrap();
    fs::write(first("cut"), &whole[..whole.len() / 2]).unwrap();
    fs::write(first("changed"), whole.replace("\"retransmits\": ", "\"retransmits\": 1")).unwrap();
    fs::remove_file(first("bereft").with_extension("samples.parquet")).unwrap();
    fs::write(place.path("stranger/pair-1763711111000.json"), &whole).unwrap();
    fs::copy(first("one"), place.path("misnamed/pair,link.line.delay=1ms,r1.json")).unwrap();
    fs::write(place.path("broken/sweep.toml"), "format = 1\n").unwrap();

    let shown = place.ekiden(&["record", "show", "single"]);
    let said = text(&shown.stderr);
    assert!(shown.status.code() == Some(3) && said.contains("`ekiden record show single/alone.json`"), "{said}");
    for (inputs, code, why) in [
        (&["one", "faster"][..], 3, "'rate = \"10Mbit/s\"' where the other's says 'rate = \"11Mbit/s\"'"),
        (&["one", "longer"], 3, "one has 6 runs, the other 9"),
        (&["one", "other"], 3, "one has a run 'link.line.delay=1ms r0' where the other has 'seed=1 r0'"),
        (&["one", "finer"], 3, "one has a resolution of 100ms, the other a resolution of 10ms"),
        (&["two", "cut"], 3, "cut/pair,link.line.delay=1ms,r0.json: not a record: "),
        (&["one", "changed"], 3, "changed/pair,link.line.delay=1ms,r0.json are records of the same run, and differ"),
        (&["stranger"], 3, "stranger/pair-1763711111000.json: not the record of a run of stranger/sweep.toml"),
        (
            &["two", "misnamed"],
            3,
            "r1.json: a record of another scenario than the sweep's run 'link.line.delay=1ms r1'",
        ),
        (
            &["two", "bereft"],
            3,
            "r0.samples.parquet: not the samples that bereft/pair,link.line.delay=1ms,r0.json goes with: ",
        ),
        (&["broken", "one"], 3, "broken/sweep.toml: not the description of a sweep: "),
        (&["bare"], 3, "bare/sweep.toml: cannot be read"),
        (
            &["single"],
            3,
            "single: it has 1 record and no sweep; `ekiden record show single/alone.json` shows one record",
        ),
        (&["nowhere"], 3, "nowhere/sweep.toml: cannot be read"),
        (&[], 2, "<IN>"),
    ] {
        let output = place.merge(&[&["out/deep/merged"], inputs].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{inputs:?}: {said}");
        assert!(said.contains(why) && (code == 2 || said.lines().count() == 1), "{inputs:?}: {said}");
        assert!(!place.path("out/deep/merged").exists(), "{inputs:?}");
        assert!(!place.path("out/deep/merged.partial").exists(), "{inputs:?}");
    }
    let output = place.merge(&["two", "one", "three"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("two: is there already"), "{}", text(&output.stderr));
    assert_eq!(place.records("two").len(), 2);
}

#[test]
fn wrong_shards_are_refused_before_anything_runs() {
    let place = Place::new();
    for program in [&["simulate"][..], &["lab", "run"]] {
        for (shard, sweep, why) in [
            ("0/3", &SWEEP[..], "shards are counted from 1"),
            ("4/3", &SWEEP, "of 3 shards there is no number 4"),
            ("a/b", &SWEEP, "such as 2/8"),
            ("1/3", &[], "--shard is for several runs, and this is a single one"),
        ] {
            let output = place.ekiden(&[program, &["pair.toml", "--shard", shard], sweep].concat());
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(why), "{said}");
            assert!(!place.path("record").exists(), "{shard} left a record");
        }
    }
}

#[test]
fn samples_are_exported_as_csv_and_without_their_file_a_line_says_so() {
    let place = Place::new();
    succeeds(&place.simulate("r.json", &[], &["--resolution", "10ms"]));
    let export = |arguments: &[&str]| place.ekiden(&[&["record", "export", "r.json"], arguments].concat());
    let samples = text(&export(&["--csv"]).stdout);
    let mut lines = samples.lines();
    let head = "at_us,flow,connection,received_bytes,acked_bytes,cwnd_segments,ssthresh_segments,unacked_segments,window_bytes,rtt_us,\
                rtt_min_us,retransmits,delivery_bit_s";
    assert_eq!(lines.next(), Some(head));
    assert!(samples.lines().count() > 20 && lines.all(|line| line.contains(",f,0,")), "{samples}");
    assert_eq!(text(&export(&["--csv=samples"]).stdout), samples);
    let queues = text(&export(&["--csv=queues"]).stdout);
    assert!(queues.starts_with("at_us,link,tunnel,connection,from,packets,bytes,drops\n"), "{queues}");
    assert!(queues.lines().skip(1).all(|line| line.contains(",line,,,a,") || line.contains(",line,,,b,")), "{queues}");
    assert_eq!(export(&[]).status.code(), Some(2), "the form must be said");

    let (file, whole) = (place.path("r.samples.parquet"), fs::read(place.path("r.samples.parquet")).unwrap());
    for (damage, why) in [(Some(&whole[..50]), "it has 50 bytes of "), (None, "it is missing")] {
        match damage {
            Some(part) => fs::write(&file, part).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        for arguments in [&["record", "export", "r.json", "--csv"][..], &["lab", "chart", "r.json"]] {
            let output = place.ekiden(arguments);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{said}");
            let start = "ekiden: r.samples.parquet: not the samples that r.json goes with: ";
            assert!(said.starts_with(start) && said.contains(why) && said.lines().count() == 1, "{said}");
        }
        succeeds(&place.ekiden(&["record", "show", "r.json"]));
    }
}

#[test]
fn a_record_is_shown_as_it_was_after_its_run() {
    let place = Place::new();
    let run = place.simulate("r.json", &[], &[]);
    succeeds(&run);
    let shown = place.ekiden(&["record", "show", "r.json"]);
    assert_eq!(text(&run.stdout), text(&shown.stdout) + "record: r.json\n");
    let json = place.ekiden(&["record", "show", "r.json", "--json"]);
    assert_eq!(text(&json.stdout), fs::read_to_string(place.path("r.json")).unwrap());
    let missing = place.ekiden(&["record", "show", "nothing.json"]);
    assert_eq!(missing.status.code(), Some(3), "{}", text(&missing.stderr));
}

#[test]
fn a_name_that_is_not_utf_8_is_a_name() {
    let place = Place::new();
    let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes;
    let [single, sweep]: [&std::ffi::OsStr; 2] = [name(b"a\xff.json"), name(b"sweep-\xff")];
    let simulate = |record: &std::ffi::OsStr, more: &[&str]| {
        let mut ekiden = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        ekiden.current_dir(place.0.path()).args(["simulate", "pair.toml", "--record"]).arg(record).args(more);
        ekiden.output().unwrap()
    };
    succeeds(&simulate(single, &[]));
    let record = Record::read(&place.0.path().join(single)).unwrap();
    assert!(record.manifest.command.iter().any(|word| word == "a\u{fffd}.json"), "{:?}", record.manifest.command);
    succeeds(&simulate(sweep, &["--repeat", "2", "--json"]));
}

#[test]
fn a_sweep_is_exported_with_its_values() {
    let place = Place::new();
    succeeds(&place.simulate("sweep", &SWEEP, &[]));
    let output = place.ekiden(&["record", "export", "sweep", "--csv"]);
    succeeds(&output);
    let text = text(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("link.line.delay,record,"), "{}", lines[0]);
    for delay in ["1ms", "20ms", "40ms"] {
        assert!(
            lines.iter().any(
                |line| line.starts_with(&format!("{delay},pair,")) || line.starts_with(&format!("{delay},\"pair,"))
            ),
            "{delay}: {}",
            lines[1]
        );
    }
}

#[test]
fn records_of_a_sweep_that_are_none_of_its_runs_are_named() {
    let place = Place::new();
    succeeds(&place.simulate("sweep", &SWEEP, &[]));
    let records: Vec<_> = place.records("sweep").into_keys().map(|name| place.path("sweep").join(name)).collect();
    fs::write(&records[0], "{").unwrap();
    fs::copy(&records[3], &records[1]).unwrap();
    for arguments in [&["record", "show", "sweep"][..], &["record", "export", "sweep", "--csv"]] {
        let output = place.ekiden(arguments);
        let said = text(&output.stderr);
        let of = |file: &Path| said.lines().any(|line| line.contains(&*file.file_name().unwrap().to_string_lossy()));
        assert!(of(&records[0]) && of(&records[1]) && !of(&records[2]), "{arguments:?}: {said}");
        assert_eq!(said.matches("it is left out").count(), 2, "{said}");
    }
    // A newer ekiden's record is not replaced, and nothing is run.
    let newer = fs::read_to_string(&records[2]).unwrap().replacen("\"format\": 2", "\"format\": 4000", 1);
    fs::write(&records[2], &newer).unwrap();
    let output = place.simulate("sweep", &SWEEP, &[]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("record format 4000"), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&records[2]).unwrap(), newer);
    assert_eq!(fs::read_to_string(&records[0]).unwrap(), "{");
}
