//! What a scenario accepts, the programs accept that the lab starts for it: it finds nothing wrong that `scenario check` has not said.

use std::cell::Cell;
use std::error::Error;
use std::path::Path;

use ekiden_lab::{NodeFile, check_supported, node_files, write_keys};
use ekiden_scenario::Scenario;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Two hosts behind the two ends of a tunnel with these keys.
fn scenario(keys: &str, mtu: u32) -> String {
    format!(
        "name = \"t\"\n[node.a]\n[node.b]\n[node.x]\nkind = \"router\"\n[node.y]\nkind = \"router\"\n\
         [link.near]\nends = [\"a\", \"x\"]\nrate = \"1Gbit/s\"\nmtu = {mtu}\n[link.line]\nends = [\"x\", \"y\"]\nrate = \"10Mbit/s\"\n\
         [link.far]\nends = [\"y\", \"b\"]\nrate = \"1Gbit/s\"\n[tunnel.t]\nends = [\"x\", \"y\"]\n{keys}\n\
         [flow.f]\nfrom = \"a\"\nto = \"b\"\nbytes = \"1MB\"\n"
    )
}

/// What the configurations of all programs are refused for, and how many there are. `None`: the scenario is refused already.
fn refused(text: &str) -> Option<(usize, Vec<String>)> {
    let scenario = Scenario::parse(text, "t.toml").ok().filter(|scenario| check_supported(scenario).is_ok())?;
    let folder = tempfile::tempdir().unwrap();
    write_keys(&scenario, folder.path()).unwrap();
    let files = node_files(&scenario);
    let said = files.iter().filter_map(|file| {
        let error = load(folder.path(), file).err()?;
        Some(format!("{} of {}: {error}\n{}", file.program, file.node, file.text))
    });
    Some((files.len(), said.collect()))
}

fn load(folder: &Path, NodeFile { program, label, text, .. }: &NodeFile) -> Result<(), Box<dyn Error>> {
    let file = folder.join(label);
    std::fs::write(&file, text)?;
    match *program {
        "proxy" => ekiden_relay::Config::load(&file).map(drop)?,
        "tunnel" => ekiden_tunnel::Config::load(&file).map(drop)?,
        "gateway" => ekiden_gateway::Config::load(&file).map(drop)?,
        other => panic!("{other} is no program"),
    }
    Ok(())
}

fn keys() -> impl Strategy<Value = String> {
    let time =
        prop_oneof![Just("100us"), Just("99us"), Just("1ms"), Just("20ms"), Just("60s"), Just("61s"), Just("1s")];
    let queue = prop_oneof![
        Just("1 packets"),
        Just("2 packets"),
        Just("1279B"),
        Just("1500B"),
        Just("9000B"),
        Just("64KiB"),
        Just("10MB"),
        Just("1GiB"),
        Just("2GiB"),
        Just("10000000 packets")
    ];
    let names = prop_oneof![
        Just("reno"),
        Just("CUBIC"),
        Just("ekiden_far"),
        Just("a-b"),
        Just("sixteen_letters_"),
        Just("x.y")
    ];
    let key = prop_oneof![
        time.clone().prop_map(|time| format!("target = \"{time}\"")),
        time.prop_map(|time| format!("interval = \"{time}\"")),
        queue.prop_map(|queue| format!("queue = \"{queue}\"")),
        prop_oneof![Just("1B"), Just("0B"), Just("1GiB"), Just("2GiB")].prop_map(|size| format!("unsent = \"{size}\"")),
        any::<bool>().prop_map(|paced| format!("paced = {paced}")),
        any::<bool>().prop_map(|separate| format!("separate = {separate}")),
        prop_oneof![Just(0), Just(1), Just(32), Just(63), Just(64), Just(65)]
            .prop_map(|n| format!("connections = {n}")),
        names.prop_map(|name| format!("tcp = {{ congestion = \"{name}\" }}")),
        Just("discipline = \"fq_codel\"".to_owned()),
    ];
    prop::collection::vec(key, 0..6).prop_map(|mut keys| {
        // A key stands once.
        keys.sort_by_key(|key| key.split(' ').next().unwrap_or_default().to_owned());
        keys.dedup_by_key(|key| key.split(' ').next().unwrap_or_default().to_owned());
        if keys.iter().any(|key| ["target", "interval", "unsent", "paced"].iter().any(|of| key.starts_with(of))) {
            keys.retain(|key| !key.starts_with("discipline"));
            keys.push("discipline = \"fq_codel\"".into());
        }
        keys.join("\n")
    })
}

