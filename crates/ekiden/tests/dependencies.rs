//! What the program is made of, by `cargo tree`: under which licences, which crates it has in two versions, and what a node alone
//! leaves out. `cargo_metadata` would not say: it resolves the features of the whole workspace together, also those of crates that are
//! not asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The licences under which code of others is taken, with the reason for those that not everybody knows.
const LICENCES: &[(&str, &str)] = &[
    ("MIT", ""),
    ("Apache-2.0", ""),
    ("BSD-2-Clause", "libbpf, which may be had under the LGPL instead: as MIT"),
    ("BSD-3-Clause", "subtle: as MIT, and its authors' names may not advertise"),
    ("ISC", "ring and what rustls reads certificates with: as MIT, in fewer words"),
    ("Unicode-3.0", "tables of unicode-ident, in macros alone: as MIT"),
];

/// Crates of which there are several versions: which, and why each of them is there.
const SEVERAL: &[(&str, &[&str], &str)] = &[
    (
        "getrandom",
        &["0.2", "0.3", "0.4"],
        "0.2 by ring, 0.3 by ahash, which parquet wants; 0.4 is ours and all others'",
    ),
    ("nix", &["0.31", "0.32"], "0.31 by rtnetlink, tun-rs and libbpf-sys; ours has no undefined behaviour in recvfrom"),
    ("syn", &["2", "3"], "in macros alone: 2 by tracing and zerocopy"),
    ("thiserror", &["1", "2"], "1 by ppp"),
    ("thiserror-impl", &["1", "2"], "the macros of thiserror"),
];

/// What a node alone, with tunnel and gateway, is built without.
const NOT_OF_A_NODE: &[&str] = &[
    "ekiden-demo",
    "ekiden-diagnosis",
    "ekiden-flows",
    "ekiden-iperf3",
    "ekiden-lab",
    "ekiden-measure",
    "ekiden-measure-proto",
    "ekiden-model",
    "ekiden-monitor",
    "ekiden-plan",
    "ekiden-record",
    "ekiden-reproduce",
    "ekiden-sim",
    "ekiden-sweep",
    "ekiden-tcp",
    "libsqlite3-sys",
    "parquet",
    "plotters",
    "rusqlite",
];

#[test]
fn a_node_alone_has_no_database_and_draws_no_pictures() {
    let names = |arguments: &[&str]| -> BTreeSet<String> {
        built(&[&["-p", "ekiden", "-e", "normal"], arguments].concat()).into_iter().map(|(name, ..)| name).collect()
    };
    let (whole, node) = (names(&[]), names(&["--no-default-features"]));
    for name in NOT_OF_A_NODE {
        assert!(whole.contains(*name), "{name} is in no program, and need not be listed");
        assert!(
            !node.contains(*name),
            "{name} is in a node alone: cargo tree -p ekiden --no-default-features -i {name}"
        );
    }
}

#[test]
fn every_licence_is_one_that_is_known() {
    let mut used = BTreeSet::new();
    for (name, _, licence) in built(&["--workspace", "-e", "normal,build,dev"]) {
        // Read as if "and" bound less than "or", which asks for more where it does not. Old manifests write "or" as a slash.
        for all in licence.replace(['(', ')'], "").split(" AND ") {
            let any = all.split(" OR ").flat_map(|one| one.split('/')).map(str::trim);
            let known: Vec<_> = LICENCES.iter().map(|(known, _)| *known).collect();
            let taken = any.filter_map(|one| known.iter().find(|known| **known == one)).next();
            used.insert(*taken.unwrap_or_else(|| panic!("{name} is under '{licence}', which nobody has looked at")));
        }
    }
    let listed: BTreeSet<&str> = LICENCES.iter().map(|(known, _)| *known).collect();
    assert_eq!(used, listed, "the licences that crates need (left) are not those listed (right)");
}

#[test]
fn no_crate_has_a_further_version_without_a_reason() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, version, _) in built(&["--workspace", "-e", "normal,build,dev"]) {
        versions.entry(name).or_default().insert(version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let listed = SEVERAL.iter().map(|(name, versions, _)| {
        ((*name).to_owned(), versions.iter().map(|version| (*version).to_owned()).collect::<BTreeSet<_>>())
    });
    assert_eq!(versions, listed.collect(), "crates in several versions (left) are not those listed (right)");
}

/// Crates behind cargo's `arguments`: name, the part of the version that must be the same for two to be one, licence.
fn built(arguments: &[&str]) -> BTreeSet<(String, String, String)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = ["tree", "--quiet", "--locked", "--prefix", "none", "--format", "{p}|{l}|"];
    // One set of features for all crates, which a developer may have for builds, would be all crates.
    let unified = "CARGO_RESOLVER_FEATURE_UNIFICATION";
    let said = Command::new(cargo).current_dir(root).env_remove(unified).args(tree).args(arguments).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let text = String::from_utf8(said.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty()).map(|line| {
        let [package, licence, _] = line.split('|').collect::<Vec<_>>()[..] else { panic!("cargo tree says: {line}") };
        let mut words = package.split(' ');
        let (name, version) = (words.next().unwrap(), words.next().unwrap().trim_start_matches('v'));
        (name.to_owned(), compatible(version), licence.to_owned())
    });
    lines.collect()
}

/// A version up to its first number that is not 0.
fn compatible(version: &str) -> String {
    let zeros = version.split('.').take_while(|number| *number == "0").count();
    version.split('.').take(zeros + 1).collect::<Vec<_>>().join(".")
}
