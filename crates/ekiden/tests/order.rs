//! The rooms of the relay stand in an order: each uses those below it and none above. ARCHITECTURE.md has the list.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[test]
fn the_relays_rooms_use_only_those_below_them() {
    let source = root().join("crates/relay/src");
    let order = rooms();
    let there: BTreeSet<String> = std::fs::read_to_string(source.join("lib.rs"))
        .unwrap()
        .lines()
        .filter_map(|line| Some(line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')?.to_owned()))
        .collect();
    assert_eq!(there, order.iter().cloned().collect(), "ARCHITECTURE.md lists the rooms of crates/relay/src/lib.rs");
    let mut upward = Vec::new();
    for (place, room) in order.iter().enumerate() {
        for file in files(&source, room) {
            let text = std::fs::read_to_string(&file).unwrap();
            for above in &order[..place] {
                let uses = |line: &&str| {
                    let code = line.split("//").next().unwrap_or_default();
                    code.contains(&format!("crate::{above}::")) || code.contains(&format!("use crate::{above};"))
                };
                upward.extend(text.lines().filter(uses).map(|line| format!("{}: {line}", file.display())));
            }
        }
    }
    assert!(upward.is_empty(), "uses of a room above:\n{}", upward.join("\n"));
}

/// The first column of the table behind "The rooms of `relay`".
fn rooms() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, table) = text.split_once("The rooms of `relay`").unwrap();
    let rows =
        table.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect()
}

/// A room's own file and all below its folder.
fn files(source: &Path, room: &str) -> Vec<PathBuf> {
    let mut found = vec![source.join(format!("{room}.rs"))];
    let mut folders = vec![source.join(room)];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
