//! Which warnings and errors of long-running programs are logged without the throttle. What strangers or a load can cause goes
//! through `ekiden_service::Throttle`; each of these is listed with the reason why nobody can fill the log with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file below `crates/`, how many there are in it, and why they are few.
const BARE: &[(&str, usize, &str)] = &[
    ("bpf/src/named.rs", 2, "at the start and at a reload"),
    ("ekiden/src/log.rs", 3, "once at the start"),
    ("ekiden/src/measure/monitor.rs", 1, "once at the start"),
    ("ekiden/src/measure/server.rs", 1, "once at the start"),
    ("ekiden/src/start.rs", 1, "once at the start"),
    ("gateway/src/keeper.rs", 3, "once at the start, and by itself at most every five seconds"),
    ("gateway/src/programs.rs", 1, "once at the start"),
    ("monitor/src/service.rs", 6, "as often as its own schedule measures"),
    ("registry/src/keeper.rs", 3, "once at the start or at the end, and of its own settings"),
    ("relay/src/exit/names/files.rs", 4, "when a file of this system has changed"),
    ("relay/src/exit/names/server.rs", 1, "for each of at most three name servers, once in 30 s"),
    ("relay/src/host/congestion.rs", 2, "at the start and at a reload"),
    ("relay/src/host/rules/install.rs", 2, "at the end and at a reload"),
    ("relay/src/node/accept.rs", 1, "once for each socket of a listener"),
    ("relay/src/node/membership.rs", 4, "at a reload, at the end, or when members change"),
    ("relay/src/node/overlay.rs", 2, "once, and at a reload"),
    ("relay/src/node/process.rs", 9, "at the start, at a reload, once a day, at the end, or when members change"),
    ("relay/src/pool.rs", 1, "once until connections to the node last for seconds again"),
    ("relay/src/shared.rs", 1, "once at the start"),
    ("service/src/announce.rs", 1, "once at the start"),
    (
        "service/src/followed.rs",
        3,
        "once for each reason for which a file of the operator's is not taken, when it becomes empty, and when it never stays",
    ),
    ("service/src/process.rs", 1, "once at the start"),
    ("service/src/reload.rs", 2, "at a reload"),
    ("service/src/throttle.rs", 1, "the throttle itself"),
    (
        "transport/src/segments.rs",
        1,
        "for each node on the other side when its longest segment changes, at most once in ten minutes",
    ),
    ("tunnel/src/node.rs", 4, "at the start"),
];

#[test]
fn warnings_that_others_can_cause_go_through_the_throttle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for folder in fs::read_dir(root).unwrap() {
        collect(&folder.unwrap().path().join("src"), &mut files);
    }
    assert!(files.len() > 100, "the sources are not where this test looks");
    let mut found = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let count = ["warn!(", "error!("].iter().map(|word| calls(code, word)).sum::<usize>();
        if count > 0 {
            found.insert(file.strip_prefix(root).unwrap().display().to_string(), count);
        }
    }
    let listed = BARE.iter().map(|(file, count, _)| ((*file).to_owned(), *count)).collect();
    assert_eq!(
        found, listed,
        "a warning that others can cause goes through the throttle (left); one that they cannot has its reason in this list (right)"
    );
}

/// How often a macro of this name is called, and not one whose name ends so.
fn calls(code: &str, word: &str) -> usize {
    code.match_indices(word).filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_')).count()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        match path.extension() {
            _ if path.is_dir() => collect(&path, files),
            Some(extension) if extension == "rs" && !path.ends_with("tests.rs") => files.push(path),
            _ => {}
        }
    }
}
