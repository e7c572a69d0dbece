//! What a scenario accepts of a tunnel, `ekiden tunnel` accepts too: the lab finds nothing wrong that `scenario check` has not said.

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");

/// Two hosts behind the two ends of a tunnel with these keys.
fn scenario(keys: &str, mtu: u32) -> String {
    format!(
        "name = \"t\"\n[node.a]\n[node.b]\n[node.x]\nkind = \"router\"\n[node.y]\nkind = \"router\"\n\
         [link.near]\nends = [\"a\", \"x\"]\nrate = \"1Gbit/s\"\nmtu = {mtu}\n[link.line]\nends = [\"x\", \"y\"]\nrate = \"10Mbit/s\"\n\
         [link.far]\nends = [\"y\", \"b\"]\nrate = \"1Gbit/s\"\n[tunnel.t]\nends = [\"x\", \"y\"]\n{keys}\n\
         [flow.f]\nfrom = \"a\"\nto = \"b\"\nbytes = \"1MB\"\n"
    )
}

/// What the tunnel's two configurations are refused for. `None`: the scenario is refused already.
fn refused(folder: &Path, text: &str) -> Option<Vec<String>> {
    let scenario = ekiden_scenario::Scenario::parse(text, "t.toml").ok()?;
    let (_, tunnel) = scenario.tunnels.get_index(0)?;
    let mut said = Vec::new();
    for end in [0, 1] {
        let file = folder.join("end.toml");
        std::fs::write(&file, ekiden_lab::tunnel_file(&scenario, 0, tunnel, end)).unwrap();
        let output = Command::new(EKIDEN).args(["tunnel", "--show-config", "-c"]).arg(&file).output().unwrap();
        if !output.status.success() {
            said.push(format!(
                "{}\n{}",
                String::from_utf8_lossy(&output.stderr),
                std::fs::read_to_string(&file).unwrap()
            ));
        }
    }
    Some(said)
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

#[test]
fn a_tunnel_of_a_scenario_that_is_accepted_is_one_for_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(EKIDEN).args(["keygen", "--shared"]).arg(folder.path().join("key")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let accepted = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let mtus = prop_oneof![Just(576_u32), Just(1500), Just(9000)];
    runner
        .run(&(keys(), mtus), |(keys, mtu)| {
            if let Some(said) = refused(folder.path(), &scenario(&keys, mtu)) {
                accepted.set(accepted.get() + 1);
                prop_assert!(said.is_empty(), "{keys}\n{}", said.join("\n"));
            }
            Ok(())
        })
        .unwrap();
    assert!(accepted.get() > 60, "only {} were accepted by the scenario", accepted.get());
}
