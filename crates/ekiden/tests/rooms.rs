//! The architecture as a test: which crate may know which, how long a file may be, where `unsafe` may stand, and which crates
//! have neither clocks nor hash tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{Dependency, DependencyKind, Metadata, MetadataCommand, Package};

/// Which crates of ours a crate's tests use beyond those that it knows: `(crate, used)`.
const FOR_TESTS: &[(&str, &str)] = &[
    ("diagnosis", "congestion"),
    ("diagnosis", "link"),
    ("diagnosis", "packet"),
    ("diagnosis", "queue"),
    ("diagnosis", "tcp"),
    ("model", "record"),
    ("model", "sim"),
    ("stream", "net"),
    ("stream", "units"),
];

/// The only places below `crates/` where `unsafe` may stand.
const UNSAFE: &[&str] = &["net", "bpf", "window-balance/src/native.rs", "congestion/src/native.rs"];

/// The lint that keeps it out of all others. In two parts, for this file is one of them.
const UNSAFE_LINT: &str = concat!("unsafe", "_code");

/// What keeps clocks and hash tables out of a crate: `clippy.toml` says which.
const WITHOUT_CLOCKS: &str = "#![deny(clippy::disallowed_methods, clippy::disallowed_types)]";

/// Longer files want to be split.
const LINES_MOST: usize = 500;

#[test]
fn crates_depend_on_those_they_know_and_on_no_others() {
    let metadata = metadata();
    let mut knows = known();
    for package in &metadata.packages {
        let name = short(&package.name);
        let row = knows.remove(&name).unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for the crate '{name}'"));
        let is_for_tests = |dependency: &&Dependency| dependency.kind == DependencyKind::Development;
        let (tests, builds): (Vec<_>, Vec<_>) = ours(&metadata, package).partition(is_for_tests);
        let builds: BTreeSet<String> = builds.into_iter().map(|dependency| short(&dependency.name)).collect();
        assert_eq!(builds, row, "what '{name}' depends on (left) is not what ARCHITECTURE.md says it knows (right)");
        let tests = tests.into_iter().map(|dependency| short(&dependency.name)).filter(|used| !row.contains(used));
        let listed = FOR_TESTS.iter().filter(|(of, _)| *of == name).map(|(_, used)| (*used).to_owned());
        assert_eq!(tests.collect::<BTreeSet<_>>(), listed.collect(), "what the tests of '{name}' use besides");
    }
    assert!(knows.is_empty(), "ARCHITECTURE.md has rows for what is no crate: {:?}", knows.keys());
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
        assert!(may || !text.contains(UNSAFE_LINT), "{} names {UNSAFE_LINT}", file.display());
    }
    for package in metadata().packages {
        let text = std::fs::read_to_string(&package.manifest_path).unwrap();
        assert!(text.contains("\n[lints]\nworkspace = true\n"), "{} sets lints of its own", package.manifest_path);
    }
}

#[test]
fn the_crates_without_clocks_deny_them() {
    let text = architecture();
    let (list, _) = text.split_once("No clock, socket or task inside ").unwrap().1.split_once('.').unwrap();
    let listed: BTreeSet<String> = list.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut deny = BTreeSet::new();
    for folder in crates {
        let lib = std::fs::read_to_string(folder.join("src/lib.rs")).unwrap_or_default();
        if lib.lines().any(|line| line == WITHOUT_CLOCKS) {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            let mut files = Vec::new();
            collect(&folder.join("src"), &mut files);
            for file in files {
                let text = std::fs::read_to_string(&file).unwrap();
                let named = text.matches("clippy::disallowed").count();
                let expected = if file == folder.join("src/lib.rs") { 2 } else { 0 };
                assert_eq!(named, expected, "{} allows what '{name}' denies", file.display());
            }
            deny.insert(name);
        }
    }
    assert_eq!(deny, listed, "the crates that deny clocks (left) are not those of ARCHITECTURE.md (right)");
}

/// What each crate knows: the third column of the first table behind "Rooms".
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let text = architecture();
    let (_, table) = text.split_once("\n## Rooms\n").unwrap();
    let rows =
        table.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    let mut known = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, _, knows, _] = cells[..] else { panic!("this row has not three cells: {row}") };
        let name = name.trim_matches('`').to_owned();
        let knows = knows.split(", ").filter(|known| *known != "–").map(str::to_owned).collect();
        assert!(known.insert(name, knows).is_none(), "two rows for one crate: {row}");
    }
    known
}

fn architecture() -> String {
    std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

fn metadata() -> Metadata {
    MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap()
}

/// Those of a crate's dependencies that are crates of this project.
fn ours<'a>(metadata: &'a Metadata, package: &'a Package) -> impl Iterator<Item = &'a Dependency> {
    let is_ours = |dependency: &&Dependency| metadata.packages.iter().any(|package| *package.name == dependency.name);
    package.dependencies.iter().filter(is_ours)
}

/// A crate's name in ARCHITECTURE.md, and its folder's.
fn short(name: &str) -> String {
    name.strip_prefix("ekiden-").unwrap_or(name).to_owned()
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