/// Hosts beside a chain of proxies and routers, with a gateway; which flows there are and how they go.
fn chain(proxies: usize, next: bool, flows: &[String], gateway: &str) -> String {
    let mut text = "name = \"t\"\n[node.a]\n[node.b]\n[node.r]\nkind = \"router\"\n".to_owned();
    let mut ends = vec!["a".to_owned()];
    for number in 0..proxies {
        let name = ["p0", "P-1", "p_2-x"][number];
        let to = if next && number + 1 < proxies {
            format!("next = [\"{}\"]\n", ["p0", "P-1", "p_2-x"][number + 1])
        } else {
            String::new()
        };
        text += &format!("[node.\"{name}\"]\nkind = \"proxy\"\n{to}");
        ends.push(name.into());
    }
    ends.extend(["r".to_owned(), "b".to_owned()]);
    for (number, pair) in ends.windows(2).enumerate() {
        text += &format!("[link.l{number}]\nends = [\"{}\", \"{}\"]\nrate = \"10Mbit/s\"\n", pair[0], pair[1]);
    }
    for (number, flow) in flows.iter().enumerate() {
        text += &format!("[flow.f{number}]\n{flow}\n");
    }
    text + gateway
}

fn flow() -> impl Strategy<Value = String> {
    let ends = prop_oneof![Just(("a", "b")), Just(("b", "a")), Just(("a", "p0")), Just(("p0", "b"))];
    let via = prop_oneof![
        Just(""),
        Just("via = [\"p0\"]"),
        Just("via = [\"p0\", \"P-1\"]"),
        Just("via = [\"P-1\", \"p0\"]"),
        Just("via = [\"p0\", \"P-1\", \"p_2-x\"]"),
        Just("via = [\"p_2-x\", \"p0\"]"),
        Just("via = [\"p0\", \"auto\", \"P-1\"]"),
        Just("via = [\"P-1\", \"auto\", \"p0\"]"),
    ];
    let more = prop_oneof![
        Just(""),
        Just("parallel = 3"),
        Just("parallel = 1000"),
        Just("fetch = \"http\""),
        Just("fetch = \"ftp\""),
        Just("fetch = \"socks\""),
        Just("transparent = true"),
        Just("start = \"1s\""),
        Just("end = \"drain\""),
    ];
    (ends, via, more)
        .prop_map(|((from, to), via, more)| format!("from = \"{from}\"\nto = \"{to}\"\nbytes = \"1MB\"\n{via}\n{more}"))
}

fn gateway() -> impl Strategy<Value = String> {
    let keys = prop_oneof![
        Just(""),
        Just("policy = \"delivered\""),
        Just("policy = \"paper\""),
        Just("policy = \"paper\"\nrepeats = 1\npart = \"100%\""),
        Just("policy = \"paper\"\nrepeats = 100000\npart = \"0.0000001%\"\nobserves = \"sent\""),
        Just("policy = \"paper\"\nrepeats = 100001"),
        Just("policy = \"paper\"\npart = \"0%\""),
        Just("repeats = 5"),
        Just("enabled = false"),
    ];
    let flows = prop_oneof![Just("\"f0\""), Just("\"f0\", \"f1\""), Just("\"f1\"")];
    let node = prop_oneof![Just("r"), Just("p0")];
    prop_oneof![
        Just(String::new()),
        (node, flows, keys)
            .prop_map(|(node, flows, keys)| format!("[gateway.G-1]\nnode = \"{node}\"\nflows = [{flows}]\n{keys}\n")),
    ]
}

/// Draws so many scenarios. Of those that are accepted, the programs accept theirs.
fn agree(cases: u32, least: usize, scenarios: impl Strategy<Value = String>) {
    let (accepted, files) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    runner
        .run(&scenarios, |text| {
            if let Some((number, said)) = refused(&text) {
                accepted.set(accepted.get() + 1);
                files.set(files.get() + number);
                prop_assert!(said.is_empty(), "{text}\n{}", said.join("\n"));
            }
            Ok(())
        })
        .unwrap();
    let (accepted, files) = (accepted.get(), files.get());
    assert!(accepted > least && files > least, "{accepted} were accepted, with {files} files of programs");
}

#[test]
fn a_tunnel_of_a_scenario_that_is_accepted_is_one_for_the_program() {
    let mtus = prop_oneof![Just(576_u32), Just(1500), Just(9000)];
    agree(300, 60, (keys(), mtus).prop_map(|(keys, mtu)| scenario(&keys, mtu)));
}

#[test]
fn proxies_and_gateways_of_a_scenario_that_is_accepted_are_some_for_the_programs() {
    let chains = (1..4_usize, any::<bool>(), prop::collection::vec(flow(), 0..3), gateway());
    agree(2_000, 200, chains.prop_map(|(proxies, next, flows, gateway)| chain(proxies, next, &flows, &gateway)));
}

#[test]
fn the_scenarios_that_come_along_are_some_for_the_programs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [
        "scenarios",
        "scenarios/s0",
        "scenarios/s1",
        "scenarios/s2",
        "scenarios/s4",
        "scenarios/tunnel",
        "crates/scenario/tests",
    ];
    let mut files = 0;
    for folder in folders {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let Some(text) =
                path.extension().filter(|end| *end == "toml").and_then(|_| std::fs::read_to_string(&path).ok())
            else {
                continue;
            };
            if let Some((number, said)) = refused(&text) {
                files += number;
                assert!(said.is_empty(), "{}: {}", path.display(), said.join("\n"));
            }
        }
    }
    assert!(files > 30, "only {files} files of programs");
}
