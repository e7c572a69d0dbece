//! `ekiden doctor` in a network namespace of its own, whose settings are its own too.

use std::path::Path;
use std::process::{Command, Output};

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");
/// Prints the three settings that the tests change.
const SHOW: &str = "cd /proc/sys/net/ipv4; cat tcp_window_scaling tcp_rmem tcp_slow_start_after_idle";

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let trials = vec![
        Trial::test("what costs throughput is found, set, and gone", found_and_set),
        Trial::test("a path is looked at", paths),
        Trial::test("with peers hands are shaken, and a wrong key is told with both fingerprints", peers),
        Trial::test("with one peer down everything found is printed, then the failure", one_down),
        Trial::test("what cannot be set is told behind the findings, and keeps nothing else from being set", not_set),
        Trial::test("what has been set is told where standard output cannot be written", unwritten),
        Trial::test("without a network there is nothing to reach", unreachable),
        Trial::test("the devices are those of the namespace", devices),
    ];
    trials.into_iter().map(|trial| trial.with_ignored_flag(!root)).collect()
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
    let network = "ip link set lo up; echo 0 > /proc/sys/net/ipv4/tcp_sack; nc -lk 127.0.0.1 7000 > /dev/null & nc=$!; \
                   while ! ss -Htln 'sport = :7000' | grep -q .; do sleep 0.05; done";
    let script = format!("{network}; {EKIDEN} doctor --to 127.0.0.1:7000 --json; code=$?; kill $nc; exit $code");
    let output = in_namespace(&script)?;
    let found = json(&output)?;
    assert_eq!(verdict(&found, "SACK to 127.0.0.1:7000"), ("costs", None), "{found}");
    assert_eq!(verdict(&found, "window scaling to 127.0.0.1:7000"), ("good", None), "{found}");
    assert_eq!(verdict(&found, "round trip to 127.0.0.1:7000"), ("good", None), "{found}");
    assert_eq!(output.status.code(), Some(1));
    Ok(())
}

