//! The architecture as a test: which crate may know which, how long a file may be, where `unsafe` may stand.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Each crate with the crates of ours that it depends on outside tests; ARCHITECTURE.md says why.
const ALLOWED: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("packet", &["units"]),
    ("files", &[]),
    ("scenario", &["files", "units"]),
    ("record", &["files"]),
    ("model", &["scenario", "units"]),
    ("net", &["units"]),
    ("relay-proto", &[]),
    ("window-balance", &[]),
    ("congestion", &[]),
    ("link", &["scenario", "units"]),
    ("tcp", &["congestion", "packet", "units"]),
    ("sim", &["congestion", "link", "packet", "record", "scenario", "tcp", "units", "window-balance"]),
    ("bpf", &["congestion"]),
    ("keys", &["files", "relay-proto"]),
    ("transport", &["keys", "net", "relay-proto"]),
    ("relay", &["bpf", "congestion", "files", "keys", "net", "relay-proto", "transport", "units"]),
    ("bench", &["net"]),
    ("doctor", &["net", "units"]),
    ("lab", &["bpf", "congestion", "link", "net", "record", "relay-proto", "scenario", "units"]),
    ("report", &["record"]),
    ("sweep", &["files", "record", "report", "scenario", "units"]),
    ("demo", &["lab", "model", "report", "scenario", "units"]),
    (
        "ekiden",
        &[
            "bpf",
            "congestion",
            "demo",
            "doctor",
            "files",
            "keys",
            "lab",
            "net",
            "record",
            "relay",
            "report",
            "scenario",
            "sim",
            "sweep",
            "transport",
            "units",
        ],
    ),
];

/// The only places below `crates/` where `unsafe` may stand.
const UNSAFE: &[&str] = &["net", "bpf", "window-balance/src/native.rs", "congestion/src/native.rs"];

/// Longer files want to be split.
const LINES_MOST: usize = 500;

#[test]
fn crates_depend_on_those_they_know_and_on_no_others() {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap();
    let short = |name: &str| name.strip_prefix("ekiden-").unwrap_or(name).to_owned();
    let ours: BTreeSet<String> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let mut seen = BTreeSet::new();
    for package in &metadata.packages {
        let name = short(&package.name);
        let Some((_, allowed)) = ALLOWED.iter().find(|(room, _)| *room == name) else {
            panic!("the crate '{name}' has no row in ALLOWED and ARCHITECTURE.md");
        };
        let is_used = |kind| kind == DependencyKind::Normal;
        let all = package
            .dependencies
            .iter()
            .filter(|dependency| is_used(dependency.kind) && ours.contains(&dependency.name));
        let uses: BTreeSet<String> = all.map(|dependency| short(&dependency.name)).collect();
        assert_eq!(uses, allowed.iter().map(ToString::to_string).collect(), "what '{name}' depends on");
        seen.insert(name);
    }
    for (room, _) in ALLOWED {
        assert!(seen.contains(*room), "ALLOWED names '{room}', which is no crate");
    }
}

#[test]
fn the_architecture_names_every_crate() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (room, _) in ALLOWED {
        assert!(text.contains(&format!("| `{room}` |")), "ARCHITECTURE.md has no row for `{room}`");
    }
}

#[test]
fn files_stay_readable_and_unsafe_stays_in_its_room() {
    let mut files = Vec::new();
    collect(&root().join("crates"), &mut files);
    assert!(files.len() > 20, "the sources are not where this test looks");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = text.lines().count();
        assert!(lines <= LINES_MOST, "{} has {lines} lines, more than {LINES_MOST}", file.display());
        let may = UNSAFE.iter().any(|place| file.starts_with(root().join("crates").join(place)));
        // In two parts, for this file is one of them.
        let allows = text.contains(&["allow(", "unsafe_code)"].concat());
        assert!(may || !allows, "{} allows unsafe code", file.display());
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every Rust file below `folder`.
fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, into),
            false if path.extension().is_some_and(|extension| extension == "rs") => into.push(path),
            false => {}
        }
    }
}
