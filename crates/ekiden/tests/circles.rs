//! Which files of a crate use each other in a circle. An edge is a use of a name outside tests; a module and its children are one
//! room.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Circles that are still there. None is to be added.
const CIRCLES: &[(&str, &[&str])] = &[("tcp", &["recovery", "sender"])];

/// The rooms of a crate, and of which others each uses names.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_files_use_each_other_in_a_circle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for folder in std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let mut texts = BTreeMap::new();
        read(&folder.join("src"), None, &mut texts);
        found.extend(circles(&uses(&texts)).into_iter().map(|circle| (name.clone(), circle)));
    }
    let known = CIRCLES.iter().map(|(name, rooms)| (name.to_string(), rooms.iter().map(ToString::to_string).collect()));
    assert_eq!(found, known.collect());
}

#[test]
fn circles_are_seen() {
    let texts = [
        ("a", "use crate::b::B;"),
        ("b", "use crate::{d, c::C};\n#[cfg(test)]\nmod tests { use crate::a::A; }"),
        ("c", "fn f() { super::e::g() } // crate::a"),
        ("d", "#[cfg(test)]\nmod tests;\n"),
        ("e", "fn g() { crate::b::f() }"),
    ];
    let texts = texts.map(|(room, text)| (room.to_owned(), vec![(true, text.to_owned())])).into();
    assert_eq!(circles(&uses(&texts)), [BTreeSet::from(["b", "c", "e"].map(str::to_owned))]);
}

/// The files below `folder`, by room, and whether each is the room's own file.
fn read(folder: &Path, room: Option<&str>, into: &mut BTreeMap<String, Vec<(bool, String)>>) {
    for path in std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let own = room.unwrap_or(&stem);
        if path.is_dir() {
            read(&path, Some(own), into);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !["tests", "lib", "main"].contains(&stem.as_str())
        {
            let text = std::fs::read_to_string(&path).unwrap();
            into.entry(own.to_owned()).or_default().push((room.is_none(), text));
        }
    }
}

fn uses(texts: &BTreeMap<String, Vec<(bool, String)>>) -> Uses {
    let of = |room: &String, files: &Vec<(bool, String)>| {
        let mut names = BTreeSet::new();
        for (is_own, text) in files {
            let text = without_tests(text);
            names.extend(names_behind(&text, "crate::"));
            if *is_own {
                names.extend(names_behind(&text, "super::"));
            }
        }
        names.retain(|name| name != room && texts.contains_key(name));
        names
    };
    texts.iter().map(|(room, files)| (room.clone(), of(room, files))).collect()
}

/// Without comments to the end of a line, and without what is compiled for tests only.
fn without_tests(text: &str) -> String {
    let mut text: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    while let Some(start) = text.find("#[cfg(test)]") {
        let rest = &text[start..];
        let end = match (rest.find('{'), rest.find(';')) {
            (Some(brace), semicolon) if semicolon.is_none_or(|semicolon| brace < semicolon) => closing(rest, brace),
            (_, Some(semicolon)) => semicolon,
            (_, None) => rest.len() - 1,
        };
        text.replace_range(start..=start + end, "");
    }
    text
}

/// Where the brace at `open` is closed.
fn closing(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len() - 1
}

/// The first names behind `root`, also of a list in braces.
fn names_behind(text: &str, root: &str) -> Vec<String> {
    let name = |text: &str| {
        text.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_owned()
    };
    let mut names = Vec::new();
    for rest in text.split(root).skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            names.push(name(rest));
            continue;
        };
        let list = &list[..closing(rest, 0) - 1];
        let mut depth = 0;
        let parts = list.split(|c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        names.extend(parts.map(name));
    }
    names
}

/// Rooms each of which is used, by others if not directly, by all others of its circle.
fn circles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(room) = next.pop() {
            next.extend(uses[room].iter().filter(|other| seen.insert((*other).clone())));
        }
        seen
    };
    let all: BTreeMap<&String, BTreeSet<String>> = uses.keys().map(|room| (room, reached(room))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (room, reached) in &all {
        let circle: BTreeSet<String> = reached.iter().filter(|other| all[other].contains(*room)).cloned().collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}
