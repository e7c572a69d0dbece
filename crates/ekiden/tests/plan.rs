//! `ekiden plan` as a user calls it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use ekiden_record::{Finding, Judgement, PATH_FORMAT, PathDirection, PathRecord};
use libtest_mimic::{Failed, Trial};

type Test = fn() -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("flags alone give a verdict, a table and JSON", flags),
    ("bad input is one line with key and place, and exit code 3, or 2 of flags", bad_input),
    ("a path record is planned, and what it could not see is said", record),
    ("what is written is taken by ekiden proxy, and not replaced by accident", written),
    ("what is written of a tunnel and a gateway is taken by them", others),
    ("an upload's controls are on the legs by which it leaves", upload),
    ("a picture has every remedy, and is not replaced by accident", picture),
    ("a plan is put to the test in the simulator", simulated),
];

/// These need namespaces.
const IN_LAB: &[(&str, Test)] = &[("a plan is put to the test in simulator and lab", verified)];

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let trial = |&(name, test): &(&str, Test)| Trial::test(name, test);
    let in_lab = IN_LAB.iter().map(|test| trial(test).with_ignored_flag(!root));
    TESTS.iter().map(trial).chain(in_lab).collect()
}

fn plan(folder: &Path, arguments: &[&str]) -> Result<Output, Failed> {
    Ok(Command::new(env!("CARGO_BIN_EXE_ekiden")).current_dir(folder).arg("plan").args(arguments).output()?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// What it printed, if it ended well.
fn printed(folder: &Path, arguments: &[&str]) -> Result<String, Failed> {
    let output = plan(folder, arguments)?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(format!("{arguments:?}: {}", said(&output)).into()),
    }
}

fn check(holds: bool, what: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what.to_owned().into()) }
}

const FLAGS: [&str; 6] = ["--rtt", "50ms", "--rate", "100Mbit/s", "--window", "64KiB"];

fn flags() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let text = printed(folder.path(), &FLAGS)?;
    check(text.starts_with("2 proxies beside the hosts would give"), &text)?;
    for wanted in ["1 proxy in the middle", "proxy-1 – proxy-2", "No gateway: there is one stream."] {
        check(text.contains(wanted), &text)?;
    }
    let json = printed(folder.path(), &[&FLAGS[..], &["--json", "--size", "1MB"]].concat())?;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    let chosen = json["chosen"].as_u64().ok_or("nothing chosen")? as usize;
    let gain = json["remedies"][chosen]["gain"]["value"].as_f64().ok_or("no gain")?;
    check(gain > 5.0 && json["direct"]["short_s"].as_f64().is_some_and(|seconds| seconds > 0.5), &json.to_string())
}

fn bad_input() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("path.toml"), "rtt = \"50ms\"\nrate = \"10Tbit/s\"\n")?;
    fs::write(folder.path().join("new.json"), format!("{{\"path_format\": {}}}", PATH_FORMAT + 1))?;
    fs::write(folder.path().join("other.json"), "{\"format\": 3}")?;
    let taken = folder.path().join("taken.svg");
    fs::write(&taken, "mine")?;
    for (arguments, code, why) in [
        (&["path.toml"][..], 3, "path.toml:2: rate = 10Tbit/s is out of range"),
        (&["none.toml"], 3, "none.toml: cannot be read"),
        (&["new.json"], 3, "new.json"),
        (&["other.json"], 3, "other.json"),
        (&["--rtt", "50ms"], 2, "rate is missing"),
        (&["--rtt", "-50ms", "--rate", "1Mbit/s"], 2, "--rtt: '-50ms' is not a number"),
        (&["--rtt", "2s", "--rate", "0bit/s"], 2, "--rate: '0bit/s' is out of range"),
        (&["--rtt", "2s", "--rate", "1Mbit/s", "--loss", "100%"], 2, "--loss: loss = 100% is out of range"),
        (&["--rtt", "2s", "--rate", "1Mbit/s", "--streams", "many"], 2, "many is not a whole number from 1 to 1000"),
        (&["--rtt", "50ms", "--rate", "1Mbit/s", "--picture", "taken.svg"], 3, "taken.svg: is there already"),
        (&["--rtt", "50ms", "--rate", "1Mbit/s", "--duration", "1ms"], 2, "from 1s to 3600s"),
        (&["--rtt", "50ms", "--rate", "1Mbit/s", "--all"], 2, "--verify"),
        (&[], 2, "which path? Give a FILE, or --rtt and --rate"),
        (&["--rtt", "50ms", "--rate", "1Mbit/s", "--picture", "x.png"], 2, "pictures are SVG only"),
    ] {
        let output = plan(folder.path(), arguments)?;
        let said = said(&output);
        check(output.status.code() == Some(code) && said.contains(why), &format!("{arguments:?}: {said}"))?;
        check(code != 3 || said.trim_end().lines().count() == 1, &format!("{arguments:?}: {said}"))?;
    }
    check(fs::read_to_string(taken)? == "mine", "the picture was replaced")
}