/// Makes a key there, and returns its fingerprint.
fn keygen(folder: &Path, arguments: &[&str]) -> Result<String, Failed> {
    let output = Command::new(EKIDEN).arg("keygen").args(arguments).current_dir(folder).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A folder with two nodes' keys and shared ones, and with `city.toml`, which lets `island` in at port 7000, and whoever has
/// `line.key` at 7001. Returns the fingerprints of `city` and `island`.
fn nodes() -> Result<(tempfile::TempDir, [String; 2]), Failed> {
    let folder = tempfile::tempdir()?;
    let keygen = |arguments: &[&str]| keygen(folder.path(), arguments);
    let prints = [keygen(&["city.key"])?, keygen(&["island.key"])?];
    keygen(&["--shared", "line.key"])?;
    keygen(&["--shared", "other.key"])?;
    let city = format!(
        "name = \"city\"\nkey_file = \"city.key\"\n[listen.tls]\nkind = \"leg\"\naddress = \"127.0.0.1:7000\"\n\
         nodes = {{ island = \"{}\" }}\n\
         [listen.plain]\nkind = \"leg\"\naddress = \"127.0.0.1:7001\"\nplain_key_file = \"line.key\"\n",
        prints[1]
    );
    std::fs::write(folder.path().join("city.toml"), city)?;
    Ok((folder, prints))
}

/// What `ekiden doctor -c island.toml` says while `city` runs.
fn doctor_beside_city(folder: &tempfile::TempDir, island: &str, options: &str) -> Result<Output, Failed> {
    let socks = "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:1080\"\n";
    std::fs::write(folder.path().join("island.toml"), format!("name = \"island\"\n{island}{socks}"))?;
    in_namespace(&format!(
        "cd {}; ip link set lo up; : > out; {EKIDEN} proxy -c city.toml > out 2> log & city=$!; \
         while ! grep -q ready out; do sleep 0.05; done; \
         {EKIDEN} doctor -c island.toml {options}; code=$?; kill $city; wait $city; exit $code",
        folder.path().display()
    ))
}

fn peers() -> Result<(), Failed> {
    let (folder, [city, island]) = nodes()?;
    let wrong = format!("sha256:{}", "1".repeat(64));
    let tls = |key: &str, print: &str| {
        format!("key_file = \"{key}\"\n[peer.city]\naddress = \"127.0.0.1:7000\"\nfingerprint = \"{print}\"\n")
    };
    let lone = keygen(folder.path(), &["lone.key"])?;
    let allow = format!("which is {lone}; on city's host: `ekiden peer allow -c FILE island {lone}`");
    let plain = |key: &str| format!("[peer.city]\naddress = \"127.0.0.1:7001\"\nplain_key_file = \"{key}\"\n");
    for right in [tls("island.key", &city), plain("line.key")] {
        let output = doctor_beside_city(&folder, &right, "--json")?;
        let found = json(&output)?;
        assert_eq!(verdict(&found, "handshake with city"), ("good", None), "{found}");
        assert_ne!(output.status.code(), Some(5), "{output:?}");
    }
    for (file, parts) in [
        // The other has another key than the pinned one.
        (tls("island.key", &wrong), vec![&city, &wrong]),
        // The other does not know this node's: what to do there.
        (tls("lone.key", &city), vec![&allow]),
        (plain("other.key"), vec![]),
    ] {
        let output = doctor_beside_city(&folder, &file, "")?;
        assert_eq!(output.status.code(), Some(5), "{file}\n{output:?}");
        let (found, said) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        assert!(found.contains("net.ipv4.tcp_sack") && found.contains("\nFAILS  handshake with city\n"), "{found}");
        assert!(said.lines().count() == 1 && said.contains("city"), "{said}");
        assert!(parts.iter().all(|part| said.contains(*part)), "{said}");
    }
    assert_ne!(city, island);
    Ok(())
}

fn one_down() -> Result<(), Failed> {
    let (folder, [city, _]) = nodes()?;
    let island = format!(
        "key_file = \"island.key\"\n[peer.down]\naddress = \"127.0.0.1:7999\"\nfingerprint = \"{city}\"\n\
         [peer.city]\naddress = \"127.0.0.1:7000\"\nfingerprint = \"{city}\"\n"
    );
    let output = doctor_beside_city(&folder, &island, "--json")?;
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let found = json(&output)?;
    assert_eq!(verdict(&found, "handshake with city"), ("good", None), "{found}");
    assert_eq!(verdict(&found, "net.ipv4.tcp_sack"), ("good", None), "{found}");
    assert_eq!(found["failed"][0]["subject"], "path to 127.0.0.1:7999");
    let said = String::from_utf8(output.stderr)?;
    assert!(said.contains("127.0.0.1:7999: cannot be reached") && said.lines().count() == 1, "{said}");
    Ok(())
}

fn not_set() -> Result<(), Failed> {
    // One of the two can be written to.
    let spoil = "cd /proc/sys/net/ipv4; echo 0 > tcp_window_scaling; echo 0 > tcp_sack; \
                 mount --bind tcp_sack tcp_sack; mount -o remount,bind,ro tcp_sack";
    let doctor = format!("{EKIDEN} doctor --json --fix --rate 1Mbit/s --rtt 10ms");
    let script = format!("{spoil}; {doctor}; code=$?; cat tcp_window_scaling >&2; exit $code");
    let output = Command::new("unshare").args(["--net", "--mount", "sh", "-c", &script]).output()?;
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let found = json(&output)?;
    assert_eq!(found["not_set"][0]["subject"], "net.ipv4.tcp_sack", "{found}");
    let changed: Vec<_> = found["changed"].as_array().into_iter().flatten().map(|one| &one["subject"]).collect();
    assert!(changed.iter().any(|one| *one == "net.ipv4.tcp_window_scaling"), "{found}");
    let said = String::from_utf8(output.stderr)?;
    let [error, scaling] = &said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(error.starts_with("ekiden: net.ipv4.tcp_sack cannot be set to '1': "), "{error}");
    assert_eq!(*scaling, "1");
    Ok(())
}

fn unwritten() -> Result<(), Failed> {
    let output = in_namespace(&format!(
        "echo 1 > /proc/sys/net/ipv4/tcp_slow_start_after_idle; {EKIDEN} doctor --fix --rate 1Mbit/s --rtt 10ms > /dev/full"
    ))?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("To undo it:\n") && said.contains("net.ipv4.tcp_slow_start_after_idle='1'\n"), "{said}");
    Ok(())
}

fn unreachable() -> Result<(), Failed> {
    let output = in_namespace(&format!("{EKIDEN} doctor --to 192.0.2.1:7000"))?;
    assert_eq!(output.status.code(), Some(5));
    let error = String::from_utf8(output.stderr)?;
    assert!(error.starts_with("ekiden: 192.0.2.1:7000: cannot be reached: ") && error.lines().count() == 1, "{error}");
    assert!(!error.contains("listening there"), "no packet got there: {error}");
    let assumed = "This round-trip time is assumed, for none was measured";
    assert!(String::from_utf8(output.stdout)?.contains(assumed));
    let told = in_namespace(&format!("{EKIDEN} doctor --rtt 50ms || true"))?;
    assert!(!String::from_utf8(told.stdout)?.contains(assumed));
    Ok(())
}

fn devices() -> Result<(), Failed> {
    // The kernel says only some time later that they run.
    let make = "ip link add wide mtu 1280 type veth peer name other; ip link set wide up; ip link set other up; \
                for _ in $(seq 100); do [ \"$(ip -br link | grep -c ' UP ')\" = 2 ] && break; sleep 0.1; done";
    let found = json(&in_namespace(&format!("{make}; {EKIDEN} doctor --json --rtt 50ms || true"))?)?;
    let subjects = found["findings"].as_array().into_iter().flatten().filter_map(|finding| finding["subject"].as_str());
    let mtus: Vec<_> = subjects.filter(|subject| subject.starts_with("MTU of ")).collect();
    assert_eq!(mtus, ["MTU of other", "MTU of wide"]);
    assert_eq!(verdict(&found, "MTU of wide").0, "note");
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