fn observed(value: f64) -> Finding {
    Finding::Observed { value, low: 0.97 * value, high: 1.03 * value, evidence: "a trace".into() }
}

fn path_record() -> PathRecord {
    let direction = || PathDirection {
        hops: observed(8.0),
        mtu_bytes: observed(1500.0),
        rate_bit_s: observed(50e6),
        buffer_bytes: observed(250e3),
        bdp_bytes: observed(500e3),
        drop_tail: Judgement::Yes { evidence: "a trace".into() },
        drops_per_overflow: observed(1.0),
        random_loss: Finding::Absent { evidence: "a trace".into() },
        policer_bit_s: Finding::Absent { evidence: "a trace".into() },
        window_bytes: observed(6e6),
        sent_bytes: 1_000_000,
        duration_us: 2_000_000,
    };
    PathRecord {
        path_format: PATH_FORMAT,
        version: "0.1.0".into(),
        command: vec!["ekiden".into()],
        started_unix_ms: 0,
        from: "192.0.2.1:1".into(),
        to: "198.51.100.1:1".into(),
        rtt_us: observed(80_000.0),
        forth: direction(),
        back: direction(),
    }
}

fn record() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("measured.json");
    path_record().save(&file)?;
    let text = printed(folder.path(), &["measured.json", "--window", "64KiB"])?;
    check(text.contains("2 proxies beside the hosts would give"), &text)?;
    let bound = Finding::AtMost { value: 0.01, evidence: "none of 100 segments was lost".into() };
    let bounded = PathRecord { back: PathDirection { random_loss: bound, ..path_record().back }, ..path_record() };
    bounded.save(&file)?;
    let text = printed(folder.path(), &["measured.json", "--window", "4MiB"])?;
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    check(
        one_line.contains("up to 1.00 % might not have been. With that much the direct connection would carry "),
        &text,
    )?;
    let text = printed(folder.path(), &["measured.json", "--window", "4MiB", "--loss", "0%"])?;
    check(!text.contains("might not have been"), &text)?;
    let jumbo =
        PathRecord { back: PathDirection { mtu_bytes: observed(9001.0), ..path_record().back }, ..path_record() };
    jumbo.save(&file)?;
    let text = printed(folder.path(), &["measured.json", "--window", "64KiB"])?;
    check(text.contains("The MTU that was found is more than 9000"), &text)?;
    let near = PathRecord { rtt_us: observed(4.0), ..path_record() };
    near.save(&file)?;
    let text = printed(folder.path(), &["measured.json", "--window", "64KiB"])?;
    check(text.contains("The round trip that was found is less than 10us"), &text)?;
    for (key, whose) in [
        ("measurement_format", "`ekiden measure client` (`ekiden record export` takes it)"),
        ("watch_format", "`ekiden measure watch`"),
        ("manifest", "`ekiden lab run` or `ekiden simulate` (`ekiden record show` takes it)"),
    ] {
        fs::write(&file, format!("{{\"{key}\": 1}}"))?;
        let output = plan(folder.path(), &["measured.json"])?;
        let text = said(&output);
        let line = format!(
            "measured.json: this is a record of {whose}, not of `ekiden plan`; a record of a path comes from `ekiden measure path --record`"
        );
        check(output.status.code() == Some(3) && text.contains(&line), &text)?;
    }
    let least = Finding::AtLeast { value: 11e6, evidence: "a trace".into() };
    let unknown = PathRecord { back: PathDirection { rate_bit_s: least, ..path_record().back }, ..path_record() };
    unknown.save(&file)?;
    let output = plan(folder.path(), &["measured.json"])?;
    let text = said(&output);
    check(output.status.code() == Some(3) && text.contains("back.rate_bit_s is a lower bound only, 11Mbit/s"), &text)?;
    let hidden = || Finding::NotObservable { reason: "the window was the limit".into() };
    let blind = PathRecord { back: PathDirection { rate_bit_s: hidden(), ..path_record().back }, ..path_record() };
    blind.save(&file)?;
    let output = plan(folder.path(), &["measured.json"])?;
    let text = said(&output);
    check(output.status.code() == Some(3), &text)?;
    check(
        text.contains("measured.json: rate is missing")
            && text.contains("back.rate_bit_s could not be observed: the window was the limit"),
        &text,
    )?;
    check(text.trim_end().lines().count() == 1, &text)?;
    printed(folder.path(), &["measured.json", "--rate", "50Mbit/s"])?;
    printed(folder.path(), &["measured.json", "--direction", "forth"])?;
    let absurd =
        PathRecord { back: PathDirection { rate_bit_s: observed(1e13), ..path_record().back }, ..path_record() };
    absurd.save(&file)?;
    let output = plan(folder.path(), &["measured.json"])?;
    check(
        output.status.code() == Some(3)
            && said(&output).contains("measured.json: back.rate_bit_s: 10000000000000 is out of range"),
        &said(&output),
    )
}

fn proxy_takes(folder: &Path, file: &str) -> Result<(), Failed> {
    takes("proxy", folder, file)
}

fn takes(command: &str, folder: &Path, file: &str) -> Result<(), Failed> {
    let mut ekiden = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    let output = ekiden.args([command, "--check", "-c"]).arg(folder.join(file)).output()?;
    check(output.status.success(), &format!("{file}: {}\n{}", said(&output), fs::read_to_string(folder.join(file))?))
}

fn written() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let write = [&FLAGS[..], &["--write", "nodes"]].concat();
    let text = printed(folder.path(), &write)?;
    check(text.contains("in proxy-1.toml: 192.0.2.2:7000 stands for the address of proxy-2"), &text)?;
    let nodes = folder.path().join("nodes");
    for name in ["proxy-1", "proxy-2"] {
        proxy_takes(&nodes, &format!("{name}.toml"))?;
        let mode = fs::metadata(nodes.join(format!("{name}.key")))?.permissions().mode();
        check(mode & 0o777 == 0o600, &format!("{mode:o}"))?;
    }
    let keys = || fs::read_to_string(nodes.join("proxy-1.key"));
    let (key, again) = (keys()?, plan(folder.path(), &write)?);
    check(again.status.code() == Some(3) && said(&again).contains("is there already"), &said(&again))?;
    printed(folder.path(), &[&write[..], &["--force"]].concat())?;
    check(keys()? == key, "--force keeps keys")?;
    // All files or none: this one cannot be written.
    fs::create_dir_all(folder.path().join("half/proxy-2.toml"))?;
    let half = plan(folder.path(), &[&FLAGS[..], &["--write", "half"]].concat())?;
    let left: Vec<_> = fs::read_dir(folder.path().join("half"))?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<_, _>>()?;
    check(half.status.code() == Some(3) && left == ["proxy-2.toml"], &format!("{left:?} {}", said(&half)))?;
    let full = printed(
        folder.path(),
        &["--rtt", "50ms", "--rate", "5Mbit/s", "--window", "4MiB", "--buffer", "60KB", "--write", "none"],
    )?;
    check(
        full.contains("nothing is written into none: nothing is to be configured")
            && !folder.path().join("none").exists(),
        &full,
    )?;
    // A single proxy, and chains of every length, by sites.
    for count in 1..=4 {
        let mut text = String::from(
            "rtt = \"100ms\"\nrate = \"20Mbit/s\"\nbuffer = \"250KB\"\nwindow = \"64KiB\"\ncongestion = \"reno\"\n",
        );
        for site in 1..=count {
            let at = 100 * site / (count + 1);
            text += &format!(
                "[site.s{site}]\nclient_rtt = \"{at}ms\"\nserver_rtt = \"{}ms\"\naddress = \"198.51.100.{site}:7000\"\n",
                100 - at
            );
            let to_next = 100 * (site + 1) / (count + 1) - at;
            text +=
                &(if site < count { format!("rtts = {{ s{} = \"{to_next}ms\" }}\n", site + 1) } else { String::new() });
        }
        fs::write(folder.path().join("sites.toml"), text)?;
        let place = format!("chain-{count}");
        let text = printed(folder.path(), &["sites.toml", "--write", &place])?;
        check(!text.contains("192.0.2."), &text)?;
        for site in 1..=count {
            proxy_takes(&folder.path().join(&place), &format!("s{site}.toml"))?;
        }
    }
    Ok(())
}

/// What is no chain: a tunnel, where packets must pass, and a gateway for Reno's parallel streams.
fn others() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = "rtt = \"100ms\"\nrate = \"20Mbit/s\"\nbuffer = \"60KB\"\nwindow = \"1MiB\"\ncongestion = \"reno\"\nstreams = 4\n";
    fs::write(folder.path().join("path.toml"), path)?;
    let text = printed(folder.path(), &["path.toml", "--write", "nodes"])?;
    check(text.contains("in gateway.toml: the device, and the hosts that send"), &text)?;
    takes("gateway", &folder.path().join("nodes"), "gateway.toml")?;
    fs::write(folder.path().join("packets.toml"), format!("{path}carries = \"packets\"\n"))?;
    let text = printed(folder.path(), &["packets.toml", "--write", "ends"])?;
    check(text.contains("in tunnel-client.toml: 192.0.2.1:7100 stands for the address of tunnel-server"), &text)?;
    check(!text.contains("ekiden proxy"), &text)?;
    let ends = folder.path().join("ends");
    for end in ["tunnel-client.toml", "tunnel-server.toml", "gateway.toml"] {
        takes(if end == "gateway.toml" { "gateway" } else { "tunnel" }, &ends, end)?;
    }
    Ok(())
}

fn upload() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    printed(folder.path(), &[&FLAGS[..], &["--direction", "forth", "--write", "nodes"]].concat())?;
    let nodes = folder.path().join("nodes");
    for name in ["proxy-1", "proxy-2"] {
        proxy_takes(&nodes, &format!("{name}.toml"))?;
    }
    let (first, last) =
        (fs::read_to_string(nodes.join("proxy-1.toml"))?, fs::read_to_string(nodes.join("proxy-2.toml"))?);
    check(
        first.contains("[peer.proxy-2]")
            && first.rsplit_once("[peer.proxy-2]").is_some_and(|(_, peer)| peer.contains("congestion")),
        &first,
    )?;
    check(last.contains("[tcp]"), &last)
}

fn picture() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let draw = [&FLAGS[..], &["--picture", "plan.svg"]].concat();
    let text = printed(folder.path(), &draw)?;
    check(text.contains("picture: plan.svg"), &text)?;
    let svg = fs::read_to_string(folder.path().join("plan.svg"))?;
    for wanted in ["direct", "fifths", "hardly more", "(to take)"] {
        check(svg.contains(wanted), wanted)?;
    }
    let again = plan(folder.path(), &draw)?;
    check(again.status.code() == Some(3), &said(&again))?;
    printed(folder.path(), &[&draw[..], &["--force"]].concat())?;
    // A name need not be UTF-8.
    let name = OsStr::from_bytes(b"caf\xe9.svg");
    let mut ekiden = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    let output = ekiden.current_dir(folder.path()).arg("plan").args(FLAGS).arg("--picture").arg(name).output()?;
    check(output.status.success() && folder.path().join(name).exists(), &said(&output))
}

const SMALL: [&str; 12] =
    ["--rtt", "60ms", "--rate", "8Mbit/s", "--buffer", "80KB", "--loss", "0", "--window", "16KiB", "--duration", "4s"];

fn simulated() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let json = printed(folder.path(), &[&SMALL[..], &["--verify=simulator", "--all", "--json"]].concat())?;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    let runs = json["verified"].as_array().ok_or("no runs")?;
    check(runs.len() == 7 && runs[0]["lab_bit_s"].is_null(), &json["verified"].to_string())?;
    for run in runs {
        let error = run["simulated_error_percent"].as_f64().ok_or("no error")?;
        check(error.abs() < 15.0, &run.to_string())?;
    }
    let lossy = [&SMALL[..6], &["--loss", "0.5%", "--duration", "4s", "--verify=simulator", "--json"]].concat();
    let simulated = |runs: &str| -> Result<f64, Failed> {
        let output = plan(folder.path(), &[&lossy[..], &["--runs", runs]].concat())?;
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let several = String::from_utf8_lossy(&output.stderr).contains("simulator, run 2 of 3");
        check(several == (runs == "3"), &said(&output))?;
        Ok(json["verified"][0]["simulated_bit_s"].as_f64().ok_or("no goodput")?)
    };
    check(simulated("1")? != simulated("3")?, "three runs lost the same packets")
}

fn verified() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let output = plan(folder.path(), &[&SMALL[..], &["--verify", "--json"]].concat())?;
    check(output.status.success(), &said(&output))?;
    check(String::from_utf8_lossy(&output.stderr).contains("1 of 2, direct: lab, 4 s"), &said(&output))?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let runs = json["verified"].as_array().ok_or("no runs")?;
    check(runs.len() == 2 && runs[1]["chosen"] == true, &json["verified"].to_string())?;
    for run in runs {
        // A busy machine makes the lab slower, by any factor; nothing makes it faster.
        let error = run["lab_error_percent"].as_f64().ok_or("no error")?;
        check(error > -15.0 && run["lab_is_disturbed"].is_boolean(), &run.to_string())?;
        let simulated = run["simulated_error_percent"].as_f64().ok_or("no error")?;
        check(simulated.abs() < 15.0, &run.to_string())?;
    }
    Ok(())
}
